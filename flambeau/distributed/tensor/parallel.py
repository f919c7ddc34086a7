"""torch.distributed.tensor.parallel: names to import."""

from __future__ import annotations

from ..._absent import absent_names

__getattr__ = absent_names(
    "torch.distributed.tensor.parallel",
    ("parallelize_module", "ColwiseParallel", "RowwiseParallel", "SequenceParallel", "PrepareModuleInput",
     "PrepareModuleOutput", "loss_parallel"),
    "nothing is sharded yet: use DistributedDataParallel, or collectives",
)
