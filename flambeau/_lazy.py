"""Submodules that load when they are first named, so that `torch.utils.data` needs no import of its own."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from . import _homes


def submodules(package: str, *names: str, otherwise: Callable[[str], Any] | None = None) -> Callable[[str], Any]:
    """A `__getattr__` for `package` that imports each of its submodules `names`, and those of `_homes`, on first use. Other names
    are those of `otherwise`, or none."""

    def load(name: str) -> Any:
        if name in names or _homes.knows(f"{package}.{name}"):
            return importlib.import_module(f"{package}.{name}")
        if otherwise is not None:
            return otherwise(name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load
