"""Elementwise operators that are formulas of several primitives: lerp, addcmul, logaddexp, logit, xlogy, angle ..."""

from __future__ import annotations

import builtins
import math
from typing import Any

from ..core.dtypes import FLOAT, INT, bool_, complex128, finfo, float32, float64, scalar_type
from ..core.scalar import compute_dtype
from ..core.tensor import Tensor
from . import prims
from .order import elementwise, in_rows
from .pointwise import a_tensor, abs, add, both_float, clamp, complex, conj, div, mul, not_tensors, pow, trunc, where, with_fractions
from .primitives import InAten
from .promotion import broadcast, cast, factor, prepare, result_type, rounded, to_float
from .registry import Pointwise, operator
from .writing import assign, inplace, new_value, with_out


@operator(method=True, autocast={"cuda": "promote"}, node=True)
@with_out
@elementwise
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Tensor:
    """input + value * tensor1 * tensor2, in the dtype that the tensors have in common."""
    kind, input, tensor1, tensor2 = _in_common("addcmul", input, tensor1, tensor2)
    input, tensor1, tensor2 = broadcast(input, tensor1, tensor2)
    return cast(add(input, mul(tensor1 if value == 1 else mul(tensor1, factor(value, kind)), tensor2)), kind)


def _in_common(name: str, *tensors: Tensor) -> tuple:
    """(the dtype of the result, the tensors in the one in which it is computed)."""
    kind = tensors[0].dtype
    if any(t.dtype is not kind for t in tensors):
        kind = result_type(*tensors)
    if kind is bool_:
        raise NotImplementedError(f'"{name}_cpu_out" not implemented for \'Bool\'; convert the operands with .int() or .float() first')
    return kind, *[cast(cast(t, kind), compute_dtype(kind)) for t in tensors]


@operator(method=True, autocast={"cuda": "promote"}, node=True)
@with_out
@elementwise
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Tensor:
    """input + value * tensor1 / tensor2, in the dtype that the tensors have in common."""
    if tensor1.dtype.category <= INT and tensor2.dtype.category <= INT:
        raise RuntimeError("Integer division with addcdiv is no longer supported: use input + value * torch.trunc(tensor1 / tensor2) or "
                           f"addcdiv of floating-point tensors. Got {tensor1.dtype} and {tensor2.dtype}")
    kind, input, tensor1, tensor2 = _in_common("addcdiv", input, tensor1, tensor2)
    input, tensor1, tensor2 = broadcast(input, tensor1, tensor2)    # before dividing: of no elements there is no slope to be infinite
    quotient = div(tensor1, tensor2) if value == 1 else _scaled_quotient(tensor1, tensor2, factor(value, kind))
    return cast(add(input, quotient), kind)


@operator(name="_scaled_quotient", vjp=Pointwise(
    tensor1=lambda tensor2, value: value / tensor2, tensor2=lambda tensor1, tensor2, value: -(tensor1 * (value / tensor2)) / tensor2))
def _scaled_quotient(tensor1: Tensor, tensor2: Tensor, value: Any) -> Tensor:
    """value * tensor1 / tensor2; the slopes are finite where the value makes up for a small divisor."""
    return div(mul(tensor1, value), tensor2)


@operator(method=True, fused=True, node=lambda input, end, weight: "lerp.1" if isinstance(weight, Tensor) else "lerp")
@with_out
@elementwise
def lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    """input + weight * (end - input), formed from the nearer end."""
    if input.dtype is not end.dtype:
        raise RuntimeError(f"expected dtype {input.dtype} for `end` but got dtype {end.dtype}")
    if isinstance(weight, Tensor) and not weight.ndim and weight.dtype is not input.dtype:
        kind = result_type(input, end, weight)
        input, end, weight = cast(input, kind), cast(end, kind), cast(weight, kind)
    if input.dtype.category < FLOAT:
        raise NotImplementedError(f'"lerp_kernel" not implemented for \'{input.dtype}\'; it takes floating-point and complex tensors')
    if isinstance(weight, Tensor):
        if weight.dtype is not input.dtype:
            raise RuntimeError(f"expected dtype {input.dtype} for `weight` but got dtype {weight.dtype}")
    else:
        weight = factor(weight, input.dtype)
    kind, wide = input.dtype, compute_dtype(input.dtype)
    if wide is not kind:    # rounded once
        weight = cast(weight, wide) if isinstance(weight, Tensor) else weight
        return cast(_between(cast(input, wide), cast(end, wide), weight), kind)
    return _between(input, end, weight)


@operator(name="_lerp", aten=InAten(node="lerp.1"), vjp=Pointwise(
    input=lambda weight: 1 - weight, end=lambda weight: weight, weight=lambda input, end: end - input))
def _lerp(input: Tensor, end: Tensor, weight: Tensor) -> Tensor:
    """lerp of tensors of one shape; its gradient knows nothing of which end was nearer."""
    return where(prims.abs(weight) < 0.5, input + weight * (end - input), end - (end - input) * (1 - weight))


def _between(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    if isinstance(weight, Tensor):
        return _lerp(*broadcast(input, end, weight))
    near = builtins.abs(weight) < 0.5 if isinstance(weight, builtins.complex) else -0.5 < weight < 0.5
    return input + (end - input) * weight if near else end - (end - input) * (1 - weight)


@operator(method=True)
@with_out
@elementwise
def logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """log(e^input + e^other), without overflow."""
    if not isinstance(other, Tensor):
        raise not_tensors("logaddexp", input, other)
    return _logaddexp(*with_fractions("logaddexp", *prepare(input, other)))


@operator(fused=True)
def logaddexp_backward(g: Tensor, x: Tensor, y: Tensor, rate: float = 1.0) -> tuple[Tensor, Tensor]:
    """Gradients of log(e^(rate x) + e^(rate y)) / rate: shares by the logistic function of the difference, even ones of equals."""
    if x.dtype.is_complex:
        share = (1 / (1 + (y - x).exp())).conj()
        return g * share, g * (1 - share)
    kind, wide = x.dtype, compute_dtype(x.dtype)
    g, x, y = cast(g, wide), cast(x, wide), cast(y, wide)     # rounded once
    gap = where(x == y, 0.0, (x - y) * rate)
    return cast(g * prims.sigmoid(gap), kind), cast(g * prims.sigmoid(-gap), kind)


@operator(name="_logaddexp", fused=True, vjp=lambda g, x, y: logaddexp_backward(g, x, y))
def _logaddexp(x: Tensor, y: Tensor) -> Tensor:
    if x.dtype.is_complex:
        larger = prims.real(x) >= prims.real(y)
        top, low = where(larger, x, y), where(larger, y, x)
        return where(prims.real(low) == -math.inf, top, top + prims.log(1 + (low - top).exp()))
    kind, wide = x.dtype, compute_dtype(x.dtype)
    x, y = cast(x, wide), cast(y, wide)     # rounded once
    top = prims.maximum(x, y)
    gap = -abs(x - y)
    return cast(where(top.isinf() & (x == y), top, top + gap.exp().log1p()), kind)


@operator(method=True)
@with_out
def float_power(input: Any, exponent: Any) -> Tensor:
    """input ** exponent in double precision, complex if either is."""
    a_tensor("float_power", input, exponent)
    kind = complex128 if result_type(input, exponent).is_complex else float64
    return pow(cast(input, kind), cast(exponent, kind))


@operator(method=True, tags=("inplace",))
def float_power_(self: Tensor, exponent: Any) -> Tensor:
    """float_power written over `self`, which must be of double precision."""
    kind = complex128 if result_type(self, exponent).is_complex else float64
    if self.dtype is not kind:
        raise RuntimeError(f"the base given to float_power_ has dtype {self.dtype} but the operation's result requires dtype {kind}")
    return assign(self, new_value(float_power, self, (exponent,), {}))


def _logit_back(g: Tensor, input: Tensor, eps: float | None) -> Tensor:
    """g / (x (1 - x)); beyond the limits 0 where there are some, and NaN as the value itself where there are none."""
    low, beyond = (0.0, math.nan) if eps is None or eps < 0 else (eps, 0.0)
    return prims.where((input < low) | (input > 1 - low), beyond, g * prims.reciprocal(input * (1 - input)))


@operator(method=True, vjp=Pointwise(input=_logit_back))
@with_out
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), with x limited to [eps, 1 - eps] if eps is given (by eps first, where that is no interval) and no less than 0."""
    x = to_float(input)
    if eps is not None and eps >= 0:
        x = clamp(x, eps, 1 - eps) if eps <= 0.5 else where(x < eps, eps, clamp(x, max=1 - eps))
    return x.log() - (-x).log1p()  # whose slope is infinite at 0 and 1


@operator(method=True)
@with_out
def sinc(input: Tensor) -> Tensor:
    """sin(pi x) / (pi x), 1 at 0."""
    x = to_float(input)
    kind, x = x.dtype, (cast(x, float32) if x.dtype.itemsize < 4 else x) * math.pi
    return cast(_sine_over(x), kind)


def _sine_over_slope(t: Tensor) -> Tensor:
    """cos(t) / t - sin(t) / t^2, near 0 by its series: the sum of (-1)^k (2k) t^(2k-1) / (2k+1)!."""
    is_near = prims.abs(t) < 1
    near, far = t.masked_fill(~is_near, 0), t.masked_fill(is_near, 1)
    series = near * 0
    for k in range(9, 0, -1):
        series = series * near * near + (-1) ** k * 2 * k / math.factorial(2 * k + 1)
    return where(is_near, series * near, (far.cos() - far.sin() / far) / far)


@operator(name="_sinc", vjp=Pointwise(input=lambda g, input: (g * conj(_sine_over_slope(input))).masked_fill(input == 0, 0)))
def _sine_over(input: Tensor) -> Tensor:
    """sin(t) / t, 1 at 0."""
    safe = input.masked_fill(input == 0, 1)
    return where(input == 0, 1.0, safe.sin() / safe)


@operator(method=True, fused=True, vjp=lambda g: (g,), tags=("keeps_zero",))
@with_out
def frac(input: Tensor) -> Tensor:
    """The part after the point: input - trunc(input)."""
    if input.dtype.category != FLOAT:
        raise NotImplementedError(f'"frac_cpu" not implemented for {scalar_type(input.dtype)!r}; it is of floating-point numbers')
    return input - trunc(input)


@operator(method=True, fused=True, tags=("keeps_zero",), node=True)
@with_out
def nan_to_num(input: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """NaN, inf and -inf replaced (by 0 and the dtype's largest and smallest numbers unless given)."""
    if input.dtype.category < FLOAT:
        return input.clone()
    if input.dtype.is_complex:
        return complex(nan_to_num(prims.real(input), nan, posinf, neginf), nan_to_num(prims.imag(input), nan, posinf, neginf))
    limits = finfo(input.dtype)
    nan, posinf, neginf = (rounded(default if given is None else given, input.dtype)
                           for given, default in ((nan, 0.0), (posinf, limits.max), (neginf, limits.min)))
    x = where(prims.eq(input, -math.inf), neginf, where(prims.eq(input, math.inf), posinf, input))
    return where(prims.isnan(input), nan, x)    # last, so that what stands for it may be infinite


@operator(method=True)
@with_out
@elementwise
def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 below zero, 1 above, `values` at zero."""
    if not isinstance(values, Tensor):
        raise TypeError(f"heaviside(): argument 'values' (position 2) must be Tensor, not {type(values).__name__}")
    return _heaviside(*prepare(input, values))


@operator(name="_heaviside", vjp=Pointwise(x=0, at_zero=lambda x: x == 0))
def _heaviside(x: Tensor, at_zero: Any) -> Tensor:
    return where(x == 0, at_zero, (x > 0).to(x.dtype))


@operator(method=("xlogy",))
@with_out
@elementwise
def xlogy(input: Any, other: Any) -> Tensor:
    """input * log(other), 0 where input is 0 (also at other = 0)."""
    a_tensor("xlogy", input, other)
    x, y = prepare(*both_float(input, other))
    x = x if isinstance(x, Tensor) else prims.full(tuple(y.shape), x, y.dtype, y.device)
    y = y if isinstance(y, Tensor) else prims.full(tuple(x.shape), y, x.dtype, x.device)
    return _xlogy(x, y)


@operator(name="_xlogy", vjp=Pointwise(x=lambda g, x, y: _xlogy(g, y).masked_fill((x == 0) & (y <= 0), 0),
                                       y=lambda g, x, y: (g * x / y).masked_fill((x == 0) & (y == 0), 0)))
def _xlogy(x: Tensor, y: Tensor) -> Tensor:
    zero = (x == 0) & ~y.isnan()
    return (x * y.masked_fill(zero, 1).log()).masked_fill(zero, 0)


@operator(method=True, tags=("keeps_zero",), node=True)
@with_out
def deg2rad(input: Tensor) -> Tensor:
    """Degrees to radians."""
    return to_float(input) * (math.pi / 180)


@operator(method=True, tags=("keeps_zero",), node=True)
@with_out
def rad2deg(input: Tensor) -> Tensor:
    """Radians to degrees."""
    return to_float(input) * (180 / math.pi)


@operator(method=True, fused=True, node=True)
@with_out
def angle(input: Tensor) -> Tensor:
    """The argument of a complex number; 0 or pi by sign for real ones (NaN stays)."""
    if input.dtype.is_complex:
        return in_rows(prims.atan2(prims.imag(input), prims.real(input)))
    x = to_float(input)
    return where(x < 0, math.pi, where(x.isnan(), prims.floor(x), 0.0))  # whose slope is 0


for _fn in (addcmul, addcdiv, lerp):
    inplace(_fn, _fn.__name__ + "_")
