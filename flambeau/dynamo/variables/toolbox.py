"""Functions of operator, functools, itertools and inspect: more entries of the table of `builtins.py`."""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
import sys
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..break_kinds import graph_break
from .base import Args, ConstantVariable, Kwargs, Variable
from .builtins import HANDLERS, handles
from .functions import MethodVariable, PartialVariable
from .sequences import IteratorVariable, TupleVariable
from .tensor import SymVariable

if TYPE_CHECKING:
    from ..replacement import Writer
    from ..trace import Trace

_NONE = ConstantVariable(None)


def _binary_handler(op: Callable[[Any, Any], Any]) -> Callable[..., Variable]:
    return lambda tx, left, right: tx.binary(op, left, right)


def _compare_handler(op: Callable[[Any, Any], Any]) -> Callable[..., Variable]:
    return lambda tx, left, right: tx.compare(op, left, right)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift"):
    HANDLERS[getattr(operator, _name)] = _binary_handler(getattr(operator, _name))
    HANDLERS[getattr(operator, "i" + _name.rstrip("_"))] = _binary_handler(getattr(operator, "i" + _name.rstrip("_")))
for _name in ("lt", "le", "eq", "ne", "gt", "ge"):
    HANDLERS[getattr(operator, _name)] = _compare_handler(getattr(operator, _name))
for _name in ("neg", "pos", "invert"):
    HANDLERS[getattr(operator, _name)] = functools.partial(
        lambda op, tx, value: tx.unary(op, value), getattr(operator, _name)
    )
HANDLERS[operator.not_] = lambda tx, value: tx.logical_not(value)
HANDLERS[operator.truth] = lambda tx, value: ConstantVariable(tx.truth(value))
HANDLERS[operator.is_] = lambda tx, left, right: ConstantVariable(tx.is_same(left, right))
HANDLERS[operator.is_not] = lambda tx, left, right: ConstantVariable(not tx.is_same(left, right))
HANDLERS[operator.getitem] = lambda tx, owner, key: tx.item(owner, key)
HANDLERS[operator.contains] = lambda tx, owner, key: ConstantVariable(owner.contains(tx, key))
HANDLERS[operator.setitem] = lambda tx, owner, key, value: owner.set_item(tx, key, value) or _NONE


@handles(operator.index)
def _operator_index(tx: Trace, value: Variable) -> Variable:
    return value if isinstance(value, SymVariable) else tx.fold(operator.index, [value])


@handles(inspect.signature)
def _signature(tx: Trace, function: Variable, **kwargs: Variable) -> Variable:
    owner = function.owner if isinstance(function, MethodVariable) else None
    real = getattr(function.function if isinstance(function, MethodVariable) else function, "function", None)
    if real is None:
        graph_break("call of C function", f"inspect.signature({function.describe()})")
    return ConstantVariable(inspect.signature(types.MethodType(real, object()) if owner is not None else real))


@handles(functools.partial)
def _partial(tx: Trace, function: Variable, *args: Variable, **kwargs: Variable) -> Variable:
    if isinstance(function, PartialVariable) and not function.written:  # a partial of a partial is one
        return PartialVariable(function.function, [*function.args, *args], {**function.kwargs, **kwargs})
    return PartialVariable(function, list(args), kwargs)


@handles(sys.exc_info)
def _exc_info(tx: Trace) -> Variable:
    if any(frame.handling for frame in tx.frames):
        graph_break("frame inspection", "sys.exc_info() while an exception is handled")
    _callers_handle_nothing(tx)
    return TupleVariable([_NONE, _NONE, _NONE])


@handles(sys.exception)
def _exception(tx: Trace) -> Variable:
    handled = next((frame.handling[-1] for frame in reversed(tx.frames) if frame.handling), None)
    if handled is None:
        _callers_handle_nothing(tx)
    return handled or _NONE


def _callers_handle_nothing(tx: Trace) -> None:
    """The function may be called from an except block."""
    if sys.exc_info()[1] is not None:
        graph_break("frame inspection", "sys.exc_info() while a caller handles an exception")
    tx.guard("{0}.exc_info()[1] is None", tx.module_source(sys), reason="exceptions that callers handle")


@handles(functools.reduce)
def _reduce(tx: Trace, function: Variable, values: Variable, start: Variable | None = None) -> Variable:
    elements = tx.iterate(values)
    total = start if start is not None else next(elements, None)
    if total is None:
        tx.raise_(TypeError, "reduce() of empty iterable with no initial value")
    for element in elements:
        total = tx.call(function, [total, element], {})
    return total


@handles(itertools.chain)
def _chain(tx: Trace, *iterables: Variable) -> Variable:
    return IteratorVariable((element for iterable in iterables for element in tx.iterate(iterable)), itertools.chain)


@handles(itertools.chain.from_iterable)
def _chain_from(tx: Trace, iterables: Variable) -> Variable:
    return IteratorVariable((e for iterable in tx.iterate(iterables) for e in tx.iterate(iterable)), itertools.chain)


@handles(itertools.islice)
def _islice(tx: Trace, values: Variable, *bounds: Variable) -> Variable:
    limits = [bound.as_constant() for bound in bounds]
    return IteratorVariable(itertools.islice(tx.iterate(values), *limits), itertools.islice)


@handles(itertools.count)
def _count(tx: Trace, start: Variable = ConstantVariable(0), step: Variable = ConstantVariable(1)) -> Variable:
    numbers = itertools.count(start.as_constant(), step.as_constant())
    return IteratorVariable(map(ConstantVariable, numbers), itertools.count)


@handles(itertools.repeat)
def _repeat(tx: Trace, value: Variable, times: Variable | None = None) -> Variable:
    repeated = itertools.repeat(value) if times is None else itertools.repeat(value, tx.index(times))
    return IteratorVariable(repeated, itertools.repeat)


@handles(itertools.accumulate)
def _accumulate(tx: Trace, values: Variable, function: Variable | None = None) -> Variable:
    def combine(left: Variable, right: Variable) -> Variable:
        return tx.binary(operator.add, left, right) if function is None else tx.call(function, [left, right], {})

    return IteratorVariable(itertools.accumulate(tx.iterate(values), combine), itertools.accumulate)


@handles(itertools.zip_longest)
def _zip_longest(tx: Trace, *iterables: Variable, fillvalue: Variable = _NONE) -> Variable:
    rows = itertools.zip_longest(*(tx.iterate(i) for i in iterables), fillvalue=fillvalue)
    return IteratorVariable((TupleVariable(list(row)) for row in rows), itertools.zip_longest)


def _combinatorial(function: Any) -> Callable[..., Variable]:
    def handler(tx: Trace, *args: Variable, **kwargs: Variable) -> Variable:
        plain = [list(tx.iterate(a)) if not isinstance(a, ConstantVariable) or isinstance(a.value, str) else a.value for a in args]
        known = {name: value.as_constant() for name, value in kwargs.items()}
        return IteratorVariable((TupleVariable(list(row)) for row in function(*plain, **known)), function)

    return handler


for _function in (itertools.product, itertools.combinations, itertools.permutations, itertools.pairwise,
                  itertools.combinations_with_replacement):  # fmt: skip
    HANDLERS[_function] = _combinatorial(_function)


@handles(itertools.groupby)
def _groupby(tx: Trace, values: Variable, key: Variable | None = None) -> Variable:
    """The groups are taken at once, so that they stay valid when the next one is asked for."""

    def groups() -> Iterator[Variable]:
        current: Variable | None = None
        members: Args = []
        for value in tx.iterate(values):
            found = value if key is None or _is_none(key) else tx.call(key, [value], {})
            if current is not None and not tx.same_or_equal(current, found):
                yield TupleVariable([current, IteratorVariable(iter(members), itertools.groupby)])
                members, current = [], None
            current = found if current is None else current
            members.append(value)
        if current is not None:
            yield TupleVariable([current, IteratorVariable(iter(members), itertools.groupby)])

    return IteratorVariable(groups(), itertools.groupby)


@handles(itertools.tee)
def _tee(tx: Trace, values: Variable, n: Variable = ConstantVariable(2)) -> Variable:
    copies = itertools.tee(tx.iterate(values), tx.index(n))
    return TupleVariable([IteratorVariable(copy, itertools.tee) for copy in copies])  # type: ignore[arg-type]


@handles(itertools.compress)
def _compress(tx: Trace, values: Variable, selectors: Variable) -> Variable:
    pairs = zip(tx.iterate(values), tx.iterate(selectors), strict=False)
    return IteratorVariable((value for value, wanted in pairs if tx.truth(wanted)), itertools.compress)


@handles(itertools.filterfalse)
def _filterfalse(tx: Trace, predicate: Variable, values: Variable) -> Variable:
    def verdict(value: Variable) -> Variable:
        return value if _is_none(predicate) else tx.call(predicate, [value], {})

    return IteratorVariable((value for value in tx.iterate(values) if not tx.truth(verdict(value))), itertools.filterfalse)


@handles(itertools.cycle)
def _cycle(tx: Trace, values: Variable) -> Variable:
    return IteratorVariable(itertools.cycle(tx.iterate(values)), itertools.cycle)


def _is_none(variable: Variable) -> bool:
    return isinstance(variable, ConstantVariable) and variable.value is None


@handles(itertools.starmap)
def _starmap(tx: Trace, function: Variable, rows: Variable) -> Variable:
    return IteratorVariable((tx.call(function, list(tx.iterate(row)), {}) for row in tx.iterate(rows)), itertools.starmap)


@handles(itertools.takewhile)
def _takewhile(tx: Trace, predicate: Variable, values: Variable) -> Variable:
    test = functools.partial(_holds, tx, predicate)
    return IteratorVariable(itertools.takewhile(test, tx.iterate(values)), itertools.takewhile)


@handles(itertools.dropwhile)
def _dropwhile(tx: Trace, predicate: Variable, values: Variable) -> Variable:
    test = functools.partial(_holds, tx, predicate)
    return IteratorVariable(itertools.dropwhile(test, tx.iterate(values)), itertools.dropwhile)


def _holds(tx: Trace, predicate: Variable, value: Variable) -> bool:
    return tx.truth(tx.call(predicate, [value], {}))


class ItemGetter(Variable):
    """`operator.itemgetter(...)` or `operator.attrgetter(...)`."""

    def __init__(self, kind: Any, keys: Args) -> None:
        self.kind, self.keys = kind, keys

    def python_type(self) -> type:
        return self.kind

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        found = [self._get(tx, args[0], key) for key in self.keys]
        return found[0] if len(found) == 1 else TupleVariable(found)

    def _get(self, tx: Trace, owner: Variable, key: Variable) -> Variable:
        if self.kind is operator.itemgetter:
            return tx.item(owner, key)
        for part in tx.known(key).split("."):
            owner = tx.attr(owner, part)
        return owner

    def build(self, w: Writer) -> str:
        return f"{w.constant(self.kind)}({', '.join(map(w.value, self.keys))})"


HANDLERS[operator.itemgetter] = lambda tx, *keys: ItemGetter(operator.itemgetter, list(keys))
HANDLERS[operator.attrgetter] = lambda tx, *keys: ItemGetter(operator.attrgetter, list(keys))
