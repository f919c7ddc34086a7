"""torch.profiler.itt: ranges that Intel's VTune shows, through the `ittapi` package."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

try:
    ittapi: Any = importlib.import_module("ittapi")
except ImportError:
    ittapi = None


def is_available() -> bool:
    """Whether the package `ittapi` is there."""
    return ittapi is not None


def _library() -> Any:
    if ittapi is None:
        raise RuntimeError("ITT functions not installed: pip install ittapi")
    return ittapi


_open: list[Any] = []


def range_push(msg: str) -> int:
    """Begin a range within those that are open; how many were."""
    task = _library().task(msg)
    task.begin()
    _open.append(task)
    return len(_open) - 1


def range_pop() -> int:
    """End the innermost range; how many are open still."""
    _library()
    _open.pop().end()
    return len(_open)


def mark(msg: str) -> None:
    """A moment."""
    _library().event(msg).begin()


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """The block is a range; `msg` is formatted with what follows."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()


__all__ = ["is_available", "range_push", "range_pop", "mark", "range"]
