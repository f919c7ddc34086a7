"""Where PyTorch keeps DistributedSampler (torch.utils.data.distributed)."""

from __future__ import annotations

from .sampler import DistributedSampler

__all__ = ["DistributedSampler"]
