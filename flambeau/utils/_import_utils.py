"""Whether optional libraries are installed."""

from __future__ import annotations

import importlib.util


def _check_module_exists(name: str) -> bool:
    """Whether a module could be imported; it is not."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):       # a parent is missing, or it is being imported
        return False


__all__: list[str] = []
