"""Activations and softmax. Each with a gradient formula of its own has it as a second fused operator: one pass each way."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from ...core.dtypes import FLOAT, as_dtype, dtype, float32, scalar_type
from ...core.scalar import gelu_erf, gelu_tanh
from ...core.size import canonical_dim
from ...core.symbolic import sym_float
from ...core.tensor import Tensor
from .. import prims
from ..batching import by_names
from ..order import in_rows
from ..pointwise import clamp, where
from ..primitives import InAten
from ..promotion import as_elements, broadcast, cast, factor, fitting, to_float
from ..registry import OPERATORS, on_tape, operator
from ..writing import assign, inplace, new_value, with_out

_SQRT_HALF = math.sqrt(0.5)
_INV_SQRT_2PI = 1 / math.sqrt(2 * math.pi)
_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def check_float(x: Any, name: str) -> Tensor:
    """`x` if it is a floating-point (or complex) tensor; torch's error otherwise."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(x).__name__}")
    if x.dtype.category < FLOAT:
        raise NotImplementedError(f'"{name}" not implemented for \'{x.dtype}\'; convert the input with .float() first')
    return x


def check_real(x: Any, name: str) -> Tensor:
    """`x` if it is a tensor of real floats; torch's error otherwise."""
    if check_float(x, name).dtype.is_complex:
        raise NotImplementedError(f'"{name}" not implemented for \'{x.dtype}\': complex numbers have no order')
    return x


def _settings(name: str, x: Tensor, *numbers: float, stored: bool = False) -> list[float]:
    """The numbers that an activation of real floats is computed with; `stored`: as x's dtype holds them. RuntimeError of what does not fit."""
    if check_float(x, name).dtype.is_complex:
        raise NotImplementedError(f'"{name}" not implemented for \'{x.dtype}\': complex numbers have no order')
    return [(fitting if stored else factor)(sym_float(n), x.dtype) for n in numbers]


def widened(x: Tensor) -> Tensor:
    """Narrow floats as float32, in which norms and softmax compute."""
    return prims.convert(x, float32) if x.dtype.itemsize < 4 and x.dtype.category == FLOAT else x


def in_float(fn: Callable) -> Callable:
    """Compute a body in float32 for narrower floats, and round once, at the end."""
    @functools.wraps(fn)
    def body(*args: Any) -> Tensor:
        kind = args[0].dtype
        if kind.itemsize >= 4 or kind.category != FLOAT:
            return fn(*args)
        return cast(fn(*[widened(a) if isinstance(a, Tensor) else a for a in args]), kind)
    return body


# -- softmax ---------------------------------------------------------------------------------------------
def _row_max(x: Tensor, dim: int) -> Tensor:
    """The maximum along `dim`, kept and repeated; a shift by it does not change a softmax, so it carries no gradient."""
    return prims.expand(prims.unsqueeze(prims.amax(x.detach(), (dim,)), dim), tuple(x.shape))


def _row_sum(x: Tensor, dim: int) -> Tensor:
    return prims.expand(prims.unsqueeze(prims.sum(x, (dim,)), dim), tuple(x.shape))


def _of_softmax(name: str) -> InAten:
    return InAten(steps=lambda call, g, out, dim: call(name, g, out, dim, out.dtype))


@operator(fused=True, batch=by_names, aten=_of_softmax("_softmax_backward_data"))
def softmax_backward(g: Tensor, out: Tensor, dim: int) -> Tensor:
    """Gradient of softmax from its output: out * (g - sum(g * out))."""
    gw, p = widened(g), widened(out)
    gp = prims.mul(gw, p)
    return cast(prims.sub(gp, prims.mul(p, _row_sum(gp, dim))), g.dtype)


@operator(name="_softmax", fused=True, batch=by_names, aten=InAten(steps=lambda call, x, dim: call("_softmax", x, dim, False)),
          vjp=lambda g, out, dim: (softmax_backward(g, out, dim),))
def _softmax(input: Tensor, dim: int) -> Tensor:
    x = widened(input)
    e = prims.exp(prims.sub(x, _row_max(x, dim)))
    return cast(prims.truediv(e, _row_sum(e, dim)), input.dtype)


@operator(fused=True, batch=by_names, aten=_of_softmax("_log_softmax_backward_data"))
def log_softmax_backward(g: Tensor, out: Tensor, dim: int) -> Tensor:
    """Gradient of log_softmax from its output: g - exp(out) * sum(g)."""
    gw = widened(g)
    return cast(prims.sub(gw, prims.mul(prims.exp(widened(out)), _row_sum(gw, dim))), g.dtype)


@operator(name="_log_softmax", fused=True, batch=by_names,
          aten=InAten(steps=lambda call, x, dim: call("_log_softmax", x, dim, False)),
          vjp=lambda g, out, dim: (log_softmax_backward(g, out, dim),))
def _log_softmax(input: Tensor, dim: int) -> Tensor:
    x = widened(input)
    shifted = prims.sub(x, _row_max(x, dim))
    return cast(prims.sub(shifted, prims.log(_row_sum(prims.exp(shifted), dim))), input.dtype)


def _along(kernel: Callable, input: Tensor, dim: int, kind: dtype | None, name: str) -> Tensor:
    if not isinstance(input, Tensor):
        check_float(input, name)
    x = input if kind is None else cast(input, as_dtype(kind, name))
    if x.ndim and 0 in x.shape:
        canonical_dim(dim, x.ndim)
        return on_tape(name, in_rows(x.clone()))
    d = canonical_dim(dim, x.ndim)
    x = check_float(x, name)
    if x.dtype.is_complex and x.shape.numel() != 0:
        raise NotImplementedError(f'"{name}" not implemented for \'{x.dtype}\': complex numbers have no largest')
    if not x.ndim:
        return on_tape(name, prims.squeeze(kernel(prims.unsqueeze(x, 0), 0), (0,)))
    return kernel(in_rows(x), d)


@operator(method=True, autocast={"cuda": "wide"})
@with_out(exact=True)
def softmax(input: Tensor, dim: int, dtype: dtype | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`, without overflow; `dtype` converts the input first."""
    return _along(_softmax, input, dim, dtype, "softmax")


@operator(method=True, autocast={"cuda": "wide"})
@with_out(exact=True)
def log_softmax(input: Tensor, dim: int, dtype: dtype | None = None) -> Tensor:
    """log(softmax(x)) along `dim`, formed without the quotient."""
    return _along(_log_softmax, input, dim, dtype, "log_softmax")


@operator(autocast={"cuda": "wide"}, node="softmax")
def softmin(input: Tensor, dim: int, dtype: dtype | None = None) -> Tensor:
    """softmax(-x)."""
    return softmax(-input, dim, dtype)


# -- gelu, silu, mish ---------------------------------------------------------------------------------------
@operator(fused=True, batch=by_names, aten=InAten(
    steps=lambda call, g, x, approximate: call("gelu_backward", g, x, approximate=approximate)))
@in_float
def gelu_backward(g: Tensor, x: Tensor, approximate: str = "none") -> Tensor:
    """Gradient of gelu: g * (cdf(x) + x * pdf(x)), or that of its tanh form."""
    if approximate == "none":
        cdf = prims.mul(prims.add(prims.erf(prims.mul(x, _SQRT_HALF)), 1.0), 0.5)
        pdf = prims.mul(prims.exp(prims.mul(prims.mul(x, x), -0.5)), _INV_SQRT_2PI)
        return prims.mul(g, prims.add(cdf, prims.mul(x, pdf)))
    square = prims.mul(x, x)
    t = prims.tanh(prims.mul(prims.mul(x, prims.add(prims.mul(square, 0.044715), 1.0)), _SQRT_2_OVER_PI))
    inner = prims.mul(prims.add(prims.mul(square, 3 * 0.044715), 1.0), _SQRT_2_OVER_PI)
    slope = prims.mul(prims.mul(prims.mul(x, prims.sub(1.0, prims.mul(t, t))), inner), 0.5)
    return prims.mul(g, prims.add(prims.mul(prims.add(t, 1.0), 0.5), slope))


@operator(name="_gelu", aten=InAten("gelu", steps=lambda call, x, approximate: call("gelu", x, approximate=approximate)),
          fused=True, batch=by_names, vjp=lambda g, input, approximate: (gelu_backward(g, input, approximate),))
@in_float
def _gelu(input: Tensor, approximate: str) -> Tensor:
    return (gelu_erf if approximate == "none" else gelu_tanh)(prims, input)


@operator
@with_out(exact=True)
def gelu(input: Tensor, *, approximate: str = "none") -> Tensor:
    """x * cdf(x) of the standard normal distribution; 'tanh' is its usual approximation."""
    if not isinstance(approximate, str):
        raise TypeError(f"gelu(): argument 'approximate' must be str, not {type(approximate).__name__}")
    if approximate not in ("none", "tanh"):
        raise RuntimeError(f"approximate argument must be either none or tanh, got {approximate!r}")
    return _gelu(check_float(input, "gelu"), approximate)


@operator(fused=True, batch=by_names, aten=InAten(steps=lambda call, g, x: call("silu_backward", g, x)))
@in_float
def silu_backward(g: Tensor, x: Tensor) -> Tensor:
    """Gradient of silu: g * s * (1 + x * (1 - s)), s = sigmoid(x)."""
    s = prims.sigmoid(x)
    return prims.mul(prims.mul(g, s), prims.add(prims.mul(x, prims.sub(1.0, s)), 1.0))


@operator(name="_silu", aten=InAten("silu", steps=lambda call, x: call("silu", x)), fused=True, batch=by_names,
          vjp=lambda g, input: (silu_backward(g, input),))
@in_float
def _silu(input: Tensor) -> Tensor:
    return prims.mul(input, prims.sigmoid(input))


def _soft(x: Tensor) -> Tensor:
    """log(1 + exp(x)) with its slopes at 0: beyond 40 it is x as far as doubles tell."""
    return prims.where(prims.gt(x, 40.0), x, prims.log1p(prims.exp(prims.minimum(x, 40.0))))


@operator(fused=True, batch=by_names)
@in_float
def mish_backward(g: Tensor, x: Tensor) -> Tensor:
    """Gradient of mish: g * (t + x * (1 - t^2) * sigmoid(x)), t = tanh(softplus(x))."""
    t = prims.tanh(_soft(x))
    return prims.mul(g, prims.add(t, prims.mul(prims.mul(x, prims.sub(1.0, prims.mul(t, t))), prims.sigmoid(x))))


@operator(name="_mish", fused=True, batch=by_names, vjp=lambda g, input: (mish_backward(g, input),))
@in_float
def _mish(input: Tensor) -> Tensor:
    return prims.mul(input, prims.tanh(_soft(input)))


# -- piecewise ----------------------------------------------------------------------------------------------
@operator(fused=True, batch=by_names)
def _leaky_relu_backward(g: Tensor, x: Tensor, slope: float) -> Tensor:
    return prims.where(prims.gt(x, 0.0), g, prims.mul(g, slope))


@operator(name="_leaky_relu", fused=True, batch=by_names, vjp=lambda g, input, slope: (_leaky_relu_backward(g, input, slope),))
def _leaky_relu(input: Tensor, slope: float) -> Tensor:
    return prims.where(prims.gt(input, 0.0), input, prims.mul(input, slope))


@operator(fused=True, batch=by_names)
@in_float
def _elu_backward(g: Tensor, x: Tensor, alpha: float, scale: float, input_scale: float) -> Tensor:
    below = prims.where(prims.gt(x, 0.0), 0.0, x)
    tail = prims.mul(prims.exp(prims.mul(below, input_scale)), alpha * input_scale * scale)
    return prims.mul(g, prims.where(prims.gt(x, 0.0), scale, tail))


@operator(name="_elu", fused=True, batch=by_names, vjp=lambda g, input, alpha, scale, input_scale: (
    _elu_backward(g, input, alpha, scale, input_scale),))
@in_float
def _elu(input: Tensor, alpha: float, scale: float, input_scale: float) -> Tensor:
    below = prims.where(prims.gt(input, 0.0), 0.0, input)
    tail = prims.mul(prims.expm1(prims.mul(below, input_scale)), alpha * scale)
    return prims.where(prims.ge(input, 0.0), prims.mul(input, scale) if scale != 1 else input, tail)     # 0 stays, whatever alpha is


@operator(fused=True, batch=by_names)
def _hardtanh_backward(g: Tensor, x: Tensor, low: float, high: float) -> Tensor:
    return prims.where(prims.logical_or(prims.le(x, low), prims.ge(x, high)), 0.0, g)


@operator(name="_hardtanh", fused=True, batch=by_names, vjp=lambda g, input, low, high: (_hardtanh_backward(g, input, low, high),))
def _hardtanh(input: Tensor, low: float, high: float) -> Tensor:
    x = prims.where(prims.lt(input, low), low, input)
    return prims.where(prims.gt(x, high), high, x)


@operator(fused=True, batch=by_names)
@in_float
def _hardswish_backward(g: Tensor, x: Tensor) -> Tensor:
    middle = prims.mul(g, prims.add(prims.truediv(x, 3.0), 0.5))
    return prims.where(prims.le(x, -3.0), 0.0, prims.where(prims.lt(x, 3.0), middle, g))


@operator(name="_hardswish", fused=True, batch=by_names, vjp=lambda g, input: (_hardswish_backward(g, input),))
@in_float
def _hardswish(input: Tensor) -> Tensor:
    x = prims.add(input, 3.0)
    x = prims.where(prims.lt(x, 0.0), 0.0, x)
    return prims.truediv(prims.mul(input, prims.where(prims.gt(x, 6.0), 6.0, x)), 6.0)


@operator(fused=True, batch=by_names)
@in_float
def _hardsigmoid_backward(g: Tensor, x: Tensor) -> Tensor:
    return prims.where(prims.logical_and(prims.gt(x, -3.0), prims.lt(x, 3.0)), prims.truediv(g, 6.0), 0.0)


@operator(name="_hardsigmoid", fused=True, batch=by_names, vjp=lambda g, input: (_hardsigmoid_backward(g, input),))
@in_float
def _hardsigmoid(input: Tensor) -> Tensor:
    x = prims.add(input, 3.0)
    x = prims.where(prims.lt(x, 0.0), 0.0, x)
    return prims.truediv(prims.where(prims.gt(x, 6.0), 6.0, x), 6.0)


@operator(fused=True, batch=by_names)
@in_float
def _softplus_backward(g: Tensor, x: Tensor, beta: float, threshold: float) -> Tensor:
    scaled = prims.mul(x, beta)
    return prims.where(prims.gt(scaled, threshold), g, prims.mul(g, prims.sigmoid(scaled)))


@operator(name="_softplus", fused=True, batch=by_names, vjp=lambda g, input, beta, threshold: (
    _softplus_backward(g, input, beta, threshold),))
@in_float
def _softplus(input: Tensor, beta: float, threshold: float) -> Tensor:
    scaled = prims.mul(input, beta)
    soft = prims.add(prims.relu(scaled), prims.log1p(prims.exp(prims.neg(prims.abs(scaled)))))
    return prims.where(prims.gt(scaled, threshold), input, prims.truediv(soft, beta))


@operator(fused=True, batch=by_names)
@in_float
def _logsigmoid_backward(g: Tensor, x: Tensor) -> Tensor:
    return prims.mul(g, prims.sigmoid(prims.neg(x)))


@operator(name="_logsigmoid", aten="log_sigmoid", fused=True, batch=by_names, vjp=lambda g, input: (_logsigmoid_backward(g, input),))
@in_float
def _logsigmoid(input: Tensor) -> Tensor:
    low = prims.where(prims.lt(input, 0.0), input, 0.0)
    return prims.sub(low, prims.log1p(prims.exp(prims.neg(prims.abs(input)))))


def _or_inplace(kernel: Callable, input: Tensor, write: bool | None, *settings: Any) -> Tensor:
    return assign(input, new_value(kernel, input, settings, {})) if write else kernel(input, *settings)


def _without_options(name: str, kernel: Callable, doc: str) -> Callable:
    def fn(input: Tensor, inplace: bool | None = False) -> Tensor:
        return _or_inplace(kernel, check_float(input, name), inplace)

    fn.__name__, fn.__doc__ = name, doc
    return operator(fn)


silu = _without_options("silu", _silu, "x * sigmoid(x) (also called swish).")
mish = _without_options("mish", _mish, "x * tanh(softplus(x)).")
hardswish = _without_options("hardswish", _hardswish, "x * relu6(x + 3) / 6.")
hardsigmoid = _without_options("hardsigmoid", _hardsigmoid, "relu6(x + 3) / 6.")


@operator(tags=("keeps_zero",))
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool | None = False) -> Tensor:
    """x where positive, else negative_slope * x."""
    return _or_inplace(_leaky_relu, input, inplace, *_settings("leaky_relu", input, negative_slope))


@operator
def elu(input: Tensor, alpha: float = 1.0, inplace: bool | None = False) -> Tensor:
    """x where positive, else alpha * (e^x - 1)."""
    return _or_inplace(_elu, input, inplace, *_settings("elu", input, alpha), 1.0, 1.0)


SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


@operator
def selu(input: Tensor, inplace: bool | None = False) -> Tensor:
    """The self-normalising elu (Klambauer et al. 2017)."""
    return _or_inplace(_elu, check_float(input, "selu"), inplace, SELU_ALPHA, SELU_SCALE, 1.0)


@operator(node=True)
def celu(input: Tensor, alpha: float = 1.0, inplace: bool | None = False) -> Tensor:
    """x where positive, else alpha * (e^(x / alpha) - 1)."""
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    alpha, inverse = _settings("celu", input, alpha, 1.0 / sym_float(alpha))
    return _or_inplace(_elu, input, inplace, alpha, 1.0, inverse)


@operator
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool | None = False) -> Tensor:
    """x limited to [min_val, max_val]."""
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    return _or_inplace(_limited, input, inplace, min_val, max_val)


def _limited(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x limited to [min_val, max_val]; bounds in the wrong order make all of it max_val."""
    if input.dtype.category < FLOAT:
        if not input.dtype.is_signed and min_val < 0:
            raise RuntimeError(f"cannot do hardtanh on an unsigned type with negative limits, got {input.dtype} and {min_val}")
        return clamp(input, int(min_val), int(max_val))
    return _hardtanh(input, *_settings("hardtanh", input, min_val, max_val, stored=True))


@operator
def relu6(input: Tensor, inplace: bool | None = False) -> Tensor:
    """x limited to [0, 6]."""
    return hardtanh(input, 0.0, 6.0, inplace)


@operator(autocast={"cuda": "wide"})
@with_out(exact=True)
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + e^(beta x)) / beta; x itself where beta x exceeds `threshold`."""
    return _softplus(input, *_settings("softplus", input, beta, threshold))


@operator
@with_out
def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x))."""
    return _logsigmoid(in_rows(check_float(input, "logsigmoid")))


@operator
def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    x = to_float(input)
    return prims.truediv(x, prims.add(prims.abs(x), 1.0))


@operator
def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x)."""
    x = to_float(input)
    return prims.sub(x, prims.tanh(x))


def _within(x: Tensor, bound: float) -> Tensor:
    low, high = (as_elements(x, end)[1] for end in (-sym_float(bound), sym_float(bound)))
    return prims.logical_and(prims.ge(x, low), prims.le(x, high))


@operator(fused=True)
def shrink_backward(g: Tensor, x: Tensor, lambd: float) -> Tensor:
    """Gradient of hardshrink and softshrink: g outside [-lambd, lambd], else 0."""
    return prims.where(_within(x, lambd), 0.0, g)


@operator(method=True, fused=True, vjp=lambda g, input, lambd: (shrink_backward(g, input, lambd),))
@with_out(exact=True)
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x outside [-lambd, lambd], else 0."""
    return prims.where(_within(input, *_settings("hardshrink", input, lambd, stored=True)), 0.0, input)


@operator(fused=True, vjp=lambda g, input, lambd: (shrink_backward(g, input, lambd),))
@with_out(exact=True)
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by `lambd`, 0 within it."""
    if not 0 <= lambd < math.inf:
        raise RuntimeError(f"lambda must be greater or equal to 0, and finite, but found to be {lambd}.")
    low, = _settings("softshrink", input, lambd, stored=True)
    return prims.where(prims.gt(input, low), prims.sub(input, low),
                       prims.where(prims.lt(input, -low), prims.add(input, low), prims.mul(input, 0.0)))


@operator(node=True)
@with_out
def threshold(input: Tensor, threshold: float, value: float, inplace: bool | None = False) -> Tensor:
    """x where it exceeds `threshold`, else `value`."""
    return _or_inplace(lambda x: where(x <= factor(threshold, x.dtype), fitting(value, x.dtype), x), input, inplace)


@operator(fused=True, batch=by_names)
def _prelu_backward(g: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of _prelu for x and for the weight."""
    above = prims.gt(x, 0.0)
    return prims.where(above, g, prims.mul(g, weight)), prims.where(above, 0.0, prims.mul(g, x))


@operator(name="_prelu", aten=InAten(node="_prelu_kernel"), fused=True, batch=by_names,
          vjp=lambda g, input, weight: _prelu_backward(g, input, weight))
def _prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x where positive, else weight * x, element by element."""
    return prims.where(prims.gt(input, 0.0), input, prims.mul(input, weight))


@operator(method=True, autocast="narrow")
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x where positive, else weight * x; one weight, or one per channel (dimension 1)."""
    if weight.numel() != 1:
        channels = input.shape[1] if input.ndim >= 2 else 1
        if weight.ndim != 1 or weight.numel() != channels:
            raise RuntimeError("Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                               f"{weight.numel()} and channel size = {channels}.")
        weight = weight.reshape((1, -1) + (1,) * (input.ndim - 2)) if input.ndim >= 2 else weight
    elif weight.ndim != input.ndim:
        weight = weight.reshape((1,) * input.ndim)
    if weight.dtype is not input.dtype:
        raise RuntimeError(f"prelu: Type promoting not supported. Got {scalar_type(input.dtype)} and {scalar_type(weight.dtype)}")
    x, w = broadcast(input, weight)
    return _prelu(x, w)


@operator(fused=True)
def glu_backward(g: Tensor, x: Tensor, dim: int) -> Tensor:
    """Gradient of glu."""
    a, b = x.chunk(2, dim)
    gate = prims.sigmoid(b)
    mine = prims.mul(g, gate)
    return prims.cat([mine, prims.mul(mine, prims.mul(a, prims.sub(1.0, gate)))], canonical_dim(dim, x.ndim))


@operator(fused=True, vjp=lambda g, input, dim: (glu_backward(g, input, dim),))
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """a * sigmoid(b), where a and b are the halves of x along `dim`."""
    if not input.ndim:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    d = canonical_dim(dim, input.ndim)
    if input.shape[d] % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {d} is size {input.shape[d]}")
    a, b = input.chunk(2, d)
    return prims.mul(a, prims.sigmoid(b))


def _scaled_elu(input: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    """scale * x where positive, else scale * alpha * (e^(input_scale * x) - 1)."""
    return _elu(check_float(input, "elu"), sym_float(alpha), sym_float(scale), sym_float(input_scale))


relu_, elu_, hardtanh_ = OPERATORS["relu_"], inplace(_scaled_elu, "elu_"), inplace(_limited, "hardtanh_")
leaky_relu_, celu_, selu_, relu6_, silu_, mish_, hardswish_, hardsigmoid_, threshold_ = (
    inplace(fn, fn.__name__ + "_") for fn in (
        leaky_relu, celu, selu, relu6, silu, mish, hardswish, hardsigmoid, threshold))
