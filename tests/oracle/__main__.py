"""The whole run: every reading of every entry. `./dev test --full [--reading NAME] [--entry NAME] [--samples N] [--jobs J] [--write]`."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
from collections import Counter
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")   # before the libraries are loaded: the processes share the cores

from . import modules, optimizers, reductions, wrong  # noqa: F401 - they enter their readings
from .differs import FILE, listed, write
from .readings import READINGS, entries_of, judged

PATIENCE = 120      # seconds for one reading of one entry; longer is a hang
Pair = tuple[str, str]


class _Hangs(Exception):
    pass


def _alarm(*_: Any) -> None:
    raise _Hangs


def _work(pairs: list[Pair], most: int, answers: Connection) -> None:
    """Judge pairs in a process of its own, which a crash ends."""
    signal.signal(signal.SIGALRM, _alarm)
    every = {name: entries_of(name) for name in READINGS}
    for name, title in pairs:
        signal.alarm(PATIENCE)
        try:
            answer = judged(every[name][title], name, most)
        except _Hangs:
            answer = "hangs", f"for {PATIENCE} s"
        signal.alarm(0)
        answers.send((name, title, *answer))


class _Worker:
    """A process with its share of the pairs; begun anew behind the pair that it crashed at."""

    def __init__(self, pairs: list[Pair], most: int) -> None:
        self.pairs, self.most = pairs, most
        self.start()

    def start(self) -> None:
        self.answers, theirs = multiprocessing.Pipe(duplex=False)
        self.process = multiprocessing.get_context("fork").Process(target=_work, args=(self.pairs, self.most, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def hear(self) -> tuple[str, str, str, str]:
        """The next answer."""
        try:
            answer = self.answers.recv()
        except EOFError:
            answer = (*self.pairs[0], "crashes", "the process ended")
            self.pairs = self.pairs[1:]
            if self.pairs:
                self.start()
            return answer
        self.pairs = self.pairs[1:]
        return answer


def run(pairs: list[Pair], most: int = 0, jobs: int = 2) -> dict[Pair, tuple[str, str]]:
    """(kind, particulars) of every pair of a reading and an entry."""
    found: dict[Pair, tuple[str, str]] = {}
    workers = [_Worker(pairs[i::jobs], most) for i in range(jobs) if pairs[i::jobs]]
    while workers := [w for w in workers if w.pairs]:
        ready = wait([w.answers for w in workers])
        for worker in [w for w in workers if w.answers in ready]:
            name, title, kind, detail = worker.hear()
            found[name, title] = kind, detail
            if kind not in ("agrees", "none"):
                print(f"{name} | {title} | {kind} | {' '.join(detail.split())}", flush=True)
    return found


def table(found: dict[Pair, tuple[str, str]]) -> str:
    """Shares of the entries that torch computes whose every sample agrees."""
    rows = [f"{'reading':24}{'entries':>8}{'agree':>8}{'share':>8}   what differs"]
    for name in READINGS:
        kinds = Counter(kind for (reading, _), (kind, _) in found.items() if reading == name and kind != "none")
        if total := kinds.total():
            agree = kinds.pop("agrees", 0)
            rows.append(f"{name:24}{total:8}{agree:8}{agree / total:8.1%}   " + ", ".join(f"{k} {n}" for k, n in kinds.most_common()))
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev test --full", description=__doc__)
    parser.add_argument("--reading", action="append", choices=list(READINGS), help="only these readings (default: all)")
    parser.add_argument("--entry", action="append", help="only entries of this name, with or without the variant (linalg.norm)")
    parser.add_argument("--samples", type=int, default=0, help="about so many samples of an entry (default: all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    parser.add_argument("--write", action="store_true", help=f"bring {Path(FILE).name} up to date with what was found")
    options = parser.parse_args()
    found = run([(name, title) for name in options.reading or READINGS for title in entries_of(name)
                 if not options.entry or title in options.entry or title.partition(":")[0] in options.entry], options.samples, options.jobs)
    print(table(found))
    gone = [pair for pair, (kind, _) in found.items() if pair in listed() and kind == "agrees"]
    new = [pair for pair, (kind, _) in found.items() if pair not in listed() and kind not in ("agrees", "none")]
    print(f"{len(gone)} listed in differs.txt agree by now, {len(new)} that differ are not listed")
    if options.write:
        write(found)


if __name__ == "__main__":
    main()
