"""Activation checkpointing (torch.utils.checkpoint)."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable
from typing import Any

from .. import _C
from ..autograd import checkpoint as _home
from ..autograd.checkpoint import (
    CheckpointError,
    CheckpointFunction,
    GraphExecGroup,
    noop_context_fn,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)
from ..autograd.selective import SAC_IGNORED_OPS, CheckpointPolicy, SelectiveCheckpointContext, create_selective_checkpoint_contexts
from ..core.tensor import Tensor
from ..cuda import random as cuda_random
from ._pytree import tree_leaves

# forward and recomputation have to run the same way, so neither is captured; inside of a graph checkpoint is seen through
_checkpoint = _C.undisturbed(_home.checkpoint)
_checkpoint_sequential = _C.undisturbed(_home.checkpoint_sequential)


@functools.wraps(_home.checkpoint)
def checkpoint(*args: Any, **kwargs: Any) -> Any:
    return _checkpoint(*args, **kwargs)


@functools.wraps(_home.checkpoint_sequential)
def checkpoint_sequential(*args: Any, **kwargs: Any) -> Any:
    return _checkpoint_sequential(*args, **kwargs)


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """The GPUs that tensors among the arguments lie on, and the states of their random generators."""
    places = sorted({int(t.device.index or 0) for t in tree_leaves(args) if isinstance(t, Tensor) and t.device.type == "cuda"})
    return places, [cuda_random.get_rng_state(i) for i in places]


def set_device_states(devices: Iterable[int], states: Iterable[Tensor], *, device_type: str | None = None) -> None:
    """Put the generators of GPUs back to such states."""
    if device_type not in (None, "cuda"):
        raise NotImplementedError(f"set_device_states(device_type={device_type!r}) is not implemented; the GPUs here are 'cuda'")
    for i, state in zip(devices, states):
        cuda_random.set_rng_state(state, i)


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments, tensors among them cut off from their history: what is computed from them anew has one of its own."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple(x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs)


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn where no tensor wants a gradient: a reentrant checkpoint would give none."""
    if not any(x.requires_grad for x in inputs if isinstance(x, Tensor)):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


class DefaultDeviceType:
    """The device type whose random state is kept where no argument lies on a device."""

    _default = "cuda"

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        """Set it."""
        DefaultDeviceType._default = device

    @staticmethod
    def get_device_type() -> str:
        """What it is."""
        return DefaultDeviceType._default


__all__ = [
    "CheckpointFunction", "DefaultDeviceType", "GraphExecGroup", "SAC_IGNORED_OPS", "check_backward_validity", "detach_variable",
    "CheckpointError", "CheckpointPolicy", "SelectiveCheckpointContext", "checkpoint", "checkpoint_sequential",
    "create_selective_checkpoint_contexts", "get_device_states", "noop_context_fn", "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop", "set_device_states",
]
