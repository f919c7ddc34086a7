"""Parameters that are gathered together when their module runs, and whose gradients are reduced together when they are there.

A parameter is a DTensor, of which each process has a part of the rows (or of another dimension). While its module runs it is a plain leaf
with all rows; the tape keeps that leaf, whose memory is given back between forward and backward and filled again. One that is a DTensor
of another mesh already (tensor parallel) is spread further: the leaf is this process's part of it, and the module sees a DTensor of that.

This process's parts of a group lie one after another, so that one kernel brings them all into the dtype in which they travel. Each
parameter is gathered into its own memory, and all are one operation to engines that can. While a group computes, the one that came after
it last time (in backward: before it) is gathered already.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ...autograd.engine import queue_callback
from ...autograd.grad_mode import is_grad_enabled, no_grad
from ...core.tensor import Tensor
from ...nn.modules.module import Module
from ...nn.parameter import Parameter
from ...ops.creation import empty, zeros
from ...ops.joining import cat
from ...utils import _pytree as pytree
from ..device_mesh import DeviceMesh
from ..reduce_op import RedOpType
from ..tensor.api import distribute_tensor
from ..tensor.dtensor import DTensor, dtensor
from ..tensor.placement_types import Placement, Replicate, Shard
from ..work import Work
from .policies import CPUOffloadPolicy, MixedPrecisionPolicy

# Whose reduction was begun last, by process group.
_last: weakref.WeakKeyDictionary[Any, weakref.ref[ParamGroup]] = weakref.WeakKeyDictionary()


class _Place(NamedTuple):
    """Where a parameter is registered."""

    module: Module
    name: str


class _Sharded:
    """One parameter: its shard, and the leaf that stands for it while its module runs."""

    def __init__(self, places: list[_Place], shard: Any, shape: tuple[int, ...], count: int, dim: int, within: tuple | None) -> None:
        """`shape` of what `count` processes have of it along `dim`; `within`: how that lies over another mesh, as `DTensor._of_part`
        takes it."""
        self.places, self.shard, self.dim, self.within = places, shard, dim, within
        self.shape = (shape[dim], *shape[:dim], *shape[dim + 1:])   # as it travels, rows first
        self.full = -(-self.shape[0] // count)
        self.count = self.full * math.prod(self.shape[1:])      # of each process's part
        self.leaf: Any = None
        self.nothing: Any = None    # what the leaf's memory is while it isn't gathered

    @property
    def rows(self) -> int:
        """How many this process has."""
        return self.shard._local_tensor.shape[self.dim]

    def back(self, rows: Tensor) -> Tensor:
        """What travelled as the parameter lies."""
        return rows.movedim(0, self.dim) if self.dim else rows

    def show(self, parameter: Any) -> None:
        if self.within is not None and parameter is self.leaf:
            parameter = DTensor._of_part(parameter, *self.within)
            parameter._is_param = True
        for module, name in self.places:
            module._parameters[name] = parameter


class _Bundle:
    """Parameters of one dtype, whose parts lie one after another in `flat`, with zeros where the last process has fewer rows."""

    def __init__(self, params: list[_Sharded], pinned: bool) -> None:
        self.params, self.counts = params, [p.count for p in params]
        first = params[0].shard._local_tensor
        self.flat = zeros(sum(self.counts), dtype=first.dtype, device=first.device,
                          pin_memory=pinned and first.device.type == "cpu" and not first.is_fake)
        self.places = [p.back(part[: p.shard._local_tensor.numel()].view(p.rows, *p.shape[1:]))
                       for p, part in zip(params, self.flat.split(self.counts))]
        for p, place in zip(params, self.places):
            place.copy_(p.shard._local_tensor)
            p.shard._store.local = place

    def holds(self) -> bool:
        """Whether the parameters' parts are those that lie here."""
        return all(_lies_at(p.shard._local_tensor, place) for p, place in zip(self.params, self.places))


def _lies_at(x: Tensor, place: Tensor) -> bool:
    return x.dtype is place.dtype and x.device == place.device and x.data_ptr() == place.data_ptr()


class _Gathering(NamedTuple):
    """Parameters on their way: (parameter, its rows) and the work of all; `versions` of the parts that they come from."""

    rows: list[tuple[_Sharded, Tensor]]
    work: Work
    versions: list[int]


class _Family:
    """The groups of one model: `ran` is the one whose forward began last. All processes see the same, whatever else they hold."""

    def __init__(self) -> None:
        self.ran: ParamGroup | None = None


class ParamGroup:
    """The parameters of `modules` that no group has yet."""

    def __init__(self, modules: Sequence[Module], mesh: DeviceMesh, policy: MixedPrecisionPolicy, reshard: bool, ignored: set[int],
                 source: int | None = None, dim_of: Callable[[Any], int] = lambda p: 0, offload: CPUOffloadPolicy | None = None) -> None:
        if mesh.ndim > 2:
            raise ValueError(f"FSDP needs a mesh of one dimension, or of two (replicated, sharded), not {mesh}")
        self.mesh, self.policy, self.reshard_after_forward = mesh, policy, reshard
        self.offload = offload if mesh.device_type != "cpu" else None
        self.shards, self.replicas = mesh.get_group(mesh.ndim - 1), mesh.get_group(0) if mesh.ndim == 2 else None
        self.syncs = self.reshard_after_backward = self.unshards_in_backward = self.reduces_replicas = True
        self.divisor: float | None = None       # of gradients; the number of processes, if None
        self.ahead: list[ParamGroup] | None = None      # what is gathered ahead while this runs forward, and backward, where that was told
        self.ahead_backward: list[ParamGroup] | None = None
        self.gathered = self._queued = False
        self._bundles: list[_Bundle] = []
        self._gathering: _Gathering | None = None
        self.following: ParamGroup | None = None  # what ran after it, and before it, in the last forward pass
        self.preceding: ParamGroup | None = None
        self._under_way: list[Callable[[], None]] = []  # what ends reductions that were begun
        self._missing: set[int] = set()
        self._kept: dict[tuple[int, ...], Tensor] = {}      # gradients that wait for the replicas' to be added up
        self.family = _Family()
        inside = {inner for m in modules for one in m.modules() if isinstance(inner := one.__dict__.get("_fsdp_group"), ParamGroup)}
        for inner in inside:
            inner.family = self.family
        taken = ignored | {id(p.shard) for inner in inside for p in inner.params}
        places: dict[int, tuple[Any, list[_Place]]] = {}
        for module in (one for m in modules for one in m.modules()):
            for name, p in module._parameters.items():
                if p is not None and id(p) not in taken:
                    places.setdefault(id(p), (p, []))[1].append(_Place(module, name))
        self.params = [self._shard(p, where, source, dim_of(p)) for p, where in places.values()]

    def _placements(self, dim: int) -> tuple[Placement, ...]:
        return (*((Replicate(),) * (self.mesh.ndim - 1)), Shard(dim))

    def _shard(self, p: Any, where: list[_Place], source: int | None, dim: int) -> _Sharded:
        if not p.ndim:
            raise ValueError(f"FSDP can't shard the parameter {where[0].name!r}, which has no dimension; make it one of one element")
        given, within = p.detach(), None
        if isinstance(p, DTensor):
            given, within = p._local_tensor, p.__tensor_flatten__()[1]
        shard = distribute_tensor(self._to_compute(given), self.mesh, self._placements(dim), src_data_rank=source)
        outer = self.mesh if within is None else p.device_mesh._with(self.mesh)     # what that mesh splits is split again
        if within is not None or self.offload is not None:
            kept = shard._local_tensor if self.offload is None or given.device.type == "meta" else shard._local_tensor.to("cpu")
            placed = shard.placements if within is None else (*p.placements, *shard.placements)
            shard = dtensor(kept, outer, placed, tuple(p.shape))
        made = Parameter(shard, p.requires_grad)
        held = _Sharded(where, made, tuple(given.shape), self.shards.size(), dim, within)
        held.show(made)
        return held

    # -- all rows ----------------------------------------------------------------------------------------------------------------
    def unshard(self) -> None:
        """Gather all parameters, and let the modules see them."""
        if self.gathered or not self.params:
            return
        if self._gathering is not None and self._gathering.versions != self._versions():
            self.forget()  # the parameters have changed since
        self.begin()
        self._end_gathering()
        self.gathered = True
        for p in self.params:
            p.show(p.leaf)

    def begin(self) -> None:
        """Begin to gather, if that isn't done or under way."""
        if self.gathered or self._gathering is not None or not self.params:
            return
        with no_grad():
            if not self._bundles or not all(bundle.holds() for bundle in self._bundles):
                kinds = dict.fromkeys((p.shard.dtype, p.shard._local_tensor.device) for p in self.params)
                self._bundles = [_Bundle([p for p in self.params if (p.shard.dtype, p.shard._local_tensor.device) == kind],
                                         self.offload is not None and self.offload.pin_memory) for kind in kinds]
            ready = [(bundle, self._cast(self._to_compute(bundle.flat))) for bundle in self._bundles]
            with self.shards.together():
                begun = [self._gather(p, part) for bundle, flat in ready
                         for p, part in zip(bundle.params, flat.split(bundle.counts))]
        works = [work for *_, work in begun]
        for work in works:
            work.watch()
        self._gathering = _Gathering([(p, rows) for p, rows, _ in begun], works[-1].joined(works), self._versions())

    def forget(self) -> None:
        """Let go what is under way: its memory is the engine's until it ends."""
        gathering, self._gathering = self._gathering, None
        if gathering is not None:
            gathering.work.wait()

    def _gather(self, p: _Sharded, part: Tensor) -> tuple[_Sharded, Tensor, Work]:
        rows = empty((self.shards.size() * p.full, *p.shape[1:]), dtype=part.dtype, device=part.device)
        return p, rows, self.shards._allgather_base(rows, part)

    def _versions(self) -> list[int]:
        return [bundle.flat._version for bundle in self._bundles]

    def _end_gathering(self) -> None:
        gathering, self._gathering = self._gathering, None
        assert gathering is not None
        gathering.work.wait()
        with no_grad():
            for p, rows in gathering.rows:
                whole = p.back(rows[: p.shape[0]])
                if p.leaf is None:
                    p.leaf = Parameter(whole, p.shard.requires_grad)
                    p.nothing = empty((), dtype=whole.dtype, device=whole.device).expand(whole.shape)
                    if p.leaf.requires_grad:
                        p.leaf.register_post_accumulate_grad_hook(lambda leaf, held=p: self._came(held))
                else:
                    p.leaf.data = whole

    def _to_compute(self, x: Tensor) -> Tensor:
        """`x` where modules compute, if parts lie elsewhere."""
        return x if self.offload is None or x.device.type in ("meta", self.mesh.device_type) else x.to(self.mesh.device_type, non_blocking=True)

    def _cast(self, x: Tensor) -> Tensor:
        kind = self.policy.param_dtype
        return x if kind is None or not x.dtype.is_floating_point else x.to(kind)

    def reshard(self) -> None:
        """Give the memory of what was gathered back, and let the modules see their shards."""
        if not self.gathered:
            return
        for p in self.params:
            p.show(p.shard)
            p.leaf.data = p.nothing
        self.gathered = False

    def write_back(self) -> None:
        """What was done to the gathered parameters, into the shards."""
        with no_grad():
            for p in self.params:
                p.shard._local_tensor.copy_(distribute_tensor(p.leaf.detach(), self.mesh, self._placements(p.dim),
                                                              src_data_rank=None)._local_tensor)

    # -- forward and backward ------------------------------------------------------------------------------------------------------
    def before(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Before forward: parameters, and inputs in the dtype of the policy."""
        self.unshard()
        self._note_order()
        for group in self.ahead if self.ahead is not None else filter(None, (self.following,)):
            group.begin()
        if self.policy.param_dtype is None or not self.policy.cast_forward_inputs:
            return args, kwargs
        return pytree.tree_map_only(Tensor, self._cast, (args, kwargs))

    def _note_order(self) -> None:
        before, self.family.ran = self.family.ran, self
        if before is None or before is self or before.following is self:
            return
        if before.following is not None:
            before.following.forget()   # it did not come after all
        before.following, self.preceding = self, before

    def after(self, outputs: Any) -> Any:
        """After forward: parameters go, and come again when the gradient of a result does."""
        if self.policy.output_dtype is not None:
            outputs = pytree.tree_map_only(Tensor, lambda t: t.to(self.policy.output_dtype) if t.dtype.is_floating_point else t, outputs)
        if is_grad_enabled():
            for t in pytree.tree_leaves(outputs):
                if isinstance(t, Tensor) and t.requires_grad:
                    t.register_hook(self._backward_begins)
        if self.reshard_after_forward or not is_grad_enabled():
            self.reshard()
        return outputs

    def _backward_begins(self, grad: Tensor) -> None:
        del grad
        if self.unshards_in_backward:
            self.unshard()
        for group in self.ahead_backward if self.ahead_backward is not None else filter(None, (self.preceding,)):
            group.begin()
        if not self._queued:
            self._queued = True
            self._missing = {id(p) for p in self.params if p.shard.requires_grad}
            queue_callback(self._backward_ended)

    def _came(self, held: _Sharded) -> None:
        """A gradient is there; when all are, they are reduced."""
        self._missing.discard(id(held))
        if self._queued and not self._missing and self.syncs:
            self.reduce()

    def _backward_ended(self) -> None:
        self._queued = False
        if self.preceding is not None:
            self.preceding.forget()     # no gradient went there
        if self.syncs and any(p.leaf is not None and p.leaf.grad is not None for p in self.params):
            self.reduce()
        self.settle()
        if self.reshard_after_backward:
            self.reshard()

    def reduce(self) -> None:
        """Begin to reduce everyone's gradients to their mean; another group's that was begun before ends, so that few are under way.
        At the end of the backward pass the shards have theirs."""
        before = _last.get(self.shards, lambda: None)()
        if before is not None and before is not self:
            before.settle()
        _last[self.shards] = weakref.ref(self)
        with no_grad():
            trained = [p for p in self.params if p.shard.requires_grad]
            for kind in dict.fromkeys(p.leaf.dtype for p in trained):
                self._reduce([p for p in trained if p.leaf.dtype is kind])
        if self.reshard_after_backward:
            self.reshard()

    def _reduce(self, params: list[_Sharded]) -> None:
        n, kind = self.shards.size(), self.policy.reduce_dtype or params[0].leaf.dtype
        counts = [p.count for p in params]
        grads = []
        for p in params:
            grad = zeros(p.shape, dtype=kind, device=p.leaf.device) if p.leaf.grad is None else p.leaf.grad.to(kind).movedim(p.dim, 0)
            grads.append(_filled(grad, n * p.full))
            p.leaf.grad = None
        mine = empty(sum(counts), dtype=kind, device=grads[0].device)
        with self.shards.together():
            how = RedOpType.AVG if self.divisor is None else RedOpType.SUM
            works = [self.shards._reduce_scatter_base(part, grad, how) for part, grad in zip(mine.split(counts), grads)]
        for work in works:
            work.watch()
        self._under_way.append(partial(self._end, works[-1].joined(works), params, mine, grads))

    def settle(self) -> None:
        """Wait for the reductions that were begun, and give the shards their gradients."""
        ends, self._under_way = self._under_way, []
        with no_grad():
            for end in ends:
                end()

    def _end(self, work: Work, params: list[_Sharded], mine: Tensor, grads: list[Tensor]) -> None:
        """`mine` is there; `grads`, what it comes from, were kept until now."""
        work.wait()
        del grads
        if self.divisor is not None:
            mine.div_(self.divisor)
        if self.replicas is not None:
            key = tuple(map(id, params))
            if (kept := self._kept.pop(key, None)) is not None:
                mine.add_(kept)
            if not self.reduces_replicas:
                self._kept[key] = mine
                return
            self.replicas.allreduce(mine, RedOpType.AVG if self.divisor is None else RedOpType.SUM).wait()
        for p, part in zip(params, mine.split([p.count for p in params])):
            local = p.shard._local_tensor
            grad = p.back(part.reshape(p.full, *p.shape[1:])[: p.rows]).to(local.device, local.dtype)
            made = dtensor(grad, p.shard.device_mesh, p.shard.placements, tuple(p.shard.shape))
            if p.shard.grad is None:
                p.shard.grad = made
            else:
                p.shard.grad._local_tensor.add_(grad)


def _filled(x: Tensor, rows: int) -> Tensor:
    """`x` with so many rows: zeros where it has fewer."""
    missing = rows - x.shape[0]
    return x.contiguous() if not missing else cat([x, x.new_zeros((missing, *x.shape[1:]))])

