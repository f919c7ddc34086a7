"""ProcessGroup: some processes that work together, and their collectives on tensors.

A method checks its arguments, lays tensors out as an engine wants them (without gaps), posts the operation and hands out its `Work`.
"""

from __future__ import annotations

import contextlib
import enum
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np

from ..core.device import device as Device
from ..core.settings import told
from ..core.sparse import SparseTensor
from ..core.tensor import Tensor, bump_version, refuse_inference_write
from . import arrays, sparse
from .engines.base import Engine, Posted, refuse
from .engines.fake import FakeEngine
from .errors import DistBackendError
from .reduce_op import RedOpType, ReduceOp, kind_of
from .stores import Store
from .work import Work

SUM = RedOpType.SUM


observers: list[Callable[[str], None]] = []
"""Told the name of each operation that begins."""


class DebugLevel(enum.Enum):
    """How much is checked: TORCH_DISTRIBUTED_DEBUG."""

    OFF, INFO, DETAIL = range(3)


class Call(NamedTuple):
    """A collective, as a fake group writes it down."""

    name: str
    shape: tuple
    dtype: Any
    nbytes: int
    group: str
    ranks: tuple[int, ...]
    detail: str


class _Which(NamedTuple):
    """Which operation a work is: text where it is asked for, which few are."""

    name: str
    number: int
    group: ProcessGroup

    def __str__(self) -> str:
        group = self.group
        return f"{self.name} (collective {self.number} of group {group.group_name}, rank {group.rank()} of {group.size()})"


class _Place(NamedTuple):
    """Where the elements of a tensor are, without gaps, and what puts them back into a tensor that has some."""

    array: Any
    back: Callable[[], None] | None


def _reading(tensor: Tensor) -> Any:
    return None if tensor._data is None else arrays.dense(tensor._data)


def _writing(tensor: Tensor) -> _Place:
    data = tensor._data
    refuse_inference_write(tensor)
    bump_version(tensor)
    if data is None or arrays.is_dense(data):
        return _Place(data, None)
    copy = arrays.dense(data)
    return _Place(copy, lambda: arrays.copy(data, copy))


def _room(tensors: Sequence[Tensor]) -> Any:
    first = tensors[0]._data
    return None if first is None else arrays.empty(first, (len(tensors), *first.shape))


def _joined(tensors: Sequence[Tensor]) -> Any:
    room = _room(tensors)
    for i, tensor in enumerate(tensors):
        if room is not None:
            arrays.copy(room[i, ...], tensor._data)
    return room


def _apart(room: Any, tensors: Sequence[Tensor]) -> Callable[[], None]:
    for tensor in tensors:
        refuse_inference_write(tensor)
        bump_version(tensor)

    def put() -> None:
        for i, tensor in enumerate(tensors):
            if room is not None:
                arrays.copy(tensor._data, room[i, ...])
    return put


def _after(*steps: Callable[[], None] | None) -> Callable[[], None] | None:
    todo = [step for step in steps if step is not None]
    if len(todo) < 2:
        return todo[0] if todo else None

    def run() -> None:
        for step in todo:
            step()
    return run


def _one(tensors: Any) -> Tensor:
    return tensors if isinstance(tensors, Tensor) else tensors[0]


class ProcessGroup:
    """Some processes, in an order; made by `init_process_group` and `new_group`."""

    _flambeau_fact = "identity"  # by which a captured graph knows it

    def __init__(self, engines: dict[str, Engine], ranks: Sequence[int], name: str, backends: dict[str, str], timeout: timedelta,
                 store: Store, control: Engine | None = None, desc: str = "undefined") -> None:
        """`engines`: for each type of device whose tensors can travel; the first one also says when all have come somewhere."""
        self._engines, self._ranks, self.group_name, self.backends = engines, tuple(ranks), name, backends
        self._engine = next(iter(engines.values()))
        self.timeout, self._store, self._control, self.group_desc = timeout, store, control, desc
        self._seconds, self._sequence, self._broken = timeout.total_seconds(), 0, ""
        self.calls: list[Call] | None = [] if isinstance(self._engine, FakeEngine) else None

    # -- who is in it -------------------------------------------------------------------------------------------------------------
    def rank(self) -> int:
        """This process's number in the group."""
        return self._engine.rank

    def size(self) -> int:
        """How many processes there are."""
        return self._engine.size

    def name(self) -> str:
        """The backend's name."""
        return self.backends.get("cpu", next(iter(self.backends.values())))

    def get_group_store(self) -> Store:
        """The store through which the group was made."""
        return self._store

    def set_timeout(self, timeout: timedelta) -> None:
        """How long its collectives may take from now on."""
        self.timeout, self._seconds = timeout, timeout.total_seconds()

    def _get_backend_name(self) -> str:
        return self.name()

    def shutdown(self) -> None:
        """It is used no more."""
        self._broken = "it was destroyed"
        for engine in self._engines.values():
            engine.close()

    abort = shutdown

    def device(self) -> Device:
        """Where tensors that are made to be exchanged should be: the CPU, if this group's processes exchange what is there."""
        return self._engine.device()

    def together(self) -> AbstractContextManager:
        """Operations begun in the block are one to the engines that can: they end when the last does."""
        blocks = ExitStack()
        for engine in self._engines.values():
            blocks.enter_context(engine.together())
        return blocks

    def meet(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Be ready to send for each of these (sender, receiver)."""
        for engine in self._engines.values():
            engine.meet(pairs)

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.group_name} ({self.name()}): rank {self.rank()} of {self.size()}>"

    def __reduce__(self) -> Any:
        raise TypeError("a ProcessGroup belongs to its process and can't be pickled or copied; make one there with new_group()")

    # -- how an operation runs ----------------------------------------------------------------------------------------------------
    def _begin(self, name: str, tensor: Tensor | None, detail: str = "", collective: bool = True) -> Engine:
        """Note that an operation begins, and refuse what can't work; who does it."""
        if self._broken:
            raise DistBackendError(f"{name}: group {self.group_name} can't be used any more: {self._broken}")
        engine = self._engine_of(name, tensor)
        for observer in observers:
            observer(name)
        if self.calls is not None:
            shape, dtype = (tuple(tensor.shape), tensor.dtype) if tensor is not None else ((), None)
            nbytes = tensor.numel() * dtype.itemsize if tensor is not None and dtype is not None else 0
            self.calls.append(Call(name, shape, dtype, nbytes, self.group_name, self._ranks, detail))
        if not collective:
            return engine
        self._sequence += 1
        if self._control is not None:
            said = f"{name}(shape={list(tensor.shape)}, dtype={tensor.dtype}{', ' + detail if detail else ''})" if tensor is not None else (
                f"{name}({detail})")
            self._compare(said)
        return engine

    def _engine_of(self, name: str, tensor: Tensor | None) -> Engine:
        if tensor is None:
            return self._engine
        if tensor._data is None:    # nothing to exchange, on the device "meta"
            return FakeEngine(self.rank(), self.size())
        where = tensor.device.type
        if where not in self.backends:
            raise RuntimeError(f"No backend type associated with device type {where}: group {self.group_name} has "
                               f"{','.join(f'{d}:{b}' for d, b in self.backends.items())}")
        if self.calls is not None:
            return self._engine
        if (engine := self._engines.get(where)) is None:
            raise NotImplementedError(f"{name} of a tensor on {tensor.device} by {self.backends[tensor.device.type]!r} (between CPUs) is "
                                      "not implemented; use backend=\"nccl\" or \"cpu:gloo,cuda:nccl\", or move it to the CPU")
        return engine

    def _compare(self, said: str) -> None:
        """Under TORCH_DISTRIBUTED_DEBUG=DETAIL: do all ranks call the same? RuntimeError that names those who don't."""
        mine = np.zeros(256, np.uint8)
        text = f"#{self._sequence} {said}".encode()[:256]
        mine[: len(text)] = np.frombuffer(text, np.uint8)
        every = np.zeros((self.size(), 256), np.uint8)
        assert self._control is not None
        posted = self._control.all_gather(every, mine)
        Work(posted.request, _Which(f"the check before {said}", self._sequence, self), [], self._seconds, late=self._late).wait()
        calls: dict[str, list[int]] = {}
        for rank, row in enumerate(every):
            calls.setdefault(bytes(row).rstrip(b"\0").decode(errors="replace"), []).append(self._ranks[rank])
        if len(calls) > 1:
            which = "; ".join(f"{'rank' if len(r) == 1 else 'ranks'} {', '.join(map(str, r))}: {c}" for c, r in calls.items())
            raise RuntimeError(f"Detected mismatch between collectives on ranks of group {self.group_name}: {which}")

    def _work(self, engine: Engine, name: str, results: list, posted: Posted, *after: Callable[[], None] | None) -> Work:
        finish = _after(posted.finish, *after)
        return engine.work(posted.request, _Which(name, self._sequence, self), results, self._seconds, finish, self._late)

    def _late(self, what: _Which, seconds: float) -> Exception:
        """Who else waits? The others tell the store when their time is up, too."""
        me, place = self._engine.rank, f"late/{what.number}"
        self._broken = f"{what} did not end"
        missing: list[int] = list(range(self.size()))
        with contextlib.suppress(Exception):
            self._store.set(f"{place}/{me}", str(what))
            deadline = time.monotonic() + min(2.0, 0.2 + seconds)
            while len(missing) > 1 and time.monotonic() < deadline:
                missing = [r for r in missing if not self._store.check([f"{place}/{r}"])]
                time.sleep(0.05)
        absent = [self._ranks[r] for r in missing if r != me]
        who = f"; not waiting in it: rank(s) {', '.join(map(str, absent))}" if absent else ""
        return DistBackendError(f"{what} timed out after {seconds:g} s{who}")

    def _check_rank(self, name: str, rank: int, what: str) -> int:
        if not 0 <= rank < self.size():
            raise RuntimeError(f"{name}: invalid {what} rank: {rank}; the group has {self.size()} processes")
        return rank

    # -- collectives --------------------------------------------------------------------------------------------------------------
    def broadcast(self, tensors: Any, root: int = 0) -> Work:
        """The tensor of rank `root` to all."""
        tensor = _one(tensors)
        self._check_rank("broadcast", root, "root")
        engine = self._begin("broadcast", tensor, f"src={root}")
        if root == self.rank():
            return self._work(engine, "broadcast", [tensor], engine.broadcast(_reading(tensor), root))
        place = _writing(tensor)
        return self._work(engine, "broadcast", [tensor], engine.broadcast(place.array, root), place.back)

    def allreduce(self, tensors: Any, op: Any = SUM) -> Work:
        """The tensors of all combined, to all."""
        tensor, kind = _one(tensors), kind_of(op)
        refuse(kind, tensor.dtype)
        if isinstance(tensor, SparseTensor):
            return sparse.all_reduce(self, tensor, kind)
        engine = self._begin("all_reduce", tensor, kind.name)
        place = _writing(tensor)
        return self._work(engine, "all_reduce", [tensor], engine.all_reduce(place.array, kind, _factor(op)), place.back)

    def reduce(self, tensors: Any, root: int = 0, op: Any = SUM) -> Work:
        """The tensors of all combined, to rank `root`."""
        tensor, kind = _one(tensors), kind_of(op)
        refuse(kind, tensor.dtype)
        self._check_rank("reduce", root, "root")
        engine = self._begin("reduce", tensor, f"dst={root}, {kind.name}")
        place = _writing(tensor) if root == self.rank() else _Place(_reading(tensor), None)
        return self._work(engine, "reduce", [tensor], engine.reduce(place.array, root, kind, _factor(op)), place.back)

    def allgather(self, outputs: Any, inputs: Any) -> Work:
        """The tensors of all, to all."""
        outs = outputs if isinstance(outputs[0], Tensor) else outputs[0]
        tensor = _one(inputs)
        self._check_list("all_gather", "output", outs, tensor)
        engine = self._begin("all_gather", tensor)
        room = _room(outs)
        return self._work(engine, "all_gather", list(outs), engine.all_gather(room, _reading(tensor)), _apart(room, outs))

    def _allgather_base(self, output: Tensor, input: Tensor) -> Work:
        """The tensors of all, one after another, to all."""
        self._check_sizes("all_gather_into_tensor", "output", output, input)
        engine = self._begin("all_gather_into_tensor", input)
        place = _writing(output)
        array = engine.beside(_reading(input), place.array)
        return self._work(engine, "all_gather_into_tensor", [output], engine.all_gather(place.array, array), place.back)

    def gather(self, outputs: Any, inputs: Any, root: int = 0) -> Work:
        """The tensors of all, to rank `root`."""
        tensor, here = _one(inputs), self._check_rank("gather", root, "root") == self.rank()
        outs = (outputs if isinstance(outputs[0], Tensor) else outputs[0]) if here else []
        if here:
            self._check_list("gather", "output", outs, tensor)
        engine = self._begin("gather", tensor, f"dst={root}")
        room = _room(outs) if here else None
        return self._work(engine, "gather", list(outs), engine.gather(room, _reading(tensor), root), _apart(room, outs))

    def scatter(self, outputs: Any, inputs: Any, root: int = 0) -> Work:
        """A tensor of rank `root` to each."""
        tensor = _one(outputs)
        self._check_rank("scatter", root, "root")
        here = root == self.rank()
        parts = (inputs if isinstance(inputs[0], Tensor) else inputs[0]) if here else []
        if here:
            self._check_list("scatter", "input", parts, tensor)
        engine = self._begin("scatter", tensor, f"src={root}")
        place = _writing(tensor)
        return self._work(engine, "scatter", [tensor], engine.scatter(place.array, _joined(parts) if here else None, root), place.back)

    def reduce_scatter(self, outputs: Any, inputs: Any, op: Any = SUM) -> Work:
        """The lists of all combined, one of the results to each."""
        tensor, kind = _one(outputs), kind_of(op)
        parts = inputs if isinstance(inputs[0], Tensor) else inputs[0]
        refuse(kind, tensor.dtype)
        self._check_list("reduce_scatter", "input", parts, tensor)
        engine = self._begin("reduce_scatter", tensor, kind.name)
        place = _writing(tensor)
        posted = engine.reduce_scatter(place.array, _joined(parts), kind, _factor(op))
        return self._work(engine, "reduce_scatter", [tensor], posted, place.back)

    def _reduce_scatter_base(self, output: Tensor, input: Tensor, op: Any = SUM) -> Work:
        """The tensors of all combined, a part of the result to each."""
        kind = kind_of(op)
        refuse(kind, output.dtype)
        self._check_sizes("reduce_scatter_tensor", "input", input, output)
        engine = self._begin("reduce_scatter_tensor", output, kind.name)
        place = _writing(output)
        array = engine.beside(_reading(input), place.array)
        posted = engine.reduce_scatter(place.array, array, kind, _factor(op))
        return self._work(engine, "reduce_scatter_tensor", [output], posted, place.back)

    def alltoall(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> Work:
        """A tensor from each to each; they may have different sizes."""
        for what, tensors in (("input", inputs), ("output", outputs)):
            if len(tensors) != self.size():
                raise RuntimeError(f"all_to_all: {what} tensor list size {len(tensors)} does not match world size {self.size()}")
        if len({t.dtype for t in (*outputs, *inputs)}) > 1:
            raise ValueError(f"Invalid usage of tensors with different dtypes: {[t.dtype for t in (*outputs, *inputs)]}")
        self._begin("all_to_all", None, f"dtype={inputs[0].dtype}")
        engine = self._engine_of("all_to_all", inputs[0])
        sent, received = [t.numel() for t in inputs], [t.numel() for t in outputs]
        if inputs[0]._data is None:
            return self._work(engine, "all_to_all", list(outputs), Posted(None))
        flat = arrays.joined([_reading(t) for t in inputs])
        out = arrays.empty(flat, (sum(received),))
        for tensor in outputs:
            _writing(tensor)

        def put() -> None:
            for tensor, part in zip(outputs, arrays.parts(out, received)):
                arrays.copy(tensor._data, part.reshape(tensor._data.shape))
        return self._work(engine, "all_to_all", list(outputs), engine.all_to_all(out, flat, received, sent), put)

    def alltoall_base(self, output: Tensor, input: Tensor, output_split_sizes: Sequence[int] | None = None,
                      input_split_sizes: Sequence[int] | None = None) -> Work:
        """Rows of a tensor from each to each: so many as the splits say, or equal numbers."""
        if output.dtype is not input.dtype:
            raise ValueError(f"Invalid usage of tensors with different dtypes: {output.dtype} and {input.dtype}")
        received, sent = self._splits(output, output_split_sizes), self._splits(input, input_split_sizes)
        self._begin("all_to_all_single", None, f"dtype={input.dtype}")
        engine = self._engine_of("all_to_all_single", input)
        place = _writing(output)
        posted = engine.all_to_all(place.array, _reading(input), received, sent)
        return self._work(engine, "all_to_all_single", [output], posted, place.back)

    def _splits(self, tensor: Tensor, sizes: Sequence[int] | None) -> list[int]:
        """How many elements belong to each rank."""
        rows = tensor.shape[0] if tensor.ndim else 1
        if not sizes:
            if rows % self.size():
                raise RuntimeError(f"Tensor's dim 0 ({rows}) does not divide equally across group size ({self.size()}); give split sizes")
            sizes = [rows // self.size()] * self.size()
        if len(sizes) != self.size():
            raise RuntimeError(f"Number of tensor splits ({len(sizes)}) not equal to group size ({self.size()})")
        if sum(sizes) != rows or min(sizes) < 0:
            raise RuntimeError(f"Split sizes doesn't match total dim 0 size: {list(sizes)} for {rows} rows")
        row = tensor.numel() // rows if rows else 0
        return [size * row for size in sizes]

    def barrier(self) -> Work:
        """Done when all have come here."""
        engine = self._begin("barrier", None)
        return self._work(engine, "barrier", [], engine.barrier())

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """A barrier through the store: RuntimeError on rank 0 that names who did not come in time (the first, or all), and on those
        who came that rank 0 failed."""
        self._sequence += 1
        seconds = (timeout or self.timeout).total_seconds()
        key, me = f"monitored/{self._sequence}", self.rank()
        self._store.set(f"{key}/{me}", "")
        if self.calls is not None:
            return
        deadline = time.monotonic() + seconds
        if me == 0:
            missing = list(range(1, self.size()))
            while missing and time.monotonic() < deadline:
                missing = [r for r in missing if not self._store.check([f"{key}/{r}"])]
                time.sleep(0.001 if missing else 0)
            if missing:
                names = [self._ranks[r] for r in (missing if wait_all_ranks else missing[:1])]
                self._store.set(f"{key}/done", "failed")
                raise RuntimeError(f"{'Ranks' if len(names) > 1 else 'Rank'} {', '.join(map(str, names))} failed to pass "
                                   f"monitoredBarrier in {seconds * 1000:g} ms")
            self._store.set(f"{key}/done", "passed")
            return
        while not self._store.check([f"{key}/done"]):
            if time.monotonic() > deadline + 1:
                raise RuntimeError(f"Rank {self._ranks[me]} reports that rank 0 (global {self._ranks[0]}) did not pass monitoredBarrier in "
                                   f"{seconds * 1000:g} ms")
            time.sleep(0.001)
        if self._store.get(f"{key}/done") != b"passed":
            raise RuntimeError(f"Rank {self._ranks[me]} reports that rank {self._ranks[0]} saw others fail to pass monitoredBarrier")

    # -- from one to another ------------------------------------------------------------------------------------------------------
    def send(self, tensors: Any, dst: int, tag: int = 0) -> Work:
        """A tensor to rank `dst` of the group."""
        tensor = _one(tensors)
        engine = self._begin("send", tensor, f"dst={self._check_rank('send', dst, 'destination')}, tag={tag}", collective=False)
        array = _reading(tensor)
        return self._work(engine, f"send to rank {self._ranks[dst]}", [tensor], engine.send(array, dst, tag))

    def recv(self, tensors: Any, src: int | None, tag: int = 0) -> Work:
        """A tensor from rank `src` of the group, or with None from anyone: `source_rank()` tells from whom."""
        tensor = _one(tensors)
        if src is not None:
            self._check_rank("recv", src, "source")
        engine = self._begin("recv", tensor, f"src={src}, tag={tag}", collective=False)
        place, sources = _writing(tensor), list[int]()
        posted = engine.recv(place.array, src, tag, sources.append)
        who = "anyone" if src is None else f"rank {self._ranks[src]}"
        work = self._work(engine, f"recv from {who}", [tensor], posted, place.back)
        work._sources = sources
        return work

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work:
        """A tensor from anyone."""
        return self.recv(tensors, None, tag)

    # -- checks -------------------------------------------------------------------------------------------------------------------
    def _check_list(self, name: str, what: str, tensors: Sequence[Tensor], like: Tensor) -> None:
        if len(tensors) != self.size():
            raise RuntimeError(f"{name}: invalid {what} tensor list (expected length {self.size()}, got {len(tensors)})")
        for i, tensor in enumerate(tensors):
            if tensor.dtype is not like.dtype:
                raise ValueError(f"Invalid usage of tensors with different dtypes: found {tensor.dtype} at {what} {i} and {like.dtype}")
            if tensor.shape != like.shape:
                raise RuntimeError(f"{name}: invalid tensor size at {what} {i} (expected {tuple(like.shape)}, got {tuple(tensor.shape)})")

    def _check_sizes(self, name: str, what: str, large: Tensor, small: Tensor) -> None:
        if large.dtype is not small.dtype:
            raise RuntimeError(f"{name}: the {what} tensor must have the dtype of the other; found {large.dtype} and {small.dtype}")
        if large.numel() != small.numel() * self.size():
            raise RuntimeError(f"{name}: the {what} tensor of shape {tuple(large.shape)} must have {self.size()} times as many elements as "
                               f"the other, of shape {tuple(small.shape)}")


def _factor(op: Any) -> Any:
    factor = op.factor if isinstance(op, ReduceOp) else None
    return factor.item() if isinstance(factor, Tensor) else factor


# -- TORCH_DISTRIBUTED_DEBUG ----------------------------------------------------------------------------------------
class _Debug:
    level = DebugLevel.OFF


def get_debug_level() -> DebugLevel:
    """How much is checked."""
    return _Debug.level


def set_debug_level(level: DebugLevel) -> None:
    """Check so much in groups that are made from now on."""
    if not isinstance(level, DebugLevel):
        raise TypeError(f"set_debug_level() takes a DebugLevel, not {level!r}")
    _Debug.level = level


def set_debug_level_from_env() -> None:
    """As TORCH_DISTRIBUTED_DEBUG says: OFF, INFO or DETAIL."""
    name = told("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()
    if name not in DebugLevel.__members__:
        raise RuntimeError(f"The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL, not {name!r}")
    _Debug.level = DebugLevel[name]
