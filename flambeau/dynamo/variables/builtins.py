"""Built-in functions and types: a table from the callable to a handler over variables.

A handler is called as `handler(tx, *args, **kwargs)` with variables. What is not in the table is folded when it is pure and
all arguments are known; anything else is a graph break.
"""

from __future__ import annotations

import binascii
import collections
import functools
import itertools
import math
import operator
import os
import posix
import struct
import sys
import types
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from ...core.symbolic import SymFloat, is_exact, sym_float, sym_int, sym_max, sym_min, sym_sqrt
from ...core.tables import enters
from ...core.tensor import is_inference
from ..break_kinds import graph_break
from ..typed import Trace
from .arrays import CREATION, FUNCTIONS
from .base import NONE, PLAIN_PARTS, Args, ConstantVariable, Kwargs, ValueVariable, Variable, call_handler, is_none
from .dicts import DictVariable, MappingProxyVariable, SetVariable, set_of
from .floats import NumberVariable, of_floats
from .functions import MethodVariable
from .identity import IdVariable
from .objects import ClassVariable, ObjectVariable, SuperVariable
from .sequences import (
    DequeVariable,
    IteratorVariable,
    ListVariable,
    RangeVariable,
    ReversedIterator,
    SequenceVariable,
    SliceVariable,
    TupleVariable,
    sort_variables,
)
from .tensor import SymVariable, TensorVariable

HANDLERS: dict[Any, Callable[..., Variable | None]] = {}


handles = functools.partial(enters, HANDLERS)     # `@handles(len)` registers a handler


class BuiltinVariable(ValueVariable):
    """A function written in C."""

    def describe(self) -> str:
        module = getattr(self.value, "__module__", None) or ""
        name = getattr(self.value, "__qualname__", None) or repr(self.value)
        return f"{module}.{name}" if module and module != "builtins" else name

    def attr(self, tx: Trace, name: str) -> Variable:
        return tx.literal(tx.checked(getattr, self.value, name))

    def has_attr(self, tx: Trace, name: str) -> bool:
        return hasattr(self.value, name)

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        handler = HANDLERS.get(self.value)
        if handler is not None:
            return call_modelled(tx, self.value, handler, args, kwargs)
        owner = getattr(self.value, "__self__", None)
        if self.value in PURE or isinstance(owner, (str, bytes, int, float)):
            return tx.fold(self.value, args, kwargs)
        if isinstance(self.value, (types.MethodDescriptorType, types.WrapperDescriptorType)) and args:
            return call_descriptor(tx, self.value, args, kwargs)
        if isinstance(owner, type) and isinstance(self.value, types.BuiltinMethodType):
            if owner in _DICTS and self.value.__name__ == "fromkeys":
                return call_handler(_fromkeys, self.describe(), tx, owner, *args, **kwargs)
            if all(a.is_constant() for a in args) and owner in (str, int, float, bytes, complex):
                return tx.fold(self.value, args, kwargs)
        graph_break("call of C function", f"{self.describe()}()")


LAZY = (
    enumerate, zip, map, filter, iter, itertools.chain, itertools.chain.from_iterable, itertools.islice, itertools.count,
    itertools.repeat, itertools.accumulate, itertools.zip_longest, itertools.starmap, itertools.takewhile, itertools.dropwhile,
)  # fmt: skip
"""Functions whose iterators take nothing from their arguments before they are asked."""


def call_modelled(tx: Trace, target: Any, handler: Callable[..., Variable | None], args: Args, kwargs: Kwargs) -> Variable:
    """Call a handler; a lazy iterator notes how it can be made again."""
    made = call_handler(handler, getattr(target, "__qualname__", repr(target)), tx, *args, **kwargs)
    if isinstance(made, IteratorVariable) and made.origin is None and target in LAZY:
        made.made_by(target, args, kwargs)
    return made


def call_descriptor(tx: Trace, method: Any, args: Args, kwargs: Kwargs) -> Variable:
    """`dict.__setitem__(d, k, v)`: the method of a built-in type called through the class."""
    owner, *rest = args
    if isinstance(owner, ClassVariable):
        graph_break("call of C function", f"{method.__qualname__}()")
    if isinstance(owner, ObjectVariable):
        found = owner.special_method(tx, method.__name__, method)
        if found is not None:
            return found.call(tx, rest, kwargs)
    if not isinstance(owner, ObjectVariable) and issubclass(owner.python_type(), method.__objclass__):
        handled = tx.call_slot(owner, method.__name__, rest)
        if handled is not None:
            return handled
        if method.__name__ in getattr(owner, "METHODS", (method.__name__,)):
            return owner.method(tx, method.__name__, rest, kwargs)
    graph_break("call of C function", f"{method.__qualname__}()")


_DICTS = (dict, collections.OrderedDict, collections.defaultdict)


def _fromkeys(tx: Trace, kind: type, iterable: Variable, value: Variable = NONE) -> Variable:
    made = DictVariable({}, kind)
    for key in tx.iterate(iterable):
        made.set_item(tx, key, value)
    return made


PURE: set[Any] = {
    abs, ascii, bin, bytes, chr, complex, divmod, hash, hex, oct, ord, pow, repr, round, int, float, str, bool, format,
    *(fn for fn in vars(math).values() if callable(fn)),
    str.upper, str.lower, str.join, str.format, str.split, str.strip, str.replace, str.startswith, str.endswith,
    struct.pack, struct.unpack, struct.calcsize, zlib.crc32, zlib.adler32, binascii.hexlify, binascii.unhexlify,
    str.maketrans, int.from_bytes, float.fromhex, operator.index, os.fspath, sys.intern,
    *(vars(posix)[name] for name in ("_path_normpath", "_path_splitroot_ex") if hasattr(posix, name)),
}  # fmt: skip
"""Functions of known values that may be computed during capture."""


_NO_TEXT = ConstantVariable("")
_NOTHING = TupleVariable([])
_SHORT: dict[Any, Callable[..., Variable | None]] = {
    isinstance: lambda tx, value, kind: ConstantVariable(tx.is_instance(value, kind)),
    issubclass: lambda tx, value, kind: tx.fold(issubclass, [value, kind]),
    type.__instancecheck__: lambda tx, kind, value: ConstantVariable(issubclass(value.python_type(), tx.known(kind))),
    type.__subclasscheck__: lambda tx, kind, value: tx.fold(type.__subclasscheck__, [kind, value]),
    type.__call__: lambda tx, cls, *args, **kwargs: tx.construct_plainly(tx.known(cls), list(args), kwargs),
    object.__init__: lambda tx, *args: NONE,
    tuple.__new__: lambda tx, cls, items=None: tx.new_tuple(cls.as_constant(), list(tx.iterate(items)) if items is not None else []),
    hasattr: lambda tx, owner, name: ConstantVariable(owner.has_attr(tx, tx.known(name))),
    os.getenv: lambda tx, key, default=NONE: tx.trusted(os.environ).method(tx, "get", [key, default], {}),
    len: lambda tx, value: value.length(tx),
    next: lambda tx, iterator, default=None: tx.next(iterator, default),
    sorted: lambda tx, values, *, key=None, reverse=None: ListVariable(sort_variables(tx, list(tx.iterate(values)), key, reverse)),
    any: lambda tx, values: ConstantVariable(any(tx.truth(value) for value in tx.iterate(values))),
    all: lambda tx, values: ConstantVariable(all(tx.truth(value) for value in tx.iterate(values))),
    repr: lambda tx, value: tx.text(value, repr),
    format: lambda tx, value, spec=_NO_TEXT: tx.format(value, None, spec),
    abs: lambda tx, value: tx.unary(operator.abs, value),
    setattr: lambda tx, owner, name, value: owner.set_attr(tx, tx.known(name), value),
    delattr: lambda tx, owner, name: owner.del_attr(tx, tx.known(name)),
    list: lambda tx, values=_NOTHING: ListVariable(list(tx.iterate(values))),
    collections.deque: lambda tx, values=_NOTHING, maxlen=NONE: DequeVariable(tx.iterate(values), tx.known(maxlen)),
    slice: lambda tx, *args: SliceVariable(*[*(args if len(args) > 1 else (NONE, *args)), NONE][:3]),
    range: lambda tx, *bounds: RangeVariable(tx.checked(range, *map(tx.index, bounds))),
    bool: lambda tx, value=ConstantVariable(False): ConstantVariable(tx.truth(value)),
    print: lambda tx, *args, **kwargs: graph_break("print or logging", f"print({', '.join(a.describe() for a in args)})"),
}  # fmt: skip
HANDLERS.update(_SHORT)
HANDLERS[open] = HANDLERS[print]
_REFUSED = {
    "locals(), globals(), eval(), exec() and the like": ("frame inspection", locals, globals, eval, exec, compile, dir, input, breakpoint),
    "making a property during the call": ("unknown operation", property, classmethod, staticmethod),
}
for _what, (_kind_of_break, *_targets) in _REFUSED.items():
    HANDLERS.update(dict.fromkeys(_targets, lambda tx, *args, kind=_kind_of_break, what=_what, **kwargs: graph_break(kind, what)))
for _new in (object.__new__, dict.__new__, list.__new__, collections.OrderedDict.__new__):
    HANDLERS[_new] = lambda tx, cls, *args, **kwargs: tx.allocate(cls.as_constant(), [])
for _plain in PLAIN_PARTS:
    HANDLERS[_plain.__new__] = lambda tx, cls, *args, kind=_plain, **kwargs: (
        tx.call(cls, list(args), kwargs) if cls.as_constant() is kind else tx.allocate(cls.as_constant(), list(args), kwargs))


# -- types and attributes ----------------------------------------------------------------------------------------------------
@handles(type)
def _type(tx: Trace, value: Variable, *rest: Variable) -> Variable:
    if rest:
        graph_break("call of C function", "type() that makes a new class")
    return tx.class_variable(value.python_type())


@handles(callable)
def _callable(tx: Trace, value: Variable) -> Variable:
    if isinstance(value, ObjectVariable):
        return ConstantVariable(value.special(tx, "__call__") is not None)
    return ConstantVariable("__call__" in dir(value.python_type()))


@handles(getattr)
def _getattr(tx: Trace, owner: Variable, name: Variable, default: Variable | None = None) -> Variable:
    if not isinstance(tx.known(name), str):
        tx.checked(getattr, None, tx.known(name))
    if default is None:
        return tx.attr(owner, tx.known(name))
    return owner.attr_or_none(tx, tx.known(name)) or default


@handles(is_inference)
def _is_inference(tx: Trace, input: Variable) -> Variable:
    if not isinstance(input, TensorVariable):
        tx.raise_(TypeError, "is_inference(): argument 'input' (position 1) must be Tensor")
    return input.method(tx, "is_inference", [], {})


@handles(vars)
def _vars(tx: Trace, owner: Variable | None = None) -> Variable:
    if owner is None:
        graph_break("frame inspection", "vars()")
    return tx.attr(owner, "__dict__")


@handles(id)
def _id(tx: Trace, value: Variable) -> Variable:
    if isinstance(value, ConstantVariable):
        graph_break("unknown operation", f"id() of the constant {value.describe()}")
    return IdVariable(value)


@handles(super)
def _super(tx: Trace, cls: Variable | None = None, owner: Variable | None = None) -> Variable:
    frame = tx.frames[-1]
    if cls is None:
        cell = frame.cells.get("__class__")
        if cell is None or frame.first_argument is None:
            graph_break("frame inspection", "super() without arguments")
        cls = cell.load(tx, "__class__")
        name = frame.first_argument
        owner = frame.cells[name].load(tx, name) if name in frame.cells else frame.locals[name].realize(tx)
    assert owner is not None
    return SuperVariable(cls.as_constant(), owner)


# -- iteration ---------------------------------------------------------------------------------------------------------------
@handles(iter)
def _iter(tx: Trace, value: Variable, sentinel: Variable | None = None) -> Variable:
    if sentinel is None:
        return tx.iterator(value)

    def until() -> Iterator[Variable]:
        while not tx.same_or_equal(element := tx.call(value, [], {}), sentinel):
            yield element

    return IteratorVariable(until())


@handles(enumerate)
def _enumerate(tx: Trace, values: Variable, start: Variable | None = None) -> Variable:
    first = tx.index(start) if start is not None else 0
    elements = tx.iterate(values)
    return IteratorVariable((TupleVariable([ConstantVariable(i), v]) for i, v in enumerate(elements, first)), enumerate)


@handles(zip)
def _zip(tx: Trace, *iterables: Variable, strict: Variable | None = None) -> Variable:
    sources = [tx.iterate(iterable) for iterable in iterables]
    checked = strict is not None and tx.truth(strict)

    def rows() -> Iterator[Variable]:
        while sources:
            row: list[Variable] = []
            for i, source in enumerate(sources):
                element = next(source, None)
                if element is None and not checked:
                    return
                if element is None:
                    longer = next((j for j, other in enumerate(sources) if j > i == 0 and next(other, None) is not None), 0)
                    if i or longer:
                        number, relation = (i, "shorter") if i else (longer, "longer")
                        others = f"arguments 1-{number}" if number > 1 else "argument 1"
                        tx.raise_(ValueError, f"zip() argument {number + 1} is {relation} than {others}")
                    return
                row.append(element.realize(tx))
            yield TupleVariable(row)

    return IteratorVariable(rows(), zip)


@handles(map)
def _map(tx: Trace, function: Variable, first: Variable, *rest: Variable) -> Variable:
    sources = [tx.iterate(iterable) for iterable in (first, *rest)]
    return IteratorVariable((tx.call(function, list(row), {}) for row in zip(*sources, strict=False)), map)


@handles(filter)
def _filter(tx: Trace, function: Variable, values: Variable) -> Variable:
    def kept() -> Iterator[Variable]:
        for value in tx.iterate(values):
            verdict = value if function.is_constant() and function.as_constant() is None else tx.call(function, [value], {})
            if tx.truth(verdict):
                yield value

    return IteratorVariable(kept(), filter)


@handles(reversed)
def _reversed(tx: Trace, values: Variable) -> Variable:
    if isinstance(values, ObjectVariable) and values.special(tx, "__reversed__") is not None:
        return tx.call(values.special(tx, "__reversed__"), [], {})  # type: ignore[arg-type]
    if isinstance(values, SequenceVariable):
        return ReversedIterator(values)
    if not hasattr(values.python_type(), "__reversed__") and not hasattr(values.python_type(), "__getitem__"):
        tx.raise_(TypeError, f"{values.python_type().__name__!r} object is not reversible")
    made = IteratorVariable(iter(list(tx.iterate(values))[::-1]), reversed)
    return made.made_by(reversed, [values]) if isinstance(values, RangeVariable) else made


def _total(op: Callable[[Any, Any], Any], neutral: int) -> Callable[..., Variable]:
    def handler(tx: Trace, values: Variable, start: Variable = ConstantVariable(neutral)) -> Variable:
        return functools.reduce(lambda total, value: tx.binary(op, total, value), tx.iterate(values), start)

    return handler


HANDLERS[sum], HANDLERS[math.prod] = _total(operator.add, 0), _total(operator.mul, 1)


def _extreme(plain: Callable[..., Any], better: Callable[[Any, Any], Any], symbolic: Callable[..., Any]) -> Callable[..., Variable]:
    def handler(tx: Trace, *values: Variable, key: Variable | None = None, default: Variable | None = None) -> Variable:
        items = list(tx.iterate(values[0])) if len(values) == 1 else list(values)
        key = None if key is not None and key.is_constant() and key.as_constant() is None else key
        if not items:
            if default is not None:
                return default
            return tx.checked(plain, ())  # versions of Python say it in other words
        if key is None and (found := of_floats(tx, plain, items)) is not None:
            return found
        if key is None and any(isinstance(item, SymVariable) for item in items) and all(
            isinstance(item, (SymVariable, ConstantVariable)) and not isinstance(item.value, float) for item in items
        ):
            return tx.literal(symbolic(*(item.value for item in items)))  # type: ignore[attr-defined]
        best, best_key = items[0], tx.call(key, [items[0]], {}) if key is not None else items[0]
        for item in items[1:]:
            item_key = tx.call(key, [item], {}) if key is not None else item
            if tx.truth(tx.compare(better, item_key, best_key)):
                best, best_key = item, item_key
        return best

    return handler


HANDLERS[min], HANDLERS[max] = _extreme(min, operator.lt, sym_min), _extreme(max, operator.gt, sym_max)


# -- conversions -------------------------------------------------------------------------------------------------------------
@handles(tuple)
def _tuple(tx: Trace, values: Variable | None = None) -> Variable:
    if type(values) is TupleVariable:
        return values
    return TupleVariable(list(tx.iterate(values)) if values is not None else [])


for _kind in (set, frozenset):
    HANDLERS[_kind] = lambda tx, values=None, kind=_kind: SetVariable({}, kind) if values is None else set_of(tx, values, kind)


def _make_dict(kind: type) -> Callable[..., Variable]:
    def handler(tx: Trace, *args: Variable, **kwargs: Variable) -> Variable:
        made = DictVariable({}, kind)
        if kind is collections.defaultdict and args:
            made.default_factory = None if is_none(args[0]) else args[0]
            args = args[1:]
        made.method(tx, "update", list(args), kwargs)
        return made

    return handler


HANDLERS.update({kind: _make_dict(kind) for kind in (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)})


@handles(types.SimpleNamespace)
def _simple_namespace(tx: Trace, **kwargs: Variable) -> Variable:
    made = ObjectVariable(types.SimpleNamespace)
    made.written.update(kwargs)
    return made


@handles(types.MappingProxyType)
def _mapping_proxy(tx: Trace, mapping: Variable) -> Variable:
    if isinstance(mapping, DictVariable):
        return MappingProxyVariable(mapping)
    graph_break("unknown operation", "MappingProxyType")


def _number(kind: type, special: str) -> Callable[..., Variable]:
    def handler(tx: Trace, *args: Variable, **kwargs: Variable) -> Variable:
        tensor = getattr(args[0], "tensor", args[0]) if args else None
        if isinstance(tensor, TensorVariable) and tensor.fake.dtype.is_floating_point is (kind is float):
            return tensor.method(tx, "item", [], {})
        if args and isinstance(args[0], SymVariable):
            if args[0].python_type() is kind and len(args) == 1:
                return args[0]
            if len(args) > 1 or kwargs or isinstance(args[0], NumberVariable) or _is_beyond_graph(kind, args[0]):
                return tx.fold(kind, list(args), kwargs)
            symbolic = _OF_SIZES.get(kind) if type(args[0]) is SymVariable and args[0].python_type() is not bool else None
            return tx.literal(symbolic(args[0].value)) if symbolic else ConstantVariable(kind(args[0].specialize()))
        if args and isinstance(args[0], ObjectVariable):
            found = args[0].special(tx, special)
            if found is not None:
                return tx.call(found, [], {})
        return tx.fold(kind, list(args), kwargs)

    return handler


_OF_SIZES: dict[Any, Callable[[Any], Any]] = {
    int: sym_int, float: sym_float, math.sqrt: sym_sqrt, math.floor: math.floor, math.ceil: math.ceil, math.trunc: sym_int}
"""Functions of a number that stay symbolic for sizes."""


def _is_beyond_graph(function: Callable[[Any], Any], value: Variable) -> bool:
    """Is it the whole part of what rounding may have moved, which Python computes before the graph?"""
    return function not in (float, math.sqrt) and isinstance(getattr(value, "value", None), SymFloat) and not is_exact(value.value)  # type: ignore[attr-defined]


def _math(function: Callable[[Any], Any], symbolic: Callable[[Any], Any]) -> Callable[..., Variable]:
    def handler(tx: Trace, value: Variable) -> Variable:
        found = value.special(tx, f"__{function.__name__}__") if isinstance(value, ObjectVariable) else None
        if found is not None:
            return tx.call(found, [], {})
        if type(value) is SymVariable and value.python_type() is not bool and not _is_beyond_graph(function, value):
            return tx.literal(symbolic(value.value))
        return tx.fold(function, [value])

    return handler


HANDLERS.update({function: _math(function, symbolic) for function, symbolic in _OF_SIZES.items() if function not in (int, float)})
HANDLERS[int] = _number(int, "__int__")
HANDLERS[float] = _number(float, "__float__")
HANDLERS[complex] = _number(complex, "__complex__")


def _of_numpy(function: Any) -> Callable[..., Variable]:
    def handler(tx: Trace, *args: Variable, **kwargs: Variable) -> Variable:
        made = CREATION.get(function)
        return made(tx, *args, **kwargs) if made is not None else tx.call_numpy(function, list(args), kwargs)

    return handler


HANDLERS.update({function: _of_numpy(function) for function in (*CREATION, *FUNCTIONS)})


@handles(str)
def _str(tx: Trace, *args: Variable, **kwargs: Variable) -> Variable:
    if kwargs or len(args) > 1:  # str(data, encoding)
        return tx.fold(str, list(args), kwargs)
    return tx.text(args[0], str) if args else ConstantVariable("")


@handles(round)
def _round(tx: Trace, value: Variable, ndigits: Variable = NONE) -> Variable:
    if isinstance(value, TensorVariable):
        tx.raise_(TypeError, f"type {value.python_type().__name__} doesn't define __round__ method")
    if isinstance(value, ObjectVariable) and (found := value.special(tx, "__round__")) is not None:
        return tx.call(found, [] if ndigits is NONE else [ndigits], {})
    return tx.fold(round, [value] if ndigits is NONE else [value, ndigits])


@handles(divmod)
def _divmod(tx: Trace, left: Variable, right: Variable) -> Variable:
    for owner, name, other in ((left, "__divmod__", right), (right, "__rdivmod__", left)):
        found = owner.special(tx, name) if isinstance(owner, ObjectVariable) else None
        answer = tx.call(found, [other], {}) if found is not None else ConstantVariable(NotImplemented)
        if not (isinstance(answer, ConstantVariable) and answer.value is NotImplemented):
            return answer
    left, right = left.beneath or left, right.beneath or right
    if not all(isinstance(value, (ConstantVariable, SymVariable)) for value in (left, right)):
        graph_break("unknown operation", f"divmod({left.describe()}, {right.describe()})")
    return TupleVariable([tx.binary(operator.floordiv, left, right), tx.binary(operator.mod, left, right)])


@handles(pow, math.pow)
def _pow(tx: Trace, base: Variable, exponent: Variable, modulus: Variable | None = None) -> Variable:
    if modulus is not None:
        return tx.fold(pow, [base, exponent, modulus])
    return tx.binary(operator.pow, base, exponent)


@handles(hash)
def _hash(tx: Trace, value: Variable) -> Variable:
    if isinstance(value, ObjectVariable):
        found = value.special(tx, "__hash__")
        if isinstance(found, MethodVariable):
            return tx.call(found, [], {})
        if value.beneath is None:
            graph_break("unknown operation", f"hash of {value.describe()}")
    return tx.fold(hash, [value])
