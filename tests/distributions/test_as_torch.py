"""Draws are torch's for a seed, with its gradients; and the facts that a distribution tells of itself."""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np
import pytest

import flambeau as fl

torch_itself = pytest.importorskip("torch", reason="torch is the oracle")

A, B, P, ROW = [0.5, 2.0], [1.5, 3.0], [0.3, 0.6], [0.2, 0.5, 0.3]
# name: (class, its parameters); those of the first group draw with gradients
MOVING = {
    "Beta": (A, B), "Cauchy": (A, B), "Chi2": (A,), "ContinuousBernoulli": (P,), "Dirichlet": ([0.5, 2.0, 3.0],), "Exponential": (A,),
    "FisherSnedecor": ([2.0, 3.0], [4.0, 5.0]), "Gamma": (A, B), "Gumbel": (A, B), "HalfCauchy": (A,), "HalfNormal": (A,),
    "InverseGamma": ([2.0, 3.0], A), "Kumaraswamy": ([2.0, 3.0], A), "Laplace": (A, B), "LogNormal": (A, P), "LogisticNormal": (A, B),
    "Normal": (A, B), "OneHotCategoricalStraightThrough": (ROW,), "Pareto": (A, B), "StudentT": ([2.0, 3.0], A, B), "Uniform": (A, B),
    "Weibull": (A, B), "GeneralizedPareto": (A, B, [0.1, 0.2]),
}
STILL = {"Bernoulli": (P,), "Binomial": ([5.0, 5.0], P), "Categorical": (ROW,), "Geometric": (P,), "NegativeBinomial": (A, P),
         "OneHotCategorical": (ROW,), "Poisson": (B,)}
FACTS = ("mean", "mode", "variance", "stddev", "batch_shape", "event_shape", "has_rsample", "has_enumerate_support", "param_shape")
OWN_MODE = {"Kumaraswamy"}     # torch's is NaN, from the logarithm of a negative number


def made(torch, name, parameters):
    given = [torch.tensor(p, requires_grad=name in MOVING) for p in parameters]
    return given, getattr(torch.distributions, name)(*given)


def close(mine, theirs, rtol=1e-4):
    np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), rtol=rtol, atol=1e-5)


@pytest.mark.parametrize("name", [*MOVING, *STILL])
@pytest.mark.parametrize("shape", [(3,), (2, 40)], ids=["few", "many"])
def test_draws(name, shape):
    answers = []
    for torch in (torch_itself, fl):
        given, d = made(torch, name, {**MOVING, **STILL}[name])
        torch.manual_seed(4)
        drawn = [d.sample(shape)]
        if name in MOVING:
            torch.manual_seed(4)
            drawn.append(d.rsample(shape))
            weights = torch.linspace(1, 2, drawn[1].numel()).view_as(drawn[1])
            drawn += torch.autograd.grad((drawn[1].clamp(-50, 50) * weights).sum(), given)
        answers.append(drawn)
    for i, (theirs, mine) in enumerate(zip(*answers, strict=True)):
        close(mine, theirs, 1e-4 if i < 2 else 2e-3)    # torch has approximations of its gradients


@pytest.mark.parametrize("name", [*MOVING, *STILL])
def test_facts(name):
    _, theirs = made(torch_itself, name, {**MOVING, **STILL}[name])
    _, mine = made(fl, name, {**MOVING, **STILL}[name])
    for fact in FACTS:
        if (name in OWN_MODE and fact == "mode") or not hasattr(type(theirs), fact):
            continue
        try:
            expected = getattr(theirs, fact)
        except NotImplementedError:
            continue
        got = getattr(mine, fact)
        if isinstance(expected, torch_itself.Tensor):
            close(got, expected)
        else:
            assert got == expected, fact
    if theirs.has_enumerate_support:
        for expand in (False, True):
            close(mine.enumerate_support(expand).float(), theirs.enumerate_support(expand).float())


@pytest.mark.parametrize("name", ["Gamma", "Chi2", "InverseGamma", "GeneralizedPareto"])
def test_areas(name):
    _, theirs = made(torch_itself, name, MOVING[name])
    _, mine = made(fl, name, MOVING[name])
    close(mine.cdf(fl.tensor([2.5, 3.5])), theirs.cdf(torch_itself.tensor([2.5, 3.5])))


@pytest.mark.parametrize("given", ["covariance_matrix", "precision_matrix", "scale_tril"])
def test_a_normal_keeps_what_it_was_given(given):
    matrix = [[2.0, 0.0], [0.5, 1.0]] if given == "scale_tril" else [[2.0, 0.5], [0.5, 1.0]]
    answers = []
    for torch in (torch_itself, fl):
        d = torch.distributions.MultivariateNormal(torch.zeros(3, 2), **{given: torch.tensor(matrix)})
        answers.append(d)
        assert repr(d) == f"MultivariateNormal(loc: torch.Size([3, 2]), {given}: torch.Size([3, 2, 2]))"
    for form in ("covariance_matrix", "precision_matrix", "scale_tril", "variance"):
        close(getattr(answers[1], form), getattr(answers[0], form))
    close(answers[1].expand((4, 3)).log_prob(fl.ones(2)), answers[0].expand((4, 3)).log_prob(torch_itself.ones(2)))
    with pytest.raises(ValueError, match="PositiveDefinite"):
        fl.distributions.MultivariateNormal(fl.zeros(2), fl.tensor([[1.0, 2.0], [2.0, 1.0]]))


def test_a_normal_may_find_its_factor_late():
    """As classes of others do, that never call the constructor."""
    class Lazy(fl.distributions.MultivariateNormal):
        def __init__(self, loc, covariance):
            self.loc, self.covariance = loc, covariance
            fl.distributions.Distribution.__init__(self, loc.shape[:-1], loc.shape[-1:], validate_args=False)

        @property
        def _unbroadcasted_scale_tril(self):
            return fl.linalg.cholesky(self.covariance)

    lazy, plain = Lazy(fl.zeros(2), fl.eye(2) * 4), fl.distributions.MultivariateNormal(fl.zeros(2), fl.eye(2) * 4)
    close(lazy.log_prob(fl.ones(2)), plain.log_prob(fl.ones(2)))
    close(lazy.scale_tril, fl.eye(2) * 2)
    close(lazy.entropy(), plain.entropy())


def test_a_mixture_chooses_before_it_draws():
    answers = []
    for torch in (torch_itself, fl):
        D = torch.distributions
        torch.manual_seed(0)
        answers.append(D.MixtureSameFamily(D.Categorical(torch.tensor([0.3, 0.7])), D.Normal(torch.tensor([0.0, 5.0]), 1.0)).sample((5,)))
    close(answers[1], answers[0])


def test_what_is_computed_lazily_in_sample_keeps_its_gradient():
    logits = fl.zeros(3, requires_grad=True)
    d = fl.distributions.Bernoulli(logits=logits)
    d.sample()
    assert d.probs.requires_grad


@pytest.mark.parametrize("function, given", [
    ("_standard_gamma_grad", ([0.05, 0.3, 2.0, 5.0, 1000.0], [1e-8, 0.01, 40.0, 11.0, 1100.0])),
    ("_dirichlet_grad", ([0.2, 0.5, 0.9, 1e-3], [0.5, 2.0, 3.0, 0.1], [2.0, 4.0, 5.0, 1.0]))])
def test_how_draws_move(function, given):
    theirs = getattr(torch_itself, function)(*map(torch_itself.tensor, given))
    mine = getattr(fl, function)(*map(fl.tensor, given))
    np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=2e-3)


def test_classes_have_the_modules_that_torch_keeps_them_in():
    for place in pkgutil.iter_modules(torch_itself.distributions.__path__):
        theirs = importlib.import_module(f"torch.distributions.{place.name}")
        ours = importlib.import_module(f"flambeau.distributions.{place.name}")
        assert set(theirs.__all__) <= {*dir(ours)}, place.name


@pytest.mark.parametrize("place, name, values", [("relaxed_bernoulli", "LogitRelaxedBernoulli", [0.3, 0.2]),
                                                 ("relaxed_categorical", "ExpRelaxedCategorical", [0.3, 0.7])])
def test_relaxed_logits(place, name, values):
    answers = []
    for library in ("torch", "flambeau"):
        torch = importlib.import_module(library)
        kind = getattr(importlib.import_module(f"{library}.distributions.{place}"), name)
        torch.manual_seed(0)
        made = kind(torch.tensor(0.5), probs=torch.tensor(values))
        wide = made.expand((3, *made.batch_shape))
        draws = wide.rsample((4,))
        with pytest.raises(ValueError, match="probs"):
            kind(torch.tensor(0.5))
        answers.append([draws, wide.log_prob(draws), made.probs, made.logits, wide.temperature])
    for theirs, mine in zip(*answers):
        assert mine.shape == theirs.shape
        close(mine, theirs)
