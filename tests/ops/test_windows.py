"""Windows as columns and back, with gradients, against torch; compiled as eager."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fl
import flambeau.nn.functional as F
from flambeau.inductor import graph
from flambeau.ops.registry import COMPOSITES

X = np.random.default_rng(0).standard_normal((2, 3, 11, 9))
WINDOWS = [(3, 1, 1, 1), ((2, 3), 2, (1, 2), (2, 1)), (3, 1, 0, 2), ((1, 2), 1, 0, 3)]  # size, dilation, padding, stride
WORKS = {
    "unfold": lambda t, x, *window: t.nn.functional.unfold(x, *window),
    "fold": lambda t, x, *window: t.nn.functional.fold(t.nn.functional.unfold(x, *window).sin(), x.shape[2:], *window),
}


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("name", WORKS)
@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels_last"])
def test_columns(agrees, name, window, last):
    agrees(lambda t, x: WORKS[name](t, x.contiguous(memory_format=t.channels_last) if last else x, *window), X)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("name", WORKS)
def test_compiled_columns(name, window):
    x = fl.tensor(X, requires_grad=True)
    eager, compiled = WORKS[name](fl, x, *window), fl.compile(lambda x: WORKS[name](fl, x, *window))(x)
    np.testing.assert_allclose(compiled.detach().numpy(), eager.detach().numpy(), rtol=1e-12)
    want, got = (fl.autograd.grad(out.sin().sum(), x)[0].numpy() for out in (eager, compiled))
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


def test_code_for_changing_windows_stays_short():
    """A dilation that changes is a symbol in every size: indices of the reshaped columns must not be divided by them."""
    def fold(x, dilation):
        return WORKS["fold"](fl, x, (2, 3), dilation, (1, 2), (2, 1))
    units = []
    graph.listening.append(units.append)
    try:
        compiled, x = fl.compile(fold, dynamic=True), fl.tensor(X, requires_grad=True)
        compiled(x, 2).sum().backward()
    finally:
        graph.listening.remove(units.append)
    assert sum(len(unit.unit.source) for unit in units) < 42_000
    assert fl.allclose(compiled(x, 3), fold(x, 3))


def test_second_derivatives_of_columns():
    x = fl.tensor(X[:1, :1, :5, :5], requires_grad=True)
    assert fl.autograd.gradgradcheck(lambda x: WORKS["fold"](fl, x, 3, 1, 1, 2), (x,))


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_average_pools_of_narrow_floats_round_once(kind):
    """Compiled as well: the sum of a window is kept in float32 until it is divided."""
    x = fl.tensor([[[-1.087, -0.0, 88.8, 3.1, 0.001, 700.0]]]).to(getattr(fl, kind))

    def f(x):
        return fl.avg_pool1d(x, 3), fl.avg_pool1d(x, 2, 1, 1, False, False)

    want = [y.to(x.dtype) for y in f(x.float())]
    for got in (f(x), fl.compile(f)(x)):
        assert all(fl.equal(a, b) for a, b in zip(got, want))


@pytest.mark.parametrize("backend", [None, "eager", "aot_eager", "inductor"])
def test_the_last_nan_of_a_window_is_its_maximum(backend):
    """Of equal elements the first, as torch has it; however the pool comes to it."""
    nan = float("nan")
    x = fl.tensor([1.0, nan, 2.0, nan, 3.0, nan, 0.0, 1.0])
    pools = {
        "max": lambda x: F.max_pool1d(x[None], 8, return_indices=True),
        "one": lambda x: F.adaptive_max_pool1d(x[None], 1, return_indices=True),
        "adaptive": lambda x: F.adaptive_max_pool1d(x[None], 3, return_indices=True),
        "plane": lambda x: F.adaptive_max_pool2d(x.reshape(1, 2, 4), 1, return_indices=True),
        "space": lambda x: F.adaptive_max_pool3d(x.reshape(1, 2, 2, 2), 1, return_indices=True),
        "fractional": lambda x: F.fractional_max_pool2d(x.reshape(1, 2, 4), (2, 3), output_size=(1, 2), return_indices=True,
                                                        _random_samples=fl.full((1, 1, 2), 0.3)),
    }
    for name, pool in pools.items():
        for dynamic in (False, True):
            fl.compiler.reset()
            run = pool if backend is None else fl.compile(pool, backend=backend, dynamic=dynamic)
            for values, last in ((x, 5), (fl.ones(8), 0)):
                leaf = values.clone().requires_grad_()
                maxima, places = run(leaf)
                maxima.sum().backward()
                if name != "adaptive" and (name != "fractional" or last):
                    assert (places == last).all(), (name, dynamic)
                assert set(leaf.grad.nonzero().flatten().tolist()) == set(places.flatten().tolist()), (name, dynamic)


def test_nothing_comes_out_of_a_pool_of_nothing():
    x, i = fl.zeros(0, 2, 3, 3), fl.zeros(0, 2, 3, 3, dtype=fl.int64)
    assert F.max_unpool2d(x, i, 2).shape == (0, 2, 6, 6)
    for pool in (F.adaptive_max_pool2d, F.adaptive_avg_pool2d, F.max_pool2d):
        leaf = fl.zeros(0, 2, 6, 6, requires_grad=True)
        pool(leaf, 2).sum().backward()
        assert leaf.grad.shape == leaf.shape
    for body, arguments in (("_adaptive_max_cells", ((2, 2),)), ("_max_pool", ((2, 2), (2, 2), (0, 0), (1, 1), False))):
        values, places = COMPOSITES[body].fn(fl.zeros(0, 2, 5, 5), *arguments)     # as on devices without a kernel of their own
        assert values.shape == places.shape == (0, 2, 2, 2)
