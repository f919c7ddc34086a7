"""Scaled dot-product attention: two batched products around one fused softmax over the masked scores."""

from __future__ import annotations

import math
from typing import Any

from ...backends import cuda
from ...backends.cpu import attention as attention_kernels
from ...core.dtypes import bfloat16, bool_, float16, float32, int64
from ...core.size import broadcast_shapes
from ...core.symbolic import sym_float
from ...core.tensor import Tensor
from .. import prims
from ..batching import all_merged
from ..linalg.products import wide_product
from ..order import in_rows, like
from ..promotion import cast, expand_to
from ..registry import COMPOSITES, operator
from .activations import widened
from .dropout import dropout


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


@operator(fused=True, vjp=_attention_weights_vjp, aten="_softmax")
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


# -- attention without stored scores --------------------------------------------------------------------------
def _by_rows(t: Tensor) -> Tensor:
    """(batch, heads, rows, E) in the memory order (batch, rows, heads, E), which is what surrounds attention."""
    return prims.permute(t, (0, 2, 1, 3)).contiguous()


def _scores(query: Tensor, key: Tensor, is_causal: bool, scale: float) -> Tensor:
    """scale * query key^T in f32, -inf where a query may not look; the heads of key are shared by groups of query heads."""
    q, k = widened(query), _grouped(widened(key), query.shape[1])
    lead = tuple(q.shape[:2])
    scores = prims.mul(_product(q, k.transpose(-2, -1), lead).reshape(*lead, q.shape[2], k.shape[2]), scale)
    return prims.where(_causal(tuple(scores.shape), scores), scores, -math.inf) if is_causal else scores


def _grouped(x: Tensor, heads: Any) -> Tensor:
    return x if x.shape[1] is heads or x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)


def _ungrouped(x: Tensor, heads: Any) -> Tensor:
    return x if x.shape[1] is heads or x.shape[1] == heads else \
        x.reshape(x.shape[0], heads, -1, *x.shape[2:]).sum(2)


@operator(library="attention", aten="_scaled_dot_product_flash_attention_backward",
          flops=lambda out, g, q, k, v, *attrs: 2 * math.prod(q[:3]) * k[2] * (3 * q[3] + 2 * v[3]))
def flash_attention_backward(g: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor, is_causal: bool,
                             scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of `flash_attention` for query, key and value, each as (batch, rows, heads, E)."""
    heads, key_heads = query.shape[1], key.shape[1]
    lead = tuple(query.shape[:2])
    g_heads = widened(prims.permute(g, (0, 2, 1, 3)))
    scores = _scores(query, key, is_causal, scale)
    p = prims.exp(prims.sub(scores, prims.expand(prims.unsqueeze(lse, 3), tuple(scores.shape))))
    delta = prims.sum(prims.mul(widened(g), widened(out)), (3,))
    delta = prims.expand(prims.unsqueeze(prims.permute(delta, (0, 2, 1)), 3), tuple(scores.shape))
    gp = _product(g_heads, _grouped(widened(value), heads).transpose(-2, -1), lead).reshape(scores.shape)
    gs = prims.mul(prims.mul(p, prims.sub(gp, delta)), scale)
    gq = _product(gs, _grouped(widened(key), heads), lead).reshape(query.shape)
    gk = _product(gs.transpose(-2, -1), widened(query), lead).reshape(*lead, *key.shape[2:])
    gv = _product(p.transpose(-2, -1), g_heads, lead).reshape(*lead, *value.shape[2:])
    return (_by_rows(cast(gq, query.dtype)), _by_rows(cast(_ungrouped(gk, key_heads), key.dtype)),
            _by_rows(cast(_ungrouped(gv, key_heads), value.dtype)))


def _flash_vjp(gs: tuple, query: Tensor, key: Tensor, value: Tensor, out0: Tensor, out1: Tensor, is_causal: bool, scale: float) -> tuple:
    grads = flash_attention_backward(gs[0], query, key, value, out0, out1, is_causal, scale)
    return tuple(prims.permute(grad, (0, 2, 1, 3)) for grad in grads)


@operator(library="attention", batch=all_merged, vjp=_flash_vjp, aten="_scaled_dot_product_flash_attention",
          flops=lambda out, q, k, v, *attrs: 2 * math.prod(q[:3]) * k[2] * (q[3] + v[3]))
def flash_attention(query: Tensor, key: Tensor, value: Tensor, is_causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """(softmax(scale * query key^T) value as (batch, rows, heads, E), logarithms of the softmax's sums), for 4-dimensional operands.

    Key and value may have fewer heads than query, which share them in groups. The formula is the definition; a GPU has a
    kernel that never stores the scores. The logarithms are for the gradient and have none themselves.
    """
    scores = _scores(query, key, is_causal, scale)
    top = prims.amax(scores, (3,))
    total = prims.sum(prims.exp(prims.sub(scores, prims.expand(prims.unsqueeze(top, 3), tuple(scores.shape)))), (3,))
    lse = prims.add(top, prims.log(total))
    p = prims.exp(prims.sub(scores, prims.expand(prims.unsqueeze(lse, 3), tuple(scores.shape))))
    out = _product(p, _grouped(widened(value), query.shape[1]), tuple(query.shape[:2])).reshape(query.shape)
    return _by_rows(cast(out, query.dtype)), lse


def _takes_flash(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether there is a kernel: a GPU's wants 4 dimensions, no products in full f32, and heads of 16 to 128 elements."""
    if query.device.type == "cpu":
        return query.dtype is float32 and attention_kernels.takes(query, key, value)
    if query.device.type != "cuda" or not query.ndim == key.ndim == value.ndim == 4 or not cuda.flash_sdp_enabled():
        return False
    narrow = query.dtype in (bfloat16, float16) or (query.dtype is float32 and cuda.matmul.allow_tf32)
    e = query.shape[3]
    return narrow and isinstance(e, int) and 16 <= e <= 128 and key.shape == value.shape and query.shape[0] == key.shape[0]


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
        wanted = (key.shape[-2], query.shape[-2])
        if any(n != 1 and n is not m and n != m for n, m in zip(mask.shape[::-1], wanted)):
            raise RuntimeError(f"scaled_dot_product_attention: an attn_mask of shape {list(mask.shape)} does not broadcast to the scores "
                               f"of query {list(query.shape)} and key {list(key.shape)}, which are {wanted[1]} by {wanted[0]}")
    if query.shape[-1] is not key.shape[-1] and query.shape[-1] != key.shape[-1]:
        raise RuntimeError(f"query and key must have the same last dimension, got sizes {list(query.shape)} and {list(key.shape)}")


def _product(x: Tensor, y: Tensor, lead: tuple) -> Tensor:
    """A batched matrix product over the leading dimensions `lead`, which both have."""
    n: Any = math.prod(lead)
    a, b = x.reshape(n, *x.shape[-2:]), y.reshape(n, *y.shape[-2:])
    return prims.bmm(a, b)


def _raw_scores(query: Tensor, key: Tensor, lead: tuple) -> Tensor:
    """query key^T, on the CPU in float32; a GPU's libraries give narrow products of narrow operands."""
    q, k = (t.reshape(math.prod(lead), *t.shape[-2:]) for t in (query, key))
    narrow = query.device.type == "cpu" and query.dtype in (bfloat16, float16)
    return (wide_product if narrow else prims.bmm)(q, k.transpose(-2, -1))


@operator(autocast="narrow")
def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
                                 enable_gqa: bool = False) -> Tensor:
    """softmax(scale * query key^T + mask) value: (..., L, E), (..., S, E), (..., S, V) -> (..., L, V).

    attn_mask broadcasts to (..., L, S): bool (True: may be seen) or added to the scores. `scale` is 1 / sqrt(E) unless given.
    With `enable_gqa` query has a multiple of the heads (dimension -3) of key and value. On the CPU the scores of narrow floats are not
    rounded to them.
    """
    _check(query, key, value, attn_mask, is_causal)
    if not 0 <= dropout_p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {dropout_p}")
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else sym_float(scale)
    if attn_mask is None and dropout_p == 0 and _takes_flash(query, key, value) and (
            query.shape[1] == key.shape[1] or (enable_gqa and query.shape[1] % key.shape[1] == 0)):
        out = prims.permute(flash_attention(query, key, value, bool(is_causal), factor)[0], (0, 2, 1, 3))
        return _in_order(out, query, key, value)
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    lead = tuple(broadcast_shapes(tuple(query.shape[:-2]), tuple(key.shape[:-2]), tuple(value.shape[:-2])))
    given, (query, key, value) = query, (expand_to(t, (*lead, *t.shape[-2:])) for t in (query, key, value))
    rows, columns = query.shape[-2], key.shape[-2]
    scores = _raw_scores(query, key, lead)
    if attn_mask is not None:
        scores = scores.reshape(*lead, rows, columns)
    weights = attention_weights(scores, attn_mask, bool(is_causal), factor)
    if dropout_p > 0:
        weights = dropout(weights, dropout_p, True)
    out = _product(cast(weights, value.dtype), value, lead).reshape(*lead, rows, value.shape[-1])
    return out if dropout_p > 0 else _in_order(out, given, key, value)


def _in_order(out: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """`out` in the order of the query, whose heads may lie inside of its rows, where torch has one kernel for all; else in rows."""
    if out.ndim == 4 and out.shape == query.shape and all(t._layout.strides[-1] == 1 for t in (query, key, value)):
        return like(out, query)
    return in_rows(out)


attention_kernels.install(COMPOSITES)
