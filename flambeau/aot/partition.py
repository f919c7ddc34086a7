"""Cut a joint graph into a forward and a backward graph, keeping between them what is cheapest to keep.

What the forward pass saves and what the backward pass computes again is a minimum cut (the min-cut rematerialisation of
Chen et al. 2016 and He and Yu 2023). Take every value that backward needs, and, going up from there through what may be
computed again, all that those depend on. Each value is an edge whose capacity is the memory traffic of saving it, and to
compute it again costs its work, in the same unit; the cheapest cut between backward and the inputs says what is saved and
what is computed again.

Never computed again: products, reductions, random draws, anything not tagged `recomputable`, and values that backward
would have to write to memory anyway because a product reads them. Never saved: views (their base is) and tuples.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from flambeau.aot.maxflow import INFINITE, FlowNetwork
from flambeau.aot.passes import ancestors, copy_of
from flambeau.core.scalar import TABLE
from flambeau.core.symbolic import SymFloat, SymInt, free_variables, hint_of, is_var
from flambeau.core.tensor import Tensor
from flambeau.fx import Graph, Node
from flambeau.fx.node import walk_nodes
from flambeau.ops.primitives import PointwisePrimitive
from flambeau.ops.registry import CompositeRecord

_SCALAR_BYTES = 8


@dataclass
class Partition:
    """Two graphs and how they hang together.

    `forward` takes the joint graph's primals and returns its forward results, then what else is saved. `backward` takes
    the saved primals, the saved results, the rest of what is saved, and the tangents; it returns the gradients.
    """

    forward: Graph
    backward: Graph
    saved_primals: list[int]  # places among the primals
    saved_results: list[int]  # places among the forward results
    saved: list[Node]  # the joint graph's nodes, in the order in which backward takes them


def partition(joint: Graph, n_forward: int, tangents: Iterable[Node], overwritten: Iterable[Node] = (), *,
              recompute: bool = True) -> Partition:
    """Split `joint`, whose output is a tuple of `n_forward` forward results followed by gradients.

    `tangents` are the placeholders that are known only in backward; the others are the primals. `overwritten` are
    primals whose memory is written before backward runs; they can be saved as copies only. Without `recompute` only views and sizes
    are computed again.
    """
    overwritten = set(overwritten)
    outputs = joint.output_node().args[0]
    results, gradients = list(outputs[:n_forward]), list(outputs[n_forward:])
    late = depending_on(joint, tangents)
    needed = _needed_by_backward(joint, late, gradients)
    forward = ancestors(walk_nodes(results))
    saved = _choose(needed, forward, late, _Traffic(joint, forward, set(walk_nodes(results)), overwritten), recompute)
    saved |= _sizes_not_shown(joint, late, saved)
    primals = [n for n in joint.nodes if n.op == "placeholder" and n not in late]
    place = {node: i for i, node in enumerate(primals) if node not in overwritten}
    kept = sorted((n for n in saved if n in place), key=place.__getitem__)
    reused = {node: i for i, node in enumerate(results) if node in saved and node not in place}
    made = [n for n in joint.nodes if n in saved and n not in place and n not in reused]
    copies = [_copied(joint, n, primals[-1]) if n in overwritten else n for n in made]
    late_inputs = [n for n in joint.nodes if n.op == "placeholder" and n in late]
    taken = [*kept, *reused, *made]
    return Partition(
        forward=_extract(joint, primals, (*results, *copies), joint.nodes),
        backward=_extract(joint, [*taken, *late_inputs], tuple(gradients), (n for n in joint.nodes if n in late)),
        saved_primals=[place[n] for n in kept],
        saved_results=list(reused.values()),
        saved=taken,
    )


def _copied(joint: Graph, node: Node, after: Node) -> Node:
    """A copy of a primal that is overwritten before backward can read it."""
    with joint.inserting_after(after):
        return copy_of(joint, node)


# -- what depends on what ----------------------------------------------------------------------------------------------


def depending_on(graph: Graph, roots: Iterable[Node]) -> set[Node]:
    """All that comes from the roots, and collectives behind them: all processes take part in these in the same order."""
    found, behind = set(roots), False
    for node in graph.nodes:
        behind = behind or node in found
        if node.op != "output" and (any(n in found for n in node._inputs) or (behind and "communicates" in _tags(node))):
            found.add(node)
    return found


def _needed_by_backward(graph: Graph, late: set[Node], gradients: list) -> dict[Node, None]:
    """The values not depending on tangents that backward uses or returns, in order."""
    needed = {n for node in graph.nodes if node in late for n in node._inputs if n not in late}
    needed.update(n for n in walk_nodes(gradients) if n not in late)
    return {n: None for n in graph.nodes if n in needed}


def _sizes_not_shown(joint: Graph, late: set[Node], saved: set[Node]) -> set[Node]:
    """The sizes that backward's values and inputs speak of and that none of those shows by itself (`2 * n` does not show `n`)."""
    spoken_of = {name for node in (*late, *saved) for size in _sizes(node, "shape", "strides") for name in _symbols(size)}
    given = [node for node in joint.nodes if node in saved or (node.op == "placeholder" and node in late)]
    missing = spoken_of - {name for node in given for size in _sizes(node) for name in _shown(size)}
    return {n for n in joint.nodes if n.op == "placeholder" and not missing.isdisjoint(_shown(n.meta.get("val")))}


def _sizes(node: Node, *parts: str) -> list:
    """A node's sizes (or these parts of its layout), or the number it is, as far as they are symbolic."""
    values = node.meta.get("val")
    found: list = []
    for value in values if isinstance(values, (tuple, list)) else (values,):
        tensor = isinstance(value, Tensor)
        found.extend([n for part in parts or ("shape",) for n in getattr(value._layout, part)] if tensor else (value,))
    return [size for size in found if isinstance(size, (SymInt, SymFloat))]


def _symbols(size: SymInt | SymFloat) -> frozenset[str]:
    return size.variables if isinstance(size, SymFloat) else free_variables(size.expr)


def _shown(size: Any) -> frozenset[str]:
    """The symbol that a number is; none if it is computed from symbols, or no symbolic number."""
    bare = is_var(size.expr) if isinstance(size, SymInt) else isinstance(size, SymFloat) and size.op == "variable"
    return _symbols(size) if bare else frozenset()


# -- the cut -----------------------------------------------------------------------------------------------------------


def _tags(node: Node) -> frozenset[str] | set[str] | tuple:
    return getattr(node.target, "tags", ())


def _is_view(node: Node) -> bool:
    return "view" in _tags(node)


def _is_recomputable(node: Node) -> bool:
    if node.op == "get_attr" or "recomputable" in _tags(node):
        return True
    if node.target is operator.getitem:
        return isinstance(node.args[0], Node) and _is_recomputable(node.args[0])
    return not isinstance(node.meta.get("val"), (Tensor, tuple, list))  # arithmetic on sizes


def ends_a_kernel(node: Node) -> bool:
    """Whether a node is computed by a call of its own: products, scatters, sorts; not what is fused into loops."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    target: Any = node.target
    if isinstance(target, CompositeRecord) or "custom" in _tags(node):
        return True
    return "view" not in _tags(node) and getattr(target, "loop", True) in (None, "scatter")


def value_bytes(value: Any) -> int:
    """Bytes of memory that a value takes; symbolic sizes count as in the example."""
    if isinstance(value, Tensor):
        return math.prod(map(hint_of, value._layout.shape), start=value.dtype.itemsize)
    if isinstance(value, (tuple, list)):
        return sum(value_bytes(item) for item in value)
    return _SCALAR_BYTES


def _readers(node: Node) -> Iterator[Node]:
    """The users of a value, looked for through views."""
    for user in node.users:
        if _is_view(user):
            yield from _readers(user)
        else:
            yield user


class _CountingScalars:
    """Reads a loop body for what it costs: the sum of `ScalarOp.cost`, in additions."""

    def __init__(self) -> None:
        self.cost = 0

    def __getattr__(self, name: str) -> Callable[..., None]:
        def count(*args: Any) -> None:
            self.cost += TABLE[name].cost if name in TABLE else 1

        return count


@functools.cache
def _additions(prim: Any) -> int:
    """What an element of a primitive's result costs to compute, in additions; 0 for views."""
    if "view" in prim.tags:
        return 0
    if not isinstance(prim, PointwisePrimitive):
        return 1
    reader = _CountingScalars()
    prim.loop(reader, *[None] * len(prim.params))
    return reader.cost


ADDITIONS_PER_ELEMENT_MOVED = 16  # vectorised additions done in the time in which one element is moved from or to memory


def _work(node: Node) -> float:
    """The time that computing a node takes, as the number of bytes that could be moved to or from memory meanwhile."""
    value = node.meta.get("val")
    if node.op != "call_function" or not isinstance(value, Tensor):
        return 0
    operands = [n.meta["val"] for n in node._inputs if isinstance(n.meta.get("val"), Tensor)]
    width = max(t.dtype.itemsize for t in (value, *operands))
    return value_bytes(value) / value.dtype.itemsize * width * _additions(node.target) / ADDITIONS_PER_ELEMENT_MOVED


class _Traffic:
    """What saving a value costs: the memory written for its sake in forward, and read in backward."""

    def __init__(self, joint: Graph, forward: set[Node], results: set[Node], overwritten: set[Node]) -> None:
        self.forward, self.results, self.overwritten = forward, results, overwritten
        self._level: dict[Node, int] = {}  # how many kernels that end loops lie on the longest way to a node
        self._finishing: set[Node] = set()  # elementwise steps that only finish the result of such a kernel
        for node in joint.nodes:
            above = (self._level[n] + ends_a_kernel(n) for n in node._inputs if n in self._level)
            self._level[node] = max(above, default=0)
            if node in forward and "pointwise" in _tags(node) and any(map(self._is_finished_by_its_reader, node._inputs)):
                self._finishing.add(node)

    def _is_finished_by_its_reader(self, node: Node) -> bool:
        while _is_view(node) and self._readers_in_forward(node) == 1:
            node = node.args[0]
        return (ends_a_kernel(node) or node in self._finishing) and self._readers_in_forward(node) == 1

    def _readers_in_forward(self, node: Node) -> int:
        return sum(n in self.forward for n in _readers(node))

    def cost(self, node: Node) -> float:
        """Bytes; infinite for what cannot be saved."""
        value = node.meta.get("val")
        if isinstance(value, (tuple, list)) or (_is_view(node) and node not in self.results):
            return INFINITE
        size = value_bytes(value)
        if node.op == "placeholder":
            return 3 * size if node in self.overwritten else size
        return size if self._in_memory(node) else 2 * size

    def _in_memory(self, node: Node) -> bool:
        """Whether the value of a forward node is written to memory anyway.

        It is if it is a result, comes from or goes to a kernel of its own, can be computed by such a kernel in passing (a
        bias added to a product), or is read on both sides of one (a residual).
        """
        if node in self.results or node in self._finishing or not {"pointwise", "recomputable"} & set(_tags(node)):
            return True
        level = self._level[node]
        return any(n in self.forward and (ends_a_kernel(n) or self._level[n] > level) for n in _readers(node))


def _choose(needed: dict[Node, None], forward: set[Node], late: set[Node], traffic: _Traffic, recompute: bool) -> set[Node]:
    """The values to save. The network runs from backward up to the inputs, so that among cheapest cuts the one nearest
    to backward is found, which computes least again."""
    network = FlowNetwork()
    backward, inputs = "backward", "inputs"
    for node in needed:
        network.add_edge(backward, (node, 1), INFINITE)
    stack, seen = list(needed), set(needed)
    while stack:
        node = stack.pop()
        network.add_edge((node, 1), (node, 0), traffic.cost(node))
        if node.op == "placeholder" or (node in forward and _must_keep(node, late, recompute)):
            network.add_edge((node, 0), inputs, INFINITE)
            continue
        if node in forward:
            network.add_edge((node, 0), inputs, _work(node))
        for source in node._inputs:
            network.add_edge((node, 0), (source, 1), INFINITE)
            if source not in seen:
                seen.add(source)
                stack.append(source)
    _, side = network.min_cut(backward, inputs)
    return {node for node in seen if (node, 1) in side and (node, 0) not in side}


def _must_keep(node: Node, late: set[Node], recompute: bool) -> bool:
    """Whether a value of the forward pass may not be computed again in backward."""
    if not _is_recomputable(node):
        return True
    if _is_view(node) or not isinstance(node.meta.get("val"), Tensor) or not node._inputs:
        return False
    return not recompute or any(n in late and ends_a_kernel(n) for n in _readers(node))


# -- the graphs --------------------------------------------------------------------------------------------------------


def _extract(joint: Graph, inputs: list[Node], outputs: tuple, first: Iterable[Node]) -> Graph:
    """The part of `joint` that computes `outputs` from `inputs`.

    Nodes of `first` keep their order; the others come just before their first reader, so that what is computed again
    does not lie about in memory.
    """
    new = Graph()
    new.provenance = list(joint.provenance)
    new.meta = dict(joint.meta)
    copies: dict[Node, Node] = {}
    for node in inputs:
        copy = copies[node] = new.placeholder(node.name)
        copy.meta = dict(node.meta)
    wanted = ancestors(walk_nodes(outputs), set(inputs))
    for node in _by_demand([n for n in (*first, *joint.nodes) if n in wanted], inputs):
        copies[node] = new.node_copy(node, copies.__getitem__)
    new.output(_map(outputs, copies))
    return new


def _by_demand(roots: list[Node], inputs: list[Node]) -> list[Node]:
    """The roots in order, each after what it needs."""
    placed = set(inputs)
    order: list[Node] = []
    for root in roots:
        stack = [root]
        while stack:
            node = stack[-1]
            missing = [n for n in node._inputs if n not in placed] if node not in placed else []
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            if node not in placed:
                placed.add(node)
                order.append(node)
    return order


def _map(a: Any, copies: dict[Node, Node]) -> Any:
    if isinstance(a, Node):
        return copies[a]
    return tuple([_map(item, copies) for item in a]) if isinstance(a, (tuple, list)) else a
