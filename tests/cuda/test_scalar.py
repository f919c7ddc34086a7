"""CuPy's reading of the scalar table against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau.core.scalar import BOOL, FOLDS, NUMPY, SCATTERED_BY, TABLE

cupy = pytest.importorskip("cupy")
kernels = pytest.importorskip("flambeau.backends.cuda.kernels")

ROWS = [op for op in TABLE.values() if op.name not in ("philox", "unit")]
DTYPES = {"F": (np.float32, np.float64), "I": (np.int32, np.int64, np.uint8), "B": (np.bool_,), "C": (np.complex64, np.complex128)}
COMPLEX = ("add", "sub", "mul", "truediv", "neg", "abs", "sign", "reciprocal", "exp", "sqrt", "sin", "tanh", "eq", "ne", "where", "real",
           "imag", "conj", "sigmoid")


def values(kind: Any, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, (7, 33))
    if np.dtype(kind).kind == "c":
        return (x + 1j * rng.uniform(-3, 3, x.shape)).astype(kind)
    if np.dtype(kind).kind == "f":
        x.flat[:4] = 0.0, -0.0, np.inf, np.nan
    return np.abs(x).astype(kind) if kind is np.uint8 else x.astype(kind)


@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
def test_a_row_means_the_same(op: Any) -> None:
    letters = (op.native or ("F" if op.name == "complex" else "")) + ("C" if op.name in COMPLEX else "")
    for kind in [kind for letter in letters for kind in DTYPES[letter]]:
        operands = [values(kind, seed) for seed in range(op.arity)]
        if op.name in ("shl", "shr"):
            operands[1] = np.abs(operands[1])
        if op.name == "where":
            operands[0] = operands[0] != 0
        if op.name in ("floordiv", "truncdiv", "remainder", "fmod") and np.dtype(kind).kind in "iu":
            operands[1] = np.where(operands[1] == 0, 1, operands[1]).astype(kind)
        with np.errstate(all="ignore"):
            want = getattr(NUMPY, op.name)(*operands)
        got = getattr(kernels.CupyScalars, op.name)(*map(cupy.asarray, operands))
        assert got.dtype == (np.bool_ if op.result == BOOL else want.dtype), (op.name, kind, got.dtype)
        assert got.flags.c_contiguous
        limit = 5e-5 if np.dtype(kind).itemsize in (4, 8) and np.asarray(want).real.dtype == np.float32 else 1e-10
        np.testing.assert_allclose(got.get(), want, rtol=limit, atol=limit, err_msg=f"{op.name} of {kind}")


def test_numbers_among_the_operands() -> None:
    x = cupy.asarray(values(np.float32, 0))
    for name in ("add", "pow", "maximum", "truediv", "truncdiv"):
        with np.errstate(all="ignore"):
            want = getattr(NUMPY, name)(x.get(), np.float32(2))
        got = getattr(kernels.CupyScalars, name)(x, np.float32(2))
        np.testing.assert_allclose(got.get(), want, rtol=1e-5, err_msg=name)


def test_every_fold_that_elements_meet_by_has_a_function() -> None:
    assert set(kernels._SCATTERS) == set(SCATTERED_BY)
    assert all(fold in FOLDS.values() for fold in SCATTERED_BY.values())


@pytest.mark.parametrize("kind", ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool", "complex128"])
@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin"])
def test_elements_that_meet_at_one_place(kind: str, reduce: str) -> None:
    if kind in ("bool", "complex128") and reduce != "sum":
        pytest.skip("numbers in order")
    rng = np.random.default_rng(0)
    most = 2 if "float" in kind else 6
    x, src = (fl.tensor(rng.uniform(-most, most, (5, 4))).to(getattr(fl, kind)) for _ in "ab")
    if "float" in kind and reduce != "sum":
        src[0, 0], x[2, 1] = float("nan"), float("nan")
    index = fl.tensor(rng.integers(0, 5, (5, 4)))
    want = x.scatter_reduce(0, index, src, reduce)
    got = x.cuda().scatter_reduce(0, index.cuda(), src.cuda(), reduce).cpu()
    assert fl.allclose(got.to(want.dtype), want, rtol=1e-2 if want.dtype.itemsize == 2 else 1e-6, equal_nan=True), (got, want)
    if reduce != "prod":
        assert fl.allclose(x.cuda().index_add(0, index[:, 0].cuda(), src.cuda()).cpu(), x.index_add(0, index[:, 0], src), rtol=1e-2,
                           equal_nan=True)


def test_numbers_as_indices_leave_no_dimension() -> None:
    x, at = fl.arange(12.0).reshape(3, 4), fl.tensor(2)
    assert x.cuda()[at.cuda()].shape == (4,) and x.cuda()[:, at.cuda()].shape == (3,) and x.cuda().take(at.cuda()).shape == ()
    assert fl.nonzero(fl.tensor(1.0).cuda()).shape == (1, 0) and fl.zeros(2, 0, 3).cuda()[1].T.shape == (3, 0)
    assert fl.full((2,), 1j).cuda().sum().item() == 2j and bool((fl.tensor([True, True]).cuda()[1:] + fl.tensor([True]).cuda()).all())


def test_quotients_that_are_whole() -> None:
    x = fl.tensor([-1.842, 1.509, -0.344, 1.154, -0.697, 0.846, -0.068, -0.929, -1.162, 0.933])
    assert fl.div(x.cuda(), x.cuda(), rounding_mode="trunc").tolist() == [1.0] * 10
    assert fl.div(x.cuda(), x.cuda(), rounding_mode="floor").tolist() == [1.0] * 10


def test_a_convolution_that_the_library_has_no_kernel_for() -> None:
    x = fl.ones(1, 1, 2, 2)
    w = fl.full((1, 1, 1, 1), 2.0)
    got = fl.nn.functional.conv_transpose2d(x.cuda()[:, :, :1, :1], w.cuda(), dilation=2, output_padding=1, stride=1)
    assert fl.equal(got.cpu(), fl.nn.functional.conv_transpose2d(x[:, :, :1, :1], w, dilation=2, output_padding=1, stride=1))
