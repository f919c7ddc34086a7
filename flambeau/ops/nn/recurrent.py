"""Recurrent networks: the gates of a step, what it does after its two products, and all steps of a layer, as one operator with
one gradient each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...core.tensor import Tensor
from .. import prims
from ..higher_order import scan
from ..promotion import cast
from ..registry import operator
from .layers import _flat, linear

State = tuple[Tensor, ...]


def _parts(x: Tensor, count: int) -> list[Tensor]:
    """The last dimension in `count` equal parts."""
    size = x.shape[-1] // count
    return [x.narrow(-1, k * size, size) for k in range(count)]


# -- LSTM ----------------------------------------------------------------------------------------------------
@operator(fused=True)
def lstm_gates_backward(gh: Tensor, gc: Tensor, projected: Tensor, recurrent: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients for the sum of the two products, and for the cell before."""
    i, f, g, o = _parts(projected + recurrent, 4)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    top = (f * c + i * g).tanh()
    cell = gc + gh * o * (1 - top * top)
    slopes = [cell * g * i * (1 - i), cell * c * f * (1 - f), cell * i * (1 - g * g), gh * top * o * (1 - o)]
    return gh.new_cat(slopes, -1), cell * f


def _lstm_gates_vjp(gs: tuple, projected: Tensor, recurrent: Tensor, c: Tensor) -> tuple:
    gh, gc = (c.new_zeros(tuple(c.shape)) if g is None else g for g in gs)
    slope, cell = lstm_gates_backward(gh, gc, projected, recurrent, c)
    return cast(slope, projected.dtype), cast(slope, recurrent.dtype), cast(cell, c.dtype)


@operator(fused=True, vjp=_lstm_gates_vjp)
def lstm_gates(projected: Tensor, recurrent: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """(h, c) after a step, from the products of the input and of h with their weights, and from c before (Hochreiter and
    Schmidhuber 1997, with forget gates)."""
    i, f, g, o = _parts(projected + recurrent, 4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


# -- GRU -----------------------------------------------------------------------------------------------------
@operator(fused=True)
def gru_gates_backward(g: Tensor, projected: Tensor, recurrent: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients for the two products and for the state before."""
    (ir, iz, inew), (hr, hz, hnew) = _parts(projected, 3), _parts(recurrent, 3)
    r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
    n = (inew + r * hnew).tanh()
    new = g * (1 - z) * (1 - n * n)
    reset, update = new * hnew * r * (1 - r), g * (h - n) * z * (1 - z)
    return g.new_cat([reset, update, new], -1), g.new_cat([reset, update, new * r], -1), g * z


def _gru_gates_vjp(g: Tensor, projected: Tensor, recurrent: Tensor, h: Tensor) -> tuple:
    grads = gru_gates_backward(g, projected, recurrent, h)
    return tuple(cast(grad, x.dtype) for grad, x in zip(grads, (projected, recurrent, h)))


@operator(fused=True, vjp=_gru_gates_vjp)
def gru_gates(projected: Tensor, recurrent: Tensor, h: Tensor) -> Tensor:
    """h after a step, from the products of the input and of h with their weights, and from h before (Cho et al. 2014)."""
    (ir, iz, inew), (hr, hz, hnew) = _parts(projected, 3), _parts(recurrent, 3)
    r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
    n = (inew + r * hnew).tanh()
    return (h - n) * z + n


# -- all steps -----------------------------------------------------------------------------------------------
def _lstm_back(gs: list, projected: Tensor, recurrent: Tensor, before: State, after: State) -> tuple:
    slope, cell = lstm_gates_backward(*gs, projected, recurrent, before[1])
    return slope, slope, [None, cell]


def _gru_back(gs: list, projected: Tensor, recurrent: Tensor, before: State, after: State) -> tuple:
    for_projected, for_recurrent, direct = gru_gates_backward(*gs, projected, recurrent, before[0])
    return for_projected, for_recurrent, [direct]


def _plain_back(slope: Callable[[Tensor, Tensor], Tensor]) -> Callable:
    def back(gs: list, projected: Tensor, recurrent: Tensor, before: State, after: State) -> tuple:
        g = slope(gs[0], after[0])
        return g, g, [None]
    return back


# By mode: (the two products, the state) -> the state after a step, and
# (gradients for the state after it, ...) -> gradients for the products, and for the state before beside what comes by its product.
_STEPS: dict[str, tuple[Callable[[Tensor, Tensor, State], State], Callable]] = {
    "LSTM": (lambda p, r, state: lstm_gates(p, r, state[1]), _lstm_back),
    "GRU": (lambda p, r, state: (gru_gates(p, r, state[0]),), _gru_back),
    "RNN_TANH": (lambda p, r, state: ((p + r).tanh(),), _plain_back(lambda g, h: g * (1 - h * h))),
    "RNN_RELU": (lambda p, r, state: ((p + r).relu(),), _plain_back(lambda g, h: g.masked_fill(h <= 0, 0))),
}


def recurrent_step(mode: str, projected: Tensor, state: State, w: Tensor, b: Tensor | None = None) -> State:
    """The state after one step; the first of the state is the output."""
    return _STEPS[mode][0](projected, linear(state[0], w, b), state)


def _steps_vjp(gs: Any, projected: Tensor, w: Tensor, b: Tensor | None, states: Sequence, outs: Sequence, mode: str,
               reverse: bool) -> tuple:
    """Back through the steps one by one; the weight's own gradient is one product over all of them."""
    ends = [s.unsqueeze(0) for s in states]
    before = [prims.cat([out[1:], end] if reverse else [end, out[:-1]], 0) for out, end in zip(outs, ends)]
    given, count = [g is not None for g in gs], len(states)

    def step(flow: tuple, inputs: tuple, captured: tuple) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        projected, recurrent, *around = inputs
        came = iter(around[2 * count:])
        total = [f + next(came) if has else f for f, has in zip(flow, given)]
        for_projected, for_recurrent, direct = _STEPS[mode][1](total, projected, recurrent, around[:count], around[count:2 * count])
        by_product = for_recurrent @ captured[0]
        both = (for_recurrent,) if for_projected is for_recurrent else (for_projected, for_recurrent)
        return (by_product if direct[0] is None else direct[0] + by_product, *direct[1:]), both

    xs = [projected, linear(before[0], w, b), *before, *outs, *[g for g in gs if g is not None]]
    flow, slopes = scan(step, [s.new_zeros(tuple(s.shape)) for s in states], xs, (w,), reverse=not reverse)
    rows = _flat(slopes[-1])
    return slopes[0], rows.mT @ _flat(before[0]), None if b is None else rows.sum(0), flow


@operator(vjp=_steps_vjp)
def recurrent_steps(projected: Tensor, w: Tensor, b: Tensor | None, states: Sequence[Tensor], mode: str, reverse: bool) -> State:
    """The states after each step, in the order of the inputs, of which `projected` (time, batch, gates) are the products."""
    def step(state: tuple, inputs: tuple, captured: tuple) -> tuple[State, State]:
        after = recurrent_step(mode, inputs[0], state, *captured)
        return after, after

    return scan(step, states, (projected,), (w,) if b is None else (w, b), reverse)[1]


__all__ = ["gru_gates", "lstm_gates", "recurrent_step", "recurrent_steps"]
