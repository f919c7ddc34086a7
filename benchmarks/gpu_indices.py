"""What checking indices costs on a GPU: an embedding with and without, beside PyTorch's: `python benchmarks/gpu_indices.py`."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
import types
from typing import Any

import flambeau as fl
from flambeau.inductor.gpu.triton import TritonPrinter

SIZES = [(8, 1024, 768), (8, 1024, 64), (64, 512, 1024)]


def median_us(work: Any, wait: Any, runs: int = 30, calls: int = 50) -> float:
    """Microseconds of a call, in runs of many."""
    found = []
    for _ in range(runs):
        wait()
        start = time.perf_counter()
        for _ in range(calls):
            work()
        wait()
        found.append((time.perf_counter() - start) / calls * 1e6)
    return statistics.median(found)


def unchecked(self: Any, v: Any, name: str) -> None:
    """In place of the check."""


def nothing(self: Any, values: Any) -> list[str]:
    """In place of its masks."""
    return []


def works(lib: Any, compile: bool) -> list[Any]:
    """The embedding of each size, once called."""
    found = []
    for batch, length, width in SIZES:
        table = lib.randn(50257, width, device="cuda", dtype=lib.bfloat16)
        ids = lib.randint(0, 50257, (batch, length), device="cuda")
        embed = lambda ids, table: lib.nn.functional.embedding(ids, table)  # noqa: E731
        call = types.FunctionType(embed.__code__.replace(), {}, None, None, embed.__closure__)   # what is compiled belongs to the code
        call = lib.compile(call, dynamic=False) if compile else call
        with lib.no_grad():
            for _ in range(3):
                call(ids, table)
        found.append(lambda call=call, ids=ids, table=table: call(ids, table))
    return found


def main() -> None:
    """The table."""
    columns = {"eager": works(fl, False), "compiled": works(fl, True)}
    kept = TritonPrinter._check, TritonPrinter._fitting
    TritonPrinter._check, TritonPrinter._fitting = unchecked, nothing    # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FLAMBEAU_CACHE_DIR"] = folder
        columns["compiled, unchecked"] = works(fl, True)
    del os.environ["FLAMBEAU_CACHE_DIR"]
    TritonPrinter._check, TritonPrinter._fitting = kept    # type: ignore[method-assign]
    waits = dict.fromkeys(columns, fl.cuda.synchronize)
    try:
        import torch
        columns["torch eager"], waits["torch eager"] = works(torch, False), torch.cuda.synchronize
    except ImportError:
        pass
    print("| embedding, bf16 | " + " | ".join(columns) + " |\n|---" * 1 + "|---" * len(columns) + "|")
    for k, size in enumerate(SIZES):
        print(f"| {size} | " + " | ".join(f"{median_us(columns[name][k], waits[name]):.1f} us" for name in columns) + " |")


if __name__ == "__main__":
    main()
