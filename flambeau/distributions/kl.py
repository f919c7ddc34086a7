"""Kullback-Leibler divergences KL(p || q), one closed form for each pair of classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import linalg
from ..core.tensor import Tensor
from .continuous import Beta, Dirichlet, Exponential, Gamma, Independent, Laplace, MultivariateNormal, Normal, Uniform, _log_beta, _op
from .discrete import Bernoulli, Categorical, OneHotCategorical, Poisson
from .distribution import Distribution, sum_rightmost

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


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    scaled = linalg.solve_triangular(q.scale_tril, p.scale_tril, upper=False)
    shifted = linalg.solve_triangular(q.scale_tril, (q.loc - p.loc).unsqueeze(-1), upper=False)
    distances = (scaled**2).sum((-2, -1)) + (shifted**2).sum((-2, -1))
    return q._half_log_det() - p._half_log_det() + 0.5 * (distances - p.event_shape[0])


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("KL of two Independent distributions needs equal reinterpreted_batch_ndims, got "
                                  f"{p.reinterpreted_batch_ndims} and {q.reinterpreted_batch_ndims}")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
