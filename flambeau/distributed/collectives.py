"""The collectives as functions: torch.distributed.all_reduce and its like. Ranks are those of the default group."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any

from ..core.tensor import Tensor
from .groups import GroupMember, default_group, get_group_rank, get_process_group_ranks
from .process_group import SUM, ProcessGroup
from .work import Work


def _group(group: Any) -> ProcessGroup | None:
    """The group that is meant; None, with a warning, where this process is not in it."""
    if group is GroupMember.NON_GROUP_MEMBER:
        warnings.warn(f"Running {sys._getframe(1).f_code.co_name} on global rank {default_group().rank()} which does not belong to the "
                      "given group.", stacklevel=3)
        return None
    return default_group(group)


def _tensor(value: Any, name: str) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor but got {type(value)} instead.")


def _tensors(values: Any, name: str) -> None:
    if not isinstance(values, (list, tuple)) or not all(isinstance(v, Tensor) for v in values):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor] but got {type(values)} "
                        "instead.")


def _root(group: ProcessGroup, rank: int | None, group_rank: int | None, name: str, default: int | None = None) -> int:
    """The rank in the group that is meant by one in the default group, or one in the group."""
    if rank is not None and group_rank is not None:
        raise ValueError(f"Can't specify both group_{name} and {name}")
    if group_rank is not None:
        return group_rank
    if rank is None:
        if default is None:
            raise ValueError(f"Must specify {name} or group_{name}")
        rank = default
    return get_group_rank(group, rank)


def _done(work: Work, async_op: bool) -> Work | None:
    if async_op:
        work.watch()
        return work
    work.wait()
    return None


def broadcast(tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None) -> Any:
    """The `tensor` of process `src` into everyone's."""
    _tensor(tensor, "tensor")
    if (g := _group(group)) is None:
        return None
    return _done(g.broadcast(tensor, _root(g, src, group_src, "src")), async_op)


def all_reduce(tensor: Tensor, op: Any = SUM, group: Any = None, async_op: bool = False) -> Any:
    """Everyone's `tensor` combined, into everyone's."""
    _tensor(tensor, "tensor")
    return None if (g := _group(group)) is None else _done(g.allreduce(tensor, op), async_op)


def reduce(tensor: Tensor, dst: int | None = None, op: Any = SUM, group: Any = None, async_op: bool = False,
           group_dst: int | None = None) -> Any:
    """Everyone's `tensor` combined, into that of process `dst`."""
    _tensor(tensor, "tensor")
    return None if (g := _group(group)) is None else _done(g.reduce(tensor, _root(g, dst, group_dst, "dst"), op), async_op)


def all_gather(tensor_list: Sequence[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Any:
    """Everyone's `tensor` into everyone's `tensor_list`."""
    _tensors(tensor_list, "tensor_list")
    _tensor(tensor, "tensor")
    return None if (g := _group(group)) is None else _done(g.allgather(tensor_list, tensor), async_op)


def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False) -> Any:
    """Everyone's `input_tensor`, one after another, into everyone's `output_tensor`."""
    _tensor(output_tensor, "output_tensor")
    _tensor(input_tensor, "input_tensor")
    return None if (g := _group(group)) is None else _done(g._allgather_base(output_tensor, input_tensor), async_op)


def _tensors_of_root(tensors: Sequence[Tensor] | None, name: str, is_root: bool, end: str) -> None:
    """Refuse a list that the root lacks, or that another process gives."""
    if is_root and not tensors:
        raise ValueError(f"Argument ``{name}`` must be specified on {end} rank.")
    if not is_root and tensors:
        raise ValueError(f"Argument ``{name}`` must NOT be specified on non-{end} ranks.")
    if tensors:
        _tensors(tensors, name)


def gather(tensor: Tensor, gather_list: Sequence[Tensor] | None = None, dst: int | None = None, group: Any = None,
           async_op: bool = False, group_dst: int | None = None) -> Any:
    """Everyone's `tensor` into the `gather_list` of process `dst`."""
    _tensor(tensor, "tensor")
    if (g := _group(group)) is None:
        return None
    root = _root(g, dst, group_dst, "dst", 0)
    _tensors_of_root(gather_list, "gather_list", g.rank() == root, "destination")
    return _done(g.gather(gather_list, tensor, root), async_op)


def scatter(tensor: Tensor, scatter_list: Sequence[Tensor] | None = None, src: int | None = None, group: Any = None,
            async_op: bool = False, group_src: int | None = None) -> Any:
    """A tensor of the `scatter_list` of process `src` into each one's `tensor`."""
    _tensor(tensor, "tensor")
    if (g := _group(group)) is None:
        return None
    root = _root(g, src, group_src, "src", 0)
    _tensors_of_root(scatter_list, "scatter_list", g.rank() == root, "source")
    return _done(g.scatter(tensor, scatter_list, root), async_op)


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: Any = SUM, group: Any = None, async_op: bool = False) -> Any:
    """Everyone's lists combined, one of the results into each one's `output`."""
    _tensor(output, "output")
    _tensors(input_list, "input_list")
    return None if (g := _group(group)) is None else _done(g.reduce_scatter(output, input_list, op), async_op)


def reduce_scatter_tensor(output: Tensor, input: Tensor, op: Any = SUM, group: Any = None, async_op: bool = False) -> Any:
    """Everyone's `input` combined, a part of the result into each one's `output`."""
    _tensor(output, "output")
    _tensor(input, "input")
    return None if (g := _group(group)) is None else _done(g._reduce_scatter_base(output, input, op), async_op)


def all_to_all(output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None, async_op: bool = False) -> Any:
    """A tensor from each process to each."""
    _tensors(output_tensor_list, "output_tensor_list")
    _tensors(input_tensor_list, "input_tensor_list")
    return None if (g := _group(group)) is None else _done(g.alltoall(output_tensor_list, input_tensor_list), async_op)


def all_to_all_single(output: Tensor, input: Tensor, output_split_sizes: Sequence[int] | None = None,
                      input_split_sizes: Sequence[int] | None = None, group: Any = None, async_op: bool = False) -> Any:
    """Rows of `input` from each process to each, equal numbers or as the splits say."""
    _tensor(output, "output")
    _tensor(input, "input")
    if (g := _group(group)) is None:
        return None
    return _done(g.alltoall_base(output, input, output_split_sizes, input_split_sizes), async_op)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None, timeout: timedelta | None = None) -> Any:
    """Wait until all have come here."""
    if (g := _group(group)) is None:
        return None
    if device_ids is not None and not isinstance(device_ids, list):
        raise TypeError("Invalid function argument: device_ids type should be List[int]")
    work = g.barrier()
    if async_op:
        return _done(work, True)
    work.wait(timeout)
    return None


def monitored_barrier(group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
    """A barrier that names the processes which did not come in time."""
    if (g := _group(group)) is not None:
        g.monitored_barrier(timeout, wait_all_ranks)


# -- several at once ---------------------------------------------------------------------------------------------------
def all_reduce_coalesced(tensors: Sequence[Tensor], op: Any = SUM, group: Any = None, async_op: bool = False) -> Any:
    """`all_reduce` of several tensors."""
    tensors = [tensors] if isinstance(tensors, Tensor) else tensors
    _tensors(tensors, "tensors")
    if (g := _group(group)) is None:
        return None
    with g.together():
        works = [g.allreduce(t, op) for t in tensors]
    return _done(works[-1].joined(works), async_op)


def all_gather_coalesced(output_tensor_lists: Sequence[Sequence[Tensor]], input_tensor_list: Sequence[Tensor], group: Any = None,
                         async_op: bool = False) -> Any:
    """`all_gather` of several tensors: for each process a list of what it gave."""
    _tensors(input_tensor_list, "input_tensor_list")
    if (g := _group(group)) is None:
        return None
    counts = [len(outs) for outs in output_tensor_lists]
    if counts != [len(input_tensor_list)] * g.size():
        raise ValueError(f"all_gather_coalesced: output lists of {counts} tensors; {g.size()} processes give {len(input_tensor_list)} each")
    with g.together():
        works = [g.allgather([outs[i] for outs in output_tensor_lists], t) for i, t in enumerate(input_tensor_list)]
    return _done(works[-1].joined(works), async_op)


class _Coalescing:
    """What `_coalescing_manager` gives: `wait` for all that was begun within."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def append(self, work: Work) -> None:
        """One more."""
        self.works.append(work)

    def wait(self) -> None:
        """Until all are done."""
        for work in self.works:
            work.wait()


@contextmanager
def _coalescing_manager(group: Any = None, device: Any = None, async_ops: bool = False) -> Iterator[_Coalescing]:
    """Collectives begun within, waited for at the end (or, with `async_ops`, by the caller's `wait`)."""
    del device  # each tensor says its own
    made = _Coalescing()
    with nullcontext() if (g := _group(group)) is None else g.together():
        yield made
    if not async_ops:
        made.wait()


# -- from one to another -------------------------------------------------------------------------------------------------
def _peer(group: ProcessGroup, rank: int | None, group_rank: int | None, name: str, way: str) -> int:
    peer = _root(group, rank, group_rank, name)
    if peer == group.rank():
        raise ValueError(f"Invalid {way} rank: {way} rank should not be the same as the rank of the current process.")
    return peer


def isend(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> Work | None:
    """Begin to send `tensor` to process `dst`; it must not change before `wait`."""
    _tensor(tensor, "tensor")
    if (g := _group(group)) is None:
        return None
    return _done(g.send(tensor, _peer(g, dst, group_dst, "dst", "destination"), tag), True)


def irecv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> Work | None:
    """Begin to receive `tensor` from process `src`, or from anyone."""
    _tensor(tensor, "tensor")
    if (g := _group(group)) is None:
        return None
    source = None if src is None and group_src is None else _peer(g, src, group_src, "src", "source")
    return _done(g.recv(tensor, source, tag), True)


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Send `tensor` to process `dst`."""
    _tensor(tensor, "tensor")
    if (g := _group(group)) is not None:
        g.send(tensor, _peer(g, dst, group_dst, "dst", "destination"), tag).wait()


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """Receive `tensor` from process `src`, or from anyone; from whom it was."""
    _tensor(tensor, "tensor")
    if (g := _group(group)) is None:
        return -1
    source = None if src is None and group_src is None else _peer(g, src, group_src, "src", "source")
    work = g.recv(tensor, source, tag)
    work.wait()
    return get_process_group_ranks(g)[work.source_rank() if source is None else source]


class P2POp:
    """A send or receive for `batch_isend_irecv`: `op` is `isend` or `irecv`."""

    def __init__(self, op: Callable, tensor: Tensor, peer: int | None = None, group: Any = None, tag: int = 0,
                 group_peer: int | None = None) -> None:
        if op not in (isend, irecv):
            raise ValueError("Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or ``torch.distributed.irecv``.")
        _tensor(tensor, "tensor")
        self.op, self.tensor, self.group, self.tag = op, tensor, default_group(group), tag
        self.group_peer = _peer(self.group, peer, group_peer, "peer", "destination" if op is isend else "source")
        self.peer = get_process_group_ranks(self.group)[self.group_peer]

    def __repr__(self) -> str:
        return f"P2POp({self.op.__name__}, peer={self.peer}, shape={tuple(self.tensor.shape)}, tag={self.tag})"


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Begin them all."""
    if not p2p_op_list or not all(isinstance(op, P2POp) for op in p2p_op_list):
        raise ValueError("Invalid ``p2p_op_list``. Each op is expected to to be of type ``torch.distributed.P2POp``.")
    if len({id(op.group) for op in p2p_op_list}) > 1:
        raise ValueError("All ops need to use the same group.")
    group = p2p_op_list[0].group
    group.meet([(group.rank(), op.group_peer) if op.op is isend else (op.group_peer, group.rank()) for op in p2p_op_list])
    return [op.op(op.tensor, group=op.group, tag=op.tag, **{"group_dst" if op.op is isend else "group_src": op.group_peer})
            for op in p2p_op_list]
