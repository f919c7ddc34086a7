"""Transforms, the constraints they lead to, and distributions of transformed variables, against PyTorch's."""

from __future__ import annotations

import math
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(4)
X = RNG.standard_normal((2, 3))
SQUARE = RNG.standard_normal((2, 3, 3))

# name -> the transform under a library, and where it is asked
TRANSFORMS: dict[str, tuple[Any, np.ndarray]] = {
    "exp": (lambda d, t: d.ExpTransform(), X),
    "power": (lambda d, t: d.PowerTransform(2.0), np.abs(X)),
    "power by a tensor": (lambda d, t: d.PowerTransform(t.tensor([-0.5, 2.0, 1.0]).double()), np.abs(X)),
    "sigmoid": (lambda d, t: d.SigmoidTransform(), X),
    "tanh": (lambda d, t: d.TanhTransform(), X),
    "softplus": (lambda d, t: d.SoftplusTransform(), X * 5),
    "affine": (lambda d, t: d.AffineTransform(0.5, -2.0), X),
    "affine by tensors": (lambda d, t: d.AffineTransform(t.tensor([1.0, 2, 3]).double(), t.tensor([0.3, -1, 4]).double(), event_dim=1), X),
    "stick breaking": (lambda d, t: d.StickBreakingTransform(), X * 3),
    "correlations": (lambda d, t: d.CorrCholeskyTransform(), X),
    "reshape": (lambda d, t: d.ReshapeTransform((3,), (1, 3)), X),
    "inverse": (lambda d, t: d.ExpTransform().inv, np.abs(X)),
    "independent": (lambda d, t: d.IndependentTransform(d.ExpTransform(), 1), X),
    "nothing": (lambda d, t: d.identity_transform, X),
    "composed": (lambda d, t: d.ComposeTransform([d.AffineTransform(1.0, 2.0), d.TanhTransform(), d.SigmoidTransform()]), X),
    "composed of numbers and vectors": (lambda d, t: d.ComposeTransform([d.TanhTransform(), d.StickBreakingTransform()]), X),
    "composed and back": (lambda d, t: d.ComposeTransform([d.ExpTransform(), d.AffineTransform(1.0, 2.0).inv]).inv, np.abs(X)),
    "cat": (lambda d, t: d.CatTransform([d.ExpTransform(), d.TanhTransform()], 1, [2, 1]), X),
    "stack": (lambda d, t: d.StackTransform([d.ExpTransform(), d.TanhTransform()]), X),
    "cdf": (lambda d, t: d.CumulativeDistributionTransform(d.Normal(t.tensor(0.5).double(), t.tensor(2.0).double())), X),
}
WITHOUT_JACOBIAN: dict[str, tuple[Any, np.ndarray]] = {
    "abs": (lambda d, t: d.AbsTransform(), X),
    "softmax": (lambda d, t: d.SoftmaxTransform(), X),
    "lower cholesky": (lambda d, t: d.LowerCholeskyTransform(), SQUARE),
    "positive definite": (lambda d, t: d.PositiveDefiniteTransform(), SQUARE),
}
EVERY = TRANSFORMS | WITHOUT_JACOBIAN


def same(mine: Any, theirs: Any, bound: float = 1e-7) -> None:
    np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), rtol=bound, atol=bound)


@pytest.mark.parametrize("name", EVERY)
def test_transforms_are_torch_s(name: str) -> None:
    make, array = EVERY[name]
    results = []
    for lib in (fl, torch):
        transform, x = make(lib.distributions, lib), lib.tensor(array, requires_grad=True)
        y = transform(x)
        back = transform.inv(y)
        total = (y * y.detach().cos()).sum() + back.sum()
        if name in TRANSFORMS:
            jacobian = transform.log_abs_det_jacobian(x, y)
            total = total + (jacobian * jacobian.detach().cos()).sum()
        else:
            jacobian = y
            with pytest.raises(NotImplementedError):
                transform.log_abs_det_jacobian(x, y)
        total.backward()
        shapes = tuple(transform.forward_shape(array.shape)), tuple(transform.inverse_shape(tuple(y.shape)))
        dims = transform.domain.event_dim, transform.codomain.event_dim
        results.append((y, back, jacobian, x.grad, shapes, dims, bool(transform.bijective)))
    mine, theirs = results
    for a, b in zip(mine[:4], theirs[:4]):
        same(a, b)
    assert mine[4:] == theirs[4:]
    if mine[6]:
        same(mine[1], torch.tensor(array))


@pytest.mark.parametrize("name", ["exp", "power", "sigmoid", "tanh", "softplus", "affine", "cdf", "composed", "independent"])
def test_jacobians_by_autograd(name: str) -> None:
    make, array = TRANSFORMS[name]
    transform, x = make(fl.distributions, fl), fl.tensor(array[0])
    matrix = fl.func.jacrev(transform)(x)
    same(transform.log_abs_det_jacobian(x, transform(x)).sum(), torch.linalg.slogdet(torch.tensor(matrix.numpy()))[1])


def test_jacobians_of_vectors_by_autograd() -> None:
    x = fl.tensor(X[0])
    simplex, correlations = fl.distributions.StickBreakingTransform(), fl.distributions.CorrCholeskyTransform()
    for transform, parts in ((simplex, lambda y: y[:-1]), (correlations, lambda y: y[[1, 2, 2], [0, 0, 1]])):
        matrix = fl.func.jacrev(lambda x, transform=transform, parts=parts: parts(transform(x)))(x)
        same(transform.log_abs_det_jacobian(x, transform(x)), torch.linalg.slogdet(torch.tensor(matrix.numpy()))[1])


CONSTRAINTS: dict[str, Any] = {
    "real": lambda c: c.real, "positive": lambda c: c.positive, "nonnegative": lambda c: c.nonnegative, "unit": lambda c: c.unit_interval,
    "interval": lambda c: c.interval(1.0, 3.0), "half open": lambda c: c.half_open_interval(-1.0, 3.0),
    "greater": lambda c: c.greater_than(2.0), "greater or equal": lambda c: c.greater_than_eq(2.0), "less": lambda c: c.less_than(-2.0),
    "vector": lambda c: c.real_vector, "independent": lambda c: c.independent(c.positive, 1), "simplex": lambda c: c.simplex,
    "corr_cholesky": lambda c: c.corr_cholesky, "cat": lambda c: c.cat([c.positive, c.real], 1, [1, 2]),
    "stack": lambda c: c.stack([c.positive, c.real], 0), "lower_cholesky": lambda c: c.lower_cholesky,
    "positive_definite": lambda c: c.positive_definite,
}


@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
@pytest.mark.parametrize("name", CONSTRAINTS)
def test_registered_transforms_lead_into_the_constraint(name: str, registry: str) -> None:
    array = SQUARE if name in ("lower_cholesky", "positive_definite") else X
    if array is SQUARE and registry == "biject_to":
        with pytest.raises(NotImplementedError, match="Cannot transform"):
            fl.distributions.biject_to(CONSTRAINTS[name](fl.distributions.constraints))
        return
    results = [getattr(lib.distributions, registry)(CONSTRAINTS[name](lib.distributions.constraints))(lib.tensor(array))
               for lib in (fl, torch)]
    same(*results)
    assert bool(CONSTRAINTS[name](fl.distributions.constraints).check(results[0]).all())


def test_registering() -> None:
    class Even(fl.distributions.constraints.Constraint):
        """Even numbers."""

    registry = type(fl.distributions.biject_to)()
    with pytest.raises(NotImplementedError, match="Cannot transform Even"):
        registry(Even())
    registry.register(Even(), lambda constraint: fl.distributions.AffineTransform(0, 2))
    assert registry(Even())(3) == 6
    for constraint in (fl.distributions.constraints.boolean, fl.distributions.constraints.nonnegative_integer):
        with pytest.raises(NotImplementedError, match="Cannot transform"):
            fl.distributions.transform_to(constraint)
    with pytest.raises(TypeError, match="Expected constraint"):
        registry.register(3, lambda constraint: None)


def test_the_cache_returns_the_very_tensor() -> None:
    for transform in (fl.distributions.ExpTransform(cache_size=1), fl.distributions.ComposeTransform(
            [fl.distributions.ExpTransform(), fl.distributions.AffineTransform(1, 2)], cache_size=1),
            fl.distributions.IndependentTransform(fl.distributions.ExpTransform(), 1, cache_size=1)):
        x = fl.tensor(X)
        y = transform(x)
        assert transform(x) is y and transform.inv(y) is x and transform.with_cache(0).inv(y) is not x
    with pytest.raises(ValueError, match="cache_size must be 0 or 1"):
        fl.distributions.ExpTransform(2)


def test_equality_and_names() -> None:
    d = fl.distributions
    assert d.ExpTransform() == d.ExpTransform() != d.TanhTransform() and d.ExpTransform().inv == d.ExpTransform().inv
    assert d.AffineTransform(fl.ones(2), 1) == d.AffineTransform(fl.ones(2), 1) != d.AffineTransform(0, 1)
    assert repr(d.ComposeTransform([d.ExpTransform(), d.ExpTransform().inv])) == \
        "ComposeTransform(\n    ExpTransform(),\n    _InverseTransform(ExpTransform())\n)"
    assert pickle.loads(pickle.dumps(d.AffineTransform(1, 2))) == d.AffineTransform(1, 2)


@pytest.mark.parametrize(("call", "message"), [
    (lambda d: d.ReshapeTransform((2, 3), (4,)), "different numbers of elements"),
    (lambda d: d.ReshapeTransform((2, 3), (6,)).forward_shape((5, 2, 2)), "Shape mismatch"),
    (lambda d: d.StickBreakingTransform().forward_shape(()), "Too few dimensions"),
    (lambda d: d.CorrCholeskyTransform().forward_shape((4,)), "not a flattened lower-diagonal number"),
    (lambda d: d.CorrCholeskyTransform().event_dim, "domain.event_dim or"),
    (lambda d: d.TransformedDistribution(d.Normal(0.0, 1.0), 3), "must be a Transform"),
    (lambda d: d.TransformedDistribution(d.Normal(0.0, 1.0), d.StickBreakingTransform()), "size at least 1"),
    (lambda d: d.TransformedDistribution(d.Normal(0.0, 1.0), d.ExpTransform()).log_prob(
        (fl if d is fl.distributions else torch).tensor(-2.0)), "within the support"),
])
def test_refused(call: Any, message: str) -> None:
    for lib in (fl, torch):
        with pytest.raises(ValueError, match=message):
            call(lib.distributions)


# -- distributions ---------------------------------------------------------------------------------------------------
def _normal(t: Any, *shape: int) -> Any:
    return t.distributions.Normal(t.zeros(*shape), t.ones(*shape))


DISTRIBUTIONS: dict[str, tuple[Any, Any]] = {
    "lognormal": (lambda t, d: d.TransformedDistribution(_normal(t, 3), d.ExpTransform()), [0.5, 1.0, 4.0]),
    "logistic": (lambda t, d: d.TransformedDistribution(d.Uniform(t.zeros(3), t.ones(3)), [
        d.SigmoidTransform().inv, d.AffineTransform(1.0, -2.0)]), [0.5, -1.0, 4.0]),
    "simplex": (lambda t, d: d.TransformedDistribution(_normal(t, 2, 3), d.StickBreakingTransform()), [[0.1, 0.2, 0.3, 0.4]] * 2),
    "broadcast": (lambda t, d: d.TransformedDistribution(_normal(t, 1), d.AffineTransform(t.tensor([1.0, 2.0]), 3.0)), [0.3, 0.4]),
    "one event": (lambda t, d: d.TransformedDistribution(d.Independent(_normal(t, 2, 3), 1), d.ExpTransform()), [[0.1, 0.2, 3.0]] * 2),
    "reshaped": (lambda t, d: d.TransformedDistribution(_normal(t, 2), [d.ExpTransform(), d.ReshapeTransform((2,), (1, 2))]), [[0.1, 0.7]]),
    "nothing": (lambda t, d: d.TransformedDistribution(_normal(t, 2), []), [0.1, 0.7]),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_transformed_distributions_are_torch_s(name: str) -> None:
    make, value = DISTRIBUTIONS[name]
    mine, theirs = (make(lib, lib.distributions) for lib in (fl, torch))
    assert tuple(mine.batch_shape) == tuple(theirs.batch_shape) and tuple(mine.event_shape) == tuple(theirs.event_shape)
    assert mine.support.event_dim == theirs.support.event_dim and mine.has_rsample
    same(mine.log_prob(fl.tensor(value)), theirs.log_prob(torch.tensor(value)), 1e-5)
    wide = mine.expand((4, *mine.batch_shape))
    assert tuple(wide.batch_shape) == (4, *theirs.batch_shape) and wide.event_shape == mine.event_shape
    drawn = wide.sample((5,))
    assert tuple(drawn.shape) == (5, 4, *theirs.batch_shape, *theirs.event_shape) and bool(wide.log_prob(drawn).isfinite().all())
    fl._dynamo.reset()
    same(fl.compile(mine.log_prob, backend="aot_eager")(fl.tensor(value)), theirs.log_prob(torch.tensor(value)), 1e-5)


@pytest.mark.parametrize("name", ["lognormal", "logistic", "broadcast"])
def test_cdf_of_monotonic_transforms(name: str) -> None:
    make, value = DISTRIBUTIONS[name]
    mine, theirs = (make(lib, lib.distributions) for lib in (fl, torch))
    same(mine.cdf(fl.tensor(value)), theirs.cdf(torch.tensor(value)), 1e-5)
    same(mine.icdf(fl.tensor([0.2, 0.5, 0.9][:len(value)])), theirs.icdf(torch.tensor([0.2, 0.5, 0.9][:len(value)])), 1e-4)


def test_samples_have_gradients() -> None:
    loc = fl.tensor(0.5, requires_grad=True)
    made = fl.distributions.TransformedDistribution(fl.distributions.Normal(loc, 1.0), fl.distributions.ExpTransform())
    made.rsample((3,)).sum().backward()
    assert loc.grad is not None and loc.grad > 0
    assert math.isclose(fl.distributions.SigmoidTransform()(fl.tensor(200.0)).item(), 1 - fl.finfo(fl.float32).eps, rel_tol=1e-7)


def test_a_class_may_keep_its_inverse() -> None:
    class Twice(fl.distributions.transforms.AffineTransform):
        @property
        def inv(self) -> Any:
            found = self._inv and self._inv()
            if found is None:
                found = fl.distributions.transforms.AffineTransform(0.0, 0.5)
                self._inv = weakref.ref(found)
            return found

    twice = Twice(0.0, 2.0)
    kept = twice.inv
    assert twice.inv is kept and twice.with_cache()._inv is None
    assert twice == Twice(0.0, 2.0) and twice.inv(twice(fl.tensor(3.0))) == 3
    exp, tanh = fl.distributions.transforms.ExpTransform, fl.distributions.transforms.TanhTransform
    assert exp().inv == exp().inv != tanh().inv
