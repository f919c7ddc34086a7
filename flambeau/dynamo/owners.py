"""To whom a compiled version belongs: one code object can serve many functions and modules.

Every function that a decorator makes has the code of its wrapper, and every layer of a class that of its `forward`. What is
learned of sizes belongs to a *family*, the calls that have one code, one wrapped function and one class of module; the limit of
versions counts by *owner*, the module itself.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Iterator
from typing import Any

from ..core.tensor import Tensor
from . import policy


def family_of(function: types.FunctionType, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """A key for calls that are of one kind: the functions and the classes of modules among closure and arguments."""
    return tuple(kind for value in (*_closed_over(function), *values) if (kind := _kind(value)) is not None)


_PLAIN = frozenset({int, float, bool, str, type(None), list, tuple, dict, set, slice, range, Tensor})


def is_plain(function: types.FunctionType, values: tuple[Any, ...]) -> bool:
    """A quick look: is the family empty for sure?"""
    return not function.__closure__ and all(type(value) in _PLAIN for value in values)


def owner_of(function: types.FunctionType, values: tuple[Any, ...]) -> weakref.ref[Any] | None:
    """The first module among arguments and closure, as its one weak reference; None where there is none."""
    found = next(filter(policy.is_nn_module, (*values, *_closed_over(function))), None)
    return weakref.ref(found) if found is not None else None


def _closed_over(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not bound yet
            continue


def _kind(value: Any) -> Any:
    if isinstance(value, types.MethodType):
        value = value.__func__
    if isinstance(value, types.FunctionType):
        return value.__code__
    return type(value) if policy.is_nn_module(value) else None
