"""Scalar operations in ONNX: one more reading of the table of core/scalar.py, and the operators that are one of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..core.dtypes import FLOAT, bool_, float32, int32, int64
from ..core.scalar import TABLE, result_dtype
from ..core.tensor import Tensor, fake
from ..ops.aten_schemas import ALIASES
from ..ops.promotion import is_number, result_type
from ..ops.registry import PRIMITIVES
from .forms import form
from .writer import Number, Value, Writer

SAME = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "truediv": "Div", "neg": "Neg", "abs": "Abs", "sign": "Sign", "reciprocal": "Reciprocal",
    "pow": "Pow", "minimum": "Min", "maximum": "Max", "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "sin": "Sin", "cos": "Cos", "tan": "Tan",
    "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh", "asinh": "Asinh", "acosh": "Acosh",
    "atanh": "Atanh", "sigmoid": "Sigmoid", "erf": "Erf", "floor": "Floor", "ceil": "Ceil", "round": "Round",
    "eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual", "isnan": "IsNaN", "isinf": "IsInf",
    "where": "Where", "bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor", "bitwise_not": "BitwiseNot",
}
_OF_TRUTHS = {"bitwise_and": "And", "bitwise_or": "Or", "bitwise_xor": "Xor", "bitwise_not": "Not", "add": "Or", "mul": "And",
              "minimum": "And", "maximum": "Or", "ne": "Xor", "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor",
              "logical_not": "Not"}


class Scalars:
    """The handler that loop bodies write with: each scalar operation is a step, or a few."""

    def __init__(self, o: Writer) -> None:
        self.o = o

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in SAME:
            raise NotImplementedError(f"the scalar operation {name} has no form in ONNX")
        return lambda *operands: self._step(name, SAME[name], operands)

    def _step(self, name: str, op: str, operands: tuple) -> Value:
        kinds = [x.dtype for x in operands if isinstance(x, Value)]
        like = kinds[-1] if name == "where" else kinds[0]
        values = [x if isinstance(x, Value) else self.o.constant(x, like) for x in operands]
        if like is bool_ and name in _OF_TRUTHS:
            return self.o.step(_OF_TRUTHS[name], *values, _dtype=bool_)
        if like is bool_ and TABLE[name].ordered:
            values = [self.o.cast(x, int32) for x in values]
        if like.is_floating_point and like.itemsize == 2 and name in ("isinf", "isnan"):
            values = [self.o.cast(x, float32) for x in values]
        kind = result_dtype(TABLE[name], [like] * 3)
        if name == "where" and like is bool_:       # runtimes have it of numbers
            return self.o.cast(self.o.Where(values[0], *(self.o.cast(x, int32) for x in values[1:]), _dtype=int32), bool_)
        return self.o.step(op, *values, _dtype=kind)

    @staticmethod
    def _fractions(*operands: Any) -> bool:
        return any(isinstance(x, Value) and x.dtype.is_floating_point for x in operands)

    def to_dtype(self, x: Any, kind: Any) -> Any:
        """Conversion."""
        return self.o.cast(x, kind)

    def constant(self, x: Any, kind: Any) -> Any:
        """A number."""
        return self.o.constant(x, kind)

    def _truth(self, x: Value) -> Value:
        return x if x.dtype is bool_ else self.o.cast(x, bool_)

    def logical_and(self, x: Any, y: Any) -> Any:
        return self.o.And(self._truth(x), self._truth(y))

    def logical_or(self, x: Any, y: Any) -> Any:
        return self.o.Or(self._truth(x), self._truth(y))

    def logical_xor(self, x: Any, y: Any) -> Any:
        return self.o.Xor(self._truth(x), self._truth(y))

    def logical_not(self, x: Any) -> Any:
        return self.o.Not(self._truth(x))

    def ne(self, x: Any, y: Any) -> Any:
        return self.o.Not(self.eq(x, y))

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        return self.add(self.mul(x, y), z)

    def relu(self, x: Any) -> Any:
        return self.o.Relu(x) if self._fractions(x) else self.maximum(x, 0)

    def rsqrt(self, x: Any) -> Any:
        return self.reciprocal(self.sqrt(x))

    def hypot(self, x: Any, y: Any) -> Any:
        return self.sqrt(self.add(self.mul(x, x), self.mul(y, y)))

    def trunc(self, x: Any) -> Any:
        return self.where(self.lt(x, 0), self.ceil(x), self.floor(x))

    def truncdiv(self, x: Any, y: Any) -> Any:
        return self.trunc(self.truediv(x, y)) if self._fractions(x, y) else self.truediv(x, y)

    def floordiv(self, x: Any, y: Any) -> Any:
        if self._fractions(x, y):
            return self.floor(self.truediv(x, y))
        down = self.truediv(x, y)
        rest = self.sub(x, self.mul(down, y))
        apart = self.o.And(self.ne(rest, 0), self.o.Xor(self.lt(rest, 0), self.lt(y, 0)))
        return self.where(apart, self.sub(down, 1), down)

    def fmod(self, x: Any, y: Any) -> Any:
        return self.o.Mod(x, y, fmod=1)

    def remainder(self, x: Any, y: Any) -> Any:
        if not self._fractions(x, y):
            return self.o.Mod(x, y)
        rest = self.fmod(x, y)
        apart = self.o.And(self.ne(rest, 0), self.o.Xor(self.lt(rest, 0), self.lt(y, 0)))
        return self.where(apart, self.add(rest, y), rest)

    def exp2(self, x: Any) -> Any:
        return self.exp(self.mul(x, math.log(2)))

    def expm1(self, x: Any) -> Any:
        return self.mul(self.tanh(self.mul(x, 0.5)), self.add(self.exp(x), 1))    # keeps the digits of small ones

    def log1p(self, x: Any) -> Any:
        return self.log(self.add(x, 1))

    def log2(self, x: Any) -> Any:
        return self.truediv(self.log(x), math.log(2))

    def log10(self, x: Any) -> Any:
        return self.truediv(self.log(x), math.log(10))

    def erfc(self, x: Any) -> Any:
        return self.add(self.neg(self.erf(x)), 1)

    def signbit(self, x: Any) -> Any:
        negative = self.lt(x, 0)
        return negative if not self._fractions(x) else self.o.Or(negative, self.o.And(self.eq(x, 0), self.lt(self.reciprocal(x), 0)))

    def copysign(self, x: Any, y: Any) -> Any:
        size = self.abs(x)
        return self.where(self.signbit(y), self.neg(size), size)

    def atan2(self, x: Any, y: Any) -> Any:
        angle = self.atan(self.truediv(x, y))
        there = self.where(self.signbit(x), self.sub(angle, math.pi), self.add(angle, math.pi))
        whole = self.where(self.signbit(y), there, angle)
        nothing = self.o.And(self.eq(x, 0), self.eq(y, 0))
        back = self.where(self.signbit(y), self.copysign(self.add(self.abs(x), math.pi), x), x)
        return self.where(nothing, back, whole)

    def fmin(self, x: Any, y: Any) -> Any:
        return self._of_numbers(self.minimum, x, y)

    def fmax(self, x: Any, y: Any) -> Any:
        return self._of_numbers(self.maximum, x, y)

    def _of_numbers(self, best: Callable, x: Any, y: Any) -> Any:
        if not self._fractions(x, y):
            return best(x, y)
        return self.where(self.isnan(x), y, self.where(self.isnan(y), x, best(x, y)))

    def shl(self, x: Any, y: Any) -> Any:
        return self.mul(x, self.pow(self.o.constant(2, x.dtype), y))

    def shr(self, x: Any, y: Any) -> Any:
        return self.floordiv(x, self.pow(self.o.constant(2, x.dtype), y))


def _reading(prim: Any) -> Callable[..., Any]:
    """An operator that is a pointwise primitive, written by the primitive's loop body, with promotion; ONNX broadcasts."""
    truths, mixed = prim.name.startswith("logical"), prim.name == "where"

    def write(o: Writer, *operands: Any) -> Value:
        condition = operands[:1] if mixed else ()
        rest = operands[1:] if mixed else operands
        kind = o.out.dtype if o.out.dtype is not bool_ else _kind(rest)
        if not truths:
            rest = tuple(o.cast(x, kind) for x in rest)
        out = prim.loop(Scalars(o), *(o.cast(c, bool_) for c in condition), *rest)
        return o.cast(out, o.out.dtype)

    return write


def _kind(operands: tuple) -> Any:
    """The dtype in which operands are compared."""
    return result_type(*(int64 if isinstance(x, Number) else fake((1,) * x.rank, x.dtype) if isinstance(x, Value) else x for x in operands))


def _takes(name: str, arity: int) -> Callable[..., bool]:
    """Real numbers; floats alone where the scalar operation is said of them alone and gives no number."""
    floats = name in TABLE and TABLE[name].native == "F" and TABLE[name].result == "bool"

    def takes(*args: Any, **kwargs: Any) -> bool:
        tensors = [a.dtype for a in args if isinstance(a, Tensor)]
        plain = len(args) == arity and not kwargs and all(isinstance(a, Tensor) or is_number(a) for a in args)
        return plain and bool(tensors) and all(k.is_floating_point if floats else not k.is_complex for k in tensors)

    return takes


class _Asks:
    """A handler that notes which scalar operations a body asks for."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __getattr__(self, name: str) -> Callable[..., None]:
        self.names.add(name)
        return lambda *operands: None


def _writable(prim: Any) -> bool:
    """Whether all that a primitive's body asks for is here."""
    asks = _Asks()
    prim.loop(asks, *(None,) * len(prim.params))
    return all(name in SAME or hasattr(Scalars, name) for name in asks.names)


for _name, _prim in PRIMITIVES.items():
    if "pointwise" in _prim.tags and _name != "convert" and _writable(_prim):
        form(ALIASES.get(_name, _name), f"primitive:{_name}", takes=_takes(_name, len(_prim.params)))(_reading(_prim))


# -- what takes a factor, or a way of rounding -------------------------------------------------------------------------------------
def _scaled(name: str) -> Callable:
    def write(o: Writer, x: Any, y: Any, alpha: Any = 1) -> Any:
        kind = o.out.dtype
        x, y = o.cast(x, kind), o.cast(y, kind)
        if alpha != 1:
            y = o.Mul(y, o.cast(alpha, kind))
        return getattr(Scalars(o), name)(x, y)

    return write


def _real(*args: Any, **kwargs: Any) -> bool:
    return not any(isinstance(a, Tensor) and a.dtype.is_complex for a in args)


form("add", takes=_real)(_scaled("add"))
form("sub", takes=_real)(_scaled("sub"))


@form("rsub", takes=_real)
def rsub(o: Writer, x: Any, y: Any, alpha: Any = 1) -> Any:
    """y - alpha x."""
    return _scaled("sub")(o, y, x, alpha)


@form("div", takes=_real)
def div(o: Writer, x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    """A quotient, rounded as is said."""
    kind = o.out.dtype
    name = {None: "truediv", "floor": "floordiv", "trunc": "truncdiv"}[rounding_mode]
    return getattr(Scalars(o), name)(o.cast(x, kind), o.cast(y, kind))


@form("floor_divide", takes=_real)
def floor_divide(o: Writer, x: Any, y: Any) -> Any:
    """A quotient rounded down."""
    return div(o, x, y, rounding_mode="floor")


@form("pow", takes=_real)
def pow_(o: Writer, x: Any, y: Any) -> Any:
    """A power; squares and roots by themselves."""
    kind, s = o.out.dtype, Scalars(o)
    base = o.cast(x, kind)
    if not isinstance(y, Value) and y in (2, 0.5, 1):
        return {2: lambda: s.mul(base, base), 0.5: lambda: s.sqrt(base), 1: lambda: base}[y]()
    return s.pow(base, o.cast(y, kind))


@form("isfinite", takes=lambda x: x.dtype.category == FLOAT)
def isfinite(o: Writer, x: Value) -> Any:
    """Whether elements are numbers: x - x is 0."""
    return o.Equal(o.Sub(x, x), 0)


@form("convert", "primitive:convert")
def convert(o: Writer, x: Value, dtype: Any) -> Any:
    """Conversion."""
    return o.cast(x, dtype)
