"""Whether what an operator does is of single elements: its steps say so, for tensor classes that compute with their data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ..core import dispatch
from ..core.tensor import Tensor
from .registry import PRIMITIVES, CompositeRecord

_AS_IS = ("alias", "clone", "copy_into", "expand")     # steps that leave each element where it is


class Elementwise:
    """A mode in which all steps have to be of single elements; `refuse(name, step)` raises for another one of the operator `name`. Constants
    may differ from place to place (`triu` multiplies by some) only where the data lie in the places of what they stand for: `by_place`.
    With `all_there`, of data that are all elements and no others, reductions of everything to one number are steps as well."""

    def __init__(self, name: str, refuse: Callable[[str, str], NoReturn], by_place: bool = True, all_there: bool = False) -> None:
        self.name, self.refuse, self.by_place, self.all_there = name, refuse, by_place, all_there
        self.constants: list[Any] = []      # what factories made, which may be turned as the operand lies

    def handle(self, prim: Any, args: tuple) -> Any:
        """The step, if it is one; the parts of a whole operator are looked at one by one."""
        if isinstance(prim, CompositeRecord):
            with dispatch.push_mode(self):
                return prim.fn(*args)
        constant = "factory" in prim.tags or ("view" in prim.tags and any(args[0] is made for made in self.constants))
        known = "pointwise" in prim.tags or prim.name in _AS_IS or (constant and (self.by_place or prim is not PRIMITIVES["iota"]))
        if not known and not (self.all_there and "reduction" in prim.tags):
            self.refuse(self.name, prim.name)
        out = dispatch.run(prim, args)
        if not known and (not isinstance(out, Tensor) or out.ndim):
            self.refuse(self.name, f"{prim.name} along dimensions")
        if constant:
            self.constants.append(out)
        return out
