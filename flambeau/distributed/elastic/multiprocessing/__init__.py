"""What the processes of a launcher say of their errors."""

from __future__ import annotations

from ...._lazy import submodules

__getattr__ = submodules(__name__, "errors")
