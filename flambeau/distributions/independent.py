"""Where PyTorch keeps Independent (torch.distributions.independent)."""

from __future__ import annotations

from .continuous import Independent

__all__ = ["Independent"]
