"""Local names while a function is compiled: what each stands for in the block, and what blocks that join again leave behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..values import Class
from .static import ANY, Sugar, Type, Value, common


@dataclass
class Variable(Sugar):
    """A variable of the text: the type that it is known to have here, and that which the text says."""

    text: str
    type: Type
    held: Type
    annotated: Type | None = None
    fields: tuple[str, ...] = ()

    def value(self) -> Value:
        """What reads it."""
        if self.type == self.held:
            return Value(self.type, self.text, True, fields=self.fields)
        return Value(self.type, f"unchecked_cast({self.type}, {self.text})", True)


@dataclass
class Missing(Sugar):
    """A name that has no value, or no type, on some way to here."""

    why: str


@dataclass
class Scope:
    """The names of one block; `exits` when nothing after it runs."""

    parent: Scope | None = None
    names: dict[str, Any] = field(default_factory=dict)
    exits: bool = False
    loop: bool = False

    def find(self, name: str) -> Any:
        """What a name stands for; None if it is not local."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return None

    def outer(self, name: str) -> Any:
        """What a name stands for outside of this block."""
        return self.parent.find(name) if self.parent is not None else None

    def refine(self, types: dict[str, Type]) -> None:
        """Variables are of narrower types from here on."""
        for name, kind in types.items():
            found = self.find(name)
            if isinstance(found, Variable):
                self.names[name] = Variable(found.text, kind, found.held, found.annotated)

    def chain(self) -> Iterator[Scope]:
        """This block and those around it."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent


def join(into: Scope, branches: list[Scope], labels: tuple[str, str], classes: dict[str, Class], placed: Callable[[str], str]) -> None:
    """The names after two branches; one that ends the function or the loop leaves nothing. `placed`: what is said of a name, with the place."""
    live = [scope for scope in branches if not scope.exits]
    if not live:
        into.exits = True
        return
    for name in dict.fromkeys(name for scope in live for name in scope.names):
        found = [scope.find(name) for scope in live]
        made = found[0] if len(live) == 1 else _joined(name, found, labels, classes, into.find(name))
        told = isinstance(made, Missing) and made not in found
        into.names[name] = Missing(placed(made.why)) if told else made


def _joined(name: str, found: list[Any], labels: tuple[str, str], classes: dict[str, Class], before: Any) -> Any:
    for value, label in zip(found, labels):
        if value is None:
            return Missing(f"{name} is not defined in the {label}")
        if isinstance(value, Missing):
            return value
    a, b = found
    if not isinstance(a, Variable) or not isinstance(b, Variable):
        return a if a == b else Missing(f"{name} stands for different things in the {labels[0]} and the {labels[1]}")
    kind = common(a.type, b.type, classes)
    if kind is None and isinstance(before, Variable):       # each is of one of the types that it had
        kind = before.type
    if kind is None:
        return Missing(f"Type mismatch: {name} is set to type {a.type} in the {labels[0]} and type {b.type} in the {labels[1]}")
    return Variable(a.text, kind, common(a.held, b.held, classes) or ANY, a.annotated if a.annotated == b.annotated else None)
