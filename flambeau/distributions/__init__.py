"""torch.distributions: sampling, densities, entropies and divergences of the common distributions."""

from __future__ import annotations

from .._absent import absent_names
from . import constraints, continuous, discrete, distribution, kl
from .continuous import (
    Beta,
    Cauchy,
    Chi2,
    Dirichlet,
    Exponential,
    Gamma,
    Gumbel,
    Independent,
    Laplace,
    LogNormal,
    MultivariateNormal,
    Normal,
    Uniform,
)
from .discrete import Bernoulli, Categorical, Geometric, NegativeBinomial, OneHotCategorical, Poisson
from .distribution import Distribution, ExponentialFamily
from .kl import kl_divergence, register_kl

__getattr__ = absent_names(
    "torch.distributions",
    (
        "Binomial",
        "ContinuousBernoulli",
        "FisherSnedecor",
        "HalfCauchy",
        "HalfNormal",
        "InverseGamma",
        "Kumaraswamy",
        "LKJCholesky",
        "LogisticNormal",
        "LowRankMultivariateNormal",
        "MixtureSameFamily",
        "Multinomial",
        "OneHotCategoricalStraightThrough",
        "Pareto",
        "RelaxedBernoulli",
        "RelaxedOneHotCategorical",
        "StudentT",
        "TransformedDistribution",
        "VonMises",
        "Weibull",
        "Wishart",
        "AffineTransform",
        "ExpTransform",
        "SigmoidTransform",
        "TanhTransform",
        "ComposeTransform",
        "Transform",
    ),
    "use one of the distributions in torch.distributions.__all__, or its formula",
)

__all__ = [
    "Bernoulli",
    "Beta",
    "Categorical",
    "Cauchy",
    "Chi2",
    "Dirichlet",
    "Distribution",
    "Exponential",
    "ExponentialFamily",
    "Gamma",
    "Geometric",
    "Gumbel",
    "Independent",
    "Laplace",
    "LogNormal",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "Poisson",
    "Uniform",
    "constraints",
    "kl_divergence",
    "register_kl",
]
