"""torch.mps: Apple's GPUs are not supported. Questions are answered truly; work raises."""

from __future__ import annotations

from typing import Any

from ._absent import absent_names


def is_available() -> bool:
    """False: such GPUs are not supported."""
    return False


def device_count() -> int:
    """0."""
    return 0


def empty_cache() -> None:
    """Nothing is cached."""


def manual_seed(seed: int) -> None:
    """Seed the current device, of which there is none."""


def manual_seed_all(seed: int) -> None:
    """Seed every device, of which there is none."""


def memory_allocated(device: Any = None) -> int:
    """0: no memory of such a device is in use."""
    return 0


__getattr__ = absent_names("torch.mps", ("Event", "compile_shader", "current_allocated_memory", "driver_allocated_memory", "get_rng_state",
                                         "profiler", "recommended_max_memory", "seed", "set_per_process_memory_fraction", "set_rng_state",
                                         "synchronize", "load_metallib"), "there is no such device; use the CPU or an NVIDIA GPU")
