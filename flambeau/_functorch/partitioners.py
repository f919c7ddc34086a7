"""Functions that cut a joint graph into forward and backward: for `aot_function(partition_fn=...)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..aot.compile import cut_joint
from ..fx import GraphModule, Node


def min_cut_rematerialization_partition(joint_module: GraphModule, _joint_inputs: Sequence[Any], compiler: str = "inductor", *,
                                        num_fwd_outputs: int) -> tuple[GraphModule, GraphModule]:
    """The forward and the backward graph: what lies between them is what is cheapest to keep."""
    return cut_joint(joint_module, recompute=True)


def default_partition(joint_module: GraphModule, _joint_inputs: Sequence[Any], *, num_fwd_outputs: int) -> tuple[GraphModule, GraphModule]:
    """The forward and the backward graph: what forward computes and backward needs is kept, not computed again."""
    return cut_joint(joint_module, recompute=False)


def _is_primal(node: Node) -> bool:
    """Whether a node of a joint graph is an input of the forward part."""
    return node.op == "placeholder" and node.name.startswith("primals")


def _is_tangent(node: Node) -> bool:
    """Whether a node of a joint graph is the gradient of a result."""
    return node.op == "placeholder" and node.name.startswith("tangents")


__all__ = ["default_partition", "min_cut_rematerialization_partition"]
