"""`torch._refs.NAME`: the operators' definitions over primitives, which here are the operators themselves."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from ..core import size
from ..core.tensor import Tensor
from ..ops.registry import OPERATORS


def _drawn(name: str, a: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """What an operator that works in place makes of a copy."""
    return OPERATORS[name](a.clone(), *args, **kwargs)


def __getattr__(name: str) -> Any:
    if name in OPERATORS:
        return OPERATORS[name]
    if name in ("nn", "special", "linalg", "fft", "_conversions"):
        return importlib.import_module("flambeau.fft" if name == "fft" else f"{__name__}.{name}")
    if f"{name}_" in OPERATORS:
        return functools.partial(_drawn, f"{name}_")
    if name == "broadcast_shapes" or hasattr(Tensor, name):
        return getattr(Tensor, name, size.broadcast_shapes)
    raise AttributeError(f"torch._refs has no operator {name!r}")
