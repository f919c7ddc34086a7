"""torch.nn.utils.stateless: torch.func.functional_call by its older name."""

from __future__ import annotations

from typing import Any

from ...func import functional_call as _functional_call
from ..modules.module import Module


def functional_call(module: Module, parameters_and_buffers: Any, args: Any = None, kwargs: dict[str, Any] | None = None, *,
                    tie_weights: bool = True, strict: bool = False) -> Any:
    """module(*args, **kwargs) with `parameters_and_buffers` (a mapping by dotted name, or several) in place of its own."""
    return _functional_call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)
