"""The scalar table: every row has every reading, and the NumPy readings keep their edge cases."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from flambeau.core import dtypes
from flambeau.core.scalar import NUMPY, TABLE, evaluate, philox_word, result_dtype


def test_every_row_has_every_column() -> None:
    for op in TABLE.values():
        assert callable(getattr(NUMPY, op.name))
        for template in (op.cpp, op.triton):
            template.format(*["x"] * op.arity)
            assert f"{{{op.arity - 1}}}" in template


def test_unknown_operation_names_the_known_ones() -> None:
    with pytest.raises(AttributeError, match=r"no scalar operation 'frob'.*sigmoid"):
        NUMPY.frob(1)


def test_philox_known_answers() -> None:
    # Random123's known-answer vectors for philox4x32-10 with an all-zero counter and key.
    words = philox_word(0, 0, np.arange(4))
    assert words.tolist() == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_unit_is_uniform_and_below_one() -> None:
    u = NUMPY.unit(NUMPY.philox(np.int64(42), np.arange(100_000) // 4, np.arange(100_000) % 4))
    assert u.dtype == np.float32 and u.min() >= 0 and u.max() < 1
    assert abs(u.mean() - 0.5) < 5e-3 and abs(u.var() - 1 / 12) < 2e-3
    assert NUMPY.unit(np.uint32(0xFFFFFFFF)) < 1


def test_rounding_of_integer_divisions() -> None:
    x, y = np.array([7, -7, 7, -7, 0]), np.array([2, 2, -2, -2, 3])
    assert NUMPY.floordiv(x, y).tolist() == [3, -4, -4, 3, 0]
    assert NUMPY.truncdiv(x, y).tolist() == [3, -3, -3, 3, 0]
    assert NUMPY.remainder(x, y).tolist() == [1, 1, -1, -1, 0]
    assert NUMPY.fmod(x, y).tolist() == [1, -1, 1, -1, 0]


def test_nan_propagates_through_maximum_and_relu() -> None:
    x = np.array([np.nan, 1.0], np.float32)
    assert np.isnan(NUMPY.maximum(x, np.float32(0))[0]) and np.isnan(NUMPY.relu(x)[0])
    assert NUMPY.fmax(x, np.float32(0))[0] == 0 and NUMPY.sign(x)[0] == 0


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_round_once(kind: type) -> None:
    x = np.linspace(-3, 3, 1001).astype(kind)
    wide = x.astype(np.float32)
    got = evaluate(lambda o, x: o.mul(o.mul(x, 0.5), o.add(o.erf(o.mul(x, 0.7071)), 1.0)), x)
    want = evaluate(lambda o, x: o.mul(o.mul(x, 0.5), o.add(o.erf(o.mul(x, 0.7071)), 1.0)), wide).astype(kind)
    assert got.dtype == kind and np.array_equal(got, want)


def test_quiet() -> None:
    x = np.zeros(3, np.float32)
    assert np.isnan(evaluate(lambda o, x: o.truediv(x, x), x)).all()
    assert np.isinf(evaluate(lambda o, x: o.log(x), x)).all()


def test_result_dtypes() -> None:
    f, b = dtypes.float64, dtypes.bool_
    assert result_dtype(TABLE["add"], [f, f]) is f
    assert result_dtype(TABLE["lt"], [f, f]) is b
    assert result_dtype(TABLE["where"], [b, f, f]) is f
    assert result_dtype(TABLE["abs"], [dtypes.complex64]) is dtypes.float32
    assert evaluate(lambda o, x: o.to_dtype(x, dtypes.int32), np.array([1.7, -1.7])).tolist() == [1, -1]


@pytest.mark.parametrize("name", ["erf", "erfc", "erfinv", "lgamma", "digamma"])
def test_what_has_native_loops_alone_refuses_other_numbers(name):
    with pytest.raises(NotImplementedError, match=f'"{name}_cpu" not implemented for complex64'):
        getattr(NUMPY, name)(np.ones(2, np.complex64))
