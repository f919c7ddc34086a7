"""Sorting, selection, quantiles, unique elements and counting against torch."""

from __future__ import annotations

import math

import numpy as np
import pytest

import flambeau as fl

RNG = np.random.default_rng(1)
X = RNG.permutation(24).astype(float).reshape(2, 3, 4)
NAN = np.array([[3.0, math.nan, 1.0, 2.0], [0.0, 5.0, 4.0, 9.0]])
INTS = RNG.integers(0, 6, (4, 5))

CASES = {
    "sort": lambda t, x: x.sort(),
    "sort dim": lambda t, x: x.sort(1, descending=True),
    "sort stable": lambda t, x: t.sort((x / 6).floor(), stable=True),
    "sort stable descending": lambda t, x: t.sort(x.detach() // 6, stable=True, descending=True),
    "argsort": lambda t, x: x.argsort(0, descending=True),
    "msort": lambda t, x: t.msort(x),
    "topk": lambda t, x: x.topk(2),
    "topk smallest": lambda t, x: x.topk(2, 1, largest=False),
    "topk 0": lambda t, x: x.topk(0),
    "kthvalue": lambda t, x: x.kthvalue(2, 1, keepdim=True),
    "median": lambda t, x: x.median(),
    "median dim": lambda t, x: x.median(2),
    "nanmedian": lambda t, x: x.nanmedian(1, keepdim=True),
    "quantile": lambda t, x: x.quantile(0.3),
    "quantile dim": lambda t, x: x.quantile(t.tensor([0.1, 0.5, 0.9], dtype=x.dtype), 2, keepdim=True),
    "mode": lambda t, x: (x / 5).floor().mode(1),
    "histogram": lambda t, x: t.histogram(x.detach(), 5),
    "histogram range": lambda t, x: x.detach().histogram(4, range=(2.0, 15.0), weight=x.detach() + 1, density=True),
    "histogram edges": lambda t, x: t.histogram(x.detach(), t.tensor([0, 5, 5.5, 23], dtype=x.dtype)),
    "histogram of equals": lambda t, x: t.histogram(x.detach() * 0, 2),
    "histogram of nothing": lambda t, x: t.histogram(x.detach()[:0], 2),
    "histogramdd": lambda t, x: t.histogramdd(x.detach()[..., :2], [3, 2], weight=x.detach()[..., 2]),
    "histogramdd range": lambda t, x: t.histogramdd(x.detach()[..., :2], 2, range=[0.0, 9, 4, 20], density=True),
    "histogramdd edges": lambda t, x: t.histogramdd(x.detach()[..., :2], [t.tensor([0, 9, 30], dtype=x.dtype),
                                                                            t.tensor([0.0, 20], dtype=x.dtype)]),
}


@pytest.mark.parametrize("fn", [
    lambda t, x: t.histogram(x, 0), lambda t, x: t.histogram(x, 2, range=(3.0, 1)), lambda t, x: t.histogram(x.int(), 2),
    lambda t, x: t.histogram(x, 2, weight=x[0]), lambda t, x: t.histogram(x, x), lambda t, x: t.histogram(x, x.float()[0, 0]),
    lambda t, x: t.histogram(x * math.nan, 2), lambda t, x: t.histogram(x, 2, range=(1.0, 2.0, 3.0)),
    lambda t, x: t.histogramdd(x, [2, 2]), lambda t, x: t.histogramdd(x[0, 0], [2])])
def test_histograms_refuse(both_refuse, fn):
    both_refuse(fn, X)


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_torch(agrees, name):
    agrees(CASES[name], X)


@pytest.mark.parametrize("how", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantile_interpolation(agrees, how):
    agrees(lambda t, x: t.quantile(x, 0.37, dim=1, interpolation=how), X)


@pytest.mark.parametrize("fn", [
    lambda t, x: x.sort(1), lambda t, x: x.sort(1, descending=True), lambda t, x: x.median(1), lambda t, x: x.nanmedian(1),
    lambda t, x: x.median(), lambda t, x: x.topk(2), lambda t, x: x.nanquantile(0.5, 1), lambda t, x: x.quantile(0.5, 1)])
def test_nan(agrees, fn):
    agrees(fn, NAN, grad=False)


@pytest.mark.parametrize("fn", [
    lambda t, x: x.sort(), lambda t, x: x.median(0), lambda t, x: x.topk(1, 0),
    lambda t, x: x.argsort(), lambda t, x: x.kthvalue(1),
    lambda t, x: x.mode()])
def test_zero_dimensions(agrees, fn):
    agrees(fn, np.array(1.5))


@pytest.mark.parametrize("fn", [
    lambda t, x: x.sort(0), lambda t, x: x.sort(descending=True, stable=True), lambda t, x: x.unique(),
    lambda t, x: x.unique(return_inverse=True, return_counts=True), lambda t, x: t.unique(x, dim=1, return_counts=True),
    lambda t, x: t.unique_consecutive(x.flatten().sort().values, return_inverse=True, return_counts=True),
    lambda t, x: t.unique_consecutive(x // 6, dim=0), lambda t, x: x.flatten().bincount(), lambda t, x: x.mode(0).values,
    lambda t, x: x.flatten().bincount(minlength=9), lambda t, x: x.flatten().bincount(t.arange(20) * 0.5),
    lambda t, x: (x > 2).sort(stable=True, dim=1)])
def test_integers(agrees, fn):
    agrees(fn, INTS)


def test_histc(agrees):
    agrees(lambda t, x: t.histc(x, 5), X, grad=False)
    agrees(lambda t, x: x.histc(4, 2, 10), X, grad=False)


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_histc_at_the_edges_of_bins(agrees, kind):
    """Also of a range that no bins divide: equal elements lie in the middle one."""
    draw = np.random.default_rng(0)
    for bins in range(1, 9):
        for _ in range(10):
            agrees(lambda t, x: x.histc(bins), (draw.integers(-5, 6, 9) / draw.choice([1, 2, 3, 10])).astype(kind), grad=False)
    for values in ([-2.5e30], [3e7, 3e7], [3e7, 3e7 + 2, 3e7 + 4], [1e17, 1e17 + 16], [1e30, -1e30, 3.0], [0.0, 1e-45]):
        for bins in (1, 4, 5, 100):
            agrees(lambda t, x: x.histc(bins), np.array(values, kind), grad=False)


REFUSED = {
    "topk too many": (lambda t, x: x.topk(9), "out of range"),
    "kthvalue zero": (lambda t, x: x.kthvalue(0), "out of range"),
    "bincount of floats": (lambda t, x: x.flatten().bincount(), "not implemented"),
    "bincount of negatives": (lambda t, x: (x.flatten() - 5).long().bincount(), "non-negative"),
    "quantile of integers": (lambda t, x: x.long().quantile(0.5), "float or double"),
    "histc backwards": (lambda t, x: x.histc(3, 5, 1), "larger than min"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(both_refuse, name):
    fn, text = REFUSED[name]
    both_refuse(fn, X, text=text)


def test_sort_returns_names():
    answer = fl.tensor([2.0, 1.0]).sort()
    assert answer.values.tolist() == [1.0, 2.0]
    assert answer.indices.tolist() == [1, 0]


def test_kthvalue_of_many(agrees):
    """By selection, with the first of equals."""
    x = np.random.default_rng(0).permuted(np.tile(np.arange(200.0), (3, 1)), axis=1)
    agrees(lambda t, x: t.kthvalue(x, 9, 1), x)
    agrees(lambda t, x: t.kthvalue(x, 150, 1), x)


@pytest.mark.parametrize("kind", ["float64", "float32", "bfloat16", "float16", "int64", "uint8", "bool"])
@pytest.mark.parametrize(("shape", "dim"), [((40, 30), 1), ((40, 30), 0), ((3, 50, 4), 1), ((1, 9), 1), ((0, 4), 1), ((7,), 0)])
def test_nth_is_the_stable_order(kind, shape, dim):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 6, shape).astype(np.float64)
    if kind.startswith(("f", "bf")):
        x[rng.random(shape) < 0.2] = np.nan
        x[rng.random(shape) < 0.1] = -np.inf
    t = fl.tensor(x).to(getattr(fl, kind)).mT.contiguous().mT if len(shape) > 1 else fl.tensor(x).to(getattr(fl, kind))
    order = fl.argsort(t, dim, stable=True).numpy()
    n, rest = shape[dim], tuple(m for d, m in enumerate(shape) if d != dim)
    for places in (np.full(rest, n // 2), rng.integers(0, n, rest)):
        got = fl.ops.prims.nth(t, fl.tensor(places), dim)
        np.testing.assert_array_equal(got.numpy(), np.take_along_axis(order, np.expand_dims(places, dim), dim).squeeze(dim))


@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_medians_with_nan_and_ties(agrees, name):
    x = np.random.default_rng(0).integers(0, 9, (30, 21)).astype(np.float32)
    x[::3, 2] = np.nan
    x[4] = np.nan
    for dim in (0, 1):
        agrees(lambda t, x: getattr(t, name)(x, dim)[0], x, grad=False)
    agrees(lambda t, x: getattr(t, name)(x), x, grad=False)


@pytest.mark.parametrize("fn", ["unique", "unique_consecutive"])
def test_the_derivative_of_unique_is_refused(both_refuse, fn):
    both_refuse(lambda t: getattr(t.ones(3, requires_grad=True), fn)().sum().backward())


def test_quantiles_beside_infinities():
    x = fl.tensor([-math.inf, -math.inf, 1.0, 2.0, math.inf])
    for interpolation in ("linear", "lower", "higher", "nearest", "midpoint"):
        got = [x.quantile(q, interpolation=interpolation).item() for q in (0.0, 0.125, 0.25, 0.5, 0.75, 1.0)]
        assert got == [-math.inf] * 3 + [1.0, 2.0, math.inf], interpolation


def test_the_mode_of_nans():
    nan = math.nan
    for values, want in (([nan, nan, 1.0], 1.0), ([1.0, nan, 1.0, 2.0, 2.0], 1.0), ([2.0, nan, 2.0], 2.0)):
        value, index = fl.mode(fl.tensor(values))
        assert value == want and values[index] == want
    value, index = fl.mode(fl.tensor([nan, nan]))
    assert value.isnan() and index in (0, 1)


def test_quantiles_of_a_number(agrees):
    for q in (0.5, [0.5], [0.2, 0.7]):
        for dim in (None, 0, -1):
            for keepdim in (False, True):
                agrees(lambda t, x: x.quantile(t.tensor(q, dtype=x.dtype), dim, keepdim), np.array(1.5))
