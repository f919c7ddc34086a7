"""Memory over time: what it was taken for, and who held it at the peak."""

from __future__ import annotations

import bisect
import enum
import gc
import gzip
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flambeau import _C

from ..core.memory_history import Change, History
from ..core.sparse import SparseTensor
from ..core.tensor import Tensor
from ..core.watching import ENGINE
from ..cuda import memory as cuda_memory
from ..cuda.library import device_count
from ..nn.parameter import Parameter
from ..optim import Optimizer
from .events import Event


class Category(enum.IntEnum):
    """What memory is taken for, numbered as in the files of `export_memory_timeline`."""

    PARAMETER, OPTIMIZER_STATE, INPUT, TEMPORARY, ACTIVATION, GRADIENT, AUTOGRAD_DETAIL, OTHER = range(8)

    @property
    def spelled(self) -> str:
        """For people."""
        return {"AUTOGRAD_DETAIL": "backward"}.get(self.name, self.name.lower().replace("_", " "))


@dataclass(slots=True)
class Block:
    """Some memory: from when until when (ns; None: at the end it was there still), and what for."""

    address: int
    size: int
    start: int
    end: int | None = None
    event: Any = None
    places: Sequence[tuple] = ()
    category: Category = Category.OTHER


def blocks_of(changes: Iterable[Change]) -> list[Block]:
    """The blocks that were taken, in order."""
    found: list[Block] = []
    alive: dict[int, Block] = {}
    for address, size, when, _, places in changes:
        before = alive.pop(address, None)
        if before is not None:
            before.end = when
        if size:
            found.append(block := Block(address, size, when, None, None, places))
            alive[address] = block
    return found


def _address(tensor: Any) -> int | None:
    array: Any = getattr(tensor, "_data", None)
    if array is None or not array.size:
        return None
    return array.ctypes.data if hasattr(array, "ctypes") else getattr(array.data, "ptr", None)      # NumPy's, or CuPy's


def _parts(tensor: Any) -> Iterator[Tensor]:
    """The tensors with arrays of their own that a tensor is made of: itself, as a rule."""
    if isinstance(tensor, SparseTensor):
        yield from (tensor._entries, *tensor._pattern.indices)
    elif (local := getattr(tensor, "_local_tensor", None)) is not None:    # of a DTensor
        yield from _parts(local)
    elif hasattr(type(tensor), "__tensor_flatten__"):
        for name in tensor.__tensor_flatten__()[0]:
            yield from _parts(getattr(tensor, name))
    elif isinstance(tensor, Tensor):
        yield tensor


@dataclass
class Labels:
    """Where parameters, gradients and the states of optimizers lay, and when: steps of optimizers tell, and the end is looked at."""

    found: list[tuple[int, int, int, Category]] = field(default_factory=list)   # (time, address, bytes, what)
    _known: set[tuple[int, Category]] = field(default_factory=set)

    def look_everywhere(self) -> None:
        """The parameters and optimizers that there are now."""
        for thing in gc.get_objects():
            kind = type(thing)
            if issubclass(kind, Optimizer):
                self.look(thing)
            elif issubclass(kind, Parameter):
                self._add(thing, Category.PARAMETER)
                self._add(thing.grad, Category.GRADIENT)

    def look(self, optimizer: Any) -> None:
        """What an optimizer knows."""
        for group in getattr(optimizer, "param_groups", ()):
            for parameter in group["params"]:
                self._add(parameter, Category.PARAMETER)
                self._add(parameter.grad, Category.GRADIENT)
        for state in list(getattr(optimizer, "state", {}).values()):
            for value in state.values() if isinstance(state, Mapping) else ():
                self._add(value, Category.OPTIMIZER_STATE)

    def _add(self, tensor: Any, what: Category) -> None:
        for part in _parts(tensor):
            if (address := _address(part)) is None:
                continue
            if what is not Category.GRADIENT:       # which stays where it is
                if (address, what) in self._known:
                    continue
                self._known.add((address, what))
            self.found.append((time.perf_counter_ns(), address, part._data.nbytes, what))


class MemoryRecord:
    """The memory of a profile, by the kind of device: what changes there while it is recorded, and what of it are parameters and so on."""

    def __init__(self, with_stack: bool) -> None:
        self.labels = Labels()
        self.logs: dict[str, Any] = {"cpu": _C.MemoryLog(with_stack)}
        if device_count():
            self.logs["cuda"] = cuda_memory.MemoryLog(with_stack)
        self._changes: dict[str, list[Change]] = {kind: [] for kind in self.logs}

    def start(self) -> None:
        """From now on."""
        for log in self.logs.values():
            log.start()
        self.labels.look_everywhere()

    def stop(self) -> None:
        """Until now."""
        self.labels.look_everywhere()
        for log in self.logs.values():
            log.stop()

    def changes(self, kind: str = "cpu") -> list[Change]:
        """What was taken and given back, in order."""
        if kind not in self.logs:
            raise ValueError(f"the memory of {kind!r} was not recorded, only that of {', '.join(self.logs)}")
        self._changes[kind] += self.logs[kind].take()
        return self._changes[kind]

    def limit(self, most: int) -> None:
        """Keep the first so many changes of each."""
        for log in self.logs.values():
            log.limit(most)

    @property
    def busiest(self) -> str:
        """The kind of device that is looked at first: a GPU where one was used."""
        return next(kind for kind in ("cuda", "cpu") if kind == "cpu" or (kind in self.logs and self.changes(kind)))

    def forget(self) -> None:
        """All of it; where parameters lie is known still."""
        for kind in self.logs:
            self.changes(kind).clear()


class Timeline:
    """The memory of a profile: its blocks, each with its category and the event that took it."""

    def __init__(self, changes: Iterable[Change], labels: Labels, events: Sequence[Event]) -> None:
        changes = list(changes)
        self.blocks = blocks_of(changes)
        self._tell_events(events)
        begin = changes[0][2] if changes else 0
        passes = [e.start for e in events if e.kind == ENGINE]
        in_modules = [e.start for e in events if e.module and e.kind != ENGINE]
        for block in self.blocks:
            block.category = _category(block, passes, in_modules)
        self._tell_labels(labels, begin)

    def _tell_events(self, events: Sequence[Event]) -> None:
        events = [event for event in events if event.name != "[memory]"]
        starts = [event.start for event in events]
        for block in self.blocks:
            block.event = Event.under_way(events, starts, block.start)

    def _tell_labels(self, labels: Labels, begin: int) -> None:
        """Labels are truer than what follows from times; blocks that they tell of and nobody saw taken were there before."""
        by_address: dict[int, list[Block]] = {}
        for block in self.blocks:
            by_address.setdefault(block.address, []).append(block)
        before: dict[int, Block] = {}
        for when, address, size, what in labels.found:
            known = by_address.get(address, ())
            mine = next((b for b in known if b.start <= when and (b.end is None or when < b.end)), None)
            if mine is None and address not in before and (not known or known[0].start > when):
                mine = before[address] = Block(address, size, begin, known[0].start if known else None)
            if mine is not None:
                mine.category = what
        self.blocks = [*before.values(), *self.blocks]

    def steps(self) -> Iterator[tuple[int, int, int, Category]]:
        """(time, 1 for taken or -1, bytes, category), in order."""
        taken = [(b.start, 1, b.size, b.category) for b in self.blocks]
        yield from sorted([*taken, *((b.end, -1, b.size, b.category) for b in self.blocks if b.end is not None)], key=lambda s: s[0])

    def totals(self) -> tuple[list[int], list[list[int]]]:
        """Times in ns, and for each the bytes of each category."""
        times: list[int] = []
        sizes: list[list[int]] = []
        now = [0] * len(Category)
        for when, sign, size, what in self.steps():
            now[what] += sign * size
            if times and times[-1] == when:
                sizes[-1] = list(now)
            else:
                times.append(when)
                sizes.append(list(now))
        return times, sizes

    def peak(self) -> tuple[int, int, list[Block]]:
        """When most bytes were taken, how many, and the blocks, the largest first."""
        times, sizes = self.totals()
        if not times:
            return 0, 0, []
        most, when = max((sum(now), -at) for at, now in zip(times, sizes))
        held = [b for b in self.blocks if b.start <= -when and (b.end is None or b.end > -when)]
        return -when, most, sorted(held, key=lambda b: -b.size)

    def write(self, path: Any) -> None:
        """As numbers, by the ending of the path: the sizes of each category over time, or (raw) each change."""
        path = str(path)
        if path.endswith((".raw.json.gz", ".raw.json")):
            content: Any = [[when, 2 if sign > 0 else 4, sign * size, what] for when, sign, size, what in self.steps()]
        else:
            times, sizes = self.totals()
            content = [[when // 1000 for when in times], [[0, *now] for now in sizes]]
        with (gzip.open if path.endswith(".gz") else open)(path, "wt", encoding="utf-8") as out:
            json.dump(content, out)


def _category(block: Block, passes: Sequence[int], in_modules: Sequence[int]) -> Category:
    """By when it was taken and given back: `passes` and `in_modules` are when nodes of backward and operators of modules began."""
    at = block.event
    while at is not None and at.kind != ENGINE and not at.name.startswith(("Optimizer.", "enumerate(DataLoader)")):
        at = at.cpu_parent
    if at is not None:
        return (Category.AUTOGRAD_DETAIL if at.kind == ENGINE else Category.INPUT if at.name[0] == "e" else Category.TEMPORARY)
    end = block.end if block.end is not None else 1 << 62
    backward = _next(passes, block.start)
    entered = _next(in_modules, block.start)
    of_module = any(module is not None for _, _, module in block.places) or (block.event is not None and block.event.module)
    if not of_module and entered < min(end, backward):
        return Category.INPUT
    return Category.ACTIVATION if backward < end else Category.TEMPORARY


def _next(times: Sequence[int], after: int) -> int:
    place = bisect.bisect_left(times, after)
    return times[place] if place < len(times) else 1 << 62


HOST = History(lambda with_stack, most: _C.MemoryLog(with_stack, most))
record_memory_history, memory_snapshot, dump_memory_snapshot = HOST.record, HOST.snapshot, HOST.dump
