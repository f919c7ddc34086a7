"""Where PyTorch keeps OneHotCategorical (torch.distributions.one_hot_categorical)."""

from __future__ import annotations

from .discrete import OneHotCategorical

__all__ = ["OneHotCategorical"]
