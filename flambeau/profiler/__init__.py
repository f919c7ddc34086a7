"""torch.profiler: how often each operator ran and how long it took, on the CPU.

with torch.profiler.profile() as prof:
    model(x)
print(prof.key_averages().table(sort_by="self_cpu_time_total"))
"""

from __future__ import annotations

import enum
import functools
import json
import threading
import time
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
    """One timed call: `name`, `start` and `end` in ns, and the time spent in calls inside it."""

    __slots__ = ("end", "inner", "name", "start", "thread")

    def __init__(self, name: str, start: int) -> None:
        self.name, self.start, self.end, self.inner = name, start, start, 0
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
        self.key, self.count = key, len(chosen)
        self.cpu_time_total = sum(e.cpu_time_total for e in chosen)
        self.self_cpu_time_total = sum(e.self_cpu_time_total for e in chosen)
        self.cpu_time = self.cpu_time_total / self.count

    def __repr__(self) -> str:
        return f"<EventSum {self.key}: {self.count} calls, {self.cpu_time_total:.1f} us>"


class EventList(list):
    """Events or sums of events, with a table of them."""

    def table(self, sort_by: str | None = None, row_limit: int = 100, **ignored: Any) -> str:
        """The sums as text, the largest `sort_by` (a field of EventSum) first."""
        rows = sorted(self, key=lambda e: -getattr(e, sort_by)) if sort_by else list(self)
        whole = sum(e.self_cpu_time_total for e in self) or 1.0
        width = max([len(e.key) for e in rows[:row_limit]], default=4)
        lines = [
            f"{'Name':<{width}}  {'Self CPU %':>10}  {'Self CPU us':>12}  {'CPU total us':>12}  {'CPU avg us':>10}  {'# of Calls':>10}"
        ]
        lines += [
            f"{e.key:<{width}}  {e.self_cpu_time_total / whole:>10.1%}  {e.self_cpu_time_total:>12.1f}  {e.cpu_time_total:>12.1f}"
            f"  {e.cpu_time:>10.1f}  {e.count:>10}"
            for e in rows[:row_limit]
        ]
        return "\n".join([*lines, f"Self CPU time total: {whole / 1e3:.3f} ms"])


class _Recorder(TorchFunctionMode):
    """Times operators; what an operator calls inside is its own time."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.open: list[Event] = []

    def begin(self, name: str) -> Event:
        event = Event(name, time.perf_counter_ns())
        self.open.append(event)
        return event

    def end(self, event: Event) -> None:
        event.end = time.perf_counter_ns()
        self.open.remove(event)
        if self.open:
            self.open[-1].inner += event.end - event.start
        self.events.append(event)

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        event = self.begin(getattr(func, "__name__", str(func)))
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
    (0: for ever)."""

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        cycle = wait + warmup + active
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


class profile:
    """Record the operators of a block of the current thread.

    `schedule(step)` and `on_trace_ready(profile)` work with `step()`; settings for GPUs, memory and stacks are accepted and
    record nothing.
    """

    def __init__(
        self,
        *,
        activities: Sequence[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        **ignored: Any,
    ) -> None:
        self.schedule, self.on_trace_ready, self.step_num = schedule, on_trace_ready, 0
        self.recorder = _Recorder()
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
            self.recorder.events.clear()
        self.step_num += 1
        if self._wanted():
            self._resume()
        else:
            self._pause()

    def events(self) -> EventList:
        """All events, in the order in which they ended."""
        return EventList(self.recorder.events)

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, **ignored: Any) -> EventList:
        """The events summed by name."""
        names: dict[str, list[Event]] = {}
        for event in self.recorder.events:
            names.setdefault(event.name, []).append(event)
        return EventList(EventSum(name, found) for name, found in names.items())

    def export_chrome_trace(self, path: str) -> None:
        """Write the events for chrome://tracing and Perfetto."""
        rows = [
            {"name": e.name, "ph": "X", "ts": e.start / 1e3, "dur": e.cpu_time_total, "pid": 0, "tid": e.thread}
            for e in self.recorder.events
        ]
        with open(path, "w", encoding="utf-8") as out:
            json.dump({"traceEvents": rows}, out)


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None, use_gzip: bool = False) -> Callable[[profile], None]:
    """An `on_trace_ready` that writes `dir_name/WORKER.N.pt.trace.json` for each trace."""

    def handler(prof: profile) -> None:
        prof.export_chrome_trace(f"{dir_name}/{worker_name or 'worker'}.{time.time_ns()}.pt.trace.json")

    return handler


__all__ = [
    "profile", "schedule", "record_function", "ProfilerActivity", "ProfilerAction", "tensorboard_trace_handler", "Event",
    "EventSum", "EventList",
]
