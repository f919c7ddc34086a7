"""Numbers that stand for an object: `id(x)`, and what a counter gave. What they are doesn't matter as long as they are only compared
and looked up."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from ..break_kinds import graph_break
from ..source import Source
from ..typed import Trace, Writer
from .base import ConstantVariable, IdentityKey, Variable


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


class CountedVariable(Variable):
    """What `next(counter)` gave of an existing counter: a new number. As a key, guards tell it from the numbers that are there; whatever
    else is done to it is done to the number."""

    kind: Any = int

    def __init__(self, tx: Trace, example: int, source: Source) -> None:
        self.tx, self.example, self.source = tx, example, source

    @property
    def beneath(self) -> Variable:      # type: ignore[override]
        """The number, like one that the frame was given."""
        assert self.source is not None
        return self.tx.wrap(self.example, self.source)

    def key_among(self, keys: Iterable[Any]) -> Any:
        """Its key in a container of these."""
        numbers = [key for key in keys if isinstance(key, (int, float))]
        if self.example in numbers:
            return self.key()
        for number in numbers:
            self.differs(number)
        return IdentityKey(self)

    def differs(self, number: float) -> None:
        """A guard: it is not this one."""
        assert self.source is not None
        if number == self.example:
            graph_break("unknown operation", f"{number!r} as a key beside {self.describe()}")
        self.tx.guard(f"{{0}} != {number!r}", self.source, reason="a new number", about="any")

    def key(self) -> Any:
        return self.tx.hashable(self.beneath)

    def truth(self, tx: Trace) -> bool:
        return self.beneath.truth(tx)

    def attr(self, tx: Trace, name: str) -> Variable:
        return self.beneath.attr(tx, name)

    def has_attr(self, tx: Trace, name: str) -> bool:
        return hasattr(int, name)

    def binary(self, tx: Trace, op: Any, other: Variable, reflected: bool) -> Variable | None:
        if op in (operator.eq, operator.ne) and isinstance(other, CountedVariable) and other.source == self.source:
            return ConstantVariable(op is operator.eq)
        theirs = other.beneath or other
        return tx.binary(op, theirs, self.beneath) if reflected else tx.binary(op, self.beneath, theirs)

    def build(self, w: Writer) -> str:
        return w.fetch(self.source)


MANY = 16   # keys that a number which changes is compared with, one by one


def is_among(tx: Trace, key: Variable, keys: Iterable[Any]) -> Variable | None:
    """That of a few keys which a number is that changes from call to call, or None: guards say which it is, and which it isn't."""
    numbers = (ConstantVariable(each) for each in keys if isinstance(each, (int, float)))
    return next((number for number in numbers if tx.same_or_equal(key, number)), None)


def key_among(tx: Trace, key: Variable, owner: Variable, keys: Iterable[Any]) -> Any:
    """The key under which a container, which has these already, holds a value. One that existed before has numbers for `id(x)`."""
    if isinstance(key, CountedVariable):
        return key.key_among(keys)
    hashed = tx.hashable(key.specialize(tx) if isinstance(key, IdVariable) and owner.source is not None else key)
    for other in keys if type(hashed) in (int, float) and tx.counts else ():
        if isinstance(other, IdentityKey) and isinstance(other.variable, CountedVariable):
            other.variable.differs(hashed)
    return hashed
