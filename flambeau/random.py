"""torch.random: the default generator's state, and keeping it over a block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from .ops.random import default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state


@contextmanager
def fork_rng(devices: Iterable | None = None, enabled: bool = True, device_type: str = "cpu") -> Iterator[None]:
    """Put the generator back, at the end of the block, to where it was at its start."""
    if not enabled:
        yield
        return
    before = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(before)


__all__ = ["default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]
