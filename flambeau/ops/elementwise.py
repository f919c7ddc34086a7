"""Whether what an operator does is of single elements: its steps say so, for tensor classes that compute with their data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ..core import dispatch
from .registry import PRIMITIVES, CompositeRecord

_AS_IS = ("alias", "clone", "copy_into", "expand")     # steps that leave each element where it is


class Elementwise:
    """A mode in which all steps have to be of single elements; `refuse(name, step)` raises for another one of the operator `name`. Constants
    may differ from place to place (`triu` multiplies by some) only where the data lie in the places of what they stand for: `in_place`."""

    def __init__(self, name: str, refuse: Callable[[str, str], NoReturn], in_place: bool = True) -> None:
        self.name, self.refuse, self.in_place = name, refuse, in_place
        self.constants: list[Any] = []      # what factories made, which may be turned as the operand lies

    def handle(self, prim: Any, args: tuple) -> Any:
        """The step, if it is one; the parts of a whole operator are looked at one by one."""
        if isinstance(prim, CompositeRecord):
            with dispatch.push_mode(self):
                return prim.fn(*args)
        constant = "factory" in prim.tags or ("view" in prim.tags and any(args[0] is made for made in self.constants))
        if (not constant or (prim is PRIMITIVES["iota"] and not self.in_place)) and "pointwise" not in prim.tags and prim.name not in _AS_IS:
            self.refuse(self.name, prim.name)
        out = dispatch.run(prim, args)
        if constant:
            self.constants.append(out)
        return out
