"""The text of a TorchScript archive as classes and functions: what `code/**.py` defines, by full names such as `__torch__.net.Block`."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

from ..ops.custom import CustomOperator, find
from .compile import NUMBERS, Compiler
from .types import SourceError, Type, dotted, read_type, refuse
from .values import Class, Function, ScriptObject

_WRITTEN_OUT = (ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop, ast.expr_context)
_LISTS = ("__parameters__", "__buffers__", "__annotations__", "__forward_pre_hooks__", "__forward_hooks__")
KINDS = ("Module", "NamedTuple", "Enum", "Interface", "ModuleInterface")


class ScriptProgram:
    """Classes and functions; `sources` are their texts by module, `constants` the tensors and objects that they call CONSTANTS,
    `version` the one of their format.
    What was scripted here may know classes of Python's by the names of its own (`python`), and functions that it calls as Python."""

    def __init__(self, sources: Mapping[str, str], constants: Sequence[Any] = (), version: int = 10,
                 python: Mapping[str, type] | None = None, python_calls: Mapping[str, Callable] | None = None) -> None:
        self.sources, self.constants, self.version = dict(sources), list(constants), version
        self.python, self.python_calls = dict(python or {}), dict(python_calls or {})
        self.classes: dict[str, Class] = {}
        self.functions: dict[str, Function] = {}
        self.compiler = Compiler(self)
        for module, text in self.sources.items():
            self._read(module, text)

    def __deepcopy__(self, memo: dict) -> ScriptProgram:
        return self

    def _read(self, module: str, text: str) -> None:
        """Define what a module's text holds; SourceError where it is no TorchScript."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")     # Python's, of how numbers and texts are written
                tree = ast.parse(text)
            for node in tree.body:
                self._define(module, node, text)
        except SourceError as error:
            raise SourceError(f"{module}, {error}") from None
        except SyntaxError as error:
            raise SourceError(f"{module}, line {error.lineno}, column {error.offset}: {error.msg}") from None
        except (ValueError, TypeError, MemoryError, RecursionError, OverflowError) as error:     # of what is written out, too
            raise SourceError(f"{module} is no text that can be read: {type(error).__name__} {str(error)[:80]}") from None

    def _define(self, module: str, node: ast.stmt, text: str) -> None:
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            raise refuse(node, f"{type(node).__name__} stands where classes and functions are defined")
        name = f"{module}.{node.name}"
        if name in self.classes or name in self.functions:
            raise refuse(node, f"{name} is defined twice")
        source = "\n".join(text.splitlines()[node.lineno - 1:node.end_lineno]) + "\n"
        if isinstance(node, ast.FunctionDef):
            self.functions[name] = self.compiler.function(node, node.name, source)
        else:
            self.classes[name] = self._class(node, name, source)

    def _class(self, node: ast.ClassDef, name: str, source: str) -> Class:
        bases = [dotted(base) for base in node.bases]
        if node.keywords or node.decorator_list or len(bases) > 1 or (bases and bases[0] not in KINDS):
            raise refuse(node, f"class {node.name} is a {ast.unparse(node).splitlines()[0][:60]}, which TorchScript doesn't have")
        made = Class(name, bases[0] if bases else "class", source, python=self.python.get(name))
        for part in node.body:
            self._member(made, part, source, node.lineno)
        try:
            made.finish()
        except (ValueError, TypeError) as error:
            raise refuse(node, f"class {node.name}: {error}") from None
        return made

    def _member(self, made: Class, node: ast.stmt, source: str, first: int) -> None:
        """One statement of a class."""
        if isinstance(node, ast.FunctionDef):
            lines = source.splitlines()[node.lineno - first:(node.end_lineno or node.lineno) - first + 1]
            text = "\n".join(line.removeprefix("  ") for line in lines) + "\n"
            made.methods[node.name] = self.compiler.function(node, f"{made.short}.{node.name}", text)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            self._attribute(made, node.target.id, read_type(node.annotation), node.value)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            self._assigned(made, node.targets[0], node.value)
        elif not isinstance(node, ast.Pass):
            raise refuse(node, f"{type(node).__name__} stands in a class")

    def _attribute(self, made: Class, name: str, kind: Type, value: ast.expr | None) -> None:
        if name.startswith("__") or (name == "training" and value is not None):
            raise refuse(value or ast.Pass(), f"an attribute is called {name}")
        if value is None:
            made.attributes[name] = kind
        else:
            made.constants[name] = self._literal(value)

    def _assigned(self, made: Class, target: ast.expr, value: ast.expr) -> None:
        """`__parameters__ = [...]`, `__forward_hooks__ = [...]`, `__annotations__["0"] = TYPE`, or a member of an enum."""
        if isinstance(target, ast.Name) and target.id in _LISTS:
            names = _texts(value)
            if target.id != "__annotations__":
                setattr(made, target.id.strip("_"), names)
        elif isinstance(target, ast.Subscript) and dotted(target.value) == "__annotations__" and isinstance(target.slice, ast.Constant):
            made.attributes[str(target.slice.value)] = read_type(value)
        elif isinstance(target, ast.Name) and not target.id.startswith("_"):
            made.constants[target.id] = self._literal(value)
        else:
            raise refuse(target, f"{ast.unparse(target)[:40]} is assigned in a class")

    def _literal(self, node: ast.expr) -> Any:
        """The value of a constant of a class, which is written out."""
        for part in ast.walk(node):
            if not isinstance(part, _WRITTEN_OUT) and not (isinstance(part, ast.Name) and part.id in NUMBERS):
                raise refuse(node, f"a constant is no number, text or list of these: {ast.unparse(node)[:60]}")
        return self.compiler.expression(node)({})

    # -- what functions ask ----------------------------------------------------------------------------------------------
    def is_instance(self, name: str, value: Any) -> bool:
        """Whether a value is of a class of the program; of an interface where it has the methods."""
        made_of = self.classes.get(name)
        if made_of is None:
            return False
        if made_of.kind in ("NamedTuple", "Enum"):
            return isinstance(value, (tuple, Enum)) and type(value) is made_of.python
        own = value._class if isinstance(value, ScriptObject) or hasattr(type(value), "script_read") else None
        if made_of.kind in ("Interface", "ModuleInterface"):
            return own is not None and made_of.methods.keys() <= own.methods.keys()
        return own is not None and own.name == name

    def custom_operator(self, name: str) -> CustomOperator:
        """`namespace::name` as it is registered in this process."""
        found = find(name)
        if not isinstance(found, CustomOperator):
            raise RuntimeError(f"Unknown builtin op: {name}. Import the library that registers it")
        return found


def _texts(node: ast.expr) -> list[str]:
    if not isinstance(node, ast.List) or not all(isinstance(e, ast.Constant) and isinstance(e.value, str) for e in node.elts):
        raise refuse(node, "no list of names")
    return [e.value for e in node.elts]     # type: ignore[attr-defined]
