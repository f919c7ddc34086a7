"""Submodules that load when they are first named, so that `torch.utils.data` needs no import of its own."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def submodules(package: str, *names: str) -> Callable[[str], Any]:
    """A `__getattr__` for `package` that imports each of its submodules `names` on first use, and knows no other name."""

    def load(name: str) -> Any:
        if name in names:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load
