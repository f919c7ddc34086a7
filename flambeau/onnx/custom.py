"""Translations of the user's: functions of onnxscript, whose operators are written as steps while they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core.dtypes import float32, int64
from ..core.tensor import Tensor
from .elementwise import Scalars
from .errors import OnnxExporterError
from .writer import NUMBERS, Value, Writer


class Symbolic(Value):
    """A value that Python's operators work on."""

    def __init__(self, value: Value, o: Writer) -> None:
        super().__init__(value.name, value.dtype, value.shape)
        self._o = o


def _python(scalar: str, reflected: bool = False) -> Callable:
    def method(self: Symbolic, *other: Any) -> Symbolic:
        operands = (*other, self) if reflected else (self, *other)
        return Symbolic(getattr(Scalars(self._o), scalar)(*operands), self._o)

    return method


for _name, _scalar in (("add", "add"), ("sub", "sub"), ("mul", "mul"), ("truediv", "truediv"), ("pow", "pow"), ("mod", "remainder")):
    setattr(Symbolic, f"__{_name}__", _python(_scalar))
    setattr(Symbolic, f"__r{_name}__", _python(_scalar, True))
for _name in ("neg", "lt", "le", "gt", "ge"):
    setattr(Symbolic, f"__{_name}__", _python(_name))


class Evaluator:
    """Answers onnxscript's operators with steps of a graph."""

    def __init__(self, o: Writer) -> None:
        self.o = o

    def eval_op(self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """One step; a constant for Constant."""
        if op.name == "Constant":
            (name, value), = [item for item in kwargs.items() if item[1] is not None]
            kinds = {"value_float": float32, "value_floats": float32, "value_int": int64, "value_ints": int64}
            return Symbolic(self.o.constant(_array(value) if name == "value" else value, kinds.get(name)), self.o)
        schema = op.op_schema
        count = max(int(schema.min_output), 1) if schema is not None else 1
        kind = next(d for d, n in NUMBERS.items() if n == kwargs["to"]) if op.name == "Cast" else None
        made = self.o.step(op.name, *args, _domain=op.opset.domain, _outputs=count, _dtype=kind, **kwargs)
        if op.opset.domain:
            self.o.domains[op.opset.domain] = op.opset.version
        return tuple(Symbolic(m, self.o) for m in made) if count > 1 else Symbolic(made, self.o)

    def eval_function(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A function's own operators."""
        return function.function(*args, **kwargs)


def _array(value: Any) -> Any:
    """The elements of a TensorProto."""
    from onnx import numpy_helper
    return numpy_helper.to_array(value)


def as_form(function: Callable | Sequence[Callable]) -> Callable:
    """A translation of the user's as a row of the table: its tensors are Values, its `op.Add(...)` steps."""
    if isinstance(function, (list, tuple)):
        function = function[0]
    if not callable(function):
        raise TypeError(f"custom_translation_table has a {type(function).__name__} in the place of a function")

    def write(o: Writer, *args: Any, **kwargs: Any) -> Any:
        try:
            from onnxscript import evaluator
        except ImportError as error:
            raise OnnxExporterError("custom_translation_table= needs the package onnxscript: pip install onnxscript") from error
        given = [Symbolic(a, o) if isinstance(a, Value) else a for a in args]
        with evaluator.default_as(Evaluator(o)):
            made = getattr(function, "function", function)(*given, **kwargs)
        return _typed(made, o.out)

    return write


class SymbolicGraph:
    """What the first argument of a symbolic function is: `g.op("domain::Name", *inputs, alpha_f=1.0)` writes a step."""

    def __init__(self, o: Writer) -> None:
        self._o = o

    def op(self, name: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        """A step, of ONNX's own domain if the name has none; attributes end with `_i`, `_f`, `_s` or `_t`, for their kind."""
        domain, _, op = name.rpartition("::")
        if op == "Constant":
            return self._o.constant(_elements(attributes["value_t"]))
        plain: dict[str, Any] = {key[:-2]: list(x) if isinstance(x, tuple) else x for key, x in attributes.items()}
        return self._o.step(op, *inputs, _domain="" if domain == "onnx" else domain, _outputs=outputs, **plain)


def _elements(x: Any) -> Any:
    return x.numpy() if isinstance(x, Tensor) else x


def as_symbolic(function: Callable) -> Callable:
    """A function that `register_custom_op_symbolic` got as a row of the table."""
    return lambda o, *args, **kwargs: _typed(function(SymbolicGraph(o), *args, **kwargs), o.out)


def _typed(made: Any, fake: Any) -> Any:
    """What comes out is of the dtypes that the operator gives."""
    if isinstance(made, (tuple, list)):
        return tuple(map(_typed, made, fake))
    return Value(made.name, fake.dtype)
