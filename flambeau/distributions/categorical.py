"""Where PyTorch keeps Categorical (torch.distributions.categorical)."""

from __future__ import annotations

from .discrete import Categorical

__all__ = ["Categorical"]
