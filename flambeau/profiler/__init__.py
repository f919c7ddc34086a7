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
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..core import dispatch
from ..core.watching import block
from ..dynamo import debug
from .events import Event, EventList, EventSum, events_of_call, spelled
from .execution_trace import ExecutionTraceObserver


class ProfilerActivity(enum.Enum):
    """What to record; only the CPU is there."""

    CPU, XPU, MTIA, CUDA, HPU, PrivateUse1 = range(6)


DeviceType = enum.IntEnum("DeviceType", "CPU CUDA MKLDNN OPENGL OPENCL IDEEP HIP FPGA MAIA XLA Vulkan Metal XPU MPS Meta HPU VE Lazy IPU "
                          "MTIA PrivateUse1", start=0)
"""Kinds of devices, as traces number them."""


class ProfilerAction(enum.Enum):
    """What a schedule asks for at one step."""

    NONE, WARMUP, RECORD, RECORD_AND_SAVE = range(4)


class Recorder:
    """A watcher that keeps what ran in one thread and when; what an operator calls inside is its own time."""

    def __init__(self, record_shapes: bool = False, with_stack: bool = False) -> None:
        self.record_shapes, self.with_stack = record_shapes, with_stack
        self.log: list[Any] = []    # events, and calls of compiled libraries as `ran` takes them
        self.open: list[Event] = []

    def begin(self, name: str, args: Sequence[Any] = ()) -> Event:
        """Something starts."""
        shapes = [list(getattr(a, "shape", ())) for a in args] if self.record_shapes else ()
        event = Event(name, time.perf_counter_ns(), shapes, spelled(user_frames()) if self.with_stack else ())
        self.open.append(event)
        return event

    def end(self, event: Event) -> None:
        """It is over."""
        event.end = time.perf_counter_ns()
        self.open.remove(event)
        if self.open:
            self.open[-1].inner += event.end - event.start
        self.log.append(event)

    def ran(self, what: tuple[Any, int], start: int, laps: bytes) -> None:
        """A compiled library ran; events are made of that when they are asked for."""
        self.log.append((what, start, laps, block()))
        if self.open and laps:
            self.open[-1].inner += int.from_bytes(laps[-8:], sys.byteorder) - start

    @property
    def events(self) -> EventList:
        """What ran, in the order in which it ended."""
        found = EventList()
        for entry in self.log:
            if isinstance(entry, Event):
                found.append(entry)
            else:
                what, start, laps, where = entry
                found += events_of_call(what, start, memoryview(laps).cast("q"), where, self.record_shapes)
        return found


_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def user_frames() -> list[tuple[str, int, str]]:
    """The frames under way that are not Flambeau's own, innermost last."""
    frames: list[tuple[str, int, str]] = []
    frame: Any = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_HOME):
            frames.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return frames[::-1]


class record_function:
    """Names a block (or, as a decorator, a function) in the profile; costs next to nothing when none is taken."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self._open: list[tuple[Any, Any]] = []

    def __enter__(self) -> record_function:
        self._open = [(watcher, watcher.begin(self.name)) for watcher in dispatch.state.watchers]
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


def _default_schedule_fn(_: int) -> ProfilerAction:
    """Record at every step."""
    return ProfilerAction.RECORD


_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


# What is not recorded, and what to use for it.
_NOT_RECORDED = {
    "profile_memory": "torch.cuda.max_memory_allocated() or tracemalloc",
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
    """Record what runs in a block of the current thread: operators, steps of backward, and each kernel and library call of compiled
    graphs; with `record_shapes` the shapes of their arguments, with `with_stack` the user's frames (which kernels always have).

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
        with_stack: bool = False,
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
        self.recorder = Recorder(record_shapes, with_stack)
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
            dispatch.state.watchers = (*dispatch.state.watchers, self.recorder)

    def _pause(self) -> None:
        if self.running:
            self.running = False
            dispatch.state.watchers = tuple([watcher for watcher in dispatch.state.watchers if watcher is not self.recorder])

    def start(self) -> None:
        """Begin."""
        if self._wanted():
            self._resume()

    def stop(self) -> None:
        """End; hands the trace to `on_trace_ready` when there is one that has not been handed over."""
        recorded = self.running
        self._pause()
        debug.profiled(entry for entry in self.recorder.log if not isinstance(entry, Event))
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
                self.recorder.log.clear()
        self.step_num += 1
        if self._wanted():
            self._resume()
        else:
            self._pause()

    def events(self) -> EventList:
        """All events, in the order in which they ended."""
        return self.recorder.events

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0,
                     group_by_overload_name: bool = False) -> EventList:
        """The events summed by name (operators here have no overloads), and if told by the shapes of the arguments and by so many of the
        user's frames."""
        groups: dict[tuple, list[Event]] = {}
        for event in self.recorder.events:
            shapes = str(event.input_shapes) if group_by_input_shape else ""
            groups.setdefault((event.name, shapes, *event.stack[:group_by_stack_n]), []).append(event)
        sums = EventList(EventSum(key[0], found) for key, found in groups.items())
        for entry in sums:
            entry.input_shapes = entry.input_shapes if group_by_input_shape else []
            entry.by_stack = group_by_stack_n > 0
        return sums

    def export_chrome_trace(self, path: str) -> None:
        """Write the events for chrome://tracing and Perfetto."""
        rows = [
            {"name": e.name, "ph": "X", "ts": e.start / 1e3, "dur": e.cpu_time_total, "pid": 0, "tid": e.thread, "cat": "cpu_op",
             "args": {"Input Dims": e.input_shapes, "Call stack": e.stack, "Module": e.module}}
            for e in self.recorder.events
        ]
        opened = gzip.open if str(path).endswith(".gz") else open
        with opened(path, "wt", encoding="utf-8") as out:
            json.dump({"traceEvents": rows}, out)


def kineto_available() -> bool:
    """False: there is no Kineto; events are recorded without it."""
    return False


def supported_activities() -> set[ProfilerActivity]:
    """What is recorded."""
    return {ProfilerActivity.CPU}


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None, use_gzip: bool = False,
                              use_python_export: bool = False) -> Callable[[profile], None]:
    """An `on_trace_ready` that writes `dir_name/WORKER.N.pt.trace.json` (`.gz`, if compressed) for each trace. Traces are
    written in Python in any case (`use_python_export`)."""
    del use_python_export

    def handler(prof: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        ending = ".gz" if use_gzip else ""
        prof.export_chrome_trace(f"{dir_name}/{worker_name or 'worker'}.{time.time_ns()}.pt.trace.json{ending}")

    return handler


__all__ = [
    "profile", "schedule", "record_function", "ProfilerActivity", "ProfilerAction", "tensorboard_trace_handler", "Event",
    "EventSum", "EventList", "kineto_available", "supported_activities", "DeviceType", "ExecutionTraceObserver",
]
