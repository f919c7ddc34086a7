"""torch.autograd.profiler: the older spelling of torch.profiler."""

from __future__ import annotations

from typing import Any

from .._absent import absent
from . import profile as _profile
from . import record_function
from .events import EventList, Interval
from .tools import EnforceUnique, FunctionEvent, KinetoStepTracker, MemRecordsAcc


class profile(_profile):
    """`with torch.autograd.profiler.profile(record_shapes=True) as prof:`; `enabled=False` records nothing."""

    def __init__(self, enabled: bool = True, *, use_cuda: bool = False, use_device: str | None = None, record_shapes: bool = False,
                 with_flops: bool = False, profile_memory: bool = False, with_stack: bool = False, with_modules: bool = False,
                 use_kineto: bool = False, use_cpu: bool = True, acc_events: bool = False, **others: Any) -> None:
        super().__init__(record_shapes=record_shapes, with_stack=with_stack, with_flops=with_flops, profile_memory=profile_memory,
                         with_modules=with_modules, use_cuda=use_cuda or use_device not in (None, "cpu"), acc_events=acc_events, **others)
        self.enabled = enabled

    def _wanted(self) -> bool:
        return self.enabled

    @property
    def function_events(self) -> EventList:
        """All events."""
        return self.events()

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
        return self.table()


class _Ranges:
    """Ranges for the tools of a maker of hardware: none are made, `enabled=True` raises."""

    instead = ""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        if enabled:
            raise NotImplementedError(f"{type(self).__name__} is not implemented (record_shapes={record_shapes}); {self.instead}")

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class emit_nvtx(_Ranges):
    """Ranges for NVIDIA's tools: none are made, `enabled=True` raises."""

    instead = "torch.cuda.Event(enable_timing=True) times a GPU's kernels"


class emit_itt(_Ranges):
    """Ranges for Intel's VTune: none are made, `enabled=True` raises."""

    instead = "torch.profiler.profile() times operators and the kernels of compiled graphs"


_NO_NVPROF = "nvprof is no part of CUDA any more: write a trace with torch.profiler.profile().export_chrome_trace(path)"
load_nvprof = absent("torch.autograd.profiler.load_nvprof", _NO_NVPROF)
parse_nvprof_trace = absent("torch.autograd.profiler.parse_nvprof_trace", _NO_NVPROF)

__all__ = ["EnforceUnique", "EventList", "FunctionEvent", "Interval", "KinetoStepTracker", "MemRecordsAcc", "emit_itt", "emit_nvtx",
           "load_nvprof",
           "parse_nvprof_trace", "profile", "record_function"]
