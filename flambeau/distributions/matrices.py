"""Distributions of matrices: covariances and the factors of correlations.

M. Bartlett, "On the theory of statistical regression" (1933); D. Lewandowski, D. Kurowicka and H. Joe, "Generating random correlation
matrices based on vines and extended onion method" (2009).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from .. import linalg
from ..core.dtypes import finfo
from ..core.tensor import Tensor
from . import constraints
from .continuous import Beta, Chi2, _OfFactor, _op
from .distribution import Distribution, ExponentialFamily, broadcast_all

__all__ = ["LKJCholesky", "Wishart"]


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices C with a density of C proportional to det(C)^(concentration - 1). Sampled without
    gradients."""

    support = constraints.corr_cholesky
    arg_constraints = {"concentration": constraints.positive}

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    def _rows(self) -> Tensor:
        """0, 1, ..., dim - 2: one number for each row but the first."""
        return _op("arange", self.dim - 1, dtype=self.concentration.dtype, device=self.concentration.device)

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        """Row by row: a direction, and how much of the row's length of 1 goes there (the onion method)."""
        rows = _op("pad", self._rows(), (1, 0))     # the first row is drawn too, and not used
        length = Beta((rows + 1) / 2, self.concentration.detach().unsqueeze(-1) + (self.dim - 2 - rows) / 2, False).sample(sample_shape)
        u = _op("randn", tuple(self._extended_shape(sample_shape)), dtype=length.dtype, device=length.device).tril(-1)
        w = length.sqrt().unsqueeze(-1) * _op("normalize", u, dim=-1)
        return w + (1 - (w * w).sum(-1)).clamp(min=finfo(w.dtype).tiny).sqrt().diag_embed()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        n, eta = self.dim - 1, self.concentration
        order = 2 * (eta.unsqueeze(-1) - 1) + n - 1 - self._rows()
        alpha = eta + 0.5 * n
        constant = 0.5 * n * math.log(math.pi) + _op("mvlgamma", alpha - 0.5, n) - n * _op("lgamma", alpha)
        return (order * value.diagonal(0, -2, -1)[..., 1:].log()).sum(-1) - constant


class Wishart(_OfFactor, ExponentialFamily):
    """The sum of x x^T for df draws x of N(0, Sigma), by one of covariance_matrix, precision_matrix and scale_tril (Sigma = L L^T);
    df need not be whole."""

    support = constraints.positive_definite

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:  # type: ignore[override]
        """What each parameter has to be; df hangs on the matrices' size."""
        return {"covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite,
                "scale_tril": constraints.lower_cholesky, "df": constraints.greater_than(self.event_shape[-1] - 1)}

    def __init__(self, df: Any, covariance_matrix: Tensor | None = None, precision_matrix: Tensor | None = None,
                 scale_tril: Tensor | None = None, validate_args: bool | None = None) -> None:
        matrix = self._given(covariance_matrix, precision_matrix, scale_tril, AssertionError)
        self.df = broadcast_all(df, matrix[..., 0, 0])[0]
        size = matrix.shape[-1]
        if (self.df <= size - 1).any():
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {size - 1}.")
        self._spread(self.df.shape)
        super().__init__(self.df.shape, matrix.shape[-2:], validate_args)
        self._factor()

    def _of_df(self, factor: Tensor) -> Tensor:
        return factor.unsqueeze(-1).unsqueeze(-1) * self.covariance_matrix

    mean = property(lambda self: self._of_df(self.df))

    @property
    def mode(self) -> Tensor:
        factor = self.df - self.event_shape[0] - 1
        return self._of_df(factor.masked_fill(factor <= 0, math.nan))

    @property
    def variance(self) -> Tensor:
        sigma = self.covariance_matrix
        diagonal = sigma.diagonal(0, -2, -1)
        return self.df.unsqueeze(-1).unsqueeze(-1) * (sigma**2 + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def _log_det(self) -> Tensor:
        return 2 * self.scale_tril.diagonal(0, -2, -1).log().sum(-1)

    has_rsample = True

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        """Bartlett's decomposition: L A A^T L^T for a lower triangle A of normal numbers, with chi on its diagonal."""
        p, shape, options = self.event_shape[0], self._extended_shape(sample_shape), {"dtype": self.df.dtype, "device": self.df.device}
        df = self.df.unsqueeze(-1) - _op("arange", p, **options)
        diagonal = Chi2(df, False).rsample(sample_shape).sqrt().diag_embed()
        below = _op("randn", (*shape[:-2], p * (p - 1) // 2), **options)
        rows, columns = _op("tril_indices", p, p, -1, device=self.df.device)
        lower = below.new_zeros(tuple(shape))
        lower[..., rows, columns] = below
        factor = self.scale_tril @ (lower + diagonal)
        return factor @ factor.mT

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        p, half = self.event_shape[0], self.df / 2
        trace = _op("cholesky_solve", value, self.scale_tril).diagonal(0, -2, -1).sum(-1)
        return (half - (p + 1) / 2) * linalg.slogdet(value)[1] - trace / 2 - half * (p * math.log(2) + self._log_det()) - _op(
            "mvlgamma", half, p)

    def entropy(self) -> Tensor:
        p, half = self.event_shape[0], self.df / 2
        digammas = _op("digamma", half.unsqueeze(-1) - _op("arange", p, dtype=half.dtype, device=half.device) / 2).sum(-1)
        return ((p + 1) / 2 * (self._log_det() + p * math.log(2)) + _op("mvlgamma", half, p) - (half - (p + 1) / 2) * digammas + half * p)
