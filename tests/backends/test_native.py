"""Native copies, casts, row operations and sums against NumPy."""

import math

import ml_dtypes
import numpy as np
import pytest

from flambeau import _C
from flambeau.backends.cpu import native

BF16 = np.dtype(ml_dtypes.bfloat16)
NUMBERS = [BF16, *map(np.dtype, ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"))]
SHAPE = (33, 70, 9)  # large enough for the native loops


def sample(dtype: np.dtype, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.integers(0, 100, shape) if dtype.kind != "b" else rng.integers(0, 2, shape)).astype(dtype)


@pytest.mark.parametrize("to", NUMBERS, ids=str)
@pytest.mark.parametrize("from_", NUMBERS, ids=str)
def test_cast(to, from_) -> None:
    x = sample(from_)
    want = x.astype(np.float64).astype(to)
    np.testing.assert_array_equal(native.cast(x, to), want)
    flipped = native.cast(x.transpose(2, 0, 1), to)
    np.testing.assert_array_equal(flipped, want.transpose(2, 0, 1))
    every_other = x[:, ::2]
    np.testing.assert_array_equal(native.cast(every_other, to), want[:, ::2])


def assert_same_bits(got: np.ndarray, want: np.ndarray) -> None:
    """Equal bits, or both NaN."""
    nan = np.isnan(want.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), nan)
    np.testing.assert_array_equal(got.view(np.uint16)[~nan], want.view(np.uint16)[~nan])


@pytest.mark.parametrize("narrow", [np.dtype(np.float16), BF16], ids=str)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_narrow_floats_round_as_ieee_says(narrow) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(narrow)
    wide = native.cast(every, np.dtype(np.float32))
    np.testing.assert_array_equal(wide, every.astype(np.float32))
    assert_same_bits(native.cast(wide, narrow), every)
    words = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, dtype=np.uint32).view(np.float32)
    close = np.nextafter(wide, np.float32(np.inf))
    middle = (wide[:-1] + wide[1:]) / 2
    for x in (words, close, middle):
        assert_same_bits(native.cast(x, narrow), x.astype(narrow))
        spread = np.empty(2 * x.size, np.float32)[::2]  # another loop: one element at a time
        spread[...] = x
        assert_same_bits(native.cast(spread, narrow), x.astype(narrow))


COPIED = [np.dtype(t) for t in (np.int8, np.float16, np.float32, np.float64, np.complex128, "datetime64[s]", "S3")]


@pytest.mark.parametrize("dtype", COPIED, ids=str)
@pytest.mark.parametrize("axes", [(2, 1, 0), (0, 2, 1), (1, 0, 2), (2, 0, 1), (1, 2, 0)])
def test_transposing_copy(dtype, axes) -> None:
    x = np.arange(37 * 41 * 19).reshape(37, 41, 19).astype(dtype)
    out = native.contiguous(x.transpose(axes))
    assert out.flags.c_contiguous
    np.testing.assert_array_equal(out, x.transpose(axes))
    back = np.zeros_like(x)
    native.copy_strided(back.transpose(axes), out)
    np.testing.assert_array_equal(back, x)


def test_copy_layouts() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((4, 37, 29, 31)).astype(np.float32)
    views = [x, x[:, ::2], x[:, :, ::-1], x[..., 3:], x.transpose(0, 2, 3, 1), x.transpose(3, 1, 0, 2)[1:],
             np.broadcast_to(x[:1], x.shape), np.broadcast_to(x[..., :1], x.shape),
             np.broadcast_to(x[:, :1], x.shape).transpose(0, 2, 3, 1)]
    for view in views:
        np.testing.assert_array_equal(native.copy_strided(np.empty(view.shape, np.float32), view), view)
        target = np.zeros((*view.shape[:-1], 2 * view.shape[-1]), np.float64)
        native.copy_strided(target[..., ::2], view)
        np.testing.assert_array_equal(target[..., ::2], view)
        assert not target[..., 1::2].any()
    np.testing.assert_array_equal(native.copy_strided(np.empty(x.shape, np.float32), x[0, 0]), np.broadcast_to(x[0, 0], x.shape))


def test_types_that_numpy_must_convert() -> None:
    x = np.arange(40_000)
    for from_, to in ((">f4", "<f4"), ("M8[s]", "M8[ms]"), ("S5", "S7"), ("f4", "O"), ("O", "O"), ("f4", "c8")):
        source = x.astype(from_)
        np.testing.assert_array_equal(native.copy_strided(np.zeros(x.shape, to), source), source.astype(to))


def test_overlapping_copy() -> None:
    x = np.arange(1 << 16, dtype=np.float32)
    want = x[:-1].copy()
    native.copy_strided(x[1:], x[:-1])
    np.testing.assert_array_equal(x[1:], want)


def test_copy_refusals() -> None:
    x = np.zeros(10, np.float32)
    with pytest.raises(ValueError, match="shapes differ"):
        _C.copy_strided(x, x[:5])
    x.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        _C.copy_strided(x, x.copy())


@pytest.mark.parametrize("dtype", [*NUMBERS, np.dtype(np.complex64)], ids=str)
@pytest.mark.parametrize("size", [5, 100_003])
def test_fill(dtype, size) -> None:
    out = native.fill(np.zeros(size, dtype), 1)
    assert (out == np.array(1, dtype)).all()
    strided = native.fill(np.zeros((size, 2), dtype)[:, 1], 1)
    assert (strided == np.array(1, dtype)).all()


@pytest.mark.parametrize("dtype", [*NUMBERS, np.dtype(np.complex64)], ids=str)
def test_take_rows(dtype) -> None:
    table, index = sample(dtype, (50, 7, 33)), np.random.default_rng(2).integers(0, 50, (40, 11))
    np.testing.assert_array_equal(native.take_rows(table, index), table[index])
    view = table[:, ::2].swapaxes(1, 2)
    np.testing.assert_array_equal(native.take_rows(view, index.T.astype(np.int32)), view[index.T])
    assert native.take_rows(table, index[:0]).shape == (0, 11, 7, 33)
    for bad in (-1, 50):
        index[3, 4] = bad
        with pytest.raises(IndexError, match=f"index {bad} at position 37 of a table of 50 rows"):
            native.take_rows(table, index)
    with pytest.raises(IndexError):
        native.take_rows(table[:0], np.array([0]))


@pytest.mark.parametrize("dtype", [d for d in NUMBERS if d.kind != "b"], ids=str)
def test_add_rows(dtype) -> None:
    rng = np.random.default_rng(3)
    index, rows = rng.integers(0, 20, (30, 10)), rng.integers(0, 2, (30, 10, 50)).astype(dtype)
    table = rng.integers(0, 9, (20, 50)).astype(dtype)
    want = table.astype(np.int64)
    np.add.at(want, index, rows.astype(np.int64))
    np.testing.assert_array_equal(native.add_rows(table.copy(), index, rows).astype(np.int64), want)
    np.testing.assert_array_equal(native.index_add(table, 0, index, rows).astype(np.int64), want)
    with pytest.raises(IndexError):
        native.add_rows(table, index + 1, rows)


def test_add_rows_does_not_depend_on_threads() -> None:
    rng = np.random.default_rng(4)
    index, rows = rng.integers(0, 65, 4096), rng.standard_normal((4096, 130)).astype(np.float32)
    results, threads = [], _C.get_num_threads()
    try:
        for count in (1, 2, 3):
            _C.set_num_threads(count)
            added = native.add_rows(np.zeros((65, 130), np.float32), index, rows)
            results.append((added, *(native.large_sum(rows, dims) for dims in ((0,), (1,), (0, 1)))))
    finally:
        _C.set_num_threads(threads)
    for other in results[1:]:
        for a, b in zip(results[0], other):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16), BF16], ids=str)
@pytest.mark.parametrize("shape,dims", [
    ((300_000,), (0,)), ((2048, 384), (0,)), ((2048, 384), (1,)), ((2048, 384), (0, 1)), ((33, 70, 90), (1,)),
    ((33, 70, 90), (0, 1)), ((33, 70, 90), (1, 2)), ((1, 100_000), (1,)), ((100_000, 1), (0,)), ((4, 20, 30, 31), (0, 2, 3)),
    ((3, 5000, 3), (-2,)), ((2, 10_000), (1,)), ((30_000, 3), (1,)), ((7, 900, 3), (2,)),
])
@pytest.mark.parametrize("order", ["C", "F", "channels_last"])
def test_large_sum(dtype, shape, dims, order) -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal(shape).astype(dtype)
    if order == "F":
        x = np.asfortranarray(x)
    elif x.ndim == 4:
        x = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    got = native.large_sum(x, dims)
    exact = x.astype(np.longdouble)
    want = exact.sum(axis=dims)
    assert got.dtype == dtype and got.shape == want.shape and got.flags.c_contiguous
    allowed = float(ml_dtypes.finfo(dtype).eps) * np.abs(exact).sum(axis=dims)
    assert (np.abs(got.astype(np.longdouble) - want) <= allowed).all()


def test_large_sum_is_accurate() -> None:
    """Ten million times 0.1 in f32: a plain running sum is off by a tenth."""
    got = native.large_sum(np.full((10_000_000, 1), 0.1, np.float32), (0,))
    assert abs(float(got[0]) - 1e6) < 1
    columns = native.large_sum(np.full((1_000_000, 4), 0.1, np.float32), (0,))
    assert np.abs(columns - 1e5).max() < 0.5


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("product", [False, True])
@pytest.mark.parametrize(("shape", "dim"), [
    ((7, 33), 1), ((7, 33), 0), ((3, 40, 5), 1), ((2, 9, 1500), 1), ((5,), 0), ((3, 0, 2), 1)])
@pytest.mark.parametrize("dtype", [np.float16, BF16, np.float32, np.float64, np.int64], ids=str)
def test_scans(dtype, shape, dim, product, reverse) -> None:
    rng = np.random.default_rng(0)
    x = (rng.integers(-3, 4, shape) if dtype is np.int64 else rng.uniform(0.5, 1.4, shape)).astype(dtype)
    wide = np.flip(x.astype(np.int64 if dtype is np.int64 else np.float64), dim if reverse else ())
    want = np.flip((np.cumprod if product else np.cumsum)(wide, dim), dim if reverse else ())
    got = native.scan(x, dim, product, reverse)
    assert got is not None and got.dtype == x.dtype
    np.testing.assert_allclose(got.astype(wide.dtype), want, rtol={2: 1e-2, 4: 1e-6, 8: 1e-13}[x.itemsize])


def test_f32_is_added_up_in_f64() -> None:
    x = np.full(1 << 20, 0.1, np.float32)
    np.testing.assert_allclose(native.scan(x, 0, False, False)[-1], x.astype(np.float64).sum(), rtol=1e-7)


def test_scans_of_other_dtypes_are_left_to_numpy() -> None:
    assert native.scan(np.ones((2, 3), np.complex64), 1, False, False) is None


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize(("shape", "dim"), [
    ((7, 33), 1), ((9, 33), 1), ((7, 33), 0), ((3, 40, 5), 1), ((2, 9, 1500), 1), ((5,), 0), ((3, 0, 2), 1), ((3, 2, 0), 1)])
@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int16, np.int64, np.float16, BF16, np.float32, np.float64], ids=str)
def test_running_extrema(dtype, shape, dim, largest) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, shape).astype(np.float64)
    if np.dtype(dtype).kind not in "bui":
        x[rng.random(shape) < 0.05] = np.nan
        x[rng.random(shape) < 0.05] = np.inf
    values, places = native.scan_best(np.asfortranarray(x.astype(dtype)), dim, largest)
    wide = x.astype(dtype).astype(np.float64)
    count = math.prod(shape) // max(shape[dim], 1)
    for row, value, place in zip(*(np.moveaxis(a, dim, -1).reshape(count, shape[dim]) for a in (wide, values, places))):
        best = 0
        for i, v in enumerate(row):
            better = v >= row[best] if largest else v <= row[best]
            best = i if better or np.isnan(v) else best
            assert place[i] == best
        np.testing.assert_array_equal(value.astype(np.float64), row[place])
