"""Kullback-Leibler divergences KL(p || q): a closed form for each pair of classes; between families, minus the entropy of p and what q's
code for p's values costs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from .. import linalg
from ..core.tensor import Tensor
from .continuous import (
    Beta,
    Cauchy,
    Dirichlet,
    Exponential,
    Gamma,
    Gumbel,
    Independent,
    Laplace,
    MultivariateNormal,
    Normal,
    Uniform,
    _log_beta,
    _op,
)
from .derived import HalfNormal, Pareto
from .discrete import Bernoulli, Binomial, Categorical, Geometric, OneHotCategorical, Poisson
from .distribution import Distribution, sum_rightmost
from .further import ContinuousBernoulli, LowRankMultivariateNormal
from .matrices import Wishart
from .transformed import TransformedDistribution

EULER = 0.57721566490153286061

_KL_REGISTRY: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Callable], Callable]:
    """Decorate a formula for KL(p || q) of two classes and their subclasses."""
    for kind in (type_p, type_q):
        if not isinstance(kind, type):     # of whatever family: libraries have bases of their own
            raise TypeError(f"Expected a class of distributions but got {kind}")

    def decorate(formula: Callable) -> Callable:
        _KL_REGISTRY[type_p, type_q] = formula
        return formula

    return decorate


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """KL(p || q); NotImplementedError for pairs without a formula."""
    fits = [pair for pair in _KL_REGISTRY if isinstance(p, pair[0]) and isinstance(q, pair[1])]
    if not fits:
        raise NotImplementedError(f"No KL(p || q) is implemented for p type {type(p).__name__} and q type "
                                  f"{type(q).__name__}; estimate it as (p.log_prob(x) - q.log_prob(x)).mean() over samples x of p")
    best = min(fits, key=lambda pair: type(p).__mro__.index(pair[0]) + type(q).__mro__.index(pair[1]))
    return _KL_REGISTRY[best](p, q)


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return _op("where", (q.low > p.low) | (q.high < p.high), float("inf"), result)


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    shapes = _op("lgamma", b) - _op("lgamma", a) + (a - b) * _op("digamma", a)
    return b * (p.rate / q.rate).log() + shapes + (q.rate - p.rate) * a / p.rate


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    slopes = (a - c) * _op("digamma", a) + (b - d) * _op("digamma", b)
    return _log_beta(c, d) - _log_beta(a, b) + slopes + (c + d - a - b) * _op("digamma", a + b)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1, keepdim=True)
    ends = _op("lgamma", a.sum(-1)) - _op("lgamma", b.sum(-1)) + (_op("lgamma", b) - _op("lgamma", a)).sum(-1)
    return ends + ((a - b) * (_op("digamma", a) - _op("digamma", total))).sum(-1)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    a, b = p.probs, q.probs
    first = _op("where", a == 0, 0.0, a * (a / b).log())
    second = _op("where", a == 1, 0.0, (1 - a) * ((1 - a) / (1 - b)).log())
    return first + second


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    terms = p.probs * (p.logits - q.logits)
    terms = _op("where", q.probs == 0, float("inf"), terms)
    return _op("where", p.probs == 0, 0.0, terms).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categorical(p._categorical, q._categorical)


@register_kl(Wishart, Wishart)
def _wishart(p: Wishart, q: Wishart) -> Tensor:
    n, a, b = p.event_shape[0], p.df / 2, q.df / 2
    trace = _op("cholesky_solve", p.covariance_matrix, q.scale_tril).diagonal(0, -2, -1).sum(-1)
    digammas = _op("digamma", a.unsqueeze(-1) - _op("arange", n, dtype=a.dtype, device=a.device) / 2).sum(-1)
    return (b * (q._log_det() - p._log_det()) + a * (trace - n) + _op("mvlgamma", b, n) - _op("mvlgamma", a, n) + (a - b) * digammas)


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("KL of two Independent distributions needs equal reinterpreted_batch_ndims, got "
                                  f"{p.reinterpreted_batch_ndims} and {q.reinterpreted_batch_ndims}")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


def _unbounded(p: Poisson, q: Any) -> Tensor:
    return p.rate * 0 + q.probs * 0 + math.inf


_SHORT: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {
    (Bernoulli, Poisson): lambda p, q: q.rate - p.probs * q.rate.log() - p.entropy(),
    (Cauchy, Cauchy): lambda p, q: (((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2) / (4 * p.scale * q.scale)).log(),
    (Geometric, Geometric): lambda p, q: -p.entropy() - (1 / p.probs - 1) * _op("log1p", -q.probs) - q.probs.log(),
    (HalfNormal, HalfNormal): lambda p, q: _normal(p.base_dist, q.base_dist),
    (OneHotCategorical, OneHotCategorical): lambda p, q: _categorical(p._categorical, q._categorical),
    (Poisson, Bernoulli): _unbounded, (Poisson, Binomial): _unbounded,
    (Poisson, Poisson): lambda p, q: p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate),
}
_KL_REGISTRY |= _SHORT


# -- between families --------------------------------------------------------------------------------------------------------
_SPANS: dict[type, Callable[[Any], tuple]] = {
    Beta: lambda d: (0, 1), ContinuousBernoulli: lambda d: (0, 1), Exponential: lambda d: (0, math.inf), Gamma: lambda d: (0, math.inf),
    Gumbel: lambda d: (-math.inf, math.inf), Laplace: lambda d: (-math.inf, math.inf), Normal: lambda d: (-math.inf, math.inf),
    Pareto: lambda d: (d.scale, math.inf), Uniform: lambda d: (d.low, d.high),
}
"""From where to where the values of a class reach: where p's reach beyond q's, the divergence is infinite."""


def _x_log_x(x: Tensor) -> Tensor:
    return _op("xlogy", x, x)


def _mean_log(low: Tensor, high: Tensor) -> Tensor:
    """The mean of log x for x between two bounds."""
    return (_x_log_x(high) - _x_log_x(low)) / (high - low) - 1


_MEANS_OF_LOG: dict[type, Callable[[Any], Tensor]] = {
    Beta: lambda p: _op("digamma", p.concentration1) - _op("digamma", p.concentration1 + p.concentration0),
    Exponential: lambda p: -p.rate.log() - EULER,
    Gamma: lambda p: _op("digamma", p.concentration) - p.rate.log(),
    Pareto: lambda p: p.scale.log() + 1 / p.alpha,
    Uniform: lambda p: _mean_log(p.low, p.high),
}
_MEANS_OF_DECAY: dict[type, Callable[[Any, Tensor], Tensor]] = {     # of exp(-t x)
    Exponential: lambda p, t: p.rate / (p.rate + t),
    Gamma: lambda p, t: (1 + t / p.rate) ** -p.concentration,
    Gumbel: lambda p, t: (_op("lgamma", 1 + p.scale * t) - p.loc * t).exp(),
    Normal: lambda p, t: (-p.loc * t + (p.scale * t) ** 2 / 2).exp(),
    Uniform: lambda p, t: ((-p.low * t).exp() - (-p.high * t).exp()) / (t * (p.high - p.low)),
}


def _mean_distance(p: Normal, at: Tensor) -> Tensor:
    """The mean of |x - at|."""
    away = (p.loc - at) / p.scale
    return p.scale * (math.sqrt(2 / math.pi) * (-away**2 / 2).exp() + away * _op("erf", away / math.sqrt(2)))


_COSTS: dict[type, Callable[[Any, Any], Tensor]] = {     # the mean of -log q(x) over p
    Beta: lambda p, q: _log_beta(q.concentration1, q.concentration0) - (q.concentration1 - 1) * _mean_log(p.low, p.high)
        - (q.concentration0 - 1) * _mean_log(1 - p.high, 1 - p.low),
    ContinuousBernoulli: lambda p, q: -q.log_prob(q.probs * 0) - p.mean * q.logits,     # its logarithm is a line
    Exponential: lambda p, q: q.rate * p.mean - q.rate.log(),
    Gamma: lambda p, q: _op("lgamma", q.concentration) - q.concentration * q.rate.log() - (q.concentration - 1) * _of(_MEANS_OF_LOG, p)(p)
        + q.rate * p.mean,
    Gumbel: lambda p, q: q.scale.log() + (p.mean - q.loc) / q.scale + (q.loc / q.scale).exp() * _of(_MEANS_OF_DECAY, p)(p, 1 / q.scale),
    Laplace: lambda p, q: (2 * q.scale).log() + _mean_distance(p, q.loc) / q.scale,
    Normal: lambda p, q: (math.sqrt(2 * math.pi) * q.scale).log() + (p.variance + (p.mean - q.loc) ** 2) / (2 * q.scale**2),
    Pareto: lambda p, q: -q.alpha.log() - q.alpha * q.scale.log() + (q.alpha + 1) * _of(_MEANS_OF_LOG, p)(p),
    Uniform: lambda p, q: (q.high - q.low).log(),
}


def _of(table: dict[type, Any], d: Distribution) -> Any:
    return next(table[kind] for kind in type(d).__mro__ if kind in table)


def _divergence(p: Any, q: Any) -> Tensor:
    (low, high), (least, most) = _of(_SPANS, p)(p), _of(_SPANS, q)(q)
    beyond = low < least, high > most
    if any(b is True for b in beyond) or (isinstance(q, Pareto) and not isinstance(p, (Pareto, Uniform))):
        return p.entropy() * 0 + math.inf
    result = _of(_COSTS, q)(p, q) - p.entropy()
    return _op("where", beyond[0] | beyond[1], math.inf, result) if any(b is not False for b in beyond) else result


_TABLE: dict[tuple[type, ...], tuple[type, ...]] = {     # q's, by p's
    (Gumbel, Laplace, Normal): (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    (Exponential, Gamma): (Beta, ContinuousBernoulli, Gumbel, Normal, Pareto, Uniform), (Exponential,): (Gamma,), (Gamma,): (Exponential,),
    (Pareto,): (Beta, ContinuousBernoulli, Exponential, Gamma, Normal, Pareto, Uniform),
    (Beta,): (ContinuousBernoulli, Exponential, Gamma, Normal, Pareto, Uniform),
    (ContinuousBernoulli,): (ContinuousBernoulli, Exponential, Normal, Pareto, Uniform),
    (Uniform,): (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Normal, Pareto),
    (Gumbel, Laplace): (Normal,), (Gumbel,): (Gumbel,), (Normal,): (Gumbel, Laplace),
}
for _ps, _qs in _TABLE.items():
    for _pair in itertools.product(_ps, _qs):
        register_kl(*_pair)(_divergence)


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    if (p.total_count < q.total_count).any():
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    result = p.total_count * (p.probs * (p.logits - q.logits) + _op("log1p", -p.probs) - _op("log1p", -q.probs))
    return _op("where", p.total_count > q.total_count, math.inf, result)


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
@register_kl(MultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _multivariate(p: Any, q: Any) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError(f"KL-divergence between multivariate normals needs events of one shape, got {p.event_shape} and {q.event_shape}")
    scale, other = p.scale_tril, q.scale_tril
    scaled = linalg.solve_triangular(other, scale, upper=False)
    shifted = linalg.solve_triangular(other, (q.loc - p.loc).unsqueeze(-1), upper=False)
    sizes = [s.diagonal(dim1=-2, dim2=-1).log().sum(-1) for s in (other, scale)]
    return sizes[0] - sizes[1] + 0.5 * ((scaled**2).sum((-2, -1)) + (shifted**2).sum((-2, -1)) - p.event_shape[0])


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("KL of two TransformedDistributions needs equal transforms and events of one shape")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), len(p.event_shape) - len(p.base_dist.event_shape))
