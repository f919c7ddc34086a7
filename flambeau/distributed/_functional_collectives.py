"""Collectives that return their results (torch.distributed._functional_collectives). They are done when they return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._absent import absent_names
from ..core.tensor import Tensor
from ..ops.creation import empty
from ..ops.joining import cat
from ..ops.views import chunk
from .groups import default_group
from .process_group import ProcessGroup
from .reduce_op import RedOpType


def _group(group: Any) -> ProcessGroup:
    if group is None or isinstance(group, ProcessGroup):
        return group or default_group()
    raise NotImplementedError(f"functional collectives take a ProcessGroup, not {type(group).__name__} {group!r}")


def _op(name: str) -> RedOpType:
    kind = {"SUM": "SUM", "AVG": "AVG", "MEAN": "AVG", "PRODUCT": "PRODUCT", "MIN": "MIN", "MAX": "MAX", "BAND": "BAND", "BOR": "BOR",
            "BXOR": "BXOR"}.get(name.upper())
    if kind is None:
        raise ValueError(f"unknown reduction {name!r}")
    return RedOpType.__members__[kind]


def wait_tensor(tensor: Tensor) -> Tensor:
    """The tensor: it is there already."""
    return tensor


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


def reduce_scatter_tensor(self: Tensor, reduceOp: str, scatter_dim: int, group: Any = None) -> Tensor:
    """Everyone's tensors combined, this process's part along `scatter_dim`."""
    which = _group(group)
    parts = chunk(self, which.size(), scatter_dim)
    if len(parts) != which.size() or self.shape[scatter_dim] % which.size():
        raise RuntimeError(f"input dimension {scatter_dim} ({self.shape[scatter_dim]}) must be a multiple of group_size {which.size()}")
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


__getattr__ = absent_names(
    "torch.distributed._functional_collectives", ("all_to_all_single_autograd", "all_gather_tensor_autograd", "AsyncCollectiveTensor"),
    "use the collectives of torch.distributed, and an autograd.Function for gradients through them",
)
