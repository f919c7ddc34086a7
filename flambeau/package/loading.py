"""torch.package.PackageImporter: code and data from a package, apart from the process's own modules."""

from __future__ import annotations

import builtins
import importlib
import io
import itertools
import linecache
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from ..serialization.api import Storages
from ..serialization.unpickler import TrustingUnpickler
from .globs import Directory, GlobGroup, GlobPattern
from .importers import Importer, demangled, is_mangled

IMPLICIT = ("torch", "flambeau")
"""Packages that no package holds: whoever loads one has them."""
_numbers = itertools.count()


class _Parts:
    """The storages of a package, as `Storages` asks for them."""

    swapped = False

    def __init__(self, importer: PackageImporter) -> None:
        self._importer, self.source = importer, importer.filename

    def check_storage(self, key: str, nbytes: int, folder: str = "") -> None:
        """Nothing: `storage` does."""

    def storage(self, key: str, nbytes: int, folder: str = "") -> np.ndarray:
        """The bytes of a storage, which may be written to. A package has one folder of them."""
        del folder
        found = np.frombuffer(bytearray(self._importer._read(f".data/{key}.storage")), np.uint8)
        if found.nbytes != nbytes:
            raise RuntimeError(f"{self.source}: storage {key} has {found.nbytes} bytes, of which {nbytes} are wanted")
        return found


class _Unpickler(TrustingUnpickler):
    def __init__(self, importer: PackageImporter, data: bytes, storages: Storages) -> None:
        super().__init__(io.BytesIO(data), lambda ref: storages.load((*ref[:2], str(ref[2]), *ref[3:])))   # PyTorch's keys are numbers
        self._importer = importer

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] in IMPLICIT:
            return super().find_class(module, name)
        found: Any = self._importer.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return found


class PackageImporter(Importer):
    """Loads what a PackageExporter wrote. Its modules are this importer's own: two packages' modules of one name are apart, and from the
    process's. `module_allowed(name)` says which modules of the process it may use. It runs the code in the file: only for trusted ones."""

    def __init__(self, file_or_buffer: Any, module_allowed: Callable[[str], bool] = lambda module_name: True) -> None:
        self.filename = os.fspath(file_or_buffer) if isinstance(file_or_buffer, (str, os.PathLike)) else "<binary>"
        self._archive = zipfile.ZipFile(file_or_buffer)
        names = self._archive.namelist()
        self._prefix = names[0].partition("/")[0] + "/"
        self._files = [name.removeprefix(self._prefix) for name in names]
        self._mangling = f"<torch_package_{next(_numbers)}>"
        self.extern_modules = self._read(".data/extern_modules").decode().split("\n")
        for name in self.extern_modules:
            if name and not module_allowed(name):
                raise ImportError(f"package '{self.filename}' needs the external module '{name}' but that module has been disallowed")
        self.modules: dict[str, ModuleType] = {}
        self._resources = {"torch_package_importer": self}

    # -- what is in it ----------------------------------------------------------------------------------------------
    def _read(self, path: str) -> bytes:
        try:
            return self._archive.read(self._prefix + path)
        except KeyError:
            raise FileNotFoundError(f"there is no file {path!r} in the package {self.filename!r}") from None

    def id(self) -> str:
        """The name that its modules begin with."""
        return self._mangling

    def python_version(self) -> str | None:
        """Of the Python that wrote it."""
        return self._read(".data/python_version").decode().strip() if ".data/python_version" in self._files else None

    def file_structure(self, *, include: GlobPattern = "**", exclude: GlobPattern = ()) -> Directory:
        """Its files as a tree; of all, or of those that the patterns mean."""
        glob, top = GlobGroup(include, exclude=exclude, separator="/"), Directory(self.filename, True)
        for name in self._files:
            if glob.matches(name):
                top._add(name)
        return top

    def _path(self, package: str, resource: str) -> str:
        return f"{demangled(package).replace('.', '/')}/{resource}" if package else resource

    def load_binary(self, package: str, resource: str) -> bytes:
        """The bytes of a file in a folder of the package."""
        return self._read(self._path(package, resource))

    def load_text(self, package: str, resource: str, encoding: str = "utf-8", errors: str = "strict") -> str:
        """A file as text."""
        return self.load_binary(package, resource).decode(encoding, errors)

    def load_pickle(self, package: str, resource: str, map_location: Any = None) -> Any:
        """The object of a pickle, whose modules are this package's."""
        parts: Any = _Parts(self)
        return _Unpickler(self, self.load_binary(package, resource), Storages(parts, map_location)).load()

    # -- modules ----------------------------------------------------------------------------------------------------
    def import_module(self, name: str, package: Any = None) -> ModuleType:
        """A module of the package, or one of the process that it may use. ModuleNotFoundError for others."""
        full = importlib.util.resolve_name(name, package) if name.startswith(".") else demangled(name)
        return self._load(full)

    def get_source(self, module_name: str) -> str:
        """A module's source."""
        found = self._source_of(demangled(module_name))
        if found is None:
            raise ModuleNotFoundError(f'No module named "{module_name}" in self-contained archive "{self.filename}"')
        return self._read(found).decode()

    def _source_of(self, name: str) -> str | None:
        path = name.replace(".", "/")
        return next((file for file in (f"{path}.py", f"{path}/__init__.py") if file in self._files), None)

    def _is_folder(self, name: str) -> bool:
        return any(file.startswith(name.replace(".", "/") + "/") for file in self._files)

    def _load(self, name: str) -> ModuleType:
        if name in self.modules:
            return self.modules[name]
        if name == "torch_package_importer":
            return self._add(ModuleType(name), vars(self) | {"torch_package_importer": self})
        root = name.partition(".")[0]
        source = self._source_of(name)
        if source is None and (root in IMPLICIT or root in self.extern_modules or name in self.extern_modules):
            return importlib.import_module(name)
        if source is None and not self._is_folder(name):
            raise ModuleNotFoundError(f'No module named "{name}" in self-contained archive "{self.filename}" and the module is also not in '
                                      f"the list of allowed external modules: {self.extern_modules}", name=name)
        parent, _, last = name.rpartition(".")
        if parent:
            self._load(parent)
            if name in self.modules:
                return self.modules[name]
        module = self._run(name, source)
        if parent:
            setattr(self._load(parent), last, module)
        return module

    def _add(self, module: ModuleType, values: dict[str, Any]) -> ModuleType:
        vars(module).update(values)
        self.modules[module.__name__] = module
        return module

    def _run(self, name: str, source: str | None) -> ModuleType:
        mangled, is_package = f"{self._mangling}.{name}", source is None or source.endswith("/__init__.py")
        module = ModuleType(mangled)
        module.__file__ = f"{self._mangling}.{source or name.replace('.', '/')}"
        module.__package__ = mangled if is_package else mangled.rpartition(".")[0]
        if is_package:
            module.__path__ = [self._mangling + "." + name.replace(".", "/")]
        vars(module).update(__loader__=self, __torch_package__=True, __builtins__={**vars(builtins), "__import__": self._import})
        self.modules[name] = module
        if source is not None:
            text = self._read(source).decode()
            linecache.cache[module.__file__] = (len(text), None, text.splitlines(True), module.__file__)
            try:
                exec(compile(text, module.__file__, "exec", dont_inherit=True), vars(module))
            except BaseException:
                self.modules.pop(name, None)
                raise
        return module

    def _import(self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> ModuleType:
        """What `import` does inside of the package's code."""
        del locals
        full = name
        if level:
            package = demangled(globals["__package__"]) if is_mangled(globals["__package__"]) else globals["__package__"]
            full = importlib.util.resolve_name("." * level + name, package)
        module = self._load(full)
        if not fromlist:
            return module if level else self._load(full.partition(".")[0])
        for attribute in fromlist:
            if attribute != "*" and not hasattr(module, attribute) and (self._source_of(f"{full}.{attribute}") or full not in self.modules):
                self._load(f"{full}.{attribute}")
        return module

    def get_resource_reader(self, fullname: str) -> Any:
        """How importlib.resources reads files beside a module."""
        return _Resources(self, demangled(fullname))


class _Resources:
    """A folder of a package."""

    def __init__(self, importer: PackageImporter, package: str) -> None:
        self._importer, self._package = importer, package

    def open_resource(self, resource: str) -> io.BytesIO:
        """A file's bytes."""
        return io.BytesIO(self._importer.load_binary(self._package, resource))

    def is_resource(self, name: str) -> bool:
        """Whether there is such a file."""
        return self._importer._path(self._package, name) in self._importer._files

    def contents(self) -> Iterator[str]:
        """The names of files and folders."""
        start = self._package.replace(".", "/") + "/"
        yield from sorted({name.removeprefix(start).partition("/")[0] for name in self._importer._files if name.startswith(start)})

    @contextmanager
    def resource_path(self, name: str) -> Iterator[str]:
        """FileNotFoundError: a package's files have no path."""
        raise FileNotFoundError(f"{name} is in the package {self._importer.filename}, not in a folder")
        yield ""
