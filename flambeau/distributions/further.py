"""Continuous distributions with densities of their own: angles, excesses over a threshold, pixels, many correlated numbers.

D. Best and N. Fisher, "Efficient simulation of the von Mises distribution" (1979); G. Loaiza-Ganem and J. Cunningham, "The continuous
Bernoulli" (2019); J. Hosking and J. Wallis, "Parameter and quantile estimation for the generalized Pareto distribution" (1987).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from .. import linalg
from ..autograd.grad_mode import no_grad
from ..core.size import Size
from ..core.tensor import Tensor
from . import constraints
from .continuous import _LOG_2PI, _op, _uniform
from .discrete import _Binary, _clamped
from .distribution import Distribution, broadcast_all

__all__ = ["ContinuousBernoulli", "GeneralizedPareto", "LowRankMultivariateNormal", "VonMises"]


class VonMises(Distribution):
    """An angle with a density proportional to exp(concentration * cos(x - loc)). Sampled without gradients."""

    support = constraints.real
    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, (), validate_args)

    mean = mode = property(lambda self: self.loc)

    @property
    def variance(self) -> Tensor:
        """The circular variance, 1 - I_1 / I_0."""
        return 1 - _op("special_i1e", self.concentration) / _op("special_i0e", self.concentration)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        k = self.concentration
        return k * ((value - self.loc).cos() - 1) - _LOG_2PI - _op("special_i0e", k).log()

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        """By rejection from a wrapped Cauchy distribution, in float64."""
        with no_grad():
            shape = self._extended_shape(sample_shape)
            k = self.concentration.double().expand(shape)
            tau = 1 + (1 + 4 * k * k).sqrt()
            rho = (tau - (2 * tau).sqrt()) / (2 * k)
            r = ((1 + rho * rho) / (2 * rho)).where(k > 1e-4, 1 / k + k)
            angle, waiting = k * 0, k > 0
            while bool(waiting.any()):
                u, v, side = _uniform(Size((3, *shape)), k)
                z = (math.pi * u).cos()
                f = (1 + r * z) / (r + z)
                c = k * (r - f)
                taken = (c * (2 - c) > v) | ((c / v).log() + 1 >= c)
                angle = ((side - 0.5).sign() * f.clamp(-1, 1).acos()).where(taken, angle)
                waiting = waiting & ~taken
            return ((angle + math.pi + self.loc) % (2 * math.pi) - math.pi).to(self.loc.dtype)


class GeneralizedPareto(Distribution):
    """loc + scale * ((1 - U)^-concentration - 1) / concentration for an even U; exponential where the concentration is 0."""

    has_rsample = True
    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        self._plain = self.concentration.abs() < 1e-6
        super().__init__(self.loc.shape, (), validate_args)

    @property
    def _shape(self) -> Tensor:
        """The concentration, 1 where it is as good as 0."""
        return self.concentration.masked_fill(self._plain, 1)

    @constraints.dependent_property
    def support(self) -> Any:
        """From `loc` on; for a negative concentration up to loc - scale / concentration."""
        end = self.loc - self.scale / self._shape
        return constraints.interval(self.loc, end.masked_fill(self.concentration >= -1e-6, math.inf))

    @property
    def mean(self) -> Tensor:
        c = self.concentration
        return (self.loc + self.scale / (1 - c)).masked_fill(c >= 1, math.inf)

    mode = property(lambda self: self.loc)

    @property
    def variance(self) -> Tensor:
        c = self.concentration
        return (self.scale**2 / ((1 - c) ** 2 * (1 - 2 * c))).masked_fill(c >= 0.5, math.inf)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """log P(X > value)."""
        z = (value - self.loc) / self.scale
        return (-(self._shape * z).log1p() / self._shape).where(~self._plain, -z)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return (1 + self.concentration) * self.log_survival_function(value) - self.scale.log()

    def log_cdf(self, value: Tensor) -> Tensor:
        """log P(X <= value)."""
        return self.cdf(value).log()

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return -self.log_survival_function(value).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        log = (-value).log1p()
        z = ((-self._shape * log).expm1() / self._shape).where(~self._plain, -log)
        return self.loc + self.scale * z

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return self.icdf(_op("rand", self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device))

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1


class ContinuousBernoulli(_Binary):
    """Density proportional to p^x (1 - p)^(1 - x) on [0, 1]; series stand for what is 0 / 0 within `lims`, around p = 1/2."""

    support, has_rsample = constraints.unit_interval, True

    def __init__(self, probs: Any = None, logits: Any = None, lims: tuple[float, float] = (0.499, 0.501),
                 validate_args: bool | None = None) -> None:
        self._lims = lims
        super().__init__(probs, logits, validate_args)

    def _apart(self) -> tuple[Tensor, Tensor, Tensor]:
        """(p, or the lower limit where it is near 1/2; whether it is not; p - 1/2)."""
        p = _clamped(self.probs)
        far = (p <= self._lims[0]) | (p > self._lims[1])
        return p.masked_fill(~far, self._lims[0]), far, p - 0.5

    def _log_constant(self) -> Tensor:
        p, far, x = self._apart()
        exact = (2 * (1 - 2 * p).atanh() / (1 - 2 * p)).log()
        return exact.where(far, math.log(2) + (4 / 3 + 104 / 45 * x * x) * x * x)

    @property
    def mean(self) -> Tensor:
        p, far, x = self._apart()
        return (p / (2 * p - 1) + 1 / (2 * (1 - 2 * p).atanh())).where(far, 0.5 + (1 / 3 + 16 / 45 * x * x) * x)

    @property
    def variance(self) -> Tensor:
        p, far, x = self._apart()
        exact = p * (p - 1) / (1 - 2 * p) ** 2 + 1 / ((-p).log1p() - p.log()) ** 2
        return exact.where(far, 1 / 12 - (1 / 15 - 128 / 945 * x * x) * x * x)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return value * self.logits - _op("softplus", self.logits) + self._log_constant()

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        p, far, _ = self._apart()
        return ((p**value * (1 - p) ** (1 - value) + p - 1) / (2 * p - 1)).where(far, value).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        p, far, _ = self._apart()
        return (((value * (2 * p - 1) - p).log1p() - (-p).log1p()) / (p.log() - (-p).log1p())).where(far, value)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return self.icdf(_op("rand", self._extended_shape(sample_shape), dtype=self._param.dtype, device=self._param.device))

    def entropy(self) -> Tensor:
        return _op("softplus", self.logits) - self.mean * self.logits - self._log_constant()


class LowRankMultivariateNormal(Distribution):
    """N(loc, W W^T + diag(d)) for a narrow W = cov_factor and d = cov_diag, by the matrix determinant lemma and Woodbury's identity."""

    support, has_rsample = constraints.real_vector, True
    arg_constraints = {"loc": constraints.real_vector, "cov_factor": constraints.independent(constraints.real, 2),
                       "cov_diag": constraints.independent(constraints.positive, 1)}

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None) -> None:
        if loc.ndim < 1 or cov_factor.ndim < 2:
            raise ValueError(f"loc must be at least one-dimensional and cov_factor two-dimensional, got {loc.ndim} and {cov_factor.ndim}")
        if cov_factor.shape[-2] != loc.shape[-1] or cov_diag.shape[-1:] != loc.shape[-1:]:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {loc.shape[-1]} x m and cov_diag a batch of vectors of "
                             f"that length, got {list(cov_factor.shape)} and {list(cov_diag.shape)}")
        center, diagonal, factor = _op("broadcast_tensors", loc.unsqueeze(-1), cov_diag.unsqueeze(-1), cov_factor[..., :1])
        self.loc, self.cov_diag = center.squeeze(-1), diagonal.squeeze(-1)
        self.cov_factor = cov_factor.expand(*factor.shape[:-1], cov_factor.shape[-1])
        super().__init__(self.loc.shape[:-1], self.loc.shape[-1:], validate_args)

    mean = mode = property(lambda self: self.loc)
    variance = property(lambda self: (self.cov_factor**2).sum(-1) + self.cov_diag)

    @property
    def covariance_matrix(self) -> Tensor:
        """W W^T + diag(d)."""
        return self.cov_factor @ self.cov_factor.mT + self.cov_diag.diag_embed()

    @property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance."""
        return linalg.cholesky(self.covariance_matrix)

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        inner = linalg.solve_triangular(self._capacitance(), self._scaled().mT, upper=False)
        return self.cov_diag.reciprocal().diag_embed() - inner.mT @ inner

    def _scaled(self) -> Tensor:
        return self.cov_factor / self.cov_diag.unsqueeze(-1)

    def _capacitance(self) -> Tensor:
        """The Cholesky factor of I + W^T diag(d)^-1 W."""
        inner = self.cov_factor.mT @ self._scaled()
        return linalg.cholesky(inner + _op("eye", inner.shape[-1], dtype=inner.dtype, device=inner.device))

    def _log_det(self) -> Tensor:
        return 2 * self._capacitance().diagonal(0, -2, -1).log().sum(-1) + self.cov_diag.log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        gap = value - self.loc
        inner = linalg.solve_triangular(self._capacitance(), self._scaled().mT @ gap.unsqueeze(-1), upper=False)
        distance = (gap**2 / self.cov_diag).sum(-1) - (inner**2).sum((-2, -1))
        return -0.5 * (self.event_shape[0] * _LOG_2PI + self._log_det() + distance)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        options = {"dtype": self.loc.dtype, "device": self.loc.device}
        common = _op("normal", 0.0, 1.0, (*shape[:-1], self.cov_factor.shape[-1], 1), **options)
        return self.loc + (self.cov_factor @ common).squeeze(-1) + self.cov_diag.sqrt() * _op("normal", 0.0, 1.0, tuple(shape), **options)

    def entropy(self) -> Tensor:
        return 0.5 * (self.event_shape[0] * (1 + _LOG_2PI) + self._log_det())
