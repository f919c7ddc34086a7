"""Functions made of the program's, which are captured like those: of NumPy arrays as of tensors, and regions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
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


def nested_compile_region(fn: Any = None, *, options: Any = None, max_reuse_entries: int = 8, reuse_hash_fn: Any = None) -> Any:
    """`fn` (or a decorator for it), whose calls within a graph are compiled once for all that are equal, and called. Outside of compiled
    functions nothing changes. Each call is captured, so guards are its own and no entries are kept."""
    return _region(fn) if fn is not None else _region


def _region(fn: Callable[..., Any]) -> Callable[..., Any]:
    if not isinstance(fn, FunctionType):
        return _region(lambda *args, **kwargs: fn(*args, **kwargs))
    fn._flambeau_region = True  # type: ignore[attr-defined]
    return fn
