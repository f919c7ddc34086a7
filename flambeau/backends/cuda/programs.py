"""Calls of operators on a GPU written down for `_C.GpuProgram`: which arrays to make, what to launch, what comes out."""

from __future__ import annotations

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

    def __add__(self, distance: int) -> Place:  # type: ignore[override]
        return Place(False, self.base, self.offset + distance)


class StandIn:
    """An array in a program, with as much of CuPy's interface as code that launches kernels asks for; strides in bytes, None
    where they are of its shape."""

    def __init__(self, base: int, shape: tuple = (), kind: Any = None, strides: tuple | None = None, offset: int = 0):
        self.base, self.shape, self.kind, self.strides, self.offset = base, shape, kind, strides, offset
        self.data, self.ptr = self, Place(False, base)

    def result(self) -> tuple:
        """It as `GpuProgram` takes results."""
        size = self.kind.itemsize
        strides = contiguous_strides(self.shape) if self.strides is None else tuple([s // size for s in self.strides])
        return self.base, dtype_of_numpy(self.kind), Layout(self.shape, strides, 0), self.strides, self.offset


class Launch(NamedTuple):
    """A step of a program: a kernel and its grid, or (without one) a function of addresses."""

    call: Callable[..., Any]
    grid: int
    parameters: tuple


def program(arguments: int, results: Sequence[tuple[tuple, Any]], steps: Sequence[Launch], several: bool = False,
            temporaries: Sequence[tuple[tuple, Any]] = ()) -> _C.GpuProgram:
    """A program over the arrays of so many arguments; its results and then its temporaries (shapes and NumPy dtypes, contiguous)
    have the next numbers."""
    made = [StandIn(arguments + k, tuple(shape), kind) for k, (shape, kind) in enumerate((*results, *temporaries))]
    outputs = tuple([s.result() for s in made[:len(results)]])
    return _C.GpuProgram(arguments, tuple([(s.shape, s.kind) for s in made]), tuple(steps), outputs, several)


def places(count: int) -> tuple[Place, ...]:
    """The addresses of the first `count` arrays."""
    return tuple([Place(False, k) for k in range(count)])
