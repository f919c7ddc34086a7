"""Fair comparisons on one machine: every side in a process of its own, one of them running at a time, turn by turn.

Sides alternate every few steps, so that a slow minute of the machine slows all of them; medians are compared. Between
two turns there is a pause, in which the threads of the side before stop spinning.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
THREADS = 2
PAUSE_SECONDS = 0.3
TURN_SECONDS = 3.0  # a turn makes fewer steps where they are long


class SideFailed(RuntimeError):
    """A side could not build or run its work."""


@dataclass(frozen=True)
class Side:
    """One of the things compared: a library, eager or compiled."""

    library: str
    compiled: bool

    @property
    def name(self) -> str:
        return f"{self.library} {'compiled' if self.compiled else 'eager'}"


TORCH_EAGER, TORCH_COMPILED = Side("torch", False), Side("torch", True)
FLAMBEAU_EAGER, FLAMBEAU_COMPILED = Side("flambeau", False), Side("flambeau", True)
SIDES = (TORCH_EAGER, TORCH_COMPILED, FLAMBEAU_EAGER, FLAMBEAU_COMPILED)


@dataclass
class Timing:
    """What a side took: the seconds of each step, and of the first one, which includes compiling."""

    first: float = float("nan")
    steps: list[float] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    error: str | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.steps) if self.steps else float("nan")


class Worker:
    """A running worker process. `cache` is the folder of its compiler's cache (default: one of its own, empty)."""

    def __init__(self, side: Side, work: str, cache: Path | None = None) -> None:
        self.side = side
        self._own_cache = tempfile.TemporaryDirectory(prefix="bench-cache-") if cache is None else None
        folder = str(cache or self._own_cache.name)  # type: ignore[union-attr]
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(THREADS),
            "MKL_NUM_THREADS": str(THREADS),
            "OPENBLAS_NUM_THREADS": str(THREADS),
            "TORCHINDUCTOR_CACHE_DIR": folder,
            "FLAMBEAU_CACHE_DIR": folder,
            "PYTHONPATH": str(ROOT),
        }
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", side.library], cwd=ROOT, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
        try:
            self.facts = self.ask(do="build", work=work, compiled=side.compiled)
        except SideFailed:
            self.close()
            raise

    def ask(self, **command: Any) -> dict[str, Any]:
        """Have the worker do something, and wait for its answer."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: so will the answer
        line = self.process.stdout.readline()
        if not line:
            raise SideFailed(f"{self.side.name}: the worker ended with exit code {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise SideFailed(f"{self.side.name}: {answer['error']}")
        return answer

    def run(self, steps: int) -> tuple[list[float], list[Any]]:
        """Make `steps` steps: the seconds of each, and what each gave (a loss, a logit)."""
        answer = self.ask(do="run", steps=steps)
        return answer["seconds"], answer["values"]

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        if self.process.stdin:
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self._own_cache:
            self._own_cache.cleanup()


def compare(work: str, sides: Sequence[Side], rounds: int, steps: int, warmup: int = 2) -> dict[Side, Timing]:
    """Time `work` on each side: `rounds` turns of `steps` steps each. A side that fails says so and drops out."""
    timings = {side: Timing() for side in sides}
    workers: dict[Side, Worker] = {}
    try:
        for side in sides:
            try:
                worker = workers[side] = Worker(side, work)
                seconds, values = worker.run(1 + warmup)
                timings[side].first, timings[side].values = seconds[0], values
            except SideFailed as error:
                timings[side].error = str(error)
                workers.pop(side, None)
            _say(f"  {side.name}: first step {timings[side].first:.2f} s {timings[side].error or ''}")
        slowest = max((min(worker.run(2)[0]) for worker in workers.values()), default=0.0)
        steps = max(1, min(steps, int(TURN_SECONDS / max(slowest, 1e-9))))
        for turn in range(rounds):
            order = list(workers)
            for side in order[turn % len(order) :] + order[: turn % len(order)]:
                time.sleep(PAUSE_SECONDS)
                workers[side].run(1)  # wakes the threads again
                seconds, values = workers[side].run(steps)
                timings[side].steps += seconds
                timings[side].values += values
    finally:
        for worker in workers.values():
            worker.close()
    return timings


def start_up(work: str, side: Side, cache: Path | None) -> dict[str, float]:
    """One step of `work` in a new process: seconds of that step, of the whole, and of an ordinary step after it."""
    with Worker(side, work, cache) as worker:
        (first,), _ = worker.run(1)
        process = time.perf_counter() - worker.started
        seconds, _ = worker.run(3)
        return {"first": first, "process": process, "step": min(seconds)}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
