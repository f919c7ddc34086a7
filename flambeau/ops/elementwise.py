"""Whether what an operator does is of single elements: its steps say so, for tensor classes that compute with their data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ..core import dispatch
from .registry import CompositeRecord

_AS_IS = ("alias", "clone", "copy_into", "expand")     # steps that leave each element where it is


class Elementwise:
    """A mode in which all steps have to be of single elements; `refuse(name, step)` raises for another one of the operator `name`."""

    def __init__(self, name: str, refuse: Callable[[str, str], NoReturn]) -> None:
        self.name, self.refuse = name, refuse

    def handle(self, prim: Any, args: tuple) -> Any:
        """The step, if it is one; the parts of a whole operator are looked at one by one."""
        if isinstance(prim, CompositeRecord):
            with dispatch.push_mode(self):
                return prim.fn(*args)
        if not {"pointwise", "factory"} & prim.tags and prim.name not in _AS_IS:
            self.refuse(self.name, prim.name)
        return dispatch.run(prim, args)
