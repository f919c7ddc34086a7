"""torch.storage: the memory behind tensors."""

from __future__ import annotations

import io
from typing import Any

from .ops.storages import TypedStorage, UntypedStorage
from .serialization.api import load

__all__ = ["TypedStorage", "UntypedStorage"]


def _load_from_bytes(b: bytes) -> Any:
    """What PyTorch's pickles of storages call: the file in memory that they hold."""
    return load(io.BytesIO(b), weights_only=False)
