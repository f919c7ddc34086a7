"""Distributions of functions of simple variables: halves, powers and quotients. Moments and entropies are the standard ones
(N. Johnson, S. Kotz and N. Balakrishnan, "Continuous Univariate Distributions", 1994)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ..core.tensor import Tensor
from . import constraints
from .continuous import EULER, Chi2, Exponential, Gamma, Normal, Uniform, _log_beta, _op
from .continuous import Cauchy as _Cauchy
from .distribution import Distribution, broadcast_all
from .transformed import TransformedDistribution
from .transforms import AbsTransform, AffineTransform, ExpTransform, PowerTransform, StickBreakingTransform

__all__ = ["FisherSnedecor", "HalfCauchy", "HalfNormal", "InverseGamma", "Kumaraswamy", "LogNormal", "LogisticNormal", "Pareto",
           "StudentT", "Weibull"]


def _where(condition: Tensor, value: Tensor, other: float) -> Tensor:
    """`value` where the condition holds; a tensor that isn't used elsewhere is not looked at."""
    return value.masked_fill(~condition, other)


class LogNormal(TransformedDistribution):
    """exp of a Normal(loc, scale)."""

    _shows_parameters = False
    support = constraints.positive
    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(Normal(self.loc, self.scale, validate_args), ExpTransform(), validate_args)

    mean = property(lambda self: (self.loc + self.scale**2 / 2).exp())
    mode = property(lambda self: (self.loc - self.scale**2).exp())
    variance = property(lambda self: _op("expm1", self.scale**2) * (2 * self.loc + self.scale**2).exp())

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc


class LogisticNormal(TransformedDistribution):
    """Probabilities that a stick broken by a Normal(loc, scale) vector gives."""

    _shows_parameters = False
    support = constraints.simplex
    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args)
        base = base if base.batch_shape else base.expand((1,))  # type: ignore[assignment]
        self.loc, self.scale = base.loc, base.scale
        super().__init__(base, StickBreakingTransform(), validate_args)


class _Half(TransformedDistribution):
    """The absolute value of a symmetric variable around 0."""

    _shows_parameters = False
    support = constraints.nonnegative
    arg_constraints = {"scale": constraints.positive}
    whole: type

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        (self.scale,) = broadcast_all(scale)
        super().__init__(self.whole(self.scale * 0, self.scale, validate_args), AbsTransform(), validate_args)

    mode = property(lambda self: self.scale * 0)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return _where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)


class HalfNormal(_Half):
    """|X| of a Normal(0, scale)."""

    whole = Normal

    mean = property(lambda self: self.scale * math.sqrt(2 / math.pi))
    variance = property(lambda self: self.scale**2 * (1 - 2 / math.pi))


class HalfCauchy(_Half):
    """|X| of a Cauchy(0, scale)."""

    whole = _Cauchy

    mean = variance = property(lambda self: _op("full_like", self.scale, math.inf))


class Pareto(TransformedDistribution):
    """P(X > x) = (scale / x)^alpha from `scale` on."""

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args)
        super().__init__(base, [ExpTransform(), AffineTransform(0, self.scale)], validate_args)

    support = constraints.dependent_property(lambda self: constraints.greater_than_eq(self.scale))
    mean = property(lambda self: _where(self.alpha > 1, self.alpha * self.scale / (self.alpha - 1), math.inf))
    mode = property(lambda self: self.scale)

    @property
    def variance(self) -> Tensor:
        a = self.alpha
        return _where(a > 2, self.scale**2 * a / ((a - 1) ** 2 * (a - 2)), math.inf)

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + 1 + 1 / self.alpha


class Weibull(TransformedDistribution):
    """P(X > x) = exp(-(x / scale)^concentration)."""

    support = constraints.positive
    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        base = Exponential(_op("ones_like", self.scale), validate_args)
        super().__init__(base, [PowerTransform(1 / self.concentration), AffineTransform(0, self.scale)], validate_args)

    def _moment(self, n: int) -> Tensor:
        return _op("lgamma", 1 + n / self.concentration).exp()

    mean = property(lambda self: self.scale * self._moment(1))
    variance = property(lambda self: self.scale**2 * (self._moment(2) - self._moment(1) ** 2))

    @property
    def mode(self) -> Tensor:
        k = self.concentration
        return self.scale * ((k - 1).clamp(min=0) / k) ** (1 / k)

    def entropy(self) -> Tensor:
        return EULER * (1 - 1 / self.concentration) + (self.scale / self.concentration).log() + 1


class Kumaraswamy(TransformedDistribution):
    """P(X <= x) = 1 - (1 - x^a)^b on [0, 1], for a = concentration1 and b = concentration0."""

    support = constraints.unit_interval
    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = a, b = broadcast_all(concentration1, concentration0)
        base = Uniform(a * 0, a * 0 + 1, validate_args)
        parts = [PowerTransform(1 / b), AffineTransform(1.0, -1.0), PowerTransform(1 / a)]
        super().__init__(base, parts, validate_args)

    def _moment(self, n: int) -> Tensor:
        b = self.concentration0
        return b * _log_beta(1 + n / self.concentration1, b).exp()

    mean = property(lambda self: self._moment(1))
    variance = property(lambda self: self._moment(2) - self._moment(1) ** 2)

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        inside = (a >= 1) & (b >= 1) & ((a != 1) | (b != 1))
        return _where(inside, ((a - 1) / (a * b - 1)) ** (1 / a), math.nan)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return (1 - 1 / b) + (1 - 1 / a) * (_op("digamma", b + 1) + EULER) - a.log() - b.log()


class InverseGamma(TransformedDistribution):
    """1 / X of a Gamma(concentration, rate)."""

    _shows_parameters = False
    support = constraints.positive
    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(Gamma(self.concentration, self.rate, validate_args), PowerTransform(-1.0), validate_args)

    mean = property(lambda self: _where(self.concentration > 1, self.rate / (self.concentration - 1), math.inf))
    mode = property(lambda self: self.rate / (self.concentration + 1))

    @property
    def variance(self) -> Tensor:
        c = self.concentration
        return _where(c > 2, self.rate**2 / ((c - 1) ** 2 * (c - 2)), math.inf)

    def entropy(self) -> Tensor:
        c = self.concentration
        return c + self.rate.log() + _op("lgamma", c) - (1 + c) * _op("digamma", c)


class StudentT(Distribution):
    """loc + scale * Z / sqrt(V / df) for a standard normal Z and a Chi2(df) V."""

    has_rsample = True
    support = constraints.real
    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        super().__init__(self.df.shape, (), validate_args)

    mean = property(lambda self: _where(self.df > 1, self.loc, math.nan))
    mode = property(lambda self: self.loc)

    @property
    def variance(self) -> Tensor:
        return _where(self.df > 1, _where(self.df > 2, self.scale**2 * self.df / (self.df - 2), math.inf), math.nan)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        z = _op("normal", 0.0, 1.0, tuple(self._extended_shape(sample_shape)), dtype=self.loc.dtype, device=self.loc.device)
        v = Chi2(self.df, False).rsample(sample_shape)
        return self.loc + self.scale * (z * (v / self.df).rsqrt())

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        y = (value - self.loc) / self.scale
        return -0.5 * (self.df + 1) * (y**2 / self.df).log1p() - self.scale.log() - 0.5 * self.df.log() - _log_beta(
            self.df * 0 + 0.5, self.df / 2)

    def entropy(self) -> Tensor:
        half = self.df / 2
        return self.scale.log() + (half + 0.5) * (_op("digamma", half + 0.5) - _op("digamma", half)) + 0.5 * self.df.log() + _log_beta(
            self.df * 0 + 0.5, half)


class FisherSnedecor(Distribution):
    """(V / df1) / (W / df2) for a Chi2(df1) V and a Chi2(df2) W."""

    has_rsample = True
    support = constraints.positive
    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        super().__init__(self.df1.shape, (), validate_args)

    mean = property(lambda self: _where(self.df2 > 2, self.df2 / (self.df2 - 2), math.nan))
    mode = property(lambda self: _where(self.df1 > 2, (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2), math.nan))

    @property
    def variance(self) -> Tensor:
        m, n = self.df1, self.df2
        return _where(n > 4, 2 * n**2 * (m + n - 2) / (m * (n - 2) ** 2 * (n - 4)), math.nan)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        v, w = (Chi2(df, False).rsample(sample_shape) / df for df in (self.df1, self.df2))
        return v / w

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        m, n, ratio = self.df1 / 2, self.df2 / 2, self.df1 / self.df2
        return m * ratio.log() + (m - 1) * value.log() - (m + n) * (ratio * value).log1p() - _log_beta(m, n)
