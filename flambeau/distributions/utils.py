"""Where PyTorch keeps broadcast_all (torch.distributions.utils)."""

from __future__ import annotations

from .distribution import broadcast_all

__all__ = ["broadcast_all"]
