"""torch.distributed.fsdp: modules whose parameters are spread over the processes. `docs/distributed.md` tells how."""

from __future__ import annotations

from ..._absent import absent_names
from ..._lazy import submodules
from .fully_shard import DataParallelMeshDims, FSDPModule, UnshardHandle, fully_shard, register_fsdp_forward_method, share_comm_ctx
from .fully_sharded import FullyShardedDataParallel
from .policies import (
    BackwardPrefetch,
    CPUOffload,
    CPUOffloadPolicy,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,
    LocalStateDictConfig,
    MixedPrecision,
    MixedPrecisionPolicy,
    OffloadPolicy,
    OptimStateDictConfig,
    OptimStateKeyType,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)

_absent = absent_names("torch.distributed.fsdp", ("FlatParameter",), "parameters are DTensors: full_tensor() gives the whole")
__getattr__ = submodules(__name__, "sharded_grad_scaler", "wrap", otherwise=_absent)

__all__ = [
    "BackwardPrefetch", "CPUOffload", "CPUOffloadPolicy", "DataParallelMeshDims", "FSDPModule", "FullOptimStateDictConfig",
    "FullStateDictConfig", "FullyShardedDataParallel", "LocalOptimStateDictConfig", "LocalStateDictConfig", "MixedPrecision",
    "MixedPrecisionPolicy", "OffloadPolicy", "OptimStateDictConfig", "OptimStateKeyType", "ShardedOptimStateDictConfig",
    "ShardedStateDictConfig", "ShardingStrategy", "StateDictConfig", "StateDictSettings", "StateDictType", "UnshardHandle", "fully_shard",
    "register_fsdp_forward_method", "share_comm_ctx",
]
