"""What passes share: names of targets, and a graph's order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node

CALLABLE_NODE_OPS = {"call_module", "call_function", "call_method"}


def get_node_target(submodules: Mapping[str, Any], node: Node) -> str:
    """What a node calls, by name: a module's class, a function with its module, a method's name."""
    if node.op not in CALLABLE_NODE_OPS:
        raise AssertionError(f"expected one of {', '.join(sorted(CALLABLE_NODE_OPS))}, got {node.op}")
    if node.op == "call_module":
        kind = type(submodules[str(node.target)])
        return f"{kind.__module__}.{kind.__qualname__}"
    if node.op == "call_method":
        return str(node.target)
    function: Any = node.target
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__name__', function)}"


def is_node_output_tensor(node: Node) -> bool:
    """Whether `meta["type"]` tells of a tensor."""
    kind = node.meta.get("type")
    return isinstance(kind, type) and hasattr(kind, "__torch_function__")


def legalize_graph(gm: GraphModule) -> GraphModule:
    """Bring the nodes into an order in which each comes after its inputs. RuntimeError for a cycle."""
    left = list(gm.graph.nodes)
    new, copies = Graph(), dict[Node, Node]()
    while left:
        ready = [node for node in left if all(source in copies for source in node._inputs)]
        ready = [node for node in ready if node.op != "output"] or ready
        if not ready:
            raise RuntimeError(f"Input graph has cycles, unable to add {[node.name for node in left]}")
        for node in ready:
            copies[node] = new.node_copy(node, copies.__getitem__)
        left = [node for node in left if node not in copies]
    gm.graph = new
    return gm


__all__ = ["CALLABLE_NODE_OPS", "get_node_target", "is_node_output_tensor", "legalize_graph"]
