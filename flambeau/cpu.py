"""torch.cpu: the device that is always there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import _C
from .core.tensor import Tensor
from .ops.generators import default_generator, initial_seed, manual_seed, seed


def is_available() -> bool:
    """True."""
    return True


def is_initialized() -> bool:
    """True."""
    return True


def device_count() -> int:
    """1."""
    return 1


def current_device() -> str:
    """ "cpu"."""
    return "cpu"


def set_device(device: Any) -> None:
    """Nothing to choose among."""


def synchronize(device: Any = None) -> None:
    """Nothing to wait for: operators return when they are done."""


def empty_cache() -> None:
    """Give the memory of freed tensors, which is kept for the next ones, back to the system."""
    _C.empty_cache()


class Stream:
    """The one order in which work is done."""

    def __init__(self, priority: int = -1) -> None:
        self.priority = priority

    def wait_stream(self, stream: Any) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""


class Event:
    """A mark in the order of work: always reached."""

    def query(self) -> bool:
        """True."""
        return True

    def record(self, stream: Any = None) -> None:
        """Nothing to note."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def wait(self, stream: Any = None) -> None:
        """Nothing to wait for."""


_stream = Stream()


def current_stream(device: Any = None) -> Stream:
    """The one stream."""
    return _stream


@contextmanager
def stream(stream: Any) -> Iterator[None]:
    """No change: there is one stream."""
    yield


def manual_seed_all(seed: int) -> None:
    """torch.manual_seed."""
    manual_seed(seed)


def get_rng_state() -> Tensor:
    """The state of the default generator."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Set the state of the default generator."""
    default_generator.set_state(new_state)


__all__ = [
    "Event", "Stream", "current_device", "current_stream", "device_count", "empty_cache", "get_rng_state", "initial_seed",
    "is_available", "is_initialized", "manual_seed", "manual_seed_all", "seed", "set_device", "set_rng_state", "stream",
    "synchronize",
]
