"""Pooling over arrays against torch."""

import ml_dtypes
import numpy as np
import pytest

from flambeau.backends.cpu import pool

torch = pytest.importorskip("torch")
F = torch.nn.functional

BF16 = np.dtype(ml_dtypes.bfloat16)
TOLERANCE = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-14, np.dtype(np.float16): 2e-3, BF16: 2e-2}
DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]

# shape, kernel, stride, padding, dilation
CASES = {
    "1d": ((2, 3, 20), (3,), (2,), (1,), (1,)),
    "2d": ((2, 5, 9, 11), (2, 2), (2, 2), (0, 0), (1, 1)),
    "resnet": ((2, 20, 16, 15), (3, 3), (2, 2), (1, 1), (1, 1)),
    "overlapping": ((1, 17, 8, 8), (3, 2), (1, 1), (1, 0), (1, 1)),
    "dilated": ((2, 4, 12, 13), (3, 2), (2, 1), (1, 1), (2, 3)),
    "3d": ((1, 3, 6, 7, 8), (2, 3, 2), (2, 2, 1), (0, 1, 1), (1, 1, 1)),
    "many channels": ((1, 300, 6, 6), (3, 3), (2, 2), (1, 1), (1, 1)),
    "global": ((2, 5, 7, 7), (7, 7), (7, 7), (0, 0), (1, 1)),
}


def channels_last(x: np.ndarray) -> np.ndarray:
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)


def wide(x: np.ndarray):
    return torch.tensor(x.astype(np.float64), requires_grad=True)


def assert_close(got: np.ndarray, want) -> None:
    want = want.detach().numpy()
    assert got.shape == want.shape
    assert np.abs(got.astype(np.float64) - want).max(initial=0) <= TOLERANCE[got.dtype] * max(1, np.abs(want).max(initial=0))


def memory_order(x: np.ndarray) -> tuple[int, ...]:
    return tuple(sorted(range(x.ndim), key=lambda d: -x.strides[d]))


@pytest.fixture(params=["plain", "channels_last"])
def order(request):
    return channels_last if request.param == "channels_last" else lambda x: x


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_max_pool(order, dtype, ceil_mode, case) -> None:
    shape, *attrs = case
    rng = np.random.default_rng(0)
    x = order(np.round(rng.standard_normal(shape) * 4).astype(dtype))  # with ties
    tx = wide(x)
    want, where = [F.max_pool1d, F.max_pool2d, F.max_pool3d][len(shape) - 3](tx, *attrs, ceil_mode, return_indices=True)
    out, indices = pool.max_pool_with_indices(x, *attrs, ceil_mode)
    assert out.dtype == dtype and indices.dtype == np.int64
    assert_close(out, want)
    np.testing.assert_array_equal(indices, where.numpy())
    g = order(rng.standard_normal(out.shape).astype(dtype))
    want.backward(torch.tensor(g.astype(np.float64)))
    gx = pool.max_pool_backward(g, indices, shape)
    assert gx.dtype == dtype
    assert_close(gx, tx.grad)
    if len(shape) > 3 and shape[1] > 1 and max(out.shape[2:]) > 1:
        assert memory_order(out) == memory_order(x) == memory_order(gx)


def test_max_pool_of_nan_and_infinity(order) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 18, 9, 9)).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    x[0, :9] = -np.inf
    want, where = F.max_pool2d(torch.tensor(x), 3, 2, 1, return_indices=True)
    out, indices = pool.max_pool_with_indices(order(x), (3, 3), (2, 2), (1, 1), (1, 1))
    np.testing.assert_array_equal(out, want.numpy())
    np.testing.assert_array_equal(indices, where.numpy())


def test_max_pool_of_integers() -> None:
    x = np.random.default_rng(2).integers(-9, 9, (2, 3, 8, 9))
    want, where = F.max_pool2d(torch.tensor(x), 3, 2, 1, return_indices=True)
    out, indices = pool.max_pool_with_indices(x, (3, 3), (2, 2), (1, 1), (1, 1))
    np.testing.assert_array_equal(out, want.numpy())
    np.testing.assert_array_equal(indices, where.numpy())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("include,divisor", [(True, None), (False, None), (True, 3)])
@pytest.mark.parametrize("case", [c for c in CASES.values() if max(c[-1]) == 1])
def test_avg_pool(order, dtype, ceil_mode, include, divisor, case) -> None:
    shape, *attrs, _ = case
    if len(shape) == 3 and divisor:
        pytest.skip("avg_pool1d has no divisor")
    rng = np.random.default_rng(3)
    x = order(rng.standard_normal(shape).astype(dtype))
    tx = wide(x)
    more = () if len(shape) == 3 else (divisor,)
    want = [F.avg_pool1d, F.avg_pool2d, F.avg_pool3d][len(shape) - 3](tx, *attrs, ceil_mode, include, *more)
    out = pool.avg_pool(x, *attrs, ceil_mode, include, divisor)
    assert_close(out, want)
    g = order(rng.standard_normal(out.shape).astype(dtype))
    want.backward(torch.tensor(g.astype(np.float64)))
    assert_close(pool.avg_pool_backward(g, shape, *attrs, ceil_mode, include, divisor), tx.grad)


@pytest.mark.parametrize("sizes", [(1, 1), (3, 4), (7, 5), (9, 11), (12, 2)])
def test_adaptive_pools(order, sizes) -> None:
    rng = np.random.default_rng(4)
    x = order(rng.standard_normal((2, 6, 9, 11)).astype(np.float32))
    tx = wide(x)
    want = F.adaptive_avg_pool2d(tx, sizes)
    out = pool.adaptive_avg_pool(x, sizes)
    assert_close(out, want)
    g = order(rng.standard_normal(out.shape).astype(np.float32))
    want.backward(torch.tensor(g.astype(np.float64)))
    assert_close(pool.adaptive_avg_pool_backward(g, x.shape), tx.grad)
    want, where = F.adaptive_max_pool2d(wide(x), sizes, return_indices=True)
    out, indices = pool.adaptive_max_pool_with_indices(x, sizes)
    assert_close(out, want)
    np.testing.assert_array_equal(indices, where.numpy())


def test_odd_strides_and_no_rows() -> None:
    x = np.random.default_rng(5).standard_normal((2, 8, 12, 10)).astype(np.float32)[:, ::2, ::-1].swapaxes(2, 3)
    x = x[..., ::2]
    want = F.avg_pool2d(torch.tensor(x.copy()), 2, 2)
    assert_close(pool.avg_pool(x, (2, 2), (2, 2), (0, 0)), want)
    want, where = F.max_pool2d(torch.tensor(x.copy()), 2, 2, return_indices=True)
    out, indices = pool.max_pool_with_indices(x, (2, 2), (2, 2), (0, 0), (1, 1))
    assert_close(out, want)
    np.testing.assert_array_equal(indices, where.numpy())
    g = np.broadcast_to(np.float32(2), out.shape)
    assert pool.max_pool_backward(g, indices, x.shape).sum() == g.sum()
    nothing, _ = pool.max_pool_with_indices(x[:0], (2, 2), (2, 2), (0, 0), (1, 1))
    assert nothing.shape == (0, *out.shape[1:])
    assert pool.max_pool_backward(nothing, _, (0, *x.shape[1:])).shape == (0, *x.shape[1:])


def test_bad_input() -> None:
    x = np.zeros((1, 1, 4, 4), np.float32)
    with pytest.raises(RuntimeError, match="does not fit"):
        pool.avg_pool(x, (7, 7), (1, 1), (0, 0))
    with pytest.raises(NotImplementedError, match="int64"):
        pool.avg_pool(x.astype(np.int64), (2, 2), (2, 2), (0, 0))
    with pytest.raises(ValueError, match="outside its plane"):
        pool.max_pool_backward(np.ones((1, 1, 1, 1), np.float32), np.full((1, 1, 1, 1), 16), x.shape)
