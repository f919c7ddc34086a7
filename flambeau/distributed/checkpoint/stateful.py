"""Stateful: what has `state_dict` and `load_state_dict`, and so may stand in a state dict itself."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Stateful(Protocol):
    """A module, an optimizer, or an object of the user's."""

    def state_dict(self) -> dict[str, Any]:
        """What is to be saved."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what was saved."""


__all__ = ["Stateful"]
