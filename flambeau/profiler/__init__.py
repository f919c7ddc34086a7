"""torch.profiler: how often each operator ran and how long it took, on the CPU.

with torch.profiler.profile() as prof:
    model(x)
print(prof.key_averages().table(sort_by="self_cpu_time_total"))
"""

from __future__ import annotations

import enum
import functools
import gzip
import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..overrides import TorchFunctionMode


class ProfilerActivity(enum.Enum):
    """What to record; only the CPU is there."""

    CPU, XPU, MTIA, CUDA, HPU, PrivateUse1 = range(6)


class ProfilerAction(enum.Enum):
    """What a schedule asks for at one step."""

    NONE, WARMUP, RECORD, RECORD_AND_SAVE = range(4)


class Event:
    """One timed call: `name`, `start` and `end` in ns, the time spent in calls inside it, and the shapes of its arguments, if asked for."""

    __slots__ = ("end", "inner", "input_shapes", "name", "start", "thread")

    def __init__(self, name: str, start: int, input_shapes: Sequence[Sequence[int]] = ()) -> None:
        self.name, self.start, self.end, self.inner, self.input_shapes = name, start, start, 0, list(input_shapes)
        self.thread = threading.get_ident()

    @property
    def cpu_time_total(self) -> float:
        """Microseconds, with what it called."""
        return (self.end - self.start) / 1e3

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds, without what it called."""
        return (self.end - self.start - self.inner) / 1e3


class EventSum:
    """All events of one name: `key`, `count`, total times in microseconds."""

    def __init__(self, key: str, events: Iterable[Event]) -> None:
        chosen = list(events)
        self.key, self.count, self.input_shapes = key, len(chosen), chosen[0].input_shapes
        self.cpu_time_total = sum(e.cpu_time_total for e in chosen)
        self.self_cpu_time_total = sum(e.self_cpu_time_total for e in chosen)
        self.cpu_time = self.cpu_time_total / self.count

    def __repr__(self) -> str:
        return f"<EventSum {self.key}: {self.count} calls, {self.cpu_time_total:.1f} us>"


class EventList(list):
    """Events or sums of events, with a table of them."""

    def table(self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int = 75, max_name_column_width: int = 55,
              max_shapes_column_width: int = 80, header: str | None = None, top_level_events_only: bool = False,
              time_unit: str | None = None) -> str:
        """The sums as text, the largest `sort_by` (a field of EventSum) first, `header` above. Times are in `time_unit`: s, ms or us.
        There is no column of sources."""
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
        width = max(map(len, names), default=4)
        titles = (f"Self CPU {unit}", f"CPU total {unit}", f"CPU avg {unit}")
        lines = [] if header is None else [header]
        lines.append(f"{'Name':<{width}}  {'Self CPU %':>10}  {titles[0]:>12}  {titles[1]:>12}  {titles[2]:>10}  {'# of Calls':>10}"
                     + ("  Input Shapes" if any(shapes) else ""))
        lines += [
            (f"{name:<{width}}  {e.self_cpu_time_total / whole:>10.1%}  {e.self_cpu_time_total / scale:>12.1f}"
             f"  {e.cpu_time_total / scale:>12.1f}  {e.cpu_time / scale:>10.1f}  {e.count:>10}  {shape}").rstrip()
            for name, shape, e in zip(names, shapes, rows)
        ]
        return "\n".join([*lines, f"Self CPU time total: {whole / 1e3:.3f} ms"])


_UNITS = {"us": 1, "ms": 1e3, "s": 1e6}     # in microseconds


def _shortened(text: str, width: int) -> str:
    return text if width <= 0 or len(text) <= width else text[:max(width - 3, 0)] + "..."


class _Recorder(TorchFunctionMode):
    """Times operators; what an operator calls inside is its own time."""

    def __init__(self, record_shapes: bool = False) -> None:
        self.record_shapes = record_shapes
        self.events: list[Event] = []
        self.open: list[Event] = []

    def begin(self, name: str, args: Sequence[Any] = ()) -> Event:
        shapes = [list(getattr(a, "shape", ())) for a in args] if self.record_shapes else ()
        event = Event(name, time.perf_counter_ns(), shapes)
        self.open.append(event)
        return event

    def end(self, event: Event) -> None:
        event.end = time.perf_counter_ns()
        self.open.remove(event)
        if self.open:
            self.open[-1].inner += event.end - event.start
        self.events.append(event)

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        event = self.begin(getattr(func, "__name__", str(func)), args)
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.end(event)


_active: list[_Recorder] = []


class record_function:
    """Names a block (or, as a decorator, a function) in the profile; costs next to nothing when none is taken."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self._open: list[tuple[_Recorder, Event]] = []

    def __enter__(self) -> record_function:
        self._open = [(recorder, recorder.begin(self.name)) for recorder in _active]
        return self

    def __exit__(self, *exc: object) -> None:
        for recorder, event in self._open:
            recorder.end(event)
        self._open = []

    def __call__(self, fn: Callable) -> Callable:
        @functools.wraps(fn)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name, self.args):
                return fn(*args, **kwargs)

        return wrapped


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """A schedule for `profile(schedule=...)`: after `skip_first` steps, `wait` idle, `warmup`, `active` recorded, `repeat` times
    (0: for ever). `skip_first_wait` other than 0: the first time without idle steps."""

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        cycle = wait + warmup + active
        if step >= 0 and skip_first_wait:
            step += wait
        if step < 0 or (repeat and step >= repeat * cycle):
            return ProfilerAction.NONE
        place = step % cycle
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if place == cycle - 1 else ProfilerAction.RECORD

    return action


_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


# What is not recorded, and what to use for it.
_NOT_RECORDED = {
    "profile_memory": "torch.cuda.max_memory_allocated() or tracemalloc", "with_stack": "record_function blocks, or cProfile",
    "with_flops": "torch.utils.flop_counter.FlopCounterMode", "with_modules": "record_function blocks",
    "experimental_config": "the profiler without it", "execution_trace_observer": "export_chrome_trace()",
    "custom_trace_id_callback": "the trace's file name",
    "post_processing_timeout_s": "no limit", "use_cuda": "torch.cuda.Event(enable_timing=True)",
}


def _check_activities(activities: Iterable[ProfilerActivity]) -> None:
    chosen = list(activities)
    if not chosen or not all(isinstance(a, ProfilerActivity) for a in chosen):
        raise AssertionError(f"No valid profiler activities found: expected ProfilerActivity.CPU, got {chosen}")
    if ProfilerActivity.CPU not in chosen:
        raise AssertionError(f"No activities specified for the profiler: only ProfilerActivity.CPU is recorded here, got {chosen}")
    if len(set(chosen)) > 1:
        warnings.warn("only ProfilerActivity.CPU is recorded here; time a GPU's kernels with torch.cuda.Event(enable_timing=True)",
                      UserWarning, stacklevel=3)


class profile:
    """Record the operators of a block of the current thread, with `record_shapes` the shapes of their arguments too.

    `schedule(step)` and `on_trace_ready(profile)` work with `step()`; `acc_events` keeps the events of all its cycles. Only the CPU's
    times are there: for what else torch can record there is a warning.
    """

    def __init__(
        self,
        *,
        activities: Sequence[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False,
        acc_events: bool = False,
        **others: Any,
    ) -> None:
        for name, value in others.items():
            if name not in _NOT_RECORDED:
                raise TypeError(f"profile() got an unexpected keyword argument '{name}'")
            if value:
                warnings.warn(f"profile({name}={value!r}) records nothing here; use {_NOT_RECORDED[name]}", UserWarning, stacklevel=2)
        if activities is not None:
            _check_activities(activities)
        self.acc_events = acc_events
        self.schedule, self.on_trace_ready, self.step_num = schedule, on_trace_ready, 0
        self.recorder = _Recorder(record_shapes)
        self.running = False

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _wanted(self) -> bool:
        return self.schedule is None or self.schedule(self.step_num) in _RECORDING

    def _resume(self) -> None:
        if not self.running:
            self.running = True
            _active.append(self.recorder)
            self.recorder.__enter__()

    def _pause(self) -> None:
        if self.running:
            self.running = False
            self.recorder.__exit__()
            _active.remove(self.recorder)

    def start(self) -> None:
        """Begin."""
        if self._wanted():
            self._resume()

    def stop(self) -> None:
        """End; hands the trace to `on_trace_ready` when there is one that has not been handed over."""
        recorded = self.running
        self._pause()
        if self.on_trace_ready is not None and (recorded or self.schedule is None):
            self.on_trace_ready(self)

    def step(self) -> None:
        """Say that the next step of the program begins."""
        finished = self.schedule is not None and self.schedule(self.step_num) is ProfilerAction.RECORD_AND_SAVE
        if finished:
            self._pause()
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)
            if not self.acc_events:
                self.recorder.events.clear()
        self.step_num += 1
        if self._wanted():
            self._resume()
        else:
            self._pause()

    def events(self) -> EventList:
        """All events, in the order in which they ended."""
        return EventList(self.recorder.events)

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0,
                     group_by_overload_name: bool = False) -> EventList:
        """The events summed by name (operators here have no overloads), or by name and the shapes of the arguments."""
        if group_by_stack_n:
            warnings.warn("key_averages(group_by_stack_n=...) groups by nothing more: no stacks are recorded; mark the places with "
                          "record_function", UserWarning, stacklevel=2)
        groups: dict[tuple, list[Event]] = {}
        for event in self.recorder.events:
            groups.setdefault((event.name, str(event.input_shapes) if group_by_input_shape else ""), []).append(event)
        sums = EventList(EventSum(name, found) for (name, _), found in groups.items())
        for entry in sums:
            entry.input_shapes = entry.input_shapes if group_by_input_shape else []
        return sums

    def export_chrome_trace(self, path: str) -> None:
        """Write the events for chrome://tracing and Perfetto."""
        rows = [
            {"name": e.name, "ph": "X", "ts": e.start / 1e3, "dur": e.cpu_time_total, "pid": 0, "tid": e.thread}
            for e in self.recorder.events
        ]
        opened = gzip.open if str(path).endswith(".gz") else open
        with opened(path, "wt", encoding="utf-8") as out:
            json.dump({"traceEvents": rows}, out)


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None, use_gzip: bool = False) -> Callable[[profile], None]:
    """An `on_trace_ready` that writes `dir_name/WORKER.N.pt.trace.json` (`.gz`, if compressed) for each trace."""

    def handler(prof: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        ending = ".gz" if use_gzip else ""
        prof.export_chrome_trace(f"{dir_name}/{worker_name or 'worker'}.{time.time_ns()}.pt.trace.json{ending}")

    return handler


__all__ = [
    "profile", "schedule", "record_function", "ProfilerActivity", "ProfilerAction", "tensorboard_trace_handler", "Event",
    "EventSum", "EventList",
]
