"""./dev fuzz: random programs on torch and on Flambeau."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any

from .hunt import Hunt, hunt, summary
from .modes import MODES


def _progress(hunting: Hunt) -> None:
    now = time.monotonic()
    if now - _progress.last > 2:  # type: ignore[attr-defined]
        _progress.last = now  # type: ignore[attr-defined]
        print(
            f"\r{hunting.mode}: {hunting.programs} programs, {len(hunting.finds)} differences ", end="", file=sys.stderr, flush=True
        )


_progress.last = 0.0  # type: ignore[attr-defined]


def _work(arguments: tuple[argparse.Namespace, int]) -> tuple[list[dict], str]:
    options, worker = arguments
    import torch

    torch.set_num_threads(1)
    wanted = list(MODES) if options.mode == "all" else [options.mode]
    hunts = []
    for mode in wanted:
        hunts.append(
            hunt(
                mode,
                torch,
                options.seed,
                seconds=options.seconds / len(wanted),
                programs=options.programs,
                worker=worker,
                jobs=options.jobs,
                out=Path(options.out),
                report=_progress,
            )
        )
        print(file=sys.stderr)
    return [{"mode": h.mode, "programs": h.programs, "differences": len(h.finds)} for h in hunts], summary(hunts)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long, for all modes together")
    parser.add_argument("--programs", type=int, default=10**9, help="at most so many programs a mode and job")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="programs depend on it alone; the clock's without")
    parser.add_argument("--mode", choices=["all", *MODES], default="all")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--out", default="out/fuzz", help="where the scripts of what differs go")
    options = parser.parse_args()
    jobs: list[Any] = [(options, worker) for worker in range(options.jobs)]
    if options.jobs == 1:
        results = [_work(jobs[0])]
    else:
        with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
            results = pool.map(_work, jobs)
    print(f"seed {options.seed}")
    for _, text in results:
        print(text)
    return int(any(count["differences"] for counts, _ in results for count in counts))


if __name__ == "__main__":
    sys.exit(main())
