"""The graph of a trace as tools that count operations read it (`torch.jit._get_trace_graph`): nodes of ATen's operators with sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..core.tensor import Tensor
from ..fx import Graph, Node
from ..ops.aten import Overload


class TracedType:
    """The type of a value: `kind()`, and of a tensor its `sizes()`."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def kind(self) -> str:
        """TensorType, IntType, ListType ..."""
        value = self.value
        if isinstance(value, Tensor):
            return "TensorType"
        names = {bool: "BoolType", int: "IntType", float: "FloatType", str: "StringType", type(None): "NoneType", list: "ListType",
                 tuple: "ListType"}
        return next((name for kind, name in names.items() if isinstance(value, kind)), "AnyType")

    def sizes(self) -> list[int] | None:
        """The sizes of a tensor."""
        return [int(n) for n in self.value.shape] if isinstance(self.value, Tensor) else None

    def scalarType(self) -> str | None:
        """The dtype of a tensor, as TorchScript names it."""
        return {"float32": "Float", "float64": "Double", "int64": "Long", "int32": "Int", "float16": "Half", "bool": "Bool"}.get(
            self.value.dtype.name) if isinstance(self.value, Tensor) else None

    def __str__(self) -> str:
        return f"{self.scalarType()}({', '.join(map(str, self.sizes() or ()))})" if isinstance(self.value, Tensor) else self.kind()


class TracedValue:
    """An input or output of a node."""

    def __init__(self, name: str, value: Any, node: TracedNode | None = None) -> None:
        self._name, self._value, self._node = name, value, node

    def debugName(self) -> str:
        """Its name."""
        return self._name

    def type(self) -> TracedType:
        """Its type."""
        return TracedType(self._value)

    def isCompleteTensor(self) -> bool:
        """Whether its sizes are known."""
        return isinstance(self._value, Tensor)

    def toIValue(self) -> Any:
        """The number, list or text that it is; None of a tensor."""
        return None if isinstance(self._value, Tensor) else self._value

    def node(self) -> TracedNode | None:
        """What gives it."""
        return self._node


class TracedNode:
    """A call of an operator."""

    def __init__(self, kind: str, inputs: list[TracedValue], outputs: list[TracedValue], scope: str) -> None:
        self._kind, self._inputs, self._outputs, self._scope = kind, inputs, outputs, scope

    def kind(self) -> str:
        """`aten::NAME`."""
        return self._kind

    def inputs(self) -> Iterator[TracedValue]:
        """Its arguments, those that were left out included."""
        return iter(self._inputs)

    def outputs(self) -> Iterator[TracedValue]:
        """What it gives."""
        return iter(self._outputs)

    def attributeNames(self) -> list[str]:
        """None: what is no tensor is an argument."""
        return []

    def inputsSize(self) -> int:
        """How many arguments it has."""
        return len(self._inputs)

    def scopeName(self) -> str:
        """The scopes that were pushed around it, with slashes between them."""
        return self._scope

    def __str__(self) -> str:
        made = ", ".join(f"%{v.debugName()} : {v.type()}" for v in self._outputs)
        return f"{made} = {self._kind}({', '.join(f'%{v.debugName()}' for v in self._inputs)})"


class TracedGraph:
    """The nodes of a trace in order, and its inputs."""

    def __init__(self, graph: Graph, names: Mapping[Node, str], outputs: Sequence[Node | None]) -> None:
        self.values: dict[Node, TracedValue] = {}
        self._inputs: list[TracedValue] = []
        self._nodes: list[TracedNode] = []
        self.parts: dict[Node, list[TracedValue]] = {}
        for node in graph.nodes:
            if node.op == "placeholder":
                made = self.values[node] = TracedValue(names.get(node, node.name), node.meta.get("given"))
                self._inputs.append(made)
            elif node.op == "call_function":
                self._add(node)
        self._outputs = [self.values[node] for node in outputs if node is not None]

    def _add(self, node: Node) -> None:
        target: Any = node.target
        if getattr(target, "__name__", "") == "getitem" and node.args[0] in self.parts:
            self.values[node] = self.parts[node.args[0]][node.args[1]]
            return
        name, arguments = getattr(target, "__name__", str(target)), [*node.args, *node.kwargs.values()]
        if isinstance(target, Overload):
            given = target._schema.bind(node.args, node.kwargs)
            arguments = [given.get(a.name, a.default) for a in target._schema.arguments]
            if name.removeprefix("conv_transpose").removeprefix("conv") in ("1d", "2d", "3d"):
                name, arguments = "_convolution", self._convolution(name, given)
        val = node.meta.get("val")
        made = TracedNode(f"aten::{name}", [self._value(a) for a in arguments], [], node.meta.get("scope", ""))
        several: list[Any] | None = list(val) if isinstance(val, (tuple, list)) else None
        outputs = [TracedValue(node.name, val, made)] if several is None else [
            TracedValue(f"{node.name}.{at}", v, made) for at, v in enumerate(several)]
        made._outputs = outputs
        self.parts[node] = outputs
        self.values[node] = outputs[0]
        self._nodes.append(made)

    @staticmethod
    def _convolution(name: str, given: Mapping[str, Any]) -> list[Any]:
        """The arguments of the one operator that all convolutions are: (input, weight, bias, stride, padding, dilation, transposed,
        output_padding, groups)."""
        n = int(name[-2])
        each = {key: given.get(key, default) for key, default in (("stride", 1), ("padding", 0), ("dilation", 1), ("output_padding", 0))}
        stride, padding, dilation, added = ([v] * n if isinstance(v, int) else v for v in each.values())
        return [given["input"], given["weight"], given.get("bias"), stride, padding, dilation, "transpose" in name, added,
                given.get("groups", 1)]

    def _value(self, argument: Any) -> TracedValue:
        if isinstance(argument, Node):
            return self.values[argument]
        if isinstance(argument, (list, tuple)) and any(isinstance(a, Node) for a in argument):
            parts = [self._value(a) for a in argument]
            made = TracedNode("prim::ListConstruct", parts, [], "")
            made._outputs = [TracedValue("list", [p._value for p in parts], made)]
            return made._outputs[0]
        return TracedValue("constant", argument)

    def nodes(self) -> Iterator[TracedNode]:
        """Its nodes."""
        return iter(self._nodes)

    def inputs(self) -> Iterator[TracedValue]:
        """What the module is given, and its parameters and buffers."""
        return iter(self._inputs)

    def outputs(self) -> Iterator[TracedValue]:
        """What the module gives."""
        return iter(self._outputs)

    def __str__(self) -> str:
        return "\n".join(["graph:", *(f"  {node}" for node in self._nodes)])
