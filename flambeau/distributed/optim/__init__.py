"""torch.distributed.optim: optimizers whose state is spread over the processes."""

from __future__ import annotations

from ..._absent import absent_names
from ..._lazy import submodules
from .optimizer import DistributedOptimizer
from .zero_redundancy_optimizer import ZeroRedundancyOptimizer

_absent = absent_names("torch.distributed.optim", ("PostLocalSGDOptimizer",),
                       "use ZeroRedundancyOptimizer, or an ordinary optimizer with DistributedDataParallel")
__getattr__ = submodules(__name__, "optimizer", "zero_redundancy_optimizer", otherwise=_absent)

__all__ = ["DistributedOptimizer", "ZeroRedundancyOptimizer"]
