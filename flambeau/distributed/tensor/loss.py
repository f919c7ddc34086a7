"""loss_parallel: cross entropy of logits whose classes are spread over processes, without bringing the logits together.

Each process computes with its classes; between processes go one maximum, one sum and one logit for each row.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

from ...autograd.function import Function
from ...autograd.grad_mode import no_grad
from ...core.settings import add_setting
from ...core.size import contiguous_strides
from ...core.tensor import Tensor
from ...ops.checks import checked
from ...ops.counting import arange
from ...ops.nn.losses import cross_entropy
from .. import graph_operators as operators
from ..device_mesh import DeviceMesh
from ..process_group import ProcessGroup
from . import dtensor as spread
from .dtensor import DTensor
from .placement_types import Partial, Placement, Replicate, Shard
from .redistribute import global_offset


class _Summed(Function):
    """The sum over the processes of a group, from which all go on alike: its gradient is each one's own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup) -> Tensor:
        del ctx  # nothing is kept
        return operators.all_reduce(x, "sum", group.group_name)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        del ctx
        return g, None


def _largest(x: Tensor, dim: int, group: ProcessGroup) -> Tensor:
    """Of all processes' `x`, along `dim`."""
    with no_grad():
        top = x.new_full((*x.shape[:dim], *x.shape[dim + 1 :]), -math.inf) if not x.shape[dim] else x.amax(dim)
        return operators.all_reduce(top, "max", group.group_name)


def _class_dimension(input: DTensor) -> tuple[int, int]:
    """The dimension of the classes, and that of the mesh which splits it."""
    dim = min(1, input.ndim - 1)
    found = [m for m, p in enumerate(input.placements) if p == Shard(dim)]
    if len(found) != 1:
        raise ValueError(f"loss_parallel() requires exactly one mesh dim to shard tensor dimension {dim}, but got placements "
                         f"{input.placements} with {len(found)} such mesh dim(s).")
    return dim, found[0]


def _rows_of(placements: tuple[Placement, ...], dim: int) -> tuple[Placement, ...]:
    """How what has a value for each row lies: without the dimension of the classes."""
    def one(p: Placement) -> Placement:
        if not isinstance(p, Shard) or p.dim == dim:
            return Replicate()
        return Shard(p.dim - (p.dim > dim))
    return tuple(map(one, placements))


def _part_of(value: Any, mesh: DeviceMesh, placements: tuple[Placement, ...]) -> Tensor:
    """This process's part of a tensor that is the same everywhere, or lies over the mesh."""
    if not isinstance(value, DTensor):
        value = DTensor.from_local(value, mesh, [Replicate()] * mesh.ndim)
    return value.redistribute(placements=placements).to_local()


def parallel_cross_entropy(input: Any, target: Any, weight: Tensor | None = None, size_average: bool | None = None,
                           ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean",
                           label_smoothing: float = 0.0) -> Any:
    """`cross_entropy` where `input` is a DTensor whose classes are spread along one dimension of its mesh, a DTensor; elsewhere the
    ordinary one. Targets are class indices. ValueError for a DTensor with whole classes."""
    if not isinstance(input, DTensor):
        return cross_entropy(input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing)
    if size_average is not None or reduce is not None:
        raise NotImplementedError("cross_entropy(size_average=, reduce=) within loss_parallel() is not implemented; use reduction=")
    if tuple(target.shape) == tuple(input.shape):
        raise NotImplementedError("cross_entropy of class probabilities within loss_parallel() is not implemented; give class indices")
    dim, m = _class_dimension(input)
    mesh, group = input.device_mesh, input.device_mesh.get_group(m)
    where = tuple(Replicate() if isinstance(p, Partial) else p for p in input.placements)
    rows = _rows_of(where, dim)
    logits, wanted = input.redistribute(placements=where).to_local(), _part_of(target, mesh, rows)
    first = global_offset(tuple(input.shape), mesh, where)[dim]
    classes = arange(first, first + logits.shape[dim]).reshape((-1, *(1,) * (logits.ndim - 1 - dim)))
    weights = None if weight is None else _part_of(weight, mesh, (Replicate(),) * mesh.ndim)
    losses, counts = _of_rows(logits, wanted, classes, weights, dim, group, ignore_index, label_smoothing, input.shape[dim])
    shape = tuple(n for d, n in enumerate(input.shape) if d != dim)
    losses, counts = (DTensor.from_local(t, mesh, rows, shape=shape, stride=contiguous_strides(shape)) for t in (losses, counts))
    return _reduced(losses, counts, reduction)


def _of_rows(x: Tensor, target: Tensor, classes: Tensor, weight: Tensor | None, dim: int, group: ProcessGroup, ignored: int,
             smoothing: float, count: int) -> tuple[Tensor, Tensor]:
    """(losses, what each counts in the mean) of the rows here, from the part `x` of their logits that has these `classes`."""
    kept = target != ignored
    safe = target.where(kept, 0)
    inside = (safe >= 0) & (safe < count)
    if safe.is_fake:
        safe = checked(safe, inside)
    elif not bool(inside.all()):
        raise IndexError(f"a target is out of bounds: there are {count} classes")
    shifted = x - _largest(x, dim, group).unsqueeze(dim)
    log_sum = _Summed.apply(shifted.exp().sum(dim), group).log()
    picked = _Summed.apply(shifted.where(classes == safe.unsqueeze(dim), 0.0).sum(dim), group)
    counts = kept.to(x.dtype) if weight is None else weight[safe] * kept
    losses = (log_sum - picked) * counts
    if smoothing:
        every = x.new_ones(count) if weight is None else weight
        here = every[classes.flatten()].reshape(classes.shape)
        mixed = log_sum * every.sum() - _Summed.apply((shifted * here).sum(dim), group)
        losses = (1 - smoothing) * losses + smoothing / count * mixed * kept
    return losses, counts


def _reduced(losses: Any, counts: Any, reduction: str) -> Any:
    if reduction == "none":
        return losses
    total = losses.sum()
    if reduction == "mean":
        total = total / counts.sum()
    elif reduction != "sum":
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return total.redistribute(placements=[Replicate()] * losses.device_mesh.ndim)


class Within:
    """How many loss_parallel() blocks the program is in."""

    depth = 0


add_setting("loss_parallel", Within, "depth", traced=True)


def _instead(func: Callable) -> Callable | None:
    return parallel_cross_entropy if Within.depth and func is cross_entropy else None


spread.instead_of = _instead


@contextlib.contextmanager
def loss_parallel() -> Iterator[None]:
    """Within, `cross_entropy` of a DTensor with `Shard` classes computes with each process's classes; the loss is replicated."""
    Within.depth += 1
    try:
        yield
    finally:
        Within.depth -= 1
