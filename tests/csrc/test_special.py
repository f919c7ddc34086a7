"""The native loops of special functions against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau import _C

special = pytest.importorskip("scipy.special", reason="SciPy is the reference")
X = np.concatenate([np.linspace(-8, 8, 2001), [0.0, -0.0, np.inf, np.nan, 1e-30, 50, 300]])
Y = np.concatenate([np.linspace(-1, 1, 2001), 1 - 10.0 ** -np.arange(1, 16), [1e-20, 2, np.nan]])
CASES = {"erf": (special.erf, X), "erfc": (special.erfc, X), "erfinv": (special.erfinv, Y), "lgamma": (special.gammaln, X),
         "digamma": (special.psi, X), "sigmoid": (special.expit, X)}


@pytest.mark.parametrize("name", CASES)
def test_against_scipy(name):
    reference, points = CASES[name]
    native = _C.Elementwise(name).arrays
    np.testing.assert_allclose(native(points), reference(points), rtol=1e-11, atol=1e-14)
    single = points.astype("f4")
    got = native(single.reshape(2, -1)[:, ::-1] if single.size % 2 == 0 else single)
    assert got.dtype == np.float32
    np.testing.assert_allclose(native(single), reference(single.astype("f8")).astype("f4"), rtol=2e-7)

