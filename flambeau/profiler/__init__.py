"""torch.profiler: how often each operator ran and how long it took, on the CPU.

with torch.profiler.profile() as prof:
    model(x)
print(prof.key_averages().table(sort_by="self_cpu_time_total"))
"""

from __future__ import annotations

import enum
import functools
import json
import os
import socket
import time
import uuid
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from ..core import dispatch
from ..core.watching import USER
from ..dynamo import debug
from . import cupti, itt
from .events import Event, EventList, EventSum
from .execution_trace import ExecutionTraceObserver
from .memory import Timeline
from .page import write_page
from .record import Recorder
from .trace import write_trace


class ProfilerActivity(enum.Enum):
    """What to record; only the CPU is there."""

    CPU, XPU, MTIA, CUDA, HPU, PrivateUse1 = range(6)


DeviceType = enum.IntEnum("DeviceType", "CPU CUDA MKLDNN OPENGL OPENCL IDEEP HIP FPGA MAIA XLA Vulkan Metal XPU MPS Meta HPU VE Lazy IPU "
                          "MTIA PrivateUse1", start=0)
"""Kinds of devices, as traces number them."""


class ProfilerAction(enum.Enum):
    """What a schedule asks for at one step."""

    NONE, WARMUP, RECORD, RECORD_AND_SAVE, DEVICE_STOPPED = range(5)


class record_function:
    """Names a block (or, as a decorator, a function) in the profile; costs next to nothing when none is taken."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self._open: list[tuple[Any, Any]] = []

    def __enter__(self) -> record_function:
        self._open = [(watcher, watcher.begin(self.name, (), USER)) for watcher in dispatch.state.watchers]
        return self

    def __exit__(self, *exc: object) -> None:
        for recorder, event in reversed(self._open):
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
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise AssertionError(f"Invalid profiler schedule arguments. Got wait={wait} (need >= 0), warmup={warmup} (need >= 0), "
                             f"active={active} (need > 0), repeat={repeat} (need >= 0), skip_first={skip_first} (need >= 0).")
    if warmup == 0:
        warnings.warn("Profiler won't be using warmup, this can skew profiler results", UserWarning, stacklevel=2)

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


def _check_activities(activities: Iterable[ProfilerActivity]) -> set[ProfilerActivity]:
    chosen = set(activities)
    if not chosen or not all(isinstance(a, ProfilerActivity) for a in chosen):
        raise AssertionError(f"No valid profiler activities found: expected ProfilerActivity.CPU, got {chosen or []}")
    known = supported_activities()
    if not chosen & known:
        raise AssertionError(f"No activities specified for the profiler: {_spelled(known)} can be recorded here, got {_spelled(chosen)}")
    if missing := chosen - known:
        warnings.warn(f"{_spelled(missing)} cannot be recorded here, only {_spelled(known)}", UserWarning, stacklevel=3)
    return chosen & known


def _spelled(activities: Iterable[ProfilerActivity]) -> str:
    return ", ".join(sorted(str(a) for a in activities))


class _ExperimentalConfig:
    """Kineto's settings, by name. There is no Kineto: `verbose`, which asks for stacks, is what `with_stack` does here."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    def __bool__(self) -> bool:
        return any(value for name, value in self.settings.items() if name != "verbose")

    def __repr__(self) -> str:
        return f"_ExperimentalConfig({', '.join(f'{name}={value!r}' for name, value in self.settings.items())})"


class profile:
    """Record what runs in a block of the current thread: operators, nodes of backward, and each kernel and library call of compiled
    graphs (docs/profiler.md).

    `record_shapes`: the shapes, dtypes and numbers that they are given. `profile_memory`: what they take and give back. `with_stack`: the
    user's frames (which kernels always have). `with_modules`: the path of the module that they are of. `with_flops`: the operations of
    products, convolutions and attention. `schedule(step)` and `on_trace_ready(profile)` work with `step()`; `acc_events` keeps the events
    of all its cycles. `execution_trace_observer` is started and stopped along.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        for name, value in (("experimental_config", experimental_config), ("post_processing_timeout_s", post_processing_timeout_s)):
            if value:
                warnings.warn(f"profile({name}={value!r}) changes nothing here", UserWarning, stacklevel=2)
        if use_cuda is not None:
            warnings.warn("`use_cuda` is deprecated, use `activities` argument instead", FutureWarning, stacklevel=2)
        if activities is None:
            activities = supported_activities() - (set() if use_cuda in (None, True) else {ProfilerActivity.CUDA})
        self.activities = _check_activities(activities)
        self.record_shapes, self.profile_memory, self.with_stack = record_shapes, profile_memory, with_stack
        self.with_flops, self.with_modules, self.acc_events = with_flops, with_modules, acc_events
        self.schedule, self.on_trace_ready, self.step_num = schedule, on_trace_ready, 0
        self.execution_trace_observer = execution_trace_observer
        self.custom_trace_id_callback = custom_trace_id_callback
        self.recorder = Recorder(record_shapes, with_stack, with_modules, profile_memory, with_flops)
        self.metadata: dict[str, Any] = {}
        self.running = self._saved = False
        self._trace_id = ""
        self._step: record_function | None = None

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        if self.execution_trace_observer is not None:
            self.execution_trace_observer.cleanup()

    @property
    def current_action(self) -> ProfilerAction:
        """What is done in this step."""
        return ProfilerAction.RECORD if self.schedule is None else self.schedule(self.step_num)

    def _wanted(self) -> bool:
        return self.current_action in _RECORDING

    def _resume(self) -> None:
        if not self.running:
            if self._saved:     # until now what the last cycle recorded can be asked for
                self._saved = False
                self.recorder.forget()
            self.running = True
            self._trace_id = self.custom_trace_id_callback() if self.custom_trace_id_callback else uuid.uuid4().hex.upper()
            if self.execution_trace_observer is not None:
                self.execution_trace_observer.start()
            if self.profile_memory:
                self.recorder.memory.start()    # type: ignore[union-attr]
            if ProfilerActivity.CUDA in self.activities:
                cupti.activities().start()
            dispatch.state.watchers = (*dispatch.state.watchers, self.recorder)
        if self.schedule is not None:
            self._step = record_function(f"ProfilerStep#{self.step_num}")
            self._step.__enter__()

    def _end_step(self) -> None:
        if self._step is not None:
            self._step.__exit__()
            self._step = None

    def _pause(self) -> None:
        self._end_step()
        if self.running:
            self.running = False
            dispatch.state.watchers = tuple([watcher for watcher in dispatch.state.watchers if watcher is not self.recorder])
            if ProfilerActivity.CUDA in self.activities:
                cupti.activities().stop()
                self.recorder.gpu += cupti.activities().take()
            if self.profile_memory:
                self.recorder.memory.stop()     # type: ignore[union-attr]
            if self.execution_trace_observer is not None:
                self.execution_trace_observer.stop()

    def _idle(self) -> bool:
        return not self._trace_id and self.schedule is None

    def start(self) -> None:
        """Begin."""
        if self._wanted():
            self._resume()

    def stop(self) -> None:
        """End; hands the trace to `on_trace_ready` when there is one that has not been handed over."""
        if self._idle():
            raise AssertionError("Profiler must be initialized before stopping trace: call start(), or enter it")
        recorded = self.running
        self._pause()
        self._saved = not self.acc_events
        debug.profiled(call[:4] for call in self.recorder.calls)
        if self.on_trace_ready is not None and (recorded or self.schedule is None):
            self.on_trace_ready(self)

    def step(self) -> None:
        """Say that the next step of the program begins."""
        self._end_step()
        finished = self.schedule is not None and self.current_action is ProfilerAction.RECORD_AND_SAVE
        self.step_num += 1
        if finished:
            self._pause()
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)
            self._saved = not self.acc_events
        if self._wanted():
            self._resume()
        else:
            self._pause()

    def events(self) -> EventList:
        """All events, in the order in which they began."""
        return self._events("accessing events")

    def _events(self, what: str) -> EventList:
        if not self._trace_id:
            raise AssertionError(f"Profiler must be initialized before {what}: call start(), or enter it")
        return self.recorder.events

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0,
                     group_by_overload_name: bool = False) -> EventList:
        """The events summed by name, and if told by the shapes of the arguments and by so many of the user's frames."""
        return self._events("getting key averages").key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def add_metadata(self, key: str, value: str) -> None:
        """Write a text into the trace, under `key`."""
        self.metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Write JSON into the trace, under `key`."""
        self.metadata[key] = json.loads(value)

    preset_metadata_json = add_metadata_json

    def get_trace_id(self) -> str | None:
        """Of the last trace; None before there is one."""
        return self._trace_id or None

    def set_custom_trace_id_callback(self, callback: Callable[[], str]) -> None:
        """What names traces from now on."""
        self.custom_trace_id_callback = callback

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[ProfilerActivity]) -> None:
        """Record, or not, from here on, within what the profile records at all."""
        if ProfilerActivity.CPU in set(activities):
            watchers = [watcher for watcher in dispatch.state.watchers if watcher is not self.recorder]
            dispatch.state.watchers = (*watchers, self.recorder) if enable and self.running else tuple(watchers)

    def export_chrome_trace(self, path: str) -> None:
        """Write the events for chrome://tracing and Perfetto."""
        told = {"trace_id": self._trace_id, "record_shapes": int(self.record_shapes), "profile_memory": int(self.profile_memory),
                "with_stack": int(self.with_stack), "with_flops": int(self.with_flops), "with_modules": int(self.with_modules)}
        memory = self.recorder.memory
        write_trace(path, self._events("exporting chrome trace"), memory.changes() if memory is not None else (), told | self.metadata)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write a line for each stack and its microseconds, which flame graphs are drawn of; AssertionError without `with_stack=True`."""
        events = self._events("exporting stacks")
        if not self.with_stack:
            raise AssertionError("export_stacks() requires with_stack=True: profile(with_stack=True)")
        events.export_stacks(path, metric)

    def memory_timeline(self, device: Any = None) -> Timeline:
        """What memory was taken for, over time, on a kind of device: by default GPUs, if they were used, else the CPU. Needs
        `profile_memory=True`."""
        memory = self.recorder.memory
        if memory is None:
            raise ValueError("profile_memory=True required for memory profiling.")
        kind = str(device).partition(":")[0] if device is not None else memory.busiest
        return Timeline(memory.changes(kind), memory.labels, self.events())

    def export_memory_timeline(self, path: str, device: str | None = None) -> None:
        """Write memory over time by category: a picture (`.html`), or `[times, sizes]` (`.json`, `.json.gz`), or every change
        (`.raw.json.gz`). Needs `profile_memory=True`."""
        timeline = self.memory_timeline(device)
        if str(path).endswith(".html"):
            write_page(path, [], timeline)
        else:
            timeline.write(path)


_KinetoProfile = profile


def kineto_available() -> bool:
    """True: traces can be taken; there is no Kineto behind them."""
    return True


def supported_activities() -> set[ProfilerActivity]:
    """What is recorded."""
    return {ProfilerActivity.CPU, ProfilerActivity.CUDA} if cupti.available() else {ProfilerActivity.CPU}


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None, use_gzip: bool = False,
                              use_python_export: bool = False) -> Callable[[profile], None]:
    """An `on_trace_ready` that writes `dir_name/WORKER.N.pt.trace.json` (`.gz`, if compressed) for each trace. Traces are
    written in Python in any case (`use_python_export`)."""
    del use_python_export

    def handler(prof: profile) -> None:
        try:
            os.makedirs(dir_name, exist_ok=True)
        except OSError as error:
            raise RuntimeError(f"Can't create directory: {dir_name}") from error
        ending = ".gz" if use_gzip else ""
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        prof.export_chrome_trace(f"{dir_name}/{worker}.{time.time_ns()}.pt.trace.json{ending}")

    return handler


__all__ = [
    "profile", "schedule", "record_function", "ProfilerActivity", "ProfilerAction", "tensorboard_trace_handler", "Event",
    "EventSum", "EventList", "Recorder", "itt", "kineto_available", "supported_activities", "DeviceType", "ExecutionTraceObserver",
]
