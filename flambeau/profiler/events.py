"""What a profile holds: events, and sums of them with their table."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


class Interval(NamedTuple):
    """When something ran, in microseconds."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """How long it took."""
        return self.end - self.start


class Event:
    """One timed call: `name`, `start` and `end` in ns, the time spent in calls inside it, the shapes of its arguments, if asked for, and
    the user's frames, innermost first, and the module (`layers.3.linear`), where they are known."""

    __slots__ = ("end", "inner", "input_shapes", "module", "name", "stack", "start", "thread")
    count = 1
    is_async = False
    device_time = device_time_total = self_device_time_total = 0.0

    def __init__(self, name: str, start: int, input_shapes: Sequence[Any] = (), stack: Sequence[str] = (), end: int | None = None,
                 module: str = "") -> None:
        self.module = module
        self.name, self.start, self.end, self.inner = name, start, start if end is None else end, 0
        self.input_shapes, self.stack, self.thread = list(input_shapes), list(stack), threading.get_ident()

    def __repr__(self) -> str:
        return f"<Event {self.name}: {self.cpu_time_total:.1f} us>"

    @property
    def key(self) -> str:
        """Its name."""
        return self.name

    @property
    def time_range(self) -> Interval:
        """When it ran."""
        return Interval(self.start / 1e3, self.end / 1e3)

    @property
    def cpu_time_total(self) -> float:
        """Microseconds, with what it called."""
        return (self.end - self.start) / 1e3

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds, without what it called."""
        return (self.end - self.start - self.inner) / 1e3


def spelled(frames: Iterable[tuple]) -> list[str]:
    """Frames (file, line, function, ...), innermost last, as profiles spell them, innermost first."""
    return [f"{file}({line}): {function}" for file, line, function, *_ in frames][::-1]


def events_of_call(what: tuple[Any, int], start: int, ends: Sequence[int], block: Any, shapes: bool) -> list[Event]:
    """The events of one call of a compiled library: that of each kernel, and the call's own.

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
        whole.inner = began - start
        events.append(whole)
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


class EventSum:
    """All events of one name: `key`, `count`, total times in microseconds."""

    is_async = False
    device_time = device_time_total = self_device_time_total = 0.0

    by_stack = False

    def __init__(self, key: str, events: Iterable[Any]) -> None:
        chosen = list(events)
        self.key, self.count = key, len(chosen)
        self.input_shapes: list[Any]
        self.stack: list[str]
        self.input_shapes, self.stack = (chosen[0].input_shapes, chosen[0].stack) if chosen else ([], [])
        self.cpu_time_total = sum(e.cpu_time_total for e in chosen)
        self.self_cpu_time_total = sum(e.self_cpu_time_total for e in chosen)
        self.cpu_time = self.cpu_time_total / max(self.count, 1)

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
        total = EventSum("Total", self)
        total.count = sum(e.count for e in self)
        return total

    def table(self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int = 75, max_name_column_width: int = 55,
              max_shapes_column_width: int = 80, header: str | None = None, top_level_events_only: bool = False,
              time_unit: str | None = None) -> str:
        """The sums as text, the largest `sort_by` (a field of EventSum) first, `header` above. Times are in `time_unit`: s, ms or us.
        Sums by source have a column of it."""
        if top_level_events_only:
            raise NotImplementedError("table(top_level_events_only=True) is not implemented: sums hold calls of all levels; leave it out")
        if time_unit not in (None, *_UNITS):
            raise ValueError(f"time_unit is one of {', '.join(_UNITS)}, got {time_unit!r}")
        unit = time_unit or "us"
        scale = _UNITS[unit]
        rows = (sorted(self, key=lambda e: -getattr(e, sort_by)) if sort_by else list(self))[:row_limit]
        whole = sum(e.self_cpu_time_total for e in self) or 1.0
        names = [_shortened(e.key, max_name_column_width) for e in rows]
        shapes = [_shortened(str(e.input_shapes), max_shapes_column_width) if e.input_shapes else "" for e in rows]
        sources = [_shortened(e.stack[0], max_src_column_width) if e.stack and isinstance(e, EventSum) and e.by_stack else "" for e in rows]
        width = max(map(len, names), default=4)
        titles = (f"Self CPU {unit}", f"CPU total {unit}", f"CPU avg {unit}")
        lines = [] if header is None else [header]
        lines.append(f"{'Name':<{width}}  {'Self CPU %':>10}  {titles[0]:>12}  {titles[1]:>12}  {titles[2]:>10}  {'# of Calls':>10}"
                     + ("  Input Shapes" if any(shapes) else "") + ("  Source Location" if any(sources) else ""))
        lines += [
            (f"{name:<{width}}  {e.self_cpu_time_total / whole:>10.1%}  {e.self_cpu_time_total / scale:>12.1f}"
             f"  {e.cpu_time_total / scale:>12.1f}  {e.cpu_time / scale:>10.1f}  {e.count:>10}  {shape}  {source}").rstrip()
            for name, shape, source, e in zip(names, shapes, sources, rows)
        ]
        return "\n".join([*lines, f"Self CPU time total: {whole / 1e3:.3f} ms"])


_UNITS = {"us": 1, "ms": 1e3, "s": 1e6}     # in microseconds


def _shortened(text: str, width: int) -> str:
    return text if width <= 0 or len(text) <= width else text[:max(width - 3, 0)] + "..."


