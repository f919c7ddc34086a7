"""What a captured graph holds in the place of collectives that write to their arguments: operators, and copies of their results.

In a graph a collective goes on beside what does not need its result, so the work of one with `async_op=True` has nothing left to wait for.
Graph breaks are groups and reductions that capture can't tell, and all collectives that are not here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from ..core.tensor import Tensor
from ..futures import Future
from ..ops.joining import cat, stack
from . import collectives, groups
from . import graph_operators as operators
from ._functional_collectives import facts_of_group, place_in_group
from .groups import GroupMember
from .reduce_op import RedOpType, kind_of
from .work import Work

SUM = RedOpType.SUM


def name_of_reduction(op: Any) -> str:
    """"sum" of ReduceOp.SUM: known while a graph is captured."""
    return kind_of(op).name.lower()


class InGraph(Work):
    """The work of a collective in a graph, to which its results are there."""

    def __init__(self, results: Sequence[Tensor]) -> None:
        self._results = list(results)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """True: the graph waits where it needs the results, with the group's own timeout."""
        del timeout
        return True

    is_completed = is_success = poll = wait

    def synchronize(self) -> None:
        """As `wait`."""

    def exception(self) -> Exception | None:
        """None: a graph whose collective fails has no results."""
        return None

    def result(self) -> list:
        """Its tensors."""
        return self._results

    def get_future(self) -> Future:
        """A future of the tensors."""
        return operators.outside(_ended, self._results)


def _ended(results: list) -> Future:
    future: Future = Future()
    future.set_result(results)
    return future


def _written(outs: Sequence[Tensor], found: Sequence[Tensor], async_op: bool) -> InGraph | None:
    for out, value in zip(outs, found):
        out.detach().copy_(value.reshape(out.shape))
    return InGraph(outs) if async_op else None


def _facts(group: Any) -> tuple[str, int]:
    name, size, _ = facts_of_group(group, GroupMember.WORLD)
    return name, size


def _sizes(tensors: Sequence[Tensor]) -> list[int]:
    return [t.numel() for t in tensors]


def all_reduce(tensor: Tensor, op: Any = SUM, group: Any = None, async_op: bool = False) -> Any:
    """`torch.distributed.all_reduce`, captured."""
    name, _ = _facts(group)
    return _written([tensor], [operators.all_reduce(tensor.detach(), name_of_reduction(op), name)], async_op)


def broadcast(tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None) -> Any:
    """`torch.distributed.broadcast`, captured."""
    if (src is None) == (group_src is None):
        return operators.outside(collectives.broadcast, tensor, src, group, async_op, group_src)
    name, _ = _facts(group)
    root = group_src if src is None else place_in_group(group, GroupMember.WORLD, src)
    return _written([tensor], [operators.broadcast(tensor.detach(), root, name)], async_op)


def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False) -> Any:
    """`torch.distributed.all_gather_into_tensor`, captured."""
    name, size = _facts(group)
    if output_tensor.numel() != size * input_tensor.numel():
        return operators.outside(collectives.all_gather_into_tensor, output_tensor, input_tensor, group, async_op)
    rows = input_tensor.detach() if input_tensor.ndim else input_tensor.detach().reshape(1)
    return _written([output_tensor], [operators.all_gather_into_tensor(rows, size, name)], async_op)


def all_gather(tensor_list: Sequence[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Any:
    """`torch.distributed.all_gather`, captured."""
    name, size = _facts(group)
    if _sizes(tensor_list) != [tensor.numel()] * size:
        return operators.outside(collectives.all_gather, tensor_list, tensor, group, async_op)
    return _written(tensor_list, operators.all_gather_into_tensor(tensor.detach().unsqueeze(0), size, name).unbind(0), async_op)


def reduce_scatter_tensor(output: Tensor, input: Tensor, op: Any = SUM, group: Any = None, async_op: bool = False) -> Any:
    """`torch.distributed.reduce_scatter_tensor`, captured."""
    name, size = _facts(group)
    if input.numel() != size * output.numel():
        return operators.outside(collectives.reduce_scatter_tensor, output, input, op, group, async_op)
    rows = input.detach() if input.shape[0] % size == 0 else input.detach().reshape(size, -1)
    return _written([output], [operators.reduce_scatter_tensor(rows, name_of_reduction(op), size, name)], async_op)


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: Any = SUM, group: Any = None, async_op: bool = False) -> Any:
    """`torch.distributed.reduce_scatter`, captured."""
    name, size = _facts(group)
    if _sizes(input_list) != [output.numel()] * size:
        return operators.outside(collectives.reduce_scatter, output, input_list, op, group, async_op)
    rows = stack([t.detach().reshape(output.shape) for t in input_list])
    return _written([output], [operators.reduce_scatter_tensor(rows, name_of_reduction(op), size, name)], async_op)


def all_to_all_single(output: Tensor, input: Tensor, output_split_sizes: Sequence[int] | None = None,
                      input_split_sizes: Sequence[int] | None = None, group: Any = None, async_op: bool = False) -> Any:
    """`torch.distributed.all_to_all_single`, captured."""
    name, _ = _facts(group)
    found = operators.all_to_all_single(input.detach(), list(output_split_sizes or ()), list(input_split_sizes or ()), name)
    return _written([output], [found], async_op)


def all_to_all(output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None, async_op: bool = False) -> Any:
    """`torch.distributed.all_to_all`, captured."""
    name, _ = _facts(group)
    received, sent = _sizes(output_tensor_list), _sizes(input_tensor_list)
    found = operators.all_to_all_single(cat([t.detach().reshape(-1) for t in input_tensor_list]), received, sent, name)
    return _written(output_tensor_list, found.split(received), async_op)


# -- facts, which a graph asks again where there is another default group ---------------------------------------------------------
def is_initialized() -> bool:
    """`torch.distributed.is_initialized`, captured."""
    return GroupMember.WORLD is not None


def get_rank(group: Any = None) -> int:
    """`torch.distributed.get_rank`, captured."""
    return _fact(groups.get_rank, group, 2)


def get_world_size(group: Any = None) -> int:
    """`torch.distributed.get_world_size`, captured."""
    return _fact(groups.get_world_size, group, 1)


def _fact(fn: Callable, group: Any, which: int) -> int:
    if GroupMember.WORLD is None or group is GroupMember.NON_GROUP_MEMBER:
        return operators.outside(fn, group)
    return int(facts_of_group(group, GroupMember.WORLD)[which])


for _home, _functions in ((groups, (is_initialized, get_rank, get_world_size)),
                          (collectives, (all_reduce, broadcast, all_gather_into_tensor, all_gather, reduce_scatter_tensor, reduce_scatter,
                                         all_to_all_single, all_to_all))):
    for _fn in _functions:
        getattr(_home, _fn.__name__)._flambeau_captured_as = _fn
