"""Names of classes and functions in a program's text, and whose they are."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from ...nn.modules.module import Module

_ROOT = __name__.partition(".")[0]      # which as_torch may change later


def is_library(obj: Any) -> bool:
    """Whether a class or function is one of this package, under whichever name it is imported."""
    return str(getattr(obj, "__module__", "")).partition(".")[0] in (Module.__module__.partition(".")[0], _ROOT)


def unique_name(home: str, short: str, taken: Container[str]) -> str:
    """`__torch__.HOME.SHORT`, which nothing that is taken has."""
    parts = [part if part.isidentifier() else "_" for part in home.split(".") if part != "__main__"]
    if parts and parts[0] == _ROOT:
        parts[0] = "torch"
    short = short if short.isidentifier() else "_"
    name, count = ".".join(["__torch__", *parts, short]), 0
    while name in taken:
        name, count = ".".join(["__torch__", *parts, f"___torch_mangle_{count}", short]), count + 1
    return name
