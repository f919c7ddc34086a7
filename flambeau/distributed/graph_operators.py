"""Collectives as operators: a captured graph holds each as one step, which groups' names reach.

Each returns a new tensor. Their gradients are collectives again, in which all processes take part.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ..core.tensor import Tensor
from ..library import CustomOpDef, custom_op
from ..ops.creation import empty
from ..ops.custom import NAMESPACES, Namespace
from ..ops.joining import cat
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


Pieces = tuple[Callable[..., int], Callable[..., int]]
WHOLE: Pieces = (lambda *args: 1, lambda *args: 1)


def _collective(schema: str, backward: Callable[..., Any], rows: Callable[..., Any] | None = None,
                pieces: Pieces | None = WHOLE) -> Callable[[Callable[..., Work]], CustomOpDef]:
    """The operator of a function `begin(out, input, *args)` that begins a collective, whose result has so many `rows(input, *args)` as the
    input has, or starts as the input; `backward(g, *args)` is its gradient. In compiled programs others go on until the result is needed:
    what it reads must be its own, since they may write there. `pieces(*args)`: in how many equal parts, of each process or for each, the
    input and the result lie; None where they may be unequal."""
    def make(begin: Callable[..., Work]) -> CustomOpDef:
        def shape(input: Tensor, *args: Any) -> tuple:
            return tuple(input.shape) if rows is None else (rows(input, *args), *input.shape[1:])

        def started(input: Tensor, *args: Any) -> tuple[Tensor, Work]:
            out = input.clone().contiguous() if rows is None else empty(shape(input, *args), dtype=input.dtype, device=input.device)
            return out, begin(out, input, *args)

        def begun(*args: Any) -> tuple[Tensor, Callable[[], Any]]:
            out, work = started(*args)
            work.watch()
            return out, work.wait

        def whole(*args: Any) -> Tensor:
            out, work = started(*args)
            work.wait()
            return out

        made = custom_op(f"_c10d_functional::{begin.__name__}", whole, mutates_args=(), schema=schema)
        made._operator.begin, made.__doc__ = begun, begin.__doc__
        made._operator.together = pieces and _together(made, shape, pieces)
        made._operator.mark("communicates")
        made.register_fake(lambda input, *args: input.new_empty(shape(input, *args)))
        made.register_autograd(lambda ctx, g: (backward(g, *ctx.inputs), *(None,) * len(ctx.inputs)), setup_context=_keep)
        return made
    return make


def _together(collective: CustomOpDef, shape: Callable[..., tuple], pieces: Pieces) -> Callable[..., list[Tensor]]:
    """What gives the results of several calls by one, which carries of each of its parts those of all inputs side by side."""
    def together(inputs: Sequence[Tensor], *args: Any) -> list[Tensor]:
        taken, given = [count(*args) for count in pieces]
        found = collective(cat([t.reshape(taken, -1) for t in inputs], 1).reshape(-1), *args).reshape(given, -1)
        shapes = [shape(t, *args) for t in inputs]
        parts = found.split([math.prod(s) // given for s in shapes], 1)
        return [part.reshape(s) for part, s in zip(parts, shapes, strict=True)]
    return together


def _keep(ctx: Any, inputs: tuple, output: Tensor) -> None:
    ctx.inputs = inputs[1:]


def _own(input: Tensor) -> Tensor:
    return input.contiguous() if input.is_cuda else input.clone().contiguous()  # a GPU's memory lives while somebody has it


def _divided(g: Tensor, reduce_op: str, group_name: str) -> Tensor:
    """The gradient of what is summed up, or averaged."""
    _summed(reduce_op)
    return g / _group(group_name).size() if _kind(reduce_op) is RedOpType.AVG else g


def _of_all_reduce(g: Tensor, reduce_op: str, group_name: str) -> Tensor:
    _summed(reduce_op)
    return all_reduce(g, reduce_op, group_name)


@_collective("(Tensor input, str reduce_op, str group_name) -> Tensor", _of_all_reduce)
def all_reduce(out: Tensor, input: Tensor, reduce_op: str, group_name: str) -> Work:
    """Everyone's tensors combined."""
    del input       # which `out` is a copy of
    return _group(group_name).allreduce(out, _kind(reduce_op))


@_collective("(Tensor input, int dst, str reduce_op, str group_name) -> Tensor",
             lambda g, dst, reduce_op, name: _divided(broadcast(g, dst, name), reduce_op, name))
def reduce(out: Tensor, input: Tensor, dst: int, reduce_op: str, group_name: str) -> Work:
    """Everyone's tensors combined, at the group's process `dst`; zeros elsewhere."""
    group = _group(group_name)
    if group.rank() != dst:
        out.zero_()
    return group.reduce(out if group.rank() == dst else _own(input), dst, _kind(reduce_op))


@_collective("(Tensor input, int src, str group_name) -> Tensor", lambda g, src, name: reduce(g, src, "sum", name))
def broadcast(out: Tensor, input: Tensor, src: int, group_name: str) -> Work:
    """The tensor of the group's process `src`."""
    del input       # which `out` is a copy of
    return _group(group_name).broadcast(out, src)


@_collective("(Tensor input, int group_size, str group_name) -> Tensor", lambda g, size, name: reduce_scatter_tensor(g, "sum", size, name),
             rows=lambda input, size, name: size * input.shape[0], pieces=(lambda size, name: 1, lambda size, name: size))
def all_gather_into_tensor(out: Tensor, input: Tensor, group_size: int, group_name: str) -> Work:
    """Everyone's tensors, one after another along the first dimension."""
    del group_size      # `out` has as many rows as it says
    return _group(group_name)._allgather_base(out, _own(input))


@_collective("(Tensor input, str reduce_op, int group_size, str group_name) -> Tensor",
             lambda g, reduce_op, size, name: _divided(all_gather_into_tensor(g, size, name), reduce_op, name),
             rows=lambda input, reduce_op, size, name: input.shape[0] // size,
             pieces=(lambda reduce_op, size, name: size, lambda reduce_op, size, name: 1))
def reduce_scatter_tensor(out: Tensor, input: Tensor, reduce_op: str, group_size: int, group_name: str) -> Work:
    """Everyone's tensors combined, and of the result this process's rows."""
    del group_size      # `out` has as many rows as it says
    return _group(group_name)._reduce_scatter_base(out, _own(input), _kind(reduce_op))


@_collective("(Tensor input, int[] received, int[] sent, str group_name) -> Tensor",
             lambda g, received, sent, name: all_to_all_single(g, sent, received, name),
             rows=lambda input, received, sent, name: sum(received) if received else input.shape[0], pieces=None)
def all_to_all_single(out: Tensor, input: Tensor, received: Sequence[int], sent: Sequence[int], group_name: str) -> Work:
    """Rows from each process to each; no numbers: equal parts."""
    return _group(group_name).alltoall_base(out, _own(input), list(received) or None, list(sent) or None)


for _made in [made for made in vars().values() if isinstance(made, CustomOpDef)]:   # torch.ops.c10d_functional: by an older name
    setattr(NAMESPACES.setdefault("c10d_functional", Namespace("c10d_functional")), _made._operator.__name__, _made._operator)


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
bring._operator.mark("communicates")


@bring.register_fake
def _(gradients: list[Tensor], reducer: int, bucket: int) -> Tensor:
    return gradients[0].new_empty(1)
