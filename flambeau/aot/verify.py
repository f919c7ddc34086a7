"""The verifier of functional graphs: what aot's passes and its partition must leave behind. Each check yields what is wrong.

`core.settings.Verification` says when it runs; `fx.lint` checks what holds for every graph.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flambeau.aot.joint import Interface
from flambeau.aot.partition import Partition
from flambeau.core.symbolic import SymBool, SymFloat, SymInt, free_variables
from flambeau.core.tensor import Tensor
from flambeau.fx import Graph, Node, map_arg
from flambeau.fx.lint import GraphLintError, lint_graph
from flambeau.ops.registry import CompositeRecord, Primitive, is_operator

Wrong = Iterator[tuple[Node, str]]
NUMBERS = (bool, int, float, complex, SymInt, SymFloat, SymBool)


# --- one graph ---


def calls_are_known(graph: Graph) -> Wrong:
    """A functional graph has inputs, attributes and an output, and calls primitives, operators kept whole, getitem and arithmetic."""
    for node in graph.nodes:
        if node.op not in ("placeholder", "get_attr", "call_function", "output"):
            yield node, f"is a {node.op}; functional graphs only call functions"
        elif node.op == "call_function" and not _is_known(node):
            yield node, f"calls {node.target!r}, which is neither a primitive, an operator kept whole, getitem, nor arithmetic on sizes"
        if node.kwargs:
            yield node, f"has keyword arguments {sorted(node.kwargs)}; calls of primitives have none"


def _is_known(node: Node) -> bool:
    target: Any = node.target
    return target is operator.getitem or isinstance(target, (Primitive, CompositeRecord)) or is_operator(target) or isinstance(
        node.meta.get("val"), NUMBERS)


def values_are_described(graph: Graph) -> Wrong:
    """Every value has a fake tensor, a number or a tuple of them in meta["val"]."""
    for node in graph.nodes:
        val = node.meta.get("val")
        for item in val if isinstance(val, (tuple, list)) else (val,):
            if node.op not in ("output", "get_attr") and not isinstance(item, (Tensor, *NUMBERS)):
                yield node, f'has {val!r} in meta["val"], not a fake tensor or a number'


def values_follow(graph: Graph) -> Wrong:
    """Where all sizes are known, a primitive's value has the shape and dtype that its shape rule gives for its operands."""
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if node.target is operator.getitem:
            source, k = node.args
            parts = source.meta["val"]
            if not isinstance(parts, (tuple, list)) or not -len(parts) <= k < len(parts):
                yield node, f"takes part {k} of %{source.name}, which has {len(parts) if isinstance(parts, (tuple, list)) else 'no'} parts"
            elif _sign(parts[k]) != _sign(node.meta["val"]):
                yield node, f"is {_text(node.meta['val'])}, but part {k} of %{source.name} is {_text(parts[k])}"
        elif isinstance(node.target, Primitive) and "custom" not in node.target.tags and _is_static(
                (node.meta["val"], *[n.meta.get("val") for n in node._inputs])):
            yield from _follows(node)


def _follows(node: Node) -> Wrong:
    target: Any = node.target
    try:
        specs = target.shape(*map_arg(node.args, lambda n: n.meta["val"]))
    except (RuntimeError, ValueError, TypeError, IndexError) as refused:
        yield node, f"calls {target.name}, which refuses its operands: {refused}"
        return
    made = specs if isinstance(node.meta["val"], (tuple, list)) else (specs,)
    vals = node.meta["val"] if isinstance(node.meta["val"], (tuple, list)) else (node.meta["val"],)
    want, have = [(tuple(s.shape), s.dtype) for s in made], [_sign(v) for v in vals]
    if want != have:
        yield node, f"is {', '.join(map(_text, vals))}, but {target.name} gives {', '.join(f'{k.name}{list(s)}' for s, k in want)}"


def _is_static(vals: Sequence[Any]) -> bool:
    flat = [v for val in vals for v in (val if isinstance(val, (tuple, list)) else (val,))]
    return all(isinstance(v, Tensor) and all(type(n) is int for n in v._layout.shape) for v in flat)


def _sign(val: Any) -> Any:
    """Shape and dtype to compare; sizes that guards make equal are so in the example, and comparing those needs no guard."""
    return (tuple(map(_number, val._layout.shape)), val.dtype) if isinstance(val, Tensor) else type(val)


def _number(size: Any) -> Any:
    if not isinstance(size, SymInt):
        return size
    return size.hint if free_variables(size.expr) <= size.env.hints.keys() else size.expr


def _text(val: Any) -> str:
    return f"{val.dtype.name}{list(val._layout.shape)}" if isinstance(val, Tensor) else repr(val)


GRAPH: tuple[Callable[[Graph], Wrong], ...] = (calls_are_known, values_are_described, values_follow)


def check_functional(graph: Graph, after: str, relaid: bool = False) -> None:
    """Raise `GraphLintError` unless the graph is a functional one, after the pass `after`.

    `relaid`: its inputs lie as the forward graph left them, not as they were traced: views of them are views of elements in order,
    whatever the strides.
    """
    lint_graph(graph, after, whole=True)
    for check in GRAPH[:2] if relaid else GRAPH:
        for node, wrong in check(graph):
            raise GraphLintError(f"after {after}: node %{node.name} {wrong}", node)


# --- a partition ---


def forward_takes_the_primals(joint: Graph, split: Partition, interface: Interface, tangents: Sequence[Node]) -> Wrong:
    """The forward graph takes the joint graph's inputs but the tangents, in order."""
    late = set(tangents)
    yield from _same([n for n in joint.nodes if n.op == "placeholder" and n not in late], _inputs(split.forward), "the forward graph")


def forward_makes_the_results(joint: Graph, split: Partition, interface: Interface, tangents: Sequence[Node]) -> Wrong:
    """The forward graph returns the joint graph's results."""
    yield from _same(joint.output_node().args[0][:interface.results], split.forward.output_node().args[0][:interface.results],
                     "the forward graph's results", named=False)


def backward_takes_what_is_saved(joint: Graph, split: Partition, interface: Interface, tangents: Sequence[Node]) -> Wrong:
    """The backward graph takes the saved inputs, the saved results, what else forward returns, and the tangents: as many, in this
    order, of the same shapes and dtypes."""
    given, outputs = _inputs(split.forward), split.forward.output_node().args[0]
    for what, places, among in (("primal", split.saved_primals, given), ("result", split.saved_results, outputs[:interface.results])):
        for place in places:
            if not 0 <= place < len(among):
                yield split.backward.output_node(), f"is of a graph that is to be given {what} {place}, of {len(among)}"
                return
    saved = [given[k] for k in split.saved_primals] + [outputs[k] for k in split.saved_results] + list(outputs[interface.results:])
    taken = _inputs(split.backward)
    if len(taken) != len(saved) + len(tangents):
        yield split.backward.output_node(), (f"is of a graph with {len(taken)} inputs, but forward saves {len(saved)} values and there are "
                                             f"{len(tangents)} tangents")
        return
    yield from _same(saved, taken[:len(saved)], "the backward graph", named=False)
    yield from _same(split.saved, taken[:len(saved)], "the backward graph")
    yield from _same(tangents, taken[len(saved):], "the backward graph")


def tangents_are_like_results(joint: Graph, split: Partition, interface: Interface, tangents: Sequence[Node]) -> Wrong:
    """There is one tangent for each differentiable result, like it."""
    results = joint.output_node().args[0][:interface.results]
    yield from _same([results[k] for k in interface.differentiable], tangents, "the tangents", named=False)


def gradients_are_like_inputs(joint: Graph, split: Partition, interface: Interface, tangents: Sequence[Node]) -> Wrong:
    """The backward graph returns one gradient for each input that wants one, like it, or None; then what handing them over returned."""
    given, returned = _inputs(split.forward), split.backward.output_node().args[0]
    gradients = returned[:len(returned) - interface.told]
    wanted = [given[k] for k in interface.gradient_inputs]
    if len(wanted) != len(gradients):
        yield split.backward.output_node(), f"returns {len(gradients)} gradients for {len(wanted)} inputs"
    for node, gradient in zip(wanted, gradients):
        if isinstance(gradient, Node) and _sign(gradient.meta.get("val")) != _sign(node.meta.get("val")):
            yield gradient, f"is {_text(gradient.meta.get('val'))}, the gradient of %{node.name}, which is {_text(node.meta.get('val'))}"


def _inputs(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if n.op == "placeholder"]


def _same(want: Sequence[Any], have: Sequence[Any], what: str, named: bool = True) -> Wrong:
    """Node by node the same names and values."""
    nodes = [n for n in (*have, *want) if isinstance(n, Node)]
    if len(want) != len(have):
        yield nodes[0], f"is among {len(have)} values of {what}, which has to have {len(want)}"
        return
    for mine, theirs in zip(want, have):
        if not isinstance(theirs, Node) or not isinstance(mine, Node):
            if mine != theirs:
                yield nodes[0], f"is of {what}, where {theirs!r} stands for {mine!r}"
        elif named and mine.name != theirs.name:
            yield theirs, f"stands in {what} where %{mine.name} belongs"
        elif _sign(mine.meta.get("val")) != _sign(theirs.meta.get("val")):
            yield theirs, f"of {what} is {_text(theirs.meta.get('val'))}, but %{mine.name} is {_text(mine.meta.get('val'))}"


PARTITION: tuple[Callable[[Graph, Partition, Interface, Sequence[Node]], Wrong], ...] = (
    forward_takes_the_primals, forward_makes_the_results, backward_takes_what_is_saved, tangents_are_like_results,
    gradients_are_like_inputs)


def check_partition(joint: Graph, split: Partition, interface: Interface, tangents: Sequence[Node], after: str) -> None:
    """Raise `GraphLintError` unless forward saves what backward takes."""
    for check in PARTITION:
        for node, wrong in check(joint, split, interface, tangents):
            raise GraphLintError(f"after {after}: node %{node.name} {wrong}", node)
