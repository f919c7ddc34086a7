"""Where the GPU's time goes in one compiled GPT-2 training step: `python benchmarks/gpu_profile.py`.

An event is recorded before every launch and library call; the time to the next event is what is counted for it, so gaps in
which the GPU waits for Python count too.
"""

from __future__ import annotations

import collections
import cProfile
import itertools
import pstats
import sys
import time
from pathlib import Path
from typing import Any

import cupy
from gpu import _gpt2

import flambeau as fl
from flambeau.backends.cuda import blas, cubins
from flambeau.inductor import cuda

EVENTS: list[tuple[str, Any]] = []


def _mark(name: str) -> None:
    if on:
        event = cupy.cuda.Event()
        event.record()
        EVENTS.append((name, event))


on = False
LABELS: dict[int, str] = {}
TEXTS: list[str] = []


def _label(kernels: Any, capability: int, aligned: Any) -> Any:
    compiled = plain_compile(kernels, capability, aligned)
    for kernel, cubin in zip(kernels, compiled):
        LABELS[id(cubin)] = f"graph {len(TEXTS)} {kernel.name}"
    TEXTS.append("\n".join(f"{k.name} warps {k.num_warps} {k.constants}{k.text}" for k in kernels))
    KEPT.append(compiled)
    return compiled


plain_compile, KEPT = cuda.compile_all, []


def _watch() -> None:
    """Put marks around launches."""
    plain_launcher, plain_gemm = cubins.launcher, blas._gemm

    def launcher(cubin: Any) -> Any:
        launch = plain_launcher(cubin)

        def marked(grid: tuple, arguments: tuple) -> None:
            _mark(f"{LABELS.get(id(cubin), cubin.name)} grid {grid[0]}")
            launch(grid, arguments)
        return marked

    def gemm(kind: str, shape: Any, k: int, of_a: Any, of_b: Any, *rest: Any) -> Any:
        call = plain_gemm(kind, shape, k, of_a, of_b, *rest)
        name = f"product into {tuple(shape)} over {k}{'' if of_a.rows else ' T'}{'' if of_b.rows else ' T'} {kind}"

        def marked(a: int, b: int, out: int) -> None:
            _mark(name)
            call(a, b, out)
        return marked

    cubins.launcher, blas._gemm, cuda.compile_all = launcher, gemm, _label


def main() -> None:
    """One step, by kernel."""
    global on
    _watch()
    fl.manual_seed(0)
    model = _gpt2(fl).cuda()
    run = fl.compile(model)
    optimizer = fl.optim.AdamW(model.parameters(), lr=1e-4)
    ids, targets = (fl.randint(0, 50257, (8, 1024), device="cuda") for _ in range(2))

    def step() -> None:
        optimizer.zero_grad()
        with fl.autocast("cuda", dtype=fl.bfloat16):
            loss = run(ids, targets)
        _mark("(backward begins)")
        loss.backward()
        _mark("(step begins)")
        optimizer.step()
        _mark("(end)")

    for _ in range(3):
        step()
    cupy.cuda.Device().synchronize()
    started = time.perf_counter()
    step()
    python = time.perf_counter() - started
    cupy.cuda.Device().synchronize()
    print(f"step {1e3 * (time.perf_counter() - started):.2f} ms, of which Python {1e3 * python:.2f} ms; "
          f"pool {cupy.get_default_memory_pool().total_bytes() / 2**30:.2f} GiB")
    profile = cProfile.Profile()
    profile.runcall(step)
    cupy.cuda.Device().synchronize()
    pstats.Stats(profile).sort_stats("tottime").print_stats(28)
    on = True
    step()
    cupy.cuda.Device().synchronize()
    total: dict[str, list[float]] = collections.defaultdict(list)
    for (name, event), (_, after) in itertools.pairwise(EVENTS):
        total[name].append(cupy.cuda.get_elapsed_time(event, after))
    for name, times in sorted(total.items(), key=lambda item: -sum(item[1]))[:int(sys.argv[1]) if len(sys.argv) > 1 else 40]:
        print(f"{sum(times):8.3f} ms {len(times):4d} x {name}")
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text("\n\n".join(f"# graph {k}\n{text}" for k, text in enumerate(TEXTS)))


if __name__ == "__main__":
    main()
