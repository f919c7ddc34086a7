"""Memory of GPUs: what tensors use of it, and what CuPy's pool holds for them."""

from __future__ import annotations

import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any

from ..core.memory_history import Change, History
from .allocators import host_memory_stats
from .library import cupy, device_count, index_of

_watches: dict[int, Any] = {}       # device -> the hook that follows its use


def _pool(name: str, device: Any) -> tuple[Any, Any]:
    library = cupy(name)
    return library, library.cuda.Device(index_of(device))


def _bytes(name: str, told: str, device: Any) -> int:
    if not device_count():
        return 0
    library, where = _pool(name, device)
    with where:
        return int(getattr(library.get_default_memory_pool(), told)())


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors occupy on a GPU; 0 where there is none."""
    return _bytes("memory_allocated", "used_bytes", device)


def memory_reserved(device: Any = None) -> int:
    """Bytes that the pool has taken from a GPU; 0 where there is none."""
    return _bytes("memory_reserved", "total_bytes", device)


def empty_cache() -> None:
    """Give unused memory of the pool back to the GPU."""
    if device_count():
        cupy("empty_cache").get_default_memory_pool().free_all_blocks()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of a GPU."""
    library, where = _pool("mem_get_info", device)
    with where:
        return tuple(library.cuda.runtime.memGetInfo())


def _watch(device: Any) -> Any:
    """The record of a GPU's peak, which begins when it is first asked for."""
    index = index_of(device)
    if index not in _watches:
        hooks: Any = cupy("max_memory_allocated").cuda.memory_hook
        used = memory_allocated(index)

        class Peak(hooks.MemoryHook):
            """Follows the bytes in use."""

            name = f"flambeau peak of GPU {index}"
            now = most = used

            def malloc_postprocess(self, **facts: Any) -> None:
                if facts["device_id"] == index:
                    self.now += facts["mem_size"]
                    self.most = max(self.most, self.now)

            def free_postprocess(self, **facts: Any) -> None:
                if facts["device_id"] == index:
                    self.now -= facts["mem_size"]

        _watches[index] = Peak()
        _watches[index].__enter__()
    return _watches[index]


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that tensors occupied since peaks were first asked for or last reset (call
    `reset_peak_memory_stats` before the work to be measured)."""
    return _watch(device).most if device_count() else 0


def reset_peak_memory_stats(device: Any = None) -> None:
    """Begin a new peak."""
    if device_count():
        watch = _watch(device)
        watch.now = watch.most = memory_allocated(device)


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that the pool took: it gives none back by itself."""
    return memory_reserved(device)


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Nothing is accumulated."""


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved
reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def memory_stats(device: Any = None) -> dict[str, int]:
    """Bytes in use and bytes taken, now and at most; empty where there is no GPU."""
    if not device_count():
        return {}
    return OrderedDict({
        "allocated_bytes.all.current": memory_allocated(device), "allocated_bytes.all.peak": max_memory_allocated(device),
        "reserved_bytes.all.current": memory_reserved(device), "reserved_bytes.all.peak": max_memory_reserved(device),
    })


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """The same, a dict within a dict for each dot of a name."""
    return _nested(memory_stats(device))


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """`host_memory_stats`, a dict within a dict for each dot of a name."""
    return _nested(host_memory_stats())


def _nested(stats: dict[str, int]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, count in stats.items():
        *rooms, last = name.split(".")
        at = nested
        for room in rooms:
            at = at.setdefault(room, {})
        at[last] = count
    return nested


def device_memory_used(device: Any = None) -> int:
    """The bytes of a GPU that anybody has taken."""
    free, total = mem_get_info(device)
    return total - free


def get_per_process_memory_fraction(device: Any = None) -> float:
    """The part of a GPU's memory that tensors may take."""
    library, where = _pool("get_per_process_memory_fraction", device)
    with where:
        limit = library.get_default_memory_pool().get_limit()
        return limit / library.cuda.Device().mem_info[1] if limit else 1.0


def get_allocator_backend() -> str:
    """"native": the pool is the library's own."""
    return "native"


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """`memory_stats` as text."""
    cupy("memory_summary")
    return "\n".join(f"{name:<32}{count / 2**20:12.1f} MiB" for name, count in memory_stats(device).items())


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Let tensors take at most this part of a GPU's memory."""
    library, where = _pool("set_per_process_memory_fraction", device)
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    with where:
        library.get_default_memory_pool().set_limit(fraction=fraction)


# -- the history ------------------------------------------------------------------------------------------------------------------


class MemoryLog:
    """As _C.MemoryLog, of the memory that CuPy's pool hands out in this thread."""

    def __init__(self, with_stack: bool = False, most: int = sys.maxsize) -> None:
        changes: deque[Change] = deque(maxlen=min(most, sys.maxsize))
        hooks: Any = cupy("_record_memory_history").cuda.memory_hook

        def enter(address: int, size: int) -> None:
            if len(changes) >= self._most < most:
                return
            caller = sys._getframe(1).f_back    # None where memory goes at the end of the program
            places = tuple(_places(caller)) if with_stack and caller is not None else ()
            changes.append((address, size, time.perf_counter_ns(), threading.get_ident(), places))

        class Hook(hooks.MemoryHook):
            """Writes down what is taken and given back."""

            name = f"flambeau memory history {id(changes)}"    # several may be kept at once

            def malloc_postprocess(self, **facts: Any) -> None:
                enter(facts["mem_ptr"], facts["mem_size"])

            def free_postprocess(self, **facts: Any) -> None:
                enter(facts["mem_ptr"], 0)

        self._changes, self._hook = changes, Hook()
        self._most = most

    def start(self) -> None:
        """From now on."""
        self._hook.__enter__()

    def stop(self) -> None:
        """Until now."""
        self._hook.__exit__(None, None, None)

    def limit(self, most: int) -> None:
        """The first so many are kept, not the last."""
        self._most = most

    def take(self) -> list[Change]:
        """The changes since the last call."""
        changes = list(self._changes)
        self._changes.clear()
        return changes


def _places(frame: Any) -> Iterator[tuple]:
    while frame is not None:
        yield frame.f_code, frame.f_lineno, None
        frame = frame.f_back


_history = History(MemoryLog)
_dump_snapshot = _history.dump


def _record_memory_history(enabled: str | None = "all", context: str | None = "all", stacks: str = "all", max_entries: int = sys.maxsize,
                           device: Any = None, clear_history: bool = False) -> None:
    """From now on write down what this thread takes of a GPU's memory and gives back, with the frames of Python (docs/profiler.md).
    `enabled=None`: stop. `device`: it must be there; one history is kept of all."""
    if device is not None:
        index_of(device)
    _history.record(enabled, context, stacks, max_entries, clear_history)


def _snapshot(device: Any = None) -> dict[str, Any]:
    """What `_record_memory_history` has written down: "segments" and "device_traces", as https://pytorch.org/memory_viz reads them."""
    if device is not None:
        index_of(device)
    return _history.snapshot()


def memory_snapshot() -> list[dict[str, Any]]:
    """The blocks that were taken since `_record_memory_history`, each as a segment."""
    return _history.snapshot()["segments"]
