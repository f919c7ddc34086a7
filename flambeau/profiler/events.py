"""What a profile holds: events, and sums of them with their table."""

from __future__ import annotations

import bisect
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ..core.watching import BACKWARD, ENGINE, OPERATOR, REGION, USER
from .trace import write_trace


class Interval(NamedTuple):
    """When something ran, in microseconds."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """How long it took."""
        return self.end - self.start


HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Timed:
    """What events and their sums have in common: times in microseconds, bytes, and operations."""

    name: str
    count = 1
    is_async = is_legacy = is_remote = False
    device_time_total = self_device_time_total = cpu_time_total = self_cpu_time_total = 0.0
    cpu_memory_usage = self_cpu_memory_usage = device_memory_usage = self_device_memory_usage = flops = 0
    node_id, use_device, overload_name, device_type = -1, None, "", 0
    cpu_parent: Any = None
    kind = OPERATOR

    @property
    def key(self) -> str:
        """Its name."""
        return self.name

    @property
    def scope(self) -> int:
        """Its kind, as torch numbers them."""
        return 0 if self.kind in (ENGINE, REGION) else self.kind

    @property
    def is_user_annotation(self) -> bool:
        """Whether the program named it."""
        return self.kind == USER

    @property
    def cpu_time(self) -> float:
        """Microseconds of a call, with what it called."""
        return self.cpu_time_total / (self.count or 1)

    @property
    def device_time(self) -> float:
        """Microseconds of a call on a GPU."""
        return self.device_time_total / (self.count or 1)


def _reads(field: str, shown: Callable[[Any], Any] = lambda value: value) -> property:
    return property(lambda self: shown(getattr(self, field)))


for _maker in ("cuda", "xpu"):      # names by the maker of the only GPUs that there were
    for _old in ("time", "time_total", "memory_usage"):
        for _self in ("", "self_"):
            if hasattr(Timed, f"{_self}device_{_old}"):
                setattr(Timed, f"{_self}{_maker}_{_old}", _reads(f"{_self}device_{_old}"))
for _name in ("cpu_time", "cpu_time_total", "self_cpu_time_total", "device_time", "device_time_total", "self_device_time_total"):
    setattr(Timed, f"{_name}_str", _reads(_name, lambda value: spelled_time(value)))


class Event(Timed):
    """One timed call: `name`, `start` and `end` in ns; inside of which event it ran (`cpu_parent`) and which ran inside of it
    (`cpu_children`); the shapes, dtypes and numbers that it was given, if asked for; the user's frames, innermost first, and the module
    (`layers.3.linear`), where they are known. `sequence_nr` is the number of autograd's node that it made or ran."""

    id, sequence_nr, fwd_thread, made = 0, -1, 0, (0, 0)
    trace_name: str | None = None                       # in traces, where it is another
    made_by: Any = None                                 # in backward: what of the forward pass it is the gradient of
    facts: Mapping[str, Any] = MappingProxyType({})     # of a GPU's kernel
    category = ""                                       # in traces, where that is not told by the kind

    def __init__(self, name: str, start: int, input_shapes: Sequence[Any] = (), stack: Sequence[str] = (), end: int | None = None,
                 module: str = "", kind: int = OPERATOR) -> None:
        self.module, self.kind = module, kind
        self.name, self.start, self.end = name, start, start if end is None else end
        self.input_shapes, self.stack, self.thread = list(input_shapes), list(stack), threading.get_ident()
        self.concrete_inputs: list[Any] = []
        self.input_dtypes: list[str] = []
        self.cpu_children: list[Any] = []
        self.kernels: list[Any] = []

    def __repr__(self) -> str:
        return f"<Event {self.name}: {self.cpu_time_total:.1f} us>"

    @property
    def time_range(self) -> Interval:
        """When it ran."""
        return Interval(self.start / 1e3, self.end / 1e3)

    @property
    def cpu_time_total(self) -> float:      # type: ignore[override]
        """Microseconds, with what it called."""
        return (self.end - self.start) / 1e3

    @property
    def self_cpu_time_total(self) -> float:     # type: ignore[override]
        """Microseconds, without what it called."""
        return (self.end - self.start - sum(child.end - child.start for child in self.cpu_children)) / 1e3

    @property
    def lane(self) -> str:
        """Where it is drawn: a thread, a stream of a GPU, or what goes on beside them."""
        return f"thread {self.thread}" if not self.category else self.category if not self.device_type else f"GPU stream {self.thread}"

    @property
    def line(self) -> str:
        """The innermost of the user's frames; in backward those of what it is the gradient of."""
        stack = self.stack if self.made_by is None else self.made_by.stack
        return next((frame for frame in stack if not frame.startswith(HOME)), "")

    def outer(self) -> Iterator[Event]:
        """What it ran inside of, innermost first."""
        at = self.cpu_parent
        while at is not None:
            yield at
            at = at.cpu_parent

    @staticmethod
    def under_way(events: Sequence[Event], starts: Sequence[int], when: int) -> Event | None:
        """The innermost of some events (`starts` are when they began, in order) that was under way at a time."""
        at = events[place - 1] if (place := bisect.bisect_right(starts, when)) else None
        while at is not None and at.end < when:
            at = at.cpu_parent
        return at

    @property
    def in_backward(self) -> bool:
        """Whether it is part of a backward pass."""
        return self.kind in (BACKWARD, ENGINE) or any(o.kind == ENGINE or o.name.startswith("compiled backward") for o in self.outer())

    def append_cpu_child(self, child: Event) -> None:
        """Say that `child` ran inside of it."""
        self.cpu_children.append(child)

    def set_cpu_parent(self, parent: Event | None) -> None:
        """Say inside of which event it ran."""
        self.cpu_parent = parent


def spelled(frames: Iterable[tuple]) -> list[str]:
    """Frames (file, line, function, ...), innermost last, as profiles spell them, innermost first."""
    return [f"{file}({line}): {function}" for file, line, function, *_ in frames][::-1]


def events_of_call(what: tuple[Any, int], start: int, ends: Sequence[int], block: Any, shapes: bool) -> list[Event]:
    """The events of one call of a compiled library: the call's own, if there is one, and that of each kernel.

    `what` is its code and the number of the first kernel, `ends` when each ended; `block` the nodes of the captured graph that it runs,
    where these are not the code's own.
    """
    code, first = what
    nodes = block or (list(code.captured.graph.nodes) if code.captured is not None else [])
    events, began = [], start
    for (name, places), end in zip(code.kernels[first:], ends):
        mine = [nodes[i] for i in places if i < len(nodes)]
        stack = next((node.meta["stack"] for node in mine if node.meta.get("stack")), ())
        events.append(Event(name, began, _shapes(mine) if shapes else (), spelled(stack), end, _module(mine)))
        began = end
    if (first, len(ends)) in code.spans:
        stack = next((node.meta["stack"] for node in nodes if node.meta.get("stack")), ())
        where = f" of {stack[0][2]} ({os.path.basename(stack[0][0])}:{stack[0][1]})" if stack else ""
        whole = Event(f"compiled {code.stage or 'graph'}{where}", start, (), spelled(stack), began)
        for event in events:
            whole.append_cpu_child(event)
            event.set_cpu_parent(whole)
        events.insert(0, whole)
    return events


def _module(nodes: Iterable[Any]) -> str:
    """The path of the module that the first of some nodes with one is of."""
    modules: dict[str, Any] = next((found for node in nodes if (found := node.meta.get("nn_module_stack"))), {})
    return [path for path, _ in modules.values()][-1] if modules else ""


def _shapes(nodes: Iterable[Any]) -> list[list[Any]]:
    """The shapes that go into some nodes from others."""
    nodes = list(nodes)
    values = [source.meta.get("val") for node in nodes for source in node._inputs if source not in nodes]
    return [list(value.shape) for value in values if hasattr(value, "shape")]


_SUMMED = ("cpu_time_total", "self_cpu_time_total", "device_time_total", "self_device_time_total", "cpu_memory_usage",
           "self_cpu_memory_usage", "device_memory_usage", "self_device_memory_usage", "flops", "count")


class EventSum(Timed):
    """All events of one name: `key`, `count`, total times in microseconds."""

    by_stack = False

    def __init__(self, key: str, events: Iterable[Any]) -> None:
        chosen = list(events)
        self.name = key
        self.input_shapes: list[Any]
        self.stack: list[str]
        self.input_shapes, self.stack = (chosen[0].input_shapes, chosen[0].stack) if chosen else ([], [])
        self.cpu_parent, self.kind = (chosen[0].cpu_parent, chosen[0].kind) if chosen else (None, OPERATOR)
        for field in _SUMMED:
            setattr(self, field, sum(getattr(e, field) for e in chosen))

    def add(self, other: Any) -> EventSum:
        """Add another sum, or an event."""
        for field in _SUMMED:
            setattr(self, field, getattr(self, field) + getattr(other, field))
        return self

    __iadd__ = add

    def __repr__(self) -> str:
        return f"<EventSum {self.key}: {self.count} calls, {self.cpu_time_total:.1f} us>"


class EventList(list):
    """Events or sums of events, with a table of them."""

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all of them."""
        return sum(e.self_cpu_time_total for e in self)

    def total_average(self) -> EventSum:
        """The sum of all, called Total."""
        return EventSum("Total", self)

    def key_averages(self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0,
                     group_by_overload_name: bool = False) -> EventList:
        """The events summed by name (operators here have no overloads), and if told by the shapes of the arguments and by so many of the
        user's frames."""
        groups: dict[tuple, list[Event]] = {}
        for event in self:
            shapes = str(event.input_shapes) if group_by_input_shapes else ""
            groups.setdefault((event.key, event.is_user_annotation, shapes, *event.stack[:group_by_stack_n]), []).append(event)
        sums = EventList(EventSum(key[0], found) for key, found in groups.items())
        for entry in sums:
            entry.input_shapes = entry.input_shapes if group_by_input_shapes else []
            entry.stack, entry.by_stack = entry.stack[:group_by_stack_n], group_by_stack_n > 0
        return sums

    def table(self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int = 75, max_name_column_width: int = 55,
              max_shapes_column_width: int = 80, header: str | None = None, top_level_events_only: bool = False,
              time_unit: str | None = None) -> str:
        """The sums as text, the largest `sort_by` (a field of EventSum) first, `header` above. Times are in `time_unit` (s, ms or us), or
        each in its own; there are columns of what was recorded: of a GPU's times, memory, shapes, source lines, operations."""
        if not self:
            return ""
        if time_unit not in (None, *_UNITS):
            raise ValueError(f"time_unit is one of {', '.join(_UNITS)}, got {time_unit!r}")
        if sort_by is not None and not hasattr(self[0], sort_by):
            raise AttributeError(f"'{type(self[0]).__name__}' object has no attribute '{sort_by}', by which the table was to be sorted")
        rows = sorted(self, key=lambda e: -getattr(e, sort_by)) if sort_by else list(self)
        rows = [e for e in rows if not top_level_events_only or e.cpu_parent is None][:row_limit if row_limit >= 0 else None]
        columns = _columns(self, time_unit, (max_name_column_width, max_shapes_column_width, max_src_column_width))
        cells = [[_shortened(column.text(e), column.most) for column in columns] for e in rows]
        widths = [max(column.least, len(column.title), *map(len, texts)) if texts else max(column.least, len(column.title))
                  for column, texts in zip(columns, zip(*cells) if cells else [[] for _ in columns])]
        line = "  ".join("-" * width for width in widths)
        text = [] if header is None else ["=" * len(line), header]
        text += ["This report only display top-level ops statistics"] * top_level_events_only
        text += [line, _row([c.title for c in columns], widths), line, *(_row(row, widths) for row in cells), line]
        whole = f"Self CPU time total: {spelled_time(self.self_cpu_time_total, time_unit)}"
        on_device = sum(e.self_device_time_total for e in self)
        return "\n".join([*text, whole, *([f"Self CUDA time total: {spelled_time(on_device, time_unit)}"] if on_device else []), ""])

    def export_chrome_trace(self, path: str) -> None:
        """Write the events for chrome://tracing and Perfetto."""
        write_trace(path, self)

    @staticmethod
    def supported_export_stacks_metrics() -> list[str]:
        """What `export_stacks` can count."""
        return [f"self_{kind}_time_total" for kind in ("cpu", "cuda", "xpu", "privateuse1")]

    def export_stacks(self, path: str, metric: str) -> None:
        """Write a line for each stack, outermost frame first, and the microseconds of its events: what flame graphs are drawn of."""
        if metric not in self.supported_export_stacks_metrics():
            raise ValueError(f"metric should be one of: {self.supported_export_stacks_metrics()}, got {metric!r}")
        field = metric if metric == "self_cpu_time_total" else "self_device_time_total"
        times: dict[str, float] = {}
        for event in self:
            if event.stack and getattr(event, field) > 0:
                frames = ";".join(frame.replace(";", ",").replace(" ", "_") for frame in reversed(event.stack))
                times[frames] = times.get(frames, 0.0) + getattr(event, field)
        with open(path, "w", encoding="utf-8") as out:
            out.writelines(f"{frames} {int(time)}\n" for frames, time in times.items() if int(time) > 0)


class _Column(NamedTuple):
    """Of a table: its title, what stands in it, and how wide it is at least and at most."""

    title: str
    text: Callable[[Any], str]
    least: int = 12
    most: int = 0


def _columns(events: Sequence[Any], unit: str | None, most: tuple[int, int, int]) -> list[_Column]:
    def share(field: str) -> Callable[[Any], str]:
        whole = sum(getattr(e, "self_" + field.removeprefix("self_")) for e in events)
        return lambda e: f"{getattr(e, field) / whole if whole else 0:.2%}"

    def shown(field: str, spell: Callable[..., str], *more: Any) -> Callable[[Any], str]:
        return lambda e: spell(getattr(e, field), *more)

    title = f" {unit}" if unit else ""
    columns = [_Column("Name", lambda e: e.key, 4, most[0])]
    for kind, name in (("cpu", "CPU"), ("device", "CUDA")):
        if kind == "cpu" or any(e.device_time_total for e in events):
            columns += [_Column(f"Self {name} %", share(f"self_{kind}_time_total")),
                        _Column(f"Self {name}{title}", shown(f"self_{kind}_time_total", spelled_time, unit)),
                        _Column(f"{name} total %", share(f"{kind}_time_total")),
                        _Column(f"{name} total{title}", shown(f"{kind}_time_total", spelled_time, unit)),
                        _Column(f"{name} time avg{title}", shown(f"{kind}_time", spelled_time, unit))]
    for kind, name in (("cpu", "CPU"), ("device", "CUDA")):
        if any(getattr(e, f"{kind}_memory_usage") or getattr(e, f"self_{kind}_memory_usage") for e in events):
            columns += [_Column(f"{name} Mem", shown(f"{kind}_memory_usage", spelled_bytes)),
                        _Column(f"Self {name} Mem", shown(f"self_{kind}_memory_usage", spelled_bytes))]
    columns.append(_Column("# of Calls", lambda e: str(e.count)))
    if any(e.input_shapes for e in events):
        columns.append(_Column("Input Shapes", lambda e: str(e.input_shapes), 12, most[1]))
    if any(getattr(e, "by_stack", False) and e.stack for e in events):
        columns.append(_Column("Source Location", lambda e: " | ".join(e.stack), 15, most[2]))
    if largest := max(e.flops for e in events):
        step = min((len(str(int(largest))) - 1) // 3, 5)
        columns.append(_Column(f"Total {'KMGTP'[step - 1] if step else ''}FLOPs",
                               lambda e: f"{e.flops / 1000 ** step:.3f}" if e.flops else "--"))
    return columns


def _row(cells: Iterable[str], widths: Iterable[int]) -> str:
    return "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths))


_UNITS = {"us": 1, "ms": 1e3, "s": 1e6}     # in microseconds


def spelled_time(microseconds: float, unit: str | None = None) -> str:
    """As text, in a unit of its own if none is told."""
    unit = unit or ("s" if microseconds >= 1e6 else "ms" if microseconds >= 1e3 else "us")
    return f"{microseconds / _UNITS[unit]:.3f}{unit}"


def spelled_bytes(count: float) -> str:
    """As text."""
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(count) >= size:
            return f"{count / size:.2f} {unit}"
    return f"{int(count)} B"


def _shortened(text: str, width: int) -> str:
    return text if width <= 0 or len(text) <= width else text[:max(width - 3, 0)] + "..."
