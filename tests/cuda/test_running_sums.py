"""Running sums and products along any dimension, forward and backward, as on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fl


@pytest.mark.parametrize("n", [1, 2, 5, 127, 1024, 1025, 5000, 70_000])
@pytest.mark.parametrize("kind", ["float32", "float64", "int64", "int32", "bfloat16", "complex64"])
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_as_on_the_cpu(name, kind, n):
    rng = np.random.default_rng(n)
    data = rng.integers(1, 3, (3, n)) if kind.startswith("int") else rng.uniform(0.9, 1.1, (3, n)) ** (1 if n < 1000 else 0.01)
    x = fl.tensor(data).to(getattr(fl, kind))
    run = getattr(fl, name)
    loose = {"rtol": 3e-2, "atol": 3e-2} if kind == "bfloat16" else {"rtol": 1e-4, "atol": 1e-4}
    for _ in range(2):      # written down, then found again
        fl.testing.assert_close(run(x.cuda(), 1).cpu(), run(x, 1), **loose)
    fl.testing.assert_close(run(x.t().cuda(), 0).cpu(), run(x.t(), 0), **loose)
    fl.testing.assert_close(run(x.cuda()[:, ::2], 1).cpu(), run(x[:, ::2], 1), **loose)
    fl.testing.assert_close(run(x.cuda(), 0).cpu(), run(x, 0), **loose)


def test_gradients():
    x = fl.rand(4, 300) + 0.5
    want = x.clone().requires_grad_()
    got = x.cuda().requires_grad_()
    for leaf in (want, got):
        (leaf.cumsum(1).sin().sum() + leaf[:, :8].cumprod(1).sum() + leaf.cumsum(0).cos().sum()).backward()
    fl.testing.assert_close(got.grad.cpu(), want.grad, rtol=1e-4, atol=1e-4)


def test_many_terms_of_one_sign():
    x = fl.full((40, 70_000), 0.1, device="cuda")
    assert abs(x.cumsum(1)[:, -1].double().sum().item() / (40 * 70_000 * float(np.float32(0.1))) - 1) < 1e-6


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "bool", "int64", "complex128", "uint8"])
def test_small_arrays_go_there_and_back(kind):
    for shape in ((), (1,), (3, 0), (5, 7), (4, 3, 2), (100, 100)):
        x = fl.arange(int(np.prod(shape))).reshape(shape).to(getattr(fl, kind))
        for view in (x, x.mT if x.ndim > 1 else x, x[::2] if x.ndim else x):
            assert fl.equal(view.cuda().cpu(), view)
    assert fl.tensor(1, device="cuda").to(getattr(fl, kind)).item() == 1
