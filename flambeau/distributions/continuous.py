"""Distributions over real numbers. Densities are the standard ones; `rsample` follows from the inverse cdf or a shift and scale."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any

from .. import linalg
from ..core.dtypes import finfo
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.registry import OPERATORS
from . import constraints
from .distribution import Distribution, ExponentialFamily, broadcast_all, sum_rightmost

__all__ = ["Beta", "Cauchy", "Chi2", "Dirichlet", "Exponential", "Gamma", "Gumbel", "Independent", "Laplace",
           "MultivariateNormal", "Normal", "Uniform"]

EULER = 0.57721566490153286
_LOG_2PI = math.log(2 * math.pi)


def _op(name: str, *args: Any, **kwargs: Any) -> Any:
    return OPERATORS[name](*args, **kwargs)


def _log_beta(a: Tensor, b: Tensor) -> Tensor:
    return _op("lgamma", a) + _op("lgamma", b) - _op("lgamma", a + b)


def _uniform(shape: Size, like: Tensor) -> Tensor:
    """Uniform numbers, away from 0."""
    drawn = _op("rand", shape, dtype=like.dtype, device=like.device)
    return drawn.clamp(min=finfo(like.dtype).tiny)


class _LocationScale(Distribution):
    """loc + scale * Z for a standard variable Z."""

    has_rsample = True
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, (), validate_args)

    support = constraints.real
    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}

    def _standard(self, shape: Size) -> Tensor:
        raise NotImplementedError

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return self.loc + self.scale * self._standard(self._extended_shape(sample_shape))

    def _z(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return (value - self.loc) / self.scale

    mean = mode = property(lambda self: self.loc)


class Normal(_LocationScale, ExponentialFamily):
    """N(loc, scale^2)."""

    def _standard(self, shape: Size) -> Tensor:
        return _op("randn", shape, dtype=self.loc.dtype, device=self.loc.device)

    variance = property(lambda self: self.scale**2)
    stddev = property(lambda self: self.scale)

    def log_prob(self, value: Tensor) -> Tensor:
        return -0.5 * self._z(value) ** 2 - self.scale.log() - 0.5 * _LOG_2PI

    def cdf(self, value: Tensor) -> Tensor:
        return 0.5 * (1 + _op("erf", self._z(value) / math.sqrt(2)))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * _op("erfinv", 2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * _LOG_2PI + self.scale.log()


class Laplace(_LocationScale):
    """Density exp(-|x - loc| / scale) / (2 scale)."""

    def _standard(self, shape: Size) -> Tensor:
        u = _uniform(shape, self.loc) - 0.5
        return -u.sign() * _op("log1p", -2 * u.abs().clamp(max=0.5 - finfo(u.dtype).eps / 4))

    variance = property(lambda self: 2 * self.scale**2)

    def log_prob(self, value: Tensor) -> Tensor:
        return -self._z(value).abs() - (2 * self.scale).log()

    def cdf(self, value: Tensor) -> Tensor:
        z = self._z(value)
        return 0.5 - 0.5 * z.sign() * _op("expm1", -z.abs())

    def icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * _op("log1p", -2 * term.abs())

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()


class Gumbel(_LocationScale):
    """The limit of maxima: cdf exp(-exp(-(x - loc) / scale))."""

    def _standard(self, shape: Size) -> Tensor:
        return -(-_uniform(shape, self.loc).log()).log()

    mean = property(lambda self: self.loc + self.scale * EULER)
    variance = property(lambda self: (math.pi * self.scale) ** 2 / 6)

    def log_prob(self, value: Tensor) -> Tensor:
        z = self._z(value)
        return -z - (-z).exp() - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        return (-(-self._z(value)).exp()).exp()

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * (-value.log()).log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + EULER)


class Cauchy(_LocationScale):
    """Density 1 / (pi scale (1 + z^2))."""

    def _standard(self, shape: Size) -> Tensor:
        return (math.pi * (_uniform(shape, self.loc) - 0.5)).tan()

    mean = property(lambda self: _op("full_like", self.loc, math.nan))
    variance = property(lambda self: _op("full_like", self.loc, math.inf))

    def log_prob(self, value: Tensor) -> Tensor:
        return -math.log(math.pi) - self.scale.log() - _op("log1p", self._z(value) ** 2)

    def cdf(self, value: Tensor) -> Tensor:
        return self._z(value).atan() / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * (math.pi * (value - 0.5)).tan()

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()


class Uniform(Distribution):
    """Even over [low, high)."""

    has_rsample = True
    arg_constraints = {"low": constraints.dependent, "high": constraints.dependent}

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, (), validate_args)
        if self._validate_args and not (self.low < self.high).all():
            raise ValueError("Uniform is not defined when low>= high")

    support = property(lambda self: constraints.interval(self.low, self.high))

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        drawn = _op("rand", self._extended_shape(sample_shape), dtype=self.low.dtype, device=self.low.device)
        return self.low + drawn * (self.high - self.low)

    mean = property(lambda self: (self.low + self.high) / 2)
    variance = property(lambda self: (self.high - self.low) ** 2 / 12)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        inside = (value >= self.low) & (value < self.high)
        return inside.to(self.low.dtype).log() - (self.high - self.low).log()

    def cdf(self, value: Tensor) -> Tensor:
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()


class Exponential(ExponentialFamily):
    """Density rate * exp(-rate x)."""

    has_rsample = True
    support = constraints.nonnegative
    arg_constraints = {"rate": constraints.positive}

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, (), validate_args)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return -_uniform(self._extended_shape(sample_shape), self.rate).log() / self.rate

    mean = property(lambda self: 1 / self.rate)
    variance = property(lambda self: self.rate**-2)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        return -_op("expm1", -self.rate * value)

    def icdf(self, value: Tensor) -> Tensor:
        return -_op("log1p", -value) / self.rate

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()


class Gamma(ExponentialFamily):
    """Density proportional to x^(concentration - 1) exp(-rate x). Sampled without gradients."""

    support = constraints.nonnegative
    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.rate.shape, (), validate_args)

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return _op("_standard_gamma", self.concentration.detach().expand(shape)) / self.rate.detach()

    mean = property(lambda self: self.concentration / self.rate)
    mode = property(lambda self: ((self.concentration - 1) / self.rate).clamp(min=0))
    variance = property(lambda self: self.concentration / self.rate**2)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a = self.concentration
        return a * self.rate.log() + (a - 1) * value.log() - self.rate * value - _op("lgamma", a)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + _op("lgamma", a) + (1 - a) * _op("digamma", a)


class Chi2(Gamma):
    """The sum of `df` squared standard normals."""

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        (self.df,) = broadcast_all(df)
        super().__init__(0.5 * self.df, 0.5, validate_args)


class Dirichlet(ExponentialFamily):
    """Points of the simplex, density proportional to the product of x_i^(concentration_i - 1). Sampled without gradients."""

    support = constraints.simplex
    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.ndim < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        drawn = _op("_standard_gamma", self.concentration.detach().expand(self._extended_shape(sample_shape)))
        return drawn / drawn.sum(-1, keepdim=True)

    mean = property(lambda self: self.concentration / self.concentration.sum(-1, True))

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total**2 * (total + 1))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a = self.concentration
        powers = _op("xlogy", a - 1.0, value).sum(-1)
        return powers + _op("lgamma", a.sum(-1)) - _op("lgamma", a).sum(-1)

    def entropy(self) -> Tensor:
        a, k = self.concentration, self.concentration.shape[-1]
        total = a.sum(-1)
        log_beta = _op("lgamma", a).sum(-1) - _op("lgamma", total)
        return log_beta - (k - total) * _op("digamma", total) - ((a - 1.0) * _op("digamma", a)).sum(-1)


class Beta(ExponentialFamily):
    """Density proportional to x^(concentration1 - 1) (1 - x)^(concentration0 - 1). Sampled without gradients."""

    support = constraints.unit_interval
    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        super().__init__(self.concentration1.shape, (), validate_args)

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        x, y = (_op("_standard_gamma", c.detach().expand(shape)) for c in (self.concentration1, self.concentration0))
        return x / (x + y)

    mean = property(lambda self: self.concentration1 / (self.concentration1 + self.concentration0))

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total**2 * (total + 1))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a, b = self.concentration1, self.concentration0
        return _op("xlogy", a - 1, value) + _op("xlogy", b - 1, 1 - value) - _log_beta(a, b)

    def entropy(self) -> Tensor:
        a, b, digamma = self.concentration1, self.concentration0, OPERATORS["digamma"]
        return _log_beta(a, b) - (a - 1) * digamma(a) - (b - 1) * digamma(b) + (a + b - 2) * digamma(a + b)


class _OfFactor(Distribution):
    """Has a covariance Sigma = L L^T, by its factor `scale_tril`."""

    scale_tril: Tensor

    @property
    def covariance_matrix(self) -> Tensor:
        """Sigma."""
        return self.scale_tril @ self.scale_tril.mT

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of Sigma."""
        return linalg.inv(self.covariance_matrix)


class MultivariateNormal(_OfFactor):
    """N(loc, Sigma) by one of covariance_matrix, precision_matrix and scale_tril (Sigma = L L^T)."""

    has_rsample = True
    support = constraints.real_vector
    arg_constraints = {"loc": constraints.real_vector, "scale_tril": constraints.lower_cholesky}

    def __init__(self, loc: Tensor, covariance_matrix: Tensor | None = None, precision_matrix: Tensor | None = None,
                 scale_tril: Tensor | None = None, validate_args: bool | None = None) -> None:
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        if sum(m is not None for m in (covariance_matrix, precision_matrix, scale_tril)) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        if scale_tril is None:
            scale_tril = linalg.cholesky(covariance_matrix if covariance_matrix is not None else linalg.inv(precision_matrix))
        batch = _op("broadcast_tensors", loc[..., 0], scale_tril[..., 0, 0])[0].shape
        self.loc, self.scale_tril = loc.expand((*batch, *loc.shape[-1:])), scale_tril.expand((*batch, *scale_tril.shape[-2:]))
        super().__init__(batch, loc.shape[-1:], validate_args)

    mean = mode = property(lambda self: self.loc)
    variance = property(lambda self: (self.scale_tril**2).sum(-1))

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        drawn = _op("randn", self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self.scale_tril @ drawn.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        difference = (value - self.loc).unsqueeze(-1)
        z = linalg.solve_triangular(self.scale_tril, difference, upper=False).squeeze(-1)
        return -0.5 * (self._event_shape[0] * _LOG_2PI + (z * z).sum(-1)) - self._half_log_det()

    def _half_log_det(self) -> Tensor:
        return self.scale_tril.diagonal(0, -2, -1).log().sum(-1)

    def entropy(self) -> Tensor:
        return 0.5 * self._event_shape[0] * (1 + _LOG_2PI) + self._half_log_det()


class Independent(Distribution):
    """A distribution whose last batch dimensions count as parts of one event."""

    arg_constraints = {}

    def __init__(self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: bool | None = None) -> None:
        if reinterpreted_batch_ndims > len(base_distribution.batch_shape):
            raise ValueError("Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual "
                             f"{reinterpreted_batch_ndims} vs {len(base_distribution.batch_shape)}")
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, reinterpreted_batch_ndims
        shape = base_distribution.batch_shape + base_distribution.event_shape
        split = len(base_distribution.batch_shape) - reinterpreted_batch_ndims
        super().__init__(shape[:split], shape[split:], validate_args)
        self.has_rsample = base_distribution.has_rsample

    support = property(lambda self: constraints.independent(self.base_dist.support, self.reinterpreted_batch_ndims))

    mean, mode, variance = (property(operator.attrgetter(f"base_dist.{fact}")) for fact in ("mean", "mode", "variance"))

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def expand(self, batch_shape: Iterable[int], _instance: Any = None) -> Distribution:
        wide = (*batch_shape, *self.event_shape[:self.reinterpreted_batch_ndims])
        return Independent(self.base_dist.expand(wide), self.reinterpreted_batch_ndims, self._validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)
