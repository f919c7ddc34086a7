"""What profiles write down while a program runs, and the events that it is read as afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flambeau import _C

from ..core.tensor import fake
from ..core.watching import BACKWARD, ENGINE, OPERATOR, REGION, USER, block, unwatched
from ..ops.registry import OPERATORS
from ..utils.flop_counter import FlopCounterMode
from .cupti import GpuEvent, link
from .events import HOME, Event, EventList, events_of_call
from .memory import MemoryRecord
from .trace import forward_of

_TYPES = {"float32": "float", "float64": "double", "int64": "long int", "int32": "int", "bool": "bool", "bfloat16": "c10::BFloat16",
          "float16": "c10::Half", "int16": "short int", "int8": "signed char", "uint8": "unsigned char"}


class Modules:
    """The paths of modules that were called, by the outermost that was under way."""

    def __init__(self) -> None:
        self.paths: dict[int, dict[int, str]] = {}

    def path(self, places: Iterable[tuple[Any, int, Any]]) -> str:
        """Of the innermost module of some frames, innermost first; its class's name for the outermost one."""
        called = [module for _, _, module in places if module is not None]
        if not called:
            return ""
        inner, root = called[0], called[-1]
        if id(root) not in self.paths:
            self.paths[id(root)] = {id(module): path for path, module in root.named_modules()}
        return self.paths[id(root)].get(id(inner)) or type(inner).__name__


def user_frames(places: Iterable[tuple[Any, int, Any]]) -> list[str]:
    """The frames that are not Flambeau's own, as profiles spell them, innermost first."""
    return [f"{code.co_filename}({line}): {code.co_name}" for code, line, _ in places
            if not code.co_filename.startswith((HOME, "<frozen", "<inductor"))]


class Recorder(_C.Recorder):
    """A watcher that keeps what ran in one thread and when; what an operator calls inside is its own time."""

    def __new__(cls, record_shapes: bool = False, with_stack: bool = False, with_modules: bool = False, with_memory: bool = False,
                with_flops: bool = False) -> Recorder:
        return super().__new__(cls, record_shapes or with_flops, with_stack or with_modules)

    def __init__(self, record_shapes: bool = False, with_stack: bool = False, with_modules: bool = False, with_memory: bool = False,
                 with_flops: bool = False) -> None:
        self.record_shapes, self.with_stack, self.with_modules, self.with_flops = record_shapes, with_stack, with_modules, with_flops
        self.calls: list[tuple] = []
        self.passed: list[tuple[str, int, int]] = []
        self.gpu: list[GpuEvent] = []
        self._flops: dict[tuple[str, str], int] = {}
        self.memory = MemoryRecord(with_stack) if with_memory else None
        self.thread, self.native_thread = threading.get_ident(), threading.get_native_id()
        self._read: tuple[tuple[int, ...], EventList] | None = None

    def begin(self, name: str, args: Sequence[Any] = (), kind: int = 0, sequence: int = -1) -> int:
        """Something starts; native calls of operators do not come by."""
        if self.memory is not None and args and name.startswith("Optimizer.step"):
            self.memory.labels.look(args[0])
        return super().begin(name, args, kind, sequence)

    def limit(self, most: int) -> None:
        """Keep the first so many events, and twice as many changes of memory."""
        super().limit(most)
        if self.memory is not None:
            self.memory.limit(2 * most)

    def ran(self, what: tuple[Any, int], start: int, laps: bytes) -> None:
        """A compiled library ran; events are made of that when they are asked for."""
        self.calls.append((what, start, laps, block(), self.innermost()))

    def went(self, name: str, start: int, end: int) -> None:
        """Something went on beside what ran."""
        self.passed.append((name, start, end))

    def _passed(self, name: str, start: int, end: int) -> Event:
        event = Event(name, start, end=end)
        event.category, event.thread, event.is_async = "communication", 0, True
        return event

    def forget(self) -> None:
        """All of it."""
        super().forget()
        self._read = None
        self.calls.clear()
        self.passed.clear()
        self.gpu.clear()
        if self.memory is not None:
            self.memory.forget()

    @property
    def events(self) -> EventList:
        """What ran, in the order in which it began."""
        state = (len(self), len(self.calls), len(self.passed), len(self.gpu))
        if self._read is None or self._read[0] != state:
            self._read = state, self._events()
        return self._read[1]

    def _events(self) -> EventList:
        modules, by_number = Modules(), {}
        for number, name, start, end, parent, kind, sequence, first, last, inputs, places in self.entries():
            short = "ProfilerStep*" if name.startswith("ProfilerStep#") else name      # which sums of steps are under
            event = by_number[number] = Event(short, start, end=end or start, kind=kind)
            event.trace_name, event.thread, event.made = name, self.native_thread, (first, last)
            event.sequence_nr = sequence if kind not in (OPERATOR, REGION) else first + 1 if last > first else -1
            event.fwd_thread = int(event.sequence_nr >= 0 and kind in (BACKWARD, ENGINE))
            if self.with_stack:
                event.stack = user_frames(places)
            if self.with_modules or self.with_stack:
                event.module = modules.path(places)
            if inputs is not None and kind != USER:
                self._tell_inputs(event, *inputs)
            _put(event, by_number.get(parent))
        found = list(by_number.values())
        self._tell_backward(found)
        for what, start, laps, where, parent in self.calls:
            events = events_of_call(what, start, memoryview(laps).cast("q"), where, self.record_shapes)
            for event in events:
                event.thread = self.native_thread
                if event.cpu_parent is None:
                    _put(event, by_number.get(parent))
            found += events
        found += [self._passed(*told) for told in self.passed]
        found.sort(key=lambda e: (e.start, -e.end))
        for kind, field in (("cpu", "cpu"), ("cuda", "device")) if self.memory is not None else ():
            if kind in self.memory.logs:    # type: ignore[union-attr]
                found = _with_memory(found, [c for c in self.memory.changes(kind) if c[3] == self.thread], field)   # type: ignore[union-attr]
        if self.gpu:
            link(found, self.gpu)
            found = sorted([*found, *self.gpu], key=lambda e: (e.start, -e.end))
        for number, event in enumerate(found):
            event.id = number
        return EventList(found)

    def _tell_inputs(self, event: Event, given: list[Any], named: dict[str, Any]) -> None:
        inputs = [*given, *named.values()]
        if self.record_shapes:
            event.input_shapes = [_shape(value) for value in inputs]
            event.concrete_inputs = [None if _holds_tensors(value) else value for value in inputs]
            event.input_dtypes = [_type_of(value) for value in inputs]
        if self.with_flops:
            key = (event.name, str((given, named)))
            if key not in self._flops:
                self._flops[key] = _flops(event.name, given, named)
            event.flops = self._flops[key]

    @staticmethod
    def _tell_backward(events: Iterable[Event]) -> None:
        """A node of backward is of the module whose call made it, and so is what runs inside; it computes as much twice."""
        made = forward_of(events)
        for event in events:
            source = made.get(event.sequence_nr) if event.kind in (BACKWARD, ENGINE) else event.cpu_parent
            if source is None:
                continue
            event.made_by = source.made_by or (source if event.kind in (BACKWARD, ENGINE) else None)
            event.module = event.module or source.module
            if event.kind == BACKWARD and not any(child.flops for child in event.cpu_children):
                event.flops = 2 * source.flops      # a product for each of two operands


def _put(event: Event, parent: Event | None) -> None:
    if parent is not None:
        parent.append_cpu_child(event)
        event.set_cpu_parent(parent)


def _is_tensor(value: Any) -> bool:
    return type(value) is tuple and len(value) == 2


def _holds_tensors(value: Any) -> bool:
    return _is_tensor(value) or (type(value) is list and any(map(_holds_tensors, value)))


def _shape(value: Any) -> list[Any]:
    if _is_tensor(value):
        return [] if value[0] is None else list(value[0].shape)
    return [_shape(item) for item in value] if _holds_tensors(value) else []


def _type_of(value: Any) -> str:
    if _is_tensor(value):
        name = str(value[1]).removeprefix("torch.")
        return _TYPES.get(name, name)
    if type(value) is list:
        return "TensorList" if _holds_tensors(value) else "ScalarList"
    return "Scalar" if isinstance(value, (int, float)) else ""


def _flops(name: str, given: Sequence[Any], named: Mapping[str, Any]) -> int:
    """What an operator computes of such arguments: its shape rules are asked, with tensors that have no memory."""
    operator = OPERATORS.get(name.removeprefix("aten::"))
    if operator is None or not name.startswith("aten::"):
        return 0
    counter = FlopCounterMode(display=False)
    try:
        with unwatched(), counter:
            operator(*map(_imagined, given), **{key: _imagined(value) for key, value in named.items()})
    except Exception:       # an argument was an object that is not written down: nothing can be said
        return 0
    return counter.get_total_flops()


def _imagined(value: Any) -> Any:
    if _is_tensor(value):
        return None if value[0] is None else fake(value[0].shape, value[1])
    return [_imagined(item) for item in value] if type(value) is list else value


def _with_memory(events: list[Event], changes: Sequence[tuple], kind: str) -> list[Event]:
    """The events with their bytes, and events called [memory] for what no event was under way at."""
    own, whole = f"self_{kind}_memory_usage", f"{kind}_memory_usage"
    sizes: dict[int, int] = {}
    starts = [event.start for event in events]
    alone = []
    for address, size, time, _, _ in changes:
        before = sizes.pop(address, 0)
        if size:
            sizes[address] = size
        change = size or -before
        at = Event.under_way(events, starts, time)
        if at is None and change:
            alone.append(at := Event("[memory]", time))
        if at is not None:
            setattr(at, own, getattr(at, own) + change)
        while at is not None:
            setattr(at, whole, getattr(at, whole) + change)
            at = at.cpu_parent
    return sorted([*events, *alone], key=lambda e: (e.start, -e.end))
