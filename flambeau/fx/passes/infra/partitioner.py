"""Partitions of what a backend supports, as large as they can be without making the graph cyclic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.fx.passes.operator_support import OperatorSupportBase
from flambeau.fx.passes.tools_common import CALLABLE_NODE_OPS
from flambeau.fx.passes.utils.fuser_utils import fuse_by_partitions, validate_partition


class Partition:
    """Some nodes of a graph."""

    def __init__(self, id: int | None = None, nodes: Iterable[Node] | None = None) -> None:
        self.id = id
        self.nodes: dict[Node, None] = dict.fromkeys(nodes or ())

    def __repr__(self) -> str:
        return str(list(self.nodes))

    def add_node(self, node: Node) -> None:
        """One more."""
        self.nodes[node] = None

    def remove_node(self, node: Node) -> None:
        """One less."""
        del self.nodes[node]

    def size(self) -> int:
        """How many."""
        return len(self.nodes)


class CapabilityBasedPartitioner:
    """Finds the partitions of supported nodes and makes submodules of them."""

    def __init__(self, graph_module: GraphModule, operator_support: OperatorSupportBase, allows_single_node_partition: bool = False,
                 non_compute_ops: Sequence[str] | None = None, allowed_single_node_partition_ops: Sequence[str] | None = None) -> None:
        self.graph_module, self.operator_support = graph_module, operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops = set(non_compute_ops or ())
        self.allowed_single_node_partition_ops = set(allowed_single_node_partition_ops or ())

    def _is_supported(self, node: Node, modules: Mapping[str, Any]) -> bool:
        return node.op in CALLABLE_NODE_OPS and self.operator_support.is_node_supported(modules, node)

    def propose_partitions(self) -> list[Partition]:
        """The partitions, each of which can become a submodule."""
        modules = dict(self.graph_module.named_modules())
        parts: list[dict[Node, None]] = []
        home: dict[Node, dict[Node, None]] = {}
        for node in self.graph_module.graph.nodes:
            if not self._is_supported(node, modules):
                continue
            mine = home[node] = {node: None}
            parts.append(mine)
            siblings = (user for source in node._inputs for user in source.users)
            for other in dict.fromkeys((*node._inputs, *siblings)):
                theirs = home.get(other)
                if theirs is None or theirs is mine or not validate_partition([*theirs, *mine]):
                    continue
                theirs.update(mine)
                home.update(dict.fromkeys(mine, theirs))
                parts[:] = [part for part in parts if part is not mine]
                mine = theirs
        kept = [part for part in parts if self._is_worth_it(part)]
        return [Partition(i, part) for i, part in enumerate(kept)]

    def _is_worth_it(self, nodes: Iterable[Node]) -> bool:
        names = [f"{getattr(n.target, '__module__', '')}.{getattr(n.target, '__name__', n.target)}" for n in nodes]
        computing = [name for name in names if name not in self.non_compute_ops]
        if len(computing) > 1 or self.allows_single_node_partition:
            return bool(computing)
        return bool(computing) and computing[0] in self.allowed_single_node_partition_ops

    def fuse_partitions(self, partitions: Iterable[Partition], prefix: str = "fused_") -> GraphModule:
        """The module with a submodule for each partition."""
        return fuse_by_partitions(self.graph_module, [list(part.nodes) for part in partitions], prefix)

    def remove_bookend_non_compute_ops(self, partitions: Iterable[Partition]) -> None:
        """Take nodes that compute nothing off the partitions' ends."""
        for part in partitions:
            while ends := [n for n in part.nodes if str(n.target) in self.non_compute_ops
                           and (not set(n.users) & part.nodes.keys() or not set(n._inputs) & part.nodes.keys())]:
                for node in ends:
                    part.remove_node(node)

    def partition_and_fuse(self, prefix: str = "fused_") -> GraphModule:
        """Find the partitions and make submodules of them."""
        return self.fuse_partitions(self.propose_partitions(), prefix)


__all__ = ["CapabilityBasedPartitioner", "Partition"]
