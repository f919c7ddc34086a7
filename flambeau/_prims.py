"""`torch._prims.NAME`: the primitives by name."""

from __future__ import annotations

from typing import Any

from .ops.registry import PRIMITIVES

_RENAMED = {"convert_element_type": "convert", "div": "truediv"}


def __getattr__(name: str) -> Any:
    found = PRIMITIVES.get(_RENAMED.get(name, name))
    if found is None:
        raise AttributeError(f"torch._prims has no primitive {name!r} here; there are {', '.join(sorted(PRIMITIVES))}")
    return found
