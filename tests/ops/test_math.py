"""Comparisons of whole tensors, special functions, number theory and integration, against torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

import flambeau as fl

RNG = np.random.default_rng(6)
X = RNG.standard_normal((3, 4))
P = RNG.uniform(0.2, 3, (3, 4))
U = RNG.uniform(0.05, 0.95, (3, 4))
I, J = RNG.integers(1, 60, (3, 4)), RNG.integers(1, 60, (3, 4))

CASES = {
    "isclose": (lambda t, x: t.isclose(x, x + 1e-9), X),
    "isclose nan": (lambda t, x: t.isclose(x / 0, x / 0, equal_nan=True), X),
    "isclose integers": (lambda t, x, y: t.isclose(x, y), I, J),
    "allclose": (lambda t, x: t.allclose(x, x * (1 + 1e-6)), X),
    "equal": (lambda t, x: t.equal(x, x.clone()), X),
    "not equal": (lambda t, x: t.equal(x, x[:2]), X),
    "isposinf": (lambda t, x: t.isposinf(x / 0), X),
    "isneginf": (lambda t, x: t.isneginf(x / 0), X),
    "isreal": (lambda t, x: t.isreal(x + 0j), X),
    "positive": (lambda t, x: +x, X),
    "gcd": (lambda t, x, y: t.gcd(x, y), I, J),
    "lcm": (lambda t, x, y: t.lcm(x, y), I, J),
    "ldexp": (lambda t, x, y: t.ldexp(x, y % 5), X, I),
    "frexp": (lambda t, x: t.frexp(x), X),
    "logaddexp": (lambda t, x, y: t.logaddexp(x, y), X, P),
    "logaddexp2": (lambda t, x, y: t.logaddexp2(x, y), X, P),
    "trapezoid": (lambda t, x: t.trapezoid(x, dx=0.5, dim=0), X),
    "trapezoid over points": (lambda t, x, y: t.trapezoid(x, y), X, P.cumsum(1)),
    **{f"areas over {x} along {d} of {y}": (lambda t, x, y=y, s=x, d=d: (
        t.cumulative_trapezoid(t.ones(y), x[:math.prod(s)].cumsum(0).reshape(s), dim=d), t.trapezoid(t.ones(y), t.ones(s), dim=d)),
        np.arange(1.0, 33)) for y, x, d in (
            ((1, 1), (1, 1, 1), -1), ((1, 2), (1, 2, 2), -1),
            ((2, 3), (1, 2, 3), 0), ((1,), (1, 1), 0), ((2, 2), (4, 2, 2), 1), ((2, 3, 4), (3, 4), -1),
            ((2, 3, 4), (3, 4), 1), ((2, 3, 4), (3, 4), 0), ((2, 3, 4), (2, 4), 1), ((4, 4), (4, 1), 0), ((2, 3), (2,), 0))},
    "ldexp of narrow floats": (lambda t, x: [
        t.ldexp(x.detach().to(k), t.tensor([2**31 - 1, -2**31, 70000, -70000, 5])) for k in (t.float16, t.bfloat16)],
        np.array([0.0, 1, -1, np.inf, 3])),
    "cumulative_trapezoid": (lambda t, x: t.cumulative_trapezoid(x), X),
    "gradient": (lambda t, x: t.gradient(x), X),
    "gradient spacing": (lambda t, x: t.gradient(x, spacing=[2.0, 0.5], edge_order=2), X),
    "gradient dim": (lambda t, x: t.gradient(x, dim=-1, spacing=2), X),
    "gradient coordinates": (lambda t, x, y: t.gradient(x, spacing=(y[:, 0].detach(), y[0].detach()), edge_order=2), X, P.cumsum(1)),
    "gradient of integers": (lambda t, x: t.gradient(x), I),
    "gradient of a number": (lambda t, x: t.gradient(x[0, 0]), X),
    "renorm": (lambda t, x: t.renorm(x, 2, 0, 1.0), X),
    "i0": (lambda t, x: t.i0(x), X),
    "digamma": (lambda t, x: t.digamma(x), P),
    "polygamma": (lambda t, x: t.polygamma(2, x), P),
    "lgamma": (lambda t, x: t.lgamma(x), P),
    "mvlgamma": (lambda t, x: t.mvlgamma(x + 2, 3), P),
    "igamma": (lambda t, x: t.igamma(t.full_like(x, 1.5), x), P),
    "igammac": (lambda t, x: t.igammac(t.full_like(x, 1.5), x), P),
    "heaviside": (lambda t, x: t.heaviside(x, t.ones_like(x)), X),
    "xlogy": (lambda t, x, y: t.xlogy(x, y), X, P),
}
SPECIAL = {
    "expit": X, "logit": U, "erfcx": X, "ndtr": X, "ndtri": U, "log_ndtr": X * 4, "entr": U, "i0e": X, "i1": X, "i1e": X,
    "gammaln": P, "psi": P, "sinc": X, "bessel_j0": X, "bessel_j1": X, "bessel_y0": P, "bessel_y1": P, "modified_bessel_k0": P,
    "scaled_modified_bessel_k1": P, "exp2": X, "log1p": P, "erfinv": U, "round": X * 3, "expm1": X, "erfc": X,
    "airy_ai": X * 3, "spherical_bessel_j0": X * 9,
}
NO_GRADIENT = {"airy_ai", "spherical_bessel_j0", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_k0",
               "scaled_modified_bessel_k1", "heaviside", "isclose integers", "gcd", "lcm"}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_torch(agrees, name):
    fn, *arrays = CASES[name]
    agrees(fn, *arrays, grad=name not in NO_GRADIENT, tolerance=1e-8)


@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions(agrees, name):
    agrees(lambda t, x: getattr(t.special, name)(x), SPECIAL[name], grad=name not in NO_GRADIENT, tolerance=1e-8)
    agrees(lambda t, x: getattr(t.special, name)(x), SPECIAL[name].astype(np.float32), grad=False, tolerance=2e-5)


def test_special_pairs(agrees):
    agrees(lambda t, x, y: t.special.xlog1py(x, y), X, P)
    agrees(lambda t, x, y: t.special.zeta(x.detach() + 2, y), P, P, tolerance=1e-8)
    agrees(lambda t, x: t.special.entr(x), np.array([-1.0, 0.0, 0.5]), grad=False)
    agrees(lambda t, x: t.special.logsumexp(x, 1), X)


def test_functions_of_which_torch_has_no_gradient():
    for fn in (fl.special.airy_ai, fl.special.spherical_bessel_j0):
        assert fl.autograd.gradgradcheck(fn, (fl.tensor(X, requires_grad=True),))
    x = fl.tensor([0.0, math.inf, -math.inf, math.nan], requires_grad=True)
    y = fl.special.spherical_bessel_j0(x)
    y.sum().backward()
    assert y[:3].tolist() == [1, 0, 0] and y[3].isnan() and x.grad[:3].tolist() == [0, 0, 0]


def test_special_functions_write_into_out():
    out = fl.empty(0)
    assert fl.special.i1(fl.ones(2), out=out) is out and fl.equal(out, fl.special.i1(fl.ones(2)))


def test_special_at_zero(agrees):
    for name in ("i1", "i1e", "sinc", "i0e"):
        agrees(lambda t, x, name=name: getattr(t.special, name)(x), np.array([0.0, 5e-324, -1e-310, 1e-40, 1.0]))


@pytest.mark.parametrize("fn", [lambda t, x: t.isclose(x, x.float()), lambda t, x: t.gcd(x, x), lambda t, x: t.polygamma(-1, x),
                                lambda t, x: t.is_nonzero(x), lambda t, x: +(x > 0), lambda t, x: t.frexp(x.long()),
                                lambda t, x: t.gradient(x, spacing=[1.0]), lambda t, x: t.gradient(x, edge_order=3),
                                lambda t, x: t.gradient(x[:1]), lambda t, x: t.gradient(x[:2], edge_order=2),
                                lambda t, x: t.gradient(x, dim=(0, 0)), lambda t, x: t.gradient(x, dim=2),
                                lambda t, x: t.gradient(x.abs().byte())])
def test_refused(both_refuse, fn):
    both_refuse(fn, X)


def test_polygamma_in_place(agrees):
    agrees(lambda t, x: x.clone().polygamma_(1), P)


def test_values_known_by_heart():
    assert fl.special.ndtr(fl.tensor(0.0)).item() == 0.5
    assert fl.special.zeta(fl.tensor(2.0, dtype=fl.float64), 1.0).item() == pytest.approx(math.pi**2 / 6)
    assert fl.polygamma(1, fl.tensor(1.0, dtype=fl.float64)).item() == pytest.approx(math.pi**2 / 6)
    assert fl.gcd(fl.tensor(12), fl.tensor(18)).item() == 6


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("size", [300, 40_000])
def test_trigamma(kind, size):
    """Small arrays by steps, large ones by a generated kernel."""
    x = np.concatenate([np.random.default_rng(0).uniform(-20, 60, size), [0.0, -1.0, -7.0, 1e-3, 1e9, np.inf, np.nan]]).astype(kind)
    t = fl.tensor(x, requires_grad=True)
    t.digamma().backward(fl.ones_like(t))
    with np.errstate(all="ignore"):
        exact = special.polygamma(1, x.astype(np.float64)).astype(kind)
    for got in (t.grad, fl.polygamma(1, t.detach())):
        np.testing.assert_allclose(got.numpy(), exact, rtol=3e-6 if kind == "float32" else 1e-11)


@pytest.mark.parametrize("name", ["j0", "j1", "y0", "y1"])
def test_bessel_functions_of_any_size(name):
    """Within a few units in the last place of their amplitude, sqrt(2 / (pi x)). torch's are 1e-6 off beyond 5."""
    mpmath = pytest.importorskip("mpmath")
    x = np.concatenate([np.linspace(0.01, 24.9, 40), np.linspace(24.95, 60, 40), np.geomspace(60, 1e6, 20)])
    with mpmath.workdps(40):
        of = mpmath.besselj if name[0] == "j" else mpmath.bessely
        want = np.array([float(of(int(name[1]), mpmath.mpf(float(v)))) for v in x])
    got = getattr(fl.special, f"bessel_{name}")(fl.tensor(x)).numpy()
    assert (np.abs(got - want) <= 5e-15 * np.maximum(np.abs(want), np.sqrt(2 / (np.pi * x)))).all()
    mirrored = getattr(fl.special, f"bessel_{name}")(fl.tensor(-x)).numpy()
    assert np.isnan(mirrored).all() if name[0] == "y" else np.array_equal(mirrored, got if name == "j0" else -got)
    huge = getattr(fl.special, f"bessel_{name}")(fl.tensor([1e15, 1e300], dtype=fl.float64)).abs()
    assert (huge <= fl.tensor([3e-8, 1e-150], dtype=fl.float64)).all()


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_airy_of_any_size(kind):
    """Nothing far above 0, and within its amplitude far below, where the library gives up."""
    x = fl.tensor([300.0, 1e6, 1e30, -2e6, -1e10, -1e30], dtype=getattr(fl, kind), requires_grad=True)
    out = fl.special.airy_ai(x)
    assert (out[:3] == 0).all()
    assert (out[3:].abs() <= 0.57 * x[3:].abs() ** -0.25).all() and (out[3:] != 0).all()
    out.sum().backward()
    assert (x.grad[:3] == 0).all() and x.grad.isfinite().all()
    assert fl.special.airy_ai(fl.tensor(-2e6, dtype=fl.float64)).item() == pytest.approx(float(_airy_far_below(2e6)), abs=1e-8)


def _airy_far_below(x: float) -> object:
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(40):
        return mpmath.airyai(-x)


@pytest.mark.parametrize("kind", ["complex64", "complex128"])
def test_log1p_of_small_complex_numbers(kind):
    """Small numbers are their own log1p; numbers with |1 + z| = 1 lose nothing to 1 + z."""
    z = np.array([1e-30, 1e-40 + 1e-41j, 1e-20j, -1e-12 + 1e-6j, 0.3 - 0.2j, 2 + 1j, -1 + 1j, 1e30 + 1e30j], kind)
    with np.errstate(all="ignore"):
        want = np.where(np.abs(z) < 1e-15, z, np.log1p(z.astype(np.clongdouble).real + 1j * z.astype(np.clongdouble).imag))
    got = fl.log1p(fl.tensor(z)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-6 if kind == "complex64" else 1e-12)


@pytest.mark.parametrize("spacing", [1, 0.5])
@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e30])
def test_a_central_difference_leaves_out_its_middle(spacing, value):
    x = [1.0, 2.0, value, 4.5, 5.0]
    torch = pytest.importorskip("torch")
    mine, theirs = (lib.gradient(lib.tensor(x), spacing=spacing)[0].numpy() for lib in (fl, torch))
    np.testing.assert_array_equal(mine, theirs)
