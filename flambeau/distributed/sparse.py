"""Sums of sparse tensors over processes: each sends its entries, of which there may be another number everywhere, to all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..autograd.grad_mode import no_grad
from ..core.memory_format import sparse_coo
from ..core.sparse import SparseTensor
from ..ops.joining import cat
from ..sparse.construct import sparse_coo_tensor
from .reduce_op import RedOpType
from .work import Work, every

if TYPE_CHECKING:
    from .process_group import ProcessGroup

_LONGEST = 66  # numbers that a process tells of its tensor: entries, sparse dimensions, sizes


def all_reduce(group: ProcessGroup, tensor: SparseTensor, kind: RedOpType) -> Work:
    """The sum of everyone's COO tensors, coalesced, into everyone's. What is waited for here is only how many entries each has.

    NotImplementedError for other layouts; RuntimeError for other reductions, and where processes have other shapes.
    """
    if tensor.layout is not sparse_coo:
        raise NotImplementedError(f"all_reduce of a tensor of layout {tensor.layout} is not implemented; use to_sparse_coo(), or its values()")
    if kind is not RedOpType.SUM:
        raise RuntimeError(f"unsupported reduction operation {kind.name} (allreduce of sparse tensors only works with ReduceOp.SUM)")
    with no_grad():
        mine = tensor.detach().coalesce()
        index, entries = mine.indices().t().contiguous(), mine.values()
    if group.calls is not None:
        group._begin("all_reduce", entries, kind.name)
        return Work(None, "all_reduce", [tensor], 0.0)
    counts = _counts(group, tensor, entries.shape[0])
    gathered, works = [], []
    for rows in (index, entries):
        room = rows.new_empty((group.size() * max(counts), *rows.shape[1:]))
        sent = cat([rows, rows.new_zeros((max(counts) - rows.shape[0], *rows.shape[1:]))]) if max(counts) > rows.shape[0] else rows
        gathered.append(room)
        if max(counts):
            works.append(group._allgather_base(room, sent))
    if tensor.device.type != "cpu":  # a GPU's stream waits, the program goes on
        while works:
            works.pop().wait()

    def finish() -> None:
        index, entries = (cat([room[i * max(counts) : i * max(counts) + n] for i, n in enumerate(counts)]) for room in gathered)
        with no_grad():
            tensor.copy_(sparse_coo_tensor(index.t(), entries, tensor.shape, check_invariants=False).coalesce())

    return every(works, "all_reduce of a sparse tensor", [tensor], group._seconds, finish)


def _counts(group: ProcessGroup, tensor: SparseTensor, count: int) -> list[int]:
    """How many entries each process has. RuntimeError if their tensors differ in shape or dtype."""
    about = [count, tensor.sparse_dim(), *tensor.shape]
    told = tensor._indices().new_tensor(about + [-1] * (_LONGEST - len(about)))
    rows = told.new_empty((group.size(), _LONGEST))
    group._allgather_base(rows, told).wait()
    found = rows.tolist()
    if any(row[1:] != found[0][1:] for row in found):
        shapes = "; ".join(f"rank {r}: {[n for n in row[2:] if n >= 0]} ({row[1]} sparse)" for r, row in zip(group._ranks, found))
        raise RuntimeError(f"all_reduce of sparse tensors of several shapes: {shapes}")
    return [row[0] for row in found]
