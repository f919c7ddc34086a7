"""`torch._refs.NAME`: the operators' definitions over primitives, which here are the operators themselves."""

from __future__ import annotations

import importlib
from typing import Any

from ..ops.registry import OPERATORS


def __getattr__(name: str) -> Any:
    if name in OPERATORS:
        return OPERATORS[name]
    if name in ("nn", "special", "linalg", "fft"):
        return importlib.import_module(f"{__name__}.nn" if name == "nn" else f"flambeau.{name}")
    raise AttributeError(f"torch._refs has no operator {name!r}")
