"""Hunting: programs of one seed after another in every mode, what they find made small and written down."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import execute, modes
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
    out: Path | None = None
    small: bool = True
    note: Callable[[str, list[int]], None] = lambda doing, seeds: None
    programs: int = 0
    at: list[int] = field(default_factory=list)
    finds: dict[tuple[str, ...], Find] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.how = modes.MODES[self.mode]
        self.generator = Generator(self.theirs, rows(self.theirs), self.how.draws)

    def batch(self, seeds: list[int]) -> None:
        """Run the programs of these seeds."""
        self.note("drawing", seeds)
        drawn = [(seed, self.generator.program(seed)) for seed in seeds]
        self.at = seeds
        self.programs += len(drawn)
        differences = self.run([p for _, p in drawn])
        for (seed, program), found in zip(drawn, differences):
            if found is not None:
                self.add(seed, program, found)

    def run(self, programs: list[Program]) -> list[Difference | None]:
        """The difference of each program; what no mode foresaw is one too."""
        self.note("running", self.at)
        try:
            return self.how.run(programs, self.theirs)
        except Exception as error:
            if len(programs) > 1:
                return [self.run([program])[0] for program in programs]
            return [Difference(0, "fuzzer", type(error).__name__, traceback.format_exc()[-900:])]

    def add(self, seed: int, program: Program, found: Difference) -> None:
        """Count a difference, or make its program small and write it down if it is new."""
        key = (self.mode, *found.signature)
        if key in self.finds:
            self.finds[key].count += 1
            return
        if self.mode != "eager" and self.eagerly_different(program):
            return  # the eager mode's to find
        if self.small:
            program, found = self.smallest(program, found)
        key = (self.mode, found.op or " ".join(dict.fromkeys(s.name for s in program.steps)), found.kind)
        if key in self.finds:
            self.finds[key].count += 1
            return
        find = self.finds[key] = Find(self.mode, seed, found, program)
        if self.out is not None:
            self.out.mkdir(parents=True, exist_ok=True)
            name = "".join(c if c.isalnum() or c in "._-" else "_" for c in "-".join(key))[:120]
            (self.out / f"{name}.py").write_text(find.script())

    def eagerly_different(self, program: Program) -> bool:
        try:
            return execute.eager(program.without_gradients(), self.theirs) is not None
        except Exception:
            return True

    def smallest(self, program: Program, found: Difference) -> tuple[Program, Difference]:
        """The program made small, and what it comes to."""

        def fails(candidate: Program) -> bool:
            again = self.run([candidate])[0]
            return (
                again is not None
                and again.kind == found.kind
                and (not found.op or again.op == found.op or len(candidate.steps) == 1)
            )

        program = shrink(program, fails, self.theirs, self.how.tries)
        return program, self.run([program])[0] or found


def seeds(seed: int, mode: str, worker: int = 0, jobs: int = 1, done: int = 0) -> Iterator[int]:
    """The seeds of one worker, after so many of its programs: those of other --seed, modes and workers are others."""
    start = (seed * 8 + list(modes.MODES).index(mode)) * 10_000_000
    return itertools.count(start + worker + done * jobs, jobs)


def summary(mode: str, programs: int, finds: dict[tuple[str, ...], Find]) -> str:
    """What was run in a mode and what was found."""
    lines = [f"{mode}: {programs} programs, {len(finds)} distinct differences in {sum(f.count for f in finds.values())} programs"]
    for key, find in sorted(finds.items(), key=lambda pair: -pair[1].count):
        said = find.difference
        lines.append(f"  {find.count:5d}  {key[1]}: {said.kind}  (seed {find.seed})  {said.detail[:150]}")
    return "\n".join(lines)
