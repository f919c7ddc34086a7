"""The types of TorchScript: read from annotations in an archive's text, compared with values, printed as torch prints them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, NamedTuple

from ..core.device import device
from ..core.tensor import Tensor
from ..futures import Future
from ..ops.generators import Generator


class Type(NamedTuple):
    """`List[int]` is Type("List", (Type("int"),)); a class of the archive is its full name."""

    name: str
    args: tuple[Type, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.args)) or '()'}]" if self.args or self.name == "Tuple" else self.name

    def notation(self) -> str:
        """As signatures have it: `int[]`, `int?`, `(int, str)`, `Dict(str, int)`."""
        parts = [arg.notation() for arg in self.args]
        if self.name in _ENDINGS:
            return parts[0] + _ENDINGS[self.name]
        return f"{'' if self.name == 'Tuple' else self.name}({', '.join(parts)})" if parts or self.name == "Tuple" else self.name


_ENDINGS = {"List": "[]", "Optional": "?"}
TENSOR, ANY, NONE, INT = Type("Tensor"), Type("Any"), Type("NoneType"), Type("int")


class SourceError(RuntimeError):
    """Text that is no TorchScript; it says where."""


def refuse(node: ast.AST, why: str) -> SourceError:
    """The error for a part of a text."""
    return SourceError(f"line {getattr(node, 'lineno', '?')}, column {getattr(node, 'col_offset', '?')}: {why}")


def dotted(node: ast.AST) -> str:
    """`a.b.c` as text; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *parts[::-1]]) if isinstance(node, ast.Name) else ""


def read_type(node: ast.AST) -> Type:
    """The type that an annotation writes; SourceError if it is none."""
    if isinstance(node, ast.Constant):
        if node.value is None:
            return NONE
        if isinstance(node.value, str):
            return parse_type(node.value)
    name = dotted(node)
    if name:
        return NONE if name == "None" else _checked(node, Type(name.removeprefix("torch.") if name == "torch.Tensor" else name))
    if isinstance(node, ast.Subscript) and (name := dotted(node.value)):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return _checked(node, Type(name, tuple(map(read_type, inner))))
    raise refuse(node, f"no type: {ast.unparse(node)[:60]}")


_COUNTS = {"Optional": 1, "List": 1, "Dict": 2}


def _checked(node: ast.AST, made: Type) -> Type:
    """`made`, which says as many types as there must be."""
    if len(made.args) != _COUNTS.get(made.name, len(made.args)):
        raise refuse(node, f"{made} says {len(made.args)} types, not {_COUNTS[made.name]}")
    return made


def parse_type(text: str) -> Type:
    """The type that `text` writes."""
    try:
        return read_type(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise SourceError(f"no type: {text[:60]!r}") from error


_PLAIN: dict[str, Callable[[Any], bool]] = {
    "Tensor": lambda v: isinstance(v, Tensor), "int": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "float": lambda v: isinstance(v, float), "bool": lambda v: isinstance(v, bool), "str": lambda v: isinstance(v, str),
    "complex": lambda v: isinstance(v, complex), "NoneType": lambda v: v is None, "Any": lambda v: True,
    "number": lambda v: isinstance(v, (int, float, complex)), "Scalar": lambda v: isinstance(v, (int, float, complex)),
    "Device": lambda v: isinstance(v, device), "Generator": lambda v: isinstance(v, Generator), "Future": lambda v: isinstance(v, Future),
    "AnyList": lambda v: isinstance(v, list), "AnyTuple": lambda v: isinstance(v, tuple),
    **dict.fromkeys(("Layout", "ScalarType", "MemoryFormat"), lambda v: isinstance(v, int)),
}


def fits(kind: Type, value: Any, is_instance: Callable[[str, Any], bool]) -> bool:
    """Whether `value` is of a type; `is_instance(name, value)` tells it of the classes of a program."""
    plain = _PLAIN.get(kind.name)
    if plain is not None:
        return plain(value)
    if kind.name == "Optional":
        return value is None or fits(kind.args[0], value, is_instance)
    if kind.name == "Union":
        return any(fits(arg, value, is_instance) for arg in kind.args)
    if kind.name == "List":
        return isinstance(value, list) and all(fits(kind.args[0], v, is_instance) for v in value)
    if kind.name == "Dict":
        return isinstance(value, dict) and all(fits(kind.args[0], k, is_instance) and fits(kind.args[1], v, is_instance)
                                               for k, v in value.items())
    if kind.name == "Tuple":
        return isinstance(value, tuple) and len(value) == len(kind.args) and all(
            fits(arg, v, is_instance) for arg, v in zip(kind.args, value))
    return is_instance(kind.name, value)
