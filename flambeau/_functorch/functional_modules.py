"""Modules as functions of their parameters and buffers, in the older form of `functorch`."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

from ..core.tensor import Tensor
from ..func import functional_call, stack_module_state
from ..nn.modules.module import Module

Tensors = tuple[Tensor, ...]


class FunctionalModuleWithBuffers(Module):
    """A module without state: called with a tuple of parameters, one of buffers, and the module's arguments."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        self.param_names = tuple(dict(module.named_parameters()))
        self.buffer_names = tuple(dict(module.named_buffers()))
        self.stateless_model = copy.deepcopy(module)

    def forward(self, params: Sequence[Tensor], buffers: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        """What the module computes with these parameters and buffers, in the order of their names."""
        state = {**dict(zip(self.param_names, params, strict=True)), **dict(zip(self.buffer_names, buffers, strict=True))}
        return functional_call(self.stateless_model, state, args, kwargs)


class FunctionalModule(FunctionalModuleWithBuffers):
    """A module without parameters, called with a tuple of them and the module's arguments."""

    def forward(self, params: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        """What the module computes with these parameters."""
        return super().forward(params, (), *args, **kwargs)


def _copies(tensors: Iterable[Tensor], detached: bool) -> Tensors:
    return tuple(t.detach().clone().requires_grad_(t.requires_grad and not detached) for t in tensors)


def make_functional(model: Module, disable_autograd_tracking: bool = False) -> tuple[FunctionalModule, Tensors]:
    """(function of the parameters and the module's arguments, copies of the parameters). The module must have no buffers."""
    if any(True for _ in model.buffers()):
        raise RuntimeError("make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) instead.")
    return FunctionalModule(model), _copies(model.parameters(), disable_autograd_tracking)


def make_functional_with_buffers(model: Module, disable_autograd_tracking: bool = False) -> tuple[FunctionalModuleWithBuffers, Tensors,
                                                                                                  Tensors]:
    """(function of the parameters, the buffers and the module's arguments, copies of the parameters, copies of the buffers)."""
    return (FunctionalModuleWithBuffers(model), _copies(model.parameters(), disable_autograd_tracking),
            _copies(model.buffers(), disable_autograd_tracking))


def combine_state_for_ensemble(models: Sequence[Module]) -> tuple[FunctionalModuleWithBuffers, Tensors, Tensors]:
    """The first module as a function, and all modules' parameters and buffers stacked, for torch.func.vmap."""
    if len(models) == 0:
        raise RuntimeError("combine_state_for_ensemble: Expected at least one model, got 0.")
    params, buffers = stack_module_state(list(models))
    return FunctionalModuleWithBuffers(models[0]), _copies(params.values(), True), _copies(buffers.values(), True)


__all__ = ["FunctionalModule", "FunctionalModuleWithBuffers", "combine_state_for_ensemble", "make_functional", "make_functional_with_buffers"]
