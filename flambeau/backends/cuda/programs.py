"""Calls of operators on a GPU written down for `_C.GpuProgram`: which arrays to make, what to launch, what comes out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from ... import _C
from ...core.dtypes import dtype, dtype_of_numpy
from ...core.size import contiguous_strides
from ...core.tensor import Layout

REMEMBERED = 1024   # programs of an operator: one for each set of exact layouts


class Place(NamedTuple):
    """An address in a program: `offset` bytes into the memory of an array. The arguments' arrays have the first numbers, those
    that the program makes the next. Or (`is_argument`) the number that stands at a position among the arguments."""

    is_argument: bool
    base: int
    offset: int = 0

    def __add__(self, distance: int) -> Place:  # type: ignore[override]
        return _unknown() if self.is_argument else Place(False, self.base, self.offset + distance)

    def __mul__(self, other: object) -> Any:
        return _unknown()

    def __rmul__(self, other: object) -> Any:
        return _unknown()


def _unknown() -> NoReturn:
    raise TypeError("a program does not compute with numbers that are known at the call only")


class StandIn:
    """An array in a program, with as much of CuPy's interface as code that launches kernels asks for; strides in bytes, None
    where it is the whole array as it is. What a step answers with has neither shape nor dtype yet."""

    def __init__(self, base: int, shape: tuple | None = None, kind: Any = None, strides: tuple | None = None, offset: int = 0):
        self.base, self.shape, self.kind, self.strides, self.offset = base, shape, kind, strides, offset
        self.data, self.ptr = self, Place(False, base)

    def look(self) -> tuple:
        """It as `GpuProgram` takes arrays."""
        return self.base, self.offset, self.shape, self.strides

    def result(self, kind: dtype | None = None, saved: bool = False) -> tuple:
        """It as `GpuProgram` takes results: tensors of this dtype, or what is `saved` for another program."""
        kind = kind or dtype_of_numpy(self.kind)
        if self.shape is None:
            return self.look(), kind, None, False
        strides = contiguous_strides(self.shape) if self.strides is None else tuple([s // kind.itemsize for s in self.strides])
        return self.look(), kind, Layout(self.shape, strides, 0), saved


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
    outputs = tuple([StandIn(arguments + k, tuple(shape), kind).result() for k, (shape, kind) in enumerate(results)])
    return _C.GpuProgram(arguments, tuple([new_array(*facts) for facts in (*results, *temporaries)]), tuple(steps), outputs, several)


def places(count: int) -> tuple[Place, ...]:
    """The addresses of the first `count` arrays."""
    return tuple([Place(False, k) for k in range(count)])
