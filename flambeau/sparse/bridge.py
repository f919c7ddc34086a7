"""Between a sparse tensor and its entries: the two steps that the tape knows.

Whatever is computed with sparse tensors is computed with their entries, which are dense: `entries` leads there, `assembled` back. Both
are linear, and each is the other's transpose, so that gradients of sparse tensors are sparse, on the tensor's own pattern.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import ops
from ..core import dispatch
from ..core.memory_format import sparse_coo
from ..core.sparse import FORMS, Pattern, SparseTensor, sparse_tensor
from ..core.tensor import Tensor
from ..ops.registry import COMPOSITES, CompositeRecord, General


def form(*operators: Any) -> Callable:
    """Enter a function as what these operators are for arguments of which some are sparse."""
    def enter(fn: Callable) -> Callable:
        for operator in operators:
            FORMS[operator] = fn
        return fn
    return enter


class Step(CompositeRecord):
    """A record of the tape whose arguments or results are sparse: it has its body, and no kernels."""

    def run(self, args: tuple) -> Any:
        """The body, without autograd."""
        with dispatch.grad_enabled(False):
            return self.fn(*args)


def step(name: str, vjp: Callable) -> Callable[[Callable], Step]:
    """Make a function a step with this gradient."""
    def make(fn: Callable) -> Step:
        record = COMPOSITES[name] = Step(name, fn, General(vjp), "", False)
        return record
    return make


def _entries_vjp(g: Tensor, pattern: Pattern) -> tuple:
    if pattern.coalesced:
        return (assembled(g, pattern),)
    made, which = _sorted(pattern)    # entries of one place have one gradient, that of the element which they add up to
    return (assembled(g.index_select(0, ops.zeros_like(which[:made.nnz]).index_copy(0, which, _numbers(which))), made),)


def _numbers(like: Tensor) -> Tensor:
    return ops.arange(like.shape[0], device=like.device)


@step("sparse_entries", _entries_vjp)
def _entries(x: SparseTensor, pattern: Pattern) -> Tensor:
    return ops.alias_copy(x._entries) if dispatch.state.modes else x._entries.detach()


def _assembled_vjp(g: Tensor, pattern: Pattern) -> tuple:
    return (picked(g, pattern),)


@step("sparse_assembled", _assembled_vjp)
def _assembled(entries: Tensor, pattern: Pattern) -> SparseTensor:
    return sparse_tensor(pattern, entries.detach())


def entries(x: SparseTensor) -> Tensor:
    """The entries of a sparse tensor; gradients flow to it."""
    return _entries(x, x._pattern)


def assembled(values: Tensor, pattern: Pattern) -> SparseTensor:
    """The sparse tensor of these entries; gradients flow to them."""
    return _assembled(values, pattern)


def picked(x: Tensor, pattern: Pattern) -> Tensor:
    """The elements of a tensor, dense or sparse, at the places of a pattern: 0 where it has none."""
    if not isinstance(x, SparseTensor):
        flat = x.expand(pattern.shape).reshape(-1, *pattern.dense_shape)
        return flat.index_select(0, places(pattern))
    if x._pattern is pattern:
        return entries(x)
    source = coalesced(x)
    known, wanted = places(source._pattern), places(pattern)
    if not known.shape[0]:
        return x._entries.new_zeros((pattern.nnz, *pattern.dense_shape))
    at = ops.searchsorted(known, wanted).clamp(max=known.shape[0] - 1)
    found = known.index_select(0, at) == wanted
    rows = entries(source).index_select(0, at)
    return ops.where(found.reshape(-1, *(1,) * (rows.ndim - 1)), rows, rows.new_zeros(()))


# -- what follows from a pattern -----------------------------------------------------------------------------------------------
def fact(fn: Callable) -> Callable:
    """Compute something of a pattern once."""
    def known(pattern: Pattern) -> Any:
        if fn not in pattern.facts:
            with dispatch.grad_enabled(False):
                pattern.facts[fn] = fn(pattern)
        return pattern.facts[fn]
    known.__doc__ = fn.__doc__
    return known


def starts_of(sorted_rows: Tensor, count: int) -> Tensor:
    """Where each of `count` rows begins in a sorted list of rows, and where the last one ends."""
    return ops.searchsorted(sorted_rows, ops.arange(count + 1, device=sorted_rows.device))


def lines_of(starts: Tensor) -> Tensor:
    """For each entry, the row that it lies in, of where the rows begin; the rows of all batches are numbered one after another."""
    counts = (starts[..., 1:] - starts[..., :-1]).reshape(-1)
    return ops.repeat_interleave(ops.arange(counts.shape[0], device=starts.device), counts)


@fact
def coordinates(pattern: Pattern) -> Tensor:
    """(sparse dimensions, entries): the indices as those of a COO tensor, in the order of the entries."""
    if pattern.layout is sparse_coo:
        return pattern.indices[0]
    starts, across = (i.long() for i in pattern.indices)
    count, lines = max(starts.shape[-1] - 1, 1), lines_of(starts)
    pair = [lines % count, across.reshape(-1)][::1 if pattern.by_rows else -1]
    if pattern.blocks:
        inside = ops.tensor(list(pattern.blocks), device=across.device)
        where = ops.stack(pair, 1) * inside                         # (blocks, 2): where each block begins
        within = ops.cartesian_prod(*(ops.arange(n, device=across.device) for n in pattern.blocks)).reshape(-1, 2)
        pair = list((where.unsqueeze(1) + within).reshape(-1, 2).unbind(1))
        lines = lines.repeat_interleave(within.shape[0])
    return ops.stack((*unravelled(lines // count, pattern.batch), *pair))


def unravelled(place: Tensor, sizes: tuple[int, ...]) -> list[Tensor]:
    """The indices along dimensions of these sizes of places in all of them taken as one."""
    indices = []
    for size in reversed(sizes):
        indices.append(place % max(size, 1))
        place = place // max(size, 1)
    return indices[::-1]


@fact
def places(pattern: Pattern) -> Tensor:
    """For each entry, its place in the sparse dimensions taken as one."""
    indices = coordinates(pattern)
    place = indices.new_zeros((pattern.nnz,))
    for size, index in zip(pattern.shape, indices):
        place = place * size + index
    return place


@fact
def _sorted(pattern: Pattern) -> tuple[Pattern, Tensor]:
    """The coalesced COO pattern with the same places, and for each entry which of its entries it is part of."""
    distinct, which = ops.unique(places(pattern), return_inverse=True)
    indices = unravelled(distinct, pattern.shape[:pattern.sparse_dims])
    made = ops.stack(indices) if indices else distinct.new_zeros((0, distinct.shape[0]))
    return Pattern(sparse_coo, (made,), pattern.shape, True), which


def coalesced(x: SparseTensor) -> SparseTensor:
    """The COO tensor with sorted, distinct indices: entries of one place are added up."""
    pattern = x._pattern
    if pattern.layout is sparse_coo and pattern.coalesced:
        return x
    made, which = _sorted(pattern)
    return assembled(summed_rows(entries(x), which, made.nnz), made)


def summed_rows(rows: Tensor, which: Tensor, count: int) -> Tensor:
    """(count, ...): the rows added up by number. For bools, whether one is true."""
    if rows.dtype.category == 0:
        return summed_rows(rows.to(which.dtype), which, count) > 0
    return rows.new_zeros((count, *rows.shape[1:])).index_add(0, which, rows)


def integers(data: list, like: Tensor) -> Tensor:
    """An int64 tensor of a list, on the device of `like`."""
    return ops.tensor(data, dtype=like.dtype, device=like.device)
