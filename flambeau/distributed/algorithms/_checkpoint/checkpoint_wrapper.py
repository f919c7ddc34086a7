"""Wrappers of modules that save memory in training; names of parameters and state_dicts stay those of the modules inside."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import Any

from ....autograd.graph import save_on_cpu
from ....nn.modules.module import Module
from ....nn.parameter import Parameter
from ....utils.checkpoint import checkpoint
from ...fsdp.wrap import wrapped

_PREFIX = "_checkpoint_wrapped_module."


class CheckpointImpl(enum.Enum):
    """Which form of torch.utils.checkpoint is used."""

    REENTRANT = enum.auto()
    NO_REENTRANT = enum.auto()


class ActivationWrapper(Module):
    """Around a module, whose attributes, items and names of state it has."""

    def __init__(self, mod: Module) -> None:
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self._register_state_dict_hook(_without_prefix)
        self.register_load_state_dict_pre_hook(_with_prefix)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Subclasses tell how the module is run."""
        raise ValueError("Subclasses should implement forward().")

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._checkpoint_wrapped_module, name)

    def __getitem__(self, key: int) -> Any:
        return self._checkpoint_wrapped_module.__getitem__(key)     # type: ignore[operator]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Parameter]]:
        """The parameters, by the names that they have without the wrapper."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(_PREFIX, ""), parameter


class CheckpointWrapper(ActivationWrapper):
    """The module is computed again in the backward pass (torch.utils.checkpoint)."""

    def __init__(self, mod: Module, checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
                 checkpoint_fn: Callable[..., Any] | None = None, **checkpoint_fn_kwargs: Any) -> None:
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        if checkpoint_fn is None:
            checkpoint_fn = checkpoint
            checkpoint_fn_kwargs = {"use_reentrant": checkpoint_impl is CheckpointImpl.REENTRANT, **checkpoint_fn_kwargs}
        self.checkpoint_fn, self.checkpoint_fn_kwargs = checkpoint_fn, checkpoint_fn_kwargs

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives, without its activations kept."""
        def run(*args: Any) -> Any:     # the older form of checkpoint knows no keywords
            return self._checkpoint_wrapped_module(*args, **kwargs)

        return self.checkpoint_fn(run, *args, **self.checkpoint_fn_kwargs)


class OffloadWrapper(ActivationWrapper):
    """What the module saves for the backward pass lies in memory of the host."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives."""
        with save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


def _renamed(state: dict[str, Any], prefix: str, old: str, new: str) -> None:
    for key in [key for key in state if key.startswith(prefix + old)]:
        state[prefix + new + key.removeprefix(prefix + old)] = state.pop(key)


def _without_prefix(module: Module, state_dict: dict[str, Any], prefix: str, metadata: Any) -> dict[str, Any]:
    del module, metadata
    _renamed(state_dict, prefix, _PREFIX, "")
    return state_dict


def _with_prefix(module: Module, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
    del module, rest
    _renamed(state_dict, prefix, "", _PREFIX)


def checkpoint_wrapper(module: Module, checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
                       checkpoint_fn: Callable[..., Any] | None = None, **checkpoint_fn_kwargs: Any) -> Module:
    """The module, computed again in the backward pass: by `checkpoint_fn(function, *args, **checkpoint_fn_kwargs)`."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def offload_wrapper(module: Module) -> Module:
    """The module, with what it saves in memory of the host."""
    return OffloadWrapper(module)


def apply_activation_checkpointing(model: Module, checkpoint_wrapper_fn: Callable[[Module], Module] = checkpoint_wrapper,
                                   check_fn: Callable[[Module], bool] = lambda _: True,
                                   auto_wrap_policy: Callable[[Module, bool, int], bool] | None = None) -> None:
    """Wrap, in place, the modules inside of `model` that `check_fn`, or a policy of FSDP's, names."""
    if auto_wrap_policy is not None:
        wrapped(model, auto_wrap_policy, checkpoint_wrapper_fn)
        return
    for name, child in list(model.named_children()):
        apply_activation_checkpointing(child, checkpoint_wrapper_fn, check_fn)
        if check_fn(child):
            setattr(model, name, checkpoint_wrapper_fn(child))


__all__ = ["ActivationWrapper", "CheckpointImpl", "CheckpointWrapper", "OffloadWrapper", "apply_activation_checkpointing",
           "checkpoint_wrapper", "offload_wrapper"]
