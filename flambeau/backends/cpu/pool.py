"""Maximum and average pooling over NumPy arrays (n, c, *sizes) of one to three spatial axes.

A pooling is described by its windows: for each output position of each axis the taps [start, end) that it sees and its share
of the divisor. Strided and adaptive pooling differ in nothing else. Results take the memory order of the input.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from ... import _C
from ...core.windows import window_count
from .conv import FROM_LAST, TO_LAST, is_channels_last
from .native import fill, large_total
from .onednn import BFLOAT16

MAX, MAX_GRAD, AVERAGE, AVERAGE_GRAD = range(4)
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
NATIVE = frozenset({np.dtype(np.float16), BFLOAT16, F32, F64})
NARROW = NATIVE - {F32, F64}


def max_pool_with_indices(x: np.ndarray, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
                          dilation: Sequence[int], ceil_mode: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """The maximum of each window and its flat index in the input plane (i64); a NaN beats all, the first of equals wins."""
    windows = _windows(x.shape[2:], tuple(kernel), tuple(stride), tuple(padding), tuple(dilation), ceil_mode, False)
    return _max_forward(x, windows, tuple(dilation))


def adaptive_max_pool_with_indices(x: np.ndarray, sizes: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """As max_pool_with_indices, over windows that cut the input into `sizes` parts (overlapping by up to one)."""
    return _max_forward(x, _adaptive_windows(x.shape[2:], tuple(sizes)), (1,) * len(sizes))


def max_pool_backward(g: np.ndarray, indices: np.ndarray, x_shape: Sequence[int]) -> np.ndarray:
    """The gradient by x (of `x_shape`) of either maximum pooling: g added up at `indices`."""
    if g.dtype in NARROW:
        return max_pool_backward(g.astype(F32), indices, x_shape).astype(g.dtype)
    out = _zeros_in_order(g, tuple(x_shape))
    if out.size and g.size:
        _C.pool(MAX_GRAD, out, _like(g, out), _like(indices, out), None, (1,) * (g.ndim - 2), 0)
    return out


def avg_pool(x: np.ndarray, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], ceil_mode: bool = False,
             count_include_pad: bool = True, divisor_override: int | None = None) -> np.ndarray:
    """The mean of each window. Padding counts as zeros, or not at all; `divisor_override` replaces the number of taps."""
    windows = _windows(x.shape[2:], tuple(kernel), tuple(stride), tuple(padding), (1,) * len(kernel), ceil_mode, count_include_pad)
    return _average_forward(x, windows, divisor_override)


def avg_pool_backward(g: np.ndarray, x_shape: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
                      ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None) -> np.ndarray:
    """The gradient of `avg_pool` by x, which has `x_shape`."""
    windows = _windows(tuple(x_shape[2:]), tuple(kernel), tuple(stride), tuple(padding), (1,) * len(kernel), ceil_mode, count_include_pad)
    return _average_backward(g, tuple(x_shape), windows, divisor_override)


def adaptive_avg_pool(x: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """The means of `sizes` parts of the input (overlapping by up to one)."""
    if max(sizes) == min(sizes) == 1 and x.dtype in NATIVE and x.size:
        return _global_mean(x)
    return _average_forward(x, _adaptive_windows(x.shape[2:], tuple(sizes)), None)


def adaptive_avg_pool_backward(g: np.ndarray, x_shape: Sequence[int]) -> np.ndarray:
    """The gradient of `adaptive_avg_pool` by x, which has `x_shape`."""
    return _average_backward(g, tuple(x_shape), _adaptive_windows(tuple(x_shape[2:]), g.shape[2:]), None)


Windows = tuple[np.ndarray, tuple[int, ...]]  # the table that csrc/pool.cpp reads, and the output sizes


@functools.lru_cache(512)
def _windows(sizes: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...],
             dilation: tuple[int, ...], ceil_mode: bool, count_padding: bool) -> Windows:
    tables, outs = [], []
    for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation):
        out = window_count(n, k, s, p, d, ceil_mode)
        if out < 1:
            raise RuntimeError(f"pooling: kernel {kernel} with dilation {dilation} does not fit the input {sizes}, padded by {padding}")
        first = np.arange(out) * s - p
        start = np.where(first < 0, first + -(first // d) * d, first)  # the first tap that lies inside
        end = np.minimum(first + (k - 1) * d + 1, n)
        count = np.minimum(first + k, n + p) - first if count_padding else end - start
        tables += [start, end, count]
        outs.append(out)
    return np.concatenate(tables).astype(np.int64), tuple(outs)


@functools.lru_cache(512)
def _adaptive_windows(sizes: tuple[int, ...], outs: tuple[int, ...]) -> Windows:
    tables = []
    for n, out in zip(sizes, outs):
        i = np.arange(out)
        start, end = i * n // max(out, 1), -(-(i + 1) * n // max(out, 1))
        tables += [start, end, end - start]
    return np.concatenate(tables).astype(np.int64), outs


def _max_forward(x: np.ndarray, windows: Windows, dilation: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    if x.dtype not in NATIVE:
        return _generic_max_forward(x, windows, dilation)
    table, sizes = windows
    shape = (*x.shape[:2], *sizes)
    x = _ordered(x)
    out, where = _empty_in_order(x, shape, x.dtype), _empty_in_order(x, shape, np.dtype(np.int64))
    if out.size:
        _C.pool(MAX, x, out, where, table, dilation, 0)
    return out, where


def _generic_max_forward(x: np.ndarray, windows: Windows, dilation: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Integers, position by position."""
    table, sizes = windows
    out = np.empty((*x.shape[:2], *sizes), x.dtype)
    where = np.empty(out.shape, np.int64)
    places = np.arange(int(np.prod(x.shape[2:]))).reshape(x.shape[2:])
    starts_and_ends, at = [], 0
    for size in sizes:
        starts_and_ends.append((table[at:at + size], table[at + size:at + 2 * size]))
        at += 3 * size
    for position in np.ndindex(*sizes):
        window = tuple(slice(start[i], end[i], d) for i, (start, end), d in zip(position, starts_and_ends, dilation))
        taps = x[(slice(None), slice(None), *window)].reshape(*x.shape[:2], -1)
        best = taps.argmax(-1)
        out[(slice(None), slice(None), *position)] = np.take_along_axis(taps, best[..., None], -1)[..., 0]
        where[(slice(None), slice(None), *position)] = places[window].reshape(-1)[best]
    return out, where


def _average_forward(x: np.ndarray, windows: Windows, divisor: int | None) -> np.ndarray:
    _check_average(x)
    table, sizes = windows
    x = _ordered(x)
    out = _empty_in_order(x, (*x.shape[:2], *sizes), x.dtype)
    if out.size:
        _C.pool(AVERAGE, x, out, None, table, (1,) * len(sizes), divisor or 0)
    return out


def _global_mean(x: np.ndarray) -> np.ndarray:
    axes = tuple(range(2, x.ndim))
    total = large_total(x, axes)
    assert total is not None
    total /= math.prod(x.shape[2:])
    return total.astype(x.dtype, copy=False).reshape(*x.shape[:2], *(1,) * len(axes))


def _average_backward(g: np.ndarray, x_shape: tuple[int, ...], windows: Windows, divisor: int | None) -> np.ndarray:
    _check_average(g)
    if g.dtype in NARROW:
        return _average_backward(g.astype(F32), x_shape, windows, divisor).astype(g.dtype)
    out = _zeros_in_order(g, x_shape)
    if out.size and g.size:
        _C.pool(AVERAGE_GRAD, out, _like(g, out), None, windows[0], (1,) * (g.ndim - 2), divisor or 0)
    return out


def _check_average(x: np.ndarray) -> None:
    if x.dtype not in NATIVE:
        raise NotImplementedError(f"average pooling is not implemented for {x.dtype}: convert to a floating dtype first")


def _ordered(x: np.ndarray) -> np.ndarray:
    """x, or a contiguous copy if it is neither contiguous nor channels-last."""
    return x if x.flags.c_contiguous or is_channels_last(x) else np.ascontiguousarray(x)


def _like(x: np.ndarray, model: np.ndarray) -> np.ndarray:
    """x in the memory order of `model`."""
    if is_channels_last(model):
        return np.ascontiguousarray(x.transpose(TO_LAST[x.ndim])).transpose(FROM_LAST[x.ndim])
    return np.ascontiguousarray(x)


def _empty_in_order(x: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Room in the memory order of x."""
    if is_channels_last(x):
        return np.empty((shape[0], *shape[2:], shape[1]), dtype).transpose(FROM_LAST[x.ndim])
    return np.empty(shape, dtype)


def _zeros_in_order(g: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    out = _empty_in_order(g, shape, g.dtype)
    fill(out if out.flags.c_contiguous else out.transpose(TO_LAST[out.ndim]), 0)
    return out
