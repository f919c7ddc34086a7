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
from .utils import lazy_property

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

    _natural_params = property(lambda self: (self.loc / self.scale**2, -0.5 / self.scale**2))
    _mean_carrier_measure = 0.0

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        return -0.25 * x**2 / y + 0.5 * (-math.pi / y).log()

    def _standard(self, shape: Size) -> Tensor:
        return _op("normal", 0.0, 1.0, tuple(shape), dtype=self.loc.dtype, device=self.loc.device)

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
        u = self.loc.new_empty(shape).uniform_(finfo(self.loc.dtype).eps - 1, 1)
        return -u.sign() * _op("log1p", -u.abs())

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
        return self.loc.new_empty(shape).cauchy_()

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

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:  # type: ignore[override]
        """Each end lies beyond the other."""
        return {"low": constraints.less_than(self.high), "high": constraints.greater_than(self.low)}

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, (), validate_args)

    support = constraints.dependent_property(lambda self: constraints.interval(self.low, self.high))

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        drawn = _op("rand", self._extended_shape(sample_shape), dtype=self.low.dtype, device=self.low.device)
        return self.low + drawn * (self.high - self.low)

    mean = property(lambda self: (self.low + self.high) / 2)
    mode = property(lambda self: math.nan * self.high)
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
    _natural_params = property(lambda self: (-self.rate,))
    _mean_carrier_measure = 0.0

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return -(-x).log()

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, (), validate_args)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return self.rate.new_empty(self._extended_shape(sample_shape)).exponential_() / self.rate

    mode = property(lambda self: _op("zeros_like", self.rate))
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
    """Density proportional to x^(concentration - 1) exp(-rate x)."""

    has_rsample = True
    support = constraints.nonnegative
    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    _natural_params = property(lambda self: (self.concentration - 1, -self.rate))
    _mean_carrier_measure = 0.0

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        return _op("lgamma", x + 1) - (x + 1) * (-y).log()

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.rate.shape, (), validate_args)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        drawn = _op("_standard_gamma", self.concentration.expand(self._extended_shape(sample_shape))) / self.rate
        return drawn.clamp(min=finfo(drawn.dtype).tiny)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return _op("igamma", self.concentration, self.rate * value)

    mean = property(lambda self: self.concentration / self.rate)
    mode = property(lambda self: ((self.concentration - 1) / self.rate).clamp(min=0))
    variance = property(lambda self: self.concentration / self.rate**2)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a, value = self.concentration, OPERATORS["as_tensor"](value, dtype=self.rate.dtype, device=self.rate.device)
        return a * self.rate.log() + (a - 1) * value.log() - self.rate * value - _op("lgamma", a)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + _op("lgamma", a) + (1 - a) * _op("digamma", a)


class Chi2(Gamma):
    """The sum of `df` squared standard normals."""

    _shows_parameters = False
    arg_constraints = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        (self.df,) = broadcast_all(df)
        super().__init__(0.5 * self.df, 0.5, validate_args)


class Dirichlet(ExponentialFamily):
    """Points of the simplex, density proportional to the product of x_i^(concentration_i - 1)."""

    has_rsample = True
    support = constraints.simplex
    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    _natural_params = property(lambda self: (self.concentration,))

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return _op("lgamma", x).sum(-1) - _op("lgamma", x.sum(-1))

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.ndim < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return _op("_sample_dirichlet", self.concentration.expand(self._extended_shape(sample_shape)))

    @property
    def mode(self) -> Tensor:
        """Where the density is highest; a corner, where all concentrations are below 1."""
        above = (self.concentration - 1).clamp(min=0)
        inside = above / above.sum(-1, True)
        corner = _op("one_hot", self.concentration.argmax(-1), self.concentration.shape[-1]).to(above.dtype)
        return corner.where((self.concentration < 1).all(-1, keepdim=True), inside)

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
    """Density proportional to x^(concentration1 - 1) (1 - x)^(concentration0 - 1)."""

    _shows_parameters = False
    has_rsample = True
    support = constraints.unit_interval
    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    _natural_params = property(lambda self: (self.concentration1, self.concentration0))

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        return _log_beta(x, y)

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        super().__init__(self.concentration1.shape, (), validate_args)

    def _pair(self) -> Dirichlet:
        return Dirichlet(_op("stack", [self.concentration1, self.concentration0], -1), False)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return self._pair().rsample(sample_shape).select(-1, 0)

    mode = property(lambda self: self._pair().mode[..., 0])

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


def _precision_to_scale_tril(P: Tensor) -> Tensor:
    """The lower factor of the inverse of P, which is not computed: with the order of rows and columns reversed, P's own factor is upper."""
    upper = linalg.cholesky(P.flip((-2, -1))).flip((-2, -1))
    eye = _op("eye", P.shape[-1], dtype=P.dtype, device=P.device)
    return linalg.solve_triangular(upper.mT, eye, upper=False)


class _OfFactor(Distribution):
    """Has a covariance Sigma = L L^T, by its factor `scale_tril`. What it was given by is kept as it was given."""

    _unbroadcasted_scale_tril: Tensor

    def _given(self, covariance_matrix: Tensor | None, precision_matrix: Tensor | None, scale_tril: Tensor | None,
               refusal: type[Exception]) -> Tensor:
        """Keep the one matrix that is given, under its name."""
        forms = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        given = {name: m for name, m in forms.items() if m is not None}
        if len(given) != 1:
            raise refusal("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        (self._form, matrix), = given.items()
        if matrix.ndim < 2:
            raise ValueError(f"{self._form} must be at least two-dimensional, with optional leading batch dimensions")
        setattr(self, self._form, matrix)
        return matrix

    def _spread(self, batch: Size) -> None:
        """Give the matrix this batch shape."""
        matrix = getattr(self, self._form)
        setattr(self, self._form, matrix.expand((*batch, *matrix.shape[-2:])))

    def _factor(self) -> None:
        """Find the factor of what was given."""
        matrix = getattr(self, self._form)
        ways = {"scale_tril": lambda m: m, "covariance_matrix": linalg.cholesky, "precision_matrix": _precision_to_scale_tril}
        self._unbroadcasted_scale_tril = ways[self._form](matrix)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """L, for each distribution of the batch."""
        return self._unbroadcasted_scale_tril

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """Sigma."""
        return self.scale_tril @ self.scale_tril.mT

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of Sigma."""
        return _op("cholesky_inverse", self.scale_tril)


class MultivariateNormal(_OfFactor):
    """N(loc, Sigma) by one of covariance_matrix, precision_matrix and scale_tril (Sigma = L L^T)."""

    has_rsample = True
    support = constraints.real_vector
    arg_constraints = {"loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
                       "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky}

    def __init__(self, loc: Tensor, covariance_matrix: Tensor | None = None, precision_matrix: Tensor | None = None,
                 scale_tril: Tensor | None = None, validate_args: bool | None = None) -> None:
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        matrix = self._given(covariance_matrix, precision_matrix, scale_tril, ValueError)
        batch = _op("broadcast_tensors", loc[..., 0], matrix[..., 0, 0])[0].shape
        self.loc = loc.expand((*batch, *loc.shape[-1:]))
        self._spread(batch)
        super().__init__(batch, loc.shape[-1:], validate_args)
        self._factor()

    mean = mode = property(lambda self: self.loc)
    variance = property(lambda self: (self._unbroadcasted_scale_tril**2).sum(-1).expand(self._batch_shape + self._event_shape))

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        drawn = _op("normal", 0.0, 1.0, tuple(self._extended_shape(sample_shape)), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self._unbroadcasted_scale_tril @ drawn.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        difference = (value - self.loc).to(self.loc.dtype).unsqueeze(-1)
        z = linalg.solve_triangular(self._unbroadcasted_scale_tril, difference, upper=False).squeeze(-1)
        return -0.5 * (self._event_shape[0] * _LOG_2PI + (z * z).sum(-1)) - self._half_log_det()

    def _half_log_det(self) -> Tensor:
        return self._unbroadcasted_scale_tril.diagonal(0, -2, -1).log().sum(-1)

    def entropy(self) -> Tensor:
        return (0.5 * self._event_shape[0] * (1 + _LOG_2PI) + self._half_log_det()).expand(self._batch_shape)


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

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"

    @constraints.dependent_property
    def support(self) -> Any:
        """The base's, of which the last dimensions count as one event."""
        dims, own = self.reinterpreted_batch_ndims, self.base_dist.support
        return constraints.independent(own, dims) if dims else own

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
