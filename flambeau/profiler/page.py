"""profile.html: a profile as one page that needs nothing else: timeline, kernels, memory, modules, advice."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..core.watching import ENGINE
from .advice import Advice
from .distributed import Rank, table_of
from .events import Event
from .memory import Block, Category, Timeline
from .record import user_frames

LONGEST = 20_000    # events that the timeline shows
_POINTS = 3_000     # of memory over time


def write_page(path: Any, events: Sequence[Event], timeline: Timeline | None = None, advice: Iterable[Advice] = (),
               title: str = "Profile", about: str = "", ranks: Sequence[Rank] = ()) -> None:
    """Write the page. The timeline shows the first events, tables count all."""
    data = json.dumps(_data(list(events), timeline, advice, about, ranks), separators=(",", ":")).replace("</", "<\\/")
    template = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")
    Path(path).write_text(template.replace("{{title}}", html.escape(title)).replace("{{data}}", data), encoding="utf-8")


def _data(events: list[Event], timeline: Timeline | None, advice: Iterable[Advice], about: str, ranks: Sequence[Rank]) -> dict[str, Any]:
    timed = [e for e in events if e.name != "[memory]"]
    changes = [b.start for b in timeline.blocks] if timeline is not None else []
    begin = min((e.start for e in timed), default=min(changes, default=0))
    shown = timed[:LONGEST]
    end = max([e.end for e in shown] or changes or [begin + 1])
    if len(timed) > len(shown):
        about += f" The timeline shows the first {LONGEST:,} of {len(timed):,} events."
    memory = _memory(timeline, begin) if timeline is not None and timeline.blocks else None
    return {"about": about.strip(), "span": (end - begin) / 1e3, "tiles": _tiles(timed, memory), "advice": [a._asdict() for a in advice],
            **_drawn(shown, begin), **_kernels(timed), "memory": memory, "modules": _modules(timed), "ranks": table_of(ranks)}


def _tiles(events: Sequence[Event], memory: dict[str, Any] | None) -> list[tuple[str, Any, str]]:
    if not events:
        return []
    wall = max(e.end for e in events) - min(e.start for e in events)
    top = [e for e in events if e.cpu_parent is None]
    tiles: list[tuple[str, Any, str]] = [("wall time", wall / 1e3, "us"), ("events", len(events), "n"),
                                         ("in operators and kernels", _busy(events) / max(wall, 1), "share")]
    if any(e.device_type for e in events):
        tiles.append(("on the GPU", sum(e.end - e.start for e in events if e.device_type) / max(wall, 1), "share"))
    if flops := sum(e.flops for e in events):
        tiles.append(("FLOP a second", flops / max(wall, 1) * 1e9, "flops"))
    if steps := [e for e in top if e.name.startswith(("ProfilerStep", "Optimizer.step#"))]:
        tiles.append(("steps", len(steps), "n"))
    return [*tiles, ("peak memory", memory["bytes"], "bytes")] if memory else tiles


def _busy(events: Iterable[Event]) -> int:
    """Nanoseconds in which the processor ran operators or kernels."""
    leaves = (e for e in events if not e.cpu_children and not e.is_user_annotation and not e.device_type)
    return sum(e.end - e.start for e in leaves)


class _Numbers(dict):
    """Of texts, as they come."""

    def __missing__(self, key: Any) -> int:
        self[key] = len(self)
        return self[key]


def _drawn(events: Sequence[Event], begin: int) -> dict[str, Any]:
    """The events as columns: begin, duration, name, lane, row in it, module, line, and facts."""
    names, places, lanes = _Numbers(), _Numbers({"": 0}), _Numbers()
    depths: dict[int, int] = {}
    columns: dict[str, list[Any]] = {key: [] for key in "tdnlymfx"}
    rows: dict[int, int] = {}
    for event in events:
        row = rows[id(event)] = 0 if event.cpu_parent is None else rows.get(id(event.cpu_parent), -1) + 1
        lane = lanes[event.lane]
        depths[lane] = max(depths.get(lane, 0), row + 1)
        facts = str(event.input_shapes) if any(event.input_shapes) else ""
        for key, value in zip("tdnlymfx", (round((event.start - begin) / 1e3, 2), round((event.end - event.start) / 1e3, 2),
                                           names[event.name, event.kind], lane, row, places[event.module],
                                           places[event.line], places[facts])):
            columns[key].append(value)
    return {"events": columns, "names": [name for name, _ in names], "kinds": [kind for _, kind in names], "places": list(places),
            "lanes": [{"name": name, "depth": depths[lane]} for name, lane in lanes.items()]}


def _kernels(events: Sequence[Event]) -> dict[str, Any]:
    """What ran, by name and module, as a table."""
    groups: dict[tuple, list[Event]] = {}
    for event in events:
        if event.kind != ENGINE:
            groups.setdefault((event.name, event.module, event.line), []).append(event)
    whole = sum(_own_time(e) for e in events) or 1.0
    facts = [name for name in ("grid", "block", "registers", "shared memory", "occupancy") if any(name in e.facts for e in events)]
    columns = [("Name", "text"), ("Share", "share"), ("Self", "us"), ("Total", "us"), ("Average", "us"), ("Calls", "n"), ("FLOP", "flops"),
               *((name.capitalize(), "text") for name in facts), ("Module", "text"), ("Line", "text")]
    rows = []
    for (name, module, line), found in groups.items():
        own, total = sum(map(_own_time, found)), sum((e.end - e.start) / 1e3 for e in found)
        rows.append([name, own / whole, own, total, total / len(found), len(found), sum(e.flops for e in found),
                     *(str(found[0].facts.get(fact, "")) for fact in facts), module, line])
    return {"columns": columns, "rows": sorted(rows, key=lambda row: -row[1])[:2000]}


def _own_time(event: Event) -> float:
    return (event.end - event.start) / 1e3 if event.device_type else event.self_cpu_time_total


def _modules(events: Iterable[Event]) -> dict[str, Any]:
    """The tree of modules: microseconds of what ran in each and inside of it, forward and backward."""
    root: dict[str, Any] = {"name": "", "kind": "", "forward": 0.0, "backward": 0.0, "inner": {}}
    for event in events:
        if not event.module or event.kind == ENGINE or event.device_type:
            continue
        side = "backward" if event.in_backward else "forward"
        at = root
        at[side] += event.self_cpu_time_total
        for name in event.module.split("."):
            at = at["inner"].setdefault(name, {"name": name, "kind": "", "forward": 0.0, "backward": 0.0, "inner": {}})
            at[side] += event.self_cpu_time_total
    return _listed(root)


def _listed(node: dict[str, Any]) -> dict[str, Any]:
    return {**node, "forward": round(node["forward"], 1), "backward": round(node["backward"], 1),
            "inner": [_listed(inner) for inner in node["inner"].values()]}


def _memory(timeline: Timeline, begin: int) -> dict[str, Any]:
    times, sizes = timeline.totals()
    at, most, held = timeline.peak()
    every = max(1, len(times) // _POINTS)
    kept = [max(range(i, min(i + every, len(times))), key=lambda k: sum(sizes[k])) for i in range(0, len(times), every)]
    owners: dict[tuple, list[Block]] = {}
    for block in held:
        owners.setdefault((block.category.spelled, *_taken_by(block)), []).append(block)
    rows = [[what, sum(b.size for b in blocks), sum(b.size for b in blocks) / most, len(blocks), by, line]
            for (what, by, line), blocks in owners.items()]
    return {"times": [round((times[k] - begin) / 1e3, 2) for k in kept], "sizes": [sizes[k] for k in kept], "most": most, "bytes": most,
            "peak": (at - begin) / 1e3, "categories": [c.spelled for c in Category], "owners": sorted(rows, key=lambda row: -row[1])[:200]}


def _taken_by(block: Block) -> tuple[str, str]:
    if block.event is None:
        return "", next(iter(user_frames(block.places)), "")
    where = f"{block.event.name} in {block.event.module}" if block.event.module else block.event.name
    return where, block.event.line
