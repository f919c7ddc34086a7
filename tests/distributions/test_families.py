"""Exponential families by their natural parameters, and what distributions and transforms tell of themselves."""

import copy
import pickle

import pytest

import flambeau as fl
from flambeau import distributions as D

torch = pytest.importorskip("torch")

FAMILIES = {
    "Normal": ((0.5, -1.0), (1.0, 2.0)), "Exponential": ((0.5, 2.0),), "Gamma": ((1.5, 2.0), (0.5, 3.0)), "Beta": ((1.5, 2.0), (0.5, 3.0)),
    "Dirichlet": (((1.5, 2.0, 0.5),),), "Bernoulli": ((0.25, 0.5),), "Poisson": ((0.5, 4.0),),
}


def made(lib, name):
    return getattr(lib.distributions, name)(*map(lib.tensor, FAMILIES[name]))


@pytest.mark.parametrize("name", FAMILIES)
def test_natural_parameters(name):
    ours, theirs = made(fl, name), made(torch, name)
    natural, wanted = ours._natural_params, theirs._natural_params
    assert [p.flatten().tolist() for p in natural] == [pytest.approx(p.flatten().tolist()) for p in wanted]
    assert ours._log_normalizer(*natural).tolist() == pytest.approx(theirs._log_normalizer(*wanted).tolist(), rel=1e-5)


@pytest.mark.parametrize("name", ["Normal", "Exponential", "Gamma", "Bernoulli"])
def test_entropy_follows_from_the_log_normalizer(name):
    family = made(fl, name)
    natural = [p.detach().clone().requires_grad_() for p in family._natural_params]
    normalizer = family._log_normalizer(*natural)
    means = fl.autograd.grad(normalizer.sum(), natural)
    entropy = normalizer - sum(p * m for p, m in zip(natural, means)) - family._mean_carrier_measure
    fl.testing.assert_close(entropy.detach(), family.entropy(), rtol=1e-4, atol=1e-5)


def test_constraints_of_parameters_and_refusals():
    relaxed = D.RelaxedBernoulli(fl.tensor(0.5), fl.tensor([0.3]))
    assert sorted(relaxed.arg_constraints) == ["logits", "probs"] and list(D.Chi2(1.0).arg_constraints) == ["df"]
    for wrong in (lambda: D.Geometric(0.0), lambda: D.Chi2(-1.0), lambda: D.Distribution.set_default_validate_args(5)):
        with pytest.raises(ValueError, match=r"invalid values|True or False"):
            wrong()


def test_the_inverse_of_an_inverse():
    composed = D.ComposeTransform([D.ExpTransform(), D.AffineTransform(1.0, 2.0)])
    assert composed.inv.inv is composed
    x = fl.tensor([0.5])
    for again in (copy.deepcopy(composed), pickle.loads(pickle.dumps(composed))):
        fl.testing.assert_close(again.inv(again(x)), x)
    assert D.ReshapeTransform((4,), (2, 2)).forward_shape((3, 4)) == fl.Size((3, 2, 2))
