"""Processes that hunt: one that crashes is noted, with the programs it was at, and begun anew after them."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import sys
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from .compare import Difference
from .hunt import Find, Hunt, seeds
from .program import Program

PATIENCE = 60.0     # seconds of a processor for one run of a program; longer is a hang
ASLEEP = 10         # so many times that on the clock, too: a process that waits for ever uses no processor
MOST_MEMORY = 4 << 30   # of a process: torch makes all that it chooses from (`combinations(x, 17)`)


@dataclass
class Worker:
    """A process and what it has said: programs done, what it is at, what it found."""

    options: Any
    mode: str
    number: int
    seconds: float
    done: int = 0
    at: tuple[str, list[int]] = ("starting", [])
    since: tuple[float, float] = (0.0, 0.0)
    hung: bool = False
    finds: dict[tuple[str, ...], Find] = field(default_factory=dict)

    def start(self, until: float) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe(duplex=False)
        self.before = dict(self.finds)
        arguments = (theirs, self.options, self.mode, self.number, self.done, until - time.monotonic())
        self.process = context.Process(target=_work, args=arguments, daemon=True)
        self.process.start()
        self.since, self.hung = self.times(), False
        theirs.close()

    def hear(self) -> bool:
        """Take one message; False when the process has ended."""
        try:
            said = self.connection.recv()
        except EOFError:
            return False
        self.since = self.times()
        if said[0] == "done":
            self.at = ("idle", [])
            self.done, self.finds = said[1], {**self.before, **said[2]}
        else:
            self.at = said
        return True

    def times(self) -> tuple[float, float]:
        """The clock, and how long the process and its compilers had a processor: on a busy machine that is less."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:15]
        except OSError:     # it has ended
            fields = []
        return time.monotonic(), sum(map(int, fields)) / os.sysconf("SC_CLK_TCK")

    def watch(self) -> None:
        """End the process if it says nothing for too long: `crashed` notes that it hangs."""
        clock, used = (now - then for now, then in zip(self.times(), self.since))
        if max(used, clock / ASLEEP) > PATIENCE * max(1, len(self.at[1])) and self.process.is_alive():
            self.hung = True
            self.process.kill()

    def crashed(self) -> None:
        """Note that the process crashed or hung, and step over the programs that it was at."""
        doing, at = self.at
        code = self.process.exitcode or 0
        name = "hangs" if self.hung else signal.Signals(-code).name if code < 0 else f"exit {code}"
        if doing == "running":  # while drawing it is torch's own
            found = Difference(0, "crash", name, f"one of the programs {at}: ./dev fuzz --mode {self.mode} --show SEED prints one")
            self.finds[(self.mode, "crash", name)] = Find(self.mode, at[0], found, Program((), ()))
        self.done += len(at)


def _work(connection: Connection, options: Any, mode: str, number: int, done: int, seconds: float) -> None:
    import torch

    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    running = Hunt(mode, torch, Path(options.out), True, lambda doing, at: connection.send((doing, at)))
    numbers = seeds(options.seed, mode, number, options.jobs, done)
    end = time.monotonic() + seconds
    while time.monotonic() < end and done + running.programs < options.programs:
        running.batch([next(numbers) for _ in range(min(running.how.together, options.programs - done - running.programs))])
        connection.send(("done", done + running.programs, running.finds))


def hunt(mode: str, options: Any, seconds: float) -> tuple[int, dict[tuple[str, ...], Find]]:
    """Run a mode's programs in so many processes; how many programs, and what was found."""
    until = time.monotonic() + seconds
    workers = [Worker(options, mode, number, seconds) for number in range(options.jobs)]
    for worker in workers:
        worker.start(until)
    alive = {worker.connection: worker for worker in workers}
    shown = 0.0
    while alive:
        for worker in alive.values():
            worker.watch()
        for ready in wait(list(alive), timeout=2):
            worker = alive[ready]  # type: ignore[index]
            if worker.hear():
                continue
            del alive[ready]  # type: ignore[arg-type]
            worker.process.join()
            if worker.process.exitcode:
                worker.crashed()
                if time.monotonic() < until and worker.done < options.programs:
                    worker.start(until)
                    alive[worker.connection] = worker
        if time.monotonic() - shown > 2 or not alive:
            shown = time.monotonic()
            found = {key for worker in workers for key in worker.finds}
            line = f"\r{mode}: {sum(w.done for w in workers)} programs, {len(found)} differences "
            print(line, end="" if alive else "\n", file=sys.stderr, flush=True)
    return sum(w.done for w in workers), merged([w.finds for w in workers])


def merged(parts: list[dict[tuple[str, ...], Find]]) -> dict[tuple[str, ...], Find]:
    """What several workers found, as one: the smaller program of two, and the sum of their counts."""
    whole: dict[tuple[str, ...], Find] = {}
    for part in parts:
        for key, find in part.items():
            other = whole.get(key)
            if other is None:
                whole[key] = find
            else:
                small, large = sorted([find, other], key=lambda f: len(f.program.steps))
                whole[key] = Find(small.mode, small.seed, small.difference, small.program, small.count + large.count)
    return whole
