"""`python -m flambeau profile`: a whole program as a profile, and the page of it."""

from __future__ import annotations

import os
import platform
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..core.settings import told
from ..dynamo.counts import counters
from . import profile
from .advice import Advice, advise
from .distributed import Rank, rank_of_trace
from .page import write_page


def write_profile(taken: profile, path: Any, title: str = "Profile", graph_breaks: Counter[str] | None = None,
                  ranks: Sequence[Rank] = ()) -> list[Advice]:
    """Write `profile.html` of a profile; what it advises. `graph_breaks`: how many there were while it was taken, by kind."""
    events = taken.events()
    advice = advise(events, graph_breaks)
    about = f"Python {platform.python_version()}, {os.cpu_count()} processors, {platform.platform()}."
    write_page(path, events, taken.memory_timeline() if taken.profile_memory else None, advice, title, about, ranks)
    return advice


def run_profiled(run: Callable[[], Any], command: str, output: Path, trace: Path | None = None, most: int = 200_000) -> Any:
    """Call `run` and write the page, also where it ends with an exception; a process of several adds its rank to the names of the files.
    `trace`: also write one for Perfetto. At most so many events are kept."""
    before = counters["graph_break"].copy()
    taken = profile(record_shapes=True, with_stack=True, with_modules=True, with_flops=True, profile_memory=True)
    taken.recorder.limit(most)
    taken.start()
    try:
        return run()
    finally:
        taken.stop()
        output, trace = _of_rank(output), _of_rank(trace) if trace is not None else None
        advice = write_profile(taken, output, command, counters["graph_break"] - before)
        if trace is not None:
            taken.export_chrome_trace(str(trace))
        _tell(output, advice)


def _of_rank(path: Path) -> Path:
    rank = told("RANK")
    return path.with_suffix(f".rank{rank}{path.suffix}") if rank.isdigit() else path


def _tell(output: Path, advice: Sequence[Advice]) -> None:
    print(f"\nprofile: {output}", file=sys.stderr)
    for one in advice:
        print(f"  {one.share:6.1%}  {one.title}: {one.text}" + (f"  [{one.where}]" if one.where else ""), file=sys.stderr)


def compare_ranks(traces: Sequence[str], output: Path) -> list[Rank]:
    """Write a page that shows processes side by side, from their traces."""
    ranks = [rank_of_trace(path) for path in traces]
    write_page(output, [], title="Processes", about=f"{len(ranks)} traces.", ranks=ranks)
    return ranks
