"""Scaled dot-product attention: two batched products around one fused softmax over the masked scores."""

from __future__ import annotations

import math
from typing import Any

from ..core.dtypes import bool_, int64
from ..core.size import broadcast_shapes
from ..core.tensor import Tensor
from . import prims
from .nn_activations import widened
from .nn_dropout import dropout
from .promotion import cast, expand_to
from .registry import operator


def _causal(shape: tuple, like: Tensor) -> Tensor:
    """Where key position j may be seen from query position i (j <= i), over scores of `shape`."""
    rows, columns = shape[-2:]
    i = prims.unsqueeze(prims.iota(rows, 0, 1, int64, like.device), 1)
    j = prims.unsqueeze(prims.iota(columns, 0, 1, int64, like.device), 0)
    return prims.expand(prims.le(prims.expand(j, (rows, columns)), prims.expand(i, (rows, columns))), shape)


@operator(fused=True)
def attention_weights_backward(g: Tensor, out: Tensor, scale: float) -> Tensor:
    """Gradient of attention_weights for the scores: scale * out * (g - sum(g * out)), over the last dimension."""
    last, shape = out.ndim - 1, tuple(out.shape)
    p, gp = widened(out), prims.mul(widened(g), widened(out))
    total = prims.expand(prims.unsqueeze(prims.sum(gp, (last,)), last), shape)
    return cast(prims.mul(prims.sub(gp, prims.mul(p, total)), scale), g.dtype)


def _attention_weights_vjp(g: Tensor, out: Tensor, mask: Any, scale: float, needs: tuple) -> tuple:
    wants_mask = needs[1] and isinstance(mask, Tensor) and mask.dtype is not bool_
    if not (needs[0] or wants_mask):
        return None, None
    grad = attention_weights_backward(g, out, 1.0 if wants_mask else scale)
    g_mask = cast(grad, mask.dtype).sum_to_size(tuple(mask.shape)) if wants_mask else None
    return (prims.mul(grad, scale) if wants_mask else grad) if needs[0] else None, g_mask


@operator(fused=True, vjp=_attention_weights_vjp)
def attention_weights(scores: Tensor, mask: Tensor | None, is_causal: bool, scale: float) -> Tensor:
    """softmax(scale * scores + mask) over the last dimension; a bool mask says what may be seen. Rows that see nothing give 0."""
    x, shape = prims.mul(widened(scores), scale), tuple(scores.shape)
    last = len(shape) - 1
    seen = None
    if is_causal:
        seen = _causal(shape, scores)
    if mask is not None:
        wide = expand_to(mask, shape)
        if mask.dtype is bool_:
            seen = wide if seen is None else prims.logical_and(seen, wide)
        else:
            x = prims.add(x, cast(wide, x.dtype))
    if seen is not None:
        x = prims.where(seen, x, -math.inf)
    top = prims.amax(x, (last,))
    if mask is not None:
        top = prims.where(prims.eq(top, -math.inf), 0.0, top)
    e = prims.exp(prims.sub(x, prims.expand(prims.unsqueeze(top, last), shape)))
    total = prims.sum(e, (last,))
    if mask is not None:
        total = prims.where(prims.eq(total, 0.0), 1.0, total)
    return cast(prims.truediv(e, prims.expand(prims.unsqueeze(total, last), shape)), scores.dtype)


def _check(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool) -> None:
    if not query.dtype is key.dtype is value.dtype:
        raise RuntimeError("Expected query, key, and value to have the same dtype, but got query.dtype: "
                           f"{query.dtype} key.dtype: {key.dtype} and value.dtype: {value.dtype} instead.")
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise RuntimeError(f"Expected query, key, and value to all be at least 2 dimensional, but got query.dim: {query.ndim}, "
                           f"key.dim: {key.ndim} and value.dim: {value.ndim} instead.")
    if mask is not None:
        if is_causal:
            raise RuntimeError("_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
        if mask.dtype is not bool_ and mask.dtype is not query.dtype and not mask.dtype.is_floating_point:
            raise RuntimeError("Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: "
                               f"{mask.dtype} and query.dtype: {query.dtype} instead.")
    if query.shape[-1] is not key.shape[-1] and query.shape[-1] != key.shape[-1]:
        raise RuntimeError(f"query and key must have the same last dimension, got sizes {list(query.shape)} and {list(key.shape)}")


def _product(x: Tensor, y: Tensor, lead: tuple) -> Tensor:
    """A batched matrix product over the leading dimensions `lead`, which both have."""
    n: Any = math.prod(lead)
    a, b = x.reshape(n, *x.shape[-2:]), y.reshape(n, *y.shape[-2:])
    return prims.bmm(a, b)


@operator
def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
                                 enable_gqa: bool = False) -> Tensor:
    """softmax(scale * query key^T + mask) value: (..., L, E), (..., S, E), (..., S, V) -> (..., L, V).

    attn_mask broadcasts to (..., L, S): bool (True: may be seen) or added to the scores. `scale` is 1 / sqrt(E) unless given.
    With `enable_gqa` query has a multiple of the heads (dimension -3) of key and value.
    """
    _check(query, key, value, attn_mask, is_causal)
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    lead = tuple(broadcast_shapes(tuple(query.shape[:-2]), tuple(key.shape[:-2]), tuple(value.shape[:-2])))
    query, key, value = (expand_to(t, (*lead, *t.shape[-2:])) for t in (query, key, value))
    rows, columns = query.shape[-2], key.shape[-2]
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    scores = _product(query, key.transpose(-2, -1), lead)
    if attn_mask is not None:
        scores = scores.reshape(*lead, rows, columns)
    weights = attention_weights(scores, attn_mask, bool(is_causal), factor)
    if dropout_p > 0:
        weights = dropout(weights, dropout_p, True)
    return _product(weights, value, lead).reshape(*lead, rows, value.shape[-1])
