"""Elementwise operators: broadcasting and promotion around the pointwise primitives, and their in-place forms."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.dtypes import BOOL, FLOAT, INT, bool_, dtype, float16, int16, int64, scalar_type, uint8
from ..core.scalar import TABLE, compute_dtype
from ..core.symbolic import SymFloat
from ..core.tensor import Tensor
from ..core.warned import warn_once
from . import prims
from .checks import checked
from .order import elementwise, in_rows
from .primitives import NO_FRACTIONS, InAten, PointwisePrimitive
from .promotion import (
    as_elements,
    broadcast,
    cast,
    category_of_number,
    default_dtype,
    fitting,
    number_in,
    prepare,
    result_type,
    stored,
    times_alpha,
    to_float,
)
from .registry import OPERATORS, PRIMITIVES, Autocast, Pointwise, Primitive, as_dunder, on_tape, operator
from .writing import inplace, store_out, with_out, with_out_alike, with_out_apart


# -- builders ------------------------------------------------------------------------------------------
def _unary(prim: PointwisePrimitive, name: str, floats: bool) -> Callable:
    def fn(input: Tensor) -> Tensor:
        if not isinstance(input, Tensor):
            raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
        if input.dtype is bool_ and name in _NOT_OF_BOOLS:
            raise _NOT_OF_BOOLS[name][0](_NOT_OF_BOOLS[name][1])
        return prim(to_float(input) if floats else input)

    fn.__name__, fn.__doc__ = name, f"Elementwise {name}" + (" (integers become the default float)." if floats else ".")
    row = TABLE[name]
    taking_out = with_out if floats else with_out_alike
    return operator(taking_out(fn), name=name, method=(name, *_DUNDERS.get(name, ())), tags=("keeps_zero",) if row.keeps_zero else (),
                    autocast={"cuda": "wide"} if row.wide_on_gpu else None, shortcut=prim)


_DUNDERS = {"neg": ("__neg__",), "abs": ("__abs__",)}
_NOT_OF_BOOLS = {
    "neg": (RuntimeError, "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use the "
                          "`~` or `logical_not()` operator instead."),
    "abs": (NotImplementedError, '"abs_cpu" not implemented for \'Bool\'; a bool is its own absolute value'),
    "relu": (RuntimeError, "Boolean inputs not supported for relu; convert the input with .int() or .float() first"),
}

_OF_FLOATS = (
    "reciprocal", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sigmoid", "erf", "erfc", "erfinv", "lgamma", "digamma",
)  # integers become the default float
for _name in (*_OF_FLOATS, "neg", "abs", "relu", "signbit", "logical_not", "bitwise_not"):
    globals()[_name] = _unary(getattr(prims, _name), _name, _name in _OF_FLOATS)
    if _name not in ("signbit", "logical_not"):
        inplace(globals()[_name], _name + "_")

neg: Callable
abs: Callable
exp: Callable
sigmoid: Callable


@operator(name="__invert__", method=True)
def invert(input: Tensor) -> Tensor:
    """~input, of integers and bools."""
    if input.dtype.category > INT:
        raise TypeError(f"~ (operator.invert) is only implemented on integer and Boolean-type tensors, not {input.dtype}")
    return OPERATORS["bitwise_not"](input)


def _rounding(name: str) -> Callable:
    prim = getattr(prims, name)

    def fn(input: Tensor) -> Tensor:
        if input.dtype is bool_:
            raise NotImplementedError(f'"{name}_cpu" not implemented for \'Bool\'; convert the input with .int() or .float() first')
        return prim(input) if input.dtype.category >= FLOAT else input.clone()

    fn.__name__, fn.__doc__ = name, f"Elementwise {name}; integers stay as they are."
    made = operator(with_out_alike(fn), method=True, tags=("keeps_zero",))
    inplace(made, name + "_")
    return made


floor, ceil, trunc = (_rounding(n) for n in ("floor", "ceil", "trunc"))


@operator(method=True, tags=("keeps_zero",), node=lambda input, *, decimals=None: "round" if decimals is None else "round.1")
@with_out_alike
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """To the nearest integer (or multiple of 10^-decimals), halves to even."""
    if input.dtype is bool_ or (decimals and input.dtype.category < FLOAT):
        raise NotImplementedError(f'"round_cpu" not implemented for {scalar_type(input.dtype)!r}; integers are rounded to no decimals')
    if input.dtype.category < FLOAT:
        return input.clone()
    if decimals == 0:
        return prims.round(input)
    x, scale = cast(input, compute_dtype(input.dtype)), 10.0 ** builtins.abs(decimals)
    return cast(prims.round(x * scale) / scale if decimals > 0 else prims.round(x / scale) * scale, input.dtype)


@operator(method=True, tags=("keeps_zero",))
@with_out_alike
def sign(input: Tensor) -> Tensor:
    """-1, 0 or 1 by sign; bools stay as they are."""
    if input.dtype.is_complex:
        raise NotImplementedError(f"sign is of real numbers, not of {input.dtype}: use torch.sgn, which gives x / |x|")
    return input.clone() if input.dtype.category == BOOL else prims.sign(input)


@operator(method=True, tags=("keeps_zero",), node=True)
@with_out_alike
@elementwise
def sgn(input: Tensor) -> Tensor:
    """sign for real numbers; x / |x| (0 at 0) for complex ones."""
    if not input.dtype.is_complex:
        return sign(input)
    return _unit(input)


def _across(g: Tensor, input: Tensor, out: Tensor) -> Tensor:
    """What of a change of a complex number turns it, over its length; 0 at 0, which has no direction."""
    return _shortened(g - out * prims.real(g * out.conj()), prims.abs(input))


@operator(name="_unit", vjp=Pointwise(input=_across))
def _unit(input: Tensor) -> Tensor:
    """x / |x|, and 0 at 0."""
    return _shortened(input, prims.abs(input))


def _shortened(z: Tensor, size: Tensor) -> Tensor:
    """Complex numbers over real ones, part by part; 0 over 0 is 0."""
    return prims.complex(prims.real(z) / size, prims.imag(z) / size).masked_fill(size == 0, 0)


def _binary(prim: Callable, name: str, method: tuple[str, ...], in_place: bool, *, lift: Callable | None = None,
            check: Callable[[Any, Any], Any] | None = None, numbers: tuple[bool, bool] = (True, True), doc: str = "",
            autocast: Autocast = None) -> Callable:
    """`lift` prepares the operands, `check` refuses some or gives the second one back, checked; `numbers`: which of the two may be one."""
    def fn(input: Any, other: Any) -> Tensor:
        if not (isinstance(input, Tensor) or numbers[0]) or not (isinstance(other, Tensor) or numbers[1]):
            raise not_tensors(name, input, other)
        if prim is not prims.mul:
            a_tensor(name, input, other)
        if lift is not None:
            input, other = lift(input, other)
        x, y = prepare(input, other)
        if check is not None:
            fine = check(x, y)
            y = y if fine is None else fine
        return prim(x, y)

    fn.__name__, fn.__doc__ = name, doc or f"Elementwise {name}, with broadcasting and promotion."
    fn.__annotations__ |= {p: "Any" if number else "Tensor" for p, number in zip(("input", "other"), numbers)}
    made = operator(with_out(fn), name=name, method=method, autocast=autocast, shortcut=prim if check is None else None)
    if in_place:
        inplace(made, name + "_", refuses=check is not None)
    return made


def not_tensors(name: str, input: Any, other: Any) -> TypeError:
    """The error for a number where only a tensor may stand."""
    place, argument, x = (2, "other", other) if isinstance(input, Tensor) else (1, "input", input)
    return TypeError(f"{name}(): argument '{argument}' (position {place}) must be Tensor, not {type(x).__name__}")


def a_tensor(name: str, input: Any, other: Any) -> None:
    """TypeError if neither operand is a tensor."""
    if not isinstance(input, Tensor) and not isinstance(other, Tensor):
        raise not_tensors(name, input, other)


def both_float(x: Any, y: Any) -> tuple[Any, Any]:
    """Both in their common dtype, the default float where that is of integers."""
    kind = result_type(x, y)
    if kind.category < FLOAT:
        kind = default_dtype()
    return cast(x, kind), cast(y, kind)


def _check_not_bool(kind: Any, what: str) -> None:
    if kind is bool_:
        raise NotImplementedError(f'"{what}_cpu" not implemented for \'Bool\'; convert the operands with .int() or .float() first')


def _check_float(x: Any, y: Any) -> None:
    if x.dtype.category != FLOAT:
        raise NotImplementedError(f'"nextafter_cpu" not implemented for \'{x.dtype}\'; it takes floating-point tensors')


def with_fractions(name: str, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Both; NotImplementedError where they are integers or bools, of which there is no such function."""
    if x.dtype.category < FLOAT:
        raise NotImplementedError(f'"{name}_cpu" not implemented for \'{x.dtype}\': {NO_FRACTIONS.why}')
    return x, y


def _check_zero_division(x: Any, y: Any) -> Any:
    """The divisor: an integer divided by zero is an error."""
    kind = x.dtype if isinstance(x, Tensor) else y.dtype
    _check_not_bool(kind, "division")
    if kind.category <= INT:
        zero = (y == 0) if not isinstance(y, Tensor) else (y._data is not None and bool((y._data == 0).any()))
        if zero is True and not (isinstance(x, Tensor) and 0 in x._layout.shape):
            raise RuntimeError("ZeroDivisionError")
        if isinstance(y, Tensor) and y._data is None:
            return checked(y, y != 0)
    return y


def _as_held(x: Any, y: Any) -> tuple[Any, Any]:
    """A number beside narrow floats as those hold it, for a remainder jumps."""
    kind = (x if isinstance(x, Tensor) else y).dtype
    if kind.category != FLOAT or kind.itemsize >= 4:
        return x, y
    with np.errstate(over="ignore"):
        x, y = (float(np.asarray(float(v), kind.numpy)) if isinstance(v, (int, float, SymFloat)) else v for v in (x, y))
    return x, y


@operator(name="_plus_scaled", fused=True, aten=InAten(node="add"), vjp=lambda g, alpha, needs: (g, g * alpha if needs[1] else None))
def _plus_scaled(x: Tensor, y: Tensor, alpha: float) -> Tensor:
    """x + alpha * y of narrow floats, rounded once."""
    wide = compute_dtype(x.dtype)
    return cast(prims.add(cast(x, wide), prims.mul(cast(y, wide), alpha)), x.dtype)


def _add_like(prim: PointwisePrimitive, name: str, verb: str) -> Callable:
    def fn(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
        if name == "sub":
            _check_no_bools(input, other)
        if alpha != 1 or alpha is True:
            if isinstance(input, Tensor) and isinstance(other, Tensor) and type(alpha) in (int, float):
                kind = result_type(input, other)
                if kind.category == FLOAT and kind.itemsize < 4:
                    held = number_in(alpha, kind)
                    if math.isinf(held) and not math.isinf(alpha):
                        raise RuntimeError(f"value cannot be converted to type {kind} without overflow: alpha={alpha}")
                    x, y = broadcast(cast(input, kind), cast(other, kind))
                    return _plus_scaled(x, y, held if name == "add" else -held)
            return made._body(input, times_alpha(input, other, alpha))     # type: ignore[attr-defined]
        return prim(*prepare(input, other))

    fn.__name__, fn.__doc__ = name, f"input {verb} alpha * other, with broadcasting and promotion."
    made: Callable = operator(with_out(fn), name=name, method=(name, f"__{name}__"), shortcut=prim)
    return made


def _check_no_bools(x: Any, y: Any) -> None:
    bools = [a.dtype is bool_ if isinstance(a, Tensor) else isinstance(a, bool) for a in (x, y)]
    if any(bools):
        which = "two bool tensors" if all(bools) else "a bool tensor"
        raise RuntimeError(f"Subtraction, the `-` operator, with {which} is not supported. Use the `^` or `logical_xor()` operator, or "
                           "`~` or `logical_not()` to invert a mask, instead.")


add = _add_like(prims.add, "add", "+")
sub = _add_like(prims.sub, "sub", "-")
add_, sub_ = inplace(add, "add_"), inplace(sub, "sub_")
mul = _binary(prims.mul, "mul", ("mul", "multiply", "__mul__", "__rmul__"), True)
_NEITHER, _SECOND = (False, False), (False, True)
maximum = _binary(prims.maximum, "maximum", ("maximum",), False, numbers=_NEITHER)
minimum = _binary(prims.minimum, "minimum", ("minimum",), False, numbers=_NEITHER)
fmax = _binary(prims.fmax, "fmax", ("fmax",), False, numbers=_NEITHER)
fmin = _binary(prims.fmin, "fmin", ("fmin",), False, numbers=_NEITHER)
atan2 = _binary(prims.atan2, "atan2", ("atan2", "arctan2"), True, lift=both_float, numbers=_NEITHER, autocast={"cuda": "promote"})
hypot = _binary(prims.hypot, "hypot", ("hypot",), True, numbers=_NEITHER)
copysign = _binary(prims.copysign, "copysign", ("copysign",), True, lift=both_float, numbers=_SECOND)


def _neighbour(x: Tensor, y: Tensor) -> Tensor:
    return _next_narrow(x, y) if isinstance(x, Tensor) and x.dtype.itemsize == 2 else prims.nextafter(x, y)


@operator(name="_next_narrow", vjp=PRIMITIVES["nextafter"].derivative)
def _next_narrow(x: Tensor, y: Tensor) -> Tensor:
    """The neighbour of a 16-bit float: one more or less in its bits, which count away from zero."""
    step = where((x < y) == (x > 0), 1, -1)
    stepped = prims.add(x.view(int16), cast(step, int16)).view(x.dtype)
    first = cast(where(y < 0, 1 - 2**15, 1), int16).view(x.dtype)
    moved = where(x == y, y, where(x == 0, first, stepped))
    return where((x != x) | (y != y), x + y, moved)


nextafter = _binary(elementwise(_neighbour), "nextafter", ("nextafter",), True, numbers=_NEITHER, check=_check_float)
remainder = _binary(prims.remainder, "remainder", ("remainder", "__mod__"), True, lift=_as_held, check=_check_zero_division)
fmod = _binary(prims.fmod, "fmod", ("fmod",), True, lift=_as_held, check=_check_zero_division, numbers=_SECOND)
Tensor.__radd__ = as_dunder(add, "__radd__")  # type: ignore[method-assign]
for _dunder, _fn in (("__iadd__", add_), ("__isub__", sub_), ("__imul__", OPERATORS["mul_"])):
    setattr(Tensor, _dunder, as_dunder(_fn, _dunder))


@operator(method=("rsub", "__rsub__"), node=lambda input, other, *_, **__: "rsub" if isinstance(other, Tensor) else "rsub.1")
def rsub(input: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    """other - alpha * input."""
    if not isinstance(input, Tensor):
        raise not_tensors("rsub", input, other)
    return sub(other, input, alpha=alpha)


@operator(method=("div", "divide", "true_divide", "__truediv__"), shortcut=prims.truediv)
@with_out
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """input / other; `rounding_mode` 'trunc' or 'floor' rounds the quotient and keeps integers integer."""
    if rounding_mode is None:
        if _integral(input) and _integral(other):
            input, other = both_float(input, other)
        return prims.truediv(*prepare(input, other))
    if rounding_mode not in ("trunc", "floor"):
        raise RuntimeError(f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'")
    x, y = prepare(input, other)
    y = _check_zero_division(x, y)
    return on_tape("div.2", (prims.truncdiv if rounding_mode == "trunc" else prims.floordiv)(x, y))


def _integral(x: Any) -> bool:
    return x.dtype.category <= INT if isinstance(x, Tensor) else category_of_number(x) <= INT


Tensor.__itruediv__ = as_dunder(inplace(div, "div_"), "__itruediv__")  # type: ignore[method-assign]


def reflected(name: str, fn: Callable, doc: str, autocast: Autocast = None) -> Callable:
    """The operator that Python asks for where a tensor stands on the right: fn(other, input)."""
    def swapped(input: Tensor, other: Any) -> Tensor:
        return fn(other, input)

    swapped.__name__, swapped.__doc__ = name, doc
    return operator(swapped, method=f"__{name}__", autocast=autocast)


rtruediv = reflected("rtruediv", div, "other / input.")


@operator(method=("floor_divide", "__floordiv__"))
@with_out
def floor_divide(input: Any, other: Any) -> Tensor:
    """The quotient rounded down."""
    return div(input, other, rounding_mode="floor")


@operator(method=("__rfloordiv__",))
def rfloordiv(input: Tensor, other: Any) -> Tensor:
    """other // input."""
    return div(other, input, rounding_mode="floor")


rmod = reflected("rmod", remainder, "other % input.")


@operator(method=("pow", "__pow__"), autocast={"cuda": "wide"})
def pow(input: Any, exponent: Any, *, out: Tensor | None = None) -> Tensor:
    """input ** exponent; small integer and half exponents use products and roots."""
    if isinstance(input, Tensor) and not isinstance(exponent, Tensor):
        result = _pow_number(input, exponent)
    else:
        a_tensor("pow", input, exponent)
        x, y = prepare(input, exponent)
        if all(getattr(v, "dtype", None) is bool_ or isinstance(v, bool) for v in (input, exponent)):
            raise NotImplementedError("\"pow\" not implemented for 'Bool'")
        result = prims.pow(x, y if isinstance(x, Tensor) else in_rows(y))
    return result if out is None else store_out(out, result)


_ROOTS: dict[float, Any] = {0.5: prims.sqrt, -0.5: prims.rsqrt, -1: prims.reciprocal}


@operator(name="_root", vjp=Pointwise(input=lambda input, power: power * input.pow(power - 1)))
def _root(input: Tensor, power: float) -> Tensor:
    """A power for which there is a primitive. Other than that one's, its gradient keeps the input: the result may be written to."""
    return _ROOTS[power](input)


def _pow_number(x: Tensor, p: Any) -> Tensor:
    kind = x.dtype
    if kind.category <= INT and isinstance(p, int) and p < 0:
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    if category_of_number(p) > kind.category:
        x = cast(x, result_type(x, p))
    if p == 2:
        return prims.mul(x, x)
    if p == 1:
        return x.clone()
    if p == 3:
        return prims.mul(prims.mul(x, x), x)
    if p == 4:
        return prims.mul(square := prims.mul(x, x), square)
    root = next((root for root in _ROOTS if p == root), None)
    if root is not None and x.dtype.category == FLOAT and (p == -1 or x.dtype is not float16):  # of -inf and -0.0 float16 alone has powers
        return _root(x, root)
    narrow = x.dtype.category == INT or x.dtype.itemsize < 4    # wrapped around, or infinite, it is another power
    return prims.pow(x, fitting(p, x.dtype) if narrow else cast(p, x.dtype))


Tensor.__ipow__ = as_dunder(inplace(pow, "pow_", refuses=True), "__ipow__")  # type: ignore[method-assign]


@operator(method=("__rpow__",), autocast={"cuda": "wide"})
def rpow(input: Tensor, base: Any) -> Tensor:
    """base ** input."""
    return pow(base, input)


def _compare(name: str, python: str) -> Callable:
    prim = getattr(prims, name)
    ordered = name not in ("eq", "ne")

    def fn(input: Tensor, other: Any) -> Tensor:
        if not isinstance(input, Tensor):
            raise not_tensors(name, input, other)
        x, y = prepare(input, other)
        if ordered and x.dtype.is_complex:
            raise NotImplementedError(f'"{name}_cpu" not implemented for \'{x.dtype}\': complex numbers have no order')
        return prim(*as_elements(x, y))

    fn.__name__, fn.__doc__ = name, f"Elementwise {python}; a bool tensor."
    return operator(with_out(fn), name=name, method=(name, f"__{name}__"), shortcut=prim)


eq, ne = _compare("eq", "=="), _compare("ne", "!=")
lt, le, gt, ge = _compare("lt", "<"), _compare("le", "<="), _compare("gt", ">"), _compare("ge", ">=")
for _fn in (eq, ne, lt, le, gt, ge):
    inplace(_fn, _fn.__name__ + "_")


Tensor.__hash__ = lambda self: id(self)  # type: ignore[method-assign]


def _logical(name: str, dunder: tuple[str, ...] = ()) -> Callable:
    prim = getattr(prims, name)

    def fn(input: Tensor, other: Tensor) -> Tensor:
        if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
            raise not_tensors(name, input, other)
        return prim(*prepare(input, other))

    fn.__name__, fn.__doc__ = name, f"Elementwise {name.replace('_', ' ')} of truth values."
    made = operator(with_out(fn), name=name, method=(name, *dunder), shortcut=prim)
    inplace(made, name + "_")
    return made


logical_and, logical_or, logical_xor = (_logical(n) for n in ("logical_and", "logical_or", "logical_xor"))


def _bitwise(name: str, dunder: str) -> Callable:
    prim = getattr(prims, name)

    def fn(input: Any, other: Any) -> Tensor:
        a_tensor(name, input, other)
        return prim(*prepare(input, other))

    fn.__name__, fn.__doc__ = name, f"Elementwise {name.replace('_', ' ')} of integers or bools."
    made = operator(with_out(fn), name=name, method=(name, f"__{dunder}__", f"__r{dunder}__"), shortcut=prim)
    setattr(Tensor, f"__i{dunder}__", as_dunder(inplace(made, name + "_"), f"__i{dunder}__"))
    return made


bitwise_and, bitwise_or, bitwise_xor = _bitwise("bitwise_and", "and"), _bitwise("bitwise_or", "or"), _bitwise("bitwise_xor", "xor")


def _check_shift(x: Any, y: Any) -> None:
    _check_not_bool(x.dtype if isinstance(x, Tensor) else y.dtype, "shift")


bitwise_left_shift = _binary(prims.shl, "bitwise_left_shift", ("bitwise_left_shift", "__lshift__"), True, check=_check_shift)
bitwise_right_shift = _binary(prims.shr, "bitwise_right_shift", ("bitwise_right_shift", "__rshift__"), True, check=_check_shift)


# -- selection and conversion ----------------------------------------------------------------------------
@operator(shortcut=prims.where)
@with_out
def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """`input` where `condition` is true, else `other`; with the condition alone, the indices where it is true."""
    if input is None and other is None:
        return OPERATORS["nonzero"](condition, as_tuple=True)
    if input is None or other is None:
        raise TypeError(f"where(): '{'input' if input is None else 'other'}' is missing; it takes a condition alone, or both as well")
    if condition.dtype is not bool_:
        if condition.dtype is not uint8:
            raise RuntimeError(f"where expected condition to be a boolean tensor, but got a tensor with dtype {condition.dtype}")
        warn_once("where received a uint8 condition tensor. This behavior is deprecated: use a boolean condition instead.")
        condition = cast(condition, bool_)
    kind = result_type(input, other)
    x, y = (cast(v, kind) if isinstance(v, Tensor) else stored(v, kind) for v in (input, other))
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        x = prims.full((), x, kind, condition.device)
    return prims.where(*broadcast(condition, x, y))


def _where_method(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """`self` where `condition` is true, else `other`."""
    return where(condition, self, other)


Tensor.where = _where_method  # type: ignore[assignment, method-assign]


@operator(method=True, node=lambda input, mask, value: "masked_fill.1" if isinstance(value, Tensor) else "masked_fill")
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """`value` where `mask` is true, else `input`."""
    if not isinstance(mask, Tensor) or mask.dtype is not bool_:
        raise RuntimeError(f"masked_fill_ only supports boolean masks, but got mask with dtype {getattr(mask, 'dtype', type(mask))}")
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(f"masked_fill only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s).")
        if value.dtype.is_complex and not input.dtype.is_complex:
            raise RuntimeError(f"value cannot be converted to type {input.dtype} without overflow: it is complex")
    return in_rows(where._body(mask, fitting(value, input.dtype), input))    # type: ignore[attr-defined]


@operator(method=("clamp", "clip"))
def clamp(input: Tensor, min: Any = None, max: Any = None, *, out: Tensor | None = None) -> Tensor:
    """`input` limited to [min, max]; a bound may be a number, a tensor or None."""
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    wide = result_type(input, *_as_bounds(min, max))
    if wide.is_complex or (wide is bool_ and not (max is None and isinstance(min, Tensor)) and not (
            min is None and isinstance(max, Tensor))):
        raise NotImplementedError(f'"clamp" not implemented for \'{wide}\': its numbers have no order to be clamped by')
    result = _clamped(cast(input, wide), *(_bound(b, wide) for b in (min, max)))
    return result if out is None else store_out(out, result)


def _as_bounds(low: Any, high: Any) -> Sequence:
    """Two bounds as they decide on a dtype: beside a number a 0-dim tensor is one as well, and others are refused."""
    bounds = (low, high)
    if low is None or high is None or isinstance(low, Tensor) is isinstance(high, Tensor):
        return bounds
    for b in bounds:
        if isinstance(b, Tensor) and (b.ndim or b.requires_grad):
            raise TypeError("clamp(): beside a number a bound is a number or a 0-dim tensor without requires_grad, but got one of shape "
                            f"{list(b.shape)}; make the number a tensor, or clamp twice")
    return [(False, 0, 0.0, 0j)[b.dtype.category] if isinstance(b, Tensor) else b for b in bounds]


def _bound(x: Any, kind: dtype) -> Any:
    return None if x is None else cast(x, kind) if isinstance(x, Tensor) else fitting(x, kind)


@elementwise
def _clamped(input: Tensor, low: Any, high: Any) -> Tensor:
    return _clamp(*broadcast(input, low, high))


def _inside(x: Tensor, low: Any, high: Any) -> Tensor:
    if low is None:
        return prims.le(x, high)
    return prims.ge(x, low) if high is None else prims.logical_and(prims.ge(x, low), prims.le(x, high))


@operator(fused=True)
def clamp_backward(g: Tensor, x: Tensor, low: Any, high: Any) -> Tensor:
    """Gradient of clamp: g where the bounds are kept, else 0. Where one is met it is the input's alone."""
    return prims.where(_inside(x, low, high), g, 0.0)


@operator(name="_clamp", fused=True, aten=InAten(
    node=lambda x, *ends: "clamp" if any(hasattr(end, "dtype") for end in ends) else "clamp.1"), vjp=Pointwise(
    input=lambda g, input, low, high: clamp_backward(g, input, low, high),
    low=lambda input, low, high: (input < low) if high is None else (input < low) & (low < high),
    high=lambda input, low, high: (input > high) if low is None else (input > high) | (low > high)))
def _clamp(input: Tensor, low: Any, high: Any) -> Tensor:
    """clamp of one dtype and shape to numbers, tensors or None."""
    return _limited(prims.minimum, prims.gt, prims.le, _limited(prims.maximum, prims.lt, prims.ge, input, low), high)


def _limited(extremum: Primitive, beyond: Primitive, within: Primitive, x: Tensor, bound: Any) -> Tensor:
    if bound is None:
        return x
    if isinstance(bound, SymFloat):     # nobody knows whether it is a NaN
        return prims.where(prims.logical_or(within(x, bound), prims.ne(x, x)), x, bound)
    if isinstance(bound, Tensor) or bound != bound:  # a NaN makes all of them NaN
        return extremum(x, bound)
    return prims.where(beyond(x, bound), bound, x)


@operator(method=True, node=lambda input, min: "clamp_min.1" if isinstance(min, Tensor) else "clamp_min")
@with_out
def clamp_min(input: Tensor, min: Any) -> Tensor:
    """clamp with a lower bound alone."""
    if not isinstance(input, Tensor) or min is None:
        raise not_tensors("clamp_min", input, min)
    return clamp(input, min=min)


@operator(method=True, node=lambda input, max: "clamp_max.1" if isinstance(max, Tensor) else "clamp_max")
@with_out
def clamp_max(input: Tensor, max: Any) -> Tensor:
    """clamp with an upper bound alone."""
    if not isinstance(input, Tensor) or max is None:
        raise not_tensors("clamp_max", input, max)
    return clamp(input, max=max)


def _kind_of_float(prim: Primitive, doc: str) -> Callable:
    def fn(input: Tensor) -> Tensor:
        if input.dtype.category < FLOAT:
            return prims.ne(input, input)
        return prim(prims.real(input)) | prim(prims.imag(input)) if input.dtype.is_complex else prim(input)

    fn.__name__, fn.__doc__ = prim.name, doc
    return operator(fn, method=True, tags=("keeps_zero",))


isnan = _kind_of_float(prims.isnan, "Whether each element is NaN.")
isinf = _kind_of_float(prims.isinf, "Whether each element is infinite.")


@operator(method=True)
def isfinite(input: Tensor) -> Tensor:
    """Whether each element is neither infinite nor NaN."""
    return logical_and(prims.logical_not(isinf(input)), prims.logical_not(isnan(input)))


@operator(method=True, tags=("keeps_zero",), node="pow")
@with_out
def square(input: Tensor) -> Tensor:
    """input * input; bools as int64."""
    input = cast(input, int64) if input.dtype is bool_ else input
    return mul(input, input)


@operator(method=True)
def conj(input: Tensor) -> Tensor:
    """The complex conjugate: a view, whose elements are turned where they are read; real tensors as they are."""
    return prims.conj_view(input) if input.dtype.is_complex else input


@operator(method=True)
@with_out_alike
def conj_physical(input: Tensor) -> Tensor:
    """The complex conjugate in memory of its own; real tensors as they are."""
    return prims.conj(input) if input.dtype.is_complex else input


@operator(method=True)
def _neg_view(input: Tensor) -> Tensor:
    """The negative: a view, whose elements are turned where they are read."""
    return prims.neg_view(input)


@operator
@with_out_apart
def complex(real: Tensor, imag: Tensor) -> Tensor:
    """real + i imag."""
    if not (real.dtype.is_floating_point and real.dtype is imag.dtype):
        raise RuntimeError("complex(): expected both inputs to be floating-point tensors of one dtype, but got "
                           f"{real.dtype} and {imag.dtype}")
    return prims.complex(*prepare(real, imag))


for _fn in (round, sign, sgn, floor_divide, masked_fill, clamp, clamp_min, clamp_max, square):
    inplace(_fn, _fn.__name__ + "_")

