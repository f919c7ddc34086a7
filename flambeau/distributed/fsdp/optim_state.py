"""State dicts of optimizers whose parameters are spread: by the parameters' names, whole, in parts, or as DTensors."""

from __future__ import annotations

from typing import Any

from ...autograd.grad_mode import no_grad
from ...core.tensor import Tensor
from ...nn.modules.module import Module
from ..groups import default_group
from ..named_state import by_name, by_number, from_first, parameter_names, spread, whole
from ..process_group import ProcessGroup
from ..tensor.dtensor import DTensor
from .policies import FullOptimStateDictConfig, OptimStateKeyType, StateDictSettings, StateDictType


def _settings(model: Module) -> StateDictSettings:
    return next((m._settings for m in model.modules() if hasattr(m, "_settings")), StateDictSettings())


def _refuse_input(optim_input: Any) -> None:
    if optim_input is not None:
        raise NotImplementedError("optim_input= is not implemented, which torch has given up too; pass optim=")


def _given(model: Module, optim: Any, state_dict: dict | None, settings: StateDictSettings, group: ProcessGroup | None) -> dict[str, Any]:
    kind, _, config = settings

    def change(value: Any) -> Any:
        if isinstance(value, DTensor) and kind is StateDictType.LOCAL_STATE_DICT:
            return value._local_tensor.detach()
        if kind is not StateDictType.FULL_STATE_DICT or not isinstance(value, Tensor):
            return value
        return whole(value, config.offload_to_cpu) if isinstance(value, DTensor) else value.clone()    # counters go on here

    with no_grad():
        found = by_name(parameter_names(model), optim, state_dict, change)
    alone = kind is StateDictType.FULL_STATE_DICT and getattr(config, "rank0_only", False)
    return {} if alone and default_group(group).rank() else found


def _own_part(value: Any, parameter: Any) -> Any:
    """The part of this process as a DTensor; counters and whole tensors as they are."""
    if isinstance(value, Tensor) and value.ndim and isinstance(parameter, DTensor) and not isinstance(value, DTensor):
        return DTensor.from_local(value, parameter.device_mesh, parameter.placements, shape=tuple(parameter.shape),
                                  stride=parameter.stride())
    return spread(value, parameter)


def _to_load(model: Module, optim: Any, state_dict: dict | None, settings: StateDictSettings, group: ProcessGroup | None) -> dict[str, Any]:
    kind, _, config = settings
    if kind is StateDictType.FULL_STATE_DICT and getattr(config, "rank0_only", False):
        state_dict = from_first(state_dict or {}, default_group(group))
    with no_grad():
        return by_number(parameter_names(model), optim, state_dict or {}, _own_part if kind is StateDictType.LOCAL_STATE_DICT else spread)


_FULL = StateDictSettings()
_OF_FIRST = StateDictSettings(optim_state_dict_config=FullOptimStateDictConfig(rank0_only=True))


class OptimStateDicts:
    """The part of FullyShardedDataParallel that is about optimizers."""

    @staticmethod
    def optim_state_dict(model: Module, optim: Any, optim_state_dict: dict | None = None, group: ProcessGroup | None = None
                         ) -> dict[str, Any]:
        """The optimizer's state (or `optim_state_dict`, a state dict of it) by names, of the type that `state_dict_type` said."""
        return _given(model, optim, optim_state_dict, _settings(model), group)

    @staticmethod
    def optim_state_dict_to_load(model: Module, optim: Any, optim_state_dict: dict, is_named_optimizer: bool = False,
                                 load_directly: bool = False, group: ProcessGroup | None = None) -> dict[str, Any]:
        """What `optim.load_state_dict` takes of a state dict by names; `load_directly`: it takes it now."""
        if is_named_optimizer:
            raise NotImplementedError("optim_state_dict_to_load(is_named_optimizer=True) is not implemented; use an optimizer of "
                                      "torch.optim")
        found = _to_load(model, optim, optim_state_dict, _settings(model), group)
        if load_directly:
            optim.load_state_dict(found)
        return found

    @staticmethod
    def full_optim_state_dict(model: Module, optim: Any, optim_input: Any = None, rank0_only: bool = True,
                              group: ProcessGroup | None = None) -> dict[str, Any]:
        """The whole state by names; at rank 0 alone, if not told otherwise."""
        _refuse_input(optim_input)
        return _given(model, optim, None, _OF_FIRST if rank0_only else _FULL, group)

    @staticmethod
    def sharded_optim_state_dict(model: Module, optim: Any, group: ProcessGroup | None = None) -> dict[str, Any]:
        """The state by names, as DTensors."""
        return _given(model, optim, None, StateDictSettings(StateDictType.SHARDED_STATE_DICT), group)

    @staticmethod
    def shard_full_optim_state_dict(full_optim_state_dict: dict, model: Module, optim_input: Any = None, optim: Any = None
                                    ) -> dict[str, Any]:
        """What `optim.load_state_dict` takes of a whole state that every process has."""
        _refuse_input(optim_input)
        return _to_load(model, optim, full_optim_state_dict, _FULL, None)

    @staticmethod
    def scatter_full_optim_state_dict(full_optim_state_dict: dict | None, model: Module, optim_input: Any = None, optim: Any = None,
                                      group: ProcessGroup | None = None) -> dict[str, Any]:
        """What `optim.load_state_dict` takes of a whole state that rank 0 has."""
        _refuse_input(optim_input)
        return _to_load(model, optim, full_optim_state_dict, _OF_FIRST, group)

    @staticmethod
    def flatten_sharded_optim_state_dict(sharded_optim_state_dict: dict, model: Module, optim: Any) -> dict[str, Any]:
        """What `optim.load_state_dict` takes of a state of DTensors."""
        return _to_load(model, optim, sharded_optim_state_dict, StateDictSettings(StateDictType.SHARDED_STATE_DICT), None)

    @staticmethod
    def rekey_optim_state_dict(optim_state_dict: dict, optim_state_key_type: OptimStateKeyType, model: Module, optim_input: Any = None,
                               optim: Any = None) -> dict[str, Any]:
        """The state dict by names, or by numbers."""
        _refuse_input(optim_input)
        names = parameter_names(model)
        if optim_state_key_type is OptimStateKeyType.PARAM_NAME:
            return by_name(names, optim, optim_state_dict)
        return by_number(names, optim, optim_state_dict, lambda value, parameter: value)
