"""torch.nn.functional: the neural-network operators under the names and signatures that torch gives them here."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from .._absent import absent
from ..core.dtypes import bool_, dtype
from ..core.tensor import Tensor
from ..overrides import handle_torch_function, has_torch_function, has_torch_function_unary, has_torch_function_variadic

# isort: off
from ..ops.joining import cat
from ..ops.nn import activations as _act
from ..ops.patterns import one_hot
from ..ops.nn.layers import bilinear, embedding, linear
from ..ops.nn.layers import embedding_bag as _embedding_bag
from ..ops.nn.activations import (
    celu, celu_, elu, elu_, gelu, glu, hardshrink, hardsigmoid, hardswish, hardtanh, hardtanh_, leaky_relu,
    leaky_relu_, logsigmoid, mish, prelu, relu6, relu_, selu, selu_, silu, softplus, softshrink, softsign, tanhshrink,
    threshold, threshold_,
)
from ..ops.nn.attention import scaled_dot_product_attention
from ..ops.linalg.products import _grouped_mm, pdist
from ..ops.nn.dropout import alpha_dropout, dropout, feature_alpha_dropout, feature_dropout
from ..ops.nn.fractional import fractional_max_pool2d, fractional_max_pool3d
from ..ops.nn.losses import (
    binary_cross_entropy, linear_cross_entropy, binary_cross_entropy_with_logits, cosine_embedding_loss, cosine_similarity, cross_entropy,
    ctc_loss, gaussian_nll_loss, hinge_embedding_loss, huber_loss, kl_div, l1_loss, margin_ranking_loss, mse_loss,
    multi_margin_loss, multilabel_margin_loss, multilabel_soft_margin_loss, nll_loss, pairwise_distance,
    poisson_nll_loss, smooth_l1_loss, soft_margin_loss, triplet_margin_loss, triplet_margin_with_distance_loss,
)
from ..ops.nn.norms import (
    batch_norm, group_norm, instance_norm, layer_norm, local_response_norm, normalize, rms_norm,
)
from ..ops.nn.resize import (
    affine_grid, channel_shuffle, grid_sample, interpolate, pad, pixel_shuffle, pixel_unshuffle, upsample,
)
from ..ops.nn.torch_forms import conv_tbc
from ..ops.nn.windows import (
    adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d, adaptive_max_pool1d, adaptive_max_pool2d,
    adaptive_max_pool3d, avg_pool1d, avg_pool2d, avg_pool3d, conv1d, conv2d, conv3d, conv_transpose1d,
    conv_transpose2d, conv_transpose3d, fold, lp_pool1d, lp_pool2d, lp_pool3d, max_pool1d, max_pool2d, max_pool3d,
    max_unpool1d, max_unpool2d, max_unpool3d, unfold,
)
# isort: on
from ..ops import random as _random
from ..ops.pointwise import relu as _relu  # type: ignore[attr-defined]
from ..ops.pointwise import sigmoid
from ..ops.pointwise import tanh as _tanh  # type: ignore[attr-defined]
from .branches import BroadcastingList1, BroadcastingList2, BroadcastingList3, boolean_dispatch
from .scaled import ScalingType, SwizzleType, scaled_grouped_mm, scaled_mm

native_channel_shuffle = channel_shuffle


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0)."""
    if has_torch_function((input,)):
        return handle_torch_function(relu, (input,), input, inplace=inplace)
    return relu_(input) if inplace else _relu(input)


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return _tanh(input)


def _implicit_dim(name: str, rank: int) -> int:
    warnings.warn(f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
                  stacklevel=4)
    return 0 if rank in (0, 1, 3) else 1


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: dtype | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`."""
    if has_torch_function((input,)):
        return handle_torch_function(softmax, (input,), input, dim=dim, _stacklevel=_stacklevel, dtype=dtype)
    return _act.softmax(input, _implicit_dim("softmax", input.ndim) if dim is None else dim, dtype)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: dtype | None = None) -> Tensor:
    """log(softmax(x)) along `dim`."""
    if has_torch_function((input,)):
        return handle_torch_function(log_softmax, (input,), input, dim=dim, _stacklevel=_stacklevel, dtype=dtype)
    return _act.log_softmax(input, _implicit_dim("log_softmax", input.ndim) if dim is None else dim, dtype)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: dtype | None = None) -> Tensor:
    """softmax(-x) along `dim`."""
    if has_torch_function((input,)):
        return handle_torch_function(softmin, (input,), input, dim=dim, _stacklevel=_stacklevel, dtype=dtype)
    return _act.softmin(input, _implicit_dim("softmin", input.ndim) if dim is None else dim, dtype)


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A sample of the relaxed one-hot distribution (Jang et al. 2016); `hard` rounds it but keeps the soft gradient."""
    if has_torch_function((logits,)):
        return handle_torch_function(gumbel_softmax, (logits,), logits, tau=tau, hard=hard, eps=eps, dim=dim)
    if eps != 1e-10:
        warnings.warn("`eps` parameter is deprecated and has no effect.", stacklevel=2)
    noise = -logits.detach().new_empty(tuple(logits.shape)).exponential_().log()
    soft = _act.softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    index = soft.argmax(dim, keepdim=True)
    rounded = logits.new_zeros(tuple(logits.shape)).scatter(dim, index, 1.0)
    return rounded - soft.detach() + soft


def rrelu(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False) -> Tensor:
    """leaky_relu with random slopes in [lower, upper) in training, their mean otherwise."""
    if has_torch_function((input,)):
        return handle_torch_function(rrelu, (input,), input, lower=lower, upper=upper, training=training, inplace=inplace)
    if not isinstance(training, bool):
        raise TypeError(f"rrelu(): argument 'training' (position 4) must be bool, not {type(training).__name__}")
    if lower > upper:
        raise RuntimeError(f"Lower bound should be less than or equal to the upper bound, got lower: {lower}, upper: {upper}")
    if not training:
        out = leaky_relu(input, (lower + upper) / 2, inplace)
        return out if inplace else out.contiguous()
    out = input * _random.slopes(_act.check_real(input, "rrelu_with_noise_out_cpu"), lower, upper)
    return input.copy_(out) if inplace else out.contiguous()


def rrelu_(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Tensor:
    """rrelu in place."""
    return rrelu(input, lower, upper, training, True)


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """dropout of whole channels of (n, c, l) or (c, l)."""
    if has_torch_function((input,)):
        return handle_torch_function(dropout1d, (input,), input, p=p, training=training, inplace=inplace)
    if input.ndim not in (2, 3):
        raise RuntimeError(f"dropout1d: Expected 2D or 3D input, but received a {input.ndim}D input. Note that "
                           "dropout1d exists to provide channel-wise dropout on inputs with 1 spatial dimension, a "
                           "channel dimension, and an optional batch dimension (i.e. 2D or 3D inputs).")
    if input.ndim == 2:
        return feature_dropout(input.unsqueeze(0), p, training, inplace).squeeze(0)
    return feature_dropout(input, p, training, inplace)


def _warn_of_rank(name: str, rank: int, wanted: tuple[int, ...]) -> None:
    if rank not in wanted:
        warnings.warn(f"{name}: Received a {rank}-D input to {name}, which is deprecated and will result in an error in a future release. "
                      f"Inputs with channels have {wanted[0]} or {wanted[1]} dimensions; others are dropout's", stacklevel=4)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """dropout of whole channels of (n, c, h, w)."""
    if has_torch_function((input,)):
        return handle_torch_function(dropout2d, (input,), input, p=p, training=training, inplace=inplace)
    _warn_of_rank("dropout2d", input.ndim, (3, 4))
    if input.ndim == 3:
        warnings.warn("dropout2d: Received a 3D input to dropout2d, which is taken as (n, c, length) and not as one sample (c, h, w): use "
                      "dropout1d for this", stacklevel=3)
    return feature_dropout(input, p, training, inplace)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """dropout of whole channels of (n, c, d, h, w), or of one sample (c, d, h, w)."""
    if has_torch_function((input,)):
        return handle_torch_function(dropout3d, (input,), input, p=p, training=training, inplace=inplace)
    _warn_of_rank("dropout3d", input.ndim, (4, 5))
    if input.ndim == 4:
        out = feature_dropout(input.unsqueeze(0), p, training, inplace)
        return input if inplace else out.squeeze(0)
    return feature_dropout(input, p, training, inplace)


def embedding_bag(input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None, norm_type: float = 2,
                  scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
                  per_sample_weights: Tensor | None = None, include_last_offset: bool = False, padding_idx: int | None = None) -> Tensor:
    """Sum, mean or max of embeddings per bag."""
    if has_torch_function((input, weight, offsets, per_sample_weights)):
        return handle_torch_function(
            embedding_bag, (input, weight, offsets, per_sample_weights), input, weight, offsets=offsets, max_norm=max_norm,
            norm_type=norm_type, scale_grad_by_freq=scale_grad_by_freq, mode=mode, sparse=sparse, per_sample_weights=per_sample_weights,
            include_last_offset=include_last_offset, padding_idx=padding_idx)
    return _embedding_bag(input, weight, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse, per_sample_weights,
                          include_last_offset, padding_idx)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """interpolate(mode='nearest'), the old name."""
    warnings.warn("`nn.functional.upsample_nearest` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """interpolate(mode='bilinear', align_corners=True), the old name."""
    warnings.warn("`nn.functional.upsample_bilinear` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


def _with_indices(pool: Callable) -> Callable:
    def fn(input: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        return pool(input, *args, **{**kwargs, "return_indices": True})

    fn.__name__ = fn.__qualname__ = f"{pool.__name__}_with_indices"
    fn.__doc__ = f"{pool.__name__}(return_indices=True)."
    return fn


max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = map(_with_indices, (max_pool1d, max_pool2d, max_pool3d))
adaptive_max_pool1d_with_indices, adaptive_max_pool2d_with_indices, adaptive_max_pool3d_with_indices = map(
    _with_indices, (adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d))
fractional_max_pool2d_with_indices, fractional_max_pool3d_with_indices = map(
    _with_indices, (fractional_max_pool2d, fractional_max_pool3d))


# -- attention with projections ------------------------------------------------------------------------------
def _canonical_mask(mask: Tensor | None, mask_name: str, other_type: dtype | None, other_name: str, target_type: dtype,
                    check_other: bool = True) -> Tensor | None:
    """A mask as one to add to the scores: bool masks become 0 and -inf."""
    if mask is None:
        return None
    if mask.dtype is not bool_ and not mask.dtype.is_floating_point:
        raise AssertionError(f"only bool and floating types of {mask_name} are supported")
    if check_other and other_type is not None and mask.dtype is not other_type:
        warnings.warn(f"Support for mismatched {mask_name} and {other_name} is deprecated. Use same type for both instead.", stacklevel=3)
    if mask.dtype.is_floating_point:
        return mask
    return mask.new_zeros(tuple(mask.shape), dtype=target_type).masked_fill(mask, -math.inf)


def _in_projection(query: Tensor, key: Tensor, value: Tensor, embed: int, in_proj_weight: Tensor | None,
                   in_proj_bias: Tensor | None, separate: tuple | None) -> tuple[Tensor, Tensor, Tensor]:
    if separate is not None:
        biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
        q, k, v = (linear(x, w, b) for x, w, b in zip((query, key, value), separate, biases))
        return q, k, v
    weight, bias = in_proj_weight, in_proj_bias
    if query is key and key is value:
        return linear(query, weight, bias).chunk(3, -1)
    wq, wkv = weight.split([embed, 2 * embed])            # type: ignore[union-attr]
    bq, bkv = (None, None) if bias is None else bias.split([embed, 2 * embed])
    q = linear(query, wq, bq)
    if key is value:
        k, v = linear(key, wkv, bkv).chunk(2, -1)
        return q, k, v
    wk, wv = wkv.chunk(2)
    bk, bv = (None, None) if bkv is None else bkv.chunk(2)
    return q, linear(key, wk, bk), linear(value, wv, bv)


def _heads(x: Tensor, batch: int, heads: int) -> Tensor:
    """(length, batch, embed) -> (batch, heads, length, width)."""
    return x.reshape(x.shape[0], batch, heads, x.shape[2] // heads).permute(1, 2, 0, 3)


def _merged_mask(attn_mask: Tensor | None, key_padding_mask: Tensor | None, batch: int, heads: int, rows: int,
                 columns: int) -> Tensor | None:
    if attn_mask is not None:
        if attn_mask.ndim == 2:
            if tuple(attn_mask.shape) != (rows, columns):
                raise RuntimeError(f"The shape of the 2D attn_mask is {attn_mask.shape}, but should be {(rows, columns)}.")
            attn_mask = attn_mask.reshape(1, 1, rows, columns)
        elif tuple(attn_mask.shape) == (batch * heads, rows, columns):
            attn_mask = attn_mask.reshape(batch, heads, rows, columns)
        else:
            raise RuntimeError(f"The shape of the 3D attn_mask is {attn_mask.shape}, but should be {(batch * heads, rows, columns)}.")
    if key_padding_mask is not None:
        if tuple(key_padding_mask.shape) != (batch, columns):
            raise AssertionError(f"expecting key_padding_mask shape of {(batch, columns)}, but got {key_padding_mask.shape}")
        padding = key_padding_mask.reshape(batch, 1, 1, columns)
        attn_mask = padding if attn_mask is None else attn_mask + padding
    return attn_mask


def _mha_shape_check(query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None, attn_mask: Tensor | None,
                     num_heads: int) -> bool:
    """Whether they are those of a batch; AssertionError where some are and others not."""
    rank = query.ndim
    if rank not in (2, 3):
        raise AssertionError(f"query should be unbatched 2D or batched 3D tensor but received {rank}-D query tensor")
    of = f"For {'unbatched (2-D)' if rank == 2 else 'batched (3-D)'} `query`, expected"
    if key.ndim != rank or value.ndim != rank:
        raise AssertionError(f"{of} `key` and `value` to be {rank}-D but found {key.ndim}-D and {value.ndim}-D tensors respectively")
    if key_padding_mask is not None and key_padding_mask.ndim != rank - 1:
        raise AssertionError(f"{of} `key_padding_mask` to be `None` or {rank - 1}-D but found {key_padding_mask.ndim}-D tensor instead")
    if attn_mask is not None and attn_mask.ndim not in (2, 3):
        raise AssertionError(f"{of} `attn_mask` to be `None`, 2-D or 3-D but found {attn_mask.ndim}-D tensor instead")
    if rank == 2 and attn_mask is not None and attn_mask.ndim == 3:
        expected = (num_heads, query.shape[0], key.shape[0])
        if tuple(attn_mask.shape) != expected:
            raise AssertionError(f"Expected `attn_mask` shape to be {expected} but got {attn_mask.shape}")
    if tuple(key.shape[:-1]) != tuple(value.shape[:-1]):
        raise AssertionError(f"key's sequence and batch dims {tuple(key.shape[:-1])} do not match value's "
                             f"{tuple(value.shape[:-1])}: key is {list(key.shape)}, value {list(value.shape)}")
    return rank == 3


def _batch_of_one(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(length, embed) as (length, 1, embed); what is one tensor stays one, which is projected at once."""
    made = query.unsqueeze(1)
    keys = made if query is key else key.unsqueeze(1)
    return made, keys, keys if key is value else value.unsqueeze(1)


def _check_embedding(query: Tensor, key: Tensor, value: Tensor, expected: int, num_heads: int, separate: bool) -> None:
    embed = query.shape[-1]
    if embed != expected:
        raise AssertionError(f"was expecting embedding dimension of {expected}, but got {embed}")
    if key.shape != value.shape and not separate:
        raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")
    if embed % num_heads:
        raise AssertionError(f"embed_dim {embed} not divisible by num_heads {num_heads}")


def multi_head_attention_forward(
        query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int, in_proj_weight: Tensor | None,
        in_proj_bias: Tensor | None, bias_k: Tensor | None, bias_v: Tensor | None, add_zero_attn: bool, dropout_p: float,
        out_proj_weight: Tensor, out_proj_bias: Tensor | None, training: bool = True, key_padding_mask: Tensor | None = None,
        need_weights: bool = True, attn_mask: Tensor | None = None, use_separate_proj_weight: bool = False,
        q_proj_weight: Tensor | None = None, k_proj_weight: Tensor | None = None, v_proj_weight: Tensor | None = None,
        static_k: Tensor | None = None, static_v: Tensor | None = None, average_attn_weights: bool = True,
        is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
    """Multi-head attention over (length, batch, embed) or (length, embed): (output, weights or None)."""
    if has_torch_function((query, key, value)):
        return handle_torch_function(
            multi_head_attention_forward, (query, key, value), query, key, value, embed_dim_to_check, num_heads, in_proj_weight,
            in_proj_bias, bias_k, bias_v, add_zero_attn, dropout_p, out_proj_weight, out_proj_bias, training=training,
            key_padding_mask=key_padding_mask, need_weights=need_weights, attn_mask=attn_mask,
            use_separate_proj_weight=use_separate_proj_weight, q_proj_weight=q_proj_weight, k_proj_weight=k_proj_weight,
            v_proj_weight=v_proj_weight, static_k=static_k, static_v=static_v, average_attn_weights=average_attn_weights,
            is_causal=is_causal)
    single = not _mha_shape_check(query, key, value, key_padding_mask, attn_mask, num_heads)
    if single:
        query, key, value = _batch_of_one(query, key, value)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    rows, batch, embed = query.shape
    _check_embedding(query, key, value, embed_dim_to_check, num_heads, use_separate_proj_weight)
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    causal = is_causal and key_padding_mask is None and not need_weights
    mask_type = key_padding_mask.dtype if key_padding_mask is not None else None
    attn_mask = None if causal else _canonical_mask(attn_mask, "attn_mask", mask_type, "key_padding_mask", query.dtype)
    key_padding_mask = _canonical_mask(key_padding_mask, "key_padding_mask", None, "attn_mask", query.dtype, False)
    separate = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    q, k, v = _in_projection(query, key, value, embed, in_proj_weight, in_proj_bias, separate)
    extra = 0
    if bias_k is not None and bias_v is not None:
        k = cat([k, bias_k.expand(1, batch, embed)], 0)
        v = cat([v, bias_v.expand(1, batch, embed)], 0)
        extra += 1
    q, k, v = _heads(q, batch, num_heads), _heads(k, batch, num_heads), _heads(v, batch, num_heads)
    if static_k is not None:
        k = static_k.reshape(batch, num_heads, *static_k.shape[1:])
    if static_v is not None:
        v = static_v.reshape(batch, num_heads, *static_v.shape[1:])
    if add_zero_attn:
        zero = k.new_zeros((batch, num_heads, 1, k.shape[-1]))
        k, v = cat([k, zero], 2), cat([v, zero], 2)
        extra += 1
    if extra:
        attn_mask = None if attn_mask is None else pad(attn_mask, (0, extra))
        key_padding_mask = None if key_padding_mask is None else pad(key_padding_mask, (0, extra))
    mask = _merged_mask(attn_mask, key_padding_mask, batch, num_heads, rows, k.shape[2])
    drop = dropout_p if training else 0.0
    if need_weights:
        mixed, weights = _with_weights(q, k, v, mask, drop)
    else:
        mixed, weights = scaled_dot_product_attention(q, k, v, mask, drop, causal), None
    out = linear(mixed.permute(2, 0, 1, 3).reshape(rows, batch, embed), out_proj_weight, out_proj_bias)
    if weights is not None:
        weights = weights.mean(1) if average_attn_weights else weights
        weights = weights.squeeze(0) if single else weights
    return (out.squeeze(1) if single else out), weights


def _with_weights(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, drop: float) -> tuple[Tensor, Tensor]:
    """What attention gives, and by which weights."""
    scores = q.matmul(k.transpose(-2, -1)) * (1 / math.sqrt(q.shape[-1]))
    weights = _act.softmax(scores if mask is None else scores + mask.to(scores.dtype), -1)
    weights = dropout(weights, drop) if drop else weights
    return weights.matmul(v), weights


def assert_int_or_pair(arg: Any, arg_name: str, message: str) -> None:
    """Raise `message` unless `arg` is a number or a pair."""
    if not isinstance(arg, int) and len(arg) != 2:
        raise AssertionError(message.format(arg_name))


def grouped_mm(mat_a: Tensor, mat_b: Tensor, *, offs: Tensor | None = None, bias: Tensor | None = None,
               out_dtype: dtype | None = None) -> Tensor:
    """Products of groups of different sizes, as experts have of tokens: `offs` (int32) tells where each group ends, in the rows of a 2-d
    mat_a (mat_b (groups, k, m)), in the columns of a 2-d mat_b (mat_a (groups, n, k)), or in what is summed over (both 2-d, a matrix for
    each group). Two 3-d ones are multiplied as by bmm. What lies behind the last group is zero."""
    return _grouped_mm(mat_a, mat_b, offs, bias, out_dtype)


__all__ = [name for name, value in globals().items() if isinstance(value, FunctionType) and not name.startswith("_")]
