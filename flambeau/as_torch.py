"""`import flambeau.as_torch` makes `import torch` mean Flambeau, for code that was written for PyTorch.

The names are aliases, not copies: after it `torch.nn is flambeau.nn`, so an object made by either name is the same. It
must come before the first `import torch`, and holds for the rest of the process.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from . import _torch_c, torch_version, version
from .core.homes import own_name

ROOM = __package__ or "flambeau"

TORCH_VERSION = version.__version__
"""What `torch.__version__` says: the PyTorch release whose behaviour is followed. Libraries choose code paths by it."""

PACKAGES = {"functorch": f"{ROOM}._functorch.face", "torch": ROOM}
"""By torch's packages, what answers them."""


def flambeau_name(torch_name: str) -> str:
    """The Flambeau module that stands for `torch_name`: `"torch._inductor.config"` -> `"flambeau._inductor.config"`."""
    package, *rest = torch_name.split(".")
    return ".".join([PACKAGES[package], *rest])


# -- what classes say of their home ----------------------------------------------------------------------------------------
_HOMES = {"core.tensor": "", "core.device": "", "core.dtypes": "", "core.size": "", "core.memory_format": "", "core.symbolic": "",
          "ops.generators": "_C", "ops.linalg.decompositions": "_C",
          "ops.storages": "storage", "ops.return_types": "return_types", "nn.packing": "nn.utils.rnn"}
"""Where torch has the classes of rooms that it hasn't; the rooms that are no torch's keep their names."""
_INSIDE = frozenset(("core", "ops", "dynamo", "aot", "inductor", "backends", "sparse", "multiprocessing", "as_torch"))


def torch_home(module: str) -> str | None:
    """What a public class of the module `flambeau.X` says of where it comes from; None if its own name stays."""
    row = module.removeprefix(f"{ROOM}.")
    home = _HOMES.get(row)
    if home is None:
        home = None if row.partition(".")[0] in _INSIDE or row == ROOM else row
    return home if home is None else f"torch.{home}".rstrip(".")


def name_classes(module: ModuleType) -> None:
    """Let a module that torch has too, and the classes that a module defines, say torch's name: libraries look at it, and pickles refer to
    classes by it."""
    name = own_name(module.__name__)
    home = torch_home(name)
    if home is None:
        return
    mirrored = home.removeprefix("torch") == name.removeprefix(ROOM)
    if mirrored:
        sys.modules.setdefault(home, module)
        module.__name__ = home      # `__spec__` and `__package__` stay
        if hasattr(module, "__path__") and name != ROOM:
            reach_children(module, name)
    public = None if mirrored else sys.modules.get(home)
    for value in list(vars(module).values()):
        if isinstance(value, type) and value.__module__ == name and (public is None or getattr(public, value.__name__, None) is value):
            with contextlib.suppress(TypeError):  # native ones say what they say
                value.__module__ = home
    for kind, place in vars(module).get("_TORCH_HOMES", {}).items():
        kind.__module__ = f"{home}.{place}".rstrip(".")


def reach_children(package: ModuleType, name: str) -> None:
    """Let a package's modules be its attributes without an import: most of PyTorch's are loaded with it."""
    otherwise = vars(package).get("__getattr__")

    def lookup(child: str) -> Any:
        try:
            if otherwise is not None:
                return otherwise(child)
        except AttributeError:
            if child.startswith("__"):
                raise
        if not child.startswith("__") and importlib.util.find_spec(f"{name}.{child}") is not None:
            return importlib.import_module(f"{name}.{child}")
        raise AttributeError(f"module {package.__name__!r} has no attribute {child!r}")

    package.__getattr__ = lookup    # type: ignore[method-assign]


class _Namer(MetaPathFinder):
    """Sees to it that what is loaded from here on is named so: it stands before the other finders and asks them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{ROOM}.") or torch_home(fullname) is None:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                self._extend(spec.loader)
                return spec
        return None

    def _extend(self, loader: Any) -> None:
        execute = getattr(loader, "exec_module", None)
        if execute is None or isinstance(loader, type):
            return

        def exec_module(module: ModuleType) -> None:
            execute(module)
            name_classes(module)

        loader.exec_module = exec_module


class _AliasLoader(Loader):
    """Loads a module by importing the one that it is an alias of."""

    def __init__(self, real_name: str) -> None:
        self.real_name = real_name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.real_name)
        self.real_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.real_spec  # the import system has just overwritten it with the alias's
        _know_children(self.real_name)


def _know_children(real_name: str) -> None:
    """What is loaded below a module is loaded under torch's name as well. Importing it there would set it as an attribute of its
    parent, in the place of a function of the same name (torch.nn.utils.weight_norm)."""
    package = next(package for package, room in PACKAGES.items() if f"{real_name}.".startswith(f"{room}."))
    room = PACKAGES[package]
    for name in [name for name in sys.modules if name.startswith(f"{real_name}.")]:
        sys.modules.setdefault(package + name.removeprefix(room), sys.modules[name])


class _TorchDistribution(Distribution):
    """The package metadata that `importlib.metadata.version("torch")` reads."""

    def read_text(self, filename: str) -> str | None:
        texts = {
            "METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {TORCH_VERSION}\n",
            "top_level.txt": "torch\n",
        }
        return texts.get(filename)

    def locate_file(self, path: Any) -> Path:
        return Path(__file__).parent / path


class TorchFinder(DistributionFinder):
    """Answers every import of `torch`, `functorch` and what is in them with Flambeau's modules; says nothing about other names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        real_name = flambeau_name(fullname)
        try:
            real = importlib.util.find_spec(real_name)
        except ModuleNotFoundError:  # a parent of it is a plain module, or missing
            real = None
        if real is None:
            return None  # the import system then raises ModuleNotFoundError naming `fullname`
        is_package = real.submodule_search_locations is not None
        return ModuleSpec(fullname, _AliasLoader(real_name), origin=real.origin, is_package=is_package)

    def find_distributions(self, context: DistributionFinder.Context | None = None) -> Iterable[Distribution]:
        return [_TorchDistribution()] if context is None or context.name in (None, "torch") else []


def install() -> None:
    """Make `torch` mean Flambeau from here on. Again is harmless.

    Raises RuntimeError when PyTorch itself has been imported already: two libraries would then share one name.
    """
    already = sys.modules.get("torch")
    package = importlib.import_module(ROOM)
    if already is not None and already is not package:
        raise RuntimeError(
            f"import flambeau.as_torch before the first `import torch`: torch {getattr(already, '__version__', '')} "
            f"is loaded already, from {getattr(already, '__file__', 'an unknown place')}"
        )
    if not any(isinstance(finder, TorchFinder) for finder in sys.meta_path):
        sys.meta_path[:0] = [TorchFinder(), _Namer()]
    package.__name__ = "torch"  # libraries compare; `__package__` and `__spec__` stay
    package.__version__ = torch_version.TorchVersion(TORCH_VERSION)  # type: ignore[attr-defined]
    for name, value in _torch_c.EXPORTED.items():  # torch._C is flambeau._C; libraries look there for names of PyTorch's module
        if not hasattr(package._C, name):
            setattr(package._C, name, value)
    importlib.import_module("torch")
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{ROOM}."):
            name_classes(module)
    package._C._nn = importlib.import_module(f"{ROOM}._nn_c")


install()
