"""Who watches what runs: recorders, which change nothing.

`dispatch.state.watchers` are those of this thread. Operators called from outside are told to them by `begin(name, args)` and
`end(event)`, calls of compiled libraries by `ran(what, start, laps)`: when its kernels ended, one after the other. What an operator
runs inside is its own, and what is traced or compiled is told to nobody. Recorders of profiles are native (csrc/recorder.cpp): an event
costs a fraction of a microsecond.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from flambeau import _C
from flambeau.core import dispatch

state = dispatch.state

OPERATOR, BACKWARD, ENGINE, REGION, USER = 0, 1, 2, 3, 7
"""Kinds of what is told: operators and kernels, nodes of backward, the engine around them, calls of compiled code, what a program named."""


class Watcher(Protocol):
    """A recorder of one thread."""

    def begin(self, name: str, args: Sequence[Any] = (), kind: int = 0, sequence: int = -1) -> Any:
        """Something starts, of a kind; `sequence`: the number of autograd's node that it is."""

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


def _watched(name: str, function: Callable, args: tuple, kwargs: dict | None, kind: int = 0, sequence: int = -1, seen: Any = None) -> Any:
    """`watched` for watchers of any type."""
    watchers = state.watchers
    events = [watcher.begin(name, args if seen is None else seen, kind, sequence) for watcher in watchers]
    if not kind:
        state.watchers = ()
    try:
        return function(*args, **(kwargs or {}))
    finally:
        if not kind:
            state.watchers = watchers
        for watcher, event in zip(reversed(watchers), reversed(events)):
            watcher.end(event)


def tell(name: str, start: int, end: int) -> None:
    """Tell recorders of something that went on beside what ran, from when to when."""
    for watcher in state.watchers:
        if isinstance(watcher, _C.Recorder):
            watcher.went(name, start, end)


watched = _C.recorded
"""`watched(name, function, args, kwargs, kind=0, sequence=-1, seen=args)`: `function(*args, **kwargs)`, told to the watchers; what it calls
only if its kind is not 0, an operator's."""

_C.know_watched(_watched)
os.register_at_fork(after_in_child=lambda: setattr(state, "watchers", ()))     # nobody reads what a child process records
