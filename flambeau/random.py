"""torch.random: the default generator's functions, and a scope that leaves it as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .ops.random import Generator, default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state


@contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, **ignored: Any) -> Iterator[None]:
    """Within the block random numbers may be drawn and seeds set; afterwards the generator is where it was."""
    if not enabled:
        yield
        return
    saved = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(saved)


__all__ = ["Generator", "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]
