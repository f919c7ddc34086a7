"""Convolution, pooling and batch norm for GPUs without one: `TRITON_INTERPRET=1 python tests/inductor/triton_windows.py CASE...`

The kernels run under Triton's interpreter (triton_interpreter.py); in cuDNN's place stand the CPU's convolutions, given the
same addresses and descriptions.
"""

from __future__ import annotations

import ctypes
import math
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np

import flambeau as fl
from flambeau.backends.cpu import conv as cpu
from flambeau.backends.cuda.dnn_library import Convolution, Operand
from flambeau.core.dtypes import DTYPES

sys.path.insert(0, str(Path(__file__).parent))
import triton_interpreter as triton

functional = fl.nn.functional
calls: list[Convolution] = []


# -- NumPy as cuDNN --------------------------------------------------------------------------------------------
def _at(address: int, operand: Operand, kind: np.dtype) -> np.ndarray:
    count = 1 + sum((n - 1) * s for n, s in zip(operand.shape, operand.strides))
    assert count == math.prod(operand.shape)
    flat = np.frombuffer((ctypes.c_char * (count * kind.itemsize)).from_address(address), kind)
    return np.lib.stride_tricks.as_strided(flat, operand.shape, [s * kind.itemsize for s in operand.strides])


def by_address(conv: Convolution) -> Any:
    """What `backends.cuda.dnn.by_address` gives, on the host's memory."""
    calls.append(conv)
    kind, window = DTYPES[conv.dtype].numpy, conv.window
    groups = conv.x.shape[1] // conv.w.shape[1]

    def call(x: int, w: int, y: int, stream: int) -> None:
        a, b, c = _at(x, conv.x, kind), _at(w, conv.w, kind), _at(y, conv.y, kind)
        if conv.kind == "forward":
            c[...] = cpu.convolution(a, b, None, *window, groups)
        elif conv.kind == "input_grad":
            a[...] = cpu.convolution_input_grad(c, b, a.shape, *window, groups)
        else:
            b[...] = cpu.convolution_weight_grad(c, a, b.shape, *window, groups)
    return call


def install() -> None:
    """Put the stand-ins in place."""
    triton.install()
    module: Any = types.ModuleType("flambeau.backends.cuda.dnn")
    module.by_address, module.run = by_address, None
    sys.modules[module.__name__] = module


# -- the cases -------------------------------------------------------------------------------------------------
RNG = np.random.default_rng(0)
BF16 = fl.bfloat16.numpy


def _random(*shape: int, kind: Any = "f4") -> np.ndarray:
    return RNG.standard_normal(shape).astype(kind)


def convolutions() -> None:
    """Operands of any memory order, channels filled up, groups, gradients, one spatial axis."""
    def forward_and_gradients(x: Any, w: Any, g: Any) -> Any:
        out = functional.conv2d(x, w, None, 2, 1)
        return out.relu() * 2, *[z * 1 for z in (fl.ops.prims.convolution_input_grad(g, w, tuple(x.shape), (2, 2), (1, 1), (1, 1), 1),
                                                 fl.ops.prims.convolution_weight_grad(g, x, tuple(w.shape), (2, 2), (1, 1), (1, 1), 1))]
    for kind in ("f4", BF16):
        triton.compiled(forward_and_gradients, _random(2, 3, 9, 8, kind=kind), _random(16, 3, 3, 3, kind=kind),
                        _random(2, 16, 5, 4, kind=kind))
    shapes = {c.x.shape[1] for c in calls if c.dtype == "bfloat16"}
    assert shapes == {8}, shapes
    assert all(c.x.strides[1] == 1 for c in calls)
    triton.compiled(lambda x, w: functional.conv2d(x + 1, w, None, 1, 1, 1, 4), _random(2, 8, 6, 6), _random(8, 2, 3, 3))
    triton.compiled(lambda x, w: functional.conv1d(x, w, None, 1, 1).sigmoid(), _random(2, 4, 9), _random(6, 4, 3))
    assert calls[-1].x.shape == (2, 4, 1, 9)


def pooling() -> None:
    """Compiled, and as generated kernels of eager execution; forward and backward, in both memory orders."""
    for kind in ("f4", BF16):
        x, g = _random(2, 8, 13, 10, kind=kind), _random(2, 8, 7, 5, kind=kind)
        x[0, 0, 4, 4] = np.nan
        window = ((3, 3), (2, 2), (1, 1), (1, 1))
        _, indices = fl.ops.registry.COMPOSITES["_max_pool"](fl.tensor(x), *window, False)

        def both(x: Any, g: Any, window: Any = window) -> Any:
            out, at = fl.ops.nn_windows._max_pool(x, *window, False)
            return out, at, fl.ops.nn_windows.max_pool_backward(g, at, tuple(x.shape), *window)
        triton.compiled(both, x, g)
        big = [triton.to_gpu(np.concatenate([a] * 4)) for a in (x, g, indices.numpy())]
        triton.generated("_max_pool", big[0], *window, False)
        triton.generated("max_pool_backward", big[1], big[2], (8, 8, 13, 10), *window)
        triton.generated("_avg_pool", big[0], (3, 3), (2, 2), (1, 1), False, False, None)
        triton.generated("avg_pool_backward", big[1], (8, 8, 13, 10), (3, 3), (2, 2), (1, 1), False, True, None)


def batch_norm() -> None:
    """Training and inference, forward and backward; the statistics of far-off values."""
    for kind in ("f4", BF16):
        x, g = _random(4, 8, 12, 12, kind=kind) + np.asarray(3, kind), _random(4, 8, 12, 12, kind=kind)
        w, b = _random(8), _random(8)
        last = triton.to_gpu(np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2))
        for values in (triton.to_gpu(x), last):
            triton.generated("_batch_norm_train", values, triton.to_gpu(w), triton.to_gpu(b), 1e-5)
            triton.generated("_batch_norm_eval", values, triton.to_gpu(w), triton.to_gpu(b), triton.to_gpu(w), triton.to_gpu(b * b), 1e-5)
        triton.compiled(lambda x, w, b: fl.ops.nn_norms._batch_norm_train(x.relu(), w, b, 1e-5), x, w, b)
        mean, rstd = x.astype("f4").mean((0, 2, 3)), 1 / x.astype("f4").std((0, 2, 3))
        triton.compiled(lambda g, x, m, r: fl.ops.nn_norms.batch_norm_backward_sums(g, x, m, r), g, x, mean, rstd)
    far = (RNG.standard_normal((16, 4, 20, 20)) * 1e-2 + 100).astype("f4")
    triton.compiled(lambda x: fl.ops.nn_norms._batch_norm_train(x, None, None, 1e-5)[1:], far)


CASES = {f.__name__: f for f in (convolutions, pooling, batch_norm)}


if __name__ == "__main__":
    install()
    for case in sys.argv[1:] or CASES:
        CASES[case]()
        print(f"{case} is right, {triton.launches[0]} launches")
