"""Graphs of ATen's overloads as TorchScript's text, which torch parses: `y = torch.add(x, 1, alpha=2)`."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from ..core.device import device
from ..core.dtypes import dtype
from ..core.memory_format import layout, memory_format
from ..core.schema import FunctionSchema
from ..export.record import set_grad_enabled
from ..fx import Graph, Node
from ..ops.aten import Overload
from ..ops.aten_schemas import schemas
from ..ops.custom import CustomOperator
from ..ops.script import GIVES_SEVERAL, number_of
from .module import ScriptFunction

RESERVED = frozenset(("torch", "ops", "self", "CONSTANTS", "annotate", "inf", "nan", "range", "print", "fork", "getattr", "int", "float",
    "bool",
                      "str", "complex", "uninitialized", "unchecked_cast", "isinstance", "len", "min", "max", "abs", "None", "True",
                      "False"))
_NAMES = {"sym_size": "size", "sym_numel": "numel", "sym_stride": "stride", "sym_storage_offset": "storage_offset",
    "lift_fresh_copy": "clone",
          "lift_fresh": "detach"}
_PYTHONS = {operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.floordiv: "floordiv", operator.mod: "remainder",
            operator.neg: "neg"}
_OF_TYPE: dict[str, Callable[[Any], Any]] = {"float": float, "bool": bool}
_TYPES = {"SymInt": "int", "Tensor?": "Optional[Tensor]", "Scalar": "number"}


def member(of: str, name: str) -> str:
    """`of.name`, where the name may be a number."""
    return f"{of}.{name}" if name.isidentifier() else f"getattr({of}, {json.dumps(name)})"


class Printer:
    """Prints one graph; `names` says what its inputs are called, or computed by."""

    def __init__(self, names: Mapping[Node, str]) -> None:
        self.names = dict(names)
        self.used = {*RESERVED, *names.values()}
        self.lines: list[str] = []

    def graph(self, graph: Graph) -> list[str]:
        """The lines of its statements."""
        for node in graph.nodes:
            if node.op == "call_function" and node.target is not set_grad_enabled:
                self.lines.append(f"{self._name(node)} = {self.call(node)}")
        return self.lines

    def _name(self, node: Node) -> str:
        name = node.name
        while name in self.used:
            name += "_"
        self.used.add(name)
        self.names[node] = name
        return name

    def call(self, node: Node) -> str:
        """What a node computes."""
        target: Any = node.target
        if target is operator.getitem:
            return f"{self.value(node.args[0])}[{node.args[1]}]"
        if target in _PYTHONS:
            return f"torch.{_PYTHONS[target]}({', '.join(map(self.value, node.args))})"
        if isinstance(target, Overload):
            types = {a.name: a.kind for a in target._schema.arguments}
            arguments = [a for a in target._schema.arguments if not a.kwarg_only]
            args = list(node.args)
            if self._ambiguous(target, len(args), set(node.kwargs)):
                args += [a.default for a in arguments[len(args):]]
            named = next((at for at, a in enumerate(arguments) if a.kind.startswith("ScalarType")),
                len(arguments))     # not to be taken for sizes
            parts = [f"{a.name}={self.value(arg, a.kind)}" if at >= named else self.value(arg, a.kind)
                     for at, (arg, a) in enumerate(zip(args, arguments))]
            parts += [f"{key}={self.value(arg, types[key])}" for key, arg in node.kwargs.items()]
            text = f"torch.{_NAMES.get(target.__name__, target.__name__)}({', '.join(parts)})"
            several = target.__name__ in GIVES_SEVERAL and not isinstance(node.meta.get("val"), (tuple, list))
            return f"({text})[0]" if several else text
        if isinstance(target, ScriptFunction):
            parts = [*map(self.value, node.args), *(f"{key}={self.value(arg)}" for key, arg in node.kwargs.items())]
            return f"{target.qualified_name}({', '.join(parts)})"
        if isinstance(target, CustomOperator):
            parts = [*map(self.value, node.args), *(f"{key}={self.value(arg)}" for key, arg in node.kwargs.items())]
            return f"ops.{target.namespace}.{target.__name__}({', '.join(parts)})"
        lines = node.meta.get("stack") or ()
        where = f" (at {lines[-1][0]}:{lines[-1][1]}: {lines[-1][3]})" if lines else ""
        raise NotImplementedError(f"torch.jit.trace: {getattr(target, '__name__', target)} is no operator that TorchScript has{where}; "
                                  "export the module with torch.export, or write that part with other operators")

    @staticmethod
    def _ambiguous(target: Overload, count: int, keys: set[str]) -> bool:
        """Whether another overload takes arguments of these types and names as well: a text does not say which one is meant."""
        def leading(schema: FunctionSchema) -> list[str]:
            return [a.kind for a in schema.arguments if not a.kwarg_only][:count]

        mine = target._schema
        return any(leading(other) == leading(mine) and keys <= {a.name for a in other.arguments} and all(
            a.has_default_value() for a in other.arguments[count:] if a.name not in keys)
            for other in schemas()[mine.operator] if other is not mine)

    def value(self, value: Any, kind: str = "") -> str:
        """An argument of this type."""
        kind = kind.removesuffix("?")
        if isinstance(value, Node):
            return self.names[value]
        if isinstance(value, (tuple, list)):
            element, _, _ = kind.partition("[")
            inner = f"[{', '.join(self.value(v, element) for v in value)}]"
            plain = value and not (element.endswith("?") or any(v is None for v in value))
            return inner if plain or not kind else f"annotate(List[{_TYPES.get(element, element)}], {inner})"
        if isinstance(value, (dtype, layout, memory_format)):
            return str(number_of(value))
        if isinstance(value, device) or (kind == "Device" and value is not None):
            return f"torch.device({json.dumps(str(value))})"
        if isinstance(value, (bool, int, float)) and kind in _OF_TYPE:
            value = _OF_TYPE[kind](value)
        return literal(value)


def literal(value: Any) -> str:
    """A number, a text or None as it is written."""
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, float):
        return "nan" if math.isnan(value) else repr(value) if math.isfinite(value) else "inf" if value > 0 else "-inf"
    if value is None or isinstance(value, (bool, int, complex)):
        return repr(int(value) if type(value) is not bool and isinstance(value, int) else value)
    raise NotImplementedError(f"TorchScript has no constant of {type(value).__name__}")
