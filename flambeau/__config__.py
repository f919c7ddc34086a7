"""torch.__config__: what the library was built with."""

from __future__ import annotations

import platform

from . import _C, version


def show() -> str:
    """What it is built with, a line each."""
    return "\n".join(["PyTorch built with:", f"  - Flambeau, standing for PyTorch {version.__version__}",
                      f"  - Python {platform.python_version()}, {platform.machine()}", parallel_info()]) + "\n"


def parallel_info() -> str:
    """How many threads work on one operator."""
    return f"  - threads of one operator: {_C.get_num_threads()}"


__all__ = ["parallel_info", "show"]
