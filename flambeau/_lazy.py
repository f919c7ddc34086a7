"""Submodules that load when they are first named, so that `torch.utils.data` needs no import of its own; `dir` shows them before."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

from . import _homes


def submodules(package: str, *names: str, otherwise: Callable[[str], Any] | None = None) -> Callable[[str], Any]:
    """A `__getattr__` for `package` that imports each of its submodules `names`, and those of `_homes`, on first use. Other names
    are those of `otherwise`, or none. The package gets a `__dir__` that has them too."""

    def load(name: str) -> Any:
        if name in names or _homes.knows(f"{package}.{name}"):
            return importlib.import_module(f"{package}.{name}")
        if otherwise is not None:
            return otherwise(name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    show(package, names)
    return load


def show(package: str, names: Iterable[str] = ()) -> None:
    """Let `dir` of a package, and so the TAB key, have names and submodules that load on first use."""
    room = vars(sys.modules[package])
    room["__dir__"] = lambda: sorted({*room, *names, *_homes.inside(package)})


class NoSuchName(AttributeError):
    """Of a package without a name: says which is like it when it is shown, not when it is raised, since `hasattr` asks often. For the
    largest namespace alone: what has fewer than 750 names, Python asks by itself."""

    def __init__(self, package: str, name: str) -> None:
        super().__init__(f"module {package.partition('.')[0]!r} has no attribute {name!r}", name=name)
        self.package = package

    def __str__(self) -> str:
        found = importlib.import_module("difflib").get_close_matches(self.name, dir(sys.modules[self.package]), 1, 0.75)
        return self.args[0] + (f"; did you mean {found[0]!r}?" if found else "")

    def __reduce__(self) -> tuple[Any, ...]:
        return AttributeError, (str(self),)


NoSuchName.__module__, NoSuchName.__qualname__, NoSuchName.__name__ = "builtins", *["AttributeError"] * 2
