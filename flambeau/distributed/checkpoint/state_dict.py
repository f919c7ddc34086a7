"""State dicts of models and optimizers by the parameters' own names, whatever is wrapped around, for saving and loading."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ...autograd.grad_mode import no_grad
from ...core.tensor import Tensor
from ...nn.modules.module import Module, _IncompatibleKeys
from ...optim.optimizer import Optimizer
from ..fsdp import FSDPModule, FullyShardedDataParallel, StateDictType
from ..groups import default_group, get_rank, is_initialized
from ..named_state import begin_state, by_name, by_number, from_first, own_name, parameter_names, spread, told, whole

Optimizers = Optimizer | Iterable[Optimizer]


@dataclass
class StateDictOptions:
    """`full_state_dict`: whole tensors, not each process's parts; `cpu_offload`: on the CPU (and with whole ones at rank 0 alone);
    `ignore_frozen_params`: those that need no gradient are left out; `keep_submodule_prefixes`: names as the model's, where some
    submodules are asked for; `strict`: as load_state_dict's; `broadcast_from_rank0`: whole tensors are given at rank 0 alone;
    `flatten_optimizer_state_dict`: one level, "state.weight.exp_avg"."""

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"

    def __post_init__(self) -> None:
        if self.broadcast_from_rank0 and not self.full_state_dict:
            raise ValueError("full_state_dict must be True when broadcast_from_rank0 is True.")

    def _given(self, value: Any) -> Any:
        """A value as it is asked for."""
        if self.full_state_dict:
            value = whole(value)
        return value.cpu() if self.cpu_offload and isinstance(value, Tensor) else value

    def _for_me(self) -> bool:
        return not (self.full_state_dict and self.cpu_offload and is_initialized() and get_rank())


@contextlib.contextmanager
def _in_parts(model: Module) -> Iterator[None]:
    """Within the block all parameters are this process's parts, and state dicts hold DTensors."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        for unit in FullyShardedDataParallel.fsdp_modules(model):
            unit._fsdp_group.reshard()
        yield


def _list(optimizers: Optimizers) -> list[Optimizer]:
    return [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)


def _within(model: Module, submodules: set[Module] | None) -> list[str] | None:
    """How the names in some submodules begin."""
    if not submodules:
        return None
    plain = own_name(model)
    return [plain(f"{name}.") for name, module in model.named_modules() if module in submodules]


# -- models ----------------------------------------------------------------------------------------------------------------
def get_model_state_dict(model: Module, *, submodules: set[Module] | None = None,
                         options: StateDictOptions | None = None) -> dict[str, Any]:
    """The model's state dict by its parameters' own names: DTensors where they are spread, if `options` don't ask for whole ones."""
    options = options or StateDictOptions()
    begins, plain = _within(model, submodules), own_name(model)
    with _in_parts(model), no_grad():
        frozen = {plain(name) for name, p in model.named_parameters() if not p.requires_grad} if options.ignore_frozen_params else set()
        found: dict[str, Any] = {}
        for key, value in model.state_dict().items():
            name = plain(key)
            begin = next((b for b in begins if name.startswith(b)), None) if begins is not None else ""
            if name not in frozen and begin is not None:
                found[name if options.keep_submodule_prefixes else name[len(begin):]] = options._given(value)
    return found if options._for_me() else {}


def set_model_state_dict(model: Module, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None
                         ) -> _IncompatibleKeys:
    """Load what `get_model_state_dict` gave, whole tensors or parts."""
    options = options or StateDictOptions()
    plain = own_name(model)
    with _in_parts(model), no_grad():
        own = {plain(key): (key, value) for key, value in model.state_dict().items()}
        values: Iterable[tuple[str, Any]] = model_state_dict.items()
        if options.broadcast_from_rank0:
            values = told(model_state_dict, default_group())
        state = {own[name][0] if name in own else name: spread(value, own[name][1]) if name in own else value for name, value in values}
        return model.load_state_dict(state, strict=options.strict)


# -- optimizers ------------------------------------------------------------------------------------------------------------
def get_optimizer_state_dict(model: Module, optimizers: Optimizers, *, submodules: set[Module] | None = None,
                             options: StateDictOptions | None = None) -> dict[str, Any]:
    """The optimizers' state dict by the parameters' own names. One that has made no step makes its state first."""
    options = options or StateDictOptions()
    begins = _within(model, submodules)
    every: dict[str, Any] = {"state": {}, "param_groups": []}
    with _in_parts(model):
        names = parameter_names(model)
        for optimizer in _list(optimizers):
            begin_state(optimizer)
            with no_grad():
                found = by_name(names, optimizer, change=options._given)
            every["state"].update(found["state"])
            every["param_groups"] += found["param_groups"]
    if begins is not None:
        every["state"] = {name: s for name, s in every["state"].items() if name.startswith(tuple(begins))}
    if not options._for_me():
        return {}
    return _flat(every) if options.flatten_optimizer_state_dict else every


def _flat(nested: dict[str, Any]) -> dict[str, Any]:
    """{"state.weight.exp_avg": tensor, "param_groups.weight.lr": number}."""
    flat = {f"state.{name}.{key}": value for name, state in nested["state"].items() for key, value in state.items()}
    for group in nested["param_groups"]:
        flat.update({f"param_groups.{name}.{key}": value for name in group["params"] for key, value in group.items() if key != "params"})
    return flat


def _nested(flat: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """What `_flat` was made of, with a group for each parameter."""
    state: dict[str, Any] = {}
    groups = []
    for name in names:
        begin, settings = f"state.{name}.", f"param_groups.{name}."
        own = {key[len(begin):]: value for key, value in flat.items() if key.startswith(begin) and "." not in key[len(begin):]}
        if own:
            state[name] = own
        groups.append({"params": [name], **{key[len(settings):]: v for key, v in flat.items()
                                            if key.startswith(settings) and "." not in key[len(settings):]}})
    return {"state": state, "param_groups": groups}


def set_optimizer_state_dict(model: Module, optimizers: Optimizers, optim_state_dict: dict[str, Any], *,
                             options: StateDictOptions | None = None) -> None:
    """Load what `get_optimizer_state_dict` gave, whole tensors or parts."""
    options = options or StateDictOptions()
    with _in_parts(model):
        names = parameter_names(model)
        given = optim_state_dict
        if options.broadcast_from_rank0:
            group = default_group()
            given = dict(told(given, group)) if options.flatten_optimizer_state_dict else from_first(given, group)
        if "param_groups" not in given:
            given = _nested(given, names.values())
        for optimizer in _list(optimizers):
            begin_state(optimizer)
            late = [names[id(p)] for p in optimizer.state if p.requires_grad and names[id(p)] not in given["state"]]
            if late and options.strict:
                raise RuntimeError(f"Missing optimizer state for parameter '{late[0]}' in checkpoint. The parameter requires gradients "
                                   "but has no saved optimizer state. To load anyway, use StateDictOptions(strict=False).")
            with no_grad():
                state = by_number(names, optimizer, given)
            optimizer.load_state_dict(state)


# -- both --------------------------------------------------------------------------------------------------------------------
def get_state_dict(model: Module, optimizers: Optimizers, *, submodules: set[Module] | None = None,
                   options: StateDictOptions | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state dicts of a model and its optimizers."""
    return (get_model_state_dict(model, submodules=submodules, options=options),
            get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options))


def set_state_dict(model: Module, optimizers: Optimizers, *, model_state_dict: dict[str, Any], optim_state_dict: dict[str, Any],
                   options: StateDictOptions | None = None) -> _IncompatibleKeys:
    """Load the state dicts of a model and its optimizers."""
    found = set_model_state_dict(model, model_state_dict, options=options)
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return found


__all__ = ["StateDictOptions", "get_model_state_dict", "get_optimizer_state_dict", "get_state_dict", "set_model_state_dict",
           "set_optimizer_state_dict", "set_state_dict"]
