"""Locks that a forked child finds open: the thread that held them in the parent is not there to release them."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

_made: weakref.WeakSet[Any] = weakref.WeakSet()


def lock() -> Any:
    """A `threading.Lock`."""
    return _kept(threading.Lock())


def reentrant_lock() -> Any:
    """A `threading.RLock`."""
    return _kept(threading.RLock())


def _kept(made: Any) -> Any:
    _made.add(made)
    return made


def _open() -> None:
    for made in list(_made):
        made._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open)
