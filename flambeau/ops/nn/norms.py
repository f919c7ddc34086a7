"""Normalisations. Forward gives the statistics too; backward is one fused operator for the input and one for the affine part."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import getitem
from typing import Any

from ...core import dispatch
from ...core.dtypes import finfo, float32
from ...core.size import several
from ...core.symbolic import sym_float
from ...core.tensor import Tensor
from .. import prims
from ..batching import first_alone, merged
from ..order import as_images, has_images, in_images, in_rows
from ..primitives import InAten
from ..promotion import cast
from ..registry import operator
from ..writing import assign, assign_uncounted, with_out
from .activations import check_float, widened


def _count(shape: Sequence, dims: Sequence[int]) -> Any:
    return math.prod([shape[d] for d in dims])


def _spread(x: Tensor, dims: Sequence[int], shape: Sequence) -> Tensor:
    """A reduced tensor with the reduced dimensions back, repeated."""
    for d in sorted(dims):
        x = prims.unsqueeze(x, d)
    return prims.expand(x, tuple(shape))


def _moments(x: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """(mean, biased variance, x - mean) over `dims`. What the first mean is off by is the mean of what is left, which is summed beside
    its squares (the corrected two-pass algorithm of Chan, Golub and LeVeque 1983)."""
    n = 1.0 * _count(x.shape, dims)
    near = prims.truediv(prims.sum(x, dims), n)
    left = prims.sub(x, _spread(near, dims, x.shape))
    rest = prims.truediv(prims.sum(left, dims), n)
    square = prims.truediv(prims.sum(prims.mul(left, left), dims), n)
    mean = prims.where(prims.eq(rest, rest), prims.add(near, rest), near)   # an infinite mean is off by nothing
    return mean, _less_square(square, rest), prims.sub(left, _spread(rest, dims, x.shape))


def _less_square(square: Tensor, mean: Tensor) -> Tensor:
    """The variance, of the means of a square and of what is squared: infinite where both overflow, never below zero."""
    return prims.maximum(prims.sub(square, prims.minimum(prims.mul(mean, mean), finfo(mean.dtype).max)), 0.0)


def _moments_of_channels(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """As `_moments` over all but the channels. On a GPU in one pass: the sums of x - s and of its square, where s is the channel's
    first element, which lies near enough to the mean that nothing cancels (Chan, Golub and LeVeque 1983)."""
    over = _over(x.ndim)
    if x.device.type != "cuda":
        return _moments(x, over)
    first = x
    for d in reversed(over):
        first = prims.select(first, d, 0)
    n = 1.0 * _count(x.shape, over)
    shifted = prims.sub(x, _channelwise(first, x.shape))
    offset = prims.truediv(prims.sum(shifted, over), n)
    square = prims.truediv(prims.sum(prims.mul(shifted, shifted), over), n)
    mean = prims.add(first, offset)
    return mean, _less_square(square, offset), prims.sub(x, _channelwise(mean, x.shape))


# -- layer_norm: statistics over the trailing dimensions, affine over the same -------------------------------------
@operator(fused=True)
def layer_norm_backward(g: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor, rstd: Tensor) -> Tensor:
    """Gradient for x: rstd * (gw - mean(gw) - xhat * mean(gw * xhat)), gw = g * weight; means over the normalised dimensions."""
    lead, shape = mean.ndim, tuple(x.shape)
    dims = tuple(range(lead, x.ndim))
    n = 1.0 * _count(shape, dims)
    rs = _spread(rstd, dims, shape)
    xhat = prims.mul(prims.sub(widened(x), _spread(mean, dims, shape)), rs)
    gw = widened(g)
    if weight is not None:
        gw = prims.mul(gw, prims.expand(widened(weight), shape))
    first = prims.truediv(prims.sum(gw, dims), n)
    second = prims.truediv(prims.sum(prims.mul(gw, xhat), dims), n)
    inner = prims.sub(prims.sub(gw, _spread(first, dims, shape)), prims.mul(xhat, _spread(second, dims, shape)))
    return cast(prims.mul(inner, rs), x.dtype)


@operator(fused=True)
def layer_norm_backward_affine(g: Tensor, x: Tensor, mean: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients for weight and bias: sums of g * xhat and of g over the leading dimensions (in float32 at least)."""
    lead, shape = mean.ndim, tuple(x.shape)
    dims = tuple(range(lead, x.ndim))
    xhat = prims.mul(prims.sub(widened(x), _spread(mean, dims, shape)), _spread(rstd, dims, shape))
    gw = widened(g)
    over = tuple(range(lead))
    return prims.sum(prims.mul(gw, xhat), over), prims.sum(gw, over)


def _in_dtypes(grads: tuple, kinds: tuple, needs: Sequence[bool]) -> tuple:
    """Gradients in the dtypes of their parameters, None for those that need none."""
    return tuple(cast(g, kind) if need else None for g, kind, need in zip(grads, kinds, needs))


def _layer_norm_vjp(gs: tuple, input: Tensor, weight: Tensor | None, weight_dtype: Any, bias_dtype: Any, out1: Tensor,
                    out2: Tensor, dims: int, eps: float, needs: tuple) -> tuple:
    g, mean, rstd = gs[0], out1, out2
    if g is None:
        return (None, None, None)
    if dispatch.state.grad_enabled:   # second derivatives flow through the statistics too
        mean, rstd = _layer_statistics(input, dims, eps)
    gx = layer_norm_backward(g, input, weight, mean, rstd) if needs[0] else None
    sums = layer_norm_backward_affine(g, input, mean, rstd) if needs[1] or needs[2] else (None, None)
    return gx, *_in_dtypes(sums, (weight_dtype, bias_dtype), needs[1:])


def _layer_statistics(input: Tensor, dims: int, eps: float) -> tuple[Tensor, Tensor]:
    x = widened(input)
    mean, var, _ = _moments(x, tuple(range(x.ndim - dims, x.ndim)))
    return mean, prims.rsqrt(prims.add(var, eps))


def _layer_norm_in_aten(call: Callable, x: Tensor, weight: Tensor | None, bias: Tensor | None, dims: int, eps: float) -> tuple:
    made, rows = call("native_layer_norm", x, list(x.shape[x.ndim - dims:]), weight, bias, eps), list(x.shape[:x.ndim - dims])
    out, mean, rstd = (call(getitem, made, i) for i in range(3))
    return out, call("view", mean, rows), call("view", rstd, rows)      # which ATen keeps the dimensions of


@operator(name="_layer_norm", aten=InAten("native_layer_norm", steps=_layer_norm_in_aten), fused=True, batch=first_alone,
          vjp=_layer_norm_vjp)
def _layer_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, dims: int,
                eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(normalised, mean, 1 / sqrt(var + eps)) over the last `dims` dimensions."""
    x, shape = widened(input), tuple(input.shape)
    over = tuple(range(input.ndim - dims, input.ndim))
    mean, var, centred = _moments(x, over)
    rstd = prims.rsqrt(prims.add(var, eps))
    out = prims.mul(centred, _spread(rstd, over, shape))
    if weight is not None:
        out = prims.mul(out, prims.expand(widened(weight), shape))
    if bias is not None:
        out = prims.add(out, prims.expand(widened(bias), shape))
    return cast(out, input.dtype), mean, rstd


def _goes_with(input: Tensor, parameter: Tensor) -> bool:
    """Has a parameter the input's dtype? Of a narrow input it may be float32."""
    return parameter.dtype is input.dtype or (input.dtype.itemsize < 4 and parameter.dtype is float32)


def _check_dtypes(input: Tensor, *parameters: Tensor | None) -> None:
    for given in parameters:
        if given is not None and not _goes_with(input, given):
            raise RuntimeError(f"mixed dtype: expect parameters to have the dtype {input.dtype} of the input, but got {given.dtype}")


def _check_normalized(input: Tensor, normalized_shape: Sequence[int], name: str, *affine: Tensor | None) -> tuple:
    shape = several(normalized_shape)
    if not shape:
        raise RuntimeError("Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got "
                           f"normalized_shape = {list(shape)}")
    for t in affine:
        if t is not None and tuple(t.shape) != shape:
            raise RuntimeError("Expected weight to be of same shape as normalized_shape, but got weight of shape "
                               f"{list(t.shape)} and normalized_shape = {list(shape)}")
    if name == "rms_norm" and input.ndim < len(shape):
        raise ValueError(f"Input tensor must have at least {len(shape)} dimensions, but got {input.ndim}")
    if len(shape) > input.ndim or tuple(input.shape[-len(shape):]) != shape:
        raise RuntimeError(f"Given normalized_shape={list(shape)}, expected input with shape "
                           f"[*, {', '.join(map(str, shape))}], but got input of size{list(input.shape)}")
    check_float(input, name)
    return shape


@operator(autocast={"cuda": "wide"})
def layer_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None,
               eps: float = 1e-5, cudnn_enable: bool = True) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias, with mean and variance over the trailing `normalized_shape`."""
    shape = _check_normalized(input, normalized_shape, "layer_norm", weight, bias)
    _check_dtypes(input, weight, bias)
    return _layer_norm(in_rows(input), weight, bias, len(shape), sym_float(eps))[0]


# -- rms_norm --------------------------------------------------------------------------------------------------
@operator(fused=True)
def rms_norm_backward(g: Tensor, x: Tensor, weight: Tensor | None, rstd: Tensor) -> Tensor:
    """Gradient for x: rstd * (gw - xhat * mean(gw * xhat)), xhat = x * rstd."""
    lead, shape = rstd.ndim, tuple(x.shape)
    dims = tuple(range(lead, x.ndim))
    n = 1.0 * _count(shape, dims)
    rs = _spread(rstd, dims, shape)
    xhat, gw = prims.mul(widened(x), rs), widened(g)
    if weight is not None:
        gw = prims.mul(gw, prims.expand(widened(weight), shape))
    second = prims.truediv(prims.sum(prims.mul(gw, xhat), dims), n)
    return cast(prims.mul(prims.sub(gw, prims.mul(xhat, _spread(second, dims, shape))), rs), x.dtype)


@operator(fused=True)
def rms_norm_backward_weight(g: Tensor, x: Tensor, rstd: Tensor) -> Tensor:
    """Gradient for weight: the sum of g * xhat over the leading dimensions (in float32 at least)."""
    lead, shape = rstd.ndim, tuple(x.shape)
    xhat = prims.mul(widened(x), _spread(rstd, tuple(range(lead, x.ndim)), shape))
    return prims.sum(prims.mul(widened(g), xhat), tuple(range(lead)))


def _rms_statistics(input: Tensor, dims: int, eps: float) -> Tensor:
    x = widened(input)
    over = tuple(range(x.ndim - dims, x.ndim))
    square = prims.truediv(prims.sum(prims.mul(x, x), over), 1.0 * _count(x.shape, over))
    return prims.rsqrt(prims.add(square, eps))


def _rms_norm_vjp(gs: tuple, input: Tensor, weight: Tensor | None, out1: Tensor, dims: int, eps: float, needs: tuple) -> tuple:
    g, rstd = gs[0], out1
    if g is None:
        return (None, None)
    if dispatch.state.grad_enabled:
        rstd = _rms_statistics(input, dims, eps)
    if input.dtype.is_complex:      # a function of complex numbers without conjugates: those of its derivatives
        g = g.conj()
    gx = rms_norm_backward(g, input, weight, rstd).conj() if needs[0] else None
    gw = cast(rms_norm_backward_weight(g, input, rstd).conj(), weight.dtype) if needs[1] else None     # type: ignore[union-attr]
    return gx, gw


@operator(name="_rms_norm", fused=True, batch=first_alone, vjp=_rms_norm_vjp)
def _rms_norm(input: Tensor, weight: Tensor | None, dims: int, eps: float) -> tuple[Tensor, Tensor]:
    """(normalised, 1 / sqrt(mean(x^2) + eps)) over the last `dims` dimensions."""
    x, shape = widened(input), tuple(input.shape)
    rstd = _rms_statistics(input, dims, eps)
    out = prims.mul(x, _spread(rstd, tuple(range(input.ndim - dims, input.ndim)), shape))
    if weight is not None:
        out = prims.mul(out, prims.expand(widened(weight), shape))
    return cast(out, input.dtype), rstd


@operator
def rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the trailing `normalized_shape`; eps None: the machine epsilon of what it is computed in."""
    shape = _check_normalized(input, normalized_shape, "rms_norm", weight)
    if weight is not None and not _goes_with(input, weight):
        weight = weight.to(input.dtype)
    if eps is None:
        eps = finfo(float32 if input.dtype.itemsize < 4 else input.dtype).eps
    return as_images(_rms_norm(in_rows(input), weight, len(shape), sym_float(eps))[0], input.ndim in (4, 5) and has_images(input))


# -- batch_norm: statistics and affine per channel (dimension 1) -------------------------------------------------------
def _channelwise(v: Tensor, shape: Sequence) -> Tensor:
    """A vector over the channels repeated to `shape`."""
    for _ in range(len(shape) - 2):
        v = prims.unsqueeze(v, v.ndim)
    return prims.expand(prims.unsqueeze(v, 0), tuple(shape))


def _over(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank))


@operator(fused=True)
def batch_norm_backward_sums(g: Tensor, x: Tensor, mean: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    """Per channel: the sums of g * xhat and of g, which are the gradients of weight and bias."""
    shape = tuple(x.shape)
    gw = widened(g)
    xhat = prims.mul(prims.sub(widened(x), _channelwise(mean, shape)), _channelwise(rstd, shape))
    over = _over(x.ndim)
    return prims.sum(prims.mul(gw, xhat), over), prims.sum(gw, over)


@operator(fused=True)
def batch_norm_backward_input(g: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor, rstd: Tensor, gw: Tensor, gb: Tensor) -> Tensor:
    """Gradient for x in training: weight * rstd * (g - gb / n - xhat * gw / n)."""
    shape = tuple(x.shape)
    n = 1.0 * _count(shape, _over(x.ndim))
    scale = rstd if weight is None else prims.mul(rstd, widened(weight))
    slope = prims.truediv(prims.mul(gw, rstd), n)
    inner = prims.sub(widened(g), _channelwise(prims.truediv(gb, n), shape))
    inner = prims.sub(inner, prims.mul(prims.sub(widened(x), _channelwise(mean, shape)), _channelwise(slope, shape)))
    return cast(prims.mul(inner, _channelwise(scale, shape)), x.dtype)


def _batch_norm_train_vjp(gs: tuple, input: Tensor, weight: Tensor | None, weight_dtype: Any, bias_dtype: Any, out1: Tensor,
                          out2: Tensor, eps: float, needs: tuple) -> tuple:
    g, mean, var = gs[0], out1, out2     # the first output isn't kept: programs write to it in place
    if g is None:
        return (None, None, None)
    if dispatch.state.grad_enabled:
        mean, var, _ = _moments(widened(input), _over(input.ndim))
    rstd = prims.rsqrt(prims.add(var, eps))
    gw, gb = batch_norm_backward_sums(g, input, mean, rstd)
    gx = batch_norm_backward_input(g, input, weight, mean, rstd, gw, gb) if needs[0] else None
    return gx, *_in_dtypes((gw, gb), (weight_dtype, bias_dtype), needs[1:])


@operator(name="_batch_norm_train", aten="native_batch_norm", fused=True, vjp=_batch_norm_train_vjp)
def _batch_norm_train(input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(normalised, mean, biased variance) with the statistics of this batch."""
    x, shape = widened(input), tuple(input.shape)
    mean, var, centred = _moments_of_channels(x)
    scale = prims.rsqrt(prims.add(var, eps))
    if weight is not None:
        scale = prims.mul(scale, widened(weight))
    out = prims.mul(centred, _channelwise(scale, shape))
    out = prims.add(out, 0.0 if bias is None else _channelwise(widened(bias), shape))     # of -0.0, too, a sum
    return cast(out, input.dtype), mean, var


@operator(fused=True)
def _batch_norm_eval_backward(g: Tensor, weight: Tensor | None, rstd: Tensor) -> Tensor:
    scale = rstd if weight is None else prims.mul(rstd, widened(weight))
    return cast(prims.mul(widened(g), _channelwise(scale, tuple(g.shape))), g.dtype)


def _batch_norm_eval_vjp(g: Tensor, input: Tensor, weight: Tensor | None, weight_dtype: Any, bias_dtype: Any, mean: Tensor,
                         var: Tensor, eps: float, needs: tuple) -> tuple:
    rstd = prims.rsqrt(prims.add(widened(var), eps))
    gx = _batch_norm_eval_backward(g, weight, rstd) if needs[0] else None
    sums = batch_norm_backward_sums(g, input, widened(mean), rstd) if needs[1] or needs[2] else (None, None)
    return gx, *_in_dtypes(sums, (weight_dtype, bias_dtype), needs[1:])


@operator(name="_batch_norm_eval", aten="native_batch_norm", fused=True, batch=merged, vjp=_batch_norm_eval_vjp)
def _batch_norm_eval(input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias with given statistics."""
    x, shape = widened(input), tuple(input.shape)
    scale = prims.rsqrt(prims.add(widened(var), eps))
    if weight is not None:
        scale = prims.mul(scale, widened(weight))
    out = prims.mul(prims.sub(x, _channelwise(widened(mean), shape)), _channelwise(scale, shape))
    out = prims.add(out, 0.0 if bias is None else _channelwise(widened(bias), shape))     # of -0.0, too, a sum
    return cast(out, input.dtype)


def _check_channels(input: Tensor, **vectors: Tensor | None) -> None:
    if input.ndim < 2 and tuple(input.shape) != (0,):
        raise RuntimeError(f"batch_norm() expects at least 2 dimensions (batch, channels), got input of size {list(input.shape)}")
    for name, v in vectors.items():
        channels = input.shape[1] if input.ndim > 1 else 0
        if v is not None and (v.ndim != 1 or v.shape[0] != channels):
            raise RuntimeError(f"{name} should contain {channels} elements not {v.numel()}, in one dimension, got {list(v.shape)}")
    _check_dtypes(input, *vectors.values())


def _check_running(mean: Tensor | None, var: Tensor | None) -> None:
    if (mean is None) != (var is None):
        raise ValueError("running_mean and running_var must either both be None or neither be None")
    for name, x in (("running_mean", mean), ("running_var", var)):
        if x is not None and dispatch.state.grad_enabled and x.requires_grad:
            raise RuntimeError(f"batch_norm is not differentiable with respect to argument '{name}'. This input cannot have requires_grad "
                               "True; give its detach()")


@operator(name="functional_batch_norm")
def batch_norm(input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None,
               bias: Tensor | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
    """Normalise each channel (dimension 1) by its mean and variance over the others.

    In training with the batch's own statistics, and the running ones (the variance unbiased) move by `momentum` towards them
    in place; otherwise with the running ones.
    """
    check_float(input, "batch_norm")
    if eps < 0 or (training and not eps):
        raise ValueError(f"batch_norm eps must be {'positive during training' if training else 'non-negative'}, but got {eps}")
    _check_channels(input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    if input.ndim < 2:
        return input.clone()    # of no element
    input = in_images(input)
    if not training:
        if running_mean is None or running_var is None:
            raise RuntimeError("Expected running_mean and running_var to be defined when training=False")
        _check_running(running_mean, running_var)
        return _batch_norm_eval(input, weight, bias, running_mean, running_var, sym_float(eps))
    n = _count(input.shape, _over(input.ndim))
    if type(n) is int and n == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {input.shape}")
    _check_running(running_mean, running_var)
    return _train(input, weight, bias, running_mean, running_var, momentum, eps)[0]


def _train(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
           momentum: float, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """`_batch_norm_train`, after which the running statistics move."""
    out, mean, var = _batch_norm_train(input, weight, bias, sym_float(eps))
    n = _count(input.shape, _over(input.ndim))
    if type(n) is int and n == 0:   # nothing to learn from
        return out, mean, var
    with dispatch.grad_enabled(False):
        move(running_mean, mean, momentum)
        if running_var is not None:
            move(running_var, var * (math.nan if type(n) is int and n == 1 else n / (n - 1)), momentum)
    return out, mean, var


def move(running: Tensor | None, statistic: Tensor, momentum: Any, store: Callable = assign_uncounted) -> None:
    """A running statistic comes `momentum` nearer to that of a batch, if there is one; a narrow one is rounded once."""
    if running is not None:
        wide = widened(running)
        store(running, cast(wide * (1 - momentum) + statistic.to(wide.dtype) * momentum, running.dtype))


# -- group_norm, instance_norm ------------------------------------------------------------------------------------
@operator(fused=True)
def channel_affine_backward(g: Tensor, x: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of channel_affine: for x, and the sums of g * x and of g per channel (in float32 at least)."""
    gw, over = widened(g), _over(x.ndim)
    gx = g if weight is None else cast(prims.mul(gw, _channelwise(widened(weight), tuple(x.shape))), x.dtype)
    return prims.mul(gx, 1.0) if gx is g else gx, prims.sum(prims.mul(gw, widened(x)), over), prims.sum(gw, over)


def _channel_affine_vjp(g: Tensor, input: Tensor, weight: Tensor | None, weight_dtype: Any, bias_dtype: Any, needs: tuple) -> tuple:
    gx, *sums = channel_affine_backward(g, input, weight)
    return gx, *_in_dtypes(tuple(sums), (weight_dtype, bias_dtype), needs[1:])


@operator(fused=True, vjp=_channel_affine_vjp)
def channel_affine(input: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """input * weight + bias, with a weight and a bias for each channel (dimension 1)."""
    out, shape = widened(input), tuple(input.shape)
    if weight is not None:
        out = prims.mul(out, _channelwise(widened(weight), shape))
    if bias is not None:
        out = prims.add(out, _channelwise(widened(bias), shape))
    return cast(out, input.dtype)


@operator(autocast={"cuda": "wide"}, node="native_group_norm")
def group_norm(input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Normalise each group of channels of each sample; weight and bias are per channel."""
    shape = tuple(input.shape)
    if len(shape) < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {len(shape)}")
    if num_groups <= 0 or shape[1] % num_groups:
        if num_groups > 0 and shape[0] * shape[1] // num_groups * math.prod(shape[2:]) == 1:     # torch's first mistake of the two
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {list(shape)}, num_groups={num_groups}")
        raise RuntimeError("Expected number of channels in input to be divisible by num_groups, but got input of shape "
                           f"{list(shape)} and num_groups={num_groups}")
    if math.prod(shape) == num_groups:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {list(shape)}")
    _check_channels(input, weight=weight, bias=bias)
    groups = in_images(check_float(input, "group_norm")).reshape(shape[0], num_groups, shape[1] // num_groups, *shape[2:])
    out = _layer_norm(groups, None, None, groups.ndim - 2, sym_float(eps))[0].reshape(shape)
    return out if weight is None and bias is None else channel_affine(out, weight, bias)


@operator(name="functional_instance_norm")
def instance_norm(input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None,
                  weight: Tensor | None = None, bias: Tensor | None = None, use_input_stats: bool = True,
                  momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
    """Normalise each channel of each sample by its own statistics, or by the running ones."""
    if not use_input_stats:     # a write to the statistics, which counts, must not be one to what is saved of them
        mean, var = [None if x is None else x.clone() for x in (running_mean, running_var)]
        return batch_norm(in_rows(input), mean, var, weight, bias, False, momentum, eps)
    shape = tuple(input.shape)
    spatial = math.prod(shape[2:])
    if type(spatial) is int and spatial == 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {input.shape}")
    _check_channels(input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    _check_running(running_mean, running_var)
    rows = in_rows(check_float(input, "instance_norm")).reshape(shape[0], shape[1], spatial)
    out, mean, rstd = _layer_norm(rows, None, None, 1, sym_float(eps))
    if type(spatial) is int and spatial == 0:
        running_mean = running_var = None       # nothing to learn from
    with dispatch.grad_enabled(False):
        move(running_mean, mean.mean(0), momentum, assign)
        if running_var is not None:
            move(running_var, ((rstd.detach() ** -2 - eps) * (spatial / (spatial - 1))).mean(0), momentum, assign)
    out = out.reshape(shape)
    return out if weight is None and bias is None else channel_affine(out, weight, bias)


@operator(autocast={"cpu": "wide"})
def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """x / (k + alpha * mean of x^2 over `size` neighbouring channels)^beta."""
    if input.ndim < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {input.ndim} dimensions)")
    if not input.numel():
        return input
    square = input * input
    low = tuple(size // 2 if d == 1 else 0 for d in range(input.ndim))
    high = tuple((size - 1) // 2 if d == 1 else 0 for d in range(input.ndim))
    padded = prims.pad_zeros(square, low, high, (0,) * input.ndim)
    total = padded.narrow(1, 0, input.shape[1])
    for i in range(1, size):
        total = total + padded.narrow(1, i, input.shape[1])
    return input / (total * (alpha / size) + k) ** beta


@operator(autocast={"cuda": "wide"})
@with_out
def normalize(input: Tensor, p: float | None = 2.0, dim: int | None = 1, eps: float = 1e-12) -> Tensor:
    """x / max(norm_p(x), eps) along `dim`."""
    norm = input.norm(p, dim, keepdim=True).clamp_min(eps)
    return input / norm.expand_as(input)
