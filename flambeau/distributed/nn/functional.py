"""Collectives that gradients flow through: the gradient of each is another one, in which all processes take part (graph_operators.py).

A process's gradient is that of the sum of all processes' losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.tensor import Tensor
from ...ops.creation import zeros_like
from ...ops.joining import cat, stack
from .. import graph_operators as operators
from .._functional_collectives import facts_of_group, place_in_group
from ..captured import name_of_reduction
from ..groups import GroupMember
from ..reduce_op import ReduceOp


def _facts(group: Any) -> tuple[str, int, int]:
    """(name, number of processes, this one's number) of the group."""
    return facts_of_group(group, GroupMember.WORLD)


def _named(tensor: Tensor, op: Any) -> tuple[Tensor, str]:
    """The tensor, and the name of how it is combined; a factor is a product before."""
    return (tensor * op.factor, "sum") if isinstance(op, ReduceOp) and op.factor is not None else (tensor, name_of_reduction(op))


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """The tensor of process `src`."""
    return operators.broadcast(tensor, place_in_group(group, GroupMember.WORLD, src), _facts(group)[0])


def reduce(tensor: Tensor, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Everyone's tensor combined, at process `dst`; zeros elsewhere."""
    x, how = _named(tensor, op)
    return operators.reduce(x, place_in_group(group, GroupMember.WORLD, dst), how, _facts(group)[0])


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Everyone's tensor combined."""
    return operators.all_reduce(*_named(tensor, op), _facts(group)[0])


def _gathered(tensor: Tensor, group: Any) -> Tensor:
    name, size, _ = _facts(group)
    return operators.all_gather_into_tensor(tensor.unsqueeze(0), size, name)


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """Everyone's tensor."""
    return tuple(_gathered(tensor, group).unbind(0))


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """Everyone's tensor, at process `dst`; zeros elsewhere."""
    name, size, mine = _facts(group)
    root = place_in_group(group, GroupMember.WORLD, dst)
    n = tensor.shape[0] if tensor.ndim else 1
    flat = tensor if tensor.ndim else tensor.reshape(1)
    sent, received = [n if r == root else 0 for r in range(size)], [n if mine == root else 0] * size
    rows = operators.all_to_all_single(flat, received, sent, name)
    return tuple(p.reshape(tensor.shape) for p in rows.split(n)) if mine == root else tuple(
        zeros_like(tensor) + rows.sum() for _ in range(size))


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """This process's tensor of the list of process `src`; the others' lists say its shape."""
    name, size, mine = _facts(group)
    root = place_in_group(group, GroupMember.WORLD, src)
    rows = stack(list(tensors))
    sent, received = [int(mine == root)] * size, [int(r == root) for r in range(size)]
    # between graphs: that of a process which sends nothing would leave out what it gives the others' gradients
    return operators.outside(operators.all_to_all_single, rows if mine == root else rows[:0], received, sent, name)[0]


def _into(output: Tensor, found: Tensor) -> Tensor:
    """`found`, which is also written into `output`."""
    output.detach().copy_(found.detach())
    return found


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Everyone's lists combined, of the results this process's; it is also written into `output`."""
    name, size, _ = _facts(group)
    return _into(output, operators.reduce_scatter_tensor(*_named(stack(list(input_list)), op), size, name)[0])


def _all_gather_base(output_tensor: Tensor, input_tensor: Tensor, group: Any = None) -> Tensor:
    """Everyone's tensor, one after another; it is also written into `output_tensor`."""
    return _into(output_tensor, _gathered(input_tensor, group).reshape(output_tensor.shape))


def all_to_all_single(output: Tensor, input: Tensor, output_split_sizes: Sequence[int] | None = None,
                      input_split_sizes: Sequence[int] | None = None, group: Any = None) -> Tensor:
    """Rows of `input` from each process to each; they are also written into `output`."""
    return _into(output, operators.all_to_all_single(input, list(output_split_sizes or ()), list(input_split_sizes or ()), _facts(group)[0]))


def all_to_all(output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None) -> tuple[Tensor, ...]:
    """A tensor from each process to each; they are also written into `output_tensor_list`, which says their shapes."""
    sizes, sent = ([t.numel() for t in tensors] for tensors in (output_tensor_list, input_tensor_list))
    flat = operators.all_to_all_single(cat([t.reshape(-1) for t in input_tensor_list]), sizes, sent, _facts(group)[0])
    return tuple(_into(out, part.reshape(out.shape)) for out, part in zip(output_tensor_list, flat.split(sizes)))


__all__ = ["broadcast", "gather", "scatter", "reduce", "reduce_scatter", "all_gather", "all_to_all", "all_to_all_single", "all_reduce"]
