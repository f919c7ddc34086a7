"""Collectives as operators: a captured graph holds each as one step, which groups' names reach.

Each returns a new tensor. Their gradients are collectives again, in which all processes take part.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ..core.tensor import Tensor
from ..library import CustomOpDef, custom_op
from ..ops.creation import empty, zeros_like
from .groups import _Groups
from .process_group import ProcessGroup
from .reduce_op import RedOpType
from .work import Work

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


def _collective(schema: str) -> Callable[[Callable[..., tuple[Tensor, Work]]], CustomOpDef]:
    """The operator of a function that begins a collective. In compiled programs others go on until its result is needed: what it reads
    must be its own, since they may write there."""
    def make(begin: Callable[..., tuple[Tensor, Work]]) -> CustomOpDef:
        def begun(*args: Any) -> tuple[Tensor, Callable[[], Any]]:
            out, work = begin(*args)
            work.watch()
            return out, work.wait

        def whole(*args: Any) -> Tensor:
            out, work = begin(*args)
            work.wait()
            return out

        made = custom_op(f"_c10d_functional::{begin.__name__}", whole, mutates_args=(), schema=schema)
        made._operator.begin, made.__doc__ = begun, begin.__doc__
        return made
    return make


def _own(input: Tensor) -> Tensor:
    return input.contiguous() if input.is_cuda else input.clone().contiguous()  # a GPU's memory lives while somebody has it


@_collective("(Tensor input, str reduce_op, str group_name) -> Tensor")
def all_reduce(input: Tensor, reduce_op: str, group_name: str) -> tuple[Tensor, Work]:
    """Everyone's tensors combined."""
    out = input.clone().contiguous()
    return out, _group(group_name).allreduce(out, _kind(reduce_op))


@_collective("(Tensor input, int src, str group_name) -> Tensor")
def broadcast(input: Tensor, src: int, group_name: str) -> tuple[Tensor, Work]:
    """The tensor of the group's process `src`."""
    out = input.clone().contiguous()
    return out, _group(group_name).broadcast(out, src)


@_collective("(Tensor input, int group_size, str group_name) -> Tensor")
def all_gather_into_tensor(input: Tensor, group_size: int, group_name: str) -> tuple[Tensor, Work]:
    """Everyone's tensors, one after another along the first dimension."""
    out = empty((group_size * input.shape[0], *input.shape[1:]), dtype=input.dtype, device=input.device)
    return out, _group(group_name)._allgather_base(out, _own(input))


@_collective("(Tensor input, str reduce_op, int group_size, str group_name) -> Tensor")
def reduce_scatter_tensor(input: Tensor, reduce_op: str, group_size: int, group_name: str) -> tuple[Tensor, Work]:
    """Everyone's tensors combined, and of the result this process's rows."""
    out = empty((input.shape[0] // group_size, *input.shape[1:]), dtype=input.dtype, device=input.device)
    return out, _group(group_name)._reduce_scatter_base(out, _own(input), _kind(reduce_op))


@_collective("(Tensor input, int[] received, int[] sent, str group_name) -> Tensor")
def all_to_all_single(input: Tensor, received: Sequence[int], sent: Sequence[int], group_name: str) -> tuple[Tensor, Work]:
    """Rows from each process to each; no numbers: equal parts."""
    rows = sum(received) if received else input.shape[0]
    out = empty((rows, *input.shape[1:]), dtype=input.dtype, device=input.device)
    return out, _group(group_name).alltoall_base(out, _own(input), list(received) or None, list(sent) or None)


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


# -- gradients for a reducer ---------------------------------------------------------------------------------------------------
_reducers: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_numbers = itertools.count()


def number_reducer(reducer: Any) -> int:
    """A number by which compiled graphs reach it."""
    number = next(_numbers)
    _reducers[number] = reducer
    return number


def _bring(gradients: list[Tensor], reducer: int, bucket: int) -> Tensor:
    """The gradients of a bucket to their reducer, which begins to reduce them if it waits for them."""
    if (found := _reducers.get(reducer)) is not None:
        found.bring(bucket, gradients)
    return gradients[0].new_empty(1)


bring = custom_op("_c10d_functional::bring", _bring, mutates_args=(), schema="(Tensor[] gradients, int reducer, int bucket) -> Tensor")
bring._operator.begin = lambda *args: (_bring(*args), lambda: None)  # as early as can be


@bring.register_fake
def _(gradients: list[Tensor], reducer: int, bucket: int) -> Tensor:
    return gradients[0].new_empty(1)


for _operator, _backward in ((all_reduce, _of_all_reduce), (broadcast, _of_broadcast), (all_gather_into_tensor, _of_all_gather),
                             (reduce_scatter_tensor, _of_reduce_scatter), (all_to_all_single, _of_all_to_all)):
    _operator.register_autograd(_backward, setup_context=_keep)
