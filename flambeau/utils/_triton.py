"""Whether there is a Triton to generate code for (torch.utils._triton)."""

from __future__ import annotations

import importlib.util

from .. import cuda


def has_triton_package() -> bool:
    """Whether Triton can be imported."""
    return importlib.util.find_spec("triton") is not None


def has_triton() -> bool:
    """Whether Triton can be imported and there is a GPU that it compiles for."""
    return has_triton_package() and bool(cuda.is_available())


__all__ = ["has_triton", "has_triton_package"]
