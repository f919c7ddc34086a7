"""Matrix products over arrays against float64 NumPy."""

import ml_dtypes
import numpy as np
import pytest

from flambeau import _C
from flambeau.backends.cpu import blas, onednn

BF16 = np.dtype(ml_dtypes.bfloat16)
TOLERANCE = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-13, np.dtype(np.float16): 4e-3, BF16: 3e-2}
DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
SIZES = [(1, 1, 1), (4, 4, 4), (5, 7, 3), (64, 65, 33), (1, 512, 300), (300, 512, 1), (130, 77, 65), (200, 1, 400)]


def random(rng: np.random.Generator, *shape: int, dtype=np.float32) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


def assert_close(got: np.ndarray, want: np.ndarray) -> None:
    assert got.shape == want.shape
    scale = max(1.0, float(np.abs(want).max(initial=0)))
    assert np.abs(wide(got) - want).max(initial=0) <= TOLERANCE[got.dtype] * scale


@pytest.fixture(params=["onednn", "numpy"])
def library(request, monkeypatch):
    """Each test runs with oneDNN and with the NumPy kernels that stand in for it."""
    if request.param == "numpy":
        monkeypatch.setattr(blas, "available", lambda: False)
    elif not onednn.available():
        pytest.skip("oneDNN is not installed")
    return request.param


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n,k,m", SIZES)
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_mm(library, dtype, n, k, m, transposed) -> None:
    rng = np.random.default_rng(0)
    a = random(rng, k, n, dtype=dtype).T if transposed[0] else random(rng, n, k, dtype=dtype)
    b = random(rng, m, k, dtype=dtype).T if transposed[1] else random(rng, k, m, dtype=dtype)
    got = blas.mm(a, b)
    assert got.dtype == dtype and got.flags.c_contiguous
    assert_close(got, wide(a) @ wide(b))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n,k,m", [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0)])
def test_mm_of_nothing(library, dtype, n, k, m) -> None:
    got = blas.mm(np.ones((n, k), dtype), np.ones((k, m), dtype))
    assert got.shape == (n, m) and got.dtype == dtype and not got.any()


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_mm_odd_strides(library, dtype) -> None:
    rng = np.random.default_rng(1)
    a = random(rng, 80, 200, dtype=dtype)[::2, ::3]
    b = random(rng, 67, 90, 3, dtype=dtype)[:, :, 1]
    assert_close(blas.mm(a, b), wide(a) @ wide(b))
    column, b = np.broadcast_to(random(rng, 80, 1, dtype=dtype), (80, 90)), random(rng, 90, 40, dtype=dtype)
    assert_close(blas.mm(column, b), wide(column) @ wide(b))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.complex64, np.complex128, np.bool_])
def test_mm_other_dtypes(library, dtype) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 2, (40, 50)).astype(dtype), rng.integers(0, 2, (50, 60)).astype(dtype)
    got = blas.mm(a, b)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, np.matmul(a, b))


@pytest.mark.parametrize("dtype", DTYPES)
def test_bmm(library, dtype) -> None:
    rng = np.random.default_rng(3)
    a, b = random(rng, 6, 33, 40, dtype=dtype), random(rng, 6, 50, 40, dtype=dtype).swapaxes(1, 2)
    assert_close(blas.bmm(a, b), wide(a) @ wide(b))
    assert_close(blas.bmm(a, b[:1]), wide(a) @ wide(b[:1]))
    assert_close(blas.bmm(a, np.broadcast_to(b[:1], b.shape)), wide(a) @ wide(b[:1]))
    once = np.broadcast_to(a[:1], a.shape)
    assert_close(blas.bmm(once, np.broadcast_to(b[:1], b.shape)), wide(once) @ wide(b[:1]))
    assert blas.bmm(a[:0], b[:0]).shape == (0, 33, 50)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_bmm_of_attention_heads(library, dtype) -> None:
    """The heads of a projection are views whose batch axes cannot be merged."""
    rng = np.random.default_rng(4)
    q, k, v = random(rng, 3, 30, 3 * 4 * 16, dtype=dtype).reshape(3, 30, 3, 4, 16).transpose(2, 0, 3, 1, 4)
    scores = blas.bmm(q, k.swapaxes(-1, -2))
    assert_close(scores, wide(q) @ wide(k).swapaxes(-1, -2))
    assert_close(blas.bmm(scores, v), wide(scores) @ wide(v))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(40,), (9, 40), (5, 8, 40), (0, 40)])
def test_linear(library, dtype, bias, shape) -> None:
    rng = np.random.default_rng(5)
    x, w = random(rng, *shape, dtype=dtype), random(rng, 70, 40, dtype=dtype)
    b = random(rng, 70, dtype=dtype) if bias else None
    got = blas.linear(x, w, b)
    assert got.dtype == dtype
    assert_close(got, wide(x) @ wide(w).T + (0 if b is None else wide(b)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(50,), (1, 50), (60, 1), (60, 50), ()])
def test_addmm(library, dtype, shape) -> None:
    rng = np.random.default_rng(6)
    c = random(rng, *shape, dtype=dtype) if shape else np.array(2, dtype)
    a, b = random(rng, 60, 40, dtype=dtype), random(rng, 40, 50, dtype=dtype)
    assert_close(blas.addmm(c, a, b), wide(c) + wide(a) @ wide(b))


def test_the_thread_count_may_change() -> None:
    rng = np.random.default_rng(7)
    a, b = random(rng, 100, 200), random(rng, 200, 300)
    want, threads = wide(a) @ wide(b), _C.get_num_threads()
    try:
        for count in (1, 2, 1, threads):
            _C.set_num_threads(count)
            assert_close(blas.mm(a, b), want)
    finally:
        _C.set_num_threads(threads)
