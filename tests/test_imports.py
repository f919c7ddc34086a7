"""The house rule on imports: downward only, no cycles, at the top of the file."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "flambeau"

# Lowest first; what is not listed (nn, optim, utils, the public modules) lies on top.
FLOORS = ("_C", "core", "backends", "ops", "autograd", "fx", "func", "aot", "inductor", "dynamo")
TOP = len(FLOORS)
NARROWER = {"core": {"_C", "core"}, "ops": {"_C", "core", "backends", "ops"}, "fx": {"core", "fx"},
            "sparse": {"core", "ops", "sparse", "_absent"}}
# The compiler's own rooms, and what of the compiler they may import: no device in loops, no device in another.
COMPILER = {"loop": {"loop"}, "call": {"loop"}, "library": {"loop", "call", "library"}, "cpu": {"loop", "call", "library", "cpu"},
            "gpu": {"loop", "call", "library", "gpu"}}

# Imported where they are used, because Flambeau works without them or because they are chosen at run time.
OPTIONAL = {"cupy", "triton", "nvidia", "matplotlib", "mpi4py", "PIL", "onnx", "onnxruntime", "onnxscript"}


class Import(NamedTuple):
    importer: str
    imported: str
    line: int
    inside_function: bool
    waits: bool = False

    def __str__(self) -> str:
        return f"{self.importer.replace('.', '/')}.py:{self.line} imports {self.imported}"


@cache
def modules() -> dict[str, Path]:
    found = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def _targets(node: ast.Import | ast.ImportFrom, importer: str, is_package: bool) -> Iterator[str]:
    """The modules that an import statement names, absolute."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    base = importer.split(".")
    if node.level:
        base = base[: len(base) - node.level + is_package]
        prefix = ".".join([*base, *(node.module.split(".") if node.module else [])])
    else:
        prefix = node.module or ""
    for alias in node.names:
        full = f"{prefix}.{alias.name}"
        yield full if full in modules() or full == f"{PACKAGE}._C" else prefix


class Later(ast.Import):
    """One that waits until the module is used."""


def _lazily(node: ast.AST) -> Later | None:
    """What `LazyModule("flambeau.room.module")` imports, or each of several in a comprehension over their names."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "LazyModule"):
        return None
    name = "".join(part.value if isinstance(part, ast.Constant) else "*" for part in getattr(node.args[0], "values", node.args))
    found = Later([ast.alias(module) for module in modules() if fnmatch(module, name)])
    assert found.names, f"LazyModule({name!r}) is no module of this package"
    found.lineno = node.lineno
    return found


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _walk(node: ast.AST, inside: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child, inside
        elif lazily := _lazily(child):
            yield lazily, True
        elif not _is_type_checking(child):
            yield from _walk(child, inside or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)))


@cache
def imports() -> list[Import]:
    found = []
    for name, path in modules().items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node, inside in _walk(tree, False):
            targets = _targets(node, name, path.name == "__init__.py")
            found += [Import(name, target, node.lineno, inside, isinstance(node, Later)) for target in targets]
    return found


def internal() -> list[Import]:
    return [i for i in imports() if i.imported.split(".")[0] == PACKAGE]


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def floor(module: str) -> int:
    name = room(module)
    return FLOORS.index(name) if name in FLOORS else TOP


def test_there_is_something_to_check() -> None:
    assert len(modules()) > 20
    assert len(internal()) > 50


def test_imports_go_downward() -> None:
    upward = [i for i in internal() if floor(i.imported) > floor(i.importer)]
    for name, allowed in NARROWER.items():
        upward += [i for i in internal() if room(i.importer) == name and room(i.imported) not in allowed]
    assert not upward, "imports that go up:\n" + "\n".join(sorted({str(i) for i in upward}))


def test_the_rooms_of_the_compiler() -> None:
    def inside(module: str) -> str:
        return module.removeprefix(f"{PACKAGE}.inductor.").split(".")[0]

    within = [i for i in internal() if room(i.importer) == room(i.imported) == "inductor"]
    assert len(within) > 50
    wrong = [i for i in within if inside(i.imported) not in COMPILER.get(inside(i.importer), {inside(i.imported)})]
    assert not wrong, "imports between the compiler's rooms:\n" + "\n".join(sorted(map(str, wrong)))


def test_no_import_cycles() -> None:
    """Modules can be put in an order in which each imports only earlier ones."""
    needs: dict[str, set[str]] = {name: set() for name in modules()}
    for i in internal():
        if i.imported in needs and i.imported != i.importer and not i.inside_function:
            needs[i.importer].add(i.imported)
    while ready := [name for name, rest in needs.items() if not rest]:
        for name in ready:
            del needs[name]
        for rest in needs.values():
            rest.difference_update(ready)
    assert not needs, "modules in or above an import cycle: " + ", ".join(
        f"{name} -> {sorted(rest)}" for name, rest in sorted(needs.items()))


def test_imports_stand_at_the_top() -> None:
    hidden = [i for i in imports() if i.inside_function and not i.waits and i.imported.split(".")[0] not in OPTIONAL]
    assert not hidden, "imports inside functions:\n" + "\n".join(map(str, hidden))


BY_NAME = {
    "__init__": "names of the package load when they are first used", "nn.__init__": "likewise", "autograd.__init__": "likewise",
    "_lazy": "likewise of packages", "_refs.__init__": "likewise", "_homes": "likewise of the tables' modules",
    "core.lazy": "the place where imports wait", "jit.__init__": '`from __future__ import annotations` has bound the module\'s name',
    "as_torch": "the module of an alias",
    "ops.custom": "what stands for the binary that a library loads", "ops.__init__": "operators, by family",
    "fx.graph": "a module that a saved graph names",
    "serialization.names": "a module that a checkpoint names", "dynamo.handlers.names": "a module that the program imports",
    "_dynamo.test_case": "test helpers that a program may have put in the place of ours",
    "_dynamo.utils": "the modules below one that the program names",
    "package.importers": "a module that an object of a package is from", "package.loading": "a module that a package's code names",
    "package.exporting": "a module that is to go into a package",
}
"""Modules that load others by a name, and why that name is data."""


def test_own_modules_are_not_loaded_by_name() -> None:
    """`import_module` hides an import from the tests above: of this package only LazyModule may wait, which they read."""
    def loads(tree: ast.AST) -> Iterator[ast.Call]:
        return (call for call in ast.walk(tree) if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("import_module"))

    found = {}
    for path in (ROOT / PACKAGE).rglob("*.py"):
        own = [call for call in loads(ast.parse(path.read_text(encoding="utf-8")))
               if not (isinstance(call.args[0], ast.Constant) and str(call.args[0].value).split(".")[0] not in (PACKAGE, ""))]
        if own:
            found[".".join(path.relative_to(ROOT / PACKAGE).with_suffix("").parts)] = own[0].lineno
    assert found.keys() == BY_NAME.keys(), found


LISTS_READ = {"autograd.joint_hooks": "hung on the module above it, where torch has them",
              "distributions.transformed": "each class of the package gets a module of its own"}
"""Internal modules whose `__all__` others read, and what for."""


def test_lists_of_names_are_for_users() -> None:
    """`__all__` says again what a file defines: that is for modules that torch has too, for what is imported with `*`, and for what a file
    hands on of others'."""
    torch = Path(find_spec("torch").origin).parent      # type: ignore[union-attr, arg-type]
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in modules().items()}
    starred = {target for name, tree in trees.items() for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
               and node.names[0].name == "*" for target in _targets(node, name, modules()[name].name == "__init__.py")}
    repeated = []
    for name, tree in trees.items():
        listed = {text for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
                  and isinstance(node.value, ast.List) for text in map(ast.unparse, node.value.elts)}
        bound = {repr(alias.asname or alias.name) for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))
                 for alias in node.names}
        place = torch.joinpath(*name.split(".")[1:])
        if listed and not listed & bound and name not in starred and not place.is_dir() and not place.with_suffix(".py").exists():
            repeated.append(name.removeprefix(f"{PACKAGE}."))
    assert sorted(repeated) == sorted(LISTS_READ)


def test_flambeau_never_imports_torch() -> None:
    assert not [str(i) for i in imports() if i.imported.split(".")[0] in ("torch", "torchvision", "jax", "tensorflow")]


@pytest.mark.parametrize(("text", "expected"), [
    ("from ..core import tensor", ["flambeau.core.tensor"]),
    ("from ..core.tensor import Tensor", ["flambeau.core.tensor"]),
    ("from . import registry", ["flambeau.ops.registry"]),
    ("import numpy, flambeau.core", ["numpy", "flambeau.core"]),
])
def test_the_reader_of_imports(text: str, expected: list[str]) -> None:
    node = ast.parse(text).body[0]
    assert isinstance(node, (ast.Import, ast.ImportFrom))
    assert list(_targets(node, "flambeau.ops.replay", is_package=False)) == expected


def test_importing_flambeau_is_quick() -> None:
    """SciPy alone would double the time of the import; it and what only some programs need are loaded at first use."""
    code = "import sys, flambeau; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"scipy", "sympy", "matplotlib", "torch", "cupy", "triton"} & set(loaded.stdout.split())
