"""Orthogonal polynomials against torch, which has no gradients of them: those are checked by finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest

import flambeau as fl
from flambeau.ops.polynomials import FAMILIES, polynomials

X = np.array([-2.0, -1, -0.3, 0, 0.25, 1, 1.5])
N = np.array([[-1], [0], [1], [2], [7], [3]])
NAMES = list(polynomials)


@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_torch(agrees, name):
    agrees(lambda t, x, n: getattr(t.special, name)(x, n), X, N, grad=False)
    agrees(lambda t, x, n: getattr(t.special, name)(x, n), X.astype(np.float32), N, grad=False)
    agrees(lambda t, x, n: getattr(t.special, name)(x, n), X, N + 0.7, grad=False)
    agrees(lambda t, x, n: getattr(t.special, name)(0.3, n), N, N, grad=False)
    for degree in (-1, 0, 1, 5, 2.7):
        agrees(lambda t, x, degree=degree: getattr(t.special, name)(x, degree), X, grad=False)
    agrees(lambda t, x: getattr(t.special, name)(x[:0, None], t.arange(4)), X, grad=False)
    agrees(lambda t, x: getattr(t.special, name)(x, t.arange(0)[:, None]), X, grad=False)
    agrees(lambda t, x: getattr(t.special, name)(x.int(), 3), X, grad=False)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_and_compiled_code(name):
    fn, x = getattr(fl.special, name), fl.tensor(X, requires_grad=True)
    fl._dynamo.reset()
    for n in (4, fl.tensor(N)):
        assert fl.autograd.gradcheck(lambda v, n=n: fn(v, n), (x,))
        compiled = fl.compile(lambda v, n=n: fn(v, n) * 2, backend="aot_eager")(x)
        np.testing.assert_allclose(compiled.detach().numpy(), 2 * fn(x, n).detach().numpy(), rtol=1e-14)


def test_an_overflow_of_one_degree_leaves_the_other_gradients_alone():
    x = fl.tensor([1e30, 2.0], requires_grad=True)
    fl.special.hermite_polynomial_h(x, fl.tensor([0, 20])).sum().backward()
    assert x.grad[0] == 0 and x.grad.isfinite().all()


@pytest.mark.parametrize("fn", [
    lambda t, x: t.special.legendre_polynomial_p(0.5, 2.0), lambda t, x: t.special.legendre_polynomial_p(x.half(), 2),
    lambda t, x: t.special.legendre_polynomial_p(x + 1j, 2), lambda t, x: t.special.legendre_polynomial_p(x, x[:2]),
    lambda t, x: t.special.legendre_polynomial_p(x)])
def test_refused(both_refuse, fn):
    both_refuse(fn, X)


def test_out():
    out = fl.empty(0, dtype=fl.float64)
    assert fl.special.legendre_polynomial_p(fl.tensor(X), 2, out=out) is out
    np.testing.assert_allclose(out.numpy(), (3 * X**2 - 1) / 2)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_beyond_all_zeros_a_polynomial_is_of_its_highest_power(name):
    """Overflow is the infinity of its sign; torch's recurrences come to NaN."""
    x = fl.tensor([1e30, -1e30, math.inf, -math.inf], dtype=fl.float32)
    for n in range(2, 9):
        up = -1 if "laguerre" in name and n % 2 else 1
        down = 1 if "laguerre" in name or n % 2 == 0 else -1
        assert getattr(fl.special, name)(x, n).tolist() == [up * math.inf, down * math.inf] * 2, n
    assert getattr(fl.special, name)(fl.tensor([math.nan]), 3).isnan().all()
