"""CuPy's reading of the scalar table against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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
