"""Sizes of what nodes hold and give, and other calls in the places of some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node, Target
from flambeau.fx.passes.shape_prop import ShapeProp, TensorMetadata


class size_bytes(NamedTuple):
    """Bytes of what a node gives, and of that and the parameters and buffers that it holds."""

    output_size: int
    total_size: int


def replace_target_nodes_with(fx_module: GraphModule, old_op: str, old_target: Target, new_op: str, new_target: Target) -> None:
    """Call `new_target` wherever `old_target` is called, with the same arguments."""
    for node in fx_module.graph.nodes:
        if (node.op, node.target) == (old_op, old_target):
            node.op, node.target = new_op, new_target
    fx_module.recompile()


def get_tensor_meta(node: Node) -> Any:
    """What `ShapeProp` has noted of a node; RuntimeError if it hasn't run."""
    found = node.meta.get("tensor_meta")
    if found is None:
        raise RuntimeError(f"Node {node} has no tensor metadata associated with it! Check that shape propagation has run.")
    return found


def get_size_of_node(fx_module: GraphModule, node: Node) -> size_bytes:
    """The sizes of a node after shape propagation."""
    held = 0
    if node.op == "call_module":
        module = fx_module.get_submodule(str(node.target))
        held = sum(t.numel() * t.itemsize for t in (*module.parameters(), *module.buffers()))
    given = _bytes(get_tensor_meta(node))
    return size_bytes(given, held + given)


def _bytes(meta: Any) -> int:
    if not isinstance(meta, TensorMetadata):
        return sum(map(_bytes, meta)) if isinstance(meta, (tuple, list)) else 0
    count = meta.dtype.itemsize
    for size in meta.shape:
        count *= size
    return count


def get_size_of_all_nodes(fx_module: GraphModule, args: Sequence[Any] | None = None) -> None:
    """Give each node but the output its `size_bytes`; with examples `args` shapes are propagated first."""
    if args is not None:
        ShapeProp(fx_module).propagate(*args)
    for node in fx_module.graph.nodes:
        if node.op == "output":
            break
        node.size_bytes = get_size_of_node(fx_module, node)     # type: ignore[attr-defined]


__all__ = ["get_size_of_all_nodes", "get_size_of_node", "get_tensor_meta", "replace_target_nodes_with", "size_bytes"]
