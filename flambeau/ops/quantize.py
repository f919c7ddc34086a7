"""Fake quantisation: numbers rounded as integers of few bits would hold them, with the gradient passed through."""

from __future__ import annotations

from typing import Any

from ..core import dispatch
from ..core.dtypes import bfloat16, float16, float32, float64, scalar_type
from ..core.tensor import Tensor
from . import prims
from .primitives import InAten
from .promotion import cast
from .registry import operator


def _steps(x: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    """Which integer stands for each number, whether or not there is one such."""
    return prims.add(prims.round(prims.mul(x, prims.reciprocal(scale))), zero_point)


@operator
def _fake_quantize_backward(g: Tensor, input: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int) -> Tensor:
    steps = _steps(*_spread(input, scale, zero_point))
    inside = prims.logical_and(prims.ge(steps, float(quant_min)), prims.le(steps, float(quant_max)))
    return prims.where(inside, g, g.new_zeros(()).expand(g.shape))


def _spread(input: Tensor, scale: Tensor, zero_point: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x = cast(input, float32)
    return x, cast(scale, float32).expand(x.shape), cast(zero_point, float32).expand(x.shape)


@operator(name="_fake_quantize", aten=InAten(node="fake_quantize_per_tensor_affine_cachemask"), vjp=lambda g, input, scale, zero_point,
          quant_min, quant_max: (
    _fake_quantize_backward(g, input, scale, zero_point, quant_min, quant_max), None, None))
def _fake_quantize(input: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int) -> Tensor:
    x, by, zero = _spread(input, scale, zero_point)
    kept = _steps(x, by, zero).clamp(quant_min, quant_max)
    return cast(prims.mul(prims.sub(kept, zero), by), input.dtype)


def _kept(x: Tensor) -> Tensor:
    """A copy for the gradient: an observer writes the next step's scale into the same tensor, maybe before this step's backward pass."""
    return x.detach().clone() if dispatch.state.grad_enabled else x


def _check(name: str, input: Tensor, quant_min: int, quant_max: int) -> None:
    if input.dtype not in (float32, float64, float16, bfloat16):
        raise RuntimeError(f"{name}: expected a floating point tensor, got {scalar_type(input.dtype)}")
    if quant_min > quant_max:
        raise RuntimeError(f"`quant_min` should be less than or equal to `quant_max`; got {quant_min} and {quant_max}")


@operator
def fake_quantize_per_tensor_affine(input: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Tensor:
    """`(clamp(round(input / scale) + zero_point, quant_min, quant_max) - zero_point) * scale`; the gradient is passed through where
    nothing was clamped."""
    _check("fake_quantize_per_tensor_affine", input, quant_min, quant_max)
    by, zero = [_kept(value).reshape(()) if isinstance(value, Tensor) else input.new_full((), value, dtype=float32)
                for value in (scale, zero_point)]
    if not isinstance(zero_point, Tensor) and not quant_min <= zero_point <= quant_max:
        raise RuntimeError("`zero_point` must be between `quant_min` and `quant_max`.")
    return _fake_quantize(input, by, zero, quant_min, quant_max)


@operator
def fake_quantize_per_channel_affine(input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int) -> Tensor:
    """The same with a scale and a zero point for each index of dimension `axis`."""
    _check("fake_quantize_per_channel_affine", input, quant_min, quant_max)
    if not -input.ndim <= axis < input.ndim:
        raise RuntimeError(f"`axis` must be between 0 and number of dimensions of input, got {axis} for {list(input.shape)}")
    if scale.ndim != 1 or zero_point.ndim != 1 or len(scale) != input.shape[axis] or len(zero_point) != input.shape[axis]:
        raise RuntimeError(f"dimensions of scale and zero-point are not consistent with input tensor: {list(scale.shape)}, "
                           f"{list(zero_point.shape)} and {list(input.shape)} along {axis}")
    shape = [1] * input.ndim
    shape[axis] = len(scale)
    return _fake_quantize(input, _kept(scale).reshape(shape), _kept(zero_point).reshape(shape), quant_min, quant_max)
