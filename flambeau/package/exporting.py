"""torch.package.PackageExporter: code, pickled objects and files in one archive, which PackageImporter reads."""

from __future__ import annotations

import ast
import importlib.util
import io
import pickle
import pickletools
import platform
import sys
import uuid
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import IO, Any, NamedTuple

from ..autograd.handles import HookDict, RemovableHandle
from ..ops.storages import UntypedStorage
from ..serialization.names import torch_name_of
from ..serialization.pickler import Pickler
from . import mock as _mock
from .globs import GlobGroup, GlobPattern
from .importers import Importer, OrderedImporter, demangled, sys_importer
from .loading import IMPLICIT, PackageImporter

_STDLIB = frozenset(sys.stdlib_module_names) | {"torch_package_importer"}


class EmptyMatchError(Exception):
    """Nothing matched patterns that were told not to be in vain."""


class PackagingError(Exception):
    """Modules that a package would need and for which nothing was said, or which are denied: all of them."""


class _Rule(NamedTuple):
    action: str
    glob: GlobGroup
    allow_empty: bool


class _PackagePickler(Pickler):
    """Pickles whose classes are called as the exporter's importer does."""

    def __init__(self, file: IO[bytes], importer: Importer, keys: dict) -> None:
        super().__init__(file)
        self._importer, self._keys = importer, keys

    def save_name(self, obj: Any) -> None:
        """Write a reference to a global, found by the importer."""
        if isinstance(obj, (type, FunctionType)) and torch_name_of(obj) is None:
            module, name = self._importer.get_name(obj)
            if "." in name:
                raise pickle.PicklingError(f"{module}.{name} is not at the top of its module, where packages find it")
            self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())
            self.memoize(obj)
        else:
            super().save_name(obj)

    dispatch = {**Pickler.dispatch,
                **dict.fromkeys([kind for kind, method in Pickler.dispatch.items() if method is Pickler.save_name], save_name)}


def _imported(source: str, module: str, is_package: bool) -> set[str]:
    """The modules that a source imports: of `from a import b` both a and a.b, which may be none."""
    package = module if is_package else module.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(item.name for item in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module or ""
            found.add(base)
            found.update(f"{base}.{item.name}?" for item in node.names if item.name != "*")
    return found


class PackageExporter:
    """Writes a package to a path or binary file: `with PackageExporter(path) as p: p.intern("my.**"); p.save_pickle("m", "m.pkl", model)`.

    Modules that the code needs go by the first pattern that fits: `intern` (into the package), `extern` (whoever loads it has them),
    `mock` (stand-ins that raise when used), `deny`. Python's own library, torch and flambeau are external. `importer`: where objects'
    modules are from, a PackageImporter for what was loaded from a package. `debug`: errors tell what needs the modules at fault.
    """

    def __init__(self, f: Any, importer: Importer | Sequence[Importer] = sys_importer, debug: bool = False) -> None:
        self._file, self._debug = f, debug
        self._archive = zipfile.ZipFile(f, "w")
        self._prefix = (Path(f).stem if isinstance(f, (str, Path)) else "archive") + "/"
        self.importer = importer if isinstance(importer, Importer) else OrderedImporter(*importer)
        self._rules: list[_Rule] = []
        self._used: set[int] = set()
        self._hooks: dict[str, HookDict] = {action: HookDict() for action in ("extern", "intern", "mock")}
        self._actions: dict[str, str] = {}
        self._needs: dict[str, set[str]] = {}
        self._written: set[str] = set()
        self._keys: dict[int, Any] = {}
        self._storages: dict[str, Any] = {}
        self._held: list[Any] = []     # so that storages' ids stay theirs
        self._problems: dict[str, str] = {}
        self._id = uuid.uuid4().hex

    # -- what is to become of modules --------------------------------------------------------------------------------
    def _rule(self, action: str, include: GlobPattern, exclude: GlobPattern, allow_empty: bool) -> None:
        self._rules.append(_Rule(action, GlobGroup(include, exclude=exclude), allow_empty))

    def intern(self, include: GlobPattern, *, exclude: GlobPattern = (), allow_empty: bool = True) -> None:
        """Modules that go into the package."""
        self._rule("intern", include, exclude, allow_empty)

    def extern(self, include: GlobPattern, *, exclude: GlobPattern = (), allow_empty: bool = True) -> None:
        """Modules that whoever loads the package has."""
        self._rule("extern", include, exclude, allow_empty)

    def mock(self, include: GlobPattern, *, exclude: GlobPattern = (), allow_empty: bool = True) -> None:
        """Modules in whose place there are stand-ins."""
        self._rule("mock", include, exclude, allow_empty)

    def deny(self, include: GlobPattern, *, exclude: GlobPattern = ()) -> None:
        """Modules that must not be needed."""
        self._rule("deny", include, exclude, True)

    def _action(self, module: str) -> str:
        if module.partition(".")[0] in _STDLIB or module.partition(".")[0] in IMPLICIT:
            return "extern"
        for number, rule in enumerate(self._rules):
            if rule.glob.matches(module):
                self._used.add(number)
                return rule.action
        return "none"

    # -- modules ------------------------------------------------------------------------------------------------------
    def add_dependency(self, module_name: str, dependencies: bool = True) -> None:
        """Say that a module is needed: what becomes of it, the first pattern that fits says."""
        if module_name in self._actions:
            return
        action = self._actions[module_name] = self._action(module_name)
        if action in self._hooks:
            for hook in list(self._hooks[action].values()):
                hook(self, module_name)
        if action == "intern":
            self.save_module(module_name, dependencies)
        elif action == "mock":
            stand_in = Path(_mock.__file__).read_text(encoding="utf-8")
            self._write_module(module_name, stand_in, False)
            for name in sorted(name for name in _imported(stand_in, module_name, False) if not name.endswith("?")):
                self._need(module_name, name)
        elif action in ("none", "deny"):
            self._problems[module_name] = {"none": "Module did not match against any action pattern. Extern, mock, or intern it.",
                                           "deny": "Module was denied by a pattern."}[action]

    def _need(self, by: str, module: str, maybe: bool = False) -> None:
        if maybe and not self._is_module(module):
            return
        self._needs.setdefault(by, set()).add(module)
        self.add_dependency(module)

    def _is_module(self, name: str) -> bool:
        if name in self._actions or isinstance(sys.modules.get(name), ModuleType):
            return True
        try:
            return self.importer is sys_importer and importlib.util.find_spec(name) is not None
        except (ImportError, ValueError, AttributeError):
            return False

    def save_module(self, module_name: str, dependencies: bool = True) -> None:
        """Put a module's source, which the importer finds, into the package."""
        if not isinstance(module_name, str):
            raise TypeError(f"save_module() expects a string input, did you perhaps mean to pass `__name__`? got {module_name!r}")
        module = self.importer.import_module(module_name)
        source = self._source(module, module_name)
        if source is None:
            raise PackagingError(f"the source of module {module_name} cannot be found; it may be a compiled extension: extern or mock it")
        self.save_source_string(module_name, source, hasattr(module, "__path__"), dependencies)

    @staticmethod
    def _source(module: ModuleType, name: str) -> str | None:
        loader: Any = getattr(module, "__loader__", None)
        if isinstance(loader, PackageImporter):
            return loader.get_source(demangled(name))
        file = getattr(module, "__file__", None)
        return Path(file).read_text(encoding="utf-8") if file is not None and file.endswith(".py") else None

    def save_source_file(self, module_name: str, file_or_directory: str, dependencies: bool = True) -> None:
        """Put a file as a module, or a folder of Python files as a package of modules, into the package."""
        path = Path(file_or_directory)
        if not path.is_dir():
            self.save_source_string(module_name, path.read_text(encoding="utf-8"), False, dependencies)
            return
        for file in sorted(path.rglob("*.py")):
            parts = list(file.relative_to(path).with_suffix("").parts)
            is_package = parts[-1] == "__init__"
            name = ".".join([module_name, *(parts[:-1] if is_package else parts)])
            self.save_source_string(name, file.read_text(encoding="utf-8"), is_package, dependencies)

    def save_source_string(self, module_name: str, src: str, is_package: bool = False, dependencies: bool = True) -> None:
        """Put a source as a module into the package, and what it imports by its patterns."""
        self._actions[module_name] = "intern"
        self._problems.pop(module_name, None)
        self._write_module(module_name, src, is_package)
        if dependencies:
            for name in sorted(_imported(src, module_name, is_package)):
                if name.rstrip("?"):
                    self._need(module_name, name.rstrip("?"), name.endswith("?"))

    def _write_module(self, name: str, source: str, is_package: bool) -> None:
        self._write(name.replace(".", "/") + ("/__init__.py" if is_package else ".py"), source.encode())

    # -- data ---------------------------------------------------------------------------------------------------------
    def _write(self, path: str, data: bytes) -> None:
        if path in self._written:
            return
        self._written.add(path)
        self._archive.writestr(self._prefix + path, data)

    def save_binary(self, package: str, resource: str, binary: bytes) -> None:
        """Put bytes as a file into a folder of the package."""
        self._write(f"{package.replace('.', '/')}/{resource}" if package else resource, binary)

    def save_text(self, package: str, resource: str, text: str) -> None:
        """Put text as a file into a folder of the package."""
        self.save_binary(package, resource, text.encode("utf-8"))

    def save_pickle(self, package: str, resource: str, obj: Any, dependencies: bool = True, pickle_protocol: int = 3) -> None:
        """Put an object's pickle into a folder of the package; tensors' memory beside it, once for all of them. The modules of its classes
        go by the patterns. Pickles are of protocol 2, which readers of `pickle_protocol` 2 and above read."""
        if pickle_protocol < 2:
            raise NotImplementedError(f"save_pickle(pickle_protocol={pickle_protocol}) is not implemented; take 2 or more")
        out = io.BytesIO()
        pickler = _PackagePickler(out, self.importer, self._keys)
        pickler.dump(obj)
        for key, storage in pickler.storages.items():
            self._held.append(storage)
            if key not in self._storages:
                self._storages[key] = storage
                self._write(f".data/{key}.storage", bytes(memoryview(UntypedStorage(storage).cpu()._storage.buffer)))
        name = f"<{package}.{resource}>"
        if dependencies:
            for module in sorted({str(arg).partition(" ")[0] for op, arg, _ in pickletools.genops(out.getvalue()) if op.name == "GLOBAL"}):
                self._need(name, module)
        self.save_binary(package, resource, out.getvalue())

    # -- what has become of it ----------------------------------------------------------------------------------------
    def _by_action(self, action: str) -> list[str]:
        return sorted(name for name, done in self._actions.items() if done == action)

    def externed_modules(self) -> list[str]:
        """Modules that are needed and not in it."""
        return self._by_action("extern")

    def interned_modules(self) -> list[str]:
        """Modules that are in it."""
        return self._by_action("intern")

    def mocked_modules(self) -> list[str]:
        """Modules that have stand-ins."""
        return self._by_action("mock")

    def denied_modules(self) -> list[str]:
        """Modules that are needed and denied."""
        return self._by_action("deny")

    def get_unique_id(self) -> str:
        """What tells this package from others."""
        return self._id

    def get_rdeps(self, module_name: str) -> list[str]:
        """What needs a module."""
        if module_name not in self._actions:
            return []
        return sorted(by for by, needs in self._needs.items() if module_name in needs)

    def all_paths(self, src: str, dst: str) -> str:
        """Who needs whom, from one module to another, as a graph in DOT."""
        edges = self._edges()
        return self._dot({(a, b) for a, b in edges if a in self._reach(src, edges) and dst in self._reach(b, edges)})

    def dependency_graph_string(self) -> str:
        """Who needs whom, as a graph in DOT."""
        return self._dot(self._edges())

    def _edges(self) -> set[tuple[str, str]]:
        return {(a, b) for a, needs in self._needs.items() for b in needs}

    @staticmethod
    def _reach(start: str, edges: Iterable[tuple[str, str]]) -> set[str]:
        found, left = {start}, [start]
        while left:
            at = left.pop()
            new = {b for a, b in edges if a == at} - found
            found |= new
            left += new
        return found

    @staticmethod
    def _dot(edges: Iterable[tuple[str, str]]) -> str:
        lines = "\n".join(f'"{a}" -> "{b}";' for a, b in sorted(edges))
        return f"digraph G {{\nrankdir = LR;\nnode [shape=box];\n{lines}\n}}\n"

    def register_extern_hook(self, hook: Callable[[PackageExporter, str], None]) -> RemovableHandle:
        """`hook(exporter, module)` for each module that is external."""
        return RemovableHandle(self._hooks["extern"], hook)

    def register_intern_hook(self, hook: Callable[[PackageExporter, str], None]) -> RemovableHandle:
        """`hook(exporter, module)` for each module that goes into it."""
        return RemovableHandle(self._hooks["intern"], hook)

    def register_mock_hook(self, hook: Callable[[PackageExporter, str], None]) -> RemovableHandle:
        """`hook(exporter, module)` for each module that gets a stand-in."""
        return RemovableHandle(self._hooks["mock"], hook)

    # -- the end ------------------------------------------------------------------------------------------------------
    def close(self) -> None:
        """Write what is left. PackagingError for modules that nothing was said of, EmptyMatchError for patterns that were in vain."""
        self._check()
        # what is in no list here is the loader's, or Python's own
        self._write(".data/extern_modules", "\n".join(self.externed_modules()).encode())
        self._write(".data/python_version", platform.python_version().encode())
        self._write(".data/version", b"6\n")
        self._write("byteorder", sys.byteorder.encode())
        self._write(".data/serialization_id", self._id.encode())
        self._archive.close()

    def _check(self) -> None:
        for number, rule in enumerate(self._rules):
            if not rule.allow_empty and number not in self._used:
                raise EmptyMatchError(f"Exporter did not match any modules to {rule.glob}, which was marked as allow_empty=False")
        if not self._problems:
            return
        lines = []
        for why in dict.fromkeys(self._problems.values()):
            lines.append(f"* {why}")
            lines += [f"    {name}" + (f" (needed by {', '.join(self.get_rdeps(name))})" if self._debug else "")
                      for name, told in sorted(self._problems.items()) if told == why]
        more = "" if self._debug else "\n\nSet debug=True when invoking PackageExporter to see what needs these modules."
        raise PackagingError("\n" + "\n".join(lines) + more)

    def __enter__(self) -> PackageExporter:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.close()
        else:
            self._archive.close()
