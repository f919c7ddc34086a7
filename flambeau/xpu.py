"""torch.xpu: Intel's GPUs are not supported. Questions are answered truly; work raises AttributeError as an unknown name."""

from __future__ import annotations

from .mps import device_count, empty_cache, is_available, manual_seed, manual_seed_all, memory_allocated

__all__ = ["device_count", "empty_cache", "is_available", "manual_seed", "manual_seed_all", "memory_allocated"]
