"""Compile time by depth and by length: seconds of the first training step beside torch's, and milliseconds of a later one.

    python -m benchmarks.depth [NAME ...] [--no-torch]

Every measurement is a process of its own, cold with an empty cache and warm with the one that the cold run filled. Seconds are from the
call of the compiled model to the end of its backward pass; libraries are imported and models made before.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

STEPS = 7
Work = tuple[Any, Any]      # the model, and its input


def _blocks(depth: int, width: int, heads: int, tokens: int) -> Callable[[Any], Work]:
    """Pre-norm transformer blocks, as GPT-2's."""
    def make(torch: Any) -> Work:
        nn, functional = torch.nn, torch.nn.functional

        class Block(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
                self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
                self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

            def forward(self, x: Any) -> Any:
                b, t, _ = x.shape
                q, k, v = self.qkv(self.first(x)).view(b, t, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
                mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
                x = x + self.out(mixed.transpose(1, 2).reshape(b, t, width))
                return x + self.down(functional.gelu(self.up(self.second(x))))

        return nn.Sequential(*[Block() for _ in range(depth)]), torch.randn(2, tokens, width)
    return make


def _recurrent(kind: str, length: int) -> Callable[[Any], Work]:
    def make(torch: Any) -> Work:
        class First(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = getattr(torch.nn, kind)(64, 128)

            def forward(self, x: Any) -> Any:
                return self.layer(x)[0]

        return First(), torch.randn(length, 8, 64)
    return make


WORKS: dict[str, Callable[[Any], Work]] = {
    **{f"{depth} blocks of width 64": _blocks(depth, 64, 4, 16) for depth in (1, 4, 16, 64)},
    "24 blocks of width 1024 (GPT-2 medium)": _blocks(24, 1024, 16, 64),
    **{f"LSTM, {length} steps": _recurrent("LSTM", length) for length in (64, 512)},
}


def _measure(library: str, name: str) -> dict[str, float]:
    """One process's figures: the first step's seconds, a later one's."""
    torch = importlib.import_module(library)
    torch.manual_seed(0)
    model, x = WORKS[name](torch)
    compiled = torch.compile(model)

    def step() -> float:
        started = time.perf_counter()
        compiled(x).sum().backward()
        return time.perf_counter() - started

    first, second = step(), step()
    return {"first": first, "second": second, "step": statistics.median(step() for _ in range(STEPS))}


def _in_a_process(library: str, name: str, cache: str) -> dict[str, float]:
    env = {**os.environ, "FLAMBEAU_CACHE_DIR": cache, "TORCHINDUCTOR_CACHE_DIR": cache, "TORCHINDUCTOR_FX_GRAPH_CACHE": "1"}
    command = [sys.executable, "-m", "benchmarks.depth", "--one", library, name]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{library}, {name}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(WORKS))
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("LIBRARY", "NAME"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(_measure(*options.one)))
        return
    libraries = ["flambeau"] if options.no_torch else ["flambeau", "torch"]
    print("| work | " + " | ".join(f"{name}: cold, s | warm, s | step, ms" for name in libraries) + " |")
    print("|---" * (1 + 3 * len(libraries)) + "|")
    for name in options.names:
        cells = []
        for library in libraries:
            with tempfile.TemporaryDirectory() as cache:
                cold, warm = (_in_a_process(library, name, cache) for _ in range(2))
            cells += [f"{cold['first']:.2f}", f"{warm['first']:.2f}", f"{1e3 * min(cold['step'], warm['step']):.1f}"]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
