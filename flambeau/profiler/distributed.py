"""Profiles of several processes side by side: computation, communication, what of it runs meanwhile, and who keeps the others waiting."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .events import Event
from .trace import category_of

Span = tuple[float, float]


@dataclass(frozen=True)
class Rank:
    """Of one process, in microseconds: all of the time; that in which it computed; in which something was being communicated; and both."""

    rank: int
    wall: float
    computation: float
    communication: float
    overlap: float

    @property
    def exposed(self) -> float:
        """Communication that nothing was computed during."""
        return self.communication - self.overlap


def joined(spans: Iterable[Span]) -> list[Span]:
    """Intervals without overlaps, in order."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def _common(a: Sequence[Span], b: Sequence[Span]) -> Iterator[float]:
    """The lengths of what two lists of intervals have in common."""
    i = j = 0
    while i < len(a) and j < len(b):
        yield max(0.0, min(a[i][1], b[j][1]) - max(a[i][0], b[j][0]))
        i, j = (i + 1, j) if a[i][1] < b[j][1] else (i, j + 1)


def rank_of(rank: int, spans: Iterable[tuple[str, str, float, float]]) -> Rank:
    """A process's figures from what ran in it: (category, name, begin, end)."""
    computed, communicated = [], []
    for category, name, begin, end in spans:
        if category == "communication" or name.startswith("nccl"):
            communicated.append((begin, end))
        elif category in ("cpu_op", "kernel", "gpu_memcpy", "gpu_memset"):
            computed.append((begin, end))
    mine, others = joined(computed), joined(communicated)
    everything = [*mine, *others] or [(0.0, 0.0)]
    wall = max(end for _, end in everything) - min(begin for begin, _ in everything)
    return Rank(rank, wall, _length(mine), _length(others), sum(_common(mine, others)))


def _length(spans: Iterable[Span]) -> float:
    return sum(end - begin for begin, end in spans)


def rank_of_events(rank: int, events: Iterable[Event]) -> Rank:
    """The same from a profile's events."""
    return rank_of(rank, ((category_of(e), e.name, e.start / 1e3, e.end / 1e3) for e in events))


def rank_of_trace(path: Any, rank: int | None = None) -> Rank:
    """The same from a file of `export_chrome_trace`, whose name has the rank in it (`...rank3...`) where `rank` is not told."""
    with (gzip.open if str(path).endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
        rows = json.load(file)["traceEvents"]
    if rank is None:
        found = re.search(r"rank[_-]?(\d+)", Path(path).name)
        if found is None:
            raise ValueError(f"no rank in the file's name: {path}; it is expected as in trace.rank3.json")
        rank = int(found[1])
    return rank_of(rank, ((row.get("cat", ""), row["name"], row["ts"], row["ts"] + row["dur"]) for row in rows if row.get("ph") == "X"))


def stragglers(ranks: Sequence[Rank]) -> list[int]:
    """Those who compute more than a tenth longer than the one in the middle, and so are waited for."""
    if len(ranks) < 2:
        return []
    middle = sorted(r.computation for r in ranks)[(len(ranks) - 1) // 2]
    return [r.rank for r in ranks if r.computation > 1.1 * middle]


def table_of(ranks: Sequence[Rank]) -> dict[str, Any] | None:
    """As pages show it."""
    if not ranks:
        return None
    slow = stragglers(ranks)
    columns = [("Process", "n"), ("Wall", "us"), ("Computation", "us"), ("Communication", "us"), ("Overlap", "us"), ("Exposed", "us"),
               ("Exposed share", "share"), ("", "text")]
    rows = [[r.rank, r.wall, r.computation, r.communication, r.overlap, r.exposed, r.exposed / (r.wall or 1.0),
             "the others wait for it" if r.rank in slow else ""] for r in sorted(ranks, key=lambda r: r.rank)]
    return {"columns": columns, "rows": rows}
