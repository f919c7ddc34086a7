"""Where a value of the traced frame comes from, as a Python expression over the frame's arguments.

The same expression fetches the value in the guard and in the replacement function. Roots are the frame's own function, its
arguments and constants (objects kept alive by the compiled entry); everything else is a template over other sources.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Callable, Iterator
from typing import Any


class Source:
    """`template.format(*bases)`; never changed, hashed and compared by its text and its constants' identities."""

    __slots__ = ("_hash", "_text", "bases", "constant", "is_constant", "step", "template", "trusted", "written")

    def __init__(self, template: str, bases: tuple[Source, ...] = (), constant: Any = None, is_constant: bool = False,
                 trusted: bool = False, written: str = "", step: tuple[str, Any] = ("", None)) -> None:  # fmt: skip
        self.template, self.bases = template, bases
        self.constant, self.is_constant = constant, is_constant
        self.trusted = trusted
        """Belongs to Flambeau or to the standard library: never rebound, so never guarded."""
        self.written = written
        """What the program calls it, where that is another name."""
        self.step = step
        """How it is read from its base, where a guard can tell that it would find the same again (`guards_plan`)."""
        self._hash = hash((template, bases, id(constant) if is_constant else None))
        self._text: str | None = None

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Source)
            and self.template == other.template
            and self.constant is other.constant
            and self.bases == other.bases
        )

    def derive(self, template: str, *more: Source, step: tuple[str, Any] = ("", None)) -> Source:
        """A value computed from this one, e.g. `derive("type({0})")`."""
        return Source(template, (self, *more), step=step)

    def attr(self, name: str) -> Source:
        if name.isidentifier() and not keyword.iskeyword(name):
            return self.derive("{0}." + name)
        return self.derive("getattr({0}, " + braced(repr(name)) + ")")

    def dict_item(self, name: str) -> Source:
        """An entry of the instance's `__dict__`."""
        return self.derive("{0}.__dict__[" + braced(repr(name)) + "]", step=("entry", name))

    def field(self, name: str) -> Source:
        """The same, for a name that no class attribute hides, as programs write it."""
        return self.derive("{0}." + name, step=("entry", name))

    def item(self, key: Any) -> Source:
        """`self[key]` for a key that prints as a literal, else through a constant."""
        if is_literal(key):
            return self.derive("{0}[" + braced(repr(key)) + "]", step=("item", key))
        return self.derive("{0}[{1}]", constant_source(key))

    def size(self, dim: int) -> Source:
        """A size of a tensor."""
        return self.derive(f"{{0}}.shape[{dim}]")

    def type(self) -> Source:
        return self.derive("type({0})", step=("type", None))

    def cell(self, index: int, name: str) -> Source:
        """A cell of a function's closure."""
        return Source(f"{{0}}.__closure__[{index}]", (self,), written=name, step=("cell", index))

    def default(self, index: int) -> Source:
        """A default value of a function."""
        return self.derive(f"{{0}}.__defaults__[{index}]", step=("default", index))

    def way(self) -> Iterator[Source]:
        """What it is read from, step by step, beginning with itself."""
        source: Source | None = self
        while source is not None:
            yield source
            source = source.bases[0] if source.bases else None

    def code(self) -> Source:
        """The code of a function."""
        return self.derive("{0}.__code__", step=("code", None))

    def class_attr(self, name: str) -> Source:
        """An attribute of a class that is read as it lies there: no descriptor."""
        return Source(self.attr(name).template, (self,), step=("class", name))

    def contents(self) -> Source:
        """What a cell holds."""
        return self.derive("{0}.cell_contents", step=("contents", None))

    def render(self, constant_name: Callable[[Any], str], cache: dict[Source, str] | None = None) -> str:
        """The Python expression; `constant_name` gives constants their names, `cache` holds known sub-expressions."""
        if cache is not None and self in cache:
            return cache[self]
        if self.is_constant:
            return constant_name(self.constant)
        return self.template.format(*(base.render(constant_name, cache) for base in self.bases))

    def __str__(self) -> str:
        if self._text is None:
            self._text = _show_constant(self.constant) if self.is_constant else self.template.format(*map(str, self.bases))
        return self._text

    @property
    def words(self) -> str:
        """The expression as the program would write it."""
        if self.written or self.is_constant:
            return self.written or _show_constant(self.constant)
        if self.template == "{0}.__self__" and self.bases[0].words.endswith(".__exit__"):    # as the stack has it in a with block
            return self.bases[0].words.removesuffix(".__exit__")
        return _PLUMBING.sub(r".\1", self.template.format(*(base.words for base in self.bases))).replace(".cell_contents", "")


_PLUMBING = re.compile(r"\.(?:__dict__|_modules|_parameters|_buffers)\['(\w+)'\]")


def braced(text: str) -> str:
    """Text as part of a template."""
    return text.replace("{", "{{").replace("}", "}}")


def _show_constant(value: Any) -> str:
    return getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or f"<{type(value).__name__}>"


def is_literal(value: Any) -> bool:
    """Does `repr` print it as an expression that gives the same value?"""
    if value is None or type(value) in (bool, int, str, bytes) or value is ...:
        return True
    if type(value) is float:
        return value == value and value not in (float("inf"), float("-inf"))
    return type(value) is tuple and all(map(is_literal, value))


FUNCTION = Source("__function")
"""The function whose frame is replaced."""


def argument_source(index: int, name: str, written: str = "") -> Source:
    """An argument of the frame."""
    given = argument_name(index, name)
    return Source(given, written=written or (name if name != given and name.isidentifier() else ""))


def argument_name(index: int, name: str) -> str:
    """What generated functions call an argument of the frame: by its own name, unless that is odd (`.0` of comprehensions), may be one
    that they give (all of these begin with an underscore) or is a builtin function's, which they may call. What is known of an argument
    by its name holds for functions in which it has another place."""
    if not name.isidentifier():
        return f"_argument{index}"
    return f"_argument_{name}" if name.startswith("_") or hasattr(builtins, name) else name


def opposite(source: Source) -> Source:
    """The number with the other sign."""
    return source.derive("(-{0})")


def constant_source(value: Any, *, trusted: bool = False) -> Source:
    """An object that the compiled entry keeps alive."""
    return Source("{constant}", constant=value, is_constant=True, trusted=trusted)
