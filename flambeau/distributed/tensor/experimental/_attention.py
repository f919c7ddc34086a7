"""Context parallel: each process has a part of the sequence, and keys and values go round (ring attention: Liu et al., 2023).

Attention of a process's queries to one part of the keys is merged with that to the others by the largest score and the sum so far.
Gradients go round again: those of keys and values travel with them, and are at home after a whole turn. A process has one piece of the
beginning and one of the end of the sequence, so that with causal masks all have the same number of pairs.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

from ....autograd.function import Function
from ....autograd.grad_mode import no_grad
from ....core.dtypes import float32, promote_types
from ....core.tensor import Tensor
from ....ops.counting import arange
from ....ops.creation import empty, empty_like
from ....ops.joining import cat
from ....ops.nn.attention import scaled_dot_product_attention
from ....overrides import TorchFunctionMode
from ...collectives import irecv, isend
from ...device_mesh import DeviceMesh
from ...groups import get_process_group_ranks
from ...process_group import ProcessGroup


class _Options:
    """`enable_load_balance`: a piece of the beginning and one of the end for each; else one piece in order."""

    enable_load_balance = True


_cp_options = _Options()
_ROTATIONS = ("allgather", "alltoall")


def set_rotate_method(rotate_method: str) -> None:
    """How torch moves keys and values: "allgather" or "alltoall". Here they go round in either case."""
    if rotate_method not in _ROTATIONS:
        raise NotImplementedError(f"Unknown method {rotate_method}; there are {_ROTATIONS}")


def _positions(rank: int, size: int, length: int) -> Tensor:
    """Where the elements of a process's part of a sequence of `length` lie in the whole."""
    if not _cp_options.enable_load_balance:
        return arange(rank * length // size, (rank + 1) * length // size)
    piece = length // (2 * size)
    return cat([arange(i * piece, (i + 1) * piece) for i in (rank, 2 * size - 1 - rank)])


def _check_length(length: int, size: int) -> None:
    pieces = size * (2 if _cp_options.enable_load_balance else 1)
    if length % pieces:
        raise ValueError(f"a sequence of {length} can't be cut into {pieces} equal pieces for {size} processes; pad it")


class _Exchange:
    """Tensors on their way to the next process, and the previous one's on their way here."""

    def __init__(self, tensors: Sequence[Tensor], group: ProcessGroup) -> None:
        ranks, me = get_process_group_ranks(group), group.rank()
        self.sent, self.came = [t.contiguous() for t in tensors], [empty_like(t) for t in tensors]
        self.works = [isend(t, ranks[(me + 1) % len(ranks)], group, tag) for tag, t in enumerate(self.sent)]
        self.works += [irecv(t, ranks[me - 1], group, tag) for tag, t in enumerate(self.came)]

    def wait(self) -> list[Tensor]:
        """What came."""
        for work in self.works:
            work.wait()  # type: ignore[union-attr]
        return self.came


class _Ring(Function):
    """Attention of this process's queries to everyone's keys. (batch..., length, features)."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, group: ProcessGroup) -> Tensor:
        kind = promote_types(q.dtype, float32)
        ctx.scale, ctx.causal, ctx.group, size = scale, causal, group, group.size()
        wide, parts = q.to(kind), [k, v]
        top: Any = None  # of each row: the largest score so far, the sum of weights below, and what is weighed
        total: Any = None
        out: Any = None
        for step in range(size):
            coming = _Exchange(parts, group) if step < size - 1 else None
            scores = _scores(wide, parts[0].to(kind), scale, causal, group, step)
            if scores is not None:
                peak = scores.amax(-1, keepdim=True)
                new = peak if top is None else top.maximum(peak)
                p = (scores - new).exp()
                here, mass = p @ parts[1].to(kind), p.sum(-1, keepdim=True)
                if top is None:
                    total, out = mass, here
                else:
                    kept = (top - new).exp()
                    total, out = total * kept + mass, out * kept + here
                top = new
            parts = coming.wait() if coming is not None else parts
        out = out / total
        ctx.save_for_backward(q, k, v, out, top + total.log())
        return out.to(q.dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        q, k, v, out, log_sum = ctx.saved_tensors
        kind, group, size = out.dtype, ctx.group, ctx.group.size()
        wide, g = q.to(kind), g.to(kind)
        across = (g * out).sum(-1, keepdim=True)
        dq, parts = wide.new_zeros(wide.shape), [k, v]
        grads = [wide.new_zeros(k.shape), wide.new_zeros(v.shape)]
        for step in range(size):
            coming = _Exchange(parts, group) if step < size - 1 else None
            keys, values = (t.to(kind) for t in parts)
            scores = _scores(wide, keys, ctx.scale, ctx.causal, group, step)
            if scores is not None:
                p = (scores - log_sum).exp()
                ds = p * (g @ values.mT - across) * ctx.scale
                dq = dq + ds @ keys
                grads = [grads[0] + ds.mT @ wide, grads[1] + p.mT @ g]
            if size > 1:
                grads = _Exchange(grads, group).wait()
            parts = coming.wait() if coming is not None else parts
        return dq.to(q.dtype), grads[0].to(k.dtype), grads[1].to(v.dtype), None, None, None


def _scores(q: Tensor, k: Tensor, scale: float, causal: bool, group: ProcessGroup, step: int) -> Tensor | None:
    """Of the queries here and the keys that came `step` processes far; None if the queries see none of them."""
    size, me = group.size(), group.rank()
    if not causal:
        return q @ k.mT * scale
    mine, theirs = (_positions(r, size, size * q.shape[-2]) for r in (me, (me - step) % size))
    seen = mine.unsqueeze(1) >= theirs
    if not bool(seen.any()):
        return None
    return (q @ k.mT * scale).masked_fill(~seen, -math.inf)


def ring_attention(query: Tensor, key: Tensor, value: Tensor, group: ProcessGroup, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
                   is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False) -> Tensor:
    """scaled_dot_product_attention of sequences of which each process of `group` has its part, as `context_parallel` cuts them."""
    if attn_mask is not None or dropout_p:
        raise NotImplementedError("attention with attn_mask or dropout within context_parallel() is not implemented; use is_causal=, and "
                                  "dropout outside of attention")
    if is_causal and query.shape[-2] != key.shape[-2]:
        raise ValueError(f"causal attention within context_parallel() of {query.shape[-2]} queries and {key.shape[-2]} keys: each process "
                         "has its part of one sequence")
    if enable_gqa:
        key, value = (t.repeat_interleave(query.shape[-3] // t.shape[-3], -3) for t in (key, value))
    return _Ring.apply(query, key, value, 1 / math.sqrt(query.shape[-1]) if scale is None else scale, is_causal, group)


class _RingMode(TorchFunctionMode):
    """Attention goes round."""

    operators_only = True

    def __init__(self, group: ProcessGroup) -> None:
        super().__init__()
        self.group = group

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        del types
        if func is not scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        query, key, value, *more = args if len(args) >= 3 else (*args, *((kwargs or {})[n] for n in ("query", "key", "value")[len(args):]))
        named = {name: v for name, v in (kwargs or {}).items() if name not in ("query", "key", "value")}
        return ring_attention(query, key, value, self.group, *more, **named)


@contextlib.contextmanager
def context_parallel(mesh: DeviceMesh, *, buffers: list[Tensor] | None = None, buffer_seq_dims: list[int] | None = None,
                     no_restore_buffers: set[Tensor] | None = None) -> Iterator[None]:
    """Within, `buffers` are this process's parts of what they were along `buffer_seq_dims`, and attention is that of the whole sequence.

    Afterwards they are whole again, but for `no_restore_buffers`. `mesh` has one dimension.
    """
    buffers, dims = buffers or [], buffer_seq_dims or []
    if len(buffers) != len(dims):
        raise ValueError(f"`seq_dims` must have the same number of elements as `buffers`: {len(dims)} and {len(buffers)}")
    kept = no_restore_buffers or set()
    if any(not any(b is k for b in buffers) for k in kept):
        raise ValueError("`no_restore_buffers` must be a subset of `buffers`.")
    group = mesh.get_group()
    for buffer, dim in zip(buffers, dims):
        _check_length(buffer.shape[dim], group.size())
    whole = [None if any(b is k for k in kept) else b.detach().clone() for b in buffers]
    with no_grad():
        for buffer, dim in zip(buffers, dims):
            _become(buffer, buffer.index_select(dim, _positions(group.rank(), group.size(), buffer.shape[dim])))
    try:
        with _RingMode(group):
            yield
    finally:
        with no_grad():
            for buffer, before in zip(buffers, whole):
                if before is not None:
                    _become(buffer, before)


def _become(buffer: Tensor, value: Tensor) -> None:
    buffer.resize_(value.shape)
    buffer.copy_(value)


def context_parallel_unshard(mesh: DeviceMesh, buffers: list[Tensor], seq_dims: list[int], load_balancer: Any = None) -> list[Tensor]:
    """The whole tensors of which each process has its part, as `context_parallel` cuts them."""
    if load_balancer is not None:
        raise NotImplementedError("context_parallel_unshard(load_balancer=) is not implemented; _cp_options.enable_load_balance says how "
                                  "parts lie")
    group, found = mesh.get_group(), []
    for buffer, dim in zip(buffers, seq_dims, strict=True):
        rows = buffer.detach().movedim(dim, 0).contiguous()
        out = empty((group.size() * rows.shape[0], *rows.shape[1:]), dtype=rows.dtype, device=rows.device)
        group._allgather_base(out, rows).wait()
        order = cat([_positions(r, group.size(), out.shape[0]) for r in range(group.size())])
        found.append(out[order.argsort()].movedim(0, dim).contiguous())
    return found


__all__ = ["context_parallel", "context_parallel_unshard", "ring_attention", "set_rotate_method"]
