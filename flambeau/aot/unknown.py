"""Graphs in which the values of tensors tell sizes (`nonzero`, `x[mask]`, `item`) are compiled around the steps that tell them.

Such a step runs as it was captured. What lies between two of them is a graph of its own, in which a size is one of its inputs' like
any other. As pieces keep all of eager's meaning (writes, views, history), the cuts change none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import groupby
from typing import Any

from flambeau.aot.repeats import Block, Chain, can_be_cut, module_of, open_scopes, writes_what_was_read
from flambeau.core.tensor import Tensor
from flambeau.fx import GraphModule, Node


class Pieces:
    """How a piece becomes a function that a backend compiles for the sizes that it is called with: dynamo says."""

    compile: Callable[[GraphModule, Callable[..., Any]], Callable[..., Any]] = staticmethod(lambda module, backend: module.forward)


_SHORT = 16     # nodes of a scope that runs as it was captured, as a draw is in it


def in_pieces(draws_as_eager: Callable[[], bool] = bool, left_to_eager: Callable[[Node], bool] = lambda node: False,
              ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a backend that makes functional graphs, which need to know all sizes before they run. Where `draws_as_eager()`, what draws
    random numbers runs as it was captured, too; and draws that are `left_to_eager(node)` do, where the graph can be cut around them."""

    def decorate(backend: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backend)
        def compiled(gm: GraphModule, example_inputs: Any, *args: Any, **options: Any) -> Callable[..., Any]:
            if draws_as_eager():
                for node in gm.graph.nodes:
                    if node.meta.get("draws"):
                        node.meta["unknown"] = True
            else:
                _leave(gm, [node for node in gm.graph.nodes if node.meta.get("draws") and left_to_eager(node)])
            if not tells_sizes(gm):
                return backend(gm, example_inputs, *args, **options)
            return compile_between(gm, lambda piece: Pieces.compile(piece, lambda gm, inputs: compiled(gm, inputs, *args, **options)))

        return compiled

    return decorate


def _leave(gm: GraphModule, draws: list[Node]) -> None:
    """Let these draws, and short scopes that they are in, run as they were captured, if the graph can be cut there."""
    body = _body(gm)
    scopes, marked = open_scopes(body), set()
    for node in draws:
        last = body.index(node)
        written = {id(t._store) for t in node.meta.get("writes", ())}      # whose maker runs with the draw: pieces write to nothing made before
        first = next((i for i, n in enumerate(body[:last]) if not written.isdisjoint(_stores(n))), last)
        while scopes[first]:
            first -= 1
        while scopes[last + 1]:
            last += 1
        if last - first > _SHORT:
            return
        marked |= {n for n in body[first:last + 1] if not n.meta.get("unknown")}
    for node in marked:
        node.meta["unknown"] = True
    if marked and _cut(gm) is None:
        for node in marked:
            del node.meta["unknown"]


def tells_sizes(gm: GraphModule) -> bool:
    """Is there a step whose result's size, or the number that it gives, only values tell?"""
    return any(node.meta.get("unknown") for node in gm.graph.nodes)


def compile_between(gm: GraphModule, compile_piece: Callable[[GraphModule], Callable[..., Any]]) -> Callable[..., Any]:
    """`gm` as a function of its inputs, made of pieces that `compile_piece` compiles; as it was captured where it can't be cut."""
    blocks = _cut(gm)
    if blocks is None:
        return gm.forward
    modules = [module_of(block) for block in blocks]
    pieces = [compile_piece(module) if _computes(block) else module.forward for block, module in zip(blocks, modules, strict=True)]
    return Chain(gm, list(enumerate(blocks)), pieces)


def _stores(node: Node) -> set[int]:
    """The memories that a step makes or looks at."""
    vals = [n.meta.get("val") for n in (node, *node.all_input_nodes)]
    return {id(t._store) for val in vals for t in (val if isinstance(val, (tuple, list)) else [val]) if isinstance(t, Tensor)}


def _body(gm: GraphModule) -> list[Node]:
    return [n for n in gm.graph.nodes if n.op not in ("placeholder", "get_attr", "output")]


def _cut(gm: GraphModule) -> list[Block] | None:
    """The steps that run as they were captured, and what lies between them; None for a graph that can't be cut so."""
    body = _body(gm)
    scopes = dict(zip(body, open_scopes(body), strict=False))
    stretches = [list(group) for _, group in groupby(body, key=lambda n: bool(n.meta.get("unknown")))]
    if not can_be_cut(gm, gm.graph.nodes, body) or any(scopes[stretch[0]] for stretch in stretches):
        return None
    blocks = [_block(stretch) for stretch in stretches]
    return None if writes_what_was_read(blocks) else blocks


def _block(stretch: list[Node]) -> Block:
    inside = set(stretch)
    taken = dict.fromkeys(n for node in stretch for n in node.all_input_nodes if n not in inside)
    return Block(stretch, list(taken), [n for n in stretch if not n.users.keys() <= inside])


def _computes(block: Block) -> bool:
    """Is there anything to compile in it?"""
    return not block.nodes[0].meta.get("unknown") and any(
        isinstance(val := n.meta.get("val"), Tensor) and val._view is None and n.op != "get_attr" for n in block.nodes)
