"""Calls that write to an operand that nobody needs any more, in the places of calls that make new tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau.core.tensor import Tensor
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.interpreter import Interpreter
from flambeau.fx.node import Node, walk_nodes


class Values(Interpreter):
    """Runs a graph and keeps each node's value."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.values: dict[Node, Any] = {}

    def run_node(self, n: Node) -> Any:
        value = self.values[n] = super().run_node(n)
        return value


def reinplace(gm: GraphModule, *sample_args: Any) -> GraphModule:
    """`b = aten.add(a, c)` becomes `aten.add_(a, c)`, and what read `b` reads `a`, where `a` is memory that the graph made, of the result's
    shape, strides and dtype, and neither `a` nor anything else in that memory is read later. The sample shows which tensors share memory.

    `gm` is changed in place and returned. It is a functional graph of ATen's overloads, as `make_fx(functionalize(f))` gives it; calls
    of `slice_scatter` and the like stay as they are.
    """
    memory = Values(gm)
    memory.run(*sample_args)
    values = memory.values
    nodes = [n for n in gm.graph.nodes if n.op != "output"]
    home = {n: {id(t._storage) for t in _tensors(values[n])} for n in nodes}     # where its tensors lie
    place = {n: i for i, n in enumerate(gm.graph.nodes)}
    last = {n: max((place[user] for user in n.users), default=-1) for n in nodes}
    theirs = set().union(*[home[n] for n in nodes if n.op in ("placeholder", "get_attr")])
    for i, node in enumerate(nodes):
        owner = node.args[0] if node.args else None
        inplace = _inplace(node)
        if inplace is None or not isinstance(owner, Node) or not _alike(values[owner], values[node]) or home[owner] & theirs:
            continue
        beside = [node, *walk_nodes((node.args[1:], node.kwargs))]      # a view, and what reads while the call writes
        if any(home[n] & home[owner] for n in beside) or any(home[n] & home[owner] and last[n] > i for n in nodes):
            continue
        node.target = inplace
        made, given = home[node], home[owner]
        node.replace_all_uses_with(owner)
        last[owner] = max(last[owner], last[node])
        for n in nodes:
            if home[n] & made:
                home[n] = (home[n] - made) | given
    gm.recompile()
    return gm


def _inplace(node: Node) -> Any:
    """The overload that writes to its first argument in the place of one of ATen's that makes a new tensor; None where there is none."""
    packet = getattr(node.target, "overloadpacket", None)
    if packet is None or getattr(node.target, "namespace", "") != "aten":
        return None
    writer, overload = type(packet)(f"{packet.__name__}_"), getattr(node.target, "_overloadname", "default")
    return getattr(writer, overload) if overload in writer.overloads() else None


def _alike(owner: Any, made: Any) -> bool:
    """May the result lie where the operand does?"""
    return (isinstance(owner, Tensor) and isinstance(made, Tensor) and owner.dtype is made.dtype and owner.shape == made.shape
            and owner.stride() == made.stride() and 0 not in owner.stride())


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)


__all__ = ["reinplace"]
