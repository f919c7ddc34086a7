"""torch._custom_ops: the old home of custom operators; see `torch.library`."""

from __future__ import annotations

from ._absent import absent
from .library import custom_op

get_ctx = absent(
    "torch._custom_ops.get_ctx", "results whose shape depends on data cannot be traced; keep such an operator out of compiled code"
)

__all__ = ["custom_op", "get_ctx"]
