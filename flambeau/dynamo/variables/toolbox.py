"""Functions of operator, functools, itertools and inspect: more entries of the table of `builtins.py`."""

from __future__ import annotations

import bisect
import builtins
import functools
import heapq
import importlib.util
import inspect
import itertools
import operator
import re
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from ...core.tensor import Tensor
from ..break_kinds import graph_break
from ..typed import Trace, Writer
from .base import NONE, Args, ConstantVariable, Kwargs, Variable, call_handler, is_none
from .builtins import HANDLERS, handles
from .functions import MethodVariable, PartialVariable
from .sequences import IteratorVariable, TupleVariable
from .tensor import SymVariable

for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift"):
    for _op in (getattr(operator, _name), getattr(operator, "i" + _name.rstrip("_"))):
        HANDLERS[_op] = lambda tx, left, right, *, op=_op: tx.binary(op, left, right)
for _op in (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge):
    HANDLERS[_op] = lambda tx, left, right, *, op=_op: tx.compare(op, left, right)
for _op in (operator.neg, operator.pos, operator.invert, operator.abs):
    HANDLERS[_op] = lambda tx, value, *, op=_op: tx.unary(op, value)
HANDLERS[operator.inv] = HANDLERS[operator.invert]
for _op, _sum in ((operator.concat, operator.add), (operator.iconcat, operator.iadd)):
    HANDLERS[_op] = lambda tx, left, right, *, op=_op, sum=_sum: _joined(tx, op, sum, left, right)
HANDLERS[operator.not_] = lambda tx, value: tx.logical_not(value)
HANDLERS[operator.truth] = lambda tx, value: ConstantVariable(tx.truth(value))
HANDLERS[operator.is_] = lambda tx, left, right: ConstantVariable(tx.is_same(left, right))
HANDLERS[operator.is_not] = lambda tx, left, right: ConstantVariable(not tx.is_same(left, right))
HANDLERS[operator.getitem] = lambda tx, owner, key: tx.item(owner, key)
HANDLERS[operator.contains] = lambda tx, owner, key: ConstantVariable(owner.contains(tx, key))
HANDLERS[operator.setitem] = lambda tx, owner, key, value: owner.set_item(tx, key, value) or NONE
HANDLERS[operator.delitem] = lambda tx, owner, key: owner.del_item(tx, key) or NONE
HANDLERS[operator.call] = lambda tx, function, *args, **kwargs: tx.call(function, list(args), kwargs)
HANDLERS[operator.countOf] = lambda tx, owner, value: ConstantVariable(sum(tx.same_or_equal(item, value) for item in tx.iterate(owner)))


def _joined(tx: Trace, op: Callable, sum: Callable, left: Variable, right: Variable) -> Variable:
    """A sum of sequences; numbers, tensors and the like are none."""
    for value in (left, right):
        if not hasattr(value.python_type(), "__getitem__") or issubclass(value.python_type(), (dict, Tensor)):
            graph_break("call of C function", f"operator.{op.__name__}() of {value.describe()}")
    return tx.binary(sum, left, right)


@handles(operator.indexOf)
def _operator_index_of(tx: Trace, owner: Variable, value: Variable) -> Variable:
    for i, item in enumerate(tx.iterate(owner)):
        if tx.same_or_equal(item, value):
            return ConstantVariable(i)
    tx.raise_(ValueError, "sequence.index(x): x not in sequence")


@handles(operator.length_hint)
def _length_hint(tx: Trace, owner: Variable, default: Variable | None = None) -> Variable:
    if not hasattr(owner.python_type(), "__len__"):
        graph_break("call of C function", f"operator.length_hint() of {owner.describe()}")
    return owner.length(tx)


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


@handles(builtins.__build_class__)
def _class_statement(tx: Trace, body: Variable, name: Variable, *bases: Variable, **kwargs: Variable) -> Variable:
    graph_break("call of C function", f"the class statement {tx.known(name)}", "Each time that it runs it makes a new class.")


@handles(functools.partial)
def _partial(tx: Trace, function: Variable, *args: Variable, **kwargs: Variable) -> Variable:
    if isinstance(function, PartialVariable) and function.is_plain(tx):  # a partial of a partial is one
        return PartialVariable(function.function, [*function.args, *args], {**function.kwargs, **kwargs})
    return PartialVariable(function, list(args), kwargs)


@handles(sys.exc_info)
def _exc_info(tx: Trace) -> Variable:
    handled = tx.handled_exception()
    if handled is None:
        tx.callers_handle_nothing()
        return TupleVariable([NONE, NONE, NONE])
    return TupleVariable([tx.class_variable(handled.python_type()), handled, tx.attr(handled, "__traceback__")])


@handles(sys.exception)
def _exception(tx: Trace) -> Variable:
    handled = tx.handled_exception()
    if handled is None:
        tx.callers_handle_nothing()
    return handled or NONE


@handles(functools.reduce)
def _reduce(tx: Trace, function: Variable, values: Variable, start: Variable | None = None) -> Variable:
    elements = tx.iterate(values)
    total = start if start is not None else next(elements, None)
    if total is None:
        tx.raise_(TypeError, "reduce() of empty iterable with no initial value")
    for element in elements:
        total = tx.call(function, [total, element], {})
    return total


def _lazily(function: Any, elements: Callable[..., Any]) -> None:
    """A function whose iterator over variables is made by `elements(tx, *args, **kwargs)`."""
    def handler(tx: Trace, *args: Variable, **kwargs: Variable) -> Variable:
        made: Any = call_handler(elements, function.__name__, tx, *args, **kwargs)
        return IteratorVariable(made, function if isinstance(function, type) else itertools.chain)

    HANDLERS[function] = handler


def _test(tx: Trace, predicate: Variable) -> Callable[[Variable], bool]:
    return lambda value: tx.truth(value if is_none(predicate) else tx.call(predicate, [value], {}))


_ZERO, _ONE = ConstantVariable(0), ConstantVariable(1)
_lazily(itertools.chain, lambda tx, *iterables: (e for iterable in iterables for e in tx.iterate(iterable)))
_lazily(itertools.chain.from_iterable, lambda tx, rows: (e for iterable in tx.iterate(rows) for e in tx.iterate(iterable)))
_lazily(itertools.islice, lambda tx, values, *bounds: tx.checked(itertools.islice, tx.iterate(values), *map(tx.known, bounds)))
_lazily(itertools.count, lambda tx, start=_ZERO, step=_ONE: map(ConstantVariable, itertools.count(tx.known(start), tx.known(step))))
_lazily(itertools.repeat, lambda tx, object, times=None: itertools.repeat(object, *(() if times is None else (tx.index(times),))))
_lazily(itertools.cycle, lambda tx, values: itertools.cycle(tx.iterate(values)))
_lazily(itertools.starmap, lambda tx, function, rows: (tx.call(function, list(tx.iterate(row)), {}) for row in tx.iterate(rows)))
_lazily(itertools.takewhile, lambda tx, predicate, values: itertools.takewhile(_test(tx, predicate), tx.iterate(values)))
_lazily(itertools.dropwhile, lambda tx, predicate, values: itertools.dropwhile(_test(tx, predicate), tx.iterate(values)))
_lazily(itertools.filterfalse, lambda tx, predicate, values: itertools.filterfalse(_test(tx, predicate), tx.iterate(values)))
_lazily(itertools.compress, lambda tx, data, selectors: itertools.compress(tx.iterate(data), map(tx.truth, tx.iterate(selectors))))


@handles(itertools.accumulate)
def _accumulate(tx: Trace, values: Variable, func: Variable = NONE, *, initial: Variable = NONE) -> Variable:
    def combine(left: Variable, right: Variable) -> Variable:
        return tx.binary(operator.add, left, right) if is_none(func) else tx.call(func, [left, right], {})

    start = None if is_none(initial) else initial
    return IteratorVariable(itertools.accumulate(tx.iterate(values), combine, initial=start), itertools.accumulate)


@handles(itertools.zip_longest)
def _zip_longest(tx: Trace, *iterables: Variable, fillvalue: Variable = NONE) -> Variable:
    rows = itertools.zip_longest(*(tx.iterate(i) for i in iterables), fillvalue=fillvalue)
    return IteratorVariable((TupleVariable(list(row)) for row in rows), itertools.zip_longest)


def _combinatorial(function: Any) -> Callable[..., Variable]:
    def handler(tx: Trace, *args: Variable, **kwargs: Variable) -> Variable:
        counts = [isinstance(a, ConstantVariable) and isinstance(a.value, (int, type(None))) for a in args]
        plain = [tx.known(a) if counted else list(tx.iterate(a)) for a, counted in zip(args, counts, strict=True)]
        known = {name: value.as_constant() for name, value in kwargs.items()}
        return IteratorVariable((TupleVariable(list(row)) for row in function(*plain, **known)), function)

    return handler


for _function in (itertools.product, itertools.combinations, itertools.permutations, itertools.pairwise,
                  itertools.combinations_with_replacement):  # fmt: skip
    HANDLERS[_function] = _combinatorial(_function)


if sys.version_info >= (3, 12):

    def _batched(tx: Trace, values: Variable, n: Variable, *, strict: Variable | None = None) -> Iterator[Variable]:
        size = tx.index(n)
        tx.checked(itertools.batched, (), size)
        taken = tx.iterate(values)

        def batches() -> Iterator[Variable]:
            while batch := list(itertools.islice(taken, size)):
                if strict is not None and len(batch) < size and tx.truth(strict):
                    tx.raise_(ValueError, "batched(): incomplete batch")
                yield TupleVariable(batch)

        return batches()

    _lazily(itertools.batched, _batched)


@handles(itertools.groupby)
def _groupby(tx: Trace, values: Variable, key: Variable | None = None) -> Variable:
    """The groups are taken at once, so that they stay valid when the next one is asked for."""

    def groups() -> Iterator[Variable]:
        current: Variable | None = None
        members: Args = []
        for value in tx.iterate(values):
            found = value if key is None or is_none(key) else tx.call(key, [value], {})
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


@functools.cache
def _in_python(name: str) -> dict[str, Any]:
    """A module of the standard library without what it imports from C: its functions as they are written in Python."""

    def imported(wanted: str, *args: Any, **kwargs: Any) -> Any:
        if wanted == f"_{name}":
            raise ImportError(wanted)
        return __import__(wanted, *args, **kwargs)

    spec: Any = importlib.util.find_spec(name)
    scope = {"__name__": name, "__builtins__": {**vars(builtins), "__import__": imported}}
    exec(spec.loader.get_code(name), scope)
    return {**scope, "__builtins__": builtins}


def _traced(function: types.BuiltinFunctionType, module: types.ModuleType) -> Callable[..., Variable]:
    def handler(tx: Trace, *args: Variable, **kwargs: Variable) -> Variable:
        return tx.call(tx.trusted(_in_python(module.__name__)[function.__name__]), list(args), kwargs)

    return handler


for _module in (bisect, heapq):
    HANDLERS.update({f: _traced(f, _module) for f in vars(_module).values() if isinstance(f, types.BuiltinFunctionType)})


def _of_text(function: Any) -> Callable[..., Variable]:
    def handler(tx: Trace, *args: Variable, **kwargs: Variable) -> Variable:
        if not all(isinstance(arg, ConstantVariable) for arg in (*args, *kwargs.values())):
            graph_break("call of skipped function", f"re.{function.__name__}() of something else than text")
        return tx.fold(function, list(args), kwargs)

    return handler


HANDLERS.update({function: _of_text(function) for function in (
    re.compile, re.match, re.search, re.fullmatch, re.sub, re.subn, re.split, re.findall, re.finditer, re.escape)})


class ItemGetter(Variable):
    """`operator.itemgetter(...)` or `operator.attrgetter(...)`."""

    def __init__(self, kind: Any, keys: Args) -> None:
        self.kind, self.keys = kind, keys

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
        return w.fetch(self.source) if self.source is not None else w.call(w.constant(self.kind), self.keys, {})


class MethodCaller(Variable):
    """`operator.methodcaller(name, *args, **kwargs)`."""

    kind: Any = operator.methodcaller

    def __init__(self, tx: Trace, name: Variable, *args: Variable, **kwargs: Variable) -> None:
        self.name, self.args, self.kwargs = name, args, kwargs

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        return tx.call(tx.attr(args[0], tx.known(self.name)), list(self.args), self.kwargs)

    def build(self, w: Writer) -> str:
        return w.fetch(self.source) if self.source is not None else w.call(w.constant(self.kind), (self.name, *self.args), self.kwargs)


HANDLERS[operator.methodcaller] = MethodCaller
HANDLERS[operator.itemgetter] = lambda tx, *keys: ItemGetter(operator.itemgetter, list(keys))
HANDLERS[operator.attrgetter] = lambda tx, *keys: ItemGetter(operator.attrgetter, list(keys))
