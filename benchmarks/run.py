"""`./dev bench [names]`: the figures, Flambeau side by side with torch, one after the other on this machine.

Names: gpt_train gpt_infer resnet_train resnet_infer add startup import size loss (none: all of them). `--quick` makes
few rounds. Figures are kept in benchmarks/results/figures.json, row by row, and written as a page beside it and into
README.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from .harness import FLAMBEAU_COMPILED, FLAMBEAU_EAGER, ROOT, SIDES, TORCH_COMPILED, TORCH_EAGER, Side, SideFailed, Worker, compare, start_up
from .report import Row, record

LOSS_STEPS = 100
ADDS = 200  # as many as a step of works.add makes: short, so that few steps are interrupted


def say(text: str) -> None:
    print(text, flush=True)


# -- steps of the programs -------------------------------------------------------------------------------------
TITLES = {
    "gpt_train": "char-GPT training step",
    "gpt_infer": "char-GPT inference",
    "resnet_train": "ResNet-18 training step",
    "resnet_infer": "ResNet-18 inference",
}
TARGETS = {  # of the ratio Flambeau / torch: (compiled to eager, compiled to compiled, eager to eager)
    "gpt_train": (0.60, 0.60, 1.30),
    "gpt_infer": (0.55, 0.60, 1.30),
    "resnet_train": (0.90, 1.00, 1.30),
    "resnet_infer": (0.80, 1.00, 1.30),
}


def program(work: str, rounds: int) -> list[Row]:
    """The four sides' step times of one program, and the three ratios that have targets."""
    timings = compare(work, SIDES, rounds=rounds, steps=3)
    times = {side: timing.median for side, timing in timings.items()}
    title = TITLES[work]
    pairs = ((FLAMBEAU_COMPILED, TORCH_EAGER), (FLAMBEAU_COMPILED, TORCH_COMPILED), (FLAMBEAU_EAGER, TORCH_EAGER))
    return [
        Row(f"{title}, {ours.name.split()[1]}", f"{theirs.name}", 1e3 * times[ours], 1e3 * times[theirs], "ms", target)
        for (ours, theirs), target in zip(pairs, TARGETS[work], strict=True)
    ]


def add(rounds: int) -> list[Row]:
    """Microseconds of a call of a + b on four elements."""
    timings = compare("add", SIDES, rounds=rounds, steps=100)
    micro = {side: 1e6 * timing.median / ADDS for side, timing in timings.items()}
    title = "a + b of 4 elements"
    return [
        Row(f"{title}, compiled", "torch compiled", micro[FLAMBEAU_COMPILED], micro[TORCH_COMPILED], "us", 1.0),
        Row(f"{title}, eager", "torch eager", micro[FLAMBEAU_EAGER], micro[TORCH_EAGER], "us", most=4.0),
    ]


# -- starting --------------------------------------------------------------------------------------------------
def startup(rounds: int) -> list[Row]:
    """Cold compile of the GPT's training step in an empty cache, then the same in a new process with what that left."""
    cold: dict[Side, list[float]] = {}
    warm: dict[Side, list[float]] = {}
    for _ in range(max(1, rounds // 3)):
        for side in (TORCH_COMPILED, FLAMBEAU_COMPILED):
            with tempfile.TemporaryDirectory(prefix="bench-cache-") as folder:
                try:
                    first = start_up("gpt_train", side, Path(folder))
                    second = start_up("gpt_train", side, Path(folder))
                except SideFailed as error:
                    say(f"  {error}")
                    continue
            cold.setdefault(side, []).append(first["first"] - first["step"])
            warm.setdefault(side, []).append(second["first"] - second["step"])
            say(f"  {side.name}: cold {cold[side][-1]:.2f} s, warm {warm[side][-1]:.2f} s "
                f"(whole process {first['process']:.1f} and {second['process']:.1f} s)")
    rows = []
    for title, found in (("cold compile of the GPT training step", cold), ("warm start of it in a new process", warm)):
        ours, theirs = _median(found.get(FLAMBEAU_COMPILED)), _median(found.get(TORCH_COMPILED))
        rows.append(Row(title, "torch compiled", ours, theirs, "s", 0.25))
    return rows


def _median(values: list[float] | None) -> float:
    return statistics.median(values) if values else float("nan")


def imports(rounds: int) -> list[Row]:
    """Seconds that the import takes in a new process, its files in the system's cache."""
    seconds: dict[str, list[float]] = {"flambeau": [], "torch": []}
    for turn in range(2 * rounds + 1):
        for name, found in seconds.items():
            code = f"import time; t = time.perf_counter(); import {name}; print(time.perf_counter() - t)"
            answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            if turn:  # the first one warms the system's file cache
                found.append(float(answer.stdout))
    return [Row("import", "import torch", _median(seconds["flambeau"]), _median(seconds["torch"]), "s", most=0.5)]


def size(rounds: int) -> list[Row]:
    """Megabytes on disk of each package with everything that it requires."""
    own = sum(f.stat().st_size for f in (ROOT / "flambeau").rglob("*") if f.is_file() and "__pycache__" not in f.parts)
    ours = own + sum(_bytes(name) for name in _closure("flambeau") - {"flambeau"})
    theirs = sum(_bytes(name) for name in _closure("torch"))
    return [Row("installed size, dependencies included", "torch (CPU build)", ours / 1e6, theirs / 1e6, "MB", most=300)]


def _closure(package: str) -> set[str]:
    """`package` and all that it requires, extras left out."""
    found: set[str] = set()
    left = [package]
    while left:
        name = left.pop()
        if name in found:
            continue
        try:
            requires = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform
        found.add(name)
        left += [re.match(r"[\w.-]+", need).group().lower() for need in requires if "extra ==" not in need]  # type: ignore[union-attr]
    return found


def _bytes(package: str) -> int:
    files = importlib.metadata.files(package) or []
    paths = [Path(str(file.locate())) for file in files if "__pycache__" not in str(file)]
    return sum(path.stat().st_size for path in paths if path.is_file())


# -- agreement -------------------------------------------------------------------------------------------------
def loss(rounds: int) -> list[Row]:
    """How far Flambeau's loss is from torch's after 100 steps of the GPT, same weights and batches: relative."""
    curves: dict[Side, list[float]] = {}
    for side in (TORCH_EAGER, FLAMBEAU_EAGER, FLAMBEAU_COMPILED):
        try:
            with Worker(side, "gpt_train") as worker:
                curves[side] = worker.run(LOSS_STEPS)[1]
        except SideFailed as error:
            say(f"  {error}")
    rows = []
    for side in (FLAMBEAU_EAGER, FLAMBEAU_COMPILED):
        if side in curves and TORCH_EAGER in curves:
            ours, theirs = curves[side][-1], curves[TORCH_EAGER][-1]
            apart = abs(ours - theirs) / theirs
            say(f"  {side.name}: loss {ours:.6f} after {LOSS_STEPS} steps, torch {theirs:.6f}")
            title = f"GPT loss after {LOSS_STEPS} steps, {side.name.split()[1]}: relative difference"
            rows.append(Row(title, "torch eager", apart, float("nan"), "", most=1e-3))
    return rows


BENCHES: dict[str, Callable[[int], list[Row]]] = {
    **{work: (lambda rounds, work=work: program(work, rounds)) for work in TITLES},  # type: ignore[misc]
    "add": add,
    "startup": startup,
    "import": imports,
    "size": size,
    "loss": loss,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help=" ".join(BENCHES))
    parser.add_argument("--rounds", type=int, default=7, help="turns of each side (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and the figures are only printed")
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in BENCHES]
    if unknown:
        parser.error(f"no figure called {', '.join(unknown)}; there are: {' '.join(BENCHES)}")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)     # both libraries run from bytecode, as after anybody's first import
    for name in args.names or BENCHES:
        start = time.perf_counter()
        say(f"{name} ...")
        rows = BENCHES[name](2 if args.quick else args.rounds)
        for row in rows:
            say(f"  {row}")
        if not args.quick:
            record(rows)
        say(f"  ({time.perf_counter() - start:.0f} s)")


if __name__ == "__main__":
    main()
