"""Where the GPU's time goes: `python benchmarks/gpu_trace.py SIDE WORK [FILE]`, for example `"flambeau compile" inference`.

PyTorch's profiler (CUPTI) sees the kernels of the whole process, whoever launched them, also inside CUDA graphs. For
Flambeau the Python side is profiled too, and FILE gets the text of the generated kernels.
"""

from __future__ import annotations

import collections
import cProfile
import pstats
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu
import torch
from torch.profiler import ProfilerActivity, profile

REPEATS = 5


def _step(lib: Any, work: str, compiled: bool) -> Callable[[], Any]:
    """One repetition of a work of `gpu.py`, warmed up."""
    found: list[Callable[[], Any]] = []

    def take(step: Callable[[], Any], sync: Any, repeats: int, warm: int = 3) -> float:
        found.append(step)
        for _ in range(warm + 2):
            step()
        return 0.0

    gpu._median = take  # type: ignore[assignment]
    mode = {"mode": "reduce-overhead"} if work == "inference" else {}
    gpu.WORKS[work](lib, torch.cuda.synchronize, (lambda m: lib.compile(m, **mode)) if compiled else (lambda m: m), {})
    return found[-1]


def _kernels(step: Callable[[], Any]) -> tuple[list[tuple[str, int, float]], float]:
    """(name, launches a step, microseconds a step) of every kernel, most first; and the milliseconds of a step."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as prof:
        for _ in range(REPEATS):
            step()
        torch.cuda.synchronize()
    times: dict[str, list[float]] = collections.defaultdict(list)
    for event in prof.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            times[event.name].append(event.time_range.elapsed_us())
    started = time.perf_counter()
    for _ in range(REPEATS):
        step()
    torch.cuda.synchronize()
    wall = (time.perf_counter() - started) / REPEATS * 1e3
    rows = [(name, round(len(t) / REPEATS), sum(t) / REPEATS) for name, t in times.items()]
    return sorted(rows, key=lambda row: -row[2]), wall


def main() -> None:
    """The table of kernels, then the table of Python functions."""
    side, work, *rest = sys.argv[1:]
    library, mode = side.split()
    texts: list[str] = []
    if library == "torch":
        lib: Any = torch
    else:
        import flambeau as lib
        from flambeau.inductor import graph
        graph.listening.append(lambda made: texts.extend(
            f"# {k.name} warps {k.num_warps} {k.constants}\n{k.text}" for k in (made.cuda.kernels if made.cuda else [])))
    torch.zeros(1, device="cuda")
    context = lib.enable_grad() if "training" in work else lib.no_grad()
    with context:
        step = _step(lib, work, mode == "compile")
        if library != "torch":
            started = time.perf_counter()
            profiler = cProfile.Profile()
            profiler.runcall(step)
            torch.cuda.synchronize()
            print(f"{side} {work}: {1e3 * (time.perf_counter() - started):.2f} ms under cProfile")
            pstats.Stats(profiler).sort_stats("tottime").print_stats(32)
        rows, wall = _kernels(step)
    count, busy = sum(row[1] for row in rows), sum(row[2] for row in rows)
    print(f"{side} {work}: {wall:.3f} ms a step; {count} launches, {busy / 1e3:.3f} ms in kernels")
    for name, launches, us in rows[:45]:
        print(f"{us:10.1f} us {launches:5d} x {us / max(launches, 1):8.2f}  {name[:110]}")
    if rest and texts:
        Path(rest[0]).write_text("\n\n".join(texts))


if __name__ == "__main__":
    main()
