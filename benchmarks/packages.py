"""Ahead-of-time packages beside compiled Python calls: `python -m benchmarks.packages FOLDER`, with what
examples/cpp_inference/models.py left there.

Median milliseconds of a call on one thread: torch.compile's in Python, the package's in Python and in C++ (built here with g++), turn by
turn in several rounds, of which the best count; milliseconds to load, and resident memory.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flambeau as torch
from flambeau.backends.cpu import onednn

ROOT = Path(__file__).parents[1]


def median_ms(call: Callable[..., Any], inputs: tuple, calls: int) -> float:
    """The median of the calls' times."""
    taken = []
    for _ in range(calls):
        start = time.perf_counter()
        call(*inputs)
        taken.append(time.perf_counter() - start)
    return 1e3 * statistics.median(taken)


def in_cpp(program: Path, folder: str, name: str, calls: int) -> dict[str, float]:
    """What the C++ program says of a package."""
    environment = {**os.environ, "FLAMBEAU_ONEDNN": onednn.library_path() or ""}
    said = subprocess.run([program, folder, "1", str(calls), name], env=environment, capture_output=True, text=True, check=True).stdout
    numbers = re.findall(r"load (\S+) ms, first call (\S+) ms, median (\S+) ms, resident (\S+) MB \(package (\S+) MB", said)[0]
    return dict(zip(("load", "first", "median", "resident", "package"), map(float, numbers), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=10)
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT / "examples" / "cpp_inference"))
    importlib.import_module("flambeau.as_torch")
    models = importlib.import_module("models").models
    torch.set_num_threads(1)
    program = Path(args.folder) / "serve"
    subprocess.run(["g++", "-std=c++17", "-O2", f"-I{ROOT / 'flambeau/include'}", str(ROOT / "examples/cpp_inference/main.cpp"), "-o",
                    str(program), "-ldl", "-pthread"], check=True)
    resnet, step, image = models(False)
    print("| program | compiled, Python | package, Python | package, C++ | C++ / compiled | load | resident | package |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, module, inputs in (("resnet18", resnet, (torch.randn(1, 3, image, image),)), ("gpt", step, step.inputs())):
        compiled, loaded = torch.compile(module), torch._inductor.aoti_load_package(f"{args.folder}/{name}.pt2", run_single_threaded=True)
        with torch.no_grad():
            compiled(*inputs), loaded(*inputs)
            rounds = [(median_ms(compiled, inputs, args.calls), median_ms(loaded, inputs, args.calls),
                       in_cpp(program, args.folder, name, args.calls)) for _ in range(args.rounds)]
        python, package = (min(r[k] for r in rounds) for k in (0, 1))
        cpp = {key: min(r[2][key] for r in rounds) for key in rounds[0][2]}
        print(f"| {name} | {python:.2f} ms | {package:.2f} ms | {cpp['median']:.2f} ms | {cpp['median'] / python:.2f} "
              f"| {cpp['load']:.1f} ms | {cpp['resident']:.0f} MB | {cpp['package']:.0f} MB |", flush=True)


if __name__ == "__main__":
    main()
