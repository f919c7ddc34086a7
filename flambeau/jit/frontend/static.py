"""Types while a program is compiled: which is a part of which, what two have in common, what an operator's arguments are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ...core.schema import type_text
from ..types import ANY, INT, NONE, TENSOR, Type, parse_type
from ..values import Class

NUMBER, FLOAT, BOOL, STR, COMPLEX, DEVICE = (Type(name) for name in ("number", "float", "bool", "str", "complex", "Device"))
NUMBERS = (INT, FLOAT, COMPLEX, NUMBER)
NOTHING: Any = object()


@dataclass
class Value:
    """A value of the program: its type, and the text that computes it. `simple`: a name or a number, that may be written twice."""

    type: Type
    text: str
    simple: bool = False
    constant: Any = NOTHING     # what it is, where that is known
    parts: list[Value] | None = field(default=None, repr=False)     # of a tuple or list that is written out
    fields: tuple[str, ...] = ()    # the names of what an operator gives


class Inlined(str):
    """The text of a function that is a whole call already."""


class Sugar:
    """What a name stands for while a program is compiled, and no value of the program."""


@dataclass
class Known(Sugar):
    """Something of Python's: a module, a function, a class, a number."""

    obj: Any


@dataclass
class Bound(Sugar):
    """A method of a value."""

    owner: Any
    name: str


@dataclass
class Several(Sugar):
    """Values of which the number is known: the modules of a list, what zip makes of them."""

    items: list[Any]


@dataclass
class Stepped(Sugar):
    """What a loop with an index runs over: the text of its length, and its elements by the text of an index."""

    length: str
    item: Any
    type: Type


def optional(kind: Type) -> Type:
    """Optional[kind]."""
    return kind if kind.name in ("Optional", "NoneType", "Any") else Type("Optional", (kind,))


def is_part(kind: Type, of: Type, classes: dict[str, Class]) -> bool:
    """Whether every value of `kind` is one of `of`."""
    if kind == of or of == ANY:
        return True
    if kind.name == "Optional":
        return is_part(NONE, of, classes) and is_part(kind.args[0], of, classes)
    if kind.name == "Union":
        return all(is_part(arg, of, classes) for arg in kind.args)
    if of.name == "Optional":
        return kind == NONE or is_part(kind, of.args[0], classes)
    if of.name == "Union":
        return any(is_part(kind, arg, classes) for arg in of.args)
    if of == NUMBER:
        return kind in NUMBERS
    if of.name == "Tuple" and kind.name == "Tuple":
        return len(of.args) == len(kind.args) and all(is_part(a, b, classes) for a, b in zip(kind.args, of.args))
    if of.name == "Future" and kind.name == "Future":
        return is_part(kind.args[0], of.args[0], classes)
    mine, theirs = classes.get(kind.name), classes.get(of.name)
    if mine is not None and mine.kind == "NamedTuple" and of.name == "Tuple":
        return is_part(Type("Tuple", tuple(mine.attributes.values())), of, classes)
    if mine is not None and theirs is not None and theirs.kind in ("Interface", "ModuleInterface"):
        return all(name in mine.methods and _same_signature(mine.methods[name], method) for name, method in theirs.methods.items())
    return False


def _same_signature(mine: Any, theirs: Any) -> bool:
    return [p.type for p in mine.parameters[1:]] == [p.type for p in theirs.parameters[1:]] and mine.returns == theirs.returns


def common(a: Type, b: Type, classes: dict[str, Class], union: bool = False) -> Type | None:
    """The narrowest type that holds values of both; None if there is none. `union`: a Union where nothing else fits."""
    if is_part(a, b, classes):
        return b
    if is_part(b, a, classes):
        return a
    if a == NONE or b == NONE:
        return optional(b if a == NONE else a)
    if a.name == "Optional" or b.name == "Optional":
        x, y = (k.args[0] if k.name == "Optional" else k for k in (a, b))
        inner = common(x, y, classes, union)
        return None if inner is None else optional(inner)
    if a.name == "Tuple" == b.name and len(a.args) == len(b.args):
        parts = [common(x, y, classes, union) for x, y in zip(a.args, b.args)]
        return None if None in parts else Type("Tuple", tuple(p for p in parts if p is not None))
    if not union:
        return None
    members: list[Type] = []
    for kind in (*(a.args if a.name == "Union" else (a,)), *(b.args if b.name == "Union" else (b,))):
        if kind not in members:
            members.append(kind)
    return Type("Union", tuple(members))


def without_none(kind: Type) -> Type:
    """What is left of a type where a value is not None."""
    if kind.name == "Optional":
        return kind.args[0]
    if kind.name == "Union":
        left = tuple(arg for arg in kind.args if arg != NONE)
        return left[0] if len(left) == 1 else Type("Union", left)
    return kind


def may_be_none(kind: Type) -> bool:
    """Whether None is a value of a type."""
    return kind.name in ("Optional", "Any", "NoneType") or (kind.name == "Union" and NONE in kind.args)


@cache
def type_of(notation: str) -> Type:
    """The type that a signature writes: `int[2]?` is Optional[List[int]]."""
    return parse_type(type_text(notation))


FREE = ("t", "K", "V")


def bind(kind: Type, given: Type, found: dict[str, Type]) -> Type:
    """`kind` with its free types as `given` says; they are written down in `found`."""
    if kind.name in FREE:
        return found.setdefault(kind.name, given)
    if kind.name == given.name and len(kind.args) == len(given.args):
        return Type(kind.name, tuple(bind(k, g, found) for k, g in zip(kind.args, given.args)))
    if kind.name == "Optional":
        return Type("Optional", (bind(kind.args[0], given, found),))
    return filled(kind, found)


def filled(kind: Type, found: dict[str, Type]) -> Type:
    """`kind` with what is known of its free types."""
    return found.get(kind.name, kind) if kind.name in FREE else Type(kind.name, tuple(filled(a, found) for a in kind.args))


def names_of(kinds: Iterable[Type]) -> str:
    """Types in a row, for messages."""
    return ", ".join(map(str, kinds))


__all__ = ["ANY", "BOOL", "Bound", "COMPLEX", "DEVICE", "FLOAT", "FREE", "INT", "Inlined", "Known", "NONE", "NOTHING", "NUMBER",
           "NUMBERS", "STR", "Several", "Stepped", "Sugar", "TENSOR", "Type", "Value", "bind", "common", "filled", "is_part",
           "may_be_none", "names_of", "optional", "type_of", "without_none"]
