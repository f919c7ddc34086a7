"""Communication hooks for DistributedDataParallel.register_comm_hook."""

from __future__ import annotations

from ...._lazy import submodules
from . import default_hooks, post_localSGD_hook, powerSGD_hook, quantization_hooks

__getattr__ = submodules(__name__, "ddp_zero_hook")

__all__ = ["default_hooks", "post_localSGD_hook", "powerSGD_hook", "quantization_hooks"]
