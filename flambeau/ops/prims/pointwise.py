"""Elementwise primitives: a loop body over the scalar ops, and d out / d x by input name."""

from __future__ import annotations

import cmath
import math
import operator
from numbers import Complex as Number
from typing import Any

import numpy as np

from ...backends.cpu import native
from ...core.dtypes import bool_, complex64, complex128, float32, float64, int64
from ...core.symbolic import SymFloat
from ...core.tensor import Tensor
from ..primitives import NO_CALL, InAten
from ..registry import pointwise

_TWO_OVER_SQRT_PI = 2 / math.sqrt(math.pi)
_LN2, _LN10 = math.log(2), math.log(10)


def _to_the_chosen(g: Tensor, mine: Tensor, other: Any, beaten: Tensor) -> Tensor:
    """The gradient of one operand of maximum or minimum: nothing, be `g` infinite, where it is beaten; half of it at ties."""
    return (g * 0.5).where(mine == other, g.masked_fill(beaten, 0))


def _between(low: float, high: float, inputs: int = 1) -> Any:
    """Samples inside an operation's domain."""
    return lambda r: [tuple(r.uniform(low, high, (2, 3)) for _ in range(inputs))]


def _whole(high: int, inputs: int = 2) -> Any:
    return lambda r: [tuple(r.integers(0, high, (2, 3)) for _ in range(inputs))]


def _beside(name: str) -> InAten:
    """Of an operator whose forms are those of a tensor and a number, of two tensors, of a number and a tensor."""
    return InAten(node=lambda x, y: name if not hasattr(y, "dtype") else f"{name}.1" if hasattr(x, "dtype") else f"{name}.2")


# -- arithmetic
add = pointwise("add", lambda o, x, y: o.add(x, y), d=dict(x=1, y=1))
sub = pointwise("sub", lambda o, x, y: o.sub(x, y), d=dict(x=1, y=-1),
                aten=InAten(node=lambda x, y: "sub" if hasattr(x, "dtype") else "rsub.1"))
mul = pointwise("mul", lambda o, x, y: o.mul(x, y), d=dict(x=lambda y: y, y=lambda x: x))
truediv = pointwise("truediv", lambda o, x, y: o.truediv(x, y),
                    aten=InAten("div", True, node=lambda x, y: "div" if hasattr(x, "dtype") else "mul"),
                    samples=lambda r: [(r.standard_normal((2, 3)), r.uniform(0.5, 2, (2, 3)))],
                    d=dict(x=lambda g, y: g / conjugated(y), y=lambda g, x, y: -g * conjugated((x / y) / y)))
floordiv = pointwise("floordiv", lambda o, x, y: o.floordiv(x, y), samples=_between(0.3, 2, 2), d=dict(x=0, y=0))
truncdiv = pointwise("truncdiv", lambda o, x, y: o.truncdiv(x, y), samples=_between(0.3, 2, 2), d=dict(x=0, y=0))
remainder = pointwise("remainder", lambda o, x, y: o.remainder(x, y), aten=_beside("remainder"), samples=_between(0.3, 2, 2),
                      d=dict(x=1, y=lambda x, y: -floordiv(x, y)))
fmod = pointwise("fmod", lambda o, x, y: o.fmod(x, y), aten=_beside("fmod"), samples=_between(0.3, 2, 2),
                 d=dict(x=1, y=lambda x, y: -(x / y).trunc()))
pow = pointwise("pow", lambda o, x, y: o.pow(x, y), aten=_beside("pow"), samples=_between(0.3, 2, 2), d=dict(
    x=lambda g, x, y: _pow_grad_base(g, x, y), y=lambda g, x, out: _pow_grad_exponent(g, x, out)))
neg = pointwise("neg", lambda o, x: o.neg(x), d=dict(x=-1))
reciprocal = pointwise("reciprocal", lambda o, x: o.reciprocal(x), d=dict(x=lambda out: -out * out))
sign = pointwise("sign", lambda o, x: o.sign(x), d=dict(x=0))
abs = pointwise("abs", lambda o, x: o.abs(x), result=lambda x: x.dtype.to_real() if x.dtype.is_complex else x.dtype,
                d=dict(x=lambda g, x: g * x.sgn()))
maximum = pointwise("maximum", lambda o, x, y: o.maximum(x, y),
                    d=dict(x=lambda g, x, y: _to_the_chosen(g, x, y, x <= y), y=lambda g, x, y: _to_the_chosen(g, y, x, y <= x)))
minimum = pointwise("minimum", lambda o, x, y: o.minimum(x, y),
                    d=dict(x=lambda g, x, y: _to_the_chosen(g, x, y, x >= y), y=lambda g, x, y: _to_the_chosen(g, y, x, y >= x)))
fmax = pointwise("fmax", lambda o, x, y: o.fmax(x, y), d=dict(x=lambda x, y: (x >= y) | y.isnan(), y=lambda x, y: ~((x >= y) | y.isnan())))
fmin = pointwise("fmin", lambda o, x, y: o.fmin(x, y), d=dict(x=lambda x, y: (x <= y) | y.isnan(), y=lambda x, y: ~((x <= y) | y.isnan())))
hypot = pointwise("hypot", lambda o, x, y: o.hypot(x, y), d=dict(x=lambda x, out: x / out, y=lambda y, out: y / out))
copysign = pointwise("copysign", lambda o, x, y: o.copysign(x, y), d=dict(x=lambda x, out: (out / x).masked_fill(x == 0, 0), y=0))
# not of narrow floats, whose neighbours are not float32's
nextafter = pointwise("nextafter", lambda o, x, y: o.nextafter(x, y), d=dict(x=lambda x, y: x != y, y=0))


def _scaled_by_power(o: Any, x: Any, y: Any) -> Any:
    """x * 2^y in three steps, none of which overflows unless x does; zero and infinity stay."""
    third = o.floor(o.mul(y, 1 / 3))
    finite = o.eq(o.sub(y, y), 0)
    step, rest = o.exp2(third), o.where(finite, o.sub(y, o.mul(third, 2)), 0)
    stays = o.mul(x, o.where(finite, 1, o.exp2(y)))
    return o.where(o.eq(o.mul(x, 2), x), stays, o.mul(o.mul(o.mul(x, step), step), o.exp2(rest)))


ldexp = pointwise("ldexp", _scaled_by_power, d=dict(x=lambda y: y.exp2(), y=lambda out: out * _LN2))
fma = pointwise("fma", lambda o, x, y, z: o.fma(x, y, z), d=dict(x=lambda y: y, y=lambda x: x, z=1))

# -- roots, exponentials, logarithms
sqrt = pointwise("sqrt", lambda o, x: o.sqrt(x), samples=_between(0.2, 3), d=dict(x=lambda g, out: g / conjugated(2 * out)))
rsqrt = pointwise("rsqrt", lambda o, x: o.rsqrt(x), samples=_between(0.2, 3), d=dict(x=lambda out: -0.5 * out * out * out))
exp = pointwise("exp", lambda o, x: o.exp(x), d=dict(x=lambda out: out))
exp2 = pointwise("exp2", lambda o, x: o.exp2(x), d=dict(x=lambda out: out * _LN2))
expm1 = pointwise("expm1", lambda o, x: o.expm1(x), d=dict(x=lambda out: out + 1))
log = pointwise("log", lambda o, x: o.log(x), samples=_between(0.2, 3), d=dict(x=lambda g, x: g / conjugated(x)))
log2 = pointwise("log2", lambda o, x: o.log2(x), samples=_between(0.2, 3), d=dict(x=lambda g, x: g / conjugated(x * _LN2)))
log10 = pointwise("log10", lambda o, x: o.log10(x), samples=_between(0.2, 3), d=dict(x=lambda g, x: g / conjugated(x * _LN10)))
log1p = pointwise("log1p", lambda o, x: o.log1p(x), samples=_between(-0.7, 3), d=dict(x=lambda g, x: g / conjugated(x + 1)))

# -- trigonometric and hyperbolic functions
sin = pointwise("sin", lambda o, x: o.sin(x), d=dict(x=lambda x: x.cos()))
cos = pointwise("cos", lambda o, x: o.cos(x), d=dict(x=lambda x: -x.sin()))
tan = pointwise("tan", lambda o, x: o.tan(x), samples=_between(-1.2, 1.2), d=dict(x=lambda out: 1 + out * out))
asin = pointwise("asin", lambda o, x: o.asin(x), samples=_between(-0.9, 0.9), d=dict(x=lambda x: (1 - x * x).rsqrt()))
acos = pointwise("acos", lambda o, x: o.acos(x), samples=_between(-0.9, 0.9), d=dict(x=lambda x: -(1 - x * x).rsqrt()))
atan = pointwise("atan", lambda o, x: o.atan(x), d=dict(x=lambda g, x: g / conjugated(x * x + 1)))


def _turn(side: Any, x: Any, y: Any) -> Any:
    """How fast the angle of (y, x) turns; not at all where there is none."""
    square = x * x + y * y
    return (side / square).masked_fill(square == 0, 0)


atan2 = pointwise("atan2", lambda o, x, y: o.atan2(x, y), d=dict(x=lambda x, y: _turn(y, x, y), y=lambda x, y: _turn(-x, x, y)))
sinh = pointwise("sinh", lambda o, x: o.sinh(x), d=dict(x=lambda x: x.cosh()))
cosh = pointwise("cosh", lambda o, x: o.cosh(x), d=dict(x=lambda x: x.sinh()))
tanh = pointwise("tanh", lambda o, x: o.tanh(x), d=dict(x=lambda out: 1 - out * out))
asinh = pointwise("asinh", lambda o, x: o.asinh(x), d=dict(x=lambda x: (x * x + 1).rsqrt()))
acosh = pointwise("acosh", lambda o, x: o.acosh(x), samples=_between(1.2, 3), d=dict(x=lambda x: _acosh_slope(x)))
atanh = pointwise("atanh", lambda o, x: o.atanh(x), samples=_between(-0.9, 0.9), d=dict(x=lambda g, x: g / conjugated(1 - x * x)))

# -- activations and special functions
sigmoid = pointwise("sigmoid", lambda o, x: o.sigmoid(x), d=dict(x=lambda out: out * (1 - out)))
relu_backward = pointwise("relu_backward", lambda o, grad, result: o.where(o.le(result, 0), 0, grad),
                          d=dict(grad=lambda result: ~(result <= 0)),
                          doc="The gradient, but 0 where the result of relu is 0: one pass over memory, where a mask takes two.")
relu_backward.aten = InAten(steps=lambda call, g, result: call("threshold_backward", g, result, 0))
relu = pointwise("relu", lambda o, x: o.relu(x), d=dict(x=lambda g, out: relu_backward(g, out)))
erf = pointwise("erf", lambda o, x: o.erf(x), d=dict(x=lambda x: _TWO_OVER_SQRT_PI * (-x * x).exp()))
erfc = pointwise("erfc", lambda o, x: o.erfc(x), d=dict(x=lambda x: -_TWO_OVER_SQRT_PI * (-x * x).exp()))
erfinv = pointwise("erfinv", lambda o, x: o.erfinv(x), samples=_between(-0.9, 0.9),
                   d=dict(x=lambda x: x.erfinv().square().exp() / _TWO_OVER_SQRT_PI))
lgamma = pointwise("lgamma", lambda o, x: o.lgamma(x), samples=_between(0.2, 4), d=dict(x=lambda x: x.digamma()))
digamma = pointwise("digamma", lambda o, x: o.digamma(x), samples=_between(0.2, 4), d=dict(x=lambda x: x.polygamma(1)))

# -- rounding
floor = pointwise("floor", lambda o, x: o.floor(x), d=dict(x=0))
ceil = pointwise("ceil", lambda o, x: o.ceil(x), d=dict(x=0))
trunc = pointwise("trunc", lambda o, x: o.trunc(x), d=dict(x=0))
round = pointwise("round", lambda o, x: o.round(x), d=dict(x=0))

# -- comparisons and classification (no gradient: their outputs are not numbers)
eq = pointwise("eq", lambda o, x, y: o.eq(x, y), result=bool_)
ne = pointwise("ne", lambda o, x, y: o.ne(x, y), result=bool_)
lt = pointwise("lt", lambda o, x, y: o.lt(x, y), result=bool_)
le = pointwise("le", lambda o, x, y: o.le(x, y), result=bool_)
gt = pointwise("gt", lambda o, x, y: o.gt(x, y), result=bool_)
ge = pointwise("ge", lambda o, x, y: o.ge(x, y), result=bool_)
isnan = pointwise("isnan", lambda o, x: o.isnan(x), result=bool_)
isinf = pointwise("isinf", lambda o, x: o.isinf(x), result=bool_)
signbit = pointwise("signbit", lambda o, x: o.signbit(x), result=bool_)

# -- logic and bits
logical_and = pointwise("logical_and", lambda o, x, y: o.logical_and(x, y), result=bool_)
logical_or = pointwise("logical_or", lambda o, x, y: o.logical_or(x, y), result=bool_)
logical_xor = pointwise("logical_xor", lambda o, x, y: o.logical_xor(x, y), result=bool_)
logical_not = pointwise("logical_not", lambda o, x: o.logical_not(x), result=bool_)
bitwise_and = pointwise("bitwise_and", lambda o, x, y: o.bitwise_and(x, y), samples=_whole(50))
bitwise_or = pointwise("bitwise_or", lambda o, x, y: o.bitwise_or(x, y), samples=_whole(50))
bitwise_xor = pointwise("bitwise_xor", lambda o, x, y: o.bitwise_xor(x, y), samples=_whole(50))
bitwise_not = pointwise("bitwise_not", lambda o, x: o.bitwise_not(x), samples=_whole(50, 1))
shl = pointwise("shl", lambda o, x, y: o.shl(x, y), samples=_whole(6))
shr = pointwise("shr", lambda o, x, y: o.shr(x, y), samples=_whole(6))

# -- selection, conversion, complex parts
where = pointwise("where", lambda o, condition, x, y: o.where(condition, x, y),
                  samples=lambda r: [(r.standard_normal((2, 3)) > 0, r.standard_normal((2, 3)), r.standard_normal((2, 3)))],
                  result=lambda c, x, y: next((a.dtype for a in (x, y) if isinstance(a, Tensor)), None) or _kind_of_number(x),
                  d=dict(x=lambda g, condition: g.where(condition, 0), y=lambda g, condition: _zero_where(condition, g)))
convert = pointwise("convert", lambda o, x, dtype: o.to_dtype(x, dtype), tensors=1, result=lambda x, dtype: dtype,
                    kernel=lambda x, dtype: _convert(x, dtype), aten=InAten("_to_copy", True),
                    samples=lambda r: [(r.standard_normal((2, 3)), complex128),
                                       (r.standard_normal((2, 3)) * 5, int64)],
                    d=dict(x=lambda g, x_dtype: (g.real if g.dtype.is_complex and not x_dtype.is_complex else g).to(x_dtype)))
conj = pointwise("conj", lambda o, x: o.conj(x), kernel=np.conj,
                 samples=lambda r: [(r.standard_normal((2, 3)) + 1j * r.standard_normal((2, 3)),)], d=dict(x=lambda g: g.conj()))
real = pointwise("real", lambda o, x: o.real(x), samples=lambda r: [(r.standard_normal((2, 3)) + 1j * r.standard_normal((2, 3)),)],
                 kernel=lambda x: x.real.copy(order="K"), result=lambda x: x.dtype.to_real(),
                 d=dict(x=lambda g, x_dtype: g.to(x_dtype)), aten=NO_CALL)
imag = pointwise("imag", lambda o, x: o.imag(x), samples=lambda r: [(r.standard_normal((2, 3)) + 1j * r.standard_normal((2, 3)),)],
                 kernel=lambda x: x.imag.copy(order="K"), result=lambda x: x.dtype.to_real(),
                 d=dict(x=lambda g, x_dtype: g.to(x_dtype) * 1j), aten=NO_CALL)
complex = pointwise("complex", lambda o, x, y: o.complex(x, y), kernel=lambda x, y: _complex(x, y),
                    result=lambda x, y: x.dtype.to_complex(), d=dict(x=lambda g: real(g), y=lambda g: imag(g)))


def conjugated(x: Any) -> Any:
    """The conjugate of a complex operand, tensor or number; a real one as it is."""
    if isinstance(x, Tensor):
        return x.conj() if x.dtype.is_complex else x
    return x.conjugate() if isinstance(x, Number) else x


def _acosh_slope(x: Tensor) -> Tensor:
    """1 / sqrt(x^2 - 1), by two roots, for the square may overflow; of real numbers even, as that is."""
    size = x if x.dtype.is_complex else x.abs()
    return (size - 1).rsqrt() * (size + 1).rsqrt()


def _convert(x: np.ndarray, kind: Any) -> np.ndarray:
    if x.dtype.kind == "c" and not kind.is_complex and kind is not bool_:
        x = x.real
    with np.errstate(all="ignore"):
        return native.cast(x, np.dtype(kind.numpy))


def _complex(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    out = np.empty_like(x, np.result_type(x, np.complex64))
    out.real, out.imag = x, y
    return out


def _kind_of_number(x: Any) -> Any:
    return bool_ if isinstance(x, bool) else int64 if isinstance(x, int) else float32 if isinstance(x, float) else complex64


def _zero_where(condition: Tensor, g: Tensor) -> Tensor:
    return g.masked_fill(condition, 0)


def _pow_grad_base(g: Tensor, x: Any, y: Any) -> Tensor:
    """d x^y / d x = y x^(y-1); zero where y is zero, also at x = 0."""
    if type(y) is SymFloat:     # its comparison is a tensor's
        partial = y * pow(x, operator.sub(y, 1))
        return (g * conjugated(partial)).masked_fill(g.new_zeros(()) == y, 0)
    if not isinstance(y, Tensor):
        if y == 0:
            return g.new_zeros(tuple(g.shape))    # be `g` infinite
        return g * conjugated(y * x ** (y - 1)) if y != 2 else g * conjugated(2 * x)
    partial = y * pow(x, y - 1) if isinstance(x, Tensor) else y * x ** (y - 1)
    return (g * conjugated(partial)).masked_fill(y == 0, 0)


def _pow_grad_exponent(g: Tensor, x: Any, out: Tensor) -> Tensor:
    """d x^y / d y = x^y log x; zero for 0^y with y >= 0, where the power is 0 or, for y = 0, 1."""
    if isinstance(x, SymFloat):
        x = out.new_zeros((), dtype=complex128 if out.dtype.is_complex else float64) + x
    log_x = x.log() if isinstance(x, Tensor) else _log(x, out.dtype.is_complex)
    still = (out == 0) | ((x == 0) & (out == 1)) if isinstance(x, Tensor) or x == 0 else out == 0
    return (g * conjugated(out * log_x)).masked_fill(still, 0)


def _log(x: Any, in_complex: bool) -> Any:
    """The logarithm of a number, as a tensor of that kind has it."""
    if x == 0:
        return -math.inf
    return cmath.log(x) if in_complex else math.log(x) if x > 0 else math.nan


# Why some have no derivative.
_WHY_NOT = {
    "a truth value is not differentiable": (eq, ne, lt, le, gt, ge, isnan, isinf, signbit, logical_and, logical_or, logical_xor,
                                            logical_not),
    "integers have no gradient": (bitwise_and, bitwise_or, bitwise_xor, bitwise_not, shl, shr),
}
for _reason, _records in _WHY_NOT.items():
    for _record in _records:
        _record.why_absent["derivative"] = _reason

__all__ = [name for name in dir() if not name.startswith("_") and name not in (
    "annotations", "math", "operator", "Number", "Any", "np", "bool_", "complex64", "complex128", "float32", "float64", "int64", "SymFloat",
    "Tensor", "pointwise")]
