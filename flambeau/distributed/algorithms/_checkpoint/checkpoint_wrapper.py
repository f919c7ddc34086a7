"""Modules around others, whose activations they recompute in backward (checkpoint_wrapper) or keep on the host (offload_wrapper)."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from ....autograd.checkpoint import checkpoint
from ....autograd.graph import save_on_cpu
from ....nn.modules.module import Module
from ....nn.parameter import Parameter


class CheckpointImpl(enum.Enum):
    """Which of the two ways of torch.utils.checkpoint."""

    REENTRANT, NO_REENTRANT = enum.auto(), enum.auto()


class ActivationWrapper(Module, ABC):
    """A module that stands for another one: names of parameters, and state dicts, are those of that one."""

    _wraps = "_checkpoint_wrapped_module"

    def __init__(self, mod: Module) -> None:
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self._register_state_dict_hook(_without_name)
        self.register_load_state_dict_pre_hook(_with_name)

    @abstractmethod
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """That of the module within."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__(self._wraps), name)

    def __getitem__(self, key: Any) -> Any:
        return self._checkpoint_wrapped_module.__getitem__(key)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Parameter]]:
        """As the module within names them."""
        for name, p in super().named_parameters(*args, **kwargs):
            yield name.replace(f"{self._wraps}.", ""), p


def _without_name(module: Module, state: dict, prefix: str, metadata: Any) -> None:
    del module, metadata
    held = f"{prefix}{ActivationWrapper._wraps}."
    for key in [key for key in state if key.startswith(held)]:
        state[prefix + key[len(held) :]] = state.pop(key)


def _with_name(module: Module, state: dict, prefix: str, *rest: Any) -> None:
    del module, rest
    held = f"{prefix}{ActivationWrapper._wraps}."
    for key in [key for key in state if key.startswith(prefix) and not key.startswith(held)]:
        state[held + key[len(prefix) :]] = state.pop(key)


class CheckpointWrapper(ActivationWrapper):
    """Keeps what goes in, and runs the module again in backward."""

    def __init__(self, mod: Module, checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT, checkpoint_fn: Callable | None = None,
                 **checkpoint_fn_kwargs: Any) -> None:
        super().__init__(mod)
        self.checkpoint_impl, self.checkpoint_fn = checkpoint_impl, checkpoint_fn or checkpoint
        again = {} if checkpoint_fn else {"use_reentrant": checkpoint_impl is CheckpointImpl.REENTRANT}
        self.options = {**again, **checkpoint_fn_kwargs}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs and self.options.get("use_reentrant"):    # which takes no names
            return self.checkpoint_fn(lambda *given: self._checkpoint_wrapped_module(*given, **kwargs), *args, **self.options)
        return self.checkpoint_fn(self._checkpoint_wrapped_module, *args, **self.options, **kwargs)


class OffloadWrapper(ActivationWrapper):
    """Keeps in host memory what the module saves for backward."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


def checkpoint_wrapper(module: Module, checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT, checkpoint_fn: Callable | None = None,
                       **checkpoint_fn_kwargs: Any) -> Module:
    """`module` with its activations recomputed in backward: by `torch.utils.checkpoint`, or `checkpoint_fn(module, *args, **kwargs)`."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def offload_wrapper(module: Module) -> Module:
    """`module` with its activations in host memory."""
    return OffloadWrapper(module)


def apply_activation_checkpointing(model: Module, checkpoint_wrapper_fn: Callable = checkpoint_wrapper,
                                   check_fn: Callable[[Module], bool] = lambda _: True, auto_wrap_policy: Callable | None = None) -> None:
    """Replace the submodules of `model` for which `check_fn` holds, or that a policy chooses, by what `checkpoint_wrapper_fn` makes of them."""
    for name, child in list(model.named_children()):
        apply_activation_checkpointing(child, checkpoint_wrapper_fn, check_fn, auto_wrap_policy)
        numel = sum(p.numel() for p in child.parameters())
        if check_fn(child) if auto_wrap_policy is None else auto_wrap_policy(module=child, recurse=False, nonwrapped_numel=numel):
            setattr(model, name, checkpoint_wrapper_fn(child))


__all__ = ["ActivationWrapper", "CheckpointImpl", "CheckpointWrapper", "OffloadWrapper", "apply_activation_checkpointing",
           "checkpoint_wrapper", "offload_wrapper"]
