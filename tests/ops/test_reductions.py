"""Reductions, moments, norms and running forms against torch, with gradients; and facts that need no oracle."""

from __future__ import annotations

import math
import warnings

import ml_dtypes
import numpy as np
import pytest

import flambeau as fl

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4, 5))
NAN = np.where(RNG.random((3, 4)) < 0.3, np.nan, RNG.standard_normal((3, 4)))
ZEROS = np.where(RNG.random((3, 4)) < 0.3, 0.0, RNG.standard_normal((3, 4)))
INTS = RNG.integers(-5, 9, (3, 4))
BOOLS = RNG.random((3, 4)) < 0.5
TIES = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 0.0]])

CASES = {
    "sum": lambda t, x: x.sum(),
    "sum dim": lambda t, x: x.sum(1),
    "sum dims": lambda t, x: x.sum((0, -1), keepdim=True),
    "sum no dims": lambda t, x: x.sum(()),
    "sum dtype": lambda t, x: x.sum(0, dtype=t.float32),
    "mean": lambda t, x: x.mean(),
    "mean dims": lambda t, x: t.mean(x, (0, 2), keepdim=True),
    "mean dtype": lambda t, x: x.mean(dtype=t.float32),
    "prod": lambda t, x: x.prod(),
    "prod dim": lambda t, x: x.prod(-1, keepdim=True),
    "amax": lambda t, x: x.amax((0, 1)),
    "amin": lambda t, x: x.amin(2, keepdim=True),
    "max": lambda t, x: x.max(),
    "max dim": lambda t, x: x.max(1),
    "max keepdim": lambda t, x: t.max(x, -1, keepdim=True),
    "min dim": lambda t, x: x.min(0).values,
    "max other": lambda t, x: t.max(x, x.flip(0)),
    "aminmax": lambda t, x: t.aminmax(x, dim=1),
    "argmax": lambda t, x: x.argmax(),
    "argmax dim": lambda t, x: x.argmax(1, keepdim=True),
    "argmin keepdim": lambda t, x: x.argmin(keepdim=True),
    "var": lambda t, x: x.var(),
    "var dim": lambda t, x: x.var(1, keepdim=True),
    "var biased": lambda t, x: x.var((0, 2), unbiased=False),
    "var correction": lambda t, x: x.var(1, correction=0.5),
    "var unbiased first": lambda t, x: t.var(x, False),
    "std": lambda t, x: x.std(0),
    "std_mean": lambda t, x: t.std_mean(x, 1, keepdim=True),
    "var_mean": lambda t, x: t.var_mean(x, (0, 1)),
    "logsumexp": lambda t, x: x.logsumexp(1),
    "logsumexp dims": lambda t, x: t.logsumexp(x * 50, (0, 2), keepdim=True),
    "norm": lambda t, x: x.norm(),
    "norm 1": lambda t, x: x.norm(1, dim=1),
    "norm 3": lambda t, x: x.norm(3, dim=(0, 2), keepdim=True),
    "norm inf": lambda t, x: x.norm(math.inf, dim=1),
    "norm -inf": lambda t, x: x.norm(-math.inf, dim=1),
    "norm 0": lambda t, x: x.norm(0, dim=1),
    "dist": lambda t, x: t.dist(x, x.flip(1), 2),
    "cumsum": lambda t, x: x.cumsum(1),
    "cumprod": lambda t, x: x.cumprod(-1),
    "cummax": lambda t, x: x.cummax(1),
    "cummin": lambda t, x: x.cummin(2),
    "logcumsumexp": lambda t, x: x.logcumsumexp(1),
    "diff": lambda t, x: x.diff(2, dim=1),
    "count_nonzero": lambda t, x: t.count_nonzero(x > 0, 1),
    "any": lambda t, x: (x > 1).any(1),
    "all": lambda t, x: (x > -1).all((0, 2), keepdim=True),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_torch(agrees, name):
    agrees(CASES[name], X)


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("sum dtype", "mean dtype")])
def test_on_transposed_strides(agrees, name):
    agrees(lambda t, x: CASES[name](t, x.transpose(0, 2)), X)


@pytest.mark.parametrize("kind", [np.float32, np.float16, ml_dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["sum dim", "mean", "amax", "var dim", "norm", "cumsum", "logsumexp", "argmax", "max dim"])
def test_narrow_floats(agrees, name, kind):
    agrees(CASES[name], X.astype(kind), grad=False, tolerance=2e-2)


@pytest.mark.parametrize("fn", [
    lambda t, x: x.sum(), lambda t, x: x.sum(1), lambda t, x: x.prod(1), lambda t, x: x.cumsum(0), lambda t, x: x.amax(1),
    lambda t, x: x.max(), lambda t, x: x.any(1), lambda t, x: x.all(), lambda t, x: x.max(0), lambda t, x: x.int().argmax(),
    lambda t, x: x.logsumexp(0), lambda t, x: t.count_nonzero(x)])
@pytest.mark.parametrize("array", [INTS, BOOLS, INTS.astype(np.int8), INTS.astype(np.uint8)], ids=lambda a: str(a.dtype))
def test_integers_and_bools(agrees, fn, array):
    agrees(fn, array)


@pytest.mark.parametrize("fn", [
    lambda t, x: x.sum(), lambda t, x: x.mean(0), lambda t, x: x.prod(), lambda t, x: x.max(), lambda t, x: x.argmax(),
    lambda t, x: x.amin(0), lambda t, x: x.max(0), lambda t, x: x.cumsum(0), lambda t, x: x.logsumexp(0), lambda t, x: x.norm(),
    lambda t, x: x.var(unbiased=False), lambda t, x: x.any(), lambda t, x: x.argmin(0), lambda t, x: x.sum(-1, keepdim=True),
    lambda t, x: x.cummax(0)])
def test_zero_dimensions(agrees, fn):
    agrees(fn, np.array(2.5))


@pytest.mark.parametrize("fn", [
    lambda t, x: x.sum(), lambda t, x: x.sum(0), lambda t, x: x.prod(), lambda t, x: x.mean(1), lambda t, x: x.sum(1),
    lambda t, x: x.all(), lambda t, x: x.any(0), lambda t, x: x.amax(1), lambda t, x: x.logsumexp(0), lambda t, x: x.norm(dim=0),
    lambda t, x: x.cumsum(0), lambda t, x: x.argmax(1)])
def test_empty(agrees, fn):
    agrees(fn, np.zeros((0, 3)))


@pytest.mark.parametrize("fn", [
    lambda t, x: t.nansum(x, 1), lambda t, x: t.nanmean(x, 1), lambda t, x: x.amax(1), lambda t, x: x.max(1), lambda t, x: x.min(),
    lambda t, x: x.argmax(1), lambda t, x: x.cummax(1).values])
def test_nan(agrees, fn):
    agrees(fn, NAN, grad=False)


@pytest.mark.parametrize("fn", [
    lambda t, x: x.prod(), lambda t, x: x.prod(1), lambda t, x: x.cumprod(1), lambda t, x: x.norm(2, dim=1), lambda t, x: x.norm(1),
    lambda t, x: x.norm(3, dim=1)])
def test_gradients_at_zeros(agrees, fn):
    agrees(fn, ZEROS)


def test_compiled_gradient_of_cumprod_at_zeros():
    x = fl.tensor(ZEROS, requires_grad=True)
    eager, = fl.autograd.grad(x.cumprod(1).sin().sum(), x)
    compiled, = fl.autograd.grad(fl.compile(lambda x: x.cumprod(1).sin().sum(), fullgraph=True)(x), x)
    np.testing.assert_allclose(compiled.numpy(), eager.numpy(), rtol=1e-12)


@pytest.mark.parametrize("fn", [lambda t, x: x.amax(1), lambda t, x: x.max(), lambda t, x: x.max(1).values, lambda t, x: x.amin(0)])
def test_gradients_at_ties(agrees, fn):
    agrees(fn, TIES)


def test_std_of_a_constant_has_no_gradient(agrees):
    agrees(lambda t, x: x.std(1), np.ones((2, 3)))


@pytest.mark.parametrize("fn", [lambda t, x: x.sum(0), lambda t, x: x.mean(), lambda t, x: x.prod(1), lambda t, x: x.var(1),
                                lambda t, x: x.norm(), lambda t, x: x.cumsum(1)])
def test_complex(agrees, fn):
    agrees(fn, RNG.standard_normal((3, 4)) + 1j * RNG.standard_normal((3, 4)))


REFUSED = {
    "mean of integers": (lambda t, x: x.long().mean(), "could not infer output dtype"),
    "dim out of range": (lambda t, x: x.sum(5), "Dimension out of range"),
    "dim twice": (lambda t, x: x.sum((0, 0)), "appears multiple times"),
    "max of nothing": (lambda t, x: x[:0].max(), "numel() == 0"),
    "amax of an empty dim": (lambda t, x: x[:0].amax(0), "non-zero size"),
    "max over an empty dim": (lambda t, x: x[:0].max(0), "non-zero size"),
    "argmax of nothing": (lambda t, x: x[:0].argmax(), "numel() == 0"),
    "var of integers": (lambda t, x: x.long().var(), "floating point and complex"),
    "norm of integers": (lambda t, x: x.long().norm(), "floating point or complex"),
    "amax of complex": (lambda t, x: x.to(t.complex64).amax(), "not implemented"),
    "cumsum without dim": (lambda t, x: x.cumsum(), None),
    "sum_to_size": (lambda t, x: x.sum_to_size(2), "not expandable"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_torch_refuses(both_refuse, name):
    fn, text = REFUSED[name]
    both_refuse(fn, X, text=text)


def test_sum_to_size(agrees):
    agrees(lambda t, x: x.sum_to_size(4, 1), X)
    agrees(lambda t, x: x.sum_to_size(1, 4, 5), X)


def test_named_results():
    answer = fl.tensor([[1.0, 3.0], [2.0, 0.0]]).max(1)
    assert repr(answer) == "torch.return_types.max(\nvalues=tensor([3., 2.]),\nindices=tensor([1, 0]))"
    values, indices = answer
    assert answer.values is values and answer.indices is indices


def test_half_mean_does_not_overflow():
    assert fl.full((1000,), 1000.0, dtype=fl.float16).mean().item() == 1000.0


def test_no_degrees_of_freedom_warns():
    for _ in range(3):      # small tensors come to a program
        with pytest.warns(UserWarning, match="degrees of freedom"):
            assert math.isnan(fl.ones(1).var().item())


def test_second_derivatives_of_variance():
    x = fl.tensor(RNG.standard_normal((4, 3)), requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fl.autograd.gradgradcheck(lambda v: v.var(0), (x,))
        assert fl.autograd.gradcheck(lambda v: v.std(1), (x,))


def test_out_argument():
    out = fl.empty(0)
    fl.sum(fl.ones(2, 3), 1, out=out)
    assert out.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("kind", ["float32", "float64", "int64", "bfloat16"])
@pytest.mark.parametrize("dim", [None, 0, 1])
def test_products_of_large_arrays(agrees, dim, kind):
    x = np.random.default_rng(0).choice([0.5, 1.0, 2.0, -1.0] if kind[0] != "i" else [1, 2, -1], (300, 200), p=[
        0.05, 0.8, 0.05, 0.1] if kind[0] != "i" else [0.9, 0.02, 0.08])
    agrees(lambda t, x: t.prod(x.to(getattr(t, kind)), **({} if dim is None else {"dim": dim})), x, grad=False)
    agrees(lambda t, x: t.prod(x.T.to(getattr(t, kind)), **({} if dim is None else {"dim": dim})), x, grad=False)


@pytest.mark.parametrize("kind", ["float32", "float64", "bfloat16", "float16", "int64", "uint8"])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places_of_extrema_in_large_arrays(name, kind):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 5, (40, 50, 30)).astype(np.float64)
    if "float" in kind:
        x[3, :, 2], x[5, 5], x[7, 7] = np.nan, np.inf, -np.inf
        x[20, :, 2] = np.nan
    t = fl.tensor(x).to(getattr(fl, kind))
    wide = t.to(fl.float64).numpy()
    for view, array in ((t, wide), (t.permute(2, 0, 1), wide.transpose(2, 0, 1)), (t[::2], wide[::2])):
        for dim in (0, 1, 2):
            np.testing.assert_array_equal(getattr(view, name)(dim).numpy(), getattr(np, name)(array, dim))


def test_extremes_of_a_tensor_and_a_number():
    """A tensor without dimensions does not widen one with dimensions of the same category."""
    for kind in (fl.float16, fl.bfloat16, fl.float32, fl.float64):
        x = fl.ones(2, dtype=kind)
        for fn in (fl.max, fl.min, fl.maximum, fl.minimum):
            assert fn(x, fl.tensor(-1.5)).dtype is kind and fn(x.int(), fl.tensor(2)).dtype is fl.int32


@pytest.mark.parametrize("correction", [0, 1, -9, 0.5])
def test_the_variance_of_nothing_is_nan(correction):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for made in (fl.var(fl.zeros(0), correction=correction), fl.std(fl.zeros(0, 2), 0, correction=correction),
                     fl.var_mean(fl.zeros(1, 0), -1, correction=correction)[0]):
            assert made.isnan().all()


SUMS_OF_TRUTHS = {
    "sum": lambda x: x.sum(dtype=fl.bool), "sum of rows": lambda x: x.sum(1, dtype=fl.bool), "nansum": lambda x: x.nansum(dtype=fl.bool),
    "prod": lambda x: x.prod(dtype=fl.bool),
}


@pytest.mark.parametrize("size", [2, 7, 5000])
@pytest.mark.parametrize("name", SUMS_OF_TRUTHS)
def test_truths_that_are_added_are_truths(name, size):
    """Compiled too, whatever is computed of them next."""
    def program(x):
        y = SUMS_OF_TRUTHS[name](x)
        return y, y * 1.0, y.to(fl.int64) + 1

    x = fl.ones(2, size, dtype=fl.int64)
    for got, want in zip(fl.compile(program)(x), program(x)):
        assert fl.equal(got, want) and float(want.max()) in (1.0, 2.0)


@pytest.mark.parametrize("value", [2.0, 0.0, float("inf"), -float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["logcumsumexp", "cumsum", "cumprod", "cummax", "cummin"])
def test_running_over_a_number_is_that_number(name, value):
    """Of a tensor without dimensions, whose gradient passes as it is, whatever number it holds."""
    x = fl.tensor(value, requires_grad=True)
    out = getattr(x, name)(0)
    out = out[0] if isinstance(out, tuple) else out
    assert fl.equal(out.nan_to_num(1.0), x.nan_to_num(1.0)) and fl.autograd.grad(out, x, fl.tensor(3.0))[0].item() == 3.0
