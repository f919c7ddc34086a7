"""Calls of torch.jit's programs: `python -m benchmarks.scripted` measures Flambeau's, `--torch` PyTorch's; `--both` prints a table of both.

Best times of many short rounds on one thread: a chain of pointwise operators on a long tensor, which is one kernel from the third call
on, a small perceptron, where what counts is the call itself, and convolutions with norms; each as plain Python, scripted, traced, frozen and
optimized for inference.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

COLUMNS = ("eager", "scripted", "traced", "frozen", "for inference")


def best_us(call: Callable[..., Any], inputs: tuple, rounds: int, calls: int) -> float:
    """The best round's microseconds a call."""
    for _ in range(30):     # what is compiled is compiled then
        call(*inputs)
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            call(*inputs)
        best = min(best, (time.perf_counter() - start) / calls)
    return 1e6 * best


def measured(torch: Any) -> dict[str, dict[str, float]]:
    """Microseconds by work and way."""
    torch.set_num_threads(1)
    torch.manual_seed(0)

    class Chain(torch.nn.Module):      # type: ignore[misc, name-defined]
        def forward(self, x, y):    # type: ignore[no-untyped-def]
            z = (x * 2 + y).tanh()
            return z.sigmoid() * x - y.abs() / 3 + z

    nn = torch.nn
    small = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    layers = [part for n in (3, 32, 32) for part in (nn.Conv2d(n, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU())]
    found: dict[str, dict[str, float]] = {}
    works = {"chain of 65,536": (Chain().eval(), (torch.randn(65536), torch.randn(65536)), 100, 10),
             "chain of 16": (Chain().eval(), (torch.randn(16), torch.randn(16)), 100, 50),
             "perceptron 8-16-16-4, 4 rows": (small, (torch.randn(4, 8),), 100, 50),
             "convolutions and norms, 32 x 32": (nn.Sequential(*layers).eval(), (torch.randn(1, 3, 32, 32),), 30, 5)}
    with torch.no_grad():
        for name, (net, inputs, rounds, calls) in works.items():
            scripted = torch.jit.script(net)
            ways = (net, scripted, torch.jit.trace(net, inputs), torch.jit.freeze(torch.jit.script(net)),
                    torch.jit.optimize_for_inference(torch.jit.script(net)))
            found[name] = {way: best_us(fn, inputs, rounds, calls) for way, fn in zip(COLUMNS, ways, strict=True)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--both", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if not args.both:
        print(json.dumps(measured(importlib.import_module("torch" if args.torch else "flambeau"))))
        return
    runs = {which: json.loads(subprocess.run([sys.executable, "-m", "benchmarks.scripted", *more], capture_output=True, text=True,
                                             check=True).stdout.splitlines()[-1])
            for which, more in (("Flambeau", []), ("PyTorch", ["--torch"]))}
    print(f"| work | library | {' | '.join(COLUMNS)} |\n|---|---|{'---:|' * len(COLUMNS)}")
    for work in runs["Flambeau"]:
        for which, found in runs.items():
            print(f"| {work} | {which} | {' | '.join(f'{found[work][way]:,.1f} us' for way in COLUMNS)} |")


if __name__ == "__main__":
    main()
