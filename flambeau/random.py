"""torch.random: the default generator's functions, and a scope that leaves it as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .core.device import device
from .cuda.library import NOT_ENABLED, device_count, index_of
from .ops.random import Generator, default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state


@contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, *, device_type: str | None = None) -> Iterator[None]:
    """Within the block random numbers may be drawn and seeds set; afterwards the generator is where it was. All devices draw from
    it, so that `devices` have nothing to choose, but must be there."""
    kind = device("cuda" if device_type is None else device_type).type
    if kind == "cuda" and any(not 0 <= index_of(d) < device_count() for d in devices or ()):
        raise AssertionError(f"fork_rng(): got devices={list(devices)}, and there are {device_count()} GPUs ({NOT_ENABLED})")
    if not enabled:
        yield
        return
    saved = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(saved)


__all__ = ["Generator", "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]
