"""Accuracy of the scalar functions against higher precision: 2 units in the last place, and the values at the edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau import _C

mpmath = pytest.importorskip("mpmath", reason="mpmath is the reference for what long doubles lack")
if np.finfo(np.longdouble).nmant < 63:
    pytest.skip("long double is no more precise than double here", allow_module_level=True)

LONG = np.longdouble
TYPES = (np.float32, np.float64)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


# name -> (reference in long double, the range of arguments in float32, in float64)
WIDE: dict[str, tuple[Any, tuple[float, float], tuple[float, float]]] = {
    "exp": (np.exp, (-104, 88.7), (-745, 709.7)), "exp2": (np.exp2, (-150, 127.9), (-1075, 1023.9)),
    "expm1": (np.expm1, (-30, 88), (-50, 709)),
    "log": (np.log, (0, 3e38), (0, 1e308)), "log2": (np.log2, (0, 3e38), (0, 1e308)), "log10": (np.log10, (0, 3e38), (0, 1e308)),
    "log1p": (np.log1p, (-1, 3e38), (-1, 1e308)), "sin": (np.sin, (-1e9, 1e9), (-1e9, 1e9)), "cos": (np.cos, (-1e9, 1e9), (-1e9, 1e9)),
    "tan": (np.tan, (-1e9, 1e9), (-1e9, 1e9)), "asin": (np.arcsin, (-1, 1), (-1, 1)), "acos": (np.arccos, (-1, 1), (-1, 1)),
    "atan": (np.arctan, (-1e10, 1e10), (-1e10, 1e10)), "sinh": (np.sinh, (-88, 88), (-709, 709)), "cosh": (np.cosh, (-88, 88), (-709, 709)),
    "tanh": (np.tanh, (-20, 20), (-20, 20)), "asinh": (np.arcsinh, (-1e10, 1e10), (-1e10, 1e10)),
    "acosh": (np.arccosh, (1, 1e10), (1, 1e10)),
    "atanh": (np.arctanh, (-1, 1), (-1, 1)), "sigmoid": (_sigmoid, (-103, 40), (-745, 40)), "sqrt": (np.sqrt, (0, 3e38), (0, 1e308)),
}
# name -> (reference by mpmath, range)
FEW: dict[str, tuple[Any, tuple[float, float]]] = {
    "erf": (mpmath.erf, (-6, 6)), "erfc": (mpmath.erfc, (-6, 9)), "erfinv": (mpmath.erfinv, (-0.9999, 0.9999)),
    "lgamma": (lambda x: mpmath.re(mpmath.loggamma(x)), (0.05, 60)), "digamma": (mpmath.digamma, (2, 60)),
}


def points(lo: float, hi: float, kind: Any, count: int) -> np.ndarray:
    """Evenly over the range, towards zero over all scales, and near its ends."""
    r = np.random.default_rng(5)
    ends = np.where(r.random(count) < 0.5, hi, lo if lo < 0 else hi)
    scales = np.exp(r.uniform(np.log(1e-30), 0, count))
    x = np.concatenate([r.uniform(lo, hi, count), r.uniform(max(lo, -4), min(hi, 4), count), ends * scales, ends * (1 - scales)])
    return np.clip(x.astype(kind), kind(lo), kind(hi))


def ulps(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """The error in units of the last place of the exact result."""
    kind = got.dtype.type
    spacing = np.spacing(np.abs(want).astype(kind)).astype(LONG)
    return np.abs(got.astype(LONG) - want) / spacing


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", WIDE)
def test_within_2_ulp(name: str, kind: Any) -> None:
    reference, *ranges = WIDE[name]
    x = points(*ranges[kind is np.float64], kind, 20_000)
    with np.errstate(all="ignore"):
        want = reference(x.astype(LONG))
        got = _C.Elementwise(name).arrays(x)
        error = np.where(np.isfinite(want) & (np.abs(want) <= np.finfo(kind).max), ulps(got, want), 0)
    at = int(np.argmax(error))
    assert error[at] <= 2, f"{name}({x[at]!r}) = {got[at]!r}, exact {want[at]!r}: {error[at]} ulp"


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", FEW)
def test_special_functions_within_2_ulp(name: str, kind: Any) -> None:
    reference, (lo, hi) = FEW[name]
    x = points(lo, hi, kind, 100)
    with mpmath.workdps(40):
        exact = [reference(mpmath.mpf(float(v))) for v in x]
        got = _C.Elementwise(name).arrays(x)
        want = np.array([LONG(mpmath.nstr(v, 30)) for v in exact])
    limit = 8 if name == "digamma" else 2  # its recurrence adds up several roundings
    error = ulps(got, want)
    at = int(np.argmax(error))
    assert error[at] <= limit, f"{name}({x[at]!r}) = {got[at]!r}, exact {want[at]!r}: {error[at]} ulp"


@pytest.mark.parametrize("kind", TYPES)
def test_pow(kind: Any) -> None:
    r = np.random.default_rng(6)
    x = np.exp(r.uniform(-40, 40, 40_000)).astype(kind)
    y = r.uniform(-2, 2, x.size).astype(kind)
    y[::3] = np.rint(y[::3])
    with np.errstate(all="ignore"):
        want = np.power(x.astype(LONG), y.astype(LONG))
        assert ulps(_C.Elementwise("pow").arrays(x, y), want).max() <= 2
    whole = np.arange(1, 40, dtype=kind)
    assert np.array_equal(_C.Elementwise("pow").arrays(whole, kind(3)), whole * whole * whole)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_of_any_size(name: str, kind: Any) -> None:
    x = np.array([1e10, 1e22, 1e30, -3e38, 2.0**31, 2.0**63, 2.0**100, 6381956970095103.0], kind)
    x = np.append(x, np.array([1e300, -1.7e308, 2.0**1023], kind)) if kind is np.float64 else x
    with mpmath.workdps(400):
        want = np.array([LONG(mpmath.nstr(getattr(mpmath, name)(mpmath.mpf(float(v))), 30)) for v in x])
    assert ulps(_C.Elementwise(name).arrays(x), want).max() <= 2


def test_at_the_edges() -> None:
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0], np.float64)
    with np.errstate(all="ignore"):
        for name, (reference, _, _) in WIDE.items():
            want = reference(edges)
            for kind in TYPES:
                got = _C.Elementwise(name).arrays(edges.astype(kind))
                np.testing.assert_allclose(got, want, rtol=1e-6, err_msg=name)
                zeros = (want == 0) & (edges == 0)
                assert np.array_equal(np.signbit(got)[zeros], np.signbit(want)[zeros]), name


def test_subnormal_results_are_kept() -> None:
    assert torch.exp(torch.tensor(-100.0)).item() > 0 and torch.exp(torch.full((70_000,), -100.0))[-1].item() > 0
    assert torch.sigmoid(torch.tensor(-100.0)).item() > 0 and torch.exp2(torch.tensor(-140.0)).item() == 2.0**-140
