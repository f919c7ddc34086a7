"""Where PyTorch keeps Beta (torch.distributions.beta)."""

from __future__ import annotations

from .continuous import Beta

__all__ = ["Beta"]
