"""Attention of narrow floats is as near to float64 as torch's: scores are not rounded before the softmax."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fl

KINDS = ["float16", "bfloat16"]
SHAPES = [(2, 4, 3, 8), (1, 2, 64, 32), (4, 2, 16, 64), (3, 7, 5), (1, 2, 200, 64)]


def operands(lib, kind, shape, scale):
    draws = np.random.default_rng(0)
    return [lib.tensor(draws.standard_normal(shape) * scale).to(getattr(lib, kind)) for _ in range(3)]


def attend(lib, q, k, v, masked, **options):
    rows = q.shape[-2]
    seen = lib.tensor(np.tri(rows, dtype=bool)) if masked else None
    return lib.nn.functional.scaled_dot_product_attention(q, k, v, seen, **options)


def formula(lib, q, k, v, masked):
    scores = (q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5
    if masked:
        scores = scores.masked_fill(~lib.tensor(np.tri(q.shape[-2], dtype=bool)), -float("inf"))
    return scores.softmax(-1) @ v


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scale", [1, 4])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_as_near_to_float64_as_the_result_can_be_told(kind, shape, scale, masked):
    given = operands(fl, kind, shape, scale)
    right = formula(fl, *[t.double() for t in given], masked)
    compiled = fl.compile(lambda *qkv: attend(fl, *qkv, masked))
    last = fl.finfo(getattr(fl, kind)).eps * right.abs().max()
    for found in (attend(fl, *given, masked), compiled(*given), attend(fl, given[0].clone().requires_grad_(), *given[1:], masked)):
        assert found.dtype is getattr(fl, kind)
        assert (found.double() - right).abs().max() <= 1.5 * last     # the weights are rounded once, and the result
    fl._dynamo.reset()


@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind):
    given = [t.requires_grad_() for t in operands(fl, kind, (2, 3, 40, 16), 1)]
    exact = [t.detach().double().requires_grad_() for t in given]
    attend(fl, *given, True).float().square().sum().backward()
    formula(fl, *exact, True).square().sum().backward()
    for a, b in zip(given, exact, strict=True):
        assert (a.grad.double() - b.grad).norm() <= 2 * fl.finfo(a.dtype).eps * b.grad.norm()


@pytest.mark.parametrize("kind", KINDS)
def test_batches_and_second_gradients_of_the_wide_product(kind):
    from flambeau.ops.linalg.products import wide_product
    x, y = (t[0].requires_grad_() for t in operands(fl, kind, (2, 5, 4, 4), 1)[:2])
    assert wide_product(x, y).dtype is fl.float32
    np.testing.assert_allclose(wide_product(x, y).detach(), (x.double() @ y.double()).detach(), rtol=1e-5, atol=1e-5)
    stacked = fl.vmap(wide_product)(fl.stack([x, x]).detach(), fl.stack([y, y]).detach())
    np.testing.assert_array_equal(stacked[1], wide_product(x, y).detach())
    first, = fl.autograd.grad(wide_product(x, y).square().sum(), x, create_graph=True)
    second, = fl.autograd.grad(first.float().sum(), y)
    assert second.shape == y.shape and bool(second.isfinite().all())
