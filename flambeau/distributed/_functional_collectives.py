"""Collectives that return their results (torch.distributed._functional_collectives). They are done when they return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.tensor import Tensor
from ..ops.creation import empty
from ..ops.joining import cat
from ..ops.views import chunk
from .device_mesh import DeviceMesh
from .groups import _Groups, default_group, new_group
from .nn import functional as differentiable
from .process_group import ProcessGroup
from .reduce_op import RedOpType


def _group(group: Any) -> ProcessGroup:
    """The group that is meant by a ProcessGroup, a mesh of one dimension, (mesh, dimension), ranks, or a group's name."""
    if group is None or isinstance(group, ProcessGroup):
        return group or default_group()
    if isinstance(group, DeviceMesh):
        return group.get_group()
    if isinstance(group, str):
        return _Groups.by_name[group]
    if isinstance(group, tuple) and len(group) == 2 and isinstance(group[0], DeviceMesh):
        return group[0].get_group(group[1])
    if isinstance(group, list) and all(isinstance(r, int) for r in group):
        return next((g for g in _Groups.by_name.values() if list(g._ranks) == group), None) or new_group(group)
    raise ValueError(f"a group is a ProcessGroup, a DeviceMesh of one dimension, (DeviceMesh, dimension), a list of ranks or a name; not "
                     f"{type(group).__name__} {group!r}")


def _op(name: str) -> RedOpType:
    kind = {"SUM": "SUM", "AVG": "AVG", "MEAN": "AVG", "PRODUCT": "PRODUCT", "MIN": "MIN", "MAX": "MAX", "BAND": "BAND", "BOR": "BOR",
            "BXOR": "BXOR"}.get(name.upper())
    if kind is None:
        raise ValueError(f"unknown reduction {name!r}")
    return RedOpType.__members__[kind]


def wait_tensor(tensor: Tensor) -> Tensor:
    """The tensor: it is there already."""
    return tensor


class AsyncCollectiveTensor(Tensor, counted=False):
    """The class of results that are not there yet. There are none: collectives here are done when they return."""


def all_reduce(self: Tensor, reduceOp: str, group: Any = None) -> Tensor:
    """Everyone's tensors combined."""
    out = self.clone()
    _group(group).allreduce(out, _op(reduceOp)).wait()
    return out


def broadcast(self: Tensor, src: int, group: Any = None) -> Tensor:
    """The tensor of process `src` (in the default group)."""
    out, which = self.clone(), _group(group)
    which.broadcast(out, which._ranks.index(src)).wait()
    return out


def all_gather_tensor(self: Tensor, gather_dim: int, group: Any = None) -> Tensor:
    """Everyone's tensors, one after another along `gather_dim`."""
    which = _group(group)
    out = empty((which.size() * self.shape[0], *self.shape[1:]), dtype=self.dtype, device=self.device)
    which._allgather_base(out, self).wait()
    return out if gather_dim == 0 else cat(chunk(out, which.size(), 0), gather_dim)


def _parts(self: Tensor, dim: int, size: int) -> Sequence[Tensor]:
    if self.shape[dim] % size:
        raise RuntimeError(f"input dimension {dim} ({self.shape[dim]}) must be a multiple of group_size {size}")
    return chunk(self, size, dim)


def reduce_scatter_tensor(self: Tensor, reduceOp: str, scatter_dim: int, group: Any = None) -> Tensor:
    """Everyone's tensors combined, this process's part along `scatter_dim`."""
    which = _group(group)
    parts = _parts(self, scatter_dim, which.size())
    out = empty(parts[0].shape, dtype=self.dtype, device=self.device)
    which._reduce_scatter_base(out, cat(parts, 0), _op(reduceOp)).wait()
    return out


def all_to_all_single(self: Tensor, output_split_sizes: Sequence[int] | None, input_split_sizes: Sequence[int] | None,
                      group: Any = None) -> Tensor:
    """Rows of the tensor from each process to each."""
    rows = self.shape[0] if output_split_sizes is None else sum(output_split_sizes)
    out = empty((rows, *self.shape[1:]), dtype=self.dtype, device=self.device)
    _group(group).alltoall_base(out, self, output_split_sizes, input_split_sizes).wait()
    return out


def permute_tensor(self: Tensor, src_dst: Sequence[int], group: Any = None) -> Tensor:
    """The tensor of the process r that `src_dst[r]` sends here: each process gets one."""
    which = _group(group)
    me, n = which.rank(), self.numel()
    if sorted(src_dst) != list(range(which.size())):
        raise ValueError(f"src_dst is to be a permutation of the group's {which.size()} ranks, not {list(src_dst)}")
    source = list(src_dst).index(me)
    received, sent = ([n if r == other else 0 for r in range(which.size())] for other in (source, src_dst[me]))
    return all_to_all_single(self.reshape(-1), received, sent, which).reshape(self.shape)


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
    return cat(differentiable.all_gather(self, _group(group)), gather_dim)


def reduce_scatter_tensor_autograd(self: Tensor, reduceOp: str, scatter_dim: int, group: Any = None) -> Tensor:
    """`reduce_scatter_tensor` whose gradient is an all_gather."""
    which = _group(group)
    parts = _parts(self, scatter_dim, which.size())
    return differentiable.reduce_scatter(empty(parts[0].shape, dtype=self.dtype, device=self.device), parts, _op(reduceOp), which)


def all_to_all_single_autograd(self: Tensor, output_split_sizes: Sequence[int] | None, input_split_sizes: Sequence[int] | None,
                               group: Any = None) -> Tensor:
    """`all_to_all_single` whose gradient is another."""
    rows = self.shape[0] if output_split_sizes is None else sum(output_split_sizes)
    out = empty((rows, *self.shape[1:]), dtype=self.dtype, device=self.device)
    return differentiable.all_to_all_single(out, self, output_split_sizes, input_split_sizes, _group(group))
