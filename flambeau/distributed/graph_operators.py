"""Collectives as operators: a captured graph holds each as one step, which groups' names reach.

Each returns a new tensor. Their gradients are collectives again, in which all processes take part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.tensor import Tensor
from ..library import custom_op
from ..ops.creation import empty, zeros_like
from .groups import _Groups
from .process_group import ProcessGroup
from .reduce_op import RedOpType

_KINDS = {name: RedOpType.__members__["AVG" if name == "MEAN" else name]
          for name in ("SUM", "AVG", "MEAN", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")}


def _group(name: str) -> ProcessGroup:
    if name not in _Groups.by_name:
        raise RuntimeError(f"there is no group {name!r} (any more): a compiled graph holds collectives of the groups that it was captured "
                           "with")
    return _Groups.by_name[name]


def _kind(name: str) -> RedOpType:
    if name.upper() not in _KINDS:
        raise ValueError(f"unknown reduction {name!r}")
    return _KINDS[name.upper()]


def _summed(name: str) -> None:
    if _kind(name) not in (RedOpType.SUM, RedOpType.AVG):
        raise NotImplementedError(f"the gradient of a collective by {name!r} is not implemented; use \"sum\" or \"avg\", or no_grad()")


def outside(fn: Callable, *args: Any) -> Any:
    """`fn(*args)`, between graphs."""
    return fn(*args)


@custom_op("_c10d_functional::all_reduce", mutates_args=())
def all_reduce(input: Tensor, reduce_op: str, group_name: str) -> Tensor:
    """Everyone's tensors combined."""
    out = input.clone().contiguous()
    _group(group_name).allreduce(out, _kind(reduce_op)).wait()
    return out


@custom_op("_c10d_functional::broadcast", mutates_args=())
def broadcast(input: Tensor, src: int, group_name: str) -> Tensor:
    """The tensor of the group's process `src`."""
    out = input.clone().contiguous()
    _group(group_name).broadcast(out, src).wait()
    return out


@custom_op("_c10d_functional::all_gather_into_tensor", mutates_args=())
def all_gather_into_tensor(input: Tensor, group_size: int, group_name: str) -> Tensor:
    """Everyone's tensors, one after another along the first dimension."""
    out = empty((group_size * input.shape[0], *input.shape[1:]), dtype=input.dtype, device=input.device)
    _group(group_name)._allgather_base(out, input.contiguous()).wait()
    return out


@custom_op("_c10d_functional::reduce_scatter_tensor", mutates_args=())
def reduce_scatter_tensor(input: Tensor, reduce_op: str, group_size: int, group_name: str) -> Tensor:
    """Everyone's tensors combined, and of the result this process's rows."""
    out = empty((input.shape[0] // group_size, *input.shape[1:]), dtype=input.dtype, device=input.device)
    _group(group_name)._reduce_scatter_base(out, input.contiguous(), _kind(reduce_op)).wait()
    return out


@custom_op("_c10d_functional::all_to_all_single", mutates_args=())
def all_to_all_single(input: Tensor, received: Sequence[int], sent: Sequence[int], group_name: str) -> Tensor:
    """Rows from each process to each; no numbers: equal parts."""
    rows = sum(received) if received else input.shape[0]
    out = empty((rows, *input.shape[1:]), dtype=input.dtype, device=input.device)
    _group(group_name).alltoall_base(out, input.contiguous(), list(received) or None, list(sent) or None).wait()
    return out


@all_reduce.register_fake
def _(input: Tensor, reduce_op: str, group_name: str) -> Tensor:
    return input.new_empty(input.shape)


@broadcast.register_fake
def _(input: Tensor, src: int, group_name: str) -> Tensor:
    return input.new_empty(input.shape)


@all_gather_into_tensor.register_fake
def _(input: Tensor, group_size: int, group_name: str) -> Tensor:
    return input.new_empty((group_size * input.shape[0], *input.shape[1:]))


@reduce_scatter_tensor.register_fake
def _(input: Tensor, reduce_op: str, group_size: int, group_name: str) -> Tensor:
    return input.new_empty((input.shape[0] // group_size, *input.shape[1:]))


@all_to_all_single.register_fake
def _(input: Tensor, received: Sequence[int], sent: Sequence[int], group_name: str) -> Tensor:
    return input.new_empty((sum(received) if received else input.shape[0], *input.shape[1:]))


def _keep(ctx: Any, inputs: tuple, output: Tensor) -> None:
    ctx.inputs = inputs[1:]


def _of_all_reduce(ctx: Any, g: Tensor) -> tuple:
    _summed(ctx.inputs[0])
    return all_reduce(g, *ctx.inputs), None, None


def _of_broadcast(ctx: Any, g: Tensor) -> tuple:
    src, name = ctx.inputs
    total = all_reduce(g, "sum", name)
    return (total if _group(name).rank() == src else zeros_like(total)), None, None


def _of_all_gather(ctx: Any, g: Tensor) -> tuple:
    return reduce_scatter_tensor(g, "sum", *ctx.inputs), None, None


def _of_reduce_scatter(ctx: Any, g: Tensor) -> tuple:
    name, size, group = ctx.inputs
    _summed(name)
    whole = all_gather_into_tensor(g, size, group)
    return (whole / size if _kind(name) is RedOpType.AVG else whole), None, None, None


def _of_all_to_all(ctx: Any, g: Tensor) -> tuple:
    received, sent, name = ctx.inputs
    return all_to_all_single(g, sent, received, name), None, None, None


for _operator, _backward in ((all_reduce, _of_all_reduce), (broadcast, _of_broadcast), (all_gather_into_tensor, _of_all_gather),
                             (reduce_scatter_tensor, _of_reduce_scatter), (all_to_all_single, _of_all_to_all)):
    _operator.register_autograd(_backward, setup_context=_keep)
