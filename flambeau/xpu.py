"""torch.xpu: Intel's GPUs are not supported. Questions are answered truly; work raises."""

from __future__ import annotations

from ._absent import absent_names
from .mps import device_count, empty_cache, is_available, manual_seed, manual_seed_all, memory_allocated

__all__ = ["device_count", "empty_cache", "is_available", "manual_seed", "manual_seed_all", "memory_allocated"]


__getattr__ = absent_names("torch.xpu", (
    "Event", "Stream", "StreamContext", "current_device", "current_stream", "device", "device_of", "get_device_capability",
    "get_device_name", "get_device_properties", "get_rng_state", "init", "initial_seed", "is_bf16_supported", "is_initialized",
    "max_memory_allocated", "max_memory_reserved", "mem_get_info", "memory_reserved", "memory_stats", "reset_peak_memory_stats", "seed",
    "seed_all", "set_device", "set_rng_state", "set_stream", "stream", "synchronize"),
    "there is no such device; use the CPU or an NVIDIA GPU")
