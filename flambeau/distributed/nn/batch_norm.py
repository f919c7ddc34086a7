"""Batch normalisation over the values of several processes."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor
from ...ops.creation import full
from ...ops.joining import cat
from ...ops.nn.norms import move
from .. import graph_operators as operators
from .._functional_collectives import facts_of_group
from ..groups import GroupMember


def is_shared(group: Any) -> bool:
    """Whether there are other processes in `group`, None being all."""
    return GroupMember.WORLD is not None and facts_of_group(group, GroupMember.WORLD)[1] > 1


def batch_norm(input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None, bias: Tensor | None,
               momentum: float, eps: float, group: Any) -> Tensor:
    """`F.batch_norm` in training of (n, c, ...) as if the processes of `group` were one with all their rows, of which each may have any
    number. Gradients are those of the sum of the processes' losses."""
    wide = input if input.dtype.itemsize > 2 else input.float()
    mean, var, count = _statistics(wide, group)
    move(running_mean, mean.detach(), momentum)
    move(running_var, var.detach() * (count / (count - 1)), momentum)
    factor = (var + eps).rsqrt() if weight is None else (var + eps).rsqrt() * weight
    out = (wide - _along(mean, input)) * _along(factor, input)
    return (out if bias is None else out + _along(bias, input)).to(input.dtype)


def _along(channels: Tensor, input: Tensor) -> Tensor:
    return channels.reshape(-1, *(1,) * (input.ndim - 2))


def _statistics(wide: Tensor, group: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance of each channel, and how many values it has: each process sends its own number, sum, and squares about its mean."""
    name, size, _ = facts_of_group(group, GroupMember.WORLD)
    dims, mine = [0, *range(2, wide.ndim)], wide.numel() // wide.shape[1]
    sums = wide.sum(dims)
    squares = (wide - _along(sums / max(mine, 1), wide)).square().sum(dims)
    sent = cat([sums, squares, full((1,), mine, dtype=wide.dtype, device=wide.device)])
    came = operators.all_gather_into_tensor(sent.unsqueeze(0), size, name)
    all_sums, all_squares, counts = came.split([wide.shape[1], wide.shape[1], 1], 1)
    count = counts.sum().detach()
    mean = all_sums.sum(0) / count
    apart = (all_sums / counts.clamp(min=1) - mean).square() * counts
    return mean, (all_squares + apart).sum(0) / count, count
