"""Floats that change from call to call: a learning rate under a schedule, an annealed temperature, a loss that is summed up."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.symbolic import SymFloat, SymInt, hint_of
from .. import policy
from ..break_kinds import graph_break
from ..source import Source, constant_source, is_literal
from ..typed import Trace, Writer
from .base import ConstantVariable, Variable
from .tensor import SymVariable, TensorVariable

LONGEST = 64    # operations in one expression; what goes on longer is fixed

_INFIX = {getattr(operator, prefix + name): symbol for prefix in ("", "i") for name, symbol in (
    ("add", "+"), ("sub", "-"), ("mul", "*"), ("truediv", "/"), ("floordiv", "//"), ("mod", "%"), ("pow", "**"))}
_INFIX |= {getattr(operator, name): symbol for names, symbol in (
    (("and_", "iand"), "&"), (("or_", "ior"), "|"), (("xor", "ixor"), "^"), (("lshift", "ilshift"), "<<"), (("rshift", "irshift"), ">>"))
    for name in names}
_INFIX |= {operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">="}
_TOTAL = frozenset({"+", "-", "*"}) | {operator.neg, operator.pos, operator.abs, abs, float}
"""What gives a float for any floats; others may raise, or give another type."""
_OF_MATH = frozenset(f for f in vars(math).values() if callable(f))
_FUNCTIONS = _OF_MATH | frozenset({
    operator.neg, operator.pos, operator.abs, operator.invert, abs, round, float, int, bool, min, max, pow})


class NumberVariable(SymVariable):
    """A number that changes from call to call, read from its source."""

    def __init__(self, tx: Trace, example: Any, source: Source) -> None:
        self.tx, self.example, self.source = tx, example, source

    def python_type(self) -> type:
        return type(self.example)

    def describe(self) -> str:
        assert self.source is not None
        return f"a {'float' if self.python_type() is float else 'number'} that changes, {self.source.words}"

    def build(self, w: Writer) -> str:
        return w.fetch(self.source)


class FloatVariable(NumberVariable):
    """A float whose value nothing has asked for. Tensor operators take it as an input of the graph. What is computed of it is
    computed before the graph, from its source; what that comes to, where the program looks (a comparison), is guarded."""

    kind: Any = float

    def __init__(self, tx: Trace, example: float, source: Source, terms: int = 1) -> None:
        super().__init__(tx, example, source)
        self.terms = terms

    @property
    def value(self) -> Any:
        """The variable of the graph."""
        assert self.source is not None
        return self.tx.float_input(self.source, self.example)

    def specialize(self) -> float:
        assert self.source is not None
        self.tx.guard_number(self.source, self.example)
        return self.example

    def known(self, tx: Trace, what: str) -> ConstantVariable:
        """The value: fixed where the graph has to be whole, and for libraries; in the user's code `what` is done between two graphs."""
        if tx.shapes.breaks_allowed and not policy.is_trusted(tx.frames[-1].globals.get("__name__")):
            graph_break("unknown operation", f"{what} of {self.describe()}")
        return ConstantVariable(self.specialize())

    def truth(self, tx: Trace) -> bool:
        found = of_floats(tx, bool, [self])
        assert isinstance(found, ConstantVariable)
        return bool(found.value)

    def attr(self, tx: Trace, name: str) -> Variable:
        return self if name == "real" else ConstantVariable(self.specialize()).attr(tx, name)

    def binary(self, tx: Trace, op: Any, other: Variable, reflected: bool) -> Variable | None:
        pair = [other, self] if reflected else [self, other]
        found = of_floats(tx, op, pair) if op in _INFIX else None
        if found is not None or not isinstance(other, (ConstantVariable, SymVariable)):
            return found
        return self._binary_of_value(tx, op, other, reflected)


class NumpyNumberVariable(NumberVariable):
    """A number of NumPy that changes from call to call: tensor operators take it as the Python number that it is; whatever else
    needs it fixes its value."""

    @property
    def value(self) -> Any:
        """The variable of the graph."""
        assert self.source is not None
        number, source = self.example.item(), self.source.derive("{0}.item()")
        if isinstance(number, float):
            return self.tx.float_input(source, number)
        variable = self.tx.int_input(number, source)
        return variable.value if isinstance(variable, SymVariable) else self.specialize()

    def specialize(self) -> Any:
        assert self.source is not None
        equal = "{0} == {1}" if self.example == self.example else "{0} != {0}"
        self.tx.guard(equal, self.source, constant_source(self.example))
        return self.example

    def truth(self, tx: Trace) -> bool:
        return bool(self.specialize())

    def attr(self, tx: Trace, name: str) -> Variable:
        return ConstantVariable(self.specialize()).attr(tx, name)

    def binary(self, tx: Trace, op: Any, other: Variable, reflected: bool) -> Variable | None:
        if isinstance(other, TensorVariable):
            return None
        found = of_floats(tx, op, [other, self] if reflected else [self, other]) if op in _INFIX else None
        return found if found is not None else self._binary_of_value(tx, op, other, reflected)


def of_floats(tx: Trace, function: Callable[..., Any], args: Sequence[Variable]) -> Variable | None:
    """A pure function of numbers, some of them floats that change; None where there are none, or its value has to be fixed: it raises,
    or gives no number, or the expression has become too long."""
    symbol, args = _INFIX.get(function), [arg.realize(tx) for arg in args]
    known = symbol is not None or function in _FUNCTIONS or isinstance(function, np.ufunc)
    if not known or not any(_needs(function, symbol, arg) for arg in args):
        return None
    operands = [_operand(tx, arg) for arg in args]
    terms = 1 + sum(arg.terms for arg in args if isinstance(arg, FloatVariable))
    if None in operands or terms > LONGEST:
        return None
    examples: list[Any] = []
    texts: list[str] = []
    bases: list[Source] = []
    for example, template, sources in operands:     # type: ignore[misc]
        examples.append(example)
        texts.append(template.format(*[f"{{{len(bases) + k}}}" for k in range(len(sources))]))
        bases += sources
    try:
        value = function(*examples)
    except (ArithmeticError, ValueError, TypeError):
        return None
    if symbol is None:
        texts, bases = [f"{{{len(bases)}}}({', '.join(texts)})"], [*bases, constant_source(function)]
    source = Source(f"({f' {symbol} '.join(texts)})", tuple(bases))
    return _result(tx, value, source, terms, total=(function if symbol is None else symbol) in _TOTAL)


def _needs(function: Callable[..., Any], symbol: str | None, arg: Variable) -> bool:
    """Does the function have to be computed before the graph for this argument: is it a float that changes, or one of sizes and ints
    (`step / warmup`), which the graph has arithmetic for alone?"""
    if isinstance(arg, (FloatVariable, NumpyNumberVariable)):
        return True
    if type(arg) is not SymVariable:
        return False
    of_ints = symbol is not None or function in _OF_MATH or function is operator.invert or isinstance(function, np.ufunc)
    return isinstance(arg.value, SymFloat) or (isinstance(arg.value, SymInt) and of_ints)


def _operand(tx: Trace, variable: Variable) -> tuple[Any, str, tuple[Source, ...]] | None:
    """(the example, its text over sources, these) of a number; None for anything else."""
    if isinstance(variable, (FloatVariable, NumpyNumberVariable)):
        assert variable.source is not None
        return variable.example, "{0}", (variable.source,)
    if isinstance(variable, ConstantVariable) and (type(variable.value) in (int, float, bool) or isinstance(variable.value, np.generic)):
        if is_literal(variable.value):
            return variable.value, f"({variable.value!r})", ()
        return variable.value, "{0}", (constant_source(variable.value),)
    if isinstance(variable, SymVariable) and isinstance(variable.value, SymInt):
        return hint_of(variable.value), *tx.shape_text(variable.value, 0)
    if isinstance(variable, SymVariable) and isinstance(variable.value, SymFloat):
        return hint_of(variable.value), "{0}", (tx.number_source(variable.value),)
    return None


def _result(tx: Trace, value: Any, source: Source, terms: int, total: bool) -> Variable | None:
    """The variable of what was computed of floats."""
    if isinstance(value, np.generic):
        return tx.wrap(value, source)
    if type(value) is bool:
        tx.guard(f"{{0}} is {value}", source, about="any")
        return ConstantVariable(value)
    if type(value) is int:
        if not abs(value) >> 63:
            tx.guard("not abs({0}) >> 63", source, about="any")    # a graph has integers of 64 bits
        return tx.dynamic_int(value, source, presumed=True) or tx.wrap(value, source)
    if type(value) is not float:
        return None
    if tx.is_pinned(source):
        tx.guard_number(source, value)
        return ConstantVariable(value)
    if not total:
        tx.guard("{0}.__class__ is float", source, about="any")
    return FloatVariable(tx, value, source, terms)
