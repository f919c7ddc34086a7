"""What a captured graph holds in the place of collectives that write to their arguments: operators, and copies of their results.

The work of one that is not waited for has no place in a graph: that is a graph break, as are groups and reductions that capture can't tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.tensor import Tensor
from . import collectives
from . import graph_operators as operators
from ._functional_collectives import facts_of_group, place_in_group
from .groups import GroupMember
from .reduce_op import RedOpType, kind_of

SUM = RedOpType.SUM


def name_of_reduction(op: Any) -> str:
    """"sum" of ReduceOp.SUM: known while a graph is captured."""
    return kind_of(op).name.lower()


def all_reduce(tensor: Tensor, op: Any = SUM, group: Any = None, async_op: bool = False) -> Any:
    """`torch.distributed.all_reduce`, captured."""
    if async_op:
        return operators.outside(collectives.all_reduce, tensor, op, group, async_op)
    name, _, _ = facts_of_group(group, GroupMember.WORLD)
    tensor.detach().copy_(operators.all_reduce(tensor.detach(), name_of_reduction(op), name))
    return None


def broadcast(tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None) -> Any:
    """`torch.distributed.broadcast`, captured."""
    if async_op or (src is None) == (group_src is None):
        return operators.outside(collectives.broadcast, tensor, src, group, async_op, group_src)
    name, _, _ = facts_of_group(group, GroupMember.WORLD)
    root = group_src if src is None else place_in_group(group, GroupMember.WORLD, src)
    tensor.detach().copy_(operators.broadcast(tensor.detach(), root, name))
    return None


def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False) -> Any:
    """`torch.distributed.all_gather_into_tensor`, captured."""
    name, size, _ = facts_of_group(group, GroupMember.WORLD)
    if async_op or output_tensor.numel() != size * input_tensor.numel():
        return operators.outside(collectives.all_gather_into_tensor, output_tensor, input_tensor, group, async_op)
    rows = operators.all_gather_into_tensor(input_tensor.detach() if input_tensor.ndim else input_tensor.detach().reshape(1), size, name)
    output_tensor.detach().copy_(rows.reshape(output_tensor.shape))
    return None


def reduce_scatter_tensor(output: Tensor, input: Tensor, op: Any = SUM, group: Any = None, async_op: bool = False) -> Any:
    """`torch.distributed.reduce_scatter_tensor`, captured."""
    name, size, _ = facts_of_group(group, GroupMember.WORLD)
    if async_op or input.numel() != size * output.numel():
        return operators.outside(collectives.reduce_scatter_tensor, output, input, op, group, async_op)
    rows = input.detach() if input.shape[0] % size == 0 else input.detach().reshape(size, -1)
    part = operators.reduce_scatter_tensor(rows, name_of_reduction(op), size, name)
    output.detach().copy_(part.reshape(output.shape))
    return None


def all_to_all_single(output: Tensor, input: Tensor, output_split_sizes: Sequence[int] | None = None,
                      input_split_sizes: Sequence[int] | None = None, group: Any = None, async_op: bool = False) -> Any:
    """`torch.distributed.all_to_all_single`, captured."""
    name, _, _ = facts_of_group(group, GroupMember.WORLD)
    if async_op:
        return operators.outside(collectives.all_to_all_single, output, input, output_split_sizes, input_split_sizes, group, async_op)
    output.detach().copy_(operators.all_to_all_single(input.detach(), list(output_split_sizes or ()), list(input_split_sizes or ()), name))
    return None


for _fn in (all_reduce, broadcast, all_gather_into_tensor, reduce_scatter_tensor, all_to_all_single):
    getattr(collectives, _fn.__name__)._flambeau_captured_as = _fn
