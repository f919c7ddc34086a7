"""oneDNN operations as compiled graphs use them: post-ops, refusals, and calls from native code."""

import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from scipy import special

import flambeau
from flambeau import _C
from flambeau.backends.cpu import onednn
from flambeau.backends.cpu.onednn import Operand, PostOp, operand
from flambeau.core.scalar import POSTS
from flambeau.inductor.loop import post_ops
from tests.threads import in_threads

pytestmark = pytest.mark.skipif(not onednn.available(), reason="oneDNN is not installed")

ELEMENTWISE = {
    PostOp("relu"): lambda x: np.maximum(x, 0),
    PostOp("tanh"): np.tanh,
    PostOp("linear", 2.0, 0.5): lambda x: 2 * x + 0.5,
    PostOp("sigmoid"): special.expit,
    PostOp("gelu_tanh"): lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    PostOp("gelu_erf"): lambda x: 0.5 * x * (1 + special.erf(x / np.sqrt(2))),
}
BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


def random(*shape: int, dtype=np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


def matmul(a: np.ndarray, b: np.ndarray, out: np.ndarray, *extra: np.ndarray, **kwargs) -> int:
    """Makes the operation, and runs it with `extra` after the three operands. What oneDNN has kernels for depends on the processor:
    f32 with plain post-ops everywhere, narrower dtypes and longer chains where it says so."""
    try:
        op = onednn.matmul(operand(a), operand(b), operand(out), **kwargs)
    except NotImplementedError as refusal:
        if {a.dtype, b.dtype, out.dtype} == {np.dtype(np.float32)} and len(kwargs.get("post", ())) < 2:
            raise
        pytest.skip(f"{_C.instruction_set()}: {refusal}")
    onednn.run(op, a, b, out, *extra)
    return op


@pytest.mark.parametrize("post", ELEMENTWISE, ids=str)
def test_elementwise_post_ops(post) -> None:
    a, b, out = random(30, 20), random(20, 40, seed=1) * 0.3, np.empty((30, 40), np.float32)
    matmul(a, b, out, post=[post])
    np.testing.assert_allclose(out, ELEMENTWISE[post](wide(a) @ wide(b)), rtol=1e-5, atol=1e-5)


def test_every_named_post_op_is_tested() -> None:
    assert {p.kind for p in ELEMENTWISE} | BINARY.keys() == POSTS.keys() == _C.onednn_post_ops.keys()


@pytest.mark.parametrize("kind", sorted(kind for kind, row in POSTS.items() if row.exact))
@pytest.mark.parametrize("convolution", [False, True])
def test_what_is_called_exact_is_so_of_what_is_not_finite_or_huge(kind, convolution) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 60000, -60000, 1e-40, 0, -0.0, 20, -20, 100, -100, 1, -1], np.float32)
    y = np.full((16, 48), 1.5, np.float32)
    tensors = [y] if kind in BINARY else []
    post = [PostOp(kind, 0.5, 0.25, *map(operand, tensors)) if kind in ("linear", *BINARY) else PostOp(kind)]
    if convolution and not tensors:
        image, w, out = x.reshape(1, 1, 4, 4), np.ones((48, 1, 1, 1), np.float32), np.empty((1, 48, 4, 4), np.float32)
        op = onednn.conv("convolution", [operand(a, "free") for a in (image, w, out)], stride=(1, 1), padding=(0, 0), dilation=(1, 1),
                         post=post)
        onednn.run(op, image, w, out)
        out = out.reshape(48, 16).T
    else:
        out = np.empty((16, 48), np.float32)
        matmul(x[:, None], np.ones((1, 48), np.float32), out, *tensors, post=post)
    meant = post_ops.finish([post_ops.PostOp(kind, bool(tensors), 0.5, 0.25)], np.repeat(x[:, None], 48, 1), tensors)
    np.testing.assert_allclose(out, meant, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", BINARY)
@pytest.mark.parametrize("shape", [(30, 40), (40,), (1, 40), (1, 1)])
def test_binary_post_ops(kind, shape) -> None:
    a, b, out, other = random(30, 20), random(20, 40, seed=1), np.empty((30, 40), np.float32), random(*shape, seed=2) + 3
    matmul(a, b, out, other, post=[PostOp(kind, operand=operand(other))])
    np.testing.assert_allclose(out, BINARY[kind](wide(a) @ wide(b), wide(other)), rtol=1e-5, atol=1e-4)


def test_slow_reference_loops_are_refused() -> None:
    """One number a row is such a case."""
    out, column, full = (Operand(np.dtype(np.float32), shape, strides) for shape, strides in
                         (((30, 40), (40, 1)), ((30, 1), (1, 1)), ((30, 40), (40, 1))))
    a, b = operand(random(30, 20)), operand(random(20, 40))
    assert not onednn.implementation(onednn.matmul(a, b, out, post=[PostOp("add", operand=full)])).startswith("ref")
    with pytest.raises(NotImplementedError, match="reference loops"):
        onednn.matmul(a, b, out, post=[PostOp("add", operand=column)])


def test_broadcast_by_stride_zero() -> None:
    a, b, out = random(4, 30, 20), random(20, 40, seed=1), np.empty((4, 30, 40), np.float32)
    other = np.broadcast_to(random(40, seed=2), out.shape)
    matmul(a, np.broadcast_to(b, (4, 20, 40)), out, other, post=[PostOp("add", operand=operand(other))])
    np.testing.assert_allclose(out, wide(a) @ wide(b) + wide(other), rtol=1e-5, atol=1e-5)


def test_a_chain_of_post_ops_with_bias_and_residual() -> None:
    a, b, bias, residual = random(30, 20), random(40, 20, seed=1).T, random(40, seed=2), random(30, 40, seed=3)
    out = np.empty((30, 40), np.float32)
    post = [PostOp("gelu_erf"), PostOp("mul", operand=operand(residual)), PostOp("relu")]
    matmul(a, b, out, bias, residual, bias=operand(bias), post=post)
    gelu = ELEMENTWISE[PostOp("gelu_erf")](wide(a) @ wide(b) + bias)
    np.testing.assert_allclose(out, np.maximum(gelu * residual, 0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype,tolerance", [(ml_dtypes.bfloat16, 2e-2), (np.float16, 3e-3)])
def test_narrow_operands_with_wide_results(dtype, tolerance) -> None:
    a, b, bias = random(64, 96, dtype=dtype), random(96, 32, dtype=dtype, seed=1), random(32, seed=2)
    out = np.empty((64, 32), np.float32)
    matmul(a, b, out, bias, bias=operand(bias))
    np.testing.assert_allclose(out, wide(a) @ wide(b) + bias, atol=tolerance * 0.05)


def convolved(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """A 3 x 3 convolution, padded by one, in float64."""
    padded = np.pad(wide(x), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, wide(w))


CONV = dict(stride=(1, 1), padding=(1, 1), dilation=(1, 1))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("layout", ["given", "free"])
def test_convolution_with_post_ops_in_all_layouts(groups, layout) -> None:
    x, bias = random(2, 10, 12, 32).transpose(0, 3, 1, 2), random(48, seed=2)
    w = random(48, 32 // groups, 3, 3, seed=1)
    residual, out = random(2, 10, 12, 48, seed=3).transpose(0, 3, 1, 2), np.zeros((2, 10, 12, 48), np.float32).transpose(0, 3, 1, 2)
    op = onednn.conv("convolution", (operand(x), operand(w, layout), operand(out)), operand(bias), **CONV, groups=groups,
                     post=[PostOp("add", operand=operand(residual)), PostOp("relu")])
    onednn.run(op, x, w, out, bias, residual)
    parts = [convolved(x[:, i * 16 * 2 // groups:][:, :32 // groups], w[i * 48 // groups:][:48 // groups]) for i in range(groups)]
    want = np.concatenate(parts, axis=1) + bias.reshape(-1, 1, 1) + residual
    np.testing.assert_allclose(out, np.maximum(want, 0), rtol=1e-4, atol=1e-4)


def test_weight_gradient_with_bias_gradient() -> None:
    x, g = random(2, 16, 8, 8), random(2, 24, 8, 8, seed=1)
    gw, gb = np.empty((24, 16, 3, 3), np.float32), np.empty(24, np.float32)
    op = onednn.conv("convolution_weight_grad", [operand(array, "free") for array in (x, g, gw)], operand(gb), **CONV)
    onednn.run(op, x, g, gw, gb)
    np.testing.assert_allclose(gb, wide(g).sum((0, 2, 3)), rtol=1e-4, atol=1e-4)
    w = random(24, 16, 3, 3, seed=2)
    np.testing.assert_allclose((wide(gw) * w).sum(), (convolved(x, w) * g).sum(), rtol=1e-4)


def test_equal_descriptions_share_one_operation() -> None:
    a, b, out = (operand(np.empty(s, np.float32)) for s in ((3, 4), (4, 5), (3, 5)))
    assert onednn.matmul(a, b, out) == onednn.matmul(a, b, out)
    assert onednn.matmul(a, b, out) != onednn.matmul(a, b, out, post=[PostOp("relu")])


def test_refusals() -> None:
    f32 = np.dtype(np.float32)
    a, b, out = random(3, 4), random(4, 5), np.empty((3, 5), np.float32)
    op = onednn.matmul(operand(a), operand(b), operand(out))
    with pytest.raises(ValueError, match="operand 0"):
        onednn.run(op, random(3, 5), b, out)
    with pytest.raises(ValueError, match="operand 1"):
        onednn.run(op, a, random(5, 4).T, out)
    with pytest.raises(ValueError, match="operand 2"):
        onednn.run(op, a, b, out.astype(np.float64))
    frozen = out.copy()
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="operand 2 is read-only"):
        onednn.run(op, a, b, frozen)
    with pytest.raises(ValueError, match="operand 0"):
        onednn.run(op, a.astype(">f4"), b, out)
    with pytest.raises(TypeError, match="takes 3 arrays, got 2"):
        onednn.run(op, a, b)
    with pytest.raises(ValueError, match="not a oneDNN operation"):
        onednn.run(12345, a, b, out)
    with pytest.raises(ValueError, match="refuses"):
        onednn.matmul(operand(a), operand(a), operand(out))
    with pytest.raises(ValueError, match="above zero"):
        onednn.matmul(Operand(f32, (0, 4), (4, 1)), operand(b), Operand(f32, (0, 5), (5, 1)))
    with pytest.raises(ValueError, match="too early"):
        _C.onednn_create([0, 1, 3])


def test_threads_may_run_one_operation_at_once() -> None:
    a, b, failures = random(100, 60), random(60, 80, seed=1), []
    want = wide(a) @ wide(b)

    def work() -> None:
        out = np.empty((100, 80), np.float32)
        for _ in range(200):
            out[...] = 0
            matmul(a, b, out)
            if np.abs(out - want).max() > 1e-4:
                failures.append(out)

    in_threads(*[work] * 4)
    assert not failures


SOURCE = r"""
#include "runtime.h"
extern "C" __attribute__((visibility("default"))) int product(void** args, const int64_t* scalars, void* runtime) {
    FlambeauRuntime* rt = (FlambeauRuntime*)runtime;
    auto create = (int64_t (*)(const int64_t*, int64_t))rt->find("onednn_create");
    auto run = (int (*)(int64_t, void* const*))rt->find("onednn_run");
    auto last_error = (const char* (*)())rt->find("onednn_last_error");
    int64_t op = create(scalars + 1, scalars[0]);
    if (op == 0 || run(op, args) != 0) return rt->fail(rt, "%s", last_error());
    return 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    if not shutil.which("g++"):
        pytest.skip("no g++")
    folder = tmp_path_factory.mktemp("onednn")
    (folder / "product.cpp").write_text(SOURCE)
    command = ["g++", "-shared", "-fPIC", f"-I{Path(flambeau.__path__[0]) / 'include'}", "product.cpp", "-o", "product.so"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "product.so"


def test_native_code_creates_and_runs_operations(library) -> None:
    graph = _C.NativeGraph(library, "product", 3)
    for n in (30, 31):
        a, b, out = random(n, 20), random(20, 40, seed=1), np.empty((n, 40), np.float32)
        words = onednn.matmul_words(operand(a), operand(b), operand(out))
        graph([a, b, out], [len(words), *words])
        np.testing.assert_allclose(out, wide(a) @ wide(b), rtol=1e-5, atol=1e-5)
    with pytest.raises(RuntimeError, match="too early"):
        graph([a, b, out], [2, 0, 0])


def test_a_new_process_needs_nobody_to_load_the_library(library) -> None:
    script = f"""
import numpy as np
from flambeau import _C
from flambeau.backends.cpu import onednn
a, out = np.ones((4, 4), np.float32), np.empty((4, 4), np.float32)
words = onednn.matmul_words(onednn.operand(a), onednn.operand(a), onednn.operand(out))
_C.NativeGraph({str(library)!r}, "product", 3)([a, a, out], [len(words), *words])
assert (out == 4).all()
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_forked_children_compute_on_one_thread() -> None:
    """The OpenMP threads do not survive a fork: operations made before must not wait for them."""
    script = """
import os
import numpy as np
from flambeau.backends.cpu import blas, native
a, b = np.random.default_rng(0).standard_normal((2, 300, 300)).astype(np.float32)
want, total = blas.mm(a, b), native.large_sum(a, (0,))
child = os.fork()
if child == 0:
    same = np.allclose(blas.mm(a, b), want, atol=1e-4) and np.array_equal(native.large_sum(a, (0,)), total)
    os._exit(0 if same else 1)
assert os.waitpid(child, 0)[1] == 0
assert np.array_equal(blas.mm(a, b), want)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=60)
