"""Collectives that gradients flow through: the gradient of each is another one, in which all processes take part.

A process's gradient is that of the sum of all processes' losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...autograd.function import Function
from ...core.tensor import Tensor
from ...ops.creation import empty, zeros_like
from ...ops.joining import cat, stack
from .. import collectives
from ..groups import default_group
from ..process_group import ProcessGroup
from ..reduce_op import RedOpType, ReduceOp, kind_of

SUM = RedOpType.SUM


def _which(group: Any) -> ProcessGroup:
    return default_group() if group is None else group


def _summed(op: Any, what: str) -> None:
    if kind_of(op) not in (RedOpType.SUM, RedOpType.AVG):
        raise NotImplementedError(f"the gradient of {what} by {op} is not implemented; use SUM or AVG, or no_grad()")


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, src: int, group: ProcessGroup) -> Tensor:
        ctx.src, ctx.group = src, group
        out = tensor.clone()
        collectives.broadcast(out, src, group)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        grad = _Reduce.apply(g, ctx.src, SUM, ctx.group)
        return grad if ctx.group.rank() == collectives.get_group_rank(ctx.group, ctx.src) else zeros_like(grad), None, None


class _Reduce(Function):
    """Everyone's tensor combined: at process `dst`, or with None everywhere."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, dst: int | None, op: Any, group: ProcessGroup) -> Tensor:
        ctx.dst, ctx.op, ctx.group = dst, op, group
        out = tensor.clone()
        if dst is None:
            collectives.all_reduce(out, op, group)
        else:
            collectives.reduce(out, dst, op, group)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        _summed(ctx.op, "reduce()" if ctx.dst is not None else "all_reduce()")
        if ctx.dst is None:
            return _Reduce.apply(g, None, ctx.op, ctx.group), None, None, None
        g = _Broadcast.apply(g, ctx.dst, ctx.group)
        return g / ctx.group.size() if kind_of(ctx.op) is RedOpType.AVG else g, None, None, None


class _AllGather(Function):
    """The processes' tensors along a new first dimension."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        out = empty((group.size(), *tensor.shape), dtype=tensor.dtype, device=tensor.device)
        collectives.all_gather_into_tensor(out, tensor, group)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        return _ReduceScatter.apply(g, SUM, ctx.group), None


class _ReduceScatter(Function):
    """Of each process's rows, combined with the others', the row that is its own."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, op: Any, group: ProcessGroup) -> Tensor:
        ctx.op, ctx.group = op, group
        out = empty(rows.shape[1:], dtype=rows.dtype, device=rows.device)
        collectives.reduce_scatter_tensor(out, rows, op, group)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        _summed(ctx.op, "reduce_scatter()")
        rows = _AllGather.apply(g, ctx.group)
        return rows / ctx.group.size() if kind_of(ctx.op) is RedOpType.AVG else rows, None, None


class _AllToAll(Function):
    """Rows from each process to each."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, received: Sequence[int], sent: Sequence[int], group: ProcessGroup) -> Tensor:
        ctx.splits, ctx.group = (received, sent), group
        out = empty((sum(received), *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)
        collectives.all_to_all_single(out, tensor, list(received), list(sent), group)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        received, sent = ctx.splits
        return _AllToAll.apply(g, sent, received, ctx.group), None, None, None


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """The tensor of process `src`."""
    return _Broadcast.apply(tensor, src, _which(group))


def reduce(tensor: Tensor, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Everyone's tensor combined, at process `dst`."""
    return _Reduce.apply(tensor, dst, op, _which(group))


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Everyone's tensor combined."""
    return _Reduce.apply(tensor, None, op, _which(group))


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """Everyone's tensor."""
    return tuple(_AllGather.apply(tensor, _which(group)).unbind(0))


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """Everyone's tensor, at process `dst`; zeros elsewhere."""
    which = _which(group)
    mine, root = which.rank(), collectives.get_group_rank(which, dst)
    n = tensor.shape[0] if tensor.ndim else 1
    flat = tensor if tensor.ndim else tensor.reshape(1)
    sent, received = [n if r == root else 0 for r in range(which.size())], [n if mine == root else 0] * which.size()
    rows = _AllToAll.apply(flat, received, sent, which)
    return tuple(p.reshape(tensor.shape) for p in rows.split(n)) if mine == root else tuple(
        zeros_like(tensor) + rows.sum() for _ in range(which.size()))


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """This process's tensor of the list of process `src`; the others' lists say its shape."""
    which = _which(group)
    mine, root = which.rank(), collectives.get_group_rank(which, src)
    rows, n = stack(list(tensors)), which.size()
    sent, received = [int(mine == root)] * n, [int(r == root) for r in range(n)]
    return _AllToAll.apply(rows if mine == root else rows[:0], received, sent, which)[0]


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Everyone's lists combined, of the results this process's; it is also written into `output`."""
    found = _ReduceScatter.apply(stack(list(input_list)), op, _which(group))
    output.detach().copy_(found.detach())
    return found


def _all_gather_base(output_tensor: Tensor, input_tensor: Tensor, group: Any = None) -> Tensor:
    """Everyone's tensor, one after another; it is also written into `output_tensor`."""
    found = _AllGather.apply(input_tensor, _which(group)).reshape(output_tensor.shape)
    output_tensor.detach().copy_(found.detach())
    return found


def all_to_all_single(output: Tensor, input: Tensor, output_split_sizes: Sequence[int] | None = None,
                      input_split_sizes: Sequence[int] | None = None, group: Any = None) -> Tensor:
    """Rows of `input` from each process to each; they are also written into `output`."""
    which = _which(group)
    n = which.size()
    found = _AllToAll.apply(input, list(output_split_sizes or [output.shape[0] // n] * n),
                            list(input_split_sizes or [input.shape[0] // n] * n), which)
    output.detach().copy_(found.detach())
    return found


def all_to_all(output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None) -> tuple[Tensor, ...]:
    """A tensor from each process to each; they are also written into `output_tensor_list`, which says their shapes."""
    sizes = [t.numel() for t in output_tensor_list]
    flat = _AllToAll.apply(cat([t.reshape(-1) for t in input_tensor_list]), sizes, [t.numel() for t in input_tensor_list], _which(group))
    found = tuple(part.reshape(t.shape) for part, t in zip(flat.split(sizes), output_tensor_list))
    for out, part in zip(output_tensor_list, found):
        out.detach().copy_(part.detach())
    return found


__all__ = ["broadcast", "gather", "scatter", "reduce", "reduce_scatter", "all_gather", "all_to_all", "all_to_all_single", "all_reduce"]
