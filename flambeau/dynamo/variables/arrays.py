"""NumPy's arrays in captured code: each is a tensor over the same memory, and NumPy's functions are operators on it.

What dtype a function gives, NumPy itself tells (`resolve_dtypes` of ufuncs, others by a call on an array of one element); the operands are
cast to what it computes in. Where NumPy gives a number and no array, so does the captured program (`ArrayVariable.scalar`).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...core.device import CPU, default_device
from ...core.dtypes import dtype as Dtype
from ...ops.registry import OPERATORS
from ..break_kinds import graph_break
from ..source import Source, constant_source
from ..typed import Trace, Writer
from .base import NONE, Args, ConstantVariable, Kwargs, ModelledVariable, NotConstant, Variable, call_handler, is_none
from .floats import FloatVariable
from .sequences import ListVariable, RangeVariable, SequenceVariable, SliceVariable, TupleVariable
from .tensor import SymVariable, TensorVariable

DTYPES = tuple(map(np.dtype, ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")))
"""Of arrays that are captured."""

from_numpy: Any = OPERATORS["from_numpy"]


def is_captured(value: np.ndarray) -> bool:
    """Can a tensor lie over an array's memory, and be written to as the array may be?"""
    plain = value.dtype in DTYPES and value.dtype.isnative and value.flags.writeable
    return plain and all(s >= 0 and s % value.itemsize == 0 for s in value.strides)


class ArrayVariable(ModelledVariable):
    """An array, or (`scalar`) a number of NumPy that the graph computes."""

    kind: Any = np.ndarray

    def __init__(self, tensor: Any, source: Source | None = None, *, scalar: bool = False) -> None:
        self.tensor, self.source, self.scalar = tensor, source, scalar
        if scalar:
            self.kind = self.dtype.type

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.tensor.fake.dtype.numpy)

    @property
    def ndim(self) -> int:
        return len(self.tensor.fake.shape)

    def describe(self) -> str:
        return f"{'number' if self.scalar else 'array'} {self.source.words if self.source is not None else self.tensor.node.name}"

    def truth(self, tx: Trace) -> bool:
        graph_break("data-dependent branch", f"truth value of {self.describe()}")

    def attr(self, tx: Trace, name: str) -> Variable:
        fact = _FACTS.get(name)
        if fact is not None:
            return tx.literal(fact(self))
        if name == "T":
            return self.method(tx, "transpose", [], {})
        return super().attr(tx, name)

    def set_attr(self, tx: Trace, name: str, value: Variable) -> None:
        graph_break("unknown attribute", f"{self.describe()}.{name} = ...")

    def length(self, tx: Trace) -> Variable:
        return self.tensor.length(tx)

    def iterate(self, tx: Trace) -> Iterator[Variable]:
        if not self.ndim:
            tx.raise_(TypeError, "iteration over a 0-d array")
        return (self.item(tx, ConstantVariable(i)) for i in range(int(self.tensor.fake.shape[0])))

    def item(self, tx: Trace, key: Variable) -> Variable:
        made: Any = tx.emit(operator.getitem, [self.tensor, _key(tx, key)], {})
        number = not made.fake.shape and not _has_ellipsis(key)
        return ArrayVariable(tx.emit_method("clone", [made], {}) if number else made, scalar=number)

    def set_item(self, tx: Trace, key: Variable, value: Variable) -> None:
        value = value.realize(tx)
        if isinstance(value, ArrayVariable):
            value = cast(tx, value.tensor, self.dtype)
        elif isinstance(value, ConstantVariable) and type(value.value) is float and self.dtype.kind in "iu":
            value = ConstantVariable(int(value.value))
        if not isinstance(value, (TensorVariable, ConstantVariable, SymVariable)) or self.scalar:
            graph_break("unknown operation", f"{self.describe()}[...] = {value.describe()}")
        tx.emit(operator.setitem, [self.tensor, _key(tx, key), value], {})

    def binary(self, tx: Trace, op: Any, other: Variable, reflected: bool) -> Variable | None:
        in_place = op not in OF_OPERATORS and op in _IN_PLACE
        ufunc = OF_OPERATORS.get(_IN_PLACE.get(op, op))
        if ufunc is None or not _is_operand(other) or (in_place and reflected):
            return None
        if ufunc is np.matmul:
            return call_function(tx, np.matmul, [other, self] if reflected else [self, other], {})
        made = apply(tx, ufunc, [other, self] if reflected else [self, other])
        if not in_place or self.scalar:
            return made
        if not np.can_cast(made.dtype, self.dtype, "same_kind") or len(made.tensor.fake.shape) > self.ndim:
            graph_break("unknown operation", f"{op.__name__} of {self.describe()} that gives {made.dtype}")
        tx.emit_method("copy_", [self.tensor, made.tensor], {})
        return self

    def unary(self, tx: Trace, op: Any) -> Variable | None:
        ufunc = {operator.neg: np.negative, operator.invert: np.invert, operator.abs: np.absolute, operator.pos: np.positive}.get(op)
        return apply(tx, ufunc, [self]) if ufunc is not None else None

    def model_of(self, name: str) -> Callable[..., Variable | None] | None:
        function = getattr(np, name, None) if name in _METHODS else None
        if function is not None:
            return lambda self, tx, *args, **kwargs: call_function(tx, function, [self, *args], kwargs)
        return super().model_of(name)

    def make(self, w: Writer) -> str:
        return w.bind(f"{w.value(self.tensor)}.numpy(){'[()]' if self.scalar else ''}")

    def _astype(self, tx: Trace, dtype: Variable, copy: Variable = ConstantVariable(True)) -> Variable:
        wanted = dtype_of(tx, dtype)
        if wanted == self.dtype and not tx.truth(copy):
            return self
        made: Any = tx.emit_method("to", [self.tensor, tx.literal(torch_dtype(wanted))], {"copy": ConstantVariable(True)})
        return ArrayVariable(made, scalar=self.scalar)

    def _reshape(self, tx: Trace, *shape: Variable) -> Variable:
        return ArrayVariable(tx.emit_method("reshape", [self.tensor, *shape], {}))

    def _transpose(self, tx: Trace, *axes: Variable) -> Variable:
        given = [item for axis in axes for item in (axis.items if isinstance(axis, SequenceVariable) else [axis])]
        order = given or [ConstantVariable(i) for i in reversed(range(self.ndim))]
        return ArrayVariable(tx.emit_method("permute", [self.tensor, *order], {}) if order else self.tensor, scalar=self.scalar)

    def _copy(self, tx: Trace) -> Variable:
        return ArrayVariable(tx.emit_method("contiguous", [tx.emit_method("clone", [self.tensor], {})], {}), scalar=self.scalar)

    def _flatten(self, tx: Trace) -> Variable:
        flat = tx.emit_method("reshape", [self.tensor, ConstantVariable(-1)], {})
        return ArrayVariable(tx.emit_method("clone", [flat], {}))

    def _item(self, tx: Trace) -> Variable:
        found = tx.read_number(self.tensor)
        return found if found is not None else graph_break("tensor to Python value", f"{self.describe()}.item()")

    METHODS = {"astype": _astype, "reshape": _reshape, "transpose": _transpose, "copy": _copy, "flatten": _flatten, "item": _item}


_FACTS: dict[str, Callable[[ArrayVariable], Any]] = {
    "shape": lambda a: tuple(a.tensor.fake.shape), "ndim": lambda a: a.ndim, "dtype": lambda a: a.dtype,
    "size": lambda a: math.prod(a.tensor.fake.shape), "itemsize": lambda a: a.dtype.itemsize,
    "nbytes": lambda a: math.prod(a.tensor.fake.shape) * a.dtype.itemsize,
}  # fmt: skip
_METHODS = frozenset({"sum", "mean", "prod", "max", "min", "std", "var", "any", "all", "argmax", "argmin", "cumsum", "ravel", "squeeze",
                      "swapaxes", "clip", "dot", "argsort", "repeat"})  # fmt: skip
OF_OPERATORS: dict[Any, Any] = {
    operator.add: np.add, operator.sub: np.subtract, operator.mul: np.multiply, operator.truediv: np.true_divide,
    operator.pow: np.power, operator.mod: np.remainder, operator.floordiv: np.floor_divide, operator.matmul: np.matmul,
    operator.eq: np.equal, operator.ne: np.not_equal, operator.lt: np.less, operator.le: np.less_equal, operator.gt: np.greater,
    operator.ge: np.greater_equal, operator.and_: np.bitwise_and, operator.or_: np.bitwise_or, operator.xor: np.bitwise_xor,
}  # fmt: skip
_IN_PLACE = {getattr(operator, f"i{op.__name__.rstrip('_')}"): op for op in OF_OPERATORS if hasattr(
    operator, f"i{op.__name__.rstrip('_')}")}  # fmt: skip

# -- functions of elements -----------------------------------------------------------------------------------------------------
UFUNCS: dict[Any, str] = {
    np.add: "add", np.subtract: "sub", np.multiply: "mul", np.true_divide: "div", np.power: "pow", np.remainder: "remainder",
    np.floor_divide: "floor_divide", np.maximum: "maximum", np.minimum: "minimum", np.arctan2: "atan2", np.hypot: "hypot",
    np.equal: "eq", np.not_equal: "ne", np.less: "lt", np.less_equal: "le", np.greater: "gt", np.greater_equal: "ge",
    np.logical_and: "logical_and", np.logical_or: "logical_or", np.logical_xor: "logical_xor", np.logical_not: "logical_not",
    np.bitwise_and: "bitwise_and", np.bitwise_or: "bitwise_or", np.bitwise_xor: "bitwise_xor", np.invert: "bitwise_not",
    np.negative: "neg", np.positive: "clone", np.absolute: "abs", np.sqrt: "sqrt", np.exp: "exp", np.exp2: "exp2", np.expm1: "expm1",
    np.log: "log", np.log2: "log2", np.log10: "log10", np.log1p: "log1p", np.sin: "sin", np.cos: "cos", np.tan: "tan",
    np.sinh: "sinh", np.cosh: "cosh", np.tanh: "tanh", np.arcsin: "asin", np.arccos: "acos", np.arctan: "atan", np.floor: "floor",
    np.ceil: "ceil", np.trunc: "trunc", np.rint: "round", np.square: "square", np.sign: "sign", np.isnan: "isnan",
    np.isinf: "isinf", np.isfinite: "isfinite", np.reciprocal: "reciprocal", np.logaddexp: "logaddexp",
}  # fmt: skip
_OF_TENSORS = (np.maximum, np.minimum, np.arctan2, np.hypot, np.logical_and, np.logical_or, np.logical_xor, np.logaddexp)
"""Of these the operator takes no numbers."""
_FRACTIONS = (np.power, np.remainder, np.floor_divide, np.reciprocal)
"""What they do to whole numbers hangs on the values (division by zero, negative powers)."""


def _is_harmless(ufunc: Any, operands: Args) -> bool:
    """Is a whole number divided by a known positive one, or raised to a known power?"""
    known = operands[-1].value if len(operands) == 2 and isinstance(operands[-1], ConstantVariable) else None
    return isinstance(known, (int, np.integer)) and type(known) is not bool and int(known) >= (0 if ufunc is np.power else 1)


def _is_operand(variable: Variable) -> bool:
    if isinstance(variable, ConstantVariable):
        return isinstance(variable.value, (bool, int, float, np.generic))
    return isinstance(variable, (ArrayVariable, FloatVariable)) or (type(variable) is SymVariable and variable.python_type() is int)


def torch_dtype(kind: np.dtype) -> Dtype:
    found: Dtype = from_numpy(np.empty(0, kind)).dtype
    return found


def cast(tx: Trace, tensor: Any, kind: np.dtype) -> Any:
    """A tensor in another dtype."""
    wanted = torch_dtype(kind)
    return tensor if tensor.fake.dtype is wanted else tx.emit_method("to", [tensor, tx.literal(wanted)], {})


def apply(tx: Trace, ufunc: Any, operands: Args) -> ArrayVariable:
    """A function of elements, in the dtype in which NumPy computes it."""
    operands = [operand.realize(tx) for operand in operands]
    if ufunc not in UFUNCS or not all(map(_is_operand, operands)):
        graph_break("unknown operation", f"numpy.{ufunc.__name__}() of {', '.join(o.describe() for o in operands)}")
    *inner, outer = tx.checked(ufunc.resolve_dtypes, (*map(_kind, operands), None))
    if ufunc in _FRACTIONS and inner[0].kind in "iub" and not _is_harmless(ufunc, operands):
        graph_break("unknown operation", f"numpy.{ufunc.__name__}() of whole numbers")
    if any(kind not in DTYPES for kind in (*inner, outer)):
        graph_break("unknown operation", f"numpy.{ufunc.__name__}(), which gives {outer}")
    beside = _filled if ufunc in _OF_TENSORS else _number
    given = [cast(tx, o.tensor, kind) if isinstance(o, ArrayVariable) else beside(tx, o, kind)
             for o, kind in zip(operands, inner, strict=True)]
    made: Any = tx.call_operator(OPERATORS[UFUNCS[ufunc]], given, {})
    made = cast(tx, made, outer)
    return ArrayVariable(made, scalar=not made.fake.shape)


def _kind(operand: Variable) -> Any:
    """What decides the dtype: an array's own one, and that of a number of NumPy; a Python number fits in with the others."""
    if isinstance(operand, ArrayVariable):
        return operand.dtype
    if isinstance(operand, ConstantVariable) and isinstance(operand.value, (np.generic, bool)):
        return np.asarray(operand.value).dtype
    return operand.python_type()


def _number(tx: Trace, operand: Variable, kind: np.dtype) -> Variable:
    """A number beside arrays; whole numbers and truth values are operands of their own dtype."""
    if not isinstance(operand, ConstantVariable):
        return operand
    return ConstantVariable(tx.checked(kind.type, operand.value).item())


# -- other functions -----------------------------------------------------------------------------------------------------------
def call_function(tx: Trace, function: Any, args: Args, kwargs: Kwargs) -> Variable:
    """A function of NumPy that is given an array."""
    handler = FUNCTIONS.get(function)
    if isinstance(function, np.ufunc) and handler is None:
        if kwargs:
            graph_break("call of skipped function", f"numpy.{function.__name__}() with {', '.join(kwargs)}")
        return apply(tx, function, args)
    if handler is None:
        graph_break("call of skipped function", f"numpy.{function.__name__}() of an array")
    return call_handler(handler, f"numpy.{function.__name__}", tx, *args, **kwargs)


def takes_arrays(args: Args, kwargs: Kwargs) -> bool:
    """Is an array among the arguments?"""
    return any(isinstance(arg, ArrayVariable) or (isinstance(arg, SequenceVariable) and takes_arrays(arg.items, {}))
               for arg in (*args, *kwargs.values()))


def dtype_of(tx: Trace, variable: Variable) -> np.dtype:
    kind: np.dtype = tx.checked(np.dtype, tx.known(variable))
    if kind not in DTYPES:
        graph_break("unknown operation", f"arrays of {kind}")
    return kind


def _plain(tx: Trace, variable: Variable) -> Any:
    variable = variable.realize(tx)
    try:
        if isinstance(variable, SequenceVariable):
            return variable.python_type()(_plain(tx, item) for item in variable.items)
        return variable.as_constant()
    except NotConstant:
        graph_break("unknown operation", f"{variable.describe()} as an argument of a function of NumPy")


def as_array(tx: Trace, variable: Variable) -> ArrayVariable:
    variable = variable.realize(tx)
    if not isinstance(variable, ArrayVariable):
        graph_break("unknown operation", f"{variable.describe()} where a function of NumPy takes an array")
    return variable


def _reduction(function: Any, name: str) -> Callable[..., Variable]:
    def handler(tx: Trace, a: Variable, axis: Variable = NONE, *, keepdims: Variable = ConstantVariable(False),
                **more: Variable) -> Variable:  # fmt: skip
        array, dim, keep = as_array(tx, a), _plain(tx, axis), bool(_plain(tx, keepdims))
        options: dict[str, Any] = {key: _plain(tx, value) for key, value in more.items()}
        if set(options) - ({"ddof"} if function in (np.std, np.var) else set()):
            graph_break("call of skipped function", f"numpy.{function.__name__}() with {', '.join(options)}")
        kind = function(np.ones((1,) * array.ndim, array.dtype)).dtype
        inner = np.dtype("bool") if function in (np.any, np.all) else kind if function not in (np.argmax, np.argmin) else array.dtype
        tensor = cast(tx, array.tensor, inner)
        dims = tuple(range(array.ndim)) if dim is None else dim
        given: Kwargs = {"keepdim": ConstantVariable(keep)}
        if function in (np.argmax, np.argmin, np.prod, np.any, np.all) and dim is None:
            if keep:
                graph_break("call of skipped function", f"numpy.{function.__name__}() of all elements with keepdims")
            tensor, dims = tx.emit_method("reshape", [tensor, ConstantVariable(-1)], {}), 0
        if function in (np.std, np.var):
            given["correction"] = ConstantVariable(options.get("ddof", 0))
        if dims != ():
            tensor = tx.call_operator(OPERATORS[name], [tensor, tx.literal(dims)], given)
        tensor = cast(tx, tensor, kind)
        return ArrayVariable(tensor, scalar=not tensor.fake.shape)

    return handler


_TORCH_NAMES = {"axis": "dim", "k": "diagonal", "reps": "dims"}


def _on_tensors(name: str, *, many: bool = False, **fixed: Any) -> Callable[..., Variable]:
    """An operator that takes what NumPy's function takes, and gives the dtype that it is given."""
    def handler(tx: Trace, a: Variable, *args: Variable, **kwargs: Variable) -> Variable:
        if many:
            arrays = [as_array(tx, item) for item in tx.iterate(a)]
            kind = np.result_type(*(array.dtype for array in arrays))
            first: Variable = ListVariable([cast(tx, array.tensor, kind) for array in arrays])
        else:
            first = as_array(tx, a).tensor
        given = {_TORCH_NAMES.get(key, key): value for key, value in kwargs.items()}
        made: Any = tx.call_operator(OPERATORS[name], [first, *args], {**{k: tx.literal(v) for k, v in fixed.items()}, **given})
        return ArrayVariable(made)

    return handler


def _product(tx: Trace, a: Variable, b: Variable) -> Variable:
    left, right = as_array(tx, a), as_array(tx, b)
    kind = np.result_type(left.dtype, right.dtype)
    if not (left.ndim and right.ndim) or kind.kind == "b":
        graph_break("unknown operation", f"a product of {left.describe()} and {right.describe()}")
    made: Any = tx.call_operator(OPERATORS["matmul"], [cast(tx, left.tensor, kind), cast(tx, right.tensor, kind)], {})
    return ArrayVariable(made, scalar=not made.fake.shape)


def _dot(tx: Trace, a: Variable, b: Variable) -> Variable:
    if max(as_array(tx, a).ndim, as_array(tx, b).ndim) > 2:
        graph_break("unknown operation", "numpy.dot() of arrays of more than two dimensions")
    return _product(tx, a, b)


def _outer(tx: Trace, a: Variable, b: Variable) -> Variable:
    column, row = (tx.emit_method("reshape", [as_array(tx, v).tensor, tx.literal(shape)], {}) for v, shape in ((a, (-1, 1)), (b, (1, -1))))
    return apply(tx, np.multiply, [ArrayVariable(column), ArrayVariable(row)])


def _repeat(tx: Trace, a: Variable, repeats: Variable, axis: Variable = NONE) -> Variable:
    count = _plain(tx, repeats)
    if type(count) is not int:
        graph_break("call of skipped function", f"numpy.repeat() by {repeats.describe()}")
    return ArrayVariable(tx.emit_method("repeat_interleave", [as_array(tx, a).tensor, tx.literal(count), axis], {}))


def _sorted(tx: Trace, a: Variable, axis: Variable = ConstantVariable(-1), *, places: bool, kind: Variable = NONE,
            stable: Variable = NONE) -> Variable:
    """`sort` and `argsort`; where equal elements stand, only a stable sort says."""
    array, dim = as_array(tx, a), _plain(tx, axis)
    if places and not (_plain(tx, kind) in ("stable", "mergesort") or _plain(tx, stable)):
        graph_break("call of skipped function", "numpy.argsort() that is not stable (kind='stable')")
    tensor = array.tensor
    if dim is None:
        tensor, dim = tx.emit_method("reshape", [tensor, ConstantVariable(-1)], {}), -1
    found = tx.emit_method("sort", [tensor], {"dim": ConstantVariable(dim), "stable": ConstantVariable(True)})
    return ArrayVariable(list(tx.iterate(found))[places])


def _where(tx: Trace, condition: Variable, x: Variable | None = None, y: Variable | None = None) -> Variable:
    if x is None or y is None:
        graph_break("data-dependent operator", "numpy.where() of a condition alone")
    both = [x.realize(tx), y.realize(tx)]
    if not all(map(_is_operand, both)):
        graph_break("unknown operation", "numpy.where() of lists")
    kind = np.result_type(*(v.dtype if isinstance(v, ArrayVariable) else tx.known(v) for v in both))
    filled = [cast(tx, v.tensor, kind) if isinstance(v, ArrayVariable) else _filled(tx, v, kind) for v in both]
    holds = cast(tx, as_array(tx, condition).tensor, np.dtype("bool"))
    return ArrayVariable(tx.call_operator(OPERATORS["where"], [holds, *filled], {}))


def _filled(tx: Trace, number: Variable, kind: np.dtype) -> Any:
    """A number as a tensor without dimensions."""
    given = [TupleVariable([]), _number(tx, number, kind)]
    return tx.call_operator(OPERATORS["full"], given, _placed(tx, kind))


def _clip(tx: Trace, a: Variable, a_min: Variable = NONE, a_max: Variable = NONE, **named: Variable) -> Variable:
    low, high = (named.get(name, given) for name, given in (("min", a_min), ("max", a_max)))
    made = as_array(tx, a)
    for bound, function in ((low, np.maximum), (high, np.minimum)):
        if not (isinstance(bound, ConstantVariable) and bound.value is None):
            made = apply(tx, function, [made, bound])
    return made


def _norm(tx: Trace, x: Variable, ord: Variable = NONE, axis: Variable = NONE, keepdims: Variable = ConstantVariable(False)) -> Variable:
    if _plain(tx, ord) is not None:
        graph_break("call of skipped function", "numpy.linalg.norm() with an order")
    squares = apply(tx, np.square, [as_array(tx, x).method(tx, "astype", [ConstantVariable(np.dtype("float64"))], {})
                                    if as_array(tx, x).dtype.kind != "f" else x])
    return apply(tx, np.sqrt, [FUNCTIONS[np.sum](tx, squares, axis, keepdims=keepdims)])


def _einsum(tx: Trace, subscripts: Variable, *operands: Variable) -> Variable:
    arrays = [as_array(tx, operand) for operand in operands]
    kind = np.result_type(*(array.dtype for array in arrays))
    made: Any = tx.call_operator(OPERATORS["einsum"], [subscripts, *(cast(tx, array.tensor, kind) for array in arrays)], {})
    return ArrayVariable(made, scalar=not made.fake.shape)


def _cumsum(tx: Trace, a: Variable, axis: Variable = NONE) -> Variable:
    array, dim = as_array(tx, a), _plain(tx, axis)
    kind = np.cumsum(np.ones(1, array.dtype)).dtype
    tensor = cast(tx, array.tensor, kind)
    if dim is None:
        tensor, dim = tx.emit_method("reshape", [tensor, ConstantVariable(-1)], {}), 0
    return ArrayVariable(cast(tx, tx.emit_method("cumsum", [tensor, ConstantVariable(dim)], {}), kind))


def _method(tx: Trace, name: str, a: Variable, *args: Variable) -> Variable:
    """A tensor's method that does what NumPy's function does, with those arguments that are not None."""
    return ArrayVariable(tx.emit_method(name, [as_array(tx, a).tensor, *(v for v in args if not is_none(v))], {}))


def _array(tx: Trace, object: Variable, dtype: Variable = NONE, *, copy: Variable = ConstantVariable(True)) -> Variable:
    """An array of numbers known during capture, or a copy of one."""
    object = object.realize(tx)
    if isinstance(object, ArrayVariable):
        made = object if isinstance(dtype, ConstantVariable) and dtype.value is None else object.method(tx, "astype", [dtype], {})
        return made.method(tx, "copy", [], {}) if made is object and tx.truth(copy) else made
    kind = None if isinstance(dtype, ConstantVariable) and dtype.value is None else dtype_of(tx, dtype)
    return constant_array(tx, tx.checked(np.array, _plain(tx, object), kind))


def _asarray(tx: Trace, a: Variable, dtype: Variable = NONE) -> Variable:
    same = isinstance(a.realize(tx), ArrayVariable) and (tx.known(dtype) is None or dtype_of(tx, dtype) == as_array(tx, a).dtype)
    return a.realize(tx) if same else _array(tx, a, dtype)


MOST = 1 << 12


def constant_array(tx: Trace, value: Any) -> ArrayVariable:
    """A new array of known elements at each call."""
    if not isinstance(value, np.ndarray) or value.dtype not in DTYPES or value.size > MOST or (value.size and not np.isfinite(value).all()):
        graph_break("call of skipped function", "a function of NumPy that makes many elements, or others than finite numbers")
    placed = _placed(tx, value.dtype)
    shape = tx.literal(value.shape)
    if value.size and (value == value.flat[0]).all():
        return ArrayVariable(tx.call_operator(OPERATORS["full"], [shape, tx.literal(value.flat[0].item())], placed))
    flat: Any = tx.call_operator(OPERATORS["tensor"], [tx.literal(value.ravel().tolist())], placed)
    return ArrayVariable(tx.emit_method("reshape", [flat, shape], {}))


def _placed(tx: Trace, kind: np.dtype) -> Kwargs:
    """What says of a factory's tensor that it is an array: its dtype, and the CPU, whatever device is the default."""
    return {"dtype": tx.literal(torch_dtype(kind)), "device": tx.literal(CPU)}


def _made_of_numbers(function: Any) -> Callable[..., Variable]:
    def handler(tx: Trace, *args: Variable, **kwargs: Variable) -> Variable:
        return constant_array(tx, tx.checked(function, *(_plain(tx, a) for a in args), **{k: _plain(tx, v) for k, v in kwargs.items()}))

    return handler


def _like(function: Any) -> Callable[..., Variable]:
    def handler(tx: Trace, a: Variable, *args: Variable) -> Variable:
        array = as_array(tx, a)
        shape = tuple(map(int, array.tensor.fake.shape))
        return constant_array(tx, tx.checked(function, np.zeros(shape, array.dtype), *(_plain(tx, v) for v in args)))

    return handler


FUNCTIONS: dict[Any, Callable[..., Variable]] = {
    np.sum: _reduction(np.sum, "sum"), np.mean: _reduction(np.mean, "mean"), np.prod: _reduction(np.prod, "prod"),
    **dict.fromkeys((np.max, np.amax), _reduction(np.max, "amax")), **dict.fromkeys((np.min, np.amin), _reduction(np.min, "amin")),
    np.std: _reduction(np.std, "std"), np.var: _reduction(np.var, "var"), np.any: _reduction(np.any, "any"),
    np.all: _reduction(np.all, "all"), np.argmax: _reduction(np.argmax, "argmax"), np.argmin: _reduction(np.argmin, "argmin"),
    np.cumsum: _cumsum, np.where: _where, np.clip: _clip, np.dot: _dot, np.matmul: _product, np.array: _array, np.asarray: _asarray,
    np.concatenate: _on_tensors("cat", many=True), np.stack: _on_tensors("stack", many=True), np.expand_dims: _on_tensors("unsqueeze"),
    np.reshape: lambda tx, a, shape: as_array(tx, a).method(tx, "reshape", [shape], {}),
    np.transpose: lambda tx, a, axes=NONE: as_array(tx, a).method(tx, "transpose", [] if axes is NONE else [axes], {}),
    np.ascontiguousarray: lambda tx, a: ArrayVariable(tx.emit_method("contiguous", [as_array(tx, a).tensor], {}), scalar=False),
    np.copy: lambda tx, a: as_array(tx, a).method(tx, "copy", [], {}),
    np.ravel: lambda tx, a: _method(tx, "reshape", a, ConstantVariable(-1)),
    np.roll: lambda tx, a, shift, axis=NONE: _method(tx, "roll", a, shift, axis),
    np.squeeze: lambda tx, a, axis=NONE: _method(tx, "squeeze", a, axis),
    np.swapaxes: lambda tx, a, axis1, axis2: _method(tx, "transpose", a, axis1, axis2), np.broadcast_to: _on_tensors("broadcast_to"),
    np.linalg.norm: _norm, np.einsum: _einsum, np.outer: _outer, np.repeat: _repeat,
    np.sort: functools.partial(_sorted, places=False), np.argsort: functools.partial(_sorted, places=True),
    np.vstack: _on_tensors("vstack", many=True), np.hstack: _on_tensors("hstack", many=True), np.tile: _on_tensors("tile"),
    np.triu: _on_tensors("triu"), np.tril: _on_tensors("tril"), np.moveaxis: _on_tensors("movedim"),
    np.zeros_like: _like(np.zeros_like), np.ones_like: _like(np.ones_like), np.full_like: _like(np.full_like),
}  # fmt: skip
_OF_NUMBERS = (np.zeros, np.ones, np.full, np.arange, np.linspace, np.eye, np.identity)
CREATION: dict[Any, Callable[..., Variable]] = {
    np.array: _array, np.asarray: _asarray, **{function: _made_of_numbers(function) for function in _OF_NUMBERS},
}  # fmt: skip


def _key(tx: Trace, key: Variable) -> Variable:
    """An index, with tensors for arrays."""
    key = key.realize(tx)
    if isinstance(key, ArrayVariable):
        if key.scalar:
            graph_break("data-dependent operator", f"an index that is {key.describe()}")
        return key.tensor
    if isinstance(key, TupleVariable):
        return TupleVariable([_key(tx, item) for item in key.items])
    if isinstance(key, (ListVariable, RangeVariable)):
        return ListVariable([_key(tx, item) for item in tx.iterate(key)])
    if isinstance(key, (ConstantVariable, SliceVariable, SymVariable)):
        return key
    graph_break("unknown operation", f"an array[{key.describe()}]")


def _has_ellipsis(key: Variable) -> bool:
    if isinstance(key, TupleVariable):
        return any(map(_has_ellipsis, key.items))
    return isinstance(key, ConstantVariable) and key.value is ...


def wrap_array(tx: Any, value: np.ndarray, source: Source) -> ArrayVariable:
    """An existing array: the graph is given a tensor over its memory."""
    tx.guard_type(source, value)
    tx.guard("{1}({0})", source, constant_source(is_captured))
    given = source.derive("{1}({0})", constant_source(from_numpy))
    tx.plain_of[given] = source
    return ArrayVariable(tx.wrap(from_numpy(value), given), source)


def to_tensor(tx: Trace, name: str, args: Args, kwargs: Kwargs) -> Variable | None:
    """`torch.from_numpy(array)`, `torch.tensor(array)` and their kin; None for other operators."""
    known = name in ("from_numpy", "as_tensor", "tensor", "asarray") and not set(kwargs) - {"dtype", "device"}
    if not known or not isinstance(args[0], ArrayVariable):
        return None
    made: Variable = args[0].tensor
    if name == "tensor":
        made = tx.emit_method("clone", [made], {})
    names = dict(zip(("dtype", "device"), args[1:], strict=False)) | kwargs
    if (name == "tensor" or args[0].scalar) and default_device() != CPU:      # others stay where the array is
        names.setdefault("device", tx.literal(default_device()))
    return tx.emit_method("to", [made], names) if names else made
