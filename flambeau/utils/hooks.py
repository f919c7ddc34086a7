"""Handles of hooks (torch.utils.hooks)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ..autograd.graph import RemovableHandle, edge_of


def unserializable_hook(f: Callable) -> Callable:
    """A decorator: no warning that a tensor is saved without this hook."""
    f.__torch_unserializable__ = True  # type: ignore[attr-defined]
    return f


def warn_if_has_hooks(tensor: Any) -> None:
    """Warn that the tensor's hooks are not saved with it."""
    edge = edge_of(tensor)
    calls = {} if edge is None else edge.node.pre_hooks or {}
    for hook in [call.__wrapped__ for call in calls.values() if getattr(call, "_output_nr", None) == edge.nr]:  # type: ignore[union-attr]
        if not hasattr(hook, "__torch_unserializable__"):
            warnings.warn(f"backward hook {hook!r} on tensor will not be serialized.  If this is expected, you can decorate the function "
                          "with @torch.utils.hooks.unserializable_hook to suppress this warning", stacklevel=2)


__all__ = ["RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]
