"""`python -m tools.stubs` writes the type stubs of the namespaces that are filled from the op table, and of Tensor's methods.

Type checkers cannot see what a table puts into a namespace. A stub says it: a class, a function or a module that stands in a file
is imported from there; an operator is a `def` with the signature of its record, or several where what it gives hangs on a dimension
that may be left out. `--check` writes nothing and fails where a stub is not what would be written.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FunctionType, GenericAlias, ModuleType, UnionType
from typing import Any, NamedTuple

import flambeau
from flambeau.core.dtypes import dtype
from flambeau.core.tensor import Tensor
from flambeau.nn import Module
from flambeau.ops import return_types
from flambeau.ops.registry import is_operator

ROOT = Path(flambeau.__file__).parent
NAMESPACES = ("", "nn", "nn.functional", "nn.utils", "optim", "utils", "linalg", "fft", "special")
"""Those whose files do little but fill them."""
HEADER = '"""{what}. Written by `python -m tools.stubs`."""\n\n'
PYTHONS = set(dir(object)) - {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"}
"""What every object has."""


class Stub(NamedTuple):
    """A stub's imports and its lines."""

    imports: set[str]
    lines: list[str]

    def text(self, what: str) -> str:
        return HEADER.format(what=what) + "\n".join([*sorted(self.imports), "", *self.lines]) + "\n"


@cache
def written_in(file: str) -> frozenset[str]:
    """The names that the text of a module gives at its top level: functions without decorators, classes, values."""
    found: set[str] = set()
    for node in ast.parse(Path(file).read_text()).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found |= set() if isinstance(node, ast.FunctionDef) and node.decorator_list else {node.name}
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            found |= {t.id for t in (node.targets if isinstance(node, ast.Assign) else [node.target]) if isinstance(t, ast.Name)}
    return frozenset(found)


def home(value: Any, name: str) -> tuple[str, str] | None:
    """The module of Flambeau's where a type checker finds a class or function, and its name there."""
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    own = getattr(value, "__qualname__", name)
    file = getattr(module, "__file__", None) or ""
    if not file.startswith(str(ROOT)) or not file.endswith(".py") or vars(module).get(own) is not value or own not in written_in(file):
        return None
    return module.__name__, own    # type: ignore[union-attr]


def files() -> Iterator[tuple[str, str]]:
    """The modules of Flambeau that are loaded, and their files."""
    for name, module in list(sys.modules.items()):
        if name.startswith("flambeau.") and (getattr(module, "__file__", None) or "").endswith(".py"):
            yield name, module.__file__     # type: ignore[misc]


def annotation(text: Any, room: dict[str, Any], imports: set[str]) -> str:
    """An annotation as a stub writes it: builtins by their full names, which methods called `float` don't hide; unknown names are Any."""
    if text is inspect.Parameter.empty:
        return "Any"
    if not isinstance(text, str):
        text = text.__name__ if isinstance(text, type) else "None" if text is None else "Any"
    tree = ast.parse(text, mode="eval")

    class Names(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return ast.parse(named(node.id, room, imports), mode="eval").body

        def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
            if not (isinstance(node.value, ast.Name) and room.get(node.value.id) is return_types):
                return ast.Name("Any")
            imports.add("from flambeau.ops import return_types as _return_types")
            return ast.Attribute(ast.Name("_return_types"), node.attr)

    return ast.unparse(Names().visit(tree))


def named(name: str, room: dict[str, Any], imports: set[str]) -> str:
    """A name of an annotation, imported."""
    if hasattr(builtins, name) and name not in room:
        return "None" if name == "None" else f"builtins.{name}"
    value = room.get(name)
    if name == "Absent":
        return "None"
    if getattr(value, "__module__", "") in ("typing", "collections.abc"):
        imports.add(f"from {value.__module__} import {name}")
        return name
    found = home(value, name) if isinstance(value, type) else None
    if found is None and isinstance(value, (UnionType, GenericAlias)):
        found = next((module, name) for module, file in files()
                     if name in written_in(file) and vars(sys.modules[module]).get(name) is value)
    if found is None:
        return "Any"
    imports.add(f"from {found[0]} import {found[1]} as _{name}")
    return f"_{name}"


def default(value: Any) -> str:
    return repr(value) if value is None or isinstance(value, (bool, int, str)) else "..."


def parameters(signature: inspect.Signature, room: dict[str, Any], imports: set[str], method: bool) -> str:
    """The text between the parentheses of a definition."""
    shown: list[str] = []
    star = slash = False
    for at, (name, p) in enumerate(signature.parameters.items()):
        first = method and at == 0
        kind = annotation(p.annotation, room, imports)
        if p.kind is p.VAR_POSITIONAL or (p.kind is p.KEYWORD_ONLY and not star):
            star = True
            if p.kind is p.KEYWORD_ONLY:
                shown.append("*")
        slash = slash or p.kind is p.POSITIONAL_ONLY
        mark = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        text = "self" if first else f"{mark}{name}: {kind}"
        shown.append(text if p.default is p.empty or first else f"{text} = {default(p.default)}")
    return ", ".join(shown)


def as_python_calls(name: str, signature: inspect.Signature) -> inspect.Signature:
    """What Python's `+` gives to `__add__`: a tensor, and the other operand where there are two."""
    operands = list(signature.parameters.values())
    if name not in ("__getitem__", "__setitem__"):
        operands = operands[:1 if name in ("__neg__", "__pos__", "__abs__", "__invert__") else 2]
    return signature.replace(parameters=[p.replace(default=p.empty) for p in operands])


def overloads(name: str, fn: Callable) -> list[inspect.Signature]:
    """The ways to call an operator that differ in what they give: with a dimension a named tuple, without one a tensor."""
    signature = inspect.signature(fn)
    fields = getattr(getattr(return_types, name, None), "_fields", ())
    if not fields:
        return [signature]
    parts = signature.parameters
    pair = signature.replace(return_annotation=f"return_types.{name}")
    dim = parts.get("dim")
    if fields != ("values", "indices") or dim is None or dim.default is not None:
        return [pair]
    alone = [p for key, p in parts.items() if key not in ("dim", "keepdim", "other")]
    given = [p.replace(annotation="int", default=p.empty) if key == "dim" else p for key, p in parts.items() if key != "other"]
    found = [signature.replace(parameters=alone, return_annotation="Tensor"), pair.replace(parameters=given)]
    if other := parts.get("other"):
        first, *rest = alone
        second = other.replace(kind=first.kind, annotation="Tensor", default=other.empty)
        found.append(signature.replace(parameters=[first, second, *rest], return_annotation="Tensor"))
    return found


def definitions(name: str, fn: Callable, imports: set[str], method: bool = False) -> Iterator[str]:
    """The `def` of an operator or method, or those of its overloads."""
    info = getattr(fn, "_operator", None)
    plain = inspect.unwrap(info.body if info else fn)
    room = {**getattr(plain, "__globals__", {}), "return_types": return_types, "Tensor": Tensor}
    ways = overloads(info.name, fn) if info else [inspect.signature(fn)]
    for signature in ways:
        if info is not None and name.startswith("__"):
            signature = as_python_calls(name, signature)
        if len(ways) > 1:
            yield "@overload"
        ignored = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
        result = annotation(signature.return_annotation, room, imports)
        yield f"def {name}({parameters(signature, room, imports, method)}) -> {result}: ...{ignored}"


def class_of_table(name: str, made: type, imports: set[str]) -> Iterator[str]:
    """A class that a table makes, by its first base that stands in a file."""
    base = next(filter(None, (home(kind, kind.__name__) for kind in made.__mro__[1:])))
    imports.add(f"from {base[0]} import {base[1]} as _{base[1].lstrip('_')}")
    yield f"class {name}(_{base[1].lstrip('_')}):"
    signature = inspect.signature(made.__init__)    # type: ignore[misc]
    yield f"    def __init__({parameters(signature, getattr(made.__init__, '__globals__', {}), imports, True)}) -> None: ..."    # type: ignore[misc]


def namespace(module: ModuleType) -> Stub:
    """The stub of a package that is filled by tables."""
    stub = Stub({"import builtins", "from typing import Any, overload"}, [])
    room = module.__name__
    defs: list[str] = []
    values: list[str] = []
    shown: list[str] = []
    for name in dir(module):
        if (name.startswith("__") and name != "__version__") or name in ("annotations", "TYPE_CHECKING", "Any"):
            continue
        value = getattr(module, name)
        if isinstance(value, ModuleType):
            parent, _, own = value.__name__.rpartition(".")
            if not parent.startswith("flambeau"):
                continue
            if getattr(value, "__file__", None):
                stub.imports.add(f"from {parent} import {own} as {name}")
            else:
                values.append(f"{name}: Any")
        elif (name.startswith("_") and getattr(value, "__name__", "") != name) or getattr(value, "__module__", "") == "collections.abc":
            continue
        elif is_operator(value):
            defs.extend(definitions(name, value, stub.imports))
        elif (found := home(value, name)) is not None and found[0] != room:
            stub.imports.add(f"from {found[0]} import {found[1]} as {name}")
        elif isinstance(value, FunctionType):
            defs.extend(definitions(name, value, stub.imports))
        elif isinstance(value, type) and issubclass(value, Module):
            defs.extend(class_of_table(name, value, stub.imports))
        elif isinstance(value, dtype):
            stub.imports.add("from flambeau.core.dtypes import dtype as _dtype")
            values.append(f"{name}: _dtype")
        else:
            kind = type(value)
            place = home(kind, kind.__name__)
            if place is not None:
                stub.imports.add(f"from {place[0]} import {place[1]} as _{kind.__name__}")
            said = f"_{kind.__name__}" if place else f"builtins.{kind.__name__}" if kind in (int, float, str, bool) else "Any"
            values.append(f"{name}: {said}")
        if not name.startswith("_"):
            shown.append(name)
    stub.lines.extend([*values, "", *defs, "", f"__all__ = {shown}"])
    return stub


def named_tuples() -> Stub:
    """What operators with several results give."""
    stub = Stub({"from typing import Any, NamedTuple", "from flambeau.core.tensor import Tensor"}, [])
    for name, kind in vars(return_types).items():
        if isinstance(kind, type) and issubclass(kind, tuple):
            stub.lines.extend([f"class {name}(NamedTuple):", *(f"    {field}: Tensor" for field in kind._fields), ""])    # type: ignore[attr-defined]
    stub.lines.extend(["_FIELDS: dict[str, str]", "def named(name: str, *values: Any) -> Any: ..."])
    return stub


def methods() -> Stub:
    """Tensor's methods that its own file does not have."""
    stub = Stub({"import builtins", "from typing import Any, overload", "from flambeau.core.tensor import Tensor as _Tensor"}, [])
    body = next(node for node in ast.parse((ROOT / "core" / "tensor.py").read_text()).body if getattr(node, "name", "") == "Tensor")
    own = {node.name for node in ast.walk(body) if isinstance(node, ast.FunctionDef)} | set(Tensor.__slots__)
    stub.lines.append("class Methods:")
    for name, value in sorted(vars(Tensor).items()):
        lines: list[str] = []
        if name in own or name in PYTHONS or (name.startswith("_") and not name.startswith("__") and not callable(value)):
            continue
        if isinstance(value, FunctionType):
            lines.extend(definitions(name, value, stub.imports, method=True))
        elif isinstance(value, property):
            kind = annotation(inspect.signature(value.fget).return_annotation, value.fget.__globals__, stub.imports)   # type: ignore[arg-type, union-attr]
            lines.extend(["@property", f"def {name}(self) -> {kind}: ..."])
            if value.fset is not None:
                lines.extend([f"@{name}.setter", f"def {name}(self, value: Any) -> None: ..."])
        elif not name.startswith("__"):
            kind = type(value).__name__ if isinstance(value, (bool, int, str)) else "Any"
            lines.append(f"{name}: {kind if kind == 'Any' else f'builtins.{kind}'}")
        stub.lines.extend(f"    {line}" for line in lines)
    return stub


def stubs() -> dict[Path, str]:
    """Every stub by its file."""
    made = {ROOT / "core" / "tensor_methods.pyi": methods().text("The operators that are methods of Tensor"),
            ROOT / "ops" / "return_types.pyi": named_tuples().text("torch.return_types")}
    for name in NAMESPACES:
        module = sys.modules.get(f"flambeau.{name}".rstrip(".")) or __import__(f"flambeau.{name}", fromlist=["*"])
        made[Path(str(module.__file__)).with_suffix(".pyi")] = namespace(module).text(f"torch{'.' * bool(name)}{name}")
    return made


def main() -> int:
    made = stubs()
    stale = [path for path, text in made.items() if not path.is_file() or path.read_text() != text]
    for path in stale:
        print(f"{path.relative_to(ROOT.parent)}: {made[path].count(chr(10))} lines")
        if "--check" not in sys.argv:
            path.write_text(made[path])
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
