"""torch.nn.utils.stateless: torch.func.functional_call by its older name."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from ...func import functional_call as _functional_call
from ...func.functional_call import _replaced
from ..modules.module import Module


def functional_call(module: Module, parameters_and_buffers: Any, args: Any = None, kwargs: dict[str, Any] | None = None, *,
                    tie_weights: bool = True, strict: bool = False) -> Any:
    """module(*args, **kwargs) with `parameters_and_buffers` (a mapping by dotted name, or several) in place of its own."""
    warnings.warn("`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be removed in a future version of "
                  "PyTorch. Please use `torch.func.functional_call` instead which is a drop-in replacement.", FutureWarning, stacklevel=2)
    return _functional_call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)


def _reparametrize_module(module: Module, parameters_and_buffers: Mapping[str, Any], tie_weights: bool = False, strict: bool = False,
                          stack_weights: bool = False) -> AbstractContextManager[None]:
    """In the block the module has these tensors in the place of its own. `stack_weights` changes nothing: all are replaced at once."""
    del stack_weights
    return _replaced(module, parameters_and_buffers, tie_weights, strict)
