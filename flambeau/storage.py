"""torch.storage: the memory behind tensors."""

from __future__ import annotations

from .ops.facts import TypedStorage, UntypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]
