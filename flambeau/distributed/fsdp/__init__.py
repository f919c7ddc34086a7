"""torch.distributed.fsdp: names to import and to test values against."""

from __future__ import annotations

from ..._absent import absent_names

__getattr__ = absent_names(
    "torch.distributed.fsdp",
    ("FullyShardedDataParallel", "FSDPModule", "CPUOffload", "CPUOffloadPolicy", "MixedPrecision", "MixedPrecisionPolicy",
     "OffloadPolicy", "ShardingStrategy", "StateDictType", "FullStateDictConfig", "FullOptimStateDictConfig",
     "BackwardPrefetch", "fully_shard"),
    "nothing is sharded yet: use DistributedDataParallel",
)
