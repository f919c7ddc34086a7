"""Where modules come from: Python's own imports, packages, or several of these, one after another."""

from __future__ import annotations

import abc
import importlib
import pickle
import sys
from types import ModuleType
from typing import Any

_MANGLED = "<torch_package_"


class ObjNotFoundError(Exception):
    """An importer cannot find an object by its name."""


class ObjMismatchError(Exception):
    """An importer finds another object by that name."""


def is_mangled(name: str) -> bool:
    """Whether a module's name is one that a package gave it: `<torch_package_0>.my.module`."""
    return name.startswith(_MANGLED)


def demangled(name: str) -> str:
    """The name inside of its package."""
    return name.partition(".")[2] if is_mangled(name) else name


def is_from_package(obj: Any) -> bool:
    """Whether a module was loaded from a package, or the class of an object."""
    return is_mangled(obj.__name__ if isinstance(obj, ModuleType) else type(obj).__module__)


class Importer(abc.ABC):
    """An environment to import modules from."""

    modules: dict[str, ModuleType]

    @abc.abstractmethod
    def import_module(self, module_name: str) -> ModuleType:
        """The module of this name."""

    def whichmodule(self, obj: Any, name: str) -> str:
        """The name of the module that an object is defined in."""
        return pickle.whichmodule(obj, name)  # type: ignore[attr-defined]

    def get_name(self, obj: Any, name: str | None = None) -> tuple[str, str]:
        """(module, name) under which this importer has the very object. ObjNotFoundError where it has none, ObjMismatchError another."""
        name = getattr(obj, "__qualname__", None) or obj.__name__ if name is None else name
        module_name = self.whichmodule(obj, name)
        home = demangled(module_name)
        try:
            found: Any = self.import_module(home)
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, KeyError, AttributeError) as error:
            raise ObjNotFoundError(f"{obj} was not found as {home}.{name}") from error
        if found is not obj:
            raise ObjMismatchError(f"{home}.{name} is {found!r}, not {obj!r}: one of them is from another importer; give PackageExporter "
                                   "an OrderedImporter with the one that has it first")
        return home, name


class _SysImporter(Importer):
    """Python's own imports."""

    def import_module(self, module_name: str) -> ModuleType:
        """The module of this name."""
        return importlib.import_module(module_name)

    @property
    def modules(self) -> dict[str, ModuleType]:  # type: ignore[override]
        """All that are loaded."""
        return sys.modules


sys_importer = _SysImporter()


class OrderedImporter(Importer):
    """Several importers, of which the first that has something answers."""

    def __init__(self, *args: Importer) -> None:
        self._importers = list(args)

    def import_module(self, module_name: str) -> ModuleType:
        """The module of this name, of the first that has one."""
        missing: ModuleNotFoundError | None = None
        for importer in self._importers:
            if not hasattr(importer, "import_module"):
                raise TypeError(f"{importer} is not an Importer: it has no import_module()")
            try:
                return importer.import_module(module_name)
            except ModuleNotFoundError as error:
                missing = error
        raise missing or ModuleNotFoundError(module_name)

    def get_name(self, obj: Any, name: str | None = None) -> tuple[str, str]:
        """What the first that has the object calls it."""
        for importer in self._importers:
            try:
                return importer.get_name(obj, name)
            except (ObjNotFoundError, ObjMismatchError):
                continue
        raise ObjNotFoundError(f"none of {len(self._importers)} importers has {obj}")

    def whichmodule(self, obj: Any, name: str) -> str:
        """The name of the module that an object is defined in, or __main__."""
        return next((found for i in self._importers if (found := i.whichmodule(obj, name)) != "__main__"), "__main__")
