"""What a GPU ran, read from buffers as CUPTI fills them; the library is played by one that hands out what was written here."""

from __future__ import annotations

import ctypes
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flambeau.profiler import Event, cupti
from flambeau.profiler.cupti import LAYOUTS, Activities, Limits, link
from flambeau.profiler.events import EventList
from flambeau.profiler.trace import write_trace

NAMES = [ctypes.create_string_buffer(name) for name in (b"_Z6squarePfi", b"triton_mm_kernel")]
# What NVIDIA's header says of where the fields lie, and how long records are (version 13.5; later ones are longer).
OFFSETS = {cupti.CONCURRENT_KERNEL: {"registersPerThread": 6, "start": 16, "end": 24, "deviceId": 40, "streamId": 48, "grid": 52,
                                     "block": 64, "staticSharedMemory": 76, "dynamicSharedMemory": 80, "correlationId": 92, "name": 104},
           cupti.MEMCPY: {"copyKind": 4, "bytes": 8, "start": 16, "end": 24, "deviceId": 32, "streamId": 40, "correlationId": 44},
           cupti.MEMSET: {"value": 4, "bytes": 8, "start": 16, "end": 24, "streamId": 40, "correlationId": 44},
           cupti.DRIVER: {"cbid": 4, "start": 8, "end": 16, "threadId": 28, "correlationId": 32}}
SIZES = {cupti.CONCURRENT_KERNEL: 248, cupti.MEMCPY: 112, cupti.MEMSET: 104, cupti.DRIVER: 40, cupti.RUNTIME: 40, 17: 64}
FORMATS = {"registersPerThread": "H", "start": "Q", "end": "Q", "bytes": "Q", "name": "Q", "copyKind": "B", "grid": "3i", "block": "3i"}


def record(kind: int, **fields: Any) -> bytes:
    made = bytearray(SIZES[kind])
    struct.pack_into("<I", made, 0, kind)
    for name, value in fields.items():
        values = value if isinstance(value, tuple) else (value,)
        struct.pack_into("<" + FORMATS.get(name, "I"), made, OFFSETS[kind if kind != cupti.RUNTIME else cupti.DRIVER][name], *values)
    return bytes(made)


BUFFER = b"".join([
    record(cupti.RUNTIME, start=1_000, end=1_400, correlationId=1),
    record(cupti.DRIVER, start=1_100, end=1_300, correlationId=1),
    record(17),     # of a kind that nobody asked for
    record(cupti.CONCURRENT_KERNEL, registersPerThread=32, start=2_000, end=5_000, streamId=7, grid=(4, 2, 1), block=(256, 1, 1),
           staticSharedMemory=1024, dynamicSharedMemory=0, correlationId=1, name=ctypes.addressof(NAMES[0])),
    record(cupti.DRIVER, start=6_100, end=6_300, correlationId=2),
    record(cupti.CONCURRENT_KERNEL, registersPerThread=255, start=6_500, end=7_000, streamId=7, grid=(1, 1, 1), block=(128, 1, 1),
           correlationId=2, name=ctypes.addressof(NAMES[1])),
    record(cupti.MEMCPY, copyKind=1, bytes=4096, start=500, end=900, streamId=9, correlationId=3),
    record(cupti.MEMSET, bytes=64, start=8_000, end=8_100, streamId=9)])


class Library:
    """Plays CUPTI: on a flush it asks for a buffer, writes the records and hands it back."""

    def __init__(self) -> None:
        self.enabled: list[int] = []

    def cuptiActivityRegisterCallbacks(self, request: Any, complete: Any) -> int:
        self.request, self.complete = request, complete
        return 0

    def cuptiActivityEnable(self, kind: int) -> int:
        self.enabled.append(kind)
        return 0

    def cuptiActivityDisable(self, kind: int) -> int:
        self.enabled.remove(kind)
        return 0

    def cuptiGetTimestamp(self, where: Any) -> int:
        where._obj.value = 0
        return 0

    def cuptiActivityFlushAll(self, flag: int) -> int:
        at, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
        self.request(ctypes.pointer(at), ctypes.pointer(size), ctypes.pointer(most))
        assert at.value is not None and at.value % 8 == 0 and size.value >= len(BUFFER)
        ctypes.memmove(at.value, BUFFER, len(BUFFER))
        self.complete(None, 0, at.value, size.value, len(BUFFER))
        return 0

    def cuptiActivityGetNextRecord(self, buffer: Any, valid: Any, at: Any) -> int:
        now = at._obj
        place = buffer.value if not now.value else now.value + SIZES[ctypes.c_uint32.from_address(now.value).value]
        if place >= buffer.value + valid.value:
            return 12
        now.value = place
        return 0


class Synchronized:
    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *args: Any) -> Any:
        return self


@pytest.fixture
def activities(monkeypatch: pytest.MonkeyPatch) -> Iterator[Activities]:
    library = Library()
    monkeypatch.setattr(cupti, "_library", lambda: library)
    monkeypatch.setattr(cupti, "cupy", lambda name: Synchronized())
    monkeypatch.setattr(cupti, "limits", Limits)
    yield Activities()
    assert not library.enabled


def test_records_lie_where_the_documentation_says() -> None:
    for kind, fields in OFFSETS.items():
        assert {name: getattr(LAYOUTS[kind], name).offset for name in fields} == fields
        assert ctypes.sizeof(LAYOUTS[kind]) <= SIZES[kind]


def test_buffers_become_events(activities: Activities) -> None:
    activities.start()
    assert set(cupti.ENABLED) <= set(cupti._library().enabled)
    activities.stop()
    activities.offset = 10_000
    events = activities.take()
    assert [(e.name, e.start, e.end, e.thread) for e in events] == [
        ("Memcpy HtoD", 10_500, 10_900, 9), ("square(float*, int)", 12_000, 15_000, 7), ("triton_mm_kernel", 16_500, 17_000, 7),
        ("Memset (Device)", 18_000, 18_100, 9)]
    kernel = events[1]
    assert {name: kernel.facts[name] for name in ("grid", "block", "registers", "shared memory", "occupancy", "stream")} == {
        "grid": [4, 2, 1], "block": [256, 1, 1], "registers": 32, "shared memory": 1024, "occupancy": "100%", "stream": 7}
    assert kernel.launched == 11_000 and kernel.device_time_total == 3 and kernel.cpu_time_total == 0 and kernel.device_type == 1
    assert events[2].facts["occupancy"] == "12%" and events[0].facts["bytes"] == 4096
    assert not activities.take() and not activities.buffers


@pytest.mark.parametrize("threads, registers, shared, share", [
    (256, 32, 0, 1.0), (1024, 64, 0, 0.5), (128, 255, 0, 0.125), (32, 16, 0, 0.5), (256, 32, 100 << 10, 0.25), (1024, 32, 0, 1.0)])
def test_occupancy(threads: int, registers: int, shared: int, share: float) -> None:
    assert Limits().occupancy(threads, registers, shared) == share


def test_kernels_belong_to_what_launched_them(activities: Activities, tmp_path: Path) -> None:
    activities.start()
    activities.stop()
    activities.offset = 0
    outer, inner = Event("part", 900, end=7_900, kind=7), Event("aten::square", 950, end=1_500, module="layers.0")
    outer.append_cpu_child(inner)
    inner.set_cpu_parent(outer)
    found = activities.take()
    link([outer, inner], found)
    assert (inner.device_time_total, inner.self_device_time_total) == (3, 3)
    assert (outer.device_time_total, outer.self_device_time_total) == (3.5, 0.5)
    assert inner.kernels == [found[1]] and found[1].module == "layers.0"
    events = EventList([outer, inner, *found])
    table = events.key_averages().table(sort_by="self_device_time_total")
    assert "Self CUDA" in table and "Self CUDA time total" in table
    write_trace(tmp_path / "trace.json", events)
    rows = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    kernel = next(row for row in rows if row.get("cat") == "kernel")
    assert kernel["dur"] == 3 and kernel["args"]["grid"] == [4, 2, 1] and kernel["tid"] == 7
    arrows = [row for row in rows if row.get("cat") == "ac2g"]
    assert {(row["ph"], row["id"]) for row in arrows} == {("s", 1), ("f", 1), ("s", 2), ("f", 2)}
    assert any(row["ph"] == "M" and row["args"].get("name") == "GPU stream 7" for row in rows)


def test_errors_are_told(activities: Activities, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kind: int) -> int:
        return 35

    library = cupti._library()
    monkeypatch.setattr(library, "cuptiActivityEnable", refuse)
    monkeypatch.setattr(library, "cuptiGetResultString", lambda status, why: 0, raising=False)
    with pytest.raises(RuntimeError, match=r"cuptiActivityEnable failed.*35"):
        activities.start()
