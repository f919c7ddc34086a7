"""Graphs of primitives as graphs of ATen's overloads, for compilers that look for `torch.ops.aten.add.Tensor`, and back.

What a primitive is called in ATen is told where modes of `__torch_dispatch__` are told it (ops/wrappers.py, the records' `aten`), so there
is no table here. What ATen has no overload of stays as it is.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from flambeau.aot import trace
from flambeau.aot.sizes import SizeNodes
from flambeau.core import dispatch
from flambeau.core.expr import free_variables, is_var
from flambeau.core.symbolic import SymFloat, SymInt
from flambeau.core.tensor import Tensor
from flambeau.fx import Graph, GraphModule, Node, map_aggregate, map_arg
from flambeau.ops import aten
from flambeau.ops.custom import CustomOperator
from flambeau.ops.registry import CompositeRecord, Primitive
from flambeau.ops.wrappers import in_aten

_SIZE = aten.overload_named("sym_size.int")


def to_aten(gm: GraphModule) -> GraphModule:
    """The graph with overloads of ATen's as its targets."""
    return _Writer(gm).write()


def to_primitives(gm: GraphModule, examples: Sequence[Any]) -> GraphModule:
    """The graph with primitives as its targets, on inputs like the placeholders' values, or else the examples."""
    if not any(isinstance(node.target, (aten.AtenOperator, CustomOperator)) for node in gm.graph.nodes):
        return gm
    given = [node.meta.get("val", example) for node, example in
             zip([n for n in gm.graph.nodes if n.op == "placeholder"], examples, strict=True)]
    return trace.make_fx(gm.forward)(*given)


class _Writer:
    def __init__(self, gm: GraphModule) -> None:
        self.gm, self.graph = gm, Graph()
        self.new: dict[Node, Any] = {}
        self.values: dict[Node, Any] = {}       # a tensor of its own for each node
        self.nodes: dict[int, Node] = {}        # by tensor
        self.symbols: dict[str, Node] = {}
        self.shown: dict[str, tuple[Node, int]] = {}       # which input's size a symbol is
        self.sizes = SizeNodes(self.graph, self.symbols)

    def write(self) -> GraphModule:
        """The new graph."""
        for node in self.gm.graph.nodes:
            self._enter(node, self._copy(node))
        self.graph.meta = dict(self.gm.graph.meta)
        self.graph.eliminate_dead_code()
        return GraphModule(self.gm, self.graph, self.gm._get_name())

    def _enter(self, node: Node, new: Node | tuple) -> None:
        """From now on `new` stands for `node`; a tuple for one of several results, whose parts come later."""
        self.new[node] = new
        if isinstance(new, tuple):
            return
        new.meta = dict(node.meta)
        value = node.meta.get("val")
        self.values[node] = apart = _stripped(value)
        if isinstance(apart, Tensor):
            self.nodes[id(apart)] = new
        if isinstance(value, SymInt) and is_var(value.expr):
            self.symbols.setdefault(str(value), new)
        if node.op == "placeholder" and isinstance(value, Tensor):
            self.shown |= {str(size): (new, dim) for dim, size in enumerate(value.shape) if isinstance(size, SymInt)}

    def _copy(self, node: Node) -> Node | tuple:
        if node.op == "call_method" and node.target == "size" and len(node.args) == 2:
            return self.graph.call_function(_SIZE, map_arg(node.args, self.new.__getitem__))
        if node.target is operator.getitem and isinstance(parts := self.new[node.args[0]], tuple):
            return parts[node.args[1]]
        if node.op == "call_function" and isinstance(node.target, (Primitive, CompositeRecord)):
            args = map_arg(node.args, self.values.__getitem__)
            with dispatch.grad_enabled(False):
                calls, result = in_aten(node.target, args)
            if calls and all(map(self._is_known, calls)):
                made = self._calls(calls)
                return tuple([made[step.which] for step in result]) if isinstance(result, tuple) else made[result.which]
        return self.graph.node_copy(node, self.new.__getitem__)

    def _is_known(self, call: tuple) -> bool:
        leaves: list[Any] = []
        map_aggregate(call[1:], leaves.append)
        return all(id(leaf) in self.nodes for leaf in leaves if isinstance(leaf, Tensor))

    def _calls(self, calls: list[tuple]) -> list[Node]:
        """The nodes of several calls."""
        made: list[Node] = []
        values: list[Any] = []
        for target, given, named in calls:
            args, kwargs = (map_aggregate(part, lambda a: self._argument(a, made)) for part in (tuple(given), named))
            made.append(self.graph.call_function(target, args, kwargs, name=target.__name__))
            if len(calls) > 1:
                with dispatch.grad_enabled(False):
                    values.append(target(*_filled(given, values), **_filled(named, values)))
                made[-1].meta["val"] = _stripped(values[-1])
        return made

    def _argument(self, a: Any, made: list[Node]) -> Any:
        if isinstance(a, aten.Step):
            return made[a.which]
        if isinstance(a, Tensor):
            return self.nodes[id(a)]
        if isinstance(a, SymInt):
            for name in free_variables(a.expr) - self.symbols.keys() & self.shown.keys():
                self.symbols[name] = self.graph.call_function(_SIZE, self.shown[name])
                self.symbols[name].meta["val"] = self.shown[name][0].meta["val"].shape[self.shown[name][1]]
        return self.sizes.of(a) if isinstance(a, (SymInt, SymFloat)) else a


def _filled(given: Any, values: list[Any]) -> Any:
    return map_aggregate(given, lambda a: values[a.which] if isinstance(a, aten.Step) else a)


def _stripped(value: Any) -> Any:
    return map_aggregate(value, lambda v: trace.stripped(v) if isinstance(v, Tensor) else v)
