"""The docstring of an operator or a class: one line that is written by hand, to which the rest is composed when somebody looks."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, ClassVar


class Help(str):
    """A docstring whose text is the written line, and which the tools that show docstrings (`help`, IPython's `?`, Sphinx) find whole:
    `inspect.cleandoc` begins with `expandtabs`."""

    __slots__ = ("of",)

    compose: ClassVar[Callable[[Any, str], str]] = staticmethod(lambda of, written: written)
    """Slot that the package fills: the whole text of a function or class, of the line that is written."""

    of: Any

    def expandtabs(self, tabsize: Any = 8) -> str:
        return str(type(self).compose(self.of, str(self))).expandtabs(tabsize)


def composed(of: Any) -> Any:
    """Let the docstring of a function or class be completed when it is shown; gives the function or class."""
    if isinstance(of, (type, FunctionType)) and isinstance(of.__doc__, str):
        said = Help(of.__doc__)
        said.of = of
        of.__doc__ = said
    return of
