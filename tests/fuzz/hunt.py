"""Hunting: programs of one seed after another in every mode, what they find made small and written down."""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass, field, replace
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
        try:
            differences = self.how.run([p for _, p in drawn], self.theirs)
        except Exception as error:  # what no mode foresaw: a find too
            differences = [Difference(0, "fuzzer", type(error).__name__, traceback.format_exc()[-900:])] + [None] * (len(drawn) - 1)
        for (seed, program), found in zip(drawn, differences):
            if found is not None:
                self.add(seed, program, found)

    def add(self, seed: int, program: Program, found: Difference) -> None:
        """Count a difference, or make its program small and write it down if it is new."""
        key = (self.mode, *found.signature)
        if key in self.finds:
            self.finds[key].count += 1
            return
        if self.mode != "eager" and modes.MODES["eager"].run([without_gradients(program)], self.theirs)[0] is not None:
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

    def smallest(self, program: Program, found: Difference) -> tuple[Program, Difference]:
        """The program made small, and what it comes to."""

        def fails(candidate: Program) -> bool:
            again = self.how.run([candidate], self.theirs)[0]
            return (
                again is not None
                and again.kind == found.kind
                and (not found.op or again.op == found.op or len(candidate.steps) == 1)
            )

        program = shrink(program, fails, self.theirs, self.how.tries)
        return program, self.how.run([program], self.theirs)[0] or found


def without_gradients(program: Program) -> Program:
    return replace(program, inputs=tuple(replace(i, grad=False) for i in program.inputs))


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
        for key, find in sorted(h.finds.items(), key=lambda pair: -pair[1].count):
            said = find.difference
            lines.append(f"  {find.count:5d}  {key[1]}: {said.kind}  (seed {find.seed})  {said.detail[:150]}")
    return "\n".join(lines)
