"""Conjugate and negative views on the CPU: arrays whose memory holds the conjugates, or the negatives, of their elements.

A tensor that is such a view has one of these subclasses of `numpy.ndarray` in its `_data`. Native paths take nothing but plain arrays
and leave it to Python, where primitives hand `resolved` arrays to their kernels. Whatever else computes with one through NumPy gets
resolved elements too, and what is written into one is turned first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

_WRITE = (np.copyto, np.putmask, np.place, np.put, np.put_along_axis, np.fill_diagonal)     # into their first argument


class Unresolved(np.ndarray):
    """Elements that are the memory's, conjugated or negated or both."""

    conjugated = negated = False

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        targets = kwargs.pop("out", None)
        made = getattr(ufunc, method)(*_plain(inputs), **_plain(kwargs))
        if targets is None:
            return made
        for target, value in zip(targets, made if isinstance(made, tuple) else (made,), strict=True):
            target[...] = value
        return targets if isinstance(made, tuple) else targets[0]

    def __array_function__(self, func: Callable, types: Any, args: Any, kwargs: Any) -> Any:
        if func in _WRITE and isinstance(args[0], Unresolved):
            whole = resolved(args[0])
            func(whole, *_plain(args[1:]), **_plain(kwargs))
            args[0][...] = whole
            return None
        return func(*_plain(args), **_plain(kwargs))

    def __getitem__(self, key: Any) -> Any:
        found = np.ndarray.__getitem__(self, key)
        return found if isinstance(found, np.ndarray) else resolved(self)[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.view(np.ndarray)[key] = turned(np.asarray(_plain(value)), self.conjugated, self.negated)

    def __iter__(self) -> Iterator[Any]:
        return iter(resolved(self))

    def item(self, *args: Any) -> Any:
        return resolved(self).item(*args)

    def tolist(self) -> Any:
        return resolved(self).tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        return resolved(self).tobytes(order)

    def astype(self, *args: Any, **kwargs: Any) -> np.ndarray:
        return resolved(self).astype(*args, **kwargs)

    def copy(self, order: Any = "C") -> Any:
        return resolved(self).copy(order)


class Conjugated(Unresolved):
    conjugated = True


class Negated(Unresolved):
    negated = True


class ConjugatedNegated(Unresolved):
    conjugated = negated = True


_CLASSES: dict[tuple[bool, bool], type[np.ndarray]] = {
    (kind.conjugated, kind.negated): kind for kind in (Conjugated, Negated, ConjugatedNegated)}
_CLASSES[False, False] = np.ndarray


def waits(array: Any) -> tuple[bool, bool]:
    """Whether a conjugation, and whether a sign, waits in a tensor's array."""
    return (array.conjugated, array.negated) if isinstance(array, Unresolved) else (False, False)


def seen(array: np.ndarray, conj: bool, neg: bool) -> np.ndarray:
    """The same memory, its elements to be conjugated, negated or both."""
    return array.view(_CLASSES[conj, neg])


def turned(array: np.ndarray, conj: bool, neg: bool) -> np.ndarray:
    """The elements conjugated, negated or both, as a plain array."""
    plain = array.view(np.ndarray)
    plain = np.conjugate(plain) if conj else plain
    return np.asarray(np.negative(plain) if neg else plain)     # of no dimensions, NumPy's answer is a scalar


def resolved(array: Any) -> Any:
    """What an array means, as a plain array; other arrays as they are."""
    return turned(array, array.conjugated, array.negated) if isinstance(array, Unresolved) else array


def _plain(value: Any) -> Any:
    """Arguments of a NumPy function with their arrays resolved."""
    if isinstance(value, tuple | list):
        return type(value)(map(_plain, value))
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items()}
    return resolved(value)
