"""Where PyTorch keeps Bernoulli (torch.distributions.bernoulli)."""

from __future__ import annotations

from .discrete import Bernoulli

__all__ = ["Bernoulli"]
