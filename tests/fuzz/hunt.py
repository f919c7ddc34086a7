"""Hunting: programs of one seed after another in every mode, what they find made small and written down."""

from __future__ import annotations

import json
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import modes
from .compare import Difference
from .generate import Generator
from .program import Program
from .shrink import shrink
from .table import rows


@dataclass
class Find:
    """A distinct difference: its signature, the smallest program, and how often it was seen."""

    mode: str
    seed: int
    difference: Difference
    program: Program
    count: int = 1

    @property
    def key(self) -> tuple[str, ...]:
        return (self.mode, *self.difference.signature)

    def script(self) -> str:
        head = (
            f"# {self.mode}, seed {self.seed}: {self.difference.op}: {self.difference.kind}\n# "
            + self.difference.detail.replace("\n", "\n# ")
            + "\n"
        )
        return head + modes.MODES[self.mode].script(self.program)


@dataclass
class Hunt:
    """Runs programs of one mode and keeps what it finds."""

    mode: str
    theirs: Any
    small: bool = True
    out: Path | None = None
    programs: int = 0
    finds: dict[tuple[str, ...], Find] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.how = modes.MODES[self.mode]
        self.generator = Generator(self.theirs, rows(self.theirs), self.how.draws)

    def batch(self, seeds: list[int]) -> None:
        """Run the programs of these seeds."""
        drawn = [(seed, self.generator.program(seed)) for seed in seeds]
        self.programs += len(drawn)
        for (seed, program), found in zip(drawn, self.how.run([p for _, p in drawn], self.theirs)):
            if found is not None:
                self.add(seed, program, found)

    def add(self, seed: int, program: Program, found: Difference) -> None:
        key = (self.mode, *found.signature)
        if key in self.finds:
            self.finds[key].count += 1
            return
        if self.small:

            def fails(candidate: Program) -> bool:
                again = self.how.run([candidate], self.theirs)[0]
                return again is not None and again.signature == found.signature

            program = shrink(program, fails, self.theirs)
            found = self.how.run([program], self.theirs)[0] or found
        find = self.finds[key] = Find(self.mode, seed, found, program)
        if self.out is not None:
            self.out.mkdir(parents=True, exist_ok=True)
            name = "-".join((self.mode, *found.signature))
            name = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)[:120]
            (self.out / f"{name}.py").write_text(find.script())


def seeds(seed: int, mode: str, worker: int, jobs: int) -> Any:
    """The seeds of one worker: those of different --seed and modes are far apart."""
    start = (seed * 8 + list(modes.MODES).index(mode)) * 10_000_000
    number = start + worker
    while True:
        yield number
        number += jobs


def hunt(
    mode: str,
    theirs: Any,
    seed: int,
    *,
    seconds: float = 1e9,
    programs: int = 10**9,
    worker: int = 0,
    jobs: int = 1,
    out: Path | None = None,
    small: bool = True,
    report: Any = None,
) -> Hunt:
    """Run programs of a mode for so many seconds or programs."""
    running = Hunt(mode, theirs, small=small, out=out)
    numbers = seeds(seed, mode, worker, jobs)
    end = time.monotonic() + seconds
    while time.monotonic() < end and running.programs < programs:
        running.batch([next(numbers) for _ in range(min(running.how.together, programs - running.programs))])
        if report is not None:
            report(running)
    return running


def summary(hunts: list[Hunt]) -> str:
    """What was run and what was found."""
    lines = []
    for h in hunts:
        lines.append(
            f"{h.mode}: {h.programs} programs, {len(h.finds)} distinct differences in {sum(f.count for f in h.finds.values())} programs"
        )
        counted = Counter({f.key: f.count for f in h.finds.values()})
        for key, count in counted.most_common():
            find = h.finds[key]
            lines.append(
                f"  {count:5d}  {find.difference.op}: {find.difference.kind}  (seed {find.seed})  {find.difference.detail[:150]}"
            )
    return "\n".join(lines)


__all__ = ["Find", "Hunt", "hunt", "json", "summary", "traceback"]
