"""Constant folding: what needs no input of a module is computed once, by a submodule, and kept as a parameter."""

from __future__ import annotations

from collections.abc import Callable
from operator import getitem
from typing import Any

from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.fx.passes.split_module import extract_graph
from flambeau.fx.tracer import symbolic_trace

FOLDED = "_FX_CONST_FOLDED_ATTRS"


class FoldedGraphModule(GraphModule):
    """A module one part of which, `const_subgraph_module`, depends on no input: it runs before the first call, and gives the attribute
    `fx_const_folded_attrs_name` (a tensor, or a tuple of several)."""

    const_subgraph_module: GraphModule | None
    fx_const_folded_attrs_name: str | None = None
    has_folding_been_run = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.has_folding_been_run:
            self.run_folding()
        return super().__call__(*args, **kwargs)

    def run_folding(self) -> None:
        """Compute the constant part."""
        if self.const_subgraph_module is not None and self.fx_const_folded_attrs_name is not None:
            self.has_folding_been_run = True
            setattr(self, self.fx_const_folded_attrs_name, self.const_subgraph_module())


def get_unique_attr_name_in_module(mod_traced: Any, name: str) -> str:
    """`name`, or with a number behind it the first one that the module has no attribute of."""
    name = name if not name[0].isdigit() else f"_{name}"
    tried, number = name, 0
    while hasattr(mod_traced, tried):
        number += 1
        tried = f"{name}_{number}"
    return tried


def _constant_nodes(gm: GraphModule, skip: Callable[[Node], bool]) -> list[Node]:
    """The calls that depend on attributes alone, and at least on one."""
    found: dict[Node, None] = {}
    for node in gm.graph.nodes:
        if node.op not in ("call_function", "call_method", "call_module") or skip(node) or node.is_impure() or not node._inputs:
            continue
        if all(source.op == "get_attr" or source in found for source in node._inputs):
            found[node] = None
    return list(found)


def split_const_subgraphs(module: Any, skip_folding_node_fn: Callable[[Node], bool] | None = None,
                          device_for_folded_attrs: str = "cpu") -> FoldedGraphModule:
    """The module (it is traced, unless it was) with its constant part apart. Calls that `skip_folding_node_fn` names, and what has effects,
    stay where they are."""
    del device_for_folded_attrs     # what is computed lies where its operands do
    gm = module if isinstance(module, GraphModule) else symbolic_trace(module)
    graph = Graph()
    kept: dict[Node, Node] = {}
    output = graph.graph_copy(gm.graph, kept)
    graph.output(output)
    made = FoldedGraphModule(gm, graph, type(gm).__name__)
    inside = _constant_nodes(made, skip_folding_node_fn or (lambda node: False))
    made.const_subgraph_module = None
    leaving = [node for node in inside if any(user not in inside for user in node.users)]
    if not leaving:
        return made
    attributes = list(dict.fromkeys(source for node in inside for source in node._inputs if source.op == "get_attr"))
    made.const_subgraph_module = GraphModule(gm, extract_graph([*attributes, *inside], [], leaving), "const_subgraph")
    name = made.fx_const_folded_attrs_name = get_unique_attr_name_in_module(made, FOLDED)
    setattr(made, name, None)
    with made.graph.inserting_before(inside[0]):
        folded = made.graph.get_attr(name)
        parts = [made.graph.call_function(getitem, (folded, i)) for i in range(len(leaving))] if len(leaving) > 1 else [folded]
    for node, part in zip(leaving, parts, strict=True):
        node.replace_all_uses_with(part)
    for node in [*reversed(inside), *attributes]:
        if not node.users:
            made.graph.erase_node(node)
    made.recompile()
    return made


__all__ = ["FoldedGraphModule", "get_unique_attr_name_in_module", "split_const_subgraphs"]
