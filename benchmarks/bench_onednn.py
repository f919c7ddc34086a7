"""`python -m benchmarks.bench_onednn [matmul] [conv] [--dtype bfloat16]`: oneDNN's layouts against each other and against torch.

Everything runs in one process on 2 threads, turn by turn: a few runs of one side, then of the next. Each figure is the lower
quartile of its times. docs/onednn.md says what follows from them.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterable

os.environ.setdefault("OMP_NUM_THREADS", "2")

import ml_dtypes
import numpy as np
import torch
import torch.nn.functional as F

from flambeau import _C
from flambeau.backends.cpu import onednn
from flambeau.backends.cpu.onednn import Operand

ROUNDS, RUNS = 8, 5
Case = Callable[[], object]

# The products of a character GPT's linear layers (2048 tokens): in features, out features.
LINEAR = [(384, 1152), (384, 384), (384, 1536), (1536, 384), (384, 65), (384, 200)]
# ResNet-18 on (4, 3, 224, 224): channels in and out, input size, kernel, stride, padding, how many such layers.
RESNET18 = [(3, 64, 224, 7, 2, 3, 1), (64, 64, 56, 3, 1, 1, 4), (64, 128, 56, 3, 2, 1, 1), (64, 128, 56, 1, 2, 0, 1),
            (128, 128, 28, 3, 1, 1, 3), (128, 256, 28, 3, 2, 1, 1), (128, 256, 28, 1, 2, 0, 1), (256, 256, 14, 3, 1, 1, 3),
            (256, 512, 14, 3, 2, 1, 1), (256, 512, 14, 1, 2, 0, 1), (512, 512, 7, 3, 1, 1, 3)]
BATCH = 4


def seconds(cases: dict[str, Case]) -> dict[str, float]:
    """The lower quartile of each case's times."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    for case in cases.values():
        case()
    for _ in range(ROUNDS):
        for name, case in cases.items():
            case()
            for _ in range(RUNS):
                start = time.perf_counter()
                case()
                times[name].append(time.perf_counter() - start)
    return {name: sorted(t)[len(t) // 4] for name, t in times.items()}


def array(shape: Iterable[int], dtype: np.dtype) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(tuple(shape)).astype(dtype)


def to_torch(x: np.ndarray) -> torch.Tensor:
    if x.dtype == onednn.BFLOAT16:
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def rates(flops: int, times: dict[str, float]) -> list[str]:
    """GFLOP/s; a case that was left out took no time."""
    return [f"{flops / t / 1e9:.0f}" if t > 1e-6 else "-" for t in times.values()]


def row(name: str, cells: Iterable[object]) -> None:
    print(f"| {name} | " + " | ".join(map(str, cells)) + " |", flush=True)


def header(name: str, cells: list[str]) -> None:
    row(name, cells)
    row("---", ["---:"] * len(cells))


def runner(op: int, *arrays: np.ndarray) -> Case:
    return lambda: _C.onednn_run(op, *arrays)


# -- matmul --------------------------------------------------------------------------------------------------
def product(name: str, a: np.ndarray, b: np.ndarray) -> None:
    """GFLOP/s of a @ b."""
    out = np.empty((a.shape[0], b.shape[1]), a.dtype)
    left, right, target = map(onednn.operand, (a, b, out))
    ta, tb, tout = to_torch(a), to_torch(b), to_torch(out.copy())
    times = seconds({
        "torch": lambda: torch.mm(ta, tb, out=tout),
        "plain": runner(onednn.matmul(left, right, target), a, b, out),
        "NumPy": lambda: np.matmul(a, b, out=out) if a.dtype == np.float32 else None,
    })
    flops = 2 * a.shape[0] * a.shape[1] * b.shape[1]
    row(f"{name} {a.shape[0]} x {a.shape[1]} x {b.shape[1]}", rates(flops, times))


def matmuls(dtype: np.dtype, rows: int = 2048) -> None:
    print(f"\nProducts of linear layers, {dtype}, GFLOP/s\n")
    header("n x k x m", ["torch.mm", "oneDNN, plain", "NumPy"])
    for n_in, n_out in LINEAR:
        x, w, g = array((rows, n_in), dtype), array((n_out, n_in), dtype), array((rows, n_out), dtype)
        product("x @ w.T", x, w.T)
        product("g @ w", g, w)
        product("g.T @ x", g.T, x)


# -- convolution -------------------------------------------------------------------------------------------------
def channels_last(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


def onednn_case(kind: str, arrays: list[np.ndarray], layouts: tuple[str, str, str], attrs: dict) -> Case:
    """One of the three operations."""
    operands: list[Operand] = [onednn.operand(a, layout) for a, layout in zip(arrays, layouts)]
    op = _C.onednn_create(onednn.conv_words(kind, operands, **attrs))
    if onednn.implementation(op).startswith("ref"):
        return lambda: None
    return runner(op, *arrays)


def convolution_cases(x: np.ndarray, w: np.ndarray, g: np.ndarray, stride: int, padding: int) -> dict[str, dict[str, Case]]:
    """By kind and layout."""
    attrs = dict(stride=(stride, stride), padding=(padding, padding), dilation=(1, 1))
    tx, tw, tg = to_torch(x), to_torch(w), to_torch(g)
    last = [t.contiguous(memory_format=torch.channels_last) for t in (tx, tw, tg)]

    def torch_case(kind: str, x: torch.Tensor, w: torch.Tensor, g: torch.Tensor) -> Case:
        if kind == "convolution":
            return lambda: F.conv2d(x, w, None, stride, padding)
        mask = [kind == "convolution_input_grad", kind == "convolution_weight_grad", False]
        window = ([stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1)
        return lambda: torch.ops.aten.convolution_backward(g, x, w, None, *window, mask)

    plain, nhwc = [x, w, g], [channels_last(x), w, channels_last(g)]
    cases: dict[str, dict[str, Case]] = {}
    for kind, order in onednn.ORDER.items():
        def pick(arrays: list[np.ndarray], names: str, kind: str = kind, order: tuple = order) -> Case:
            layouts = dict(zip("xwg", names.split()))
            return onednn_case(kind, [arrays[i] for i in order], tuple(layouts["xwg"[i]] for i in order), attrs)  # type: ignore

        cases[kind] = {
            "torch": torch_case(kind, tx, tw, tg),
            "torch, channels-last": torch_case(kind, *last),
            "plain": pick(plain, "given given given"),
            "plain, reordered inside": pick(plain, "free free free"),
            "channels-last": pick(nhwc, "given free given"),
        }
    return cases


def convolutions(dtype: np.dtype) -> None:
    total: dict[str, dict[str, float]] = {}
    names: list[str] = []
    print(f"\nResNet-18's convolutions, batch {BATCH}, {dtype}, GFLOP/s\n")
    with torch.no_grad():
        for c, o, n, k, s, p, count in RESNET18:
            m = (n + 2 * p - k) // s + 1
            x, w, g = array((BATCH, c, n, n), dtype), array((o, c, k, k), dtype), array((BATCH, o, m, m), dtype)
            flops = 2 * BATCH * o * m * m * c * k * k
            for kind, cases in convolution_cases(x, w, g, s, p).items():
                if not names:
                    names = list(cases)
                    header("layer", names)
                times = seconds(cases)
                row(f"{kind} {c}x{n}x{n} -> {o}, {k}x{k}/{s}", rates(flops, times))
                for name, t in times.items():
                    total.setdefault(kind, {}).setdefault(name, 0.0)
                    total[kind][name] += count * t
    print(f"\nAll of ResNet-18's convolutions, {dtype}, ms\n")
    header("", names)
    for kind, sums in total.items():
        row(kind, [f"{t * 1e3:.1f}" for t in sums.values()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["matmul", "conv"])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    arguments = parser.parse_args()
    if not onednn.available():
        raise SystemExit("oneDNN is not installed: pip install onednn-cpu-gomp")
    _C.set_num_threads(2)
    torch.set_num_threads(2)
    dtype = np.dtype(ml_dtypes.bfloat16 if arguments.dtype == "bfloat16" else np.float32)
    if "matmul" in arguments.what:
        matmuls(dtype)
    if "conv" in arguments.what:
        convolutions(dtype)


if __name__ == "__main__":
    main()
