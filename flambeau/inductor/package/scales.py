"""Convolutions whose channels are scaled and shifted by constants, as a batch norm does: the weights are scaled beforehand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flambeau.aot.joint import TracedProgram
from flambeau.aot.passes import eliminate_dead_code
from flambeau.core.dtypes import float64
from flambeau.core.tensor import Tensor, fake
from flambeau.fx import Node
from flambeau.ops.registry import OPERATORS, PRIMITIVES

Step = Callable[[Tensor, Tensor, Any], tuple[Tensor, Tensor]]
STEPS: dict[str, tuple[Step | None, Step | None]] = {
    "add": (lambda s, t, c: (s, t + c), lambda s, t, c: (s, t + c)),
    "sub": (lambda s, t, c: (s, t - c), lambda s, t, c: (-s, c - t)),
    "mul": (lambda s, t, c: (s * c, t * c), lambda s, t, c: (s * c, t * c)),
    "truediv": (lambda s, t, c: (s / c, t / c), None),
}
"""What `s x + t` is after a step with a constant `c`, on its right or on its left."""


def fold_scales(program: TracedProgram, values: Mapping[Node, Tensor]) -> None:
    """`conv(x, w) * scale + shift`, a number of each for a channel, becomes `conv(x, w * scale) + shift`. `values` are what is known."""
    for node in list(program.graph.nodes):
        if node.target is PRIMITIVES["convolution"] and node.args[1] in values and node.meta["val"].dtype.is_floating_point:
            _fold(program, node, values)
    eliminate_dead_code(program.graph)


def _fold(program: TracedProgram, node: Node, values: Mapping[Node, Tensor]) -> None:
    weight: Tensor = values[node.args[1]]
    ones = (1,) * (weight.ndim - 2)
    scale = OPERATORS["ones"]((weight.shape[0],), dtype=float64)
    shift, last, spread, steps = scale * 0, node, None, 0
    while len(last.users) == 1 and (found := _step(last, values)) is not None:
        last, step, constant, over = found
        scale, shift = step(scale, shift, constant)
        spread, steps = over or spread, steps + 1
    if steps < 2 or spread is None:     # a shift alone is a bias already
        return
    graph = program.graph
    with graph.inserting_before(node):
        scaled = _constant(program, (weight.to(float64) * scale.reshape(-1, 1, *ones)).to(weight.dtype), node)
        convolution = graph.call_function(PRIMITIVES["convolution"], (node.args[0], scaled, *node.args[2:]))
    convolution.meta = dict(node.meta)
    with graph.inserting_before(last):
        row = _constant(program, shift.to(weight.dtype).reshape(1, -1, *ones), last)
        wide = graph.call_function(PRIMITIVES["expand"], (row, spread.args[1]))
        total = graph.call_function(PRIMITIVES["add"], (convolution, wide))
    wide.meta, total.meta = dict(spread.meta), dict(last.meta)
    last.replace_all_uses_with(total)


def _step(node: Node, values: Mapping[Node, Tensor]) -> tuple[Node, Step, Any, Node | None] | None:
    """The only reader of `node`, if it scales or shifts by what is constant in a channel: it, what it does, the constant for each channel,
    and the node that spreads it over the image."""
    user = next(iter(node.users))
    rules = STEPS.get(user.target.name) if user.target in PRIMITIVES.values() else None     # type: ignore[union-attr]
    if rules is None or len(user.args) != 2 or user.args[0] is user.args[1] or user.meta["val"].dtype is not node.meta["val"].dtype:
        return None
    at = user.args.index(node)
    rule, other = rules[at], user.args[1 - at]
    if rule is None or isinstance(other, (int, float)):
        return None if rule is None else (user, rule, other, None)
    if not isinstance(other, Node) or other.target is not PRIMITIVES["expand"] or other.args[0] not in values:
        return None
    row = values[other.args[0]]
    if row.ndim != node.meta["val"].ndim or any(n != 1 for at, n in enumerate(row.shape) if at != 1):
        return None
    return user, rule, row.reshape(-1).to(float64), other


def _constant(program: TracedProgram, value: Tensor, near: Node) -> Node:
    """A constant of the program, before the node that it is for."""
    name = f"scaled_{len(program.constants)}"
    program.constants[name] = value
    node = program.graph.get_attr(name)
    node.meta = {**near.meta, "val": fake(tuple(value.shape), value.dtype, value.device, tuple(value.stride()))}
    return node
