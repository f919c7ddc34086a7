"""Splitting by tags."""

from __future__ import annotations

from collections.abc import Sequence

from flambeau.fx.graph_module import GraphModule
from flambeau.fx.passes.split_module import split_module


def split_by_tags(gm: GraphModule, tags: Sequence[str], return_fqn_mapping: bool = False, return_tuple: bool = False) -> GraphModule:
    """A submodule for each tag, named by it, of the nodes whose `tag` attribute it is."""
    if return_fqn_mapping or return_tuple:
        raise NotImplementedError("split_by_tags(return_fqn_mapping=..., return_tuple=...) is not implemented; leave them out")
    order = {tag: i for i, tag in enumerate(tags)}
    split = split_module(gm, gm, lambda node: order[node.tag])  # type: ignore[attr-defined]
    for tag, number in order.items():
        if hasattr(split, f"submod_{number}"):
            setattr(split, tag, getattr(split, f"submod_{number}"))
            for node in split.graph.nodes:
                if node.op == "call_module" and node.target == f"submod_{number}":
                    node.target = tag
            delattr(split, f"submod_{number}")
    split.recompile()
    return split


__all__ = ["split_by_tags"]
