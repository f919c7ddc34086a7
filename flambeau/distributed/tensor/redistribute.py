"""From one way of lying over a mesh to another, one dimension of the mesh after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...autograd.grad_mode import no_grad
from ...core.tensor import Tensor
from ...ops.creation import ones_like, zeros_like
from ...ops.joining import cat
from .. import graph_operators as operators
from ..device_mesh import DeviceMesh
from ..process_group import ProcessGroup
from .placement_types import Partial, Placement, Replicate, Shard


def local_shape(shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement], without: int | None = None) -> tuple[int, ...]:
    """The shape of this process's part; with the dimension `without` of the mesh taken as replicated."""
    sizes, coordinate = list(shape), mesh._coordinate
    for m, p in enumerate(placements):
        if isinstance(p, Shard) and m != without:
            sizes[p.dim] = Shard.local_shard_size_and_offset(sizes[p.dim], mesh.size(m), coordinate[m])[0] if coordinate else 0
    return tuple(sizes)


def global_offset(shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement]) -> tuple[int, ...]:
    """Where this process's part begins."""
    sizes, offsets = list(shape), [0] * len(shape)
    for m, p in enumerate(placements):
        if isinstance(p, Shard) and mesh._coordinate is not None:
            n, at = Shard.local_shard_size_and_offset(sizes[p.dim], mesh.size(m), mesh._coordinate[m])
            sizes[p.dim], offsets[p.dim] = n, offsets[p.dim] + at
    return tuple(offsets)


def _rows(x: Tensor, dim: int, size: int) -> Tensor:
    """`x` with `dim` in front and `size` long, filled up with zeros."""
    rows = x.movedim(dim, 0).contiguous()
    missing = size - rows.shape[0]
    return rows if not missing else cat([rows, rows.new_zeros((missing, *rows.shape[1:]))])


def gathered(x: Tensor, dim: int, size: int, group: ProcessGroup) -> Tensor:
    """Everyone's parts along `dim`, which is `size` long in all."""
    n = group.size()
    full = -(-size // n)
    rows = _rows(x, dim, full)
    out = operators.all_gather_into_tensor(rows, n, group.group_name)
    return out[:size].movedim(0, dim).contiguous() if dim else out[:size]


def scattered(x: Tensor, dim: int, op: str, group: ProcessGroup) -> Tensor:
    """Everyone's `x` combined, and of the result this process's part along `dim`."""
    n, size = group.size(), x.shape[dim]
    full = -(-size // n)
    rows = _rows(x, dim, n * full)
    out = operators.reduce_scatter_tensor(rows, op, n, group.group_name)
    mine = Shard.local_shard_size_and_offset(size, n, group.rank())[0]
    return out[:mine].movedim(0, dim).contiguous()


def part(x: Tensor, dim: int, n: int, rank: int) -> Tensor:
    """Part number `rank` of `n` along `dim`."""
    size, offset = Shard.local_shard_size_and_offset(x.shape[dim], n, rank)
    return x.narrow(dim, offset, size).clone().contiguous()


def _exchanged(x: Tensor, old: int, new: int, size: int, group: ProcessGroup) -> Tensor:
    """From parts along `old` (`size` long in all) to parts along `new`."""
    n, me = group.size(), group.rank()
    sent = [part(x, new, n, r) for r in range(n)]
    shapes = [list(sent[me].shape) for _ in range(n)]
    for r, shape in enumerate(shapes):
        shape[old] = Shard.local_shard_size_and_offset(size, n, r)[0]
    received = [math.prod(shape) for shape in shapes]
    got = operators.all_to_all_single(cat([t.reshape(-1) for t in sent]), received, [t.numel() for t in sent], group.group_name)
    return cat([t.reshape(shape) for t, shape in zip(got.split(received), shapes)], old)


def _combined(x: Tensor, op: str, group: ProcessGroup) -> Tensor:
    return operators.all_reduce(x, op, group.group_name)


_NEUTRAL = {"sum": zeros_like, "product": ones_like}   # of the others, what all have alike is what they come to


def _summand(x: Tensor, op: str, rank: int) -> Tensor:
    """A part whose combination with the others' is `x`."""
    neutral = _NEUTRAL.get(op)
    return neutral(x) if neutral is not None and rank else x.clone()


def _step(x: Tensor, old: Placement, new: Placement, size: int, group: ProcessGroup) -> Tensor:
    """`x` after one dimension of a mesh changed; `size`: how long the dimension of `old`, if it is a shard, is in all."""
    if isinstance(old, Shard):
        if isinstance(new, Shard):
            return _exchanged(x, old.dim, new.dim, size, group)
        x = gathered(x, old.dim, size, group)
    elif isinstance(old, Partial):
        if isinstance(new, Shard):
            return scattered(x, new.dim, old.reduce_op, group)
        x = _combined(x, old.reduce_op, group)
    if isinstance(new, Shard):
        return part(x, new.dim, group.size(), group.rank())
    return _summand(x, new.reduce_op, group.rank()) if isinstance(new, Partial) else x


def _dims(*placements: Placement) -> set[int]:
    return {p.dim for p in placements if isinstance(p, Shard)}


def redistributed(x: Tensor, mesh: DeviceMesh, old: Sequence[Placement], new: Sequence[Placement], shape: Sequence[int]) -> Tensor:
    """This process's part `x` of a tensor of `shape` that lies as `old`, as `new` has it."""
    if tuple(old) == tuple(new) or mesh._coordinate is None:
        return x
    with no_grad():
        group = mesh.get_group(0)
        if x.device.type not in ("meta", *group.backends):      # parts that lie on the CPU, where the processes meet on GPUs
            return redistributed(x.to(group.device()), mesh, old, new, shape).to(x.device)
        now, end = list(old), list(new)
        for m in reversed(range(mesh.ndim)):    # what is split several times comes together in reverse
            busy = _dims(*(p for k in range(mesh.ndim) if k != m for p in (now[k], end[k])))
            before = _dims(*(p for k in range(m) if old[k] != new[k] for p in (old[k], new[k])))
            if now[m] == end[m] and not _dims(now[m]) & before:    # what earlier dimensions split anew is split here again
                continue
            straight = not (busy & _dims(now[m], end[m])) and not isinstance(now[m], Replicate)
            goal = end[m] if straight else Replicate()
            x, now[m] = _step(x, now[m], goal, _length(shape, mesh, now, m), mesh.get_group(m)), goal
        for m in range(mesh.ndim):
            if now[m] != end[m]:
                x, now[m] = _step(x, now[m], end[m], 0, mesh.get_group(m)), end[m]
    return x


def _length(shape: Sequence[int], mesh: DeviceMesh, now: Sequence[Placement], m: int) -> int:
    """How long the dimension that the mesh's dimension `m` splits is, for the processes along `m` together."""
    p = now[m]
    return local_shape(shape, mesh, now, m)[p.dim] if isinstance(p, Shard) else 0


def bytes_moved(old: Placement, new: Placement, nbytes: float, n: int) -> float:
    """About what a process receives for one dimension of `n` processes to change."""
    if old == new or isinstance(old, Replicate) or n == 1:
        return 0.0
    if isinstance(old, Partial):
        return nbytes * (n - 1) / n * (1 if isinstance(new, Shard) else 2)
    return nbytes * (n - 1) / n / (n if isinstance(new, Shard) else 1)


def canonical(placements: Sequence[Any] | None, mesh: DeviceMesh, rank: int,
              error: type[Exception] = AssertionError) -> tuple[Placement, ...]:
    """Placements as a tuple with dimensions from 0 on; replicated if none are given. `error` for a dimension that there is not."""
    if placements is None:
        return (Replicate(),) * mesh.ndim
    if len(placements) != mesh.ndim:
        raise ValueError(f"`placements` must have the same length as `device_mesh.ndim`! Found placements length: {len(placements)}, and "
                         f"device_mesh.ndim: {mesh.ndim}.")
    found: list[Placement] = []
    for p in placements:
        if type(p) not in (Shard, Replicate, Partial):
            raise NotImplementedError(f"placement {p!r}: there are Shard, Replicate and Partial")
        if isinstance(p, Shard) and not -max(rank, 1) <= p.dim < max(rank, 1):
            raise error(f"Sharding dim {p.dim} greater than tensor ndim {rank}: Shard(dim={p.dim}) of a tensor of {rank} dimensions")
        found.append(Shard(p.dim % max(rank, 1)) if isinstance(p, Shard) else p)
    return tuple(found)
