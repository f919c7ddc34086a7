"""Locks that a forked child finds open: the thread that held them in the parent is not there to release them.

Python's own locks of modules that are being imported are not ours to open: the module would stay half made. A fork waits until no
other thread imports anything, and lets none begin.
"""

from __future__ import annotations

import _imp
import concurrent.futures.thread  # noqa: F401  (has hooks at forks: they must not come while a fork waits)
import functools
import importlib
import os
import threading
import time
import weakref
from typing import Any

_made: weakref.WeakSet[Any] = weakref.WeakSet()


def lock() -> Any:
    """A `threading.Lock`."""
    return _kept(threading.Lock())


def reentrant_lock() -> Any:
    """A `threading.RLock`."""
    return _kept(threading.RLock())


class cached_property(functools.cached_property):
    """Python's, whose lock (all instances of the class share it, up to Python 3.11) is open in a forked child."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        if hasattr(self, "lock"):
            _kept(self.lock)


def _kept(made: Any) -> Any:
    _made.add(made)
    return made


_LONGEST_IMPORT = 10.0  # seconds; a fork does not wait for ever where two threads wait for each other
_module_locks: dict[str, Any] = getattr(getattr(importlib, "_bootstrap", None), "_module_locks", {})


def _others_import() -> bool:
    """Whether another thread is in the middle of an import."""
    me = threading.get_ident()
    owners = (getattr(held(), "owner", None) for held in list(_module_locks.values()))
    return any(owner not in (None, me) for owner in owners)


def _let_imports_end() -> None:
    """A child forked during another thread's import would wait for it for ever, at its own import of that module."""
    deadline = time.monotonic() + _LONGEST_IMPORT
    _imp.acquire_lock()  # no thread passes on to another module
    while _others_import() and time.monotonic() < deadline:
        _imp.release_lock()
        time.sleep(0.001)
        _imp.acquire_lock()


def _open() -> None:
    _imp.release_lock()
    for made in list(_made):
        made._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_let_imports_end, after_in_parent=_imp.release_lock, after_in_child=_open)
