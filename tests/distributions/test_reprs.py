"""What distributions, transforms and constraints print, beside torch's."""

import pytest

import flambeau as fl

torch = pytest.importorskip("torch")

MADE = (
    "Beta(1.0, 2.0)", "Chi2(1.0)", "HalfCauchy(1.0)", "HalfNormal(1.0)", "InverseGamma(1.0, 1.0)", "LogNormal(0.0, 1.0)",
    "LogisticNormal(t.zeros(2), t.ones(2))", "Normal(0.0, 1.0)", "Normal(t.zeros(2), t.ones(2))", "Gamma(1.0, 1.0)", "Cauchy(0.0, 1.0)",
    "Exponential(1.0)", "Gumbel(0.0, 1.0)", "Laplace(0.0, 1.0)", "StudentT(2.0)", "Pareto(1.0, 1.0)", "Weibull(1.0, 1.0)", "Poisson(1.0)",
    "Uniform(0.0, 1.0)", "VonMises(0.0, 1.0)", "Kumaraswamy(1.0, 1.0)", "ContinuousBernoulli(0.5)", "FisherSnedecor(1.0, 2.0)",
    "Bernoulli(0.5)", "Bernoulli(logits=t.zeros(2))", "Binomial(3, 0.5)", "Geometric(0.5)", "NegativeBinomial(3, 0.5)",
    "Categorical(t.ones(3))", "Categorical(logits=t.zeros(3))", "OneHotCategorical(t.ones(3))", "Multinomial(3, t.ones(3))",
    "RelaxedBernoulli(1.0, 0.5)", "RelaxedOneHotCategorical(1.0, t.ones(3))", "Dirichlet(t.ones(2))", "LKJCholesky(2)",
    "MultivariateNormal(t.zeros(2), t.eye(2))", "Independent(d.Normal(t.zeros(2), t.ones(2)), 1)",
    "TransformedDistribution(d.Normal(0.0, 1.0), [d.ExpTransform()])", "ExpTransform().inv", "AffineTransform(1.0, 2.0)",
    "ComposeTransform([d.ExpTransform(), d.SigmoidTransform()])", "constraints.real_vector", "constraints.independent(c.positive, 2)",
    "constraints.interval(0.0, 1.0)", "constraints.simplex", "constraints.greater_than(1.0)", "constraints.stack([c.real])",
)


@pytest.mark.parametrize("made", MADE)
def test_reprs(made):
    ours, theirs = (eval(f"d.{made}", {"d": t.distributions, "t": t, "c": t.distributions.constraints}) for t in (fl, torch))
    assert repr(ours) == repr(theirs)
