"""KL(p || q) of every pair of classes that torch has a formula for, beside torch's."""

import inspect
import itertools

import pytest

import flambeau as fl

torch = pytest.importorskip("torch")

# parameters by class: each a list of numbers, so that some values of q reach as far as p's and others don't
MADE = {
    "Bernoulli": lambda d, t: d.Bernoulli(t([0.3, 0.7])), "Beta": lambda d, t: d.Beta(t([0.7, 2.0]), t([1.5, 3.0])),
    "Binomial": lambda d, t: d.Binomial(4, t([0.3, 0.7])), "Categorical": lambda d, t: d.Categorical(t([[0.3, 0.7], [0.5, 0.5]])),
    "Cauchy": lambda d, t: d.Cauchy(t([0.0, 1.0]), t([1.0, 2.0])), "ContinuousBernoulli": lambda d, t: d.ContinuousBernoulli(t([0.3, 0.8])),
    "Dirichlet": lambda d, t: d.Dirichlet(t([[1.0, 2.0], [0.5, 3.0]])), "Exponential": lambda d, t: d.Exponential(t([0.5, 2.0])),
    "Gamma": lambda d, t: d.Gamma(t([0.5, 2.0]), t([1.5, 3.0])), "Geometric": lambda d, t: d.Geometric(t([0.3, 0.7])),
    "Gumbel": lambda d, t: d.Gumbel(t([0.0, 1.0]), t([1.0, 2.0])), "HalfNormal": lambda d, t: d.HalfNormal(t([0.5, 2.0])),
    "Independent": lambda d, t: d.Independent(d.Normal(t([0.0, 1.0]), t([1.0, 2.0])), 1),
    "Laplace": lambda d, t: d.Laplace(t([0.0, 1.0]), t([1.0, 2.0])),
    "LowRankMultivariateNormal": lambda d, t: d.LowRankMultivariateNormal(t([0.0, 1.0]), t([[0.5], [1.0]]), t([1.0, 2.0])),
    "MultivariateNormal": lambda d, t: d.MultivariateNormal(t([1.0, 1.0]), t([[2.0, 0.3], [0.3, 1.0]])),
    "Normal": lambda d, t: d.Normal(t([0.5, 1.0]), t([1.0, 2.0])), "OneHotCategorical": lambda d, t: d.OneHotCategorical(t([[0.3, 0.7]])),
    "Pareto": lambda d, t: d.Pareto(t([0.5, 1.0]), t([3.0, 2.5])), "Poisson": lambda d, t: d.Poisson(t([0.5, 2.0])),
    "TransformedDistribution": lambda d, t: d.LogNormal(t([0.0, 1.0]), t([1.0, 2.0])),
    "Uniform": lambda d, t: d.Uniform(t([0.1, 0.6]), t([0.9, 3.0])),
}
CLOSED = {("ExponentialFamily", "ExponentialFamily")}    # a formula by automatic differentiation, which serves pairs of one class alone
PAIRS = sorted({(p.__name__, q.__name__) for p, q in torch.distributions.kl._KL_REGISTRY} - CLOSED)


def divergence(lib, p, q):
    def tensor(values):
        return lib.tensor(values, dtype=lib.float64)

    first, second = MADE[p](lib.distributions, tensor), MADE[q](lib.distributions, tensor)
    if p == q:      # of one class, another one
        second = shifted(lib.distributions, second)
    return lib.distributions.kl_divergence(first, second)


def shifted(d, q):
    if isinstance(q, d.Independent):
        return d.Independent(shifted(d, q.base_dist), 1)
    if isinstance(q, (d.LogNormal, d.HalfNormal)):
        return type(q)(*[getattr(q, name) * 1.2 for name in q.arg_constraints])
    names = [n for n in inspect.signature(type(q).__init__).parameters if n in q.arg_constraints]
    chosen = names[:2] if isinstance(q, d.MultivariateNormal) else names[:1] if "logits" in names and "total_count" not in names else names
    given = {n: getattr(q, n) for n in chosen if n not in ("logits", "precision_matrix", "scale_tril")}
    factor = 1 if isinstance(q, d.Pareto) else 1.1
    return type(q)(**{n: v if n == "total_count" or (factor == 1 and n == "scale") else v * 1.1 for n, v in given.items()})


@pytest.mark.parametrize("p, q", PAIRS, ids=[f"{p}-{q}" for p, q in PAIRS])
def test_pairs(p, q):
    ours, theirs = divergence(fl, p, q), divergence(torch, p, q)
    assert ours.shape == theirs.shape
    torch.testing.assert_close(torch.tensor(ours.tolist(), dtype=torch.float64), theirs, rtol=1e-5, atol=1e-6)


def test_every_pair_is_tried():
    assert {name for pair in PAIRS for name in pair} == MADE.keys()
    assert len(PAIRS) == len(set(PAIRS)) and all(pair in itertools.product(MADE, MADE) for pair in PAIRS)
