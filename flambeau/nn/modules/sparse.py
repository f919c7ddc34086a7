"""Embeddings."""

from __future__ import annotations

from typing import Any

from ...core import dispatch
from ...core.tensor import Tensor
from ...ops.creation import empty
from ...ops.nn.layers import padding_row
from .. import functional as F
from .. import init
from ..parameter import Parameter
from .module import Module
from .utils import chosen


class _Table(Module):
    """A table of vectors, normal at first, the padding row zero."""

    def _make_weight(self, _weight: Tensor | None, _freeze: bool, device: Any, dtype: Any) -> None:
        if _weight is None:
            shape = (self.num_embeddings, self.embedding_dim)
            self.weight = Parameter(empty(shape, device=device, dtype=dtype), requires_grad=not _freeze)
            self.reset_parameters()
            return
        if list(_weight.shape) != [self.num_embeddings, self.embedding_dim]:
            raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
        self.weight = Parameter(_weight, requires_grad=not _freeze)

    def reset_parameters(self) -> None:
        """Standard normal numbers; zeros in the padding row."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with dispatch.grad_enabled(False):
                self.weight[self.padding_idx].fill_(0)

    def _shared_repr(self) -> list[str]:
        return [f"{self.num_embeddings}, {self.embedding_dim}", *chosen(self, max_norm=None, norm_type=2, scale_grad_by_freq=False)]


class Embedding(_Table):
    """A table of vectors looked up by index."""

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None,
                 norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Tensor | None = None,
                 _freeze: bool = False, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_row(padding_idx, num_embeddings)
        self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse = max_norm, norm_type, scale_grad_by_freq, sparse
        self._make_weight(_weight, _freeze, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse)

    def extra_repr(self) -> str:
        size, *rest = self._shared_repr()
        return ", ".join([size, *chosen(self, padding_idx=None), *rest, *chosen(self, sparse=False)])

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None,
                        max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
                        sparse: bool = False) -> Embedding:
        """An Embedding over a given (rows, width) table."""
        if embeddings.ndim != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, width = embeddings.shape
        return cls(rows, width, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, embeddings, freeze)


class EmbeddingBag(_Table):
    """Sums, means or maxima of bags of embeddings."""

    def __init__(self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
                 scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, _weight: Tensor | None = None,
                 include_last_offset: bool = False, padding_idx: int | None = None, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self.mode, self.sparse, self.include_last_offset = mode, sparse, include_last_offset
        self.padding_idx = padding_row(padding_idx, num_embeddings)
        self._make_weight(_weight, False, device, dtype)

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode,
                               self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx)

    def extra_repr(self) -> str:
        return ", ".join([*self._shared_repr(), f"mode={self.mode!r}", *chosen(self, padding_idx=None)])

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, max_norm: float | None = None, norm_type: float = 2.0,
                        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
                        include_last_offset: bool = False, padding_idx: int | None = None) -> EmbeddingBag:
        """An EmbeddingBag over a given (rows, width) table."""
        if embeddings.ndim != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, width = embeddings.shape
        made = cls(rows, width, max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings, include_last_offset, padding_idx)
        made.weight.requires_grad = not freeze
        return made
