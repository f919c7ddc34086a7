"""Generated kernels beside torch's eager ones, one after the other in one process: `python benchmarks/bench_kernels.py`.

Each row: best and median milliseconds of both over interleaved rounds, and the ratio of the best (lower is better for Flambeau).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import flambeau
from flambeau import _C
from flambeau.inductor import operators
from flambeau.ops import registry

rng = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def composite(name: str) -> Callable:
    return operators.operator_kernel(registry.COMPOSITES[name].fn)


def adamw(p: Any, g: Any, m: Any, v: Any, lr: float, scale: float) -> tuple:
    """One AdamW step, as optimizers spell it; runs on both libraries' tensors."""
    m, v = m * 0.9 + g * 0.1, v * 0.95 + g * g * 0.05
    return p * (1 - lr * 0.1) - m * lr / (v.sqrt() * scale + 1e-8), m, v


def works() -> list[tuple[str, Callable, Callable]]:
    F = torch.nn.functional
    x, c, y, w, s = array(2048, 1536), array(1536), array(8, 256, 384), array(384), array(8, 6, 256, 256)
    t = {k: torch.from_numpy(a) for k, a in {"x": x, "c": c, "y": y, "w": w, "s": s}.items()}
    bias_gelu = operators.operator_kernel(lambda x, c: flambeau.nn.functional.gelu(x + c))
    step, state = operators.operator_kernel(adamw), [np.abs(array(1536, 384)) for _ in range(4)]
    tensors = [torch.from_numpy(a) for a in state]
    softmax, norm, gelu_back = composite("_softmax"), composite("_layer_norm"), composite("gelu_backward")
    attention, mask = composite("attention_weights"), torch.ones(256, 256, dtype=torch.bool).tril()
    return [
        ("gelu(x + bias), 2048 x 1536", lambda: bias_gelu(x, c), lambda: F.gelu(t["x"] + t["c"])),
        ("gelu backward, 2048 x 1536", lambda: gelu_back(x, x, "none"), lambda: torch.ops.aten.gelu_backward(t["x"], t["x"])),
        ("softmax, 12288 x 256", lambda: softmax(s, 3), lambda: torch.softmax(t["s"], -1)),
        ("causal attention weights", lambda: attention(s, None, True, 0.125),
         lambda: torch.softmax((t["s"] * 0.125).masked_fill(~mask, -torch.inf), -1)),
        ("layer norm, 2048 x 384", lambda: norm(y, w, w, 1, 1e-5), lambda: F.layer_norm(t["y"], (384,), t["w"], t["w"])),
        ("AdamW step, 1536 x 384", lambda: step(*state, 1e-3, 1.5), lambda: adamw(*tensors, 1e-3, 1.5)),
    ]


def measure(fn: Callable, rounds: int) -> list[float]:
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        fn()
        times.append((time.perf_counter() - started) * 1e3)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    threads = parser.parse_args().threads
    torch.set_num_threads(threads)
    _C.set_num_threads(threads)
    print(f"{'':32} {'flambeau ms':>18} {'torch ms':>18}  ratio")
    with flambeau.no_grad(), torch.no_grad():
        for name, ours, theirs in works():
            assert ours() is not NotImplemented, f"{name}: no kernel was generated"
            theirs()
            a: list[float] = []
            b: list[float] = []
            for _ in range(6):
                a += measure(ours, 5)
                time.sleep(0.02)  # OpenMP's threads stop spinning
                b += measure(theirs, 5)
                time.sleep(0.02)
            print(f"{name:32} {min(a):8.3f} {statistics.median(a):9.3f} {min(b):8.3f} {statistics.median(b):9.3f}  "
                  f"{min(a) / min(b):5.2f}")


if __name__ == "__main__":
    main()
