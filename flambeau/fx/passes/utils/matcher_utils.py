"""`SubgraphMatcher`: where a small graph occurs in a large one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...graph import Graph
from ...node import Node
from ...rewrite import Match, equal_constants, find_matches


@dataclass
class InternalMatch:
    """One occurrence. `anchors`: the pattern's last steps; `nodes_map`: the pattern's nodes to the graph's; `placeholder_nodes`: what
    stands for its inputs, in their order; `returning_nodes`: what stands for its results."""

    anchors: list[Node]
    nodes_map: dict[Node, Any] = field(default_factory=dict)
    placeholder_nodes: list[Any] = field(default_factory=list)
    returning_nodes: list[Node] = field(default_factory=list)


class SubgraphMatcher:
    """Finds `pattern`, a graph that returns the result of one step. `match_output`: its result is a result of the graph;
    `match_placeholder`: its inputs are the graph's; `ignore_literals`: constants may be any."""

    def __init__(self, pattern: Graph, match_output: bool = False, match_placeholder: bool = False,
                 remove_overlapping_matches: bool = True, ignore_literals: bool = False) -> None:  # fmt: skip
        self.pattern, self.match_output, self.match_placeholder = pattern, match_output, match_placeholder
        self.apart, self.equal = remove_overlapping_matches, (lambda *_: True) if ignore_literals else equal_constants

    def match(self, graph: Graph) -> list[InternalMatch]:
        """The occurrences, in the graph's order."""
        return [self._told(found) for found in find_matches(graph, self.pattern, (self._accepts,), self.equal, self.apart)]

    def _accepts(self, match: Match, graph: Graph, pattern: Graph) -> bool:
        inputs = [match.nodes_map.get(node) for node in self._inputs(pattern)]
        placed = not self.match_placeholder or all(isinstance(node, Node) and node.op == "placeholder" for node in inputs)
        return placed and (not self.match_output or graph.output_node() in match.anchor.users)

    @staticmethod
    def _inputs(pattern: Graph) -> list[Node]:
        return [node for node in pattern.nodes if node.op == "placeholder"]

    def _told(self, match: Match) -> InternalMatch:
        anchor = self.pattern.output_node().args[0]
        assert isinstance(anchor, Node)
        inputs = [match.nodes_map[node] for node in self._inputs(self.pattern) if node in match.nodes_map]
        return InternalMatch([anchor], dict(match.nodes_map), inputs, [match.anchor])


__all__ = ["InternalMatch", "SubgraphMatcher"]
