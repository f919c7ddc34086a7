"""Calls of operators on a GPU written down for `_C.GpuProgram`: which arrays to make, what to launch, what comes out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ... import _C
from ...core.dtypes import dtype_of_numpy
from ...core.size import contiguous_strides
from ...core.tensor import Layout

REMEMBERED = 1024   # programs of an operator: one for each set of exact layouts


class Place(NamedTuple):
    """An address in a program: `offset` bytes into the memory of an array. The arguments' arrays have the first numbers, those
    that the program makes the next. Or (`is_argument`) the number that stands at a position among the arguments."""

    is_argument: bool
    base: int
    offset: int = 0


def new_array(shape: Sequence[int], kind: Any) -> tuple:
    """An array that a program makes: its shape, NumPy dtype and bytes."""
    return tuple(shape), kind, math.prod(shape) * kind.itemsize


class Launch(NamedTuple):
    """A step of a program: a kernel and its grid, or (without one) a function of addresses and arrays; `results`: the arrays that
    it answers with, in a list."""

    call: Callable[..., Any]
    grid: int
    parameters: tuple
    results: tuple[int, ...] = ()


def program(arguments: int, results: Sequence[tuple[tuple, Any]], steps: Sequence[Launch], several: bool = False,
            temporaries: Sequence[tuple[tuple, Any]] = ()) -> _C.GpuProgram:
    """A program over the arrays of so many arguments; its results and then its temporaries (shapes and NumPy dtypes, contiguous)
    have the next numbers."""
    outputs = tuple([_whole(arguments + k, tuple(shape), kind) for k, (shape, kind) in enumerate(results)])
    return _C.GpuProgram(arguments, tuple([new_array(*facts) for facts in (*results, *temporaries)]), tuple(steps), outputs, several)


def _whole(base: int, shape: tuple, kind: Any) -> tuple:
    """A contiguous array as `GpuProgram` takes results: where it is looked at, dtype and layout, not saved for another program."""
    return (base, 0, shape, None), dtype_of_numpy(kind), Layout(shape, contiguous_strides(shape), 0), False


def places(count: int) -> tuple[Place, ...]:
    """The addresses of the first `count` arrays."""
    return tuple([Place(False, k) for k in range(count)])
