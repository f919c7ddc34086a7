"""torch.distributed._composable.fsdp: names to import."""

from __future__ import annotations

from ..._absent import absent_names

__getattr__ = absent_names(
    "torch.distributed._composable.fsdp",
    ("fully_shard", "FSDPModule", "MixedPrecisionPolicy", "CPUOffloadPolicy"),
    "nothing is sharded yet: use DistributedDataParallel",
)
