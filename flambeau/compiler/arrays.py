"""Functions of NumPy arrays as functions of tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..dynamo.api import array_of
from ..ops.creation import as_tensor


def _tensor(value: Any) -> Any:
    return as_tensor(value) if isinstance(value, (np.ndarray, np.generic)) else value


def wrap_numpy(fn: Callable) -> Callable:
    """A function of NumPy arrays as one of tensors: `torch.compile(wrap_numpy(fn))` computes it as a graph of tensors, with gradients.
    Without torch.compile arrays share the tensors' memory."""
    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        out = fn(*[array_of(a) for a in args], **{name: array_of(a) for name, a in kwargs.items()})
        if isinstance(out, (tuple, list)):
            return type(out)([_tensor(o) for o in out])
        return _tensor(out)

    return wrapped


__all__ = ["wrap_numpy"]
