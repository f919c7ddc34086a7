"""torch.autograd.profiler: the older spelling of torch.profiler."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from .._absent import absent
from ..core.dispatch import state
from ..core.watching import USER
from ..cuda import nvtx
from . import DeviceType, ProfilerActivity, itt, kineto_available, record_function
from . import profile as _profile
from .events import EventList, Interval
from .tools import EnforceUnique, FunctionEvent, KinetoStepTracker, MemRecordsAcc


class profile(_profile):
    """`with torch.autograd.profiler.profile(record_shapes=True) as prof:`; `enabled=False` records nothing."""

    def __init__(self, enabled: bool = True, *, use_cuda: bool = False, use_device: str | None = None, record_shapes: bool = False,
                 with_flops: bool = False, profile_memory: bool = False, with_stack: bool = False, with_modules: bool = False,
                 use_kineto: bool = False, use_cpu: bool = True, acc_events: bool = False, **others: Any) -> None:
        super().__init__(record_shapes=record_shapes, with_stack=with_stack, with_flops=with_flops, profile_memory=profile_memory,
                         with_modules=with_modules, acc_events=acc_events, **others)
        if use_cuda:
            warnings.warn("The attribute `use_cuda` will be deprecated soon, please use ``use_device = 'cuda'`` instead.", FutureWarning,
                          stacklevel=2)
        if (use_cuda or use_device == "cuda") and ProfilerActivity.CUDA not in self.activities:
            warnings.warn("CUDA is not available, disabling CUDA profiling", UserWarning, stacklevel=2)
        self.enabled = enabled

    def __enter__(self) -> profile:
        if self._trace_id:
            raise RuntimeError("Profiler context manager is not reentrant: make another one")
        super().__enter__()
        return self

    def _wanted(self) -> bool:
        return self.enabled

    def _idle(self) -> bool:
        return self.enabled and super()._idle()

    @property
    def function_events(self) -> EventList:
        """All events."""
        return self.events()

    def _events(self, what: str) -> EventList:
        return self.recorder.events if not self.enabled else super()._events(what)      # a profile that is off has none

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all of them."""
        return self.events().self_cpu_time_total

    def table(self, *args: Any, **kwargs: Any) -> str:
        """The table of the sums."""
        return self.key_averages().table(*args, **kwargs)

    def total_average(self) -> Any:
        """The sum of all events."""
        return self.events().total_average()

    def __str__(self) -> str:
        return self.table() if not self.enabled or self._trace_id else "<unfinished torch.autograd.profile>"


class _Ranges:
    """In the block each operator, and whatever else a profile would record, is a range in a tool of a maker of hardware."""

    ranges: Any

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled, self.record_shapes = enabled, record_shapes

    def __enter__(self) -> Any:
        if self.enabled:
            state.watchers = (*state.watchers, self)
        return self

    def __exit__(self, *error: object) -> None:
        state.watchers = tuple([watcher for watcher in state.watchers if watcher is not self])

    def begin(self, name: str, args: Sequence[Any] = (), kind: int = 0, sequence: int = -1) -> None:
        """A range begins."""
        told = f", seq = {sequence}" if sequence >= 0 else ""
        shapes = f", sizes = {[list(getattr(a, 'shape', ())) for a in args]}" if self.record_shapes and kind != USER else ""
        self.ranges.range_push(f"{name}{told}{shapes}")

    def end(self, event: None) -> None:
        """It ends."""
        self.ranges.range_pop()

    def ran(self, what: Any, start: int, laps: bytes) -> None:
        """A compiled library ran: that is over, so its kernels are marks."""
        for name, _ in what[0].kernels[what[1]:]:
            self.ranges.mark(name)


class emit_nvtx(_Ranges):
    """Ranges for NVIDIA's tools, through the `nvtx` package (torch.cuda.nvtx)."""

    ranges = nvtx


class emit_itt(_Ranges):
    """Ranges for Intel's VTune, through the `ittapi` package (torch.profiler.itt): RuntimeError without it."""

    ranges = itt

    def __enter__(self) -> Any:
        if self.enabled and not itt.is_available():
            raise RuntimeError("emit_itt needs the package ittapi: pip install ittapi")
        return super().__enter__()


_NO_NVPROF = "nvprof is no part of CUDA any more: write a trace with torch.profiler.profile().export_chrome_trace(path)"
load_nvprof = absent("torch.autograd.profiler.load_nvprof", _NO_NVPROF)
parse_nvprof_trace = absent("torch.autograd.profiler.parse_nvprof_trace", _NO_NVPROF)

__all__ = [
    "DeviceType", "EnforceUnique", "EventList", "FunctionEvent", "Interval", "KinetoStepTracker", "MemRecordsAcc", "ProfilerActivity",
    "emit_itt", "emit_nvtx", "kineto_available", "load_nvprof", "parse_nvprof_trace", "profile", "record_function",
]
