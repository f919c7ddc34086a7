"""Exported programs in another language: a table of what it has for ATen's operators, and how all else is taken apart.

A row is found by an overload (`add.Tensor`) or by an operator's name, which stands for all overloads that have no row of their own.
What has no row is taken apart: by `core_table.py`, or by the operator's own body, down to primitives (`primitive:NAME`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..fx import Node
from ..ops.aten import AtenOperator, Overload
from ..ops.custom import MEANINGS, CustomOperator
from ..ops.primitives import Primitive
from ..ops.registry import PRIMITIVES
from .core_table import TABLE, body_of
from .decompose import CustomDecompTable
from .targets import name_or_none

Form = Callable[..., Any]


class Row:
    """How an operator is written, from which version on, and for which arguments (`takes(*args)` of fake tensors and numbers)."""

    def __init__(self, write: Form, since: int, takes: Callable[..., bool] | None) -> None:
        self.write, self.since, self.takes = write, since, takes


class Forms:
    """A table of translations: for each operator that a language has a form of, the function that writes it."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {}

    def form(self, *names: str, since: int = 0, takes: Callable[..., bool] | None = None) -> Callable[[Form], Form]:
        """Decorate `write(o, *args, **kwargs)`, which writes an operator with a writer `o`, its tensors as the writer's values."""
        def enter(write: Form) -> Form:
            for name in names:
                self.rows.setdefault(name, []).append(Row(write, since, takes))
            return write

        return enter

    def short(self, forms: dict[str, Form]) -> None:
        """Enter forms of one expression by the names (words of a text) of their operators."""
        for names, write in forms.items():
            self.form(*names.split())(write)

    def rows_of(self, target: Any) -> Iterator[Row]:
        """The rows for an operator, those of its overload first; a function of Python may have that of the operator of its name."""
        key = key_of(target)
        yield from sorted(self.rows.get(key, ()), key=lambda row: -row.since)
        if isinstance(target, Overload) or key.startswith("python:"):
            yield from sorted(self.rows.get(target.__name__, ()), key=lambda row: -row.since)

    def find(self, target: Any, args: tuple, kwargs: dict, version: int = 0) -> Form | None:
        """The function that writes this call; None if it has to be taken apart."""
        for row in self.rows_of(target):
            if row.since <= version and (row.takes is None or row.takes(*args, **kwargs)):
                return row.write
        return None

    def primitives_without(self) -> list[str]:
        """The primitives that have no form, which is why operators have none."""
        return sorted(name for name, prim in PRIMITIVES.items() if not any(True for _ in self.rows_of(prim)))


def key_of(target: Any) -> str:
    """What an operator is called in a table: as in files, but overloads, custom operators and functions by their plain names."""
    kind, _, name = (name_or_none(target) or f":{getattr(target, '__name__', target)}").partition(":")
    return f"{kind}:{name}" if kind in ("primitive", "operator", "python") else name


class Apart(CustomDecompTable):
    """What takes an operator apart that has no form elsewhere (`has_form(target, args, kwargs)`): the table for core ATen, or else the
    operator's own body, down to primitives."""

    by_bodies = False       # a form there is, where it says NotImplemented
    depth = 3       # a body may call the operator itself, in a simpler way

    def __init__(self, has_form: Callable[[Any, tuple, dict], bool]) -> None:
        super().__init__(TABLE)
        self.has_form = has_form
        self.running: list[Any] = []

    def __contains__(self, target: object) -> bool:
        if isinstance(target, AtenOperator):
            return not target.__name__.endswith("_") or target.__name__.endswith("__")
        if isinstance(target, CustomOperator):
            return target.qualname in MEANINGS
        return isinstance(target, Primitive) or hasattr(target, "_operator")

    def __getitem__(self, target: Any) -> Callable:
        def parts(*args: Any, **kwargs: Any) -> Any:
            if self.has_form(target, args, kwargs):
                return NotImplemented
            if isinstance(target, CustomOperator):
                return MEANINGS[target.qualname](*args, **kwargs)
            again = target in self.running
            self.running.append(target)
            try:
                out = NotImplemented if again or target not in TABLE else TABLE[target](*args, **kwargs)
                return body_of(target, args, kwargs, again) if out is NotImplemented else out
            finally:
                self.running.pop()

        return parts


def line_of(node: Node) -> str:
    """The user's line that a step comes from."""
    stack = node.meta.get("stack")
    if not stack:
        return f"at the step {node.name}"
    file, line, function, source = stack[-1]
    return f"{file}:{line}, in {function}: {source}"


def told(missing: dict[str, list[str]]) -> str:
    """Operators and the lines that call them, as a text."""
    return "\n".join(f"  {name.removeprefix('primitive:').removeprefix('operator:')}\n" + "\n".join(
        f"    {line}" for line in dict.fromkeys(lines)) for name, lines in missing.items())
