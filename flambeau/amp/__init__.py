"""torch.amp: mixed precision."""

# isort: off
from . import autocast_mode, grad_scaler
from .autocast_mode import (
    autocast, clear_autocast_cache, custom_bwd, custom_fwd, get_autocast_cpu_dtype, get_autocast_dtype, get_autocast_gpu_dtype,
    is_autocast_available, is_autocast_cache_enabled, is_autocast_cpu_enabled, is_autocast_enabled, set_autocast_cache_enabled,
    set_autocast_dtype, set_autocast_enabled,
)
from .grad_scaler import GradScaler
# isort: on

__all__ = [
    "GradScaler", "autocast", "autocast_mode", "clear_autocast_cache", "custom_bwd", "custom_fwd", "get_autocast_cpu_dtype",
    "get_autocast_dtype", "get_autocast_gpu_dtype", "grad_scaler", "is_autocast_available", "is_autocast_cache_enabled",
    "is_autocast_cpu_enabled", "is_autocast_enabled", "set_autocast_cache_enabled", "set_autocast_dtype", "set_autocast_enabled",
]
