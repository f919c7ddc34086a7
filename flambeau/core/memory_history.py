"""What memory was taken and given back, and where in the program, in the format that PyTorch's memory viewer reads.

A change is `(address, bytes or 0 where it is given back, time in ns, thread, places)`, and a place `(code, line, module or None)`, as
native logs tell them (csrc/recorder.cpp).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

Change = tuple[int, int, int, int, Sequence[tuple]]


class History:
    """What `_record_memory_history` of a kind of device writes down, and `_snapshot` tells."""

    def __init__(self, make: Callable[[bool, int], Any]) -> None:
        """`make(with_stack, most)` makes a log with `start`, `stop` and `take`, such as _C.MemoryLog."""
        self.make, self.state_only = make, False
        self.log: Any = None
        self.changes: list[Change] = []
        self.most = 0

    def record(self, enabled: str | None = "all", context: str | None = "all", stacks: str = "all", max_entries: int = (1 << 63) - 1,
               clear_history: bool = False) -> None:
        """From now on write down what is taken and given back, with the frames of Python (`context=None`: without); the last `max_entries`
        are kept. `enabled=None`: stop; "state": of memory that is given back nothing is kept. Frames are Python's alone (`stacks`)."""
        for name, value, known in (("enabled", enabled, (None, "state", "all")), ("context", context, (None, "state", "alloc", "all")),
                                   ("stacks", stacks, ("python", "all"))):
            if value not in known:
                raise ValueError(f"expected {name} in {known}, got {value!r}")
        if self.log is not None:
            self.log.stop()
            self.changes += self.log.take()
            self.log = None
        if clear_history or enabled is not None:
            self.changes = []
        self.state_only, self.most = enabled == "state", max_entries
        if enabled is not None:
            self.log = self.make(context is not None, min(max_entries, (1 << 63) - 1))
            self.log.start()

    def snapshot(self) -> dict[str, Any]:
        """{"segments": blocks that are taken, "device_traces": what happened, "allocator_settings"}: what memory_viz shows."""
        if self.log is not None:
            self.changes = (self.changes + self.log.take())[-self.most:]
        frames = {id(places): _frames(places) for _, _, _, _, places in self.changes}
        traces: list[dict[str, Any]] = []
        alive: dict[int, Change] = {}
        for change in self.changes:
            address, size, when, _, places = change
            alive_before = alive.pop(address)[1] if address in alive else 0
            if size:
                alive[address] = change
            elif not alive_before:
                continue
            told = {"addr": address, "size": size or alive_before, "stream": 0, "time_us": when // 1000, "frames": frames[id(places)]}
            traces += [{"action": action, **told} for action in (("alloc",) if size else ("free_requested", "free_completed"))]
        return {"segments": [_segment(address, size, frames[id(places)]) for address, size, _, _, places in alive.values()],
                "device_traces": [[] if self.state_only else traces], "external_annotations": [],
                "allocator_settings": {"expandable_segments": False, "max_split_size": -1, "garbage_collection_threshold": 0.0}}

    def dump(self, filename: str = "dump_snapshot.pickle") -> None:
        """Write the snapshot to a file that https://pytorch.org/memory_viz opens."""
        with open(filename, "wb") as out:
            pickle.dump(self.snapshot(), out)


def _frames(places: Sequence[tuple]) -> list[dict[str, Any]]:
    return [{"filename": code.co_filename, "line": line, "name": code.co_name} for code, line, _ in places]


def _segment(address: int, size: int, frames: list[dict[str, Any]]) -> dict[str, Any]:
    """A block as a segment of its own: the allocator's classes of sizes are nobody's business here."""
    told = {"address": address, "frames": frames}
    sizes = dict.fromkeys(("total_size", "allocated_size", "active_size", "requested_size"), size)
    return {**told, **sizes, "device": 0, "stream": 0, "segment_type": "large" if size >= 1 << 20 else "small", "segment_pool_id": (0, 0),
            "is_expandable": False, "blocks": [{**told, "size": size, "requested_size": size, "state": "active_allocated"}]}
