"""torch.random: the default generator's functions, and a scope that leaves it as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .core.device import device
from .cuda.library import NOT_ENABLED, device_count, index_of
from .ops.generators import (
    Generator,
    all_states,
    default_generator,
    default_gpu_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_all_states,
    set_rng_state,
)


@contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, _caller: str = "fork_rng", _devices_kw: str = "devices", *,
             device_type: str | None = None) -> Iterator[None]:
    """Within the block random numbers may be drawn and seeds set; afterwards the generators are where they were: the CPU's and the one
    of all GPUs, so that `devices` have nothing to choose, but must be there. Errors speak of `_caller` and its `_devices_kw`."""
    kind = device("cuda" if device_type is None else device_type).type
    if kind == "cuda" and any(not 0 <= index_of(d) < device_count() for d in devices or ()):
        raise AssertionError(f"{_caller}(): got {_devices_kw}={list(devices)}, and there are {device_count()} GPUs ({NOT_ENABLED})")
    if not enabled:
        yield
        return
    saved = all_states()
    try:
        yield
    finally:
        set_all_states(saved)


def thread_safe_generator() -> Generator | None:
    """None, for the default generator: the workers of a loader are processes, each with one of its own."""
    return None


__all__ = ["Generator", "default_generator", "default_gpu_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed",
           "set_rng_state", "thread_safe_generator"]
