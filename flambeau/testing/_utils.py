"""Seeds of what tests compare twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..random import fork_rng, manual_seed


@contextmanager
def freeze_rng_state() -> Iterator[None]:
    """A block after which the states of the generators are what they were."""
    with fork_rng():
        yield


def wrapper_set_seed(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What `op` gives with the seed 42; the generators' states stay."""
    with freeze_rng_state():
        manual_seed(42)
        return op(*args, **kwargs)


__all__: list[str] = []
