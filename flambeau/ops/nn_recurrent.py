"""Recurrent networks: the gates of a step, what it does after its two products, and all steps of a layer, as one operator with
one gradient each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.tensor import Tensor
from . import prims
from .indexing import stack
from .nn import _flat, linear
from .promotion import cast
from .registry import operator

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
    return n + z * (h - n)


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


def recurrent_step(mode: str, projected: Tensor, state: State, w: Tensor, b: Tensor | None) -> State:
    """The state after one step; the first of the state is the output."""
    return _STEPS[mode][0](projected, linear(state[0], w, b), state)


def _steps_vjp(gs: Any, projected: Tensor, w: Tensor, b: Tensor | None, states: Sequence, outs: Sequence, mode: str,
               reverse: bool) -> tuple:
    """Back through the steps one by one; the weight's own gradient is one product over all of them."""
    ends = [s.unsqueeze(0) for s in states]
    before = [prims.cat([out[1:], end] if reverse else [end, out[:-1]], 0) for out, end in zip(outs, ends)]
    steps = [x.unbind(0) for x in (projected, linear(before[0], w, b), *before, *outs)]
    given = [None if g is None else g.unbind(0) for g in gs]
    count, flow, made = len(states), [None] * len(states), []
    for t in range(projected.shape[0])[::1 if reverse else -1]:
        p, r, *around = (x[t] for x in steps)
        came = [_sum(f, None if g is None else g[t], s) for f, g, s in zip(flow, given, states)]
        for_projected, for_recurrent, flow = _STEPS[mode][1](came, p, r, tuple(around[:count]), tuple(around[count:]))
        flow[0] = _sum(flow[0], for_recurrent @ w, states[0])
        made.append((for_projected, for_recurrent))
    g_projected, g_recurrent = (stack(part[::1 if reverse else -1], 0) for part in zip(*made))
    rows = _flat(g_recurrent)
    return g_projected, rows.mT @ _flat(before[0]), None if b is None else rows.sum(0), flow


def _sum(a: Tensor | None, b: Tensor | None, like: Tensor) -> Tensor:
    if a is None or b is None:
        return like.new_zeros(tuple(like.shape)) if a is b else b if a is None else a  # type: ignore[return-value]
    return a + b


@operator(vjp=_steps_vjp)
def recurrent_steps(projected: Tensor, w: Tensor, b: Tensor | None, states: Sequence[Tensor], mode: str, reverse: bool) -> State:
    """The states after each step, in the order of the inputs, of which `projected` (time, batch, gates) are the products."""
    state, made = tuple(states), []
    for p in projected.unbind(0)[::-1 if reverse else 1]:
        state = recurrent_step(mode, p, state, w, b)
        made.append(state)
    return tuple([stack(part[::-1 if reverse else 1], 0) for part in zip(*made)])


__all__ = ["gru_gates", "lstm_gates", "recurrent_step", "recurrent_steps"]
