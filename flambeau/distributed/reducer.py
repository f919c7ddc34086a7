"""Gradients of a module averaged over processes while backward runs: parameters in buckets, one reduction for each bucket.

Buckets follow the parameters in reverse, which is about the order in which gradients come. When the last gradient of a bucket is there,
and all buckets before it are under way (so that all processes have the same order), its reduction begins; the end of backward waits.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, NamedTuple

from ..aot.early import Group
from ..autograd import queue_callback
from ..autograd.engine import completes
from ..autograd.grad_mode import no_grad
from ..autograd.graph import AccumulateGrad, edge_of
from ..backends.cuda import recording
from ..core.dtypes import DTYPES
from ..core.tensor import Tensor
from ..ops.creation import tensor, zeros
from ..ops.nn.steps import write_all
from ..sparse.construct import sparse_coo_tensor
from .graph_operators import bring, number_reducer
from .process_group import ProcessGroup
from .reduce_op import RedOpType
from .work import Work

FIRST_BUCKET, BUCKET = 1 << 20, 25 << 20  # bytes; the first is small, so that communication begins early


class BuiltinCommHookType(enum.Enum):
    """Communication hooks that DistributedDataParallel has by itself: the mean, as it is or rounded to float16 on its way."""

    ALLREDUCE, FP16_COMPRESS = 1, 2


class GradBucket:
    """A bucket as communication hooks see it."""

    def __init__(self, index: int, buffer: Tensor, parameters: list[Tensor], views: list[Tensor], last: bool) -> None:
        self._index, self._buffer, self._parameters, self._views, self._last = index, buffer, parameters, views, last

    def index(self) -> int:
        """Its number: in this order buckets are reduced."""
        return self._index

    def buffer(self) -> Tensor:
        """All its gradients, flat."""
        return self._buffer

    def gradients(self) -> list[Tensor]:
        """Its gradients, as views of the buffer."""
        return self._views

    def parameters(self) -> list[Tensor]:
        """The parameters."""
        return self._parameters

    def is_last(self) -> bool:
        """Whether it is reduced last."""
        return self._last

    def set_buffer(self, tensor: Tensor) -> None:
        """Put other values into the buffer."""
        self._buffer.copy_(tensor)

    def _clear(self, place: int | None = None) -> None:
        """Zeros in the place of one gradient, or of all."""
        with no_grad():
            (self._buffer if place is None else self._views[place]).zero_()

    def _fill(self, brought: Sequence[tuple[int, Tensor]]) -> None:
        """Gradients to their places; on a GPU in one launch."""
        with no_grad():
            write_all([self._views[place] for place, _ in brought], [grad for _, grad in brought])

    def _keep(self, value: Any) -> None:
        """What a hook's future gave into the buffer."""
        found = value[0] if isinstance(value, (list, tuple)) else value
        if found is not self._buffer:
            with no_grad():
                self._buffer.copy_(found.reshape(-1))


class _SparseBucket(GradBucket):
    """The bucket of a parameter with sparse gradients: the one that came is the buffer, and the reduced one the parameter's gradient."""

    def __init__(self, index: int, parameter: Any, last: bool) -> None:
        super().__init__(index, parameter, [parameter], [], last)
        self._clear()

    def gradients(self) -> list[Tensor]:
        return [self._buffer]

    def _clear(self, place: int | None = None) -> None:
        p: Any = self._parameters[0]
        nowhere = zeros((1, 0), dtype=DTYPES["int64"], device=p.device)
        self._buffer = sparse_coo_tensor(nowhere, zeros((0, *p.shape[1:]), dtype=p.dtype, device=p.device), p.shape)

    def _fill(self, brought: Sequence[tuple[int, Tensor]]) -> None:
        grad = brought[0][1].detach()
        self._buffer = (grad if grad.is_sparse else grad.to_sparse(1)).coalesce().clone()

    def _keep(self, value: Any) -> None:
        self._buffer = value[0] if isinstance(value, (list, tuple)) else value


class _BucketPlace(NamedTuple):
    bucket: int
    place: int


class Reducer:
    """The buckets of `parameters` ([(name, parameter)]), and their reductions in `group`."""

    def __init__(self, parameters: Sequence[tuple[str, Any]], group: ProcessGroup, sizes: tuple[int, ...] = (FIRST_BUCKET, BUCKET), *,
                 find_unused: bool = False, static: bool = False, views: bool = False, sparse: Container[int] = ()) -> None:
        """`sparse` has the identities of parameters whose gradients are sparse."""
        self.names, self.parameters = [name for name, _ in parameters], [p for _, p in parameters]
        self.group, self.find_unused, self.static, self.views = group, find_unused, static, views
        self.hook: Callable[[Any, GradBucket], Any] | None = None
        self.hook_state: Any = None
        self.takes_early = True  # whether a compiled backward may hand gradients over before it ends; not if the hook writes parameters
        self.divisor = group.size()
        self.buckets = self._make_buckets(sizes, sparse)
        self._slots = {id(p): _BucketPlace(b.index(), i) for b in self.buckets for i, p in enumerate(b.parameters())}
        self._number = {id(p): i for i, p in enumerate(self.parameters)}
        self._armed = self._queued = False
        self._works: list[Any] = []
        self._fired: dict[int, int] = {}
        self._expected: dict[int, int] | None = None  # static graphs: how often each parameter's hook is called
        self._rest()
        self._number_in_graphs = number_reducer(self)
        self._handles = [p.register_post_accumulate_grad_hook(self._came) for p in self.parameters]

    def _make_buckets(self, sizes: tuple[int, ...], sparse: Container[int]) -> list[GradBucket]:
        groups: list[list[Any]] = []
        filling: dict[Any, tuple[int, int]] = {}  # for each kind of parameter: its bucket's number, and the bytes in it
        for p in reversed(self.parameters):
            if id(p) in sparse:
                groups.append([p])
                continue
            nbytes = p.numel() * p.element_size()
            i, filled = filling.get((p.dtype, p.device), (-1, 0))
            if i < 0 or filled + nbytes > sizes[min(i, len(sizes) - 1)]:
                groups.append([])
                i, filled = len(groups) - 1, 0
            groups[i].append(p)
            filling[p.dtype, p.device] = (i, filled + nbytes)
        return [_SparseBucket(i, members[0], i == len(groups) - 1) if id(members[0]) in sparse
                else self._make_bucket(i, members, i == len(groups) - 1) for i, members in enumerate(groups)]

    @staticmethod
    def _make_bucket(index: int, members: list[Any], last: bool) -> GradBucket:
        buffer = zeros(sum(p.numel() for p in members), dtype=members[0].dtype, device=members[0].device)
        views, at = [], 0
        for p in members:
            views.append(buffer[at : at + p.numel()].view(p.shape))
            at += p.numel()
        return GradBucket(index, buffer, members, views, last)

    def _rest(self) -> None:
        """Wait for the next forward pass."""
        for work in self._works:  # of a backward pass that did not reach its end
            work.wait()
        self._armed, self._fired = False, {}
        self._missing = [len(b.parameters()) for b in self.buckets]
        self._works = []
        self._early: set[int] = set()  # buckets that came from within a compiled backward, before their parameters' gradients
        self._brought: list[list[tuple[int, Tensor]]] = [[] for _ in self.buckets]  # (place in the bucket, gradient)

    # -- forward ------------------------------------------------------------------------------------------------------------------
    def prepare(self, outputs: Iterable[Tensor]) -> None:
        """The next backward pass starts from `outputs` and is to be reduced. RuntimeError if the last one did not end."""
        if self._armed and self._fired:
            late = [n for n, p in zip(self.names, self.parameters) if id(p) not in self._fired]
            raise RuntimeError(
                "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your "
                "module has parameters that were not used in producing loss. You can enable unused parameter detection by passing the "
                "keyword argument `find_unused_parameters=True` to `torch.nn.parallel.DistributedDataParallel`, and by making sure all "
                f"`forward` function outputs participate in calculating loss. Parameters without a gradient: {', '.join(late[:20])}"
                f"{' ...' if len(late) > 20 else ''} ({len(late)} of {len(self.parameters)}).")
        self._rest()
        self._armed = True
        if self.static:
            unused = [] if self._expected is None else [p for p in self.parameters if id(p) not in self._expected]
        else:
            unused = self._unreached(outputs) if self.find_unused else []
        self._idle = {id(p) for p in unused}
        if len(self._idle) < len(self.parameters):
            for p in unused:
                self._absent(p)

    def _unreached(self, outputs: Iterable[Tensor]) -> list[Any]:
        """The parameters from which no output comes."""
        seen, stack = set(), [edge.node for t in outputs if (edge := edge_of(t)) is not None]
        reached = set()
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if isinstance(node, AccumulateGrad):
                reached.add(id(node.variable))
            stack.extend(edge[0] for edge in node.edges if edge is not None)
        return [p for p in self.parameters if id(p) not in reached]

    def _absent(self, p: Any) -> None:
        slot = self._slots[id(p)]
        view = self.buckets[slot.bucket].gradients()[slot.place]
        if p.grad is None or p.grad is view:
            self.buckets[slot.bucket]._clear(slot.place)
        else:
            self._brought[slot.bucket].append((slot.place, p.grad))
        self._ready(slot.bucket)

    # -- backward -----------------------------------------------------------------------------------------------------------------
    def _came(self, p: Any) -> None:
        """The gradient of `p` is there."""
        if not self._armed:
            return
        key = id(p)
        self._fired[key] = self._fired.get(key, 0) + 1
        if not self._queued:
            self._queued = True
            queue_callback(self._backward_ended)
        if self.static and self._expected is None:
            return  # the first time, to see what comes
        if self._expected is not None and self._fired[key] < self._expected.get(key, 1):
            return
        if key in self._idle or (self._expected is None and self._fired[key] > 1):
            raise RuntimeError(
                f"Expected to mark a variable ready only once. Parameter {self.names[self._number[key]]!r} got a gradient "
                f"{'though no output of forward leads to it' if key in self._idle else 'twice in one backward pass'}: it is used outside "
                "of the module's forward, or in several reentrant backward passes (torch.utils.checkpoint). With a graph that never "
                "changes, DistributedDataParallel(..., static_graph=True) can do that.")
        self._take(p)

    def _take(self, p: Any) -> None:
        slot = self._slots[id(p)]
        view = self.buckets[slot.bucket].gradients()[slot.place]
        if p.grad is not view:
            if slot.bucket not in self._early:
                self._brought[slot.bucket].append((slot.place, p.grad))
            if self.views and not view.is_sparse:
                p.grad = view
        self._ready(slot.bucket)

    def _ready(self, index: int) -> None:
        self._missing[index] -= 1
        self._go_on()

    def _go_on(self) -> None:
        """Begin to reduce the buckets that are full and next."""
        while len(self._works) < len(self.buckets) and not self._missing[len(self._works)]:
            if brought := self._brought[len(self._works)]:
                self.buckets[len(self._works)]._fill(brought)
                brought.clear()
            self._works.append(self._reduce(self.buckets[len(self._works)]))

    # -- from within a compiled backward ------------------------------------------------------------------------------------------
    def groups(self, inputs: Sequence[Any]) -> tuple[Group, ...]:
        """The buckets all of whose parameters are inputs of a graph."""
        places = {id(t): i for i, t in enumerate(inputs)}
        return tuple([Group(self._number_in_graphs, b.index(), tuple([places[id(p)] for p in b.parameters()]))
                      for b in self.buckets if not isinstance(b, _SparseBucket) and all(id(p) in places for p in b.parameters())])

    def tell(self, group: Group, gradients: list[Tensor]) -> Tensor:
        """The call that the graph holds."""
        return bring(gradients, group.receiver, group.number)

    def bring(self, index: int, gradients: list[Tensor]) -> None:
        """A bucket's gradients are computed, though not yet with their parameters: reduce them, if nothing else can come to them."""
        if self._can_take(index):
            with no_grad():
                write_all(self.buckets[index].gradients(), gradients)
            self._early.add(index)
            self._works.append(self._reduce(self.buckets[index]))
            self._go_on()

    def _can_take(self, index: int) -> bool:
        if not self.takes_early or not self._armed or index != len(self._works) or (self.static and self._expected is None):
            return False
        if recording.under_way:  # a replay would not come here
            return False
        members: list[Any] = list(self.buckets[index].parameters())
        if any(id(p) in self._fired or id(p) in self._idle or len(p._grad.post_accumulate_hooks) > 1 for p in members):
            return False
        return completes(members) and all(self._expected is None or self._expected.get(id(p)) == 1 for p in members)

    def _reduce(self, bucket: GradBucket) -> Any:
        if self.hook is not None:
            future = self.hook(self.hook_state, bucket)
            if not hasattr(future, "wait"):
                raise TypeError(f"Communication hook must return a Future, not {type(future).__name__}")
            return future
        buffer = bucket.buffer()
        by_engine = buffer.is_cuda and not buffer.is_sparse and self.divisor == self.group.size()  # NCCL divides on its way
        if not by_engine and self.divisor > 1:
            with no_grad():
                buffer.div_(self.divisor)
        work = self.group.allreduce(buffer, RedOpType.AVG if by_engine else RedOpType.SUM)
        work.watch()
        return work

    def _backward_ended(self) -> None:
        self._queued = False
        if self.static and self._expected is None:
            self._expected = dict(self._fired)
            self._idle = {id(p) for p in self.parameters if id(p) not in self._fired}
            for p in self.parameters:
                self._absent(p) if id(p) in self._idle else self._take(p)
        if any(self._missing):
            return  # a backward pass within another, or one that did not reach everything: the next forward will tell
        self._end(self._works, self._used_anywhere())
        self._works = []
        self._rest()

    def _end(self, works: Sequence[Any], used: list[bool] | None) -> None:
        """Wait for the buckets, and leave their gradients: those of all but the last at once, while that one is under way."""
        for some in (slice(None, -1), slice(-1, None)):
            for bucket, work in zip(self.buckets[some], works[some]):
                work.wait()
                if not isinstance(work, Work):
                    bucket._keep(work.value())
            self._leave(self.buckets[some], used)

    def _used_anywhere(self) -> list[bool] | None:
        """Which parameters got a gradient in any process; None: all."""
        if not self.find_unused:
            return None if not self._idle else [id(p) not in self._idle for p in self.parameters]
        local = tensor([int(id(p) not in self._idle) for p in self.parameters], device=self.group.device())
        self.group.allreduce(local).wait()
        return [bool(n) for n in local.tolist()]

    def _leave(self, buckets: Sequence[GradBucket], used: list[bool] | None) -> None:
        """The reduced gradients to the parameters."""
        both = [(p, view) for bucket in buckets for p, view in zip(bucket.parameters(), bucket.gradients())
                if used is None or used[self._number[id(p)]]]
        with no_grad():
            if held := [] if self.views else [(p.grad, view) for p, view in both if p.grad is not None and not view.is_sparse]:
                write_all(*zip(*held))
            for p, view in both:
                if view.is_sparse:
                    p.grad = view.detach()  # not the buffer itself: it is no place that keeps a gradient
                elif self.views:
                    p.grad = view
                elif p.grad is None:
                    p.grad = view.clone()

    # -- a process that has no more inputs -----------------------------------------------------------------------------------------
    def shadow(self) -> None:
        """Take part in one reduction with zeros; the others' gradients are left here."""
        for bucket in self.buckets:
            bucket._clear()
        works = [self._reduce(bucket) for bucket in self.buckets]
        if self.find_unused:
            self.group.allreduce(zeros(len(self.parameters), dtype=tensor([0]).dtype, device=self.group.device())).wait()
        self._end(works, None)  # an optimizer that updates its part of the parameters here needs the others' gradients
