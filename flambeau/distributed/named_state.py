"""The state of models and optimizers by the parameters' own names, whatever modules are wrapped around: what every process can compare.

A module that stands for another, which it holds, says in its class's `_wraps` under which name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..autograd.grad_mode import no_grad
from ..core.tensor import Tensor
from ..nn.modules.module import Module
from ..ops.creation import empty, zeros_like
from .objects import broadcast_object_list
from .process_group import ProcessGroup
from .tensor.api import distribute_tensor
from .tensor.dtensor import DTensor
from .tensor.placement_types import Replicate


def own_name(model: Module) -> Callable[[str], str]:
    """The function that takes the names of wrappers out of the name of a parameter (or an entry of a state dict) of `model`."""
    inside = []
    for name, module in model.named_modules():
        held = getattr(type(module), "_wraps", None)
        if held is not None:
            inside.append((f"{name}." if name else "", f"{held}."))

    def plain(name: str) -> str:
        for before, held in reversed(inside):   # the innermost first: those outside still have their names
            if name.startswith(before + held):
                name = before + name[len(before) + len(held):]
        return name

    return plain


def parameter_names(model: Module) -> dict[int, str]:
    """{id of a parameter: its own name}."""
    plain = own_name(model)
    return {id(p): plain(name) for name, p in model.named_parameters()}


def whole(value: Any, cpu: bool = False) -> Any:
    """A DTensor as a plain tensor; all processes of its mesh ask for it. `cpu`: there."""
    if isinstance(value, DTensor):
        value = value.detach().full_tensor()  # type: ignore[attr-defined]
    return value.cpu() if cpu and isinstance(value, Tensor) and not isinstance(value, DTensor) else value


def spread(value: Any, like: Any) -> Any:
    """The tensor `value` as the DTensor `like` lies, if it has its shape; other values are as they were."""
    if not isinstance(value, Tensor) or not isinstance(like, DTensor) or value.shape != like.shape:
        return value
    if not isinstance(value, DTensor):
        value = distribute_tensor(value.detach(), like.device_mesh, [Replicate()] * like.device_mesh.ndim, src_data_rank=None)
    return value.redistribute(placements=like.placements)


# -- optimizers ----------------------------------------------------------------------------------------------------------
def _numbered(optimizer: Any) -> list[Any]:
    """Its parameters, in the order in which its state dict numbers them."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def _named_parameters(names: Mapping[int, str], optimizer: Any) -> list[tuple[str, Any]]:
    parameters = _numbered(optimizer)
    if unknown := [tuple(p.shape) for p in parameters if id(p) not in names]:
        raise KeyError(f"the optimizer has parameters of the shapes {unknown} that are none of the model's")
    return [(names[id(p)], p) for p in parameters]


def begin_state(optimizer: Any) -> None:
    """Let an optimizer that has not made a step make the state that it keeps; parameters and gradients stay as they are."""
    parameters = [p for p in _numbered(optimizer) if p.requires_grad]
    if optimizer.state or not parameters:
        return
    grads, rates = [p.grad for p in parameters], [group["lr"] for group in optimizer.param_groups]
    try:
        with no_grad():
            for p in parameters:
                p.grad = zeros_like(p)
        for group, rate in zip(optimizer.param_groups, rates):
            group["lr"] = zeros_like(rate) if isinstance(rate, Tensor) else 0.0
        optimizer.step()
    finally:
        for p, grad in zip(parameters, grads):
            p.grad = grad
        for group, rate in zip(optimizer.param_groups, rates):
            group["lr"] = rate


def _each(state: Mapping, change: Callable[[Any], Any]) -> dict:
    return {key: change(value) for key, value in state.items()}


def by_name(names: Mapping[int, str], optimizer: Any, state_dict: dict | None = None,
            change: Callable[[Any], Any] = lambda value: value) -> dict[str, Any]:
    """A state dict of the optimizer (its own, if none is given) with names for numbers, each value as `change` makes it.

    State comes in the order of the parameters, so that all processes change the same value at the same time.
    """
    given = optimizer.state_dict() if state_dict is None else state_dict
    called = [name for name, _ in _named_parameters(names, optimizer)]
    state = {name: _each(given["state"][i], change) for i, name in enumerate(called) if i in given["state"]}
    groups = [{**{k: change(v) for k, v in g.items() if k != "params"}, "params": [called[i] for i in g["params"]]}
              for g in given["param_groups"]]
    return {"state": state, "param_groups": groups}


def by_number(names: Mapping[int, str], optimizer: Any, named: dict, change: Callable[[Any, Any], Any] = spread) -> dict[str, Any]:
    """The state dict that the optimizer loads: numbers for names, and each value as `change(value, parameter)` makes it."""
    parameters = _named_parameters(names, optimizer)
    state = {i: _each(named["state"][name], lambda v, p=p: change(v, p))  # type: ignore[misc]
             for i, (name, p) in enumerate(parameters) if name in named["state"]}
    return {"state": state, "param_groups": list(_groups({id(p): name for name, p in parameters}, optimizer, named))}


def _groups(names: Mapping[int, str], optimizer: Any, named: dict) -> Iterator[dict]:
    """The optimizer's groups, with what the saved group that has their first parameter says."""
    saved = {name: group for group in named["param_groups"] for name in group["params"]}
    at = 0
    for group in optimizer.param_groups:
        members = [names[id(p)] for p in group["params"]]
        settings = saved.get(members[0], group) if members else group
        yield {**{k: v for k, v in settings.items() if k != "params"}, "params": list(range(at, at + len(members)))}
        at += len(members)


# -- what one process has, to all ----------------------------------------------------------------------------------------------
def told(values: Mapping[Any, Any], group: ProcessGroup) -> Iterator[tuple[Any, Any]]:
    """The first process's {key: value}, to all: keys and what is no tensor first, then one tensor after another."""
    leads = group.rank() == 0
    described = [[(k, (tuple(v.shape), v.dtype) if isinstance(v, Tensor) else None, None if isinstance(v, Tensor) else v)
                  for k, v in values.items()] if leads else None]
    broadcast_object_list(described, group._ranks[0], group)
    for key, tensor, other in described[0] or ():
        if tensor is None:
            yield key, other
            continue
        value = values[key].detach().cpu().contiguous() if leads else empty(tensor[0], dtype=tensor[1])
        group.broadcast(value, 0).wait()
        yield key, value


def from_first(named: dict[str, Any], group: ProcessGroup) -> dict[str, Any]:
    """The first process's state dict by names, to all."""
    flat: dict[Any, Any] = {("state", name, key): value for name, state in named.get("state", {}).items() for key, value in state.items()}
    flat.update({("param_groups", i, key): value for i, g in enumerate(named.get("param_groups", ())) for key, value in g.items()})
    found: dict[str, Any] = {"state": {}, "param_groups": {}}
    for (part, at, key), value in told(flat, group):
        found[part].setdefault(at, {})[key] = value
    return {"state": found["state"], "param_groups": list(found["param_groups"].values())}
