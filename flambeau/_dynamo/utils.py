"""torch._dynamo.utils: the functions that libraries ask for."""

from __future__ import annotations

from typing import Any

from ..core.device import device


def is_compile_supported(device_type: Any) -> bool:
    """Whether torch.compile serves a device type."""
    return device(device_type).type in ("cpu", "cuda")
