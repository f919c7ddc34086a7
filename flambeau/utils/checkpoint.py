"""Activation checkpointing (torch.utils.checkpoint)."""

from __future__ import annotations

import functools
from typing import Any

from .. import _C
from ..autograd import checkpoint as _home
from ..autograd.checkpoint import CheckpointError, noop_context_fn, set_checkpoint_debug_enabled, set_checkpoint_early_stop
from ..autograd.selective import CheckpointPolicy, SelectiveCheckpointContext, create_selective_checkpoint_contexts

# forward and recomputation have to run the same way, so neither is captured; inside of a graph checkpoint is seen through
_checkpoint = _C.undisturbed(_home.checkpoint)
_checkpoint_sequential = _C.undisturbed(_home.checkpoint_sequential)


@functools.wraps(_home.checkpoint)
def checkpoint(*args: Any, **kwargs: Any) -> Any:
    return _checkpoint(*args, **kwargs)


@functools.wraps(_home.checkpoint_sequential)
def checkpoint_sequential(*args: Any, **kwargs: Any) -> Any:
    return _checkpoint_sequential(*args, **kwargs)


__all__ = [
    "CheckpointError", "CheckpointPolicy", "SelectiveCheckpointContext", "checkpoint", "checkpoint_sequential",
    "create_selective_checkpoint_contexts", "noop_context_fn", "set_checkpoint_debug_enabled", "set_checkpoint_early_stop",
]
