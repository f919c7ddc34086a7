"""`Variable`: what capture knows about one Python value; and the values that are constants."""

from __future__ import annotations

import enum
import itertools
import operator
import re
import types
from collections.abc import Callable, Iterator
from typing import Any, Final, Self

from ..break_kinds import graph_break
from ..source import Source, constant_source, is_literal
from ..typed import Trace, Writer

Args = list["Variable"]
Kwargs = dict[str, "Variable"]


_births = itertools.count(1)


class NotConstant(Exception):
    """The value isn't known during capture."""


WITHOUT_DICT: Final = frozenset((
    property, types.BuiltinMethodType, types.MethodWrapperType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType))
"""Types whose instances have no attributes but those that the type has."""


class Variable:
    """A value of the traced program.

    `source` is where the value comes from, or None if the program made it. Two variables are the same Python object if and
    only if they are the same `Variable` (existing mutable objects are kept unique by the side-effect table).
    """

    source: Source | None = None
    kind: Any = None
    """The type that the program sees, unless `python_type` finds it."""
    is_setting = False
    """Does it hold settings of the process?"""
    beneath: Variable | None = None
    """Of an instance of a class that derives from int, str or the like: the plain value that it is."""
    born: int

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        made = object.__new__(cls)
        made.born = next(_births)
        return made

    def __init__(self, source: Source | None = None) -> None:
        self.source = source

    # what it is
    def python_type(self) -> type:
        """The type that the program sees."""
        if self.kind is not None:
            return self.kind
        graph_break("unknown value", f"type of {self!r}")

    def as_constant(self) -> Any:
        """The Python value, if it is known and immutable; NotConstant otherwise."""
        raise NotConstant(self)

    def is_constant(self) -> bool:
        try:
            self.as_constant()
        except NotConstant:
            return False
        return True

    def describe(self) -> str:
        """Short text for messages."""
        name = type(self).__name__.removesuffix("Variable").lower()
        return f"{name} {self.source.words}" if self.source is not None else name

    def __repr__(self) -> str:
        return self.describe()

    # what the program can do with it
    def realize(self, tx: Trace) -> Variable:
        """Look at a value that was only referred to so far."""
        return self

    def truth(self, tx: Trace) -> bool:
        if self.is_constant():
            return bool(self.as_constant())
        graph_break("unknown operation", f"truth value of {self.describe()}")

    def attr(self, tx: Trace, name: str) -> Variable:
        graph_break("unknown attribute", f"{self.describe()}.{name}")

    def set_attr(self, tx: Trace, name: str, value: Variable) -> None:
        graph_break("unknown attribute", f"{self.describe()}.{name} = ...")

    def del_attr(self, tx: Trace, name: str) -> None:
        graph_break("unknown attribute", f"del {self.describe()}.{name}")

    def has_attr(self, tx: Trace, name: str) -> bool:
        if (kind := self.python_type()) in WITHOUT_DICT:
            return hasattr(kind, name)
        graph_break("unknown attribute", f"hasattr({self.describe()}, {name!r})")

    def attr_or_none(self, tx: Trace, name: str) -> Variable | None:
        """The attribute, or None where Python would raise AttributeError; the program's own code for it runs once."""
        return self.attr(tx, name) if self.has_attr(tx, name) else None

    def item(self, tx: Trace, key: Variable) -> Variable:
        graph_break("unknown operation", f"{self.describe()}[{key.describe()}]")

    def set_item(self, tx: Trace, key: Variable, value: Variable) -> None:
        graph_break("unknown operation", f"{self.describe()}[{key.describe()}] = ...")

    def del_item(self, tx: Trace, key: Variable) -> None:
        graph_break("unknown operation", f"del {self.describe()}[{key.describe()}]")

    def contains(self, tx: Trace, key: Variable) -> bool:
        graph_break("unknown operation", f"{key.describe()} in {self.describe()}")

    def length(self, tx: Trace) -> Variable:
        graph_break("unknown operation", f"len({self.describe()})")

    def iterate(self, tx: Trace) -> Iterator[Variable]:
        """The elements, lazily, in order."""
        graph_break("unknown iterable", self.describe())

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        graph_break("call of unknown object", self.describe())

    def method(self, tx: Trace, name: str, args: Args, kwargs: Kwargs) -> Variable:
        """`self.name(*args, **kwargs)`."""
        return self.attr(tx, name).call(tx, args, kwargs)

    def binary(self, tx: Trace, op: Any, other: Variable, reflected: bool) -> Variable | None:
        """`op(self, other)` (or `op(other, self)`), or None if this variable doesn't know."""
        return None

    def special_binary(self, tx: Trace, op: Any, other: Variable, reflected: bool) -> Variable | None:
        """What the special method of the class gives, if it is one written in Python that doesn't leave it to the other side."""
        for name in tx.special_names(op, reflected):
            entry = tx.lookup(self.python_type(), name)
            inverted = entry is object.__ne__
            if inverted:
                entry = tx.lookup(self.python_type(), "__eq__")
            if isinstance(entry, types.FunctionType):
                answer = tx.call(tx.trusted(entry), [self, other], {})
                if not (isinstance(answer, ConstantVariable) and answer.value is NotImplemented):
                    return tx.logical_not(answer) if inverted else answer
        return None

    changes = False
    """Is it a number that changes from call to call?"""

    def key(self) -> Any:
        """A hashable stand-in when used as a key of a dict or set."""
        try:
            value = self.as_constant()
        except NotConstant:
            return IdentityKey(self)
        return value

    # how it exists outside of the graph
    def build(self, w: Writer) -> str:
        """An expression that makes this value in the replacement function."""
        return w.fetch(self.source) if self.source is not None else self.make(w)

    def make(self, w: Writer) -> str:
        """The same for a value that the program made."""
        graph_break("value can't be rebuilt", self.describe())


def call_handler(handler: Callable[..., Variable | None], what: str, *args: Any, **kwargs: Any) -> Variable:
    """Call what models a function or method; a call that it has no parameters for is a graph break."""
    try:
        return handler(*args, **kwargs) or NONE
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            graph_break("unknown operation", f"{what}() with arguments that capture has no model of")
        raise


class ModelledVariable(Variable):
    """A value of a built-in type: its methods are in a table, from the name to a function of self, tx and the arguments."""

    METHODS: dict[str, Callable[..., Variable | None]] = {}
    """Those that give None as the program sees it may return None."""

    def model_of(self, name: str) -> Callable[..., Variable | None] | None:
        """What models a method, or None."""
        return self.METHODS.get(name) if hasattr(self.kind, name) else None

    def attr(self, tx: Trace, name: str) -> Variable:
        if self.model_of(name) is not None:
            return NamedMethod(self, name)
        if hasattr(self.kind, name):
            return tx.type_attribute(self, self.kind, name)
        tx.raise_(AttributeError, f"{self.kind.__name__!r} object has no attribute {name!r}")

    def has_attr(self, tx: Trace, name: str) -> bool:
        return hasattr(self.kind, name)

    def method(self, tx: Trace, name: str, args: Args, kwargs: Kwargs) -> Variable:
        handler = self.model_of(name)
        if handler is None:
            return self.attr(tx, name).call(tx, args, kwargs)
        return call_handler(handler, f"{self.kind.__name__}.{name}", self, tx, *args, **kwargs)


class IdentityKey:
    """Key of an object that hashes by identity."""

    __slots__ = ("variable",)

    def __init__(self, variable: Variable) -> None:
        self.variable = variable

    def __hash__(self) -> int:
        return id(self.variable)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and other.variable is self.variable


class EqualKey:
    """Key of an object whose class says itself what is equal to it."""

    def __init__(self, tx: Any, variable: Variable, hashed: int) -> None:
        self.tx, self.variable, self.hashed = tx, variable, hashed

    def __hash__(self) -> int:
        return self.hashed

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EqualKey):
            graph_break("unknown operation", f"comparison of {self.variable.describe()} with another key")
        return self.tx.same_or_equal(self.variable, other.variable)


def by_equality(key: Any) -> bool:
    """Does a key ask the program's own `__hash__`, when the object outside is already what it is to be?"""
    return isinstance(key, EqualKey) or (isinstance(key, tuple) and any(map(by_equality, key)))


class NullVariable(Variable):
    """The NULL that CPython pushes below a callable."""


NULL = NullVariable()


class ConstantVariable(Variable):
    """A number, string, None, dtype, device, enum member, ...: immutable, and known during capture."""

    def __init__(self, value: Any, source: Source | None = None) -> None:
        self.value = value
        self.source = source

    def python_type(self) -> type:
        return type(self.value)

    def as_constant(self) -> Any:
        return self.value

    def is_constant(self) -> bool:
        return True

    def describe(self) -> str:
        text = repr(self.value)
        return text if len(text) < 60 else text[:57] + "..."

    def attr(self, tx: Trace, name: str) -> Variable:
        if isinstance(self.value, enum.Enum):
            bound = tx.bind(tx.lookup(type(self.value), name), self, type(self.value))
            if bound is not None:
                return bound
        value = tx.checked(getattr, self.value, name)
        if callable(value) and getattr(value, "__self__", None) is self.value:
            return ConstantMethod(self, name)
        if isinstance(self.value, enum.Enum) and not is_plain_constant(value):
            return tx.wrap(value, constant_source(self.value).attr(name))
        return tx.literal(value)

    def has_attr(self, tx: Trace, name: str) -> bool:
        return hasattr(self.value, name)

    def binary(self, tx: Trace, op: Any, other: Variable, reflected: bool) -> Variable | None:
        return self.special_binary(tx, op, other, reflected) if isinstance(self.value, enum.Enum) else None

    def item(self, tx: Trace, key: Variable) -> Variable:
        return tx.fold(operator.getitem, [self, key])

    def contains(self, tx: Trace, key: Variable) -> bool:
        return bool(tx.fold(operator.contains, [self, key]).as_constant())

    def length(self, tx: Trace) -> Variable:
        return tx.fold(len, [self])

    def iterate(self, tx: Trace) -> Iterator[Variable]:
        if isinstance(tx.lookup(type(self.value), "__iter__"), types.FunctionType):     # of an enum's member
            return tx.iterate(self.attr(tx, "__iter__").call(tx, [], {}))
        return iter([ConstantVariable(item) for item in tx.checked(list, self.value)])

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        if not callable(self.value):
            tx.raise_(TypeError, f"{type(self.value).__name__!r} object is not callable")
        if isinstance(self.value, enum.Enum):
            return self.attr(tx, "__call__").call(tx, args, kwargs)
        graph_break("call of unknown object", self.describe())

    def build(self, w: Writer) -> str:
        if is_literal(self.value):
            return f"({self.value!r})" if type(self.value) in (int, float) else repr(self.value)
        return w.constant(self.value)


NONE = ConstantVariable(None)


def is_none(variable: Variable) -> bool:
    """Is it known to be None?"""
    return isinstance(variable, ConstantVariable) and variable.value is None


class ValueVariable(Variable):
    """An existing object that stands for itself: a class, a module, a function written in C."""

    def __init__(self, value: Any, source: Source | None = None) -> None:
        self.value, self.source = value, source

    def python_type(self) -> type:
        return type(self.value)

    def as_constant(self) -> Any:
        return self.value

    def make(self, w: Writer) -> str:
        return w.constant(self.value)


class NamedMethod(Variable):
    """A bound method that is known by its name, e.g. `append = xs.append`."""

    kind: Any = type([].append)

    def __init__(self, owner: Variable, name: str) -> None:
        self.owner, self.name = owner, name

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        return self.owner.method(tx, self.name, args, kwargs)

    def attr(self, tx: Trace, name: str) -> Variable:
        if name == "__self__":
            return self.owner
        return ConstantVariable(self.name) if name == "__name__" else super().attr(tx, name)

    def truth(self, tx: Trace) -> bool:
        return True

    def build(self, w: Writer) -> str:
        return f"{w.value(self.owner)}.{self.name}"


class ConstantMethod(NamedMethod):
    """A bound method of a constant, such as `"a,b".split`: computed during capture."""

    owner: ConstantVariable

    def python_type(self) -> type:
        return type(getattr(self.owner.value, self.name))

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        if isinstance(self.owner.value, re.Pattern) and not all(isinstance(arg, ConstantVariable) for arg in (*args, *kwargs.values())):
            graph_break("call of C function", f"{self.name}() of a pattern, with something else than text")
        return tx.fold(getattr(self.owner.value, self.name), args, kwargs)


class LazyVariable(Variable):
    """A value that exists before the frame and hasn't been looked at: no guards yet."""

    def __init__(self, value: Any, source: Source) -> None:
        self.value = value
        self.source = source
        self._found: Variable | None = None

    def realize(self, tx: Trace) -> Variable:
        if self._found is None:
            assert self.source is not None
            self._found = tx.wrap(self.value, self.source)
        return self._found

    def is_constant(self) -> bool:
        return False

    def build(self, w: Writer) -> str:
        return w.value(self._found) if self._found is not None else w.fetch(self.source)


SINGLETONS = (type(None), bool, type(...), type(NotImplemented))
PLAIN_CONSTANTS = (int, float, complex, str, bytes)


PLAIN_PARTS: dict[type, Callable[[Any], Any]] = {
    int: int.__pos__, float: float.__pos__, complex: complex.__pos__, str: str.__str__, bytes: lambda value: bytes.__add__(value, b"")}
"""Of an instance of a class that derives from one of these: the plain value, past what the class overrides."""


def plain_base(cls: type) -> type | None:
    """The type of the plain value that instances of a class are, or None."""
    return next((kind for kind in PLAIN_PARTS if issubclass(cls, kind)), None)


def is_plain_constant(value: Any) -> bool:
    """None, bools, numbers, strings, enum members: values that are compared by a guard and folded."""
    return type(value) in PLAIN_CONSTANTS or isinstance(value, (*SINGLETONS, enum.Enum))
