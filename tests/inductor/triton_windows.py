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
from flambeau.aot.trace import make_fx
from flambeau.backends.cpu import conv as cpu
from flambeau.backends.cuda.dnn_library import Convolution, Operand
from flambeau.core import storage
from flambeau.core.device import device
from flambeau.core.dtypes import DTYPES
from flambeau.core.tensor import bump_version, from_array
from flambeau.inductor.graph import compile_graph

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

    def call(x: int, w: int, y: int) -> None:
        a, b, c = _at(x, conv.x, kind), _at(w, conv.w, kind), _at(y, conv.y, kind)
        if conv.kind == "convolution":
            c[...] = cpu.convolution(a, b, None, *window, groups)
        elif conv.kind == "convolution_input_grad":
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
        triton.compiled(forward_and_gradients, _random(2, 5, 9, 8, kind=kind), _random(16, 5, 3, 3, kind=kind),
                        _random(2, 16, 5, 4, kind=kind))
    shapes = [c.x.shape[1] for c in calls if c.dtype == "bfloat16"]
    assert shapes == [16] * 3 + [8] * 3, shapes     # blocks of pixels, words
    assert all(c.x.strides[1] == 1 for c in calls)
    triton.compiled(lambda x, w: functional.conv2d(x + 1, w, None, 1, 1, 1, 4), _random(2, 8, 6, 6), _random(8, 2, 3, 3))
    triton.compiled(lambda x, w: functional.conv1d(x, w, None, 1, 1).sigmoid(), _random(2, 4, 9), _random(6, 4, 3))
    assert calls[-1].x.shape == (2, 4, 1, 9)


def blocks() -> None:
    """Few channels and a stride, in blocks of pixels: forward and gradients. Sums of small integers are exact in any order."""
    prims = fl.ops.prims

    def small(*shape: int) -> np.ndarray:
        return RNG.integers(-1, 2, shape).astype("f2")
    windows = [((3, 14, 12), (7, 7), (2, 2), (3, 3)), ((1, 9, 11), (2, 5), (2, 3), (1, 0)), ((4, 8, 12), (4, 4), (4, 4), (0, 0)),
               ((2, 11, 7), (3, 3), (2, 2), (1, 1)), ((3, 10, 10), (3, 2), (3, 2), (2, 1))]
    for image, kernel, stride, padding in windows:
        window = (stride, padding, (1, 1), 1)
        x, w = small(2, *image), small(5, image[0], *kernel)
        g = small(*functional.conv2d(fl.tensor(x), fl.tensor(w), None, stride, padding).shape)

        def fn(x: Any, w: Any, g: Any, window: Any = window) -> Any:
            return (functional.conv2d(x, w, None, *window[:2]), prims.convolution_input_grad(g, w, tuple(x.shape), *window),
                    prims.convolution_weight_grad(g, x * 1, tuple(w.shape), *window))
        calls.clear()
        with fl.core.dispatch.fake_mode():
            fakes = [fl.empty(a.shape, dtype=fl.float16, device="cuda") for a in (x, w, g)]
        got = compile_graph(make_fx(fn)(*fakes))([from_array(triton.to_gpu(a), None, device("cuda", 0)) for a in (x, w, g)])
        assert [c.window.stride for c in calls] == [(1, 1)] * 3 and all(c.x.shape[1] >= image[0] * math.prod(stride) for c in calls)
        for a, b in zip(got, fn(*map(fl.tensor, (x, w, g)))):
            np.testing.assert_array_equal(np.asarray(a._data), b.numpy())


def settled() -> None:
    """What is made of parameters alone is made once, and again when one of them is written, replaced or given away."""
    def fn(x: Any, w: Any, scale: Any) -> Any:
        return functional.conv2d(x, (w * scale.exp()).to(x.dtype), None, 1, 1).relu()
    x, w, scale = _random(2, 8, 6, 6, kind=BF16), _random(8, 8, 3, 3), _random(8, 1, 1, 1)
    with fl.core.dispatch.fake_mode():
        fakes = [fl.empty(a.shape, dtype=fl.tensor(a).dtype, device="cuda") for a in (x, w, scale)]
    gm = make_fx(fn)(*fakes)
    for node, learned in zip([n for n in gm.graph.nodes if n.op == "placeholder"], (False, True, True)):
        node.meta["parameter"] = learned
    graph = compile_graph(gm)
    tensors = [from_array(triton.to_gpu(a), None, device("cuda", 0)) for a in (x, w, scale)]

    def launches_of_a_call() -> int:
        before = triton.launches[0]
        got = graph(list(tensors))[0]._data
        triton.close(got, fn(*[fl.tensor(np.array(t._data)) for t in tensors]))
        return triton.launches[0] - before
    first = launches_of_a_call()
    again = launches_of_a_call()
    assert again < first and launches_of_a_call() == again, (first, again)
    kept = None
    for position in (1, 2):
        tensors[position]._data[...] *= 1.5
        bump_version(tensors[position])
        assert launches_of_a_call() == first and launches_of_a_call() == again
        now = graph.call.state.kept      # type: ignore[union-attr]
        assert kept is None or now is kept, "in the memory that recordings read"
        kept = now
    tensors[1] = from_array(triton.to_gpu(_random(8, 8, 3, 3)), None, device("cuda", 0))
    assert launches_of_a_call() == first and launches_of_a_call() == again
    assert all(a is not b for a, b in zip(kept, graph.call.state.kept)), "the old memory may be in use"    # type: ignore[union-attr]
    storage.unseen_writes[0] += 1
    assert launches_of_a_call() == first and launches_of_a_call() == again
    storage.shared.add(tensors[2]._storage)
    assert launches_of_a_call() == first and launches_of_a_call() == first
    tensors.clear()
    assert graph.call.state is None, "nothing is kept of parameters that are gone"     # type: ignore[union-attr]


def pooling() -> None:
    """Compiled, and as generated kernels of eager execution; forward and backward, in both memory orders."""
    for kind in ("f4", BF16):
        x, g = _random(2, 8, 13, 10, kind=kind), _random(2, 8, 7, 5, kind=kind)
        x[0, 0, 4, 4] = np.nan
        window = ((3, 3), (2, 2), (1, 1), (1, 1))
        _, indices = fl.ops.registry.COMPOSITES["_max_pool"](fl.tensor(x), *window, False)

        def both(x: Any, g: Any, window: Any = window) -> Any:
            out, at = fl.ops.nn.windows._max_pool(x, *window, False)
            return out, at, fl.ops.nn.windows.max_pool_backward(g, at, tuple(x.shape), *window)
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
        triton.compiled(lambda x, w, b: fl.ops.nn.norms._batch_norm_train(x.relu(), w, b, 1e-5), x, w, b)
        mean, rstd = x.astype("f4").mean((0, 2, 3)), 1 / x.astype("f4").std((0, 2, 3))
        triton.compiled(lambda g, x, m, r: fl.ops.nn.norms.batch_norm_backward_sums(g, x, m, r), g, x, mean, rstd)
    far = (RNG.standard_normal((16, 4, 20, 20)) * 1e-2 + 100).astype("f4")
    triton.compiled(lambda x: fl.ops.nn.norms._batch_norm_train(x, None, None, 1e-5)[1:], far)


CASES = {f.__name__: f for f in (convolutions, blocks, settled, pooling, batch_norm)}


if __name__ == "__main__":
    install()
    for case in sys.argv[1:] or CASES:
        CASES[case]()
        print(f"{case} is right, {triton.launches[0]} launches")
