"""torch._custom_ops: the old home of custom operators; see `torch.library`."""

from __future__ import annotations

from .library import custom_op, get_ctx

__all__ = ["custom_op", "get_ctx"]
