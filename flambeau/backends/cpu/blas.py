"""Matrix products over NumPy arrays: oneDNN for f32, bf16 and f16, NumPy's BLAS for the rest and for small products."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from ... import _C
from .onednn import BFLOAT16, available

# Multiply-adds below which NumPy is quicker (measured: 32 x 32 x 32 in 1.7 us against 2.4, 48 x 48 x 48 in 3.5 against 2.9); the
# first product of a shape also pays oneDNN's code generation, about a millisecond.
SMALL = 1 << 16
# Terms from which on a product with one row or one column is made of shorter ones: oneDNN adds all of them up in float32.
LONG = 1 << 15
F32, F16 = np.dtype(np.float32), np.dtype(np.float16)
NARROW = frozenset({F16, BFLOAT16})


def mm(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(n, k) times (k, m), of one dtype, which the result has. bf16 and f16 accumulate in f32."""
    n, k = a.shape
    m = b.shape[1]
    dtype = a.dtype
    if n * k * m < SMALL:
        return _numpy_matmul(a, b)
    if k > LONG and is_long(n, k, m, dtype):
        return _of_pieces(a, b)
    if (dtype is F32 or dtype in NARROW) and available():
        out = np.empty((n, m), dtype)
        if _C.onednn_mm(a, b, out, None):
            return out
    return _numpy_matmul(a, b)


def bmm(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(..., n, k) times (..., k, m) with broadcasting leading dimensions, of one dtype, which the result has."""
    if b.ndim == 3 and not b.strides[0] and a.ndim == 3 and len(b) > 1:  # one matrix, repeated: vmap's are, to have gradients apart
        batch, n, k = a.shape
        return mm(a.reshape(batch * n, k), b[0]).reshape(batch, n, b.shape[2])
    dtype = a.dtype
    if a.shape[-1] > LONG and is_long(a.shape[-2], a.shape[-1], b.shape[-1], dtype):
        return _of_pieces(a, b)
    if (dtype is F32 or dtype in NARROW) and a.ndim == b.ndim and a.size * b.shape[-1] >= SMALL and available():
        batch = a.shape[:-2] if a.shape[:-2] == b.shape[:-2] else np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        out = np.empty((*batch, a.shape[-2], b.shape[-1]), dtype)
        if _C.onednn_mm(a, b, out, None):
            return out
    return _numpy_matmul(a, b)


def grouped_mm(a: Any, b: Any, ends: Any, product: Any = mm, empty: Any = np.empty) -> Any:
    """One product for each group; `ends` tells where the groups end in the dimension that is cut: rows of a (a 2-d, b 3-d), columns of
    b (3-d, 2-d), or what is summed over (both 2-d). What is in no group is zero."""
    cut = b.shape[1] if a.ndim == 3 else a.shape[0] if b.ndim == 3 else a.shape[1]
    stops = [0, *map(int, ends)]
    if any(i > j for i, j in pairwise(stops)) or stops[-1] > cut:
        raise RuntimeError(f"offs must not decrease, nor end behind the {cut} that there are; got {stops[1:]}")
    shape = (a.shape[1], cut) if a.ndim == 3 else (cut, b.shape[2]) if b.ndim == 3 else (len(ends), a.shape[0], b.shape[1])
    out = empty(shape, a.dtype)
    for group, (i, j) in enumerate(pairwise(stops)):
        if a.ndim == 3:
            out[:, i:j] = product(a[group], b[:, i:j])
        elif b.ndim == 3:
            out[i:j] = product(a[i:j], b[group])
        else:
            out[group] = product(a[:, i:j], b[i:j])
    if a.ndim == 3:
        out[:, stops[-1]:] = 0
    elif b.ndim == 3:
        out[stops[-1]:] = 0
    return out


def wide_bmm(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(batch, n, k) times (batch, k, m) of bf16 or f16, with the result in f32, as it was accumulated."""
    if a.size * b.shape[-1] >= SMALL and available():
        out = np.empty((*a.shape[:-1], b.shape[-1]), F32)
        if _C.onednn_mm(a, b, out, None):
            return out
    return bmm(a.astype(F32), b.astype(F32))


def is_long(n: Any, k: int, m: Any, dtype: np.dtype) -> bool:
    """Whether (n, k) times (k, m) is made of shorter products, which are added up in float64."""
    return k > LONG and (n == 1 or m == 1) and dtype is F32


def _of_pieces(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    whole = a.shape[-1] // LONG * LONG
    rows = a[..., :whole].reshape(*a.shape[:-1], -1, LONG)
    columns = b[..., :whole, :].reshape(*b.shape[:-2], -1, LONG, b.shape[-1])
    pieces = bmm(np.moveaxis(rows, -2, -3), columns).sum(-3, dtype=np.float64)
    return (pieces + _numpy_matmul(a[..., whole:], b[..., whole:, :])).astype(a.dtype)


def linear(x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """x (..., k) times the transpose of w (m, k), plus `bias` (m,): the result is (..., m)."""
    m, k = w.shape
    dtype = x.dtype
    if k > LONG and is_long(x.size // k, k, m, dtype):
        out = mm(x.reshape(-1, k), w.T).reshape(*x.shape[:-1], m)
        return out if bias is None else out + bias
    if (dtype is F32 or dtype in NARROW) and x.size * m >= SMALL and available():
        rows = x if x.ndim == 2 else x.reshape(-1, k)
        out = np.empty((rows.shape[0], m), dtype)
        if _C.onednn_mm(rows, w.T, out, bias):
            return out if x.ndim == 2 else out.reshape(*x.shape[:-1], m)
    out = _numpy_matmul(x, w.T)
    if bias is not None:
        out += bias
    return out


def addmm(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """c + a @ b, where c broadcasts to (n, m)."""
    n, m = a.shape[0], b.shape[1]
    if a.shape[1] > LONG and is_long(n, a.shape[1], m, a.dtype):
        return mm(a, b) + c
    if (a.dtype is F32 or a.dtype in NARROW) and a.size * m >= SMALL and available() and c.ndim <= 2:
        out = np.empty((n, m), a.dtype)
        if _C.onednn_mm(a, b, out, c):
            return out
    out = _numpy_matmul(a, b)
    out += c
    return out


def _numpy_matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Without NumPy's warnings of infinities and NaNs; of single matrices by np.dot, which is the quicker one."""
    with np.errstate(all="ignore"):
        if a.dtype is not F32 and a.dtype in NARROW:  # asking a set costs more than a small product
            return bmm(a.astype(F32), b.astype(F32)).astype(a.dtype)
        return np.dot(a, b) if a.ndim == 2 and b.ndim == 2 else np.matmul(a, b)
