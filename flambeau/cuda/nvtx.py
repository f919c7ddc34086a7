"""torch.cuda.nvtx: marks for NVIDIA's profilers, through the `nvtx` package; without it they mark nothing."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from typing import Any

_nvtx: Any = importlib.import_module("nvtx") if importlib.util.find_spec("nvtx") else None
_open: list[Any] = []


def range_push(msg: str) -> int:
    """Begin a range; its depth, from 0."""
    _open.append(None if _nvtx is None else _nvtx.push_range(msg))
    return len(_open) - 1


def range_pop() -> int:
    """End the innermost range; its depth."""
    if _open:
        _open.pop()
        if _nvtx is not None:
            _nvtx.pop_range()
    return len(_open)


def range_start(msg: str) -> Any:
    """Begin a range that any thread may end with `range_end`."""
    return None if _nvtx is None else _nvtx.start_range(msg)


def range_end(range_id: Any) -> None:
    """End it."""
    if _nvtx is not None:
        _nvtx.end_range(range_id)


def mark(msg: str) -> None:
    """Mark an instant."""
    if _nvtx is not None:
        _nvtx.mark(msg)


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A range around a block or function; the arguments are formatted into `msg`."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()


__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]
