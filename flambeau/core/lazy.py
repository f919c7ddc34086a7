"""Modules that take long to import and are seldom needed: the one place below the packages' own names where imports wait."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import types
from collections.abc import Callable
from typing import Any


class LazyModule(types.ModuleType):
    """A module of Flambeau's that is imported when a name of it is first asked for; tests/test_imports.py reads this as an import."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


class LazyFunctions:
    """The functions of a module, which is imported when one of them is first called: `LazyFunctions("scipy.linalg").lu(x)`."""

    def __init__(self, module: str) -> None:
        self._module = module

    @functools.cached_property
    def is_installed(self) -> bool:
        """Whether the module's package is there."""
        return importlib.util.find_spec(self._module.partition(".")[0]) is not None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                module = importlib.import_module(self._module)
            except ImportError as error:
                package = self._module.partition(".")[0]
                raise RuntimeError(f"{self._module}.{name} is needed here: pip install {package} ({error})") from None
            return getattr(module, name)(*args, **kwargs)

        call.__name__ = call.__qualname__ = name
        setattr(self, name, call)
        return call
