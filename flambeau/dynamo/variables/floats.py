"""Floats that change from call to call, such as a loss that is summed up."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from .. import policy
from ..break_kinds import graph_break
from ..source import Source
from .base import ConstantVariable, Variable
from .tensor import SymVariable

if TYPE_CHECKING:
    from ..replacement import Writer
    from ..trace import Trace

_SYMBOLS = {operator.add: "+", operator.sub: "-", operator.mul: "*", operator.iadd: "+", operator.isub: "-", operator.imul: "*"}
"""What never raises for floats, so that it may be done after the graph."""


class FloatVariable(SymVariable):
    """A float whose value nothing has asked for: sums and products of it are computed by Python, after the graph. An operator on a
    tensor that takes it fixes its value by a guard; what else needs the value is done between two graphs."""

    kind: Any = float

    def __init__(self, tx: Trace, example: float, source: Source) -> None:
        self.tx, self.example, self.source = tx, example, source

    @property
    def value(self) -> Any:
        return self.specialize()

    def python_type(self) -> type:
        return float

    def describe(self) -> str:
        return f"a float that changes, {self.source}" if self.source is not None else "a float that changes"

    def specialize(self) -> float:
        assert self.source is not None
        self.tx.guard_number(self.source, self.example)
        return self.example

    def known(self, tx: Trace, what: str) -> ConstantVariable:
        """The value: fixed for libraries, whose loops are better left whole; in the user's code `what` is done between two graphs."""
        if not policy.is_trusted(tx.frames[-1].globals.get("__name__")):
            graph_break("unknown operation", f"{what} of {self.describe()}")
        return ConstantVariable(self.specialize())

    def truth(self, tx: Trace) -> bool:
        return bool(self.known(tx, "truth value").value)

    def binary(self, tx: Trace, op: Any, other: Variable, reflected: bool) -> Variable | None:
        number = isinstance(other, ConstantVariable) and isinstance(other.value, (int, float))
        if not number and not isinstance(other, SymVariable):
            return None
        if op not in _SYMBOLS:
            value = self.known(tx, f"{op.__name__}()")
            return tx.binary(op, other, value) if reflected else tx.binary(op, value, other)
        return FloatExpression(tx, _SYMBOLS[op], *((other, self) if reflected else (self, other)))

    def build(self, w: Writer) -> str:
        return w.fetch(self.source)


class FloatExpression(FloatVariable):
    """The sum, difference or product of numbers of which one changes."""

    source = None

    def __init__(self, tx: Trace, symbol: str, left: Variable, right: Variable) -> None:
        self.tx, self.symbol, self.left, self.right = tx, symbol, left, right

    def specialize(self) -> float:
        left, right = self.tx.constant_of(self.left), self.tx.constant_of(self.right)
        return float({"+": operator.add, "-": operator.sub, "*": operator.mul}[self.symbol](left, right))

    def build(self, w: Writer) -> str:
        return w.bind(f"{w.value(self.left)} {self.symbol} {w.value(self.right)}")
