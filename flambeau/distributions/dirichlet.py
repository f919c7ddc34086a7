"""Where PyTorch keeps Dirichlet (torch.distributions.dirichlet)."""

from __future__ import annotations

from .continuous import Dirichlet

__all__ = ["Dirichlet"]
