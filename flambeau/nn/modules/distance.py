"""Distances."""

from __future__ import annotations

from ...core.tensor import Tensor
from .. import functional as F
from .applied import FunctionModule
from .module import Module


class PairwiseDistance(Module):
    """norm_p(x1 - x2 + eps) over the last dimension."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(FunctionModule, function=F.cosine_similarity):
    """x1 . x2 / (|x1| |x2|) along `dim`."""

    extra_repr = Module.extra_repr
