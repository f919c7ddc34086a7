"""Indices that kernels find out of range: noted where they run, an IndexError at the next synchronisation.

A kernel cannot raise. What it finds it writes to pinned host memory, which every GPU sees at the host's own address, and goes on
without touching the element; who waits for the GPU afterwards looks there (`check`), which costs a comparison of a few words.
Each operator, or kernel of a compiled graph, has a place of two words: the index, and the size that it exceeds plus one.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ...core.locks import lock

MOST = 512      # places; operators beyond them share the last
_WORDS = 2

_numbers: dict[str, int] = {}
_failed: list[Exception] = []
_lock = lock()
_memory: np.ndarray | None = None       # a row for each place
_used: np.ndarray | None = None         # the rows that are given away


def place(name: str) -> int:
    """The address at which kernels of `name` note an index that is out of range."""
    global _memory, _used
    with _lock:
        if _memory is None:
            pinned = importlib.import_module("cupy").cuda.alloc_pinned_memory(MOST * _WORDS * 8)
            _memory = np.frombuffer(pinned, np.int64, MOST * _WORDS).reshape(MOST, _WORDS)
            _memory[:] = 0
        number = _numbers.setdefault(name, min(len(_numbers), MOST - 1))
        _used = _memory[: min(len(_numbers), MOST)]
        return int(_memory[number].ctypes.data)


class Places(dict):
    """`place` as a mapping from names to addresses."""

    def __missing__(self, name: str) -> int:
        self[name] = place(name)
        return self[name]


def fail(error: Exception) -> None:
    """Raise `error` at the next synchronisation: something else, that computes on the GPU unseen, went wrong."""
    _failed.append(error)


def check() -> None:
    """Raise what kernels have noted, an IndexError, and what `fail` was told; for when the GPU has been waited for. It is not the fault
    of the call that waits, which would not fail a second time: `told_late` says so."""
    if _failed:
        raise _late(_failed.pop(0))
    if _used is not None and _used.any():
        _raise(_used)


def _raise(used: np.ndarray) -> None:
    noted: list[Any] = used.tolist()
    used[:] = 0
    name, (index, above) = next((name, noted[k]) for name, k in _numbers.items() if noted[k][1])
    raise _late(IndexError(f"index {index} is out of bounds for a dimension of size {above - 1} in {name}, which ran on the GPU before this "
                           "synchronisation; what was computed from it since is not right"))


def _late(error: Exception) -> Exception:
    error.told_late = True  # type: ignore[attr-defined]
    return error
