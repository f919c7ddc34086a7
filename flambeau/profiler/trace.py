"""Profiles as traces for chrome://tracing and Perfetto: threads, streams, arrows from forward to backward, and counters."""

from __future__ import annotations

import gzip
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core.watching import BACKWARD, ENGINE, USER

Event = Any     # events.py, which is written in terms of this


def forward_of(events: Iterable[Event]) -> dict[int, Event]:
    """By the number of a node of autograd: the innermost event that made it."""
    made: dict[int, Event] = {}
    for event in events:
        if event.kind not in (BACKWARD, ENGINE):
            made.update(dict.fromkeys(range(event.made[0] + 1, event.made[1] + 1), event))
    return made


def write_trace(path: Any, events: Sequence[Event], changes: Iterable[tuple] = (), metadata: Mapping[str, Any] | None = None) -> None:
    """Write events, and changes of memory (`Recorder.memory_changes`), as a file; compressed if its name ends so."""
    opened = gzip.open if str(path).endswith(".gz") else open
    with opened(path, "wt", encoding="utf-8") as out:
        json.dump({"schemaVersion": 1, "deviceProperties": [], "host_name": platform.node(), "displayTimeUnit": "ms", "baseTimeNanoseconds": 0,
                   **(metadata or {}),
                   "traceEvents": [*_named(events), *map(_row, events), *_arrows(events), *_memory(changes)], "traceName": str(path)},
                  out, default=str)


def _named(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Names of the process and its threads and streams."""
    pid = os.getpid()
    rows: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": "python"}},
                                  {"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": "CPU"}}]
    lanes = {_place(event): event.lane for event in events}
    return [*rows, *({"ph": "M", "name": "thread_name", **place, "args": {"name": lane}} for place, lane in lanes.items())]


class _Place(dict):
    def __hash__(self) -> int:      # type: ignore[override]
        return hash((self["pid"], self["tid"]))


def _place(event: Event) -> _Place:
    return _Place(pid=event.facts.get("device", 0) if event.device_type else os.getpid(), tid=event.thread)


def category_of(event: Event) -> str:
    """What a trace calls its kind."""
    return event.category or ("user_annotation" if event.kind == USER else "cpu_op")


def _row(event: Event) -> dict[str, Any]:
    facts = {"External id": event.id, "Sequence number": event.sequence_nr if event.sequence_nr >= 0 else None,
             "Fwd thread id": event.fwd_thread or None, "Input Dims": event.input_shapes, "Input type": event.input_dtypes,
             "Concrete Inputs": event.concrete_inputs, "Call stack": event.stack, "Module": event.module, "Flops": event.flops,
             **event.facts}
    return {"ph": "X", "cat": category_of(event), "name": event.trace_name or event.name, **_place(event),
            "ts": event.start / 1e3, "dur": (event.end - event.start) / 1e3,
            "args": {name: fact for name, fact in facts.items() if fact not in (None, "", []) and not (name == "Flops" and not fact)}}


def _arrows(events: Sequence[Event]) -> list[dict[str, Any]]:
    """From what made a node of autograd to the node's run, and from what launched a kernel to the kernel."""
    made, rows = forward_of(events), []
    for event in events:
        source = made.get(event.sequence_nr) if event.kind == BACKWARD else None
        if source is not None:
            arrow = {"cat": "fwdbwd", "name": "fwdbwd", "id": event.sequence_nr}
            rows += [{"ph": "s", **arrow, **_place(source), "ts": source.start / 1e3},
                     {"ph": "f", "bp": "e", **arrow, **_place(event), "ts": event.start / 1e3}]
        if event.device_type and event.launched_by is not None:
            arrow = {"cat": "ac2g", "name": "ac2g", "id": event.correlation}
            rows += [{"ph": "s", **arrow, **_place(event.launched_by), "ts": event.launched / 1e3},
                     {"ph": "f", "bp": "e", **arrow, **_place(event), "ts": event.start / 1e3}]
    return rows


def _memory(changes: Iterable[tuple]) -> list[dict[str, Any]]:
    """An instant for each change of memory, and a counter."""
    sizes: dict[int, int] = {}
    total, rows, pid = 0, [], os.getpid()
    for address, size, time, thread, _ in changes:
        change = size or -sizes.pop(address, 0)
        if size:
            sizes[address] = size
        total += change
        if change:
            rows += [{"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": pid, "tid": thread, "ts": time / 1e3,
                      "args": {"Total Allocated": total, "Bytes": change, "Addr": address, "Device Id": -1, "Device Type": 0}},
                     {"ph": "C", "name": "CPU memory", "pid": pid, "ts": time / 1e3, "args": {"bytes": total}}]
    return rows
