"""The gates of recurrent networks: what a step does after its two products, as one operator with one gradient."""

from __future__ import annotations

from ..core.tensor import Tensor
from .promotion import cast
from .registry import operator


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


__all__ = ["gru_gates", "lstm_gates"]
