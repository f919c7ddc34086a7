"""Copies, casts, row gathers and sums over large NumPy arrays: vectorised native loops on all threads.

Each function takes what NumPy would take and falls back to NumPy for small arrays and for dtypes that have no native loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ... import _C
from .onednn import BFLOAT16

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
ACCUMULATOR = {np.dtype(np.float16): F32, BFLOAT16: F32, F32: F32, F64: F64}
# Elements from which the native loop is quicker than NumPy (measured).
LARGE = 1 << 14


def copy_strided(to: np.ndarray, from_: np.ndarray) -> np.ndarray:
    """to[...] = from_, broadcasting and casting; `to` is returned. The arrays may overlap."""
    if to.size < LARGE or np.may_share_memory(to, from_):
        to[...] = from_
        return to
    if from_.shape != to.shape:
        from_ = np.broadcast_to(from_, to.shape)
    if not _C.copy_strided(to, from_):
        to[...] = from_
    return to


def contiguous(x: np.ndarray) -> np.ndarray:
    """x, or a contiguous copy."""
    if x.flags.c_contiguous:
        return x
    return copy_strided(np.empty(x.shape, x.dtype), x)


def cast(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A copy of x in `dtype`, in x's memory order; floats become integers by truncation."""
    if x.size < LARGE:
        return x.astype(dtype)
    return copy_strided(np.empty_like(x, dtype), x)


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


def large_sum(x: np.ndarray, dims: Sequence[int]) -> np.ndarray | None:
    """x summed over `dims`, in x's dtype; None where NumPy does as well. Partial sums keep f32 errors at a few ulp."""
    accumulator = ACCUMULATOR.get(x.dtype)
    if accumulator is None or x.size < LARGE or not dims:
        return None
    reduced = {d % x.ndim for d in dims}
    kept_shape = tuple(n for d, n in enumerate(x.shape) if d not in reduced)
    view = _in_memory_order(x)
    if view is None:
        return None
    x, order = view
    split = _three_axes(x.shape, [order[d] in reduced for d in range(x.ndim)])
    if split is None:
        return None
    out: np.ndarray = np.empty((split[0], split[2]), accumulator)
    _C.sum_axis(out, x.reshape(split))
    kept = [d for d in order if d not in reduced]
    if kept != sorted(kept):
        sizes = [n for n, d in zip(x.shape, order) if d not in reduced]
        return np.ascontiguousarray(out.reshape(sizes).transpose(np.argsort(kept))).astype(view[0].dtype, copy=False)
    return out.reshape(kept_shape).astype(x.dtype, copy=False)


def _in_memory_order(x: np.ndarray) -> tuple[np.ndarray, Sequence[int]] | None:
    """x transposed to be contiguous and the dimensions in that order; None if there is no such order."""
    if x.flags.c_contiguous:
        return x, range(x.ndim)
    order = sorted(range(x.ndim), key=lambda d: (-x.strides[d], d))
    transposed = x.transpose(order)
    return (transposed, order) if transposed.flags.c_contiguous else None


def _three_axes(shape: Sequence[int], reduced: Sequence[bool]) -> tuple[int, int, int] | None:
    """`shape` as (outer, summed, inner) if the reduced dimensions are neighbours, else None."""
    dims = [d for d, flag in enumerate(reduced) if flag]
    if dims[-1] - dims[0] + 1 != len(dims):
        return None
    return math.prod(shape[:dims[0]]), math.prod(shape[dims[0]:dims[-1] + 1]), math.prod(shape[dims[-1] + 1:])
