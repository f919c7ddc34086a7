"""Where PyTorch keeps Gamma (torch.distributions.gamma)."""

from __future__ import annotations

from .continuous import Gamma

__all__ = ["Gamma"]
