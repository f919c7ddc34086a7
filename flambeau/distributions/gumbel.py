"""Where PyTorch keeps Gumbel (torch.distributions.gumbel)."""

from __future__ import annotations

from .continuous import Gumbel

__all__ = ["Gumbel"]
