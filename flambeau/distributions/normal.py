"""Where PyTorch keeps Normal (torch.distributions.normal)."""

from __future__ import annotations

from .continuous import Normal

__all__ = ["Normal"]
