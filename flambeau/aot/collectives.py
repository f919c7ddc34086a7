"""Small collectives of one kind that follow each other become one: each costs its latency, however little it carries.

An operator that can do so has a function `together`, of the inputs of several calls and what else they have in common, that calls it once.
The programs of all processes have to agree: what one of them joins, the others join. So nothing is looked at but what collectives agree in
anyway (their kinds, groups, dtypes and sizes) and which of them needs another's result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau.aot.joint import TracedProgram
from flambeau.aot.partition import depending_on
from flambeau.aot.passes import ancestors
from flambeau.aot.trace import make_fx
from flambeau.core.tensor import Tensor
from flambeau.fx import Graph, Node

SMALL = 256 * 1024      # bytes; more takes longer to copy than another collective to begin
BUCKET = 8 * 1024 * 1024


def join_collectives(program: TracedProgram) -> None:
    """Join those of a traced program; of its forward part, and of its backward part."""
    graph = program.graph
    late = depending_on(graph, program.tangents)
    for bucket in list(_buckets(graph, late)):
        if len(bucket) > 1:
            _join(graph, bucket)


def _buckets(graph: Graph, late: set[Node]) -> Iterator[list[Node]]:
    """Collectives that follow each other, may be joined, and do not need each other."""
    bucket: list[Node] = []
    before, filled = None, 0
    for node in graph.nodes:
        if "communicates" not in getattr(node.target, "tags", ()):
            continue
        kind, nbytes = _kind(node, node in late), _bytes(node)
        full = kind is None or kind != before or filled + nbytes > BUCKET
        if full or not ancestors(node._inputs).isdisjoint(bucket):
            yield bucket
            bucket, filled = [], 0
        bucket, before, filled = [*bucket, node], kind, filled + nbytes
    yield bucket


def _kind(node: Node, late: bool) -> tuple | None:
    """What calls have in common that can be joined; None for one that can't."""
    given = node.args[0].meta["val"] if getattr(node.target, "together", None) is not None else None
    if given is None or any(type(n) is not int for n in given._layout.shape) or not 0 < _bytes(node) <= SMALL:
        return None
    return node.target, node.args[1:], given.dtype, given.device, late


def _bytes(node: Node) -> int:
    """The larger of what goes in and what comes out, where sizes are known; else 0."""
    tensors = [v for v in (node.meta["val"], *(n.meta["val"] for n in node._inputs)) if isinstance(v, Tensor)]
    known = all(type(n) is int for t in tensors for n in t._layout.shape)
    return max((t.numel() * t.dtype.itemsize for t in tensors), default=0) if known else 0


def _join(graph: Graph, bucket: list[Node]) -> None:
    """One call, where the last of them was; what needs the others' results comes after it."""
    last, inputs = bucket[-1], [node.args[0] for node in bucket]
    operator: Any = last.target
    joined = make_fx(lambda tensors: operator.together(tensors, *last.args[1:]))([n.meta["val"] for n in inputs])
    given = dict(zip([n for n in joined.graph.nodes if n.op == "placeholder"], inputs))
    _move_behind(graph, bucket)
    with graph.inserting_before(last):
        results = graph.graph_copy(joined.graph, given)
    for node in joined.graph.nodes:
        if node.op == "call_function":
            given[node].meta = {**last.meta, "val": node.meta["val"]}
    for node, result in zip(bucket, results, strict=True):
        node.replace_all_uses_with(result)
        graph.erase_node(node)


def _move_behind(graph: Graph, bucket: list[Node]) -> None:
    """Move what comes of the first ones' results behind the last one."""
    place, moved = bucket[-1], set(bucket)
    for node in list(graph.nodes):
        if node is bucket[-1]:
            return
        if node not in bucket and not moved.isdisjoint(node._inputs):
            moved.add(node)
            place.append(node)
            place = node
