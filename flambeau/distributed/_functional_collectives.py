"""Collectives that return their results (torch.distributed._functional_collectives). They are done when they return.

A captured graph holds them as steps (`graph_operators.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.tensor import Tensor
from ..ops.joining import cat
from ..ops.views import chunk
from . import graph_operators as operators
from .device_mesh import DeviceMesh
from .groups import GroupMember, _Groups, default_group, get_group_rank, new_group
from .process_group import ProcessGroup


def _group(group: Any) -> ProcessGroup:
    """The group that is meant by a ProcessGroup, a mesh of one dimension, (mesh, dimension), ranks, or a group's name."""
    if group is None or isinstance(group, ProcessGroup):
        return default_group(group)
    if isinstance(group, DeviceMesh):
        return group.get_group()
    if isinstance(group, str):
        if group not in _Groups.by_name:
            raise RuntimeError(f"Could not resolve the process group registered under the name {group}")
        return _Groups.by_name[group]
    if isinstance(group, tuple) and len(group) == 2 and isinstance(group[0], DeviceMesh):
        return group[0].get_group(group[1])
    if isinstance(group, list) and all(isinstance(r, int) for r in group):
        return next((g for g in _Groups.by_name.values() if list(g._ranks) == group), None) or new_group(group)
    raise ValueError(f"a group is a ProcessGroup, a DeviceMesh of one dimension, (DeviceMesh, dimension), a list of ranks or a name; not "
                     f"{type(group).__name__} {group!r}")


def facts_of_group(group: Any, world: ProcessGroup | None) -> tuple[str, int, int]:
    """(name, number of processes, this one's number) of the group that is meant: known while a graph is captured, which asks whether
    `world`, the default group, is still the same."""
    del world
    which = _group(group)
    return which.group_name, which.size(), which.rank()


def place_in_group(group: Any, world: ProcessGroup | None, rank: int) -> int:
    """The number in the group of a process of the default group, likewise."""
    del world
    return get_group_rank(_group(group), rank)


def wait_tensor(tensor: Tensor) -> Tensor:
    """The tensor: it is there already."""
    return tensor


class AsyncCollectiveTensor(Tensor, counted=False):
    """The class of results that are not there yet. There are none: collectives here are done when they return."""


def all_reduce(self: Tensor, reduceOp: str, group: Any = None) -> Tensor:
    """Everyone's tensors combined."""
    return operators.all_reduce(self.detach(), reduceOp, facts_of_group(group, GroupMember.WORLD)[0])


def broadcast(self: Tensor, src: int, group: Any = None) -> Tensor:
    """The tensor of process `src` (in the default group)."""
    return operators.broadcast(self.detach(), place_in_group(group, GroupMember.WORLD, src), facts_of_group(group, GroupMember.WORLD)[0])


def all_gather_tensor(self: Tensor, gather_dim: int, group: Any = None) -> Tensor:
    """Everyone's tensors, one after another along `gather_dim`."""
    return all_gather_tensor_autograd(self.detach(), gather_dim, group)


def _parts(self: Tensor, dim: int, size: int) -> Sequence[Tensor]:
    if self.shape[dim] % size:
        raise RuntimeError(f"input dimension {dim} ({self.shape[dim]}) must be a multiple of group_size {size}")
    return chunk(self, size, dim)


def reduce_scatter_tensor(self: Tensor, reduceOp: str, scatter_dim: int, group: Any = None) -> Tensor:
    """Everyone's tensors combined, this process's part along `scatter_dim`."""
    return reduce_scatter_tensor_autograd(self.detach(), reduceOp, scatter_dim, group)


def all_to_all_single(self: Tensor, output_split_sizes: Sequence[int] | None, input_split_sizes: Sequence[int] | None,
                      group: Any = None) -> Tensor:
    """Rows of the tensor from each process to each."""
    return all_to_all_single_autograd(self.detach(), output_split_sizes, input_split_sizes, group)


def permute_tensor(self: Tensor, src_dst: Sequence[int], group: Any = None) -> Tensor:
    """The tensor of the process r that `src_dst[r]` sends here: each process gets one."""
    _, size, me = facts_of_group(group, GroupMember.WORLD)
    n = self.numel()
    if sorted(src_dst) != list(range(size)):
        raise ValueError(f"src_dst is to be a permutation of the group's {size} ranks, not {list(src_dst)}")
    source = list(src_dst).index(me)
    received, sent = ([n if r == other else 0 for r in range(size)] for other in (source, src_dst[me]))
    return all_to_all_single(self.reshape(-1), received, sent, group).reshape(self.shape)


# -- several at once -----------------------------------------------------------------------------------------------------
def all_reduce_coalesced(self: Sequence[Tensor], reduceOp: str, group: Any = None) -> list[Tensor]:
    """`all_reduce` of each."""
    return [all_reduce(t, reduceOp, group) for t in self]


def all_gather_into_tensor_coalesced(self: Sequence[Tensor], group: Any = None) -> list[Tensor]:
    """`all_gather_tensor` of each, along the first dimension."""
    return [all_gather_tensor(t, 0, group) for t in self]


def reduce_scatter_tensor_coalesced(inputs: Sequence[Tensor], reduceOp: str, scatter_dim: Sequence[int], group: Any = None) -> list[Tensor]:
    """`reduce_scatter_tensor` of each."""
    return [reduce_scatter_tensor(t, reduceOp, dim, group) for t, dim in zip(inputs, scatter_dim, strict=True)]


# -- with gradients ------------------------------------------------------------------------------------------------------
def all_gather_tensor_autograd(self: Tensor, gather_dim: int, group: Any = None) -> Tensor:
    """`all_gather_tensor` whose gradient is a reduce_scatter."""
    name, size, _ = facts_of_group(group, GroupMember.WORLD)
    out = operators.all_gather_into_tensor(self, size, name)
    return out if gather_dim == 0 else cat(chunk(out, size, 0), gather_dim)


def reduce_scatter_tensor_autograd(self: Tensor, reduceOp: str, scatter_dim: int, group: Any = None) -> Tensor:
    """`reduce_scatter_tensor` whose gradient is an all_gather."""
    name, size, _ = facts_of_group(group, GroupMember.WORLD)
    parts = _parts(self, scatter_dim, size)
    return operators.reduce_scatter_tensor(self if scatter_dim == 0 else cat(parts, 0), reduceOp, size, name)


def all_to_all_single_autograd(self: Tensor, output_split_sizes: Sequence[int] | None, input_split_sizes: Sequence[int] | None,
                               group: Any = None) -> Tensor:
    """`all_to_all_single` whose gradient is another."""
    name, _, _ = facts_of_group(group, GroupMember.WORLD)
    return operators.all_to_all_single(self, list(output_split_sizes or ()), list(input_split_sizes or ()), name)
