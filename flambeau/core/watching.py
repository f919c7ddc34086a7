"""Who watches what runs: recorders, which change nothing.

`dispatch.state.watchers` are those of this thread. Operators called from outside are told to them by `begin(name, args)` and
`end(event)`, calls of compiled libraries by `ran(what, start, laps)`: when its kernels ended, one after the other. What an operator
runs inside is its own, and what is traced or compiled is told to nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from flambeau.core import dispatch

state = dispatch.state


class Watcher(Protocol):
    """A recorder of one thread."""

    def begin(self, name: str, args: Sequence[Any] = ()) -> Any:
        """Something starts."""

    def end(self, event: Any) -> None:
        """It is over."""

    def ran(self, what: Any, start: int, laps: bytes) -> None:
        """Kernels ran: `what` is what their library was described as (int64 times in ns; the last is the end)."""


class _Here(threading.local):
    block: Any = None


_here = _Here()


def block() -> Any:
    """The steps of the captured graph that the piece that runs now stands for, where it is one that is called several times."""
    return _here.block


class within:
    """In the block the compiled piece that runs is this stretch of the captured graph."""

    def __init__(self, block: Any) -> None:
        self.block = block

    def __enter__(self) -> None:
        self.outer, _here.block = _here.block, self.block

    def __exit__(self, *error: object) -> None:
        _here.block = self.outer


class unwatched:
    """In the block nobody is told."""

    def __enter__(self) -> None:
        self.watchers, state.watchers = state.watchers, ()

    def __exit__(self, *error: object) -> None:
        state.watchers = self.watchers


def watched(name: str, function: Callable, args: Sequence[Any], kwargs: dict, *, inside: bool = False) -> Any:
    """`function(*args, **kwargs)`, told to the watchers; what it calls only if `inside`."""
    watchers = state.watchers
    events = [watcher.begin(name, args) for watcher in watchers]
    if not inside:
        state.watchers = ()
    try:
        return function(*args, **kwargs)
    finally:
        if not inside:
            state.watchers = watchers
        for watcher, event in zip(watchers, events):
            watcher.end(event)


__all__ = ["Watcher", "block", "unwatched", "watched", "within"]
