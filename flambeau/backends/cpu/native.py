"""Copies, casts, row gathers and sums over large NumPy arrays: vectorised native loops on all threads.

Each function takes what NumPy would take and falls back to NumPy for small arrays and for dtypes that have no native loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from ... import _C
from ...core.size import elementwise_strides
from .onednn import BFLOAT16

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
FLOATS = (np.dtype(np.float16), BFLOAT16, F32, F64)
# Elements from which the native loop is quicker than NumPy (measured).
LARGE = 1 << 14


def copy_strided(to: np.ndarray, from_: np.ndarray) -> np.ndarray:
    """to[...] = from_, broadcasting and casting; `to` is returned. The arrays may overlap."""
    if (to.size < LARGE and to.dtype == from_.dtype) or np.may_share_memory(to, from_):
        to[...] = from_
        return to
    if from_.shape != to.shape:
        from_ = np.broadcast_to(from_, to.shape)
    if not _C.copy_strided(to, from_):
        wide = to.dtype == np.uint32 and from_.dtype.kind not in "biu"      # NumPy's own way hangs on the place in the array
        to[...] = cast(from_, np.dtype(np.int64)) if wide else from_
    return to


def empty_strided(shape: Sequence[int], strides: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """An uninitialised array of dense `strides` (in elements)."""
    room = np.empty(math.prod(shape) * dtype.itemsize, np.uint8)
    return np.ndarray(tuple(shape), dtype, room, 0, [s * dtype.itemsize for s in strides])


def copy(x: np.ndarray, order: Literal["C", "K"] = "C") -> np.ndarray:
    """A copy of x, contiguous or ("K") in x's memory order."""
    if order == "C" or x.flags.c_contiguous:
        return x.copy() if x.size < LARGE else copy_strided(np.empty(x.shape, x.dtype), x)
    return copy_strided(_empty_like(x, x.dtype), x)


def _empty_like(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if x.flags.c_contiguous:
        return np.empty(x.shape, dtype)
    return empty_strided(x.shape, elementwise_strides(x.shape, [tuple([s // x.itemsize for s in x.strides])]), dtype)


def contiguous(x: np.ndarray) -> np.ndarray:
    """x, or a contiguous copy."""
    if x.flags.c_contiguous:
        return x
    return copy_strided(np.empty(x.shape, x.dtype), x)


def cast(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A copy of x in `dtype`, in x's memory order; floats become integers as flambeau/include/convert.h says."""
    return copy_strided(_empty_like(x, dtype), x)


def fill(out: np.ndarray, value: object) -> np.ndarray:
    """out[...] = value for a number."""
    if out.size < LARGE or not _C.fill(out, np.array(value, out.dtype)):
        out[...] = value
    return out


def take_rows(table: np.ndarray, index: np.ndarray) -> np.ndarray:
    """table[index]: (rows, ...) by an integer index of any shape gives index.shape + (...). Raises IndexError outside [0, rows)."""
    out = np.empty((*index.shape, *table.shape[1:]), table.dtype)
    _C.take_rows(out, np.ascontiguousarray(table), np.ascontiguousarray(index, np.int64))
    return out


def take(x: np.ndarray, index: np.ndarray, axis: int) -> np.ndarray:
    """np.take for an index that is known to be in range: rows of contiguous arrays on all threads."""
    if axis == 0 and index.size * x.itemsize * (x.size // max(len(x), 1)) >= 4 * LARGE and x.flags.c_contiguous:
        return take_rows(x, index)
    return np.take(x, index, axis=axis)


def add_rows(table: np.ndarray, index: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """table[index[i]] += rows[i] in place, repeated indices adding up in order. Raises IndexError outside [0, rows)."""
    rows = np.ascontiguousarray(rows, table.dtype)
    index = np.ascontiguousarray(index, np.int64)
    if not table.flags.c_contiguous or not _C.add_rows(table, index, rows):
        np.add.at(table, index, rows)
    return table


def index_add(x: np.ndarray, dim: int, index: np.ndarray, src: np.ndarray) -> np.ndarray | None:
    """A copy of x with src's slices added at `index` along `dim`; None where NumPy does as well."""
    if dim != 0 or x.ndim == 0 or index.size == 0 or src.size < 256 or x.dtype.kind in "bc":
        return None
    out = np.array(x, order="C")
    return add_rows(out, index, src)


def scan(x: np.ndarray, dim: int, product: bool, reverse: bool) -> np.ndarray | None:
    """Running sums (or products) of x along `dim`, of what comes after each element with `reverse`; f32 is added up in f64.
    None for dtypes that have no native loop."""
    out, rows = np.empty(x.shape, x.dtype), _around(x.shape, dim)
    return out if _C.scan(out.reshape(rows), np.ascontiguousarray(x).reshape(rows), product, reverse) else None


def scan_best(x: np.ndarray, dim: int, largest: bool) -> tuple[np.ndarray, np.ndarray] | None:
    """(running maxima or minima of x along `dim`, the last place of each); NaN is best of all. None as for `scan`."""
    out, places, rows = np.empty(x.shape, x.dtype), np.empty(x.shape, np.int64), _around(x.shape, dim)
    known = _C.scan_best(out.reshape(rows), places.reshape(rows), np.ascontiguousarray(x).reshape(rows), largest)
    return (out, places) if known else None


def _around(shape: Sequence[int], dim: int) -> tuple[int, int, int]:
    return math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1:])


def large_sum(x: np.ndarray, dims: Sequence[int]) -> np.ndarray | None:
    """x summed over `dims`, in x's dtype; None where NumPy does as well."""
    if x.size < LARGE or not dims:
        return None
    if x.dtype.kind != "c":
        total = large_total(x, dims)
        return None if total is None else total.astype(x.dtype, copy=False)
    real, imag = large_total(x.real, dims), large_total(x.imag, dims)
    if real is None or imag is None:
        return None
    out = np.empty(real.shape, x.dtype)
    out.real, out.imag = real, imag
    return out


def large_total(x: np.ndarray, dims: Sequence[int]) -> np.ndarray | None:
    """Floats summed over `dims` in f64; None for other dtypes."""
    if x.dtype not in FLOATS or not x.size:
        return None
    order = sorted(range(x.ndim), key=lambda d: (-x.strides[d], d))
    reduced = {d % x.ndim for d in dims}
    total, left = x.transpose(order), list(order)  # `left`: the dimensions of x that are still there, outermost first
    while run := _last_run(left, reduced):
        start, end = run
        if _end_to_end(total, start, end):
            total = total.reshape(*total.shape[:start], -1, *total.shape[end:])
            del left[start + 1:end]
        else:
            start = end - 1
        out = np.empty(total.shape[:start] + total.shape[start + 1:], F64)
        _C.sum_axis(out, total, start)
        total = out
        del left[start]
    if left != sorted(left):
        total = np.ascontiguousarray(total.transpose(np.argsort(left)))
    return total


def _end_to_end(x: np.ndarray, start: int, end: int) -> bool:
    """Whether the dimensions from `start` to `end` of x are one in memory."""
    return all(x.strides[d] == x.strides[d + 1] * x.shape[d + 1] for d in range(start, end - 1))


def _last_run(dims: Sequence[int], chosen: set[int]) -> tuple[int, int] | None:
    """The bounds of the last run of neighbours in `dims` that are all chosen."""
    end = next((i for i in range(len(dims), 0, -1) if dims[i - 1] in chosen), None)
    if end is None:
        return None
    start = end - 1
    while start > 0 and dims[start - 1] in chosen:
        start -= 1
    return start, end
