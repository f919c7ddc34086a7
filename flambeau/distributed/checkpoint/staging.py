"""Copies of state dicts, which are saved while training goes on."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Protocol, runtime_checkable

from ...core.tensor import Tensor
from ..tensor.dtensor import DTensor, dtensor
from .stateful import Stateful


def asked(state_dict: dict) -> dict:
    """The state dict with what has a state dict itself asked for it."""
    return {key: value.state_dict() if isinstance(value, Stateful) else value for key, value in state_dict.items()}


def copied(value: Any) -> Any:
    """`value` with its tensors copied, in dictionaries and lists."""
    if isinstance(value, DTensor):
        return dtensor(value._local_tensor.detach().clone(), value.device_mesh, value.placements, tuple(value.shape))
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    return type(value)(copied(inner) for inner in value) if type(value) in (list, tuple) else value


@runtime_checkable
class AsyncStager(Protocol):
    """Copies a state dict, at once or in the background."""

    def stage(self, state_dict: dict) -> dict | Future:
        """The copy, or a future of it."""

    def synchronize_staging(self) -> None:
        """Wait until it is made."""

    def close(self) -> None:
        """No more copies."""


class BlockingAsyncStager(AsyncStager):
    """Copies at once."""

    def __init__(self, cache_staged_state_dict: bool = False, type_check: bool = False) -> None:
        del cache_staged_state_dict, type_check     # memory that is given back is there for the next copy

    def stage(self, state_dict: dict) -> dict:
        """The copy."""
        return copied(asked(state_dict))

    def synchronize_staging(self) -> None:
        """It is made."""

    def close(self) -> None:
        """Nothing is kept."""


__all__ = ["AsyncStager", "BlockingAsyncStager"]
