"""`id(x)`: a number that stands for an object. What it is doesn't matter as long as it is only compared and looked up."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from ..break_kinds import graph_break
from .base import ConstantVariable, IdentityKey, Variable

if TYPE_CHECKING:
    from ..replacement import Writer
    from ..trace import Trace


class IdVariable(Variable):
    """`id(target)`. Two of them are equal if their targets are one object; where the number itself is asked for, a guard fixes it."""

    kind: Any = int

    def __init__(self, target: Variable) -> None:
        self.target = target

    def describe(self) -> str:
        return f"id({self.target.describe()})"

    def truth(self, tx: Trace) -> bool:
        return True

    def key(self) -> Any:
        return ("id", IdentityKey(self.target))

    def specialize(self, tx: Trace) -> Variable:
        """The number, for an object that exists before the frame; this very variable for one made during capture."""
        if self.target.source is None:
            return self
        found = [entry for entry, variable in tx.effects.existing() if variable is self.target]
        if not found:
            graph_break("unknown operation", f"the number {self.describe()}")
        (real,) = found
        tx.guard(f"id({{0}}) == {id(real)}", self.target.source, reason="id()")
        return ConstantVariable(id(real))

    def known(self, tx: Trace) -> Variable:
        """The number; a graph break where there is none yet."""
        found = self.specialize(tx)
        if found is self:
            graph_break("unknown operation", f"the number {self.describe()} of an object made during capture")
        return found

    def binary(self, tx: Trace, op: Any, other: Variable, reflected: bool) -> Variable | None:
        if op in (operator.eq, operator.ne) and isinstance(other, IdVariable):
            return ConstantVariable(tx.is_same(self.target, other.target) is (op is operator.eq))
        theirs = other.known(tx) if isinstance(other, IdVariable) else other
        return tx.binary(op, theirs, self.known(tx)) if reflected else tx.binary(op, self.known(tx), theirs)

    def build(self, w: Writer) -> str:
        return f"id({w.value(self.target)})"
