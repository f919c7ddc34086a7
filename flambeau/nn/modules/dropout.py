"""Dropout."""

from __future__ import annotations

from ...core.tensor import Tensor
from .. import functional as F
from .applied import FunctionModule


class _DropoutNd(FunctionModule):
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        self._keep(p, inplace)

    def _keep(self, p: float, inplace: bool) -> None:     # type: ignore[override]
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd, function=F.dropout):
    """In training, zero elements with probability p and scale the rest by 1 / (1 - p)."""


class Dropout1d(_DropoutNd, function=F.dropout1d):
    """Dropout of whole channels of (n, c, l)."""


class Dropout2d(_DropoutNd, function=F.dropout2d):
    """Dropout of whole channels of (n, c, h, w)."""


class Dropout3d(_DropoutNd, function=F.dropout3d):
    """Dropout of whole channels of (n, c, d, h, w)."""


class AlphaDropout(_DropoutNd):
    """Dropout that keeps mean and variance of selu's outputs."""

    def forward(self, input: Tensor) -> Tensor:
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_DropoutNd):
    """AlphaDropout of whole channels."""

    def forward(self, input: Tensor) -> Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training)
