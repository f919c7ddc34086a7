"""What a GPU ran, through NVIDIA's CUPTI: kernels with their grids, registers, shared memory and occupancy, copies, and who launched them.

CUPTI fills buffers with records of activities; each begins with its kind and is read by the layout that NVIDIA's documentation gives it
(CUpti_ActivityKernel and so on: packed structures, which later versions only add fields to).
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from ctypes import c_char_p, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, NamedTuple

from ..cuda.library import cupy, device_count
from .events import Event

MEMCPY, MEMSET, KERNEL, DRIVER, RUNTIME, CONCURRENT_KERNEL = 1, 2, 3, 4, 5, 10
ENABLED = (MEMCPY, MEMSET, DRIVER, RUNTIME, CONCURRENT_KERNEL)
_BUFFER = 1 << 20
_TIMES = [("start", c_uint64), ("end", c_uint64)]
_PLACE = [("deviceId", c_uint32), ("contextId", c_uint32), ("streamId", c_uint32)]
_FORCED = 1         # of a flush: also what is not full yet
_LAST = 12          # CUPTI_ERROR_MAX_LIMIT_REACHED: no record follows


class _Record(ctypes.Structure):
    _pack_, _layout_ = 1, "ms"
    _fields_ = [("kind", c_uint32)]


class _Kernel(_Record):
    _pack_, _layout_ = 1, "ms"
    _fields_ = [
        ("cacheConfig", c_uint8), ("sharedMemoryConfig", c_uint8), ("registersPerThread", c_uint16), ("partitioned", c_uint32 * 2),
        *_TIMES, ("completed", c_uint64), *_PLACE,
        ("grid", c_int32 * 3), ("block", c_int32 * 3), ("staticSharedMemory", c_int32), ("dynamicSharedMemory", c_int32),
        ("localMemoryPerThread", c_uint32), ("localMemoryTotal", c_uint32), ("correlationId", c_uint32), ("gridId", c_int64),
        ("name", c_void_p), ("reserved0", c_void_p)]


class _Memcpy(_Record):
    _pack_, _layout_ = 1, "ms"
    _fields_ = [("copyKind", c_uint8), ("srcKind", c_uint8), ("dstKind", c_uint8), ("flags", c_uint8), ("bytes", c_uint64),
                *_TIMES, *_PLACE, ("correlationId", c_uint32)]


class _Memset(_Record):
    _pack_, _layout_ = 1, "ms"
    _fields_ = [("value", c_uint32), ("bytes", c_uint64), *_TIMES, *_PLACE, ("correlationId", c_uint32)]


class _Call(_Record):
    _pack_, _layout_ = 1, "ms"
    _fields_ = [("cbid", c_uint32), *_TIMES, *((name, c_uint32) for name in ("processId", "threadId", "correlationId", "returnValue"))]


LAYOUTS: Mapping[int, type[_Record]] = {MEMCPY: _Memcpy, MEMSET: _Memset, KERNEL: _Kernel, CONCURRENT_KERNEL: _Kernel, DRIVER: _Call,
                                        RUNTIME: _Call}
_COPIES = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP"}


class Limits(NamedTuple):
    """What a multiprocessor has for the blocks that it runs at a time."""

    threads: int = 2048
    blocks: int = 32
    registers: int = 65536
    shared_memory: int = 228 << 10
    reserved: int = 1 << 10     # shared memory that each block costs beside its own

    def occupancy(self, threads: int, registers: int, shared_memory: int) -> float:
        """The estimated share of its warps that can be there at a time; registers come in units of 256 a warp, warps of them in fours."""
        warps, all_warps = max(1, math.ceil(threads / 32)), self.threads // 32
        a_warp = 256 * math.ceil(registers * 32 / 256)
        by_registers = self.registers // a_warp // 4 * 4 // warps if a_warp else self.blocks
        by_memory = self.shared_memory // (shared_memory + self.reserved)
        return min(1.0, warps * min(self.blocks, all_warps // warps, by_registers, by_memory) / all_warps)


class GpuEvent(Event):
    """What a GPU ran: a kernel, a copy or a fill. `thread` is its stream; `launched_by`, the event of the thread that launched it."""

    device_type = 1
    cpu_time_total = self_cpu_time_total = 0.0
    correlation, launched, launched_by = 0, 0, None

    @property
    def device_time_total(self) -> float:       # type: ignore[override]
        """Microseconds."""
        return (self.end - self.start) / 1e3

    self_device_time_total = device_time_total


def parse(record: _Record, offset: int, limits: Limits, text: Callable[[int], bytes] = ctypes.string_at) -> GpuEvent:
    """The event of a kernel's, copy's or fill's record; `offset`: from the GPU's clock to ours, in ns."""
    told: Any = record
    if told.kind in (KERNEL, CONCURRENT_KERNEL):
        shared, threads = told.staticSharedMemory + told.dynamicSharedMemory, math.prod(told.block)
        name, category = demangled(text(told.name)), "kernel"
        facts: dict[str, Any] = {
            "grid": list(told.grid), "block": list(told.block), "registers": told.registersPerThread, "shared memory": shared,
            "occupancy": f"{limits.occupancy(threads, told.registersPerThread, shared):.0%}"}
    elif told.kind == MEMCPY:
        name, category, facts = f"Memcpy {_COPIES.get(told.copyKind, told.copyKind)}", "gpu_memcpy", {"bytes": told.bytes}
    else:
        name, category, facts = "Memset (Device)", "gpu_memset", {"bytes": told.bytes}
    event = GpuEvent(name, told.start + offset, end=told.end + offset)
    event.category, event.thread, event.correlation = category, told.streamId, told.correlationId
    event.facts = {**facts, "device": told.deviceId, "stream": told.streamId, "correlation": told.correlationId}
    return event


def events_of(records: Iterable[_Record], offset: int, limits: Limits, text: Callable[[int], bytes] = ctypes.string_at) -> list[GpuEvent]:
    """The events of some records, each with the time at which it was launched, where the call is among them."""
    calls: dict[int, Any] = {}
    events = []
    for record in records:
        if isinstance(record, _Call):
            calls.setdefault(record.correlationId, record)      # the runtime's call is around the driver's
        else:
            events.append(parse(record, offset, limits, text))
    for event in events:
        if event.correlation in calls:
            event.launched = calls[event.correlation].start + offset
    return sorted(events, key=lambda e: e.start)


@functools.cache
def _demangler() -> Callable[[bytes], bytes | None]:
    try:
        function = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except OSError:
        return lambda name: None
    function.restype = c_char_p
    return lambda name: function(name, None, None, ctypes.byref(ctypes.c_int()))


def demangled(name: bytes) -> str:
    """A kernel's name as C++ spells it."""
    return ((_demangler()(name) if name.startswith(b"_Z") else None) or name).decode(errors="replace")


# -- the library ---------------------------------------------------------------------------------------------------------------


def _places() -> Iterator[str]:
    """Where it may be: NVIDIA's wheels, and where the system looks."""
    found = importlib.util.find_spec("nvidia")
    for folder in (found.submodule_search_locations or () if found is not None else ()):
        yield from map(str, sorted(Path(folder).glob("*/lib/libcupti.so.*"), reverse=True))
    yield from ("libcupti.so.13", "libcupti.so.12", "libcupti.so")


@functools.cache
def _library() -> Any:
    for place in _places():
        try:
            return ctypes.CDLL(place)
        except OSError:
            continue
    return None


def available() -> bool:
    """Whether there is a GPU, and CUPTI to ask (pip install nvidia-cuda-cupti)."""
    return device_count() > 0 and _library() is not None


_REQUEST = ctypes.CFUNCTYPE(None, ctypes.POINTER(c_void_p), ctypes.POINTER(c_size_t), ctypes.POINTER(c_size_t))
_COMPLETE = ctypes.CFUNCTYPE(None, c_void_p, c_uint32, c_void_p, c_size_t, c_size_t)


class Activities:
    """The process's one reader of CUPTI. Between `start` and `stop` records are kept; `take` gives the events."""

    def __init__(self) -> None:
        self.buffers: dict[int, Any] = {}
        self.records: list[_Record] = []
        self.names: dict[int, bytes] = {}
        self.offset, self.users = 0, 0
        self._request, self._complete = _REQUEST(self._requested), _COMPLETE(self._completed)
        self._do("cuptiActivityRegisterCallbacks", self._request, self._complete)

    def _do(self, name: str, *args: Any) -> None:
        status = getattr(_library(), name)(*args)
        if status:
            why = c_char_p()
            _library().cuptiGetResultString(status, ctypes.byref(why))
            raise RuntimeError(f"{name} failed: {(why.value or b'').decode()} ({status}); GPU activities need the right to profile, and no "
                               "other profiler in this process")

    def _requested(self, buffer: Any, size: Any, most: Any) -> None:
        made = (c_uint64 * (_BUFFER // 8))()
        self.buffers[ctypes.addressof(made)] = made
        buffer[0], size[0], most[0] = ctypes.addressof(made), _BUFFER, 0

    def _completed(self, context: Any, stream: int, buffer: int, size: int, valid: int) -> None:
        self.records += self.read(buffer, valid)
        self.buffers.pop(buffer, None)

    def read(self, buffer: int, valid: int) -> Iterator[_Record]:
        """The records of a buffer that we know, copied; the texts that they point to are kept."""
        at = c_void_p()
        advance = _library().cuptiActivityGetNextRecord
        while not (status := advance(c_void_p(buffer), c_size_t(valid), ctypes.byref(at))):
            layout = LAYOUTS.get(c_uint32.from_address(at.value or 0).value)
            if layout is None:
                continue
            record = layout.from_buffer_copy(ctypes.string_at(at.value or 0, ctypes.sizeof(layout)))
            if isinstance(record, _Kernel):
                self.names.setdefault(record.name, ctypes.string_at(record.name))
            yield record
        if status != _LAST:
            print(f"cuptiActivityGetNextRecord: status {status}; records of the GPU are missing", file=sys.stderr)

    def start(self) -> None:
        """From now on."""
        if not self.users:
            for kind in ENABLED:
                self._do("cuptiActivityEnable", kind)
        self.users += 1
        self.offset = self._clock()

    def stop(self) -> None:
        """Until now; waits for the GPU."""
        cupy("profile").cuda.Device().synchronize()
        self._do("cuptiActivityFlushAll", _FORCED)
        self.users -= 1
        if self.users == 0:
            for kind in ENABLED:
                self._do("cuptiActivityDisable", kind)

    def _clock(self) -> int:
        """From CUPTI's clock to ours: the closest of a few looks at both."""
        def look() -> tuple[int, int]:
            theirs, before = c_uint64(), time.perf_counter_ns()
            self._do("cuptiGetTimestamp", ctypes.byref(theirs))
            after = time.perf_counter_ns()
            return after - before, (before + after) // 2 - theirs.value
        return min(look() for _ in range(10))[1]

    def take(self) -> list[GpuEvent]:
        """The events since the last call."""
        records, self.records = self.records, []
        return events_of(records, self.offset, limits(), lambda at: self.names[at])


@functools.cache
def activities() -> Activities:
    """The process's own."""
    return Activities()


@functools.cache
def limits() -> Limits:
    """Of the GPU in use."""
    told = cupy("profile").cuda.Device().attributes
    names = ("MaxThreadsPerMultiProcessor", "MaxBlocksPerMultiprocessor", "MaxRegistersPerMultiprocessor",
             "MaxSharedMemoryPerMultiprocessor", "ReservedSharedMemoryPerBlock")
    return Limits(*(told.get(name, default) for name, default in zip(names, Limits())))


def link(events: list[Event], found: Iterable[GpuEvent]) -> None:
    """Say which event of a thread launched each, and what it cost on the GPU; `events` in the order in which they began."""
    starts = [event.start for event in events]
    for kernel in found:
        at: Any = Event.under_way(events, starts, kernel.launched) if kernel.launched else None
        kernel.launched_by = at
        if at is None:
            continue
        kernel.module, kernel.stack, kernel.made_by = at.module, at.stack, at.made_by
        at.kernels.append(kernel)
        at.self_device_time_total += kernel.device_time_total
        while at is not None:
            at.device_time_total += kernel.device_time_total
            at = at.cpu_parent
