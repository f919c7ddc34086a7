"""Exchange of tensors without copying, by DLPack capsules."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from ..ops.creation import from_dlpack


def to_dlpack(tensor: Tensor) -> Any:
    """A capsule over the tensor's memory, to be consumed once. `from_dlpack(tensor)` needs none."""
    return tensor.detach().__dlpack__()


__all__ = ["from_dlpack", "to_dlpack"]
