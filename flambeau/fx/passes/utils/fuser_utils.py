"""Sets of nodes become submodules."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence

from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.fx.passes.split_module import extract_graph
from flambeau.fx.passes.tools_common import legalize_graph


def topo_sort(nodes: Iterable[Node]) -> list[Node]:
    """Nodes of one graph, in its order."""
    wanted = set(nodes)
    return [node for node in next(iter(wanted)).graph.nodes if node in wanted] if wanted else []


def validate_partition(partition: Iterable[Node]) -> bool:
    """Whether the nodes can become one: nothing outside depends on them and is needed by them."""
    inside = set(partition)
    stack = [user for node in inside for user in node.users if user not in inside]
    seen = set(stack)
    while stack:
        for user in stack.pop().users:
            if user in inside:
                return False
            if user not in seen:
                seen.add(user)
                stack.append(user)
    return True


def fuse_by_partitions(gm: GraphModule, partitions: Sequence[Iterable[Node]], prefix: str = "fused_") -> GraphModule:
    """Replace each set of nodes by a call of the submodule `PREFIXn` that does the same, in place."""
    for number, partition in enumerate(partitions):
        nodes = topo_sort(partition)
        if not validate_partition(nodes):
            raise RuntimeError(f"the partition of {[node.name for node in nodes]} would make the graph cyclic")
        inside = set(nodes)
        inputs = list(dict.fromkeys(source for node in nodes for source in node._inputs if source not in inside))
        outputs = [node for node in nodes if any(user not in inside for user in node.users)]
        name = f"{prefix}{number}"
        setattr(gm, name, GraphModule(gm, extract_graph(nodes, inputs, outputs), name))
        with gm.graph.inserting_after(nodes[-1]):
            call = gm.graph.call_module(name, tuple(inputs))
        _take_over(gm, call, outputs, inside)
        for node in reversed(nodes):
            gm.graph.erase_node(node)
    return legalize_graph(gm)


def _take_over(gm: GraphModule, call: Node, outputs: Sequence[Node], inside: set[Node]) -> None:
    """Let the submodule's call give the outputs."""
    call.meta["val"] = outputs[0].meta.get("val") if len(outputs) == 1 else tuple(node.meta.get("val") for node in outputs)
    last = call
    for i, node in enumerate(outputs):
        new = call
        if len(outputs) > 1:
            with gm.graph.inserting_after(last):
                new = last = gm.graph.call_function(operator.getitem, (call, i))
            new.meta = dict(node.meta)
        for user in list(node.users):
            if user not in inside and user is not new:
                user.replace_input_with(node, new)


__all__ = ["fuse_by_partitions", "topo_sort", "validate_partition"]
