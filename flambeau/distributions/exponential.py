"""Where PyTorch keeps Exponential (torch.distributions.exponential)."""

from __future__ import annotations

from .continuous import Exponential

__all__ = ["Exponential"]
