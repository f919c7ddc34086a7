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


def in_pieces(draws_as_eager: Callable[[], bool] = bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a backend that makes functional graphs, which need to know all sizes before they run. Where `draws_as_eager()`, what draws
    random numbers runs as it was captured, too."""

    def decorate(backend: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backend)
        def compiled(gm: GraphModule, example_inputs: Any, *args: Any, **options: Any) -> Callable[..., Any]:
            if draws_as_eager():
                for node in gm.graph.nodes:
                    if node.meta.get("draws"):
                        node.meta["unknown"] = True
            if not tells_sizes(gm):
                return backend(gm, example_inputs, *args, **options)
            return compile_between(gm, lambda piece: Pieces.compile(piece, lambda gm, inputs: compiled(gm, inputs, *args, **options)))

        return compiled

    return decorate


def tells_sizes(gm: GraphModule) -> bool:
    """Is there a step whose result's size, or the number that it gives, only values tell?"""
    return any(node.meta.get("unknown") for node in gm.graph.nodes)


def compile_between(gm: GraphModule, compile_piece: Callable[[GraphModule], Callable[..., Any]]) -> Callable[..., Any]:
    """`gm` as a function of its inputs, made of pieces that `compile_piece` compiles; as it was captured where it can't be cut."""
    nodes = list(gm.graph.nodes)
    body = [n for n in nodes if n.op not in ("placeholder", "get_attr", "output")]
    scopes = dict(zip(body, open_scopes(body), strict=False))
    if not can_be_cut(gm, nodes, body) or any(scopes[n] for n in body if n.meta.get("unknown")):
        return gm.forward
    stretches = [list(group) for _, group in groupby(body, key=lambda n: bool(n.meta.get("unknown")))]
    blocks = [_block(stretch) for stretch in stretches]
    if writes_what_was_read(blocks):
        return gm.forward
    modules = [module_of(block) for block in blocks]
    pieces = [compile_piece(module) if _computes(block) else module.forward for block, module in zip(blocks, modules, strict=True)]
    return Chain(gm, list(enumerate(blocks)), pieces)


def _block(stretch: list[Node]) -> Block:
    inside = set(stretch)
    taken = dict.fromkeys(n for node in stretch for n in node.all_input_nodes if n not in inside)
    return Block(stretch, list(taken), [n for n in stretch if not n.users.keys() <= inside])


def _computes(block: Block) -> bool:
    """Is there anything to compile in it?"""
    return not block.nodes[0].meta.get("unknown") and any(
        isinstance(val := n.meta.get("val"), Tensor) and val._view is None and n.op != "get_attr" for n in block.nodes)
