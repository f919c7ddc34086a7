"""Whose a module is: under `flambeau.as_torch` the library's classes say that they come from torch."""

from __future__ import annotations

import sys

PACKAGE = __name__.partition(".")[0]


def is_own(module: str | None) -> bool:
    """Whether a module of this name is the library's."""
    root = (module or "").partition(".")[0]
    return root == PACKAGE or (root == "torch" and sys.modules.get(root) is sys.modules[PACKAGE])


def own_name(module: str) -> str:
    """The library's own name of one of its modules."""
    _, dot, rest = module.partition(".")
    return f"{PACKAGE}{dot}{rest}" if is_own(module) else module
