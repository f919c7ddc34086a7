"""Attention on processors with bf16 tiles: csrc/split_attention.cpp for arrays, forward and backward."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import _C
from . import onednn

LARGEST = 256  # head dimension
FEWEST = 32    # queries and keys for which tiles pay


def takes(query: Any, key: Any, value: Any) -> bool:
    """Whether the kernel computes attention over these (batch, heads, rows, E) tensors of f32, going by their shapes."""
    sizes = (*query.shape, *key.shape)
    return (onednn.split_products_set() == 6 and query.ndim == key.ndim == value.ndim == 4 and all(type(n) is int for n in sizes)
            and min(query.shape[2], key.shape[2]) >= FEWEST and query.shape[3] <= LARGEST and tuple(key.shape) == tuple(value.shape)
            and query.shape[0] == key.shape[0] and min(sizes) > 0)


def _inner(x: np.ndarray) -> np.ndarray:
    """`x`, copied where its last dimension is not contiguous."""
    return x if x.strides[-1] == x.itemsize else np.ascontiguousarray(x)


def _by_rows(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """A new array (batch, rows, heads, E), and the same seen as (batch, heads, rows, E)."""
    batch, heads, rows, e = shape
    out = np.empty((batch, rows, heads, e), np.float32)
    return out, out.transpose(0, 2, 1, 3)


def forward(q: np.ndarray, k: np.ndarray, v: np.ndarray, is_causal: bool, scale: float) -> Any:
    """(out (batch, rows, heads, E), logarithms of the sums (batch, heads, rows)), or NotImplemented."""
    if q.dtype != np.float32 or not takes(q, k, v):
        return NotImplemented
    out, seen = _by_rows(q.shape)
    lse = np.empty(q.shape[:3], np.float32)
    _C.attention(_inner(q), _inner(k), _inner(v), seen, lse, is_causal, scale)
    return out, lse


def backward(g: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray, out: np.ndarray, lse: np.ndarray, is_causal: bool,
             scale: float) -> Any:
    """The gradients of q, k and v, each (batch, rows, heads, E), or NotImplemented."""
    if q.dtype != np.float32 or not takes(q, k, v):
        return NotImplemented
    (gq, q_seen), (gk, k_seen), (gv, v_seen) = _by_rows(q.shape), _by_rows(k.shape), _by_rows(v.shape)
    g, out = _inner(g).transpose(0, 2, 1, 3), _inner(out).transpose(0, 2, 1, 3)
    _C.attention(_inner(q), _inner(k), _inner(v), out, np.ascontiguousarray(lse), is_causal, scale, g, q_seen, k_seen, v_seen)
    return gq, gk, gv


def install(composites: dict[str, Any]) -> None:
    """Fill in the CPU column of the attention operators."""
    composites["flash_attention"].has_kernel("cpu", forward)
    composites["flash_attention_backward"].has_kernel("cpu", backward)
