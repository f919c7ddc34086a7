"""Recurrent networks: the gates of a step, what it does after its two products, and all steps of a layer, as one operator with
one gradient each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...core.device import CPU, device
from ...core.dtypes import int64
from ...core.tensor import Tensor, from_array
from .. import prims
from ..higher_order import scan
from ..promotion import cast
from ..registry import OPERATORS, operator
from .layers import _flat, linear

State = tuple[Tensor, ...]


def _parts(x: Tensor, count: int) -> list[Tensor]:
    """The last dimension in `count` equal parts."""
    size = x.shape[-1] // count
    return [x.narrow(-1, k * size, size) for k in range(count)]


# -- sequences of different lengths --------------------------------------------------------------------------
def indices(values: Sequence[int], where: device = CPU) -> Tensor:
    """Numbers as a tensor of int64."""
    return from_array(np.asarray(values, np.int64), int64).to(where)


def packed(x: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The steps of sequences (time, batch, ...) of these lengths, the longest first, step after step; and how many have each step."""
    counts = [sum(n > t for n in lengths) for t in range(lengths[0])]
    rows = [t * len(lengths) + b for t, count in enumerate(counts) for b in range(count)]
    return x.reshape(-1, *x.shape[2:]).index_select(0, indices(rows, x.device)), indices(counts)


def unpacked(data: Tensor, counts: Sequence[int], steps: int, padding: float) -> tuple[Tensor, Tensor]:
    """Sequences (time, batch, ...) of packed ones, of which `counts` have each step, with `padding` after each; and their lengths."""
    batch = counts[0]
    rows = indices([t * batch + b for t, count in enumerate(counts) for b in range(count)], data.device)
    out = data.new_full((steps * batch, *data.shape[1:]), padding).index_put((rows,), data)
    return out.reshape(steps, batch, *data.shape[1:]), indices([sum(count > b for count in counts) for b in range(batch)])


def padded(sequences: Sequence[Tensor], batch_first: bool, padding: float, side: str) -> Tensor:
    """Tensors (length, ...) of different lengths as one (longest, batch, ...) tensor."""
    if side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {side}.")
    longest = max(s.shape[0] for s in sequences)
    rows = []
    for s in sequences:
        missing = longest - s.shape[0]
        if missing:
            filler = s.new_full((missing, *s.shape[1:]), padding)
            s = s.new_cat([s, filler] if side == "right" else [filler, s], 0)
        rows.append(s.unsqueeze(0 if batch_first else 1))
    return rows[0].new_cat(rows, 0 if batch_first else 1)


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
def _gru_parts(projected: Tensor, recurrent: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gates that reset and update, the new state, and what the state before adds to it."""
    (ir, iz, inew), (hr, hz, hnew) = _parts(projected, 3), _parts(recurrent, 3)
    r = (ir + hr).sigmoid()
    return r, (iz + hz).sigmoid(), (inew + r * hnew).tanh(), hnew


@operator(fused=True)
def gru_gates_backward(g: Tensor, projected: Tensor, recurrent: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients for the two products and for the state before."""
    r, z, n, hnew = _gru_parts(projected, recurrent)
    new = g * (1 - z) * (1 - n * n)
    reset, update = new * hnew * r * (1 - r), g * (h - n) * z * (1 - z)
    return g.new_cat([reset, update, new], -1), g.new_cat([reset, update, new * r], -1), g * z


def _gru_gates_vjp(g: Tensor, projected: Tensor, recurrent: Tensor, h: Tensor) -> tuple:
    grads = gru_gates_backward(g, projected, recurrent, h)
    return tuple(cast(grad, x.dtype) for grad, x in zip(grads, (projected, recurrent, h)))


@operator(fused=True, vjp=_gru_gates_vjp)
def gru_gates(projected: Tensor, recurrent: Tensor, h: Tensor) -> Tensor:
    """h after a step, from the products of the input and of h with their weights, and from h before (Cho et al. 2014)."""
    _, z, n, _ = _gru_parts(projected, recurrent)
    return (h - n) * z + n


# -- all steps -----------------------------------------------------------------------------------------------
def _lstm_back(gs: list, projected: Tensor, recurrent: Tensor, before: State, after: State) -> tuple:
    g_hidden, g_cell = gs
    slope, cell = lstm_gates_backward(g_hidden, g_cell, projected, recurrent, before[1])
    return slope, slope, [None, cell]


def _gru_back(gs: list, projected: Tensor, recurrent: Tensor, before: State, after: State) -> tuple:
    (g,) = gs
    for_projected, for_recurrent, direct = gru_gates_backward(g, projected, recurrent, before[0])
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
               reverse: bool, mask: Tensor | None) -> tuple:
    """Back through the steps one by one; the weight's own gradient is one product over all of them. What a state is that a step left as it
    was goes past the step."""
    ends = [s.unsqueeze(0) for s in states]
    before = [prims.cat([out[1:], end] if reverse else [end, out[:-1]], 0) for out, end in zip(outs, ends)]
    given, count = [g is not None for g in gs], len(states)

    def step(flow: tuple, inputs: tuple, captured: tuple) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        projected, recurrent, *around = inputs
        came, here = iter(around[2 * count:]), None if mask is None else around[-1] != 0
        total = [f + next(came) if has else f for f, has in zip(flow, given)]
        used = total if here is None else [t.where(here, t.new_zeros(())) for t in total]
        for_projected, for_recurrent, direct = _STEPS[mode][1](used, projected, recurrent, around[:count], around[count:2 * count])
        by_product = for_recurrent @ captured[0]
        both = (for_recurrent,) if for_projected is for_recurrent else (for_projected, for_recurrent)
        after = (by_product if direct[0] is None else direct[0] + by_product, *direct[1:])
        return after if here is None else [a.where(here, t) for a, t in zip(after, total)], both

    xs = [projected, linear(before[0], w, b), *before, *outs, *[g for g in gs if g is not None], *([] if mask is None else [mask])]
    flow, slopes = scan(step, [s.new_zeros(tuple(s.shape)) for s in states], xs, (w,), reverse=not reverse)
    rows = _flat(slopes[-1])
    return slopes[0], rows.mT @ _flat(before[0]), None if b is None else rows.sum(0), flow, None


@operator(vjp=_steps_vjp)
def recurrent_steps(projected: Tensor, w: Tensor, b: Tensor | None, states: Sequence[Tensor], mode: str, reverse: bool,
                    mask: Tensor | None = None) -> State:
    """The states after each step, in the order of the inputs, of which `projected` (time, batch, gates) are the products. Where `mask`
    (time, batch, 1) is 0, a step leaves the state as it was."""
    def step(state: tuple, inputs: tuple, captured: tuple) -> tuple[State, State]:
        after = recurrent_step(mode, inputs[0], state, *captured)
        if mask is not None:
            after = tuple(new.where(inputs[1] != 0, old) for new, old in zip(after, state))
        return after, after

    return scan(step, states, (projected,) if mask is None else (projected, mask), (w,) if b is None else (w, b), reverse)[1]


# -- layers ------------------------------------------------------------------------------------------------------------------------
class Weights(NamedTuple):
    """What one direction of a layer multiplies with; `projection` makes an LSTM's output narrower than its cell."""

    w_ih: Tensor
    w_hh: Tensor
    b_ih: Tensor | None = None
    b_hh: Tensor | None = None
    projection: Tensor | None = None


def one_direction(mode: str, x: Tensor, state: State, weights: Weights, reverse: bool, mask: Tensor | None) -> tuple[Tensor, State]:
    """(time, batch, features) through one layer in one direction. `mask` (time, batch, 1) says which steps exist."""
    projected = linear(x, weights.w_ih, weights.b_ih)
    w, b, projection = weights.w_hh, weights.b_hh, weights.projection
    if projection is None and x.shape[0] and all(s.dtype is w.dtype for s in (projected, *state)):
        after = recurrent_steps(projected, w, b, state, mode, reverse, mask)
        return after[0] if mask is None else after[0] * mask, tuple(s[0 if reverse else -1] for s in after)
    gates = projected.unbind(0)
    outputs: list[Tensor] = []
    for t in range(len(gates) - 1, -1, -1) if reverse else range(len(gates)):
        new = recurrent_step(mode, gates[t], state, w, b)
        if projection is not None:
            new = (linear(new[0], projection), *new[1:])
        if mask is not None:
            here = mask[t]
            outputs.append(new[0] * here)
            new = tuple(n.where(here != 0, s) for n, s in zip(new, state))
        else:
            outputs.append(new[0])
        state = new
    outputs = outputs[::-1] if reverse else outputs
    return x.new_cat([o.unsqueeze(0) for o in outputs], 0), state


def recurrent_layers(mode: str, x: Tensor, states: State, weights: Sequence[Weights], directions: int, dropout: float, training: bool,
                     mask: Tensor | None = None) -> tuple[Tensor, State]:
    """(time, batch, features) through layers, in one direction or two: the last one's outputs, and the final states."""
    finals: list[State] = []
    for layer in range(len(weights) // directions):
        outs = []
        for direction in range(directions):
            k = layer * directions + direction
            out, final = one_direction(mode, x, tuple(s[k] for s in states), weights[k], bool(direction), mask)
            outs.append(out)
            finals.append(final)
        x = outs[0] if directions == 1 else outs[0].new_cat(outs, -1)
        if dropout and (layer + 1) * directions < len(weights):
            x = OPERATORS["dropout"](x, dropout, training)
    stacked = tuple(parts[0].new_cat([p.unsqueeze(0) for p in parts], 0) for parts in zip(*finals))
    if mode != "LSTM" and directions == 1 and mask is None and x.requires_grad:
        x = x.clone()   # may be written to, as in torch but for an LSTM's: the gradient reads what the steps made
    return x, stacked


def grouped(params: Sequence[Tensor], has_biases: bool, projected: bool) -> list[Weights]:
    """A flat list of parameters by layer and direction."""
    size = 2 + 2 * has_biases + projected
    parts = [params[at:at + size] for at in range(0, len(params), size)]
    return [Weights(p[0], p[1], *(p[2:4] if has_biases else (None, None)), *(p[-1:] if projected else ())) for p in parts]


def sequences(mode: str, x: Tensor, states: State, params: Sequence[Tensor], has_biases: bool, dropout: float, train: bool,
              bidirectional: bool, batch_first: bool) -> tuple[Tensor, State]:
    """What ATen's lstm, gru, rnn_tanh and rnn_relu compute of (time, batch, features), or (batch, time, features)."""
    weights = grouped(params, has_biases, mode == "LSTM" and states[0].shape[-1] != states[-1].shape[-1])
    out, finals = recurrent_layers(mode, x.transpose(0, 1) if batch_first else x, states, weights, 1 + bidirectional, dropout, train)
    return (out.transpose(0, 1) if batch_first else out), finals


def packed_sequences(mode: str, data: Tensor, batch_sizes: Tensor, states: State, params: Sequence[Tensor], has_biases: bool,
                     dropout: float, train: bool, bidirectional: bool) -> tuple[Tensor, State]:
    """The same of a packed sequence: `batch_sizes` says how many examples have a step."""
    sizes = batch_sizes.tolist()
    steps, batch = len(sizes), sizes[0] if sizes else 0
    flat = [t * batch + b for t, size in enumerate(sizes) for b in range(size)]
    here = data.new_tensor(flat, dtype=batch_sizes.dtype)
    padded = data.new_zeros((steps * batch, data.shape[-1])).index_copy(0, here, data).unflatten(0, (steps, batch))
    mask = data.new_zeros((steps * batch, 1)).index_fill(0, here, 1).unflatten(0, (steps, batch))
    weights = grouped(params, has_biases, mode == "LSTM" and states[0].shape[-1] != states[-1].shape[-1])
    out, finals = recurrent_layers(mode, padded, states, weights, 1 + bidirectional, dropout, train, mask)
    return out.flatten(0, 1).index_select(0, here), finals
