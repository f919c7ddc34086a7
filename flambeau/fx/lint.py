"""The verifier of the tensor-level IR."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.fx.node import OPS, Node, resolve_attr, walk_nodes

if TYPE_CHECKING:
    from flambeau.fx.graph import Graph

_CONTEXT = 4  # nodes shown on each side of a fault


class GraphLintError(RuntimeError):
    """A graph that is not well formed; the text shows the nodes around the fault, `node` is the faulty one."""

    def __init__(self, message: str, node: Node | None = None) -> None:
        super().__init__(message if node is None else f"{message}\n{neighbourhood(node)}")
        self.node = node


def neighbourhood(node: Node) -> str:
    """The nodes around `node`, one a line, with `-->` before it."""
    nodes = list(node.graph.nodes)
    at = next((i for i, n in enumerate(nodes) if n is node), None)
    if at is None:
        return f"--> {node.format_node()}    (no longer in the graph)"
    first, last = max(0, at - _CONTEXT), min(len(nodes), at + _CONTEXT + 1)
    lines = [f"{'-->' if i == at else '   '} {nodes[i].format_node()}" for i in range(first, last)]
    above, below = first, len(nodes) - last
    head = [f"    ... {above} above"] if above else []
    tail = [f"    ... {below} below"] if below else []
    return "\n".join(head + lines + tail)


def lint_graph(graph: Graph, after: str = "", whole: bool = False) -> None:
    """Raise `GraphLintError` unless every node is legal, named once, after its inputs, and in step with its users.

    `after` is the pass that the error names; a `whole` graph has an output.
    """
    try:
        _lint_nodes(graph)
        if whole and not any(node.op == "output" for node in graph.nodes):
            raise GraphLintError(f"the graph of {len(graph.nodes)} nodes has no output", next(iter(reversed(list(graph.nodes))), None))
    except GraphLintError as error:
        if after:
            error.args = (f"after {after}: {error}",)
        raise


def _lint_nodes(graph: Graph) -> None:
    seen: dict[Node, None] = {}
    names: dict[str, Node] = {}
    output: Node | None = None
    for node in graph.nodes:
        if output is not None:
            raise GraphLintError(f"node %{node.name} comes after the output", node)
        _lint_target(graph, node)
        if node.name in names:
            raise GraphLintError(f"two nodes are named {node.name!r}", node)
        _lint_inputs(graph, node, seen)
        _lint_users(graph, node)
        names[node.name] = node
        seen[node] = None
        if node.op == "output":
            output = node


def _lint_target(graph: Graph, node: Node) -> None:
    if node.graph is not graph:
        raise GraphLintError(f"node %{node.name} says that it is in a different graph", node)
    if node.op not in OPS:
        raise GraphLintError(f"node %{node.name} has unknown op {node.op!r}; the ops are {', '.join(OPS)}", node)
    if node.op == "call_function":
        if not callable(node.target):
            raise GraphLintError(f"node %{node.name} calls {node.target!r}, which is not callable", node)
        return
    if not isinstance(node.target, str):
        raise GraphLintError(f"node %{node.name} ({node.op}) has target {node.target!r}, which is not a str", node)
    if node.op in ("get_attr", "call_module") and graph.owning_module is not None:
        try:
            found = resolve_attr(graph.owning_module, node.target)
        except AttributeError as error:
            raise GraphLintError(f"node %{node.name} ({node.op}): {error}", node) from None
        if node.op == "call_module" and not callable(found):
            raise GraphLintError(f"node %{node.name} calls {node.target!r}, which is a {type(found).__name__}", node)


def _lint_inputs(graph: Graph, node: Node, seen: dict[Node, None]) -> None:
    found = dict.fromkeys(walk_nodes((node.args, node.kwargs)))
    if found.keys() != node._inputs.keys():
        raise GraphLintError(f"node %{node.name} does not agree with its own arguments about its inputs", node)
    for used in found:
        if used.graph is not graph:
            raise GraphLintError(f"node %{node.name} uses %{used.name}, which belongs to a different graph", node)
        if used._erased:
            raise GraphLintError(f"node %{node.name} uses %{used.name}, which was erased", node)
        if used not in seen:
            raise GraphLintError(f"node %{node.name} uses %{used.name} before it is defined", node)
        if node not in used.users:
            raise GraphLintError(f"node %{node.name} uses %{used.name} but is not among its users", node)


def _lint_users(graph: Graph, node: Node) -> None:
    for user in node.users:
        if user._erased or user.graph is not graph or node not in user._inputs:
            raise GraphLintError(f"%{user.name} is listed as a user of node %{node.name} but does not use it", node)
