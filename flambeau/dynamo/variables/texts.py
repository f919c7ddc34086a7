"""Texts that nothing has read: given to the frame, or made of numbers that change from call to call."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

from ..source import Source, constant_source
from ..typed import Trace, Writer
from .base import Args, ConstantVariable, NotConstant, Variable
from .sequences import SizeVariable, TupleVariable
from .tensor import SymVariable

_AWKWARD: dict[type, tuple[Any, ...]] = {int: (-1, 1 << 62), float: (math.nan, -math.inf)}
"""Numbers for which a function of text that takes all numbers doesn't raise: `"%c"` or `"%d"` may."""
_MAKERS = frozenset((format, str, repr, ascii, hex, bin, oct, operator.add, operator.iadd, operator.mod, operator.imod, str.format, str.join))
_METHODS = frozenset(("format", "join"))


class UnreadText(ConstantVariable):
    """A text that the frame was given: guarded once somebody reads it, and not where it is only passed on."""

    def __init__(self, tx: Any, text: str | bytes, source: Source | None) -> None:
        self.tx, self.text, self.source = tx, text, source
        self.is_read = False

    @property
    def value(self) -> Any:
        if not self.is_read:
            self.read()
            self.is_read = True
        return self.text

    def read(self) -> None:
        """Somebody asks for the letters."""
        assert self.source is not None
        self.tx.guard("{0} == {1}", self.source, constant_source(self.text))

    def python_type(self) -> type:
        return type(self.text)

    def describe(self) -> str:
        return super().describe() if self.is_read or self.source is None else f"text {self.source.words}"

    def build(self, w: Any) -> str:
        return super().build(w) if self.is_read else str(w.fetch(self.source))


class MadeText(UnreadText):
    """What a function makes of numbers that change, and of texts of them (`f"step {n}"`): called after the graph, where the text leaves
    the frame. Whoever reads it fixes the numbers."""

    def __init__(self, tx: Any, function: Callable[..., str], args: Args) -> None:
        super().__init__(tx, "", None)
        self.function, self.args = function, args

    def read(self) -> None:
        self.text = self.tx.checked(self.function, *map(self.tx.plain_text, self.args))

    def describe(self) -> str:
        return super().describe() if self.is_read else f"a text of {' and '.join(arg.describe() for arg in self.args if _is_open(arg))}"

    def build(self, w: Writer) -> str:
        return super().build(w) if self.is_read else w.call(w.constant(self.function), self.args, {})


def text_of(tx: Trace, function: Callable[..., Any], args: Iterable[Variable]) -> MadeText | None:
    """A pure function of numbers that change, or of unread texts, that gives a text whatever these are; None for any other."""
    if not (function in _MAKERS or (getattr(function, "__name__", "") in _METHODS and type(getattr(function, "__self__", None)) is str)):
        return None
    given = [arg.realize(tx) for arg in args]
    if not any(map(_is_open, given)) or (isinstance(given[0], UnreadText) and function in (operator.mod, operator.imod, str.format, str.join)):
        return None
    try:
        made = [function(*(_example(arg, which) for arg in given)) for which in range(2)]
    except (ArithmeticError, ValueError, TypeError, LookupError, NotConstant):
        return None
    return MadeText(tx, function, given) if all(type(text) is str for text in made) else None


def _is_open(variable: Variable) -> bool:
    """Is it, or is there in it, what no guard has fixed?"""
    if type(variable) in (TupleVariable, SizeVariable):
        return any(map(_is_open, variable.items))      # type: ignore[attr-defined]
    return isinstance(variable, SymVariable) or (isinstance(variable, UnreadText) and not variable.is_read)


def _example(variable: Variable, which: int) -> Any:
    """A value that it could have; NotConstant for what capture doesn't know."""
    if isinstance(variable, SymVariable):
        values = _AWKWARD.get(variable.python_type())
        if values is None:
            raise NotConstant(variable)
        return values[which]
    if isinstance(variable, MadeText) and not variable.is_read:
        return variable.function(*(_example(arg, which) for arg in variable.args))
    if isinstance(variable, UnreadText):
        return variable.text
    if type(variable) in (TupleVariable, SizeVariable):
        return tuple(_example(item, which) for item in variable.items)     # type: ignore[attr-defined]
    return variable.as_constant()
