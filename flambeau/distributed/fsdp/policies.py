"""What is asked of sharding: dtypes, offloading, strategies, and how state dicts are to be."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """`param_dtype`: in which modules compute; `reduce_dtype`: in which gradients are added up; `output_dtype`: of forward's results;
    `cast_forward_inputs`: whether floating-point inputs are cast to `param_dtype`."""

    param_dtype: Any = None
    reduce_dtype: Any = None
    output_dtype: Any = None
    cast_forward_inputs: bool = True


@dataclass
class MixedPrecision:
    """The same, as FullyShardedDataParallel takes it; `buffer_dtype`: of buffers."""

    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True


@dataclass
class OffloadPolicy:
    """No offloading."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Shards, their gradients and the optimizer's state lie on the CPU, in pinned memory if told; computing is where it was."""

    pin_memory: bool = True


@dataclass
class CPUOffload:
    """As CPUOffloadPolicy, for FullyShardedDataParallel."""

    offload_params: bool = False


class ShardingStrategy(enum.Enum):
    """What is spread: parameters, gradients and the optimizer's state; the last two; nothing; within each of several groups."""

    FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, _HYBRID_SHARD_ZERO2 = range(1, 6)


class BackwardPrefetch(enum.Enum):
    """When the next parameters are gathered. Here they are gathered when they are needed."""

    BACKWARD_PRE, BACKWARD_POST = range(1, 3)


class StateDictType(enum.Enum):
    """Whole tensors, this process's parts as plain tensors, or DTensors."""

    FULL_STATE_DICT, LOCAL_STATE_DICT, SHARDED_STATE_DICT = range(1, 4)


@dataclass
class StateDictConfig:
    """`offload_to_cpu`: bring tensors to the CPU."""

    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    """`rank0_only`: the other processes get an empty state dict."""

    rank0_only: bool = False


@dataclass
class LocalStateDictConfig(StateDictConfig):
    """This process's parts."""


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """DTensors."""


@dataclass
class OptimStateDictConfig:
    """The same for an optimizer's state. `offload_to_cpu`: bring tensors to the CPU."""

    offload_to_cpu: bool = True


@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """`rank0_only`: the other processes get an empty state dict, and need none to load."""

    rank0_only: bool = False


@dataclass
class LocalOptimStateDictConfig(OptimStateDictConfig):
    """This process's parts."""

    offload_to_cpu: bool = False


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """DTensors."""


class OptimStateKeyType(enum.Enum):
    """What state belongs to: a parameter's name or its number."""

    PARAM_NAME, PARAM_ID = range(1, 3)


class StateDictSettings(NamedTuple):
    """How state dicts are made now."""

    state_dict_type: StateDictType = StateDictType.FULL_STATE_DICT
    state_dict_config: StateDictConfig = FullStateDictConfig()
    optim_state_dict_config: OptimStateDictConfig = FullOptimStateDictConfig()
