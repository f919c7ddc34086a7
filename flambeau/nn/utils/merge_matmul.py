"""Products with one right-hand side become one product of what is stacked on the left."""

from __future__ import annotations

from collections.abc import Sequence
from operator import getitem
from typing import Any

from ...core.tensor import Tensor
from ...fx.graph_module import GraphModule
from ...fx.node import Node
from ...fx.passes.tools_common import legalize_graph
from ...fx.tracer import symbolic_trace
from ...ops.joining import cat
from ...ops.linalg.products import matmul


def split_result_tensors(result: Tensor, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The rows of `result` that belong to each input: as many as it has."""
    return tuple(result.split([x.shape[0] for x in inputs]))


def may_depend_on(a: Node, b: Node, search_depth: int = 6) -> bool:
    """Whether `a` is computed from `b`; yes, where that has not been found out within `search_depth` steps."""
    if a is b:
        return True
    if not a.all_input_nodes:
        return False
    return search_depth == 0 or any(may_depend_on(n, b, search_depth - 1) for n in a.all_input_nodes)


def are_nodes_independent(nodes: Sequence[Node]) -> bool:
    """Whether none of these is computed from another."""
    return not any(may_depend_on(a, b) for a in nodes for b in nodes if a is not b)


def merge_matmul(in_mod: Any) -> GraphModule:
    """`in_mod` traced, with one `matmul` for all that multiply matrices by the same operand and do not depend on each other."""
    gm = symbolic_trace(in_mod)
    products: dict[Any, list[Node]] = {}
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target is matmul and len(node.args) == 2 and isinstance(node.args[1], Node):
            right = node.args[1]
            products.setdefault(("get_attr", right.target) if right.op == "get_attr" else right, []).append(node)
    for group in products.values():
        if len(group) > 1 and are_nodes_independent(group):
            _merge(gm, group)
    legalize_graph(gm)
    gm.recompile()
    return gm


def _merge(gm: GraphModule, group: Sequence[Node]) -> None:
    lefts = [node.args[0] for node in group]
    with gm.graph.inserting_before(group[0]):
        stacked = gm.graph.call_function(cat, (lefts,))
        product = gm.graph.call_function(matmul, (stacked, group[0].args[1]))
        parts = gm.graph.call_function(split_result_tensors, (product, lefts))
        for i, node in enumerate(group):
            node.replace_all_uses_with(gm.graph.call_function(getitem, (parts, i)))
    for node in group:
        gm.graph.erase_node(node)
