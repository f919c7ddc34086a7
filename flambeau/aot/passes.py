"""Clean-up of functional graphs: every pass is a function of a `Graph` that changes it in place.

The graphs have no writes (tracing made values of them), and of what has another effect a result comes (`joint`), so what nobody uses may go,
and equal calls are one call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from functools import cache
from typing import Any

import numpy as np

from flambeau.core.dtypes import dtype
from flambeau.core.memory_format import preserve_format
from flambeau.core.size import contiguous_strides
from flambeau.core.symbolic import SymInt
from flambeau.core.tensor import Tensor
from flambeau.fx import Graph, Node
from flambeau.ops.primitives import PointwisePrimitive, ViewPrimitive
from flambeau.ops.primitives import has_effect as call_has_effect
from flambeau.ops.registry import PRIMITIVES


def has_effect(node: Node) -> bool:
    """Whether a step does more than to compute its results: it may refuse what is in its tensors, or talks to other processes."""
    return call_has_effect(node.target, sum(isinstance(n.meta.get("val"), Tensor) for n in node._inputs))


def eliminate_dead_code(graph: Graph) -> None:
    """Erase what nobody uses."""
    graph.eliminate_dead_code(lambda node: False)


def ancestors(roots: Iterable[Node], stop: Collection[Node] = ()) -> set[Node]:
    """The roots and all that they come from, up to `stop`."""
    found = {n for n in roots if n not in stop}
    stack = list(found)
    while stack:
        for node in stack.pop()._inputs:
            if node not in found and node not in stop:
                found.add(node)
                stack.append(node)
    return found


# -- equal calls -------------------------------------------------------------------------------------------------------


def merge_common_subexpressions(graph: Graph, mergeable: Callable[[Node], bool] = lambda node: True) -> None:
    """Keep one of several calls of the same function with the same arguments, where the call is `mergeable`.

    Random primitives are functions of their state and position, so they need no exception; collectives are not functions, and a copy that
    is given out is for its own memory, which users may write to.
    """
    seen: dict[Hashable, Node] = {}
    for node in graph.nodes:
        if node.op not in ("call_function", "get_attr") or "communicates" in getattr(node.target, "tags", ()) or not mergeable(node):
            continue
        if node.target is PRIMITIVES["clone"] and any(user.op == "output" for user in node.users):
            continue
        try:
            first = seen.setdefault((node.op, node.target, _key(node.args), _key(node.kwargs)), node)
        except TypeError:  # an argument that cannot be hashed
            continue
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def _key(a: Any) -> Hashable:
    """An argument as a key under which 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    if isinstance(a, (tuple, list)):
        return tuple([_key(item) for item in a])
    if isinstance(a, dict):
        return tuple((key, _key(value)) for key, value in a.items())
    if isinstance(a, slice):
        return ("slice", _key(a.start), _key(a.stop), _key(a.step))
    if isinstance(a, float):
        return ("float", a.hex())
    if isinstance(a, complex):
        return ("complex", a.real.hex(), a.imag.hex())
    return (type(a), a)


# -- views that change nothing -----------------------------------------------------------------------------------------


def remove_noop_views(graph: Graph) -> None:
    """Use the input of a view that has its input's own layout; collapse a view of a view of contiguous memory."""
    view = PRIMITIVES["view"]
    for node in graph.nodes:
        if not isinstance(node.target, ViewPrimitive):
            continue
        source = node.args[0]
        if node.target is view and source.target is view:
            base = source.args[0]
            if isinstance(base.meta.get("val"), Tensor) and base.meta["val"].is_contiguous():
                node.args = (base, node.args[1])
                source = base
        if _same_layout(source.meta.get("val"), node.meta.get("val")):
            node.replace_all_uses_with(source)
            graph.erase_node(node)


def order_unsqueezes(graph: Graph) -> None:
    """Insert dimensions of size 1 from left to right, so that equal broadcasts become equal calls."""
    unsqueeze = PRIMITIVES["unsqueeze"]

    def is_one(node: Node) -> bool:
        return node.target is unsqueeze

    for node in graph.nodes:
        current = node
        while is_one(current) and is_one(current.args[0]) and current.args[1] <= current.args[0].args[1]:
            (inner, dim), (source, inner_dim) = current.args, current.args[0].args
            with graph.inserting_before(current):
                swapped = graph.call_function(unsqueeze, (source, dim))
            swapped.meta = {**inner.meta, "val": unsqueeze.run((source.meta["val"], dim))}
            current.args = (swapped, inner_dim + 1)
            current = swapped


def _same_layout(a: Any, b: Any) -> bool:
    if not isinstance(a, Tensor) or not isinstance(b, Tensor) or a.dtype is not b.dtype:
        return False
    return same_sizes(a._layout.shape, b._layout.shape) and same_sizes(a._layout.strides, b._layout.strides)


def same_sizes(a: tuple, b: tuple) -> bool:
    """Whether sizes are equal for all values of their symbols."""
    return len(a) == len(b) and all(_same_size(m, n) for m, n in zip(a, b, strict=True))


def _same_size(m: Any, n: Any) -> bool:
    """Equality that is so for all values of the symbols; asks nothing that would become a guard."""
    left = m.expr if isinstance(m, SymInt) else m
    right = n.expr if isinstance(n, SymInt) else n
    return type(left) is type(right) and bool(left == right)


# -- constants ---------------------------------------------------------------------------------------------------------


def fold_constants(graph: Graph) -> None:
    """Compute with values that are known: tensors filled with one number become numbers where a number will do.

    - a view of a filled tensor is filled, and an elementwise function of filled ones too: `full`, if they are contiguous;
    - an elementwise function of a filled tensor and another of the same dtype takes the number itself.
    """
    filled: dict[Node, Any] = {}
    for node in graph.nodes:
        if node.target is PRIMITIVES["full"]:
            if not isinstance(node.args[1], Node):
                filled[node] = _as_stored(node.args[1], node.meta["val"].dtype)
        elif "moving" in getattr(node.target, "tags", ()):
            if node.args[0] in filled:
                _fill(graph, node, filled[node.args[0]], filled)
        elif isinstance(node.target, PointwisePrimitive):
            _fold_pointwise(graph, node, filled)


def _as_stored(value: Any, kind: dtype) -> Any:
    """The number that a tensor of `kind` filled with `value` holds: of a narrow float not quite `value`."""
    if not kind.is_floating_point or type(value) not in (int, float):
        return value
    with np.errstate(all="ignore"):
        return float(np.asarray(value, kind.numpy))


def _fold_pointwise(graph: Graph, node: Node, filled: dict[Node, Any]) -> None:
    values = [filled.get(a) if isinstance(a, Node) else a for a in node.args]
    known = [value is not None for value in values]
    if not any(k and isinstance(a, Node) for k, a in zip(known, node.args, strict=True)):
        return
    if all(known):
        arrays = [
            np.asarray(value, a.meta["val"].dtype.numpy) if isinstance(a, Node) else value
            for value, a in zip(values, node.args, strict=True)
        ]
        result = np.asarray(node.target.kernels["cpu"](*arrays))  # type: ignore[union-attr]
        if result.dtype == node.meta["val"].dtype.numpy and result.ndim == 0:
            _fill(graph, node, result.item(), filled)
        return
    kinds = {a.meta["val"].dtype for a in node.args if isinstance(a, Node) and isinstance(a.meta["val"], Tensor)}
    rest = [a for k, a in zip(known, node.args, strict=True) if not k and isinstance(a, Node)]
    tensor_left = any(isinstance(a.meta["val"], Tensor) for a in rest)
    strides = node.meta["val"]._layout.strides
    alike = all(same_sizes(a.meta["val"]._layout.strides, strides) for a in rest if isinstance(a.meta["val"], Tensor))
    # else the number would be read in another dtype, or the result would lie otherwise
    if len(kinds) == 1 and tensor_left and alike and _takes_numbers(node.target, tuple(known)):
        node.args = tuple([value if k else a for value, k, a in zip(values, known, node.args, strict=True)])


class _Probe:
    """Follows a loop body to see whether an operation of it would have numbers alone: their dtype would not be known."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def step(*operands: Any) -> _Probe:
            if name != "constant" and not any(isinstance(operand, _Probe) for operand in operands):
                raise TypeError(f"{name} of numbers alone")
            return self
        return step


@cache
def _takes_numbers(prim: Any, known: tuple[bool, ...]) -> bool:
    probe = _Probe()
    try:
        prim.loop(probe, *[2 if k else probe for k in known])
    except Exception:   # it looks at more of a value than this knows
        return False
    return True


def _fill(graph: Graph, node: Node, value: Any, filled: dict[Node, Any]) -> None:
    """Note that `node` is filled with `value`; it becomes a `full` where it lies as that does."""
    val = node.meta["val"]
    shape = _shape_argument(node)
    if shape is None or not same_sizes(val._layout.strides, contiguous_strides(val._layout.shape)):
        filled[node] = value
        return
    with graph.inserting_before(node):
        full = graph.call_function(PRIMITIVES["full"], (shape, value, val.dtype, val.device))
    full.meta = dict(node.meta)
    filled[full] = value
    node.replace_all_uses_with(full)
    graph.erase_node(node)


def _shape_argument(node: Node) -> tuple | None:
    """The node's shape as an argument; None if it has symbolic sizes for which no node stands at hand."""
    shape = tuple(node.meta["val"]._layout.shape)
    if all(type(size) is int for size in shape):
        return shape
    if isinstance(node.target, PointwisePrimitive):
        source = next(a for a in node.args if isinstance(a, Node))
        return source.args[0] if source.target is PRIMITIVES["full"] else None
    return node.args[1] if node.target in (PRIMITIVES["view"], PRIMITIVES["expand"]) else None


# -- outputs -----------------------------------------------------------------------------------------------------------


def root_of(node: Node) -> Node:
    """The node whose memory a node's value lies in, where the graph is run as it stands."""
    while isinstance(node.target, ViewPrimitive):
        node = node.args[0]
    return node


def copy_of(graph: Graph, node: Node) -> Node:
    """A node with the value of `node` in memory of its own, at the insert point."""
    copy = graph.call_function(PRIMITIVES["clone"], (node, preserve_format))
    copy.meta = dict(node.meta)
    return copy


def separate_results(graph: Graph, start: int, stop: int) -> None:
    """Copy those of the outputs `start` to `stop` that would share memory with an earlier one, an input or a constant."""
    output = graph.output_node()
    values = list(output.args[0])
    taken: set[Node] = set()
    for i in range(start, stop):
        node = values[i]
        if not isinstance(node, Node) or not isinstance(node.meta.get("val"), Tensor):
            continue
        root = root_of(node)
        if root.op != "call_function" or root in taken:
            with graph.inserting_before(output):
                values[i] = copy_of(graph, node)
        taken.add(root_of(values[i]))
    output.args = (tuple(values),)


CLEAN_UP = (fold_constants, remove_noop_views, order_unsqueezes, merge_common_subexpressions, eliminate_dead_code)
