"""A backward pass in two halves: gradients of inputs first, which others wait for, and those of parameters whenever there is time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.tensor import Tensor
from .engine import Resumed, _dependencies, run_backward
from .graph import Edge, GradientEdge, Node, PrimitiveNode, edge_of


def input_gradients(roots: Sequence[Tensor], grads: Sequence[Tensor | None],
                    inputs: Sequence[Tensor]) -> tuple[list[Tensor | None], Callable[[], None]]:
    """Gradients of `inputs`, and a function that adds those of all other leaves to their `.grad`, once.

    The nodes between inputs and roots are run for their gradients towards the inputs. Where others branch off, what came to the node is kept,
    or, of a node that can only do all at once, what it sends there.
    """
    pairs = list(zip(roots, grads))
    between = _between(roots, inputs)
    forks = {node: beside for node in between if (beside := [e for e in node.edges if e is not None and e.node not in between])}
    parts = {node for node in forks if isinstance(node, PrimitiveNode) and node.can_do_parts()}
    kept = list(dict.fromkeys(GradientEdge(*edge) for node, beside in forks.items() for edge in (_outputs(node) if node in parts else beside)))
    now = [(root, g) for root, g in pairs if _node(root) in between]
    places: list[Any] = [*inputs, *kept]
    found: list[Tensor | None] = [None] * len(places)
    if now:
        found = run_backward(*zip(*now), inputs=places, retain_graph=True, create_graph=False, accumulate=False)
    for node in between - parts:
        node.release()
    later = [(edge, g) for edge, g in zip(kept, found[len(inputs) :]) if g is not None] + [p for p in pairs if _node(p[0]) not in between]
    hooked = {edge.node for edge in kept}

    def others() -> None:
        if later:
            run_backward(*zip(*later), inputs=None, retain_graph=False, create_graph=False, accumulate=True,
                         resumed=Resumed(between | hooked, hooked))
            later.clear()

    return found[: len(inputs)], others


def _node(tensor: Tensor) -> Node | None:
    edge = edge_of(tensor)
    return None if edge is None else edge.node


def _outputs(node: Node) -> list[Edge]:
    return [Edge(node, nr) for nr in range(len(node.output_specs))]


def _between(roots: Sequence[Tensor], inputs: Sequence[Tensor]) -> set[Node]:
    """The nodes on the ways from roots to inputs, both included."""
    start = [node for root in roots if (node := _node(root)) is not None]
    counts, reaching = _dependencies(start, {node: set() for t in inputs if (node := _node(t)) is not None})
    return (reaching or set()) & (counts.keys() | set(start))
