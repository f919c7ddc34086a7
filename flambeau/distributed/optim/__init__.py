"""torch.distributed.optim: optimizers whose state is spread over the processes."""

from __future__ import annotations

from ..._lazy import submodules
from .optimizer import DistributedOptimizer
from .post_localSGD_optimizer import PostLocalSGDOptimizer
from .zero_redundancy_optimizer import ZeroRedundancyOptimizer

__getattr__ = submodules(__name__, "optimizer", "post_localSGD_optimizer", "zero_redundancy_optimizer")

__all__ = ["DistributedOptimizer", "PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]
