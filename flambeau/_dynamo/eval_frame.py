"""Where libraries import `OptimizedModule` from."""

from __future__ import annotations

from ..dynamo import OptimizedModule

__all__ = ["OptimizedModule"]
