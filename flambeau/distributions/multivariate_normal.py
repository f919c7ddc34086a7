"""Where PyTorch keeps MultivariateNormal (torch.distributions.multivariate_normal)."""

from __future__ import annotations

from .continuous import MultivariateNormal

__all__ = ["MultivariateNormal"]
