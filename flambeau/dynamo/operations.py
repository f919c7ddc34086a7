# mypy: disable-error-code="arg-type,attr-defined"
# A mixin of Trace: `self` is a Trace.
"""What Python's operators, built-in protocols and calls do to variables: the interpreter's middle layer."""

from __future__ import annotations

import abc
import collections
import copy
import functools
import operator
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from .. import _C
from ..core.homes import is_own
from ..core.symbolic import SymFloat
from ..ops.registry import is_operator
from .break_kinds import graph_break
from .exceptions import RaisedInTrace
from .source import constant_source
from .surroundings import MISSING
from .variables.base import NONE, Args, ConstantVariable, EqualKey, IdentityKey, Kwargs, NamedMethod, NotConstant, Variable, plain_base
from .variables.contexts import DeviceScope, is_device
from .variables.dicts import DictVariable, SetVariable
from .variables.exceptions import ExceptionVariable, TracebackVariable
from .variables.floats import FloatVariable, of_floats
from .variables.functions import FunctionBase, MethodVariable
from .variables.generators import stop_of
from .variables.identity import IdVariable
from .variables.objects import ClassVariable, ObjectMethod, ObjectVariable, written_in_c
from .variables.references import ReferenceVariable
from .variables.sequences import (
    IteratorVariable,
    ListVariable,
    NamedTupleVariable,
    RangeVariable,
    SequenceIterator,
    SequenceVariable,
    SliceVariable,
    TupleVariable,
)
from .variables.tensor import SymVariable, TensorVariable, operand_of
from .variables.texts import UnreadText, text_of

_SPECIAL_NAMES = {
    getattr(operator, name): f"__{name.strip('_')}__"
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift",
                 "lt", "le", "gt", "ge", "eq", "ne", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul",
                 "iand", "ior", "ixor", "ilshift", "irshift")
}  # fmt: skip
_SWAPPED = {"__lt__": "__gt__", "__gt__": "__lt__", "__le__": "__ge__", "__ge__": "__le__", "__eq__": "__eq__", "__ne__": "__ne__"}
_INPLACE = frozenset(name for name in _SPECIAL_NAMES.values() if name[2] == "i")
OUT_OF_PLACE = {
    getattr(operator, "i" + name): getattr(operator, name if name not in ("and", "or") else name + "_")
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
}
"""`a += b` is `a = a + b` where `a` has no way of its own."""


_SLOTS: dict[str, Callable[..., Variable | None]] = {
    "__getitem__": lambda tx, owner, key: owner.item(tx, key),
    "__setitem__": lambda tx, owner, key, value: owner.set_item(tx, key, value),
    "__delitem__": lambda tx, owner, key: owner.del_item(tx, key),
    "__contains__": lambda tx, owner, key: ConstantVariable(owner.contains(tx, key)),
    "__len__": lambda tx, owner: owner.length(tx),
    "__iter__": lambda tx, owner: tx.iterator(owner),
}
"""What special methods of built-in types are: the operation of their variable."""


class Operations:
    """Mixed into Trace."""

    # -- exceptions of the traced program -----------------------------------------------------------------------------------
    def raise_(self, cls: type, *args: Any) -> NoReturn:
        """The traced program raises `cls(*args)`."""
        raise RaisedInTrace(ExceptionVariable(cls, [self.literal(arg) for arg in args]))

    def make_exception(self, value: Variable) -> Variable:
        """What `raise value` raises: classes are instantiated."""
        if isinstance(value, ClassVariable) and issubclass(value.value, BaseException):
            return self.call(value, [], {})
        if not issubclass(value.python_type(), BaseException):
            self.raise_(TypeError, "exceptions must derive from BaseException")
        return value

    def handled_exception(self) -> Variable | None:
        """The exception whose handler is running, innermost frame first."""
        return next((frame.handling[-1] for frame in reversed(self.frames) if frame.handling), None)

    def callers_handle_nothing(self) -> None:
        """Guard that the function isn't called from an except block."""
        if sys.exc_info()[1] is not None:
            graph_break("frame inspection", "the exception that a caller handles")
        self.guard("{0}.exc_info()[1] is None", self.module_source(sys), reason="exceptions that callers handle")

    def note_raised(self, error: RaisedInTrace, frame: Any) -> None:
        """`error` passes through `frame`: remember where it came from and, once, what was handled when it was raised."""
        frame.raised_at.setdefault(id(error.value), frame.current)
        if isinstance(error.value, ExceptionVariable) and error.value.traceback is NONE:
            error.value.traceback = TracebackVariable()
        if not error.has_context and isinstance(error.value, ExceptionVariable):
            handled = self.handled_exception()
            if handled is not None and handled is not error.value:
                error.value.written.setdefault("__context__", handled)
        error.has_context = True

    def checked(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a Python function; what it raises is raised in the traced program."""
        try:
            return function(*args, **kwargs)
        except Exception as error:
            self.raise_(type(error), *[arg for arg in error.args if isinstance(arg, (str, int, float, type(None)))])

    # -- known values -------------------------------------------------------------------------------------------------------
    def fold(self, function: Callable[..., Any], args: Args, kwargs: Kwargs | None = None) -> Variable:
        """`function(*args)` of known values, or of numbers that change."""
        if getattr(function, "__name__", "") == "join":     # of what may change later, or is there once
            args = [TupleVariable(list(self.iterate(arg))) if isinstance(arg, (ListVariable, IteratorVariable)) else arg for arg in args]
        if not kwargs and (text := text_of(self, function, args)) is not None:
            return text
        if not kwargs and any(isinstance(arg, SymVariable) for arg in args) and (found := of_floats(self, function, args)) is not None:
            return found
        try:
            plain = [self.constant_of(arg) for arg in args]
            named = {name: self.constant_of(value) for name, value in (kwargs or {}).items()}
        except NotConstant as unknown:
            name = getattr(function, "__qualname__", "?")
            kind = "tensor to Python value" if isinstance(unknown.args[0], TensorVariable) else "unknown operation"
            graph_break(kind, f"{name}() of {unknown.args[0].describe()}")
        return self.literal(self.checked(function, *plain, **named))

    def constant_of(self, variable: Variable) -> Any:
        """The value for a pure function; containers are copied."""
        variable = variable.realize(self)
        variable = variable.beneath or variable
        if isinstance(variable, SymVariable):
            return variable.specialize()
        if isinstance(variable, IdVariable):
            return variable.known(self).as_constant()
        if isinstance(variable, ListVariable):
            plain = copy.copy(variable.items)
            plain.clear()
            plain.extend(self.constant_of(item) for item in variable.items)
            return plain
        if isinstance(variable, DictVariable):
            entries = {self.constant_of(k): self.constant_of(v) for k, v in variable.open(self).values()}
            return variable.kind(None, entries) if variable.kind is collections.defaultdict else variable.kind(entries)
        if isinstance(variable, SetVariable):
            return variable.kind(self.constant_of(item) for _, item in variable.contents())
        if isinstance(variable, IteratorVariable):
            return [self.constant_of(item) for item in variable.iterate(self)]
        if type(variable) is TupleVariable:
            return tuple(self.constant_of(item) for item in variable.items)
        if isinstance(variable, SliceVariable):
            return slice(*map(self.constant_of, variable.parts))
        return variable.as_constant()

    def known(self, variable: Variable) -> Any:
        """The value of a variable that has to be known."""
        try:
            return self.constant_of(variable)
        except NotConstant:
            graph_break("unknown operation", f"{variable.describe()} has to be known during capture")

    def index(self, variable: Variable) -> int:
        """`operator.index`."""
        return int(self.checked(operator.index, self.plain_index(variable)))

    def plain_index(self, variable: Variable) -> Any:
        """An index or slice as Python takes it, if it does: what it isn't good for, Python says itself."""
        if isinstance(variable, TensorVariable):
            graph_break("tensor to Python value", f"{variable.describe()} as an index")
        if isinstance(variable, ObjectVariable):
            return self.index(self.call_method(variable, "__index__", []))
        return variable.as_slice(self) if isinstance(variable, SliceVariable) else self.known(variable)

    def example(self, variable: Variable) -> Any:
        """The value with which operators are tried: fake tensors for tensors."""
        try:
            return operand_of(self, variable, lambda tensor: tensor.fake, lambda size: size)
        except NotConstant as unknown:
            graph_break("unknown operation", f"{unknown.args[0].describe()} as an argument of a tensor operation")

    # -- identity and equality ----------------------------------------------------------------------------------------------
    def is_same(self, left: Variable, right: Variable) -> bool:
        if left is right:
            return True
        if isinstance(left, SymVariable) or isinstance(right, SymVariable):  # of numbers, Python leaves it open
            return left.python_type() is right.python_type() and self.truth(self.binary(operator.eq, left, right))
        if isinstance(left, TupleVariable) and isinstance(right, TupleVariable):
            graph_break("unknown operation", "identity of tuples")
        if left.is_constant() and right.is_constant():
            a, b = left.as_constant(), right.as_constant()
            return a is b or (type(a) is type(b) and isinstance(a, (int, str, float)) and a == b)
        if left.source is not None and right.source is not None and not left.is_constant() and not right.is_constant():
            self.guard("{0} is not {1}", left.source, right.source, reason="distinct objects", about="identity")
        return False

    def same_or_equal(self, left: Variable, right: Variable) -> bool:
        """What `in` and container equality ask."""
        return left is right or self.truth(self.compare(operator.eq, left, right))

    def hashable(self, variable: Variable) -> Any:
        """The key under which a dict or set holds this value."""
        variable = variable.realize(self)
        if isinstance(variable, (ListVariable, DictVariable, SetVariable)) and not variable.is_constant():
            self.raise_(TypeError, f"unhashable type: '{variable.python_type().__name__}'")
        if isinstance(variable, TupleVariable):
            return tuple(map(self.hashable, variable.items))
        if isinstance(variable, ReferenceVariable):
            return variable.key_in(self)
        key = self._object_key(variable) if isinstance(variable, ObjectVariable) else variable.key()
        self._note_identities(key)
        return key

    def _note_identities(self, key: Any) -> None:
        """Existing objects that are told apart by their identity: a guard says that they stay different ones."""
        if isinstance(key, IdentityKey) and key.variable.source is not None:
            self.told_apart[id(key.variable)] = key.variable
        elif isinstance(key, tuple):
            for part in key:
                self._note_identities(part)

    def _object_key(self, variable: ObjectVariable) -> Any:
        hashing, equal = self.lookup(variable.cls, "__hash__"), self.lookup(variable.cls, "__eq__")
        if equal is object.__eq__ or hasattr(variable, "identity_hash"):
            return IdentityKey(variable)
        if hashing is None:
            self.raise_(TypeError, f"unhashable type: '{variable.cls.__name__}'")
        if isinstance(variable.container, TupleVariable) and hashing is tuple.__hash__ and equal is tuple.__eq__:
            return variable.container.key()
        if variable.beneath is not None and not isinstance(hashing, types.FunctionType) and not isinstance(equal, types.FunctionType):
            return self.hashable(variable.beneath)
        if isinstance(hashing, types.FunctionType) and isinstance(equal, types.FunctionType):
            return EqualKey(self, variable, self.known(self.call(self.trusted(hashing), [variable], {})))
        graph_break("unknown operation", f"hash of {variable.describe()}")

    # -- truth and arithmetic -----------------------------------------------------------------------------------------------
    def truth(self, variable: Variable) -> bool:
        if isinstance(variable, (FunctionBase, MethodVariable)):
            return True
        return variable.truth(self)

    def logical_not(self, variable: Variable) -> Variable:
        return ConstantVariable(not self.truth(variable))

    def special_names(self, op: Any, reflected: bool) -> list[str]:
        """Special methods to try for an operator, in order."""
        name = _SPECIAL_NAMES.get(op)
        if name is None:
            return []
        if reflected:
            plain = "__" + name[3:] if name in _INPLACE else name
            return [_SWAPPED.get(plain, "__r" + plain[2:])]
        return [name, "__" + name[3:]] if name in _INPLACE else [name]

    def binary(self, op: Any, left: Variable, right: Variable) -> Variable:
        """A binary operator, in place or not."""
        if left.is_constant() and right.is_constant() and not self._has_operator(left):
            return self.fold(op, [left, right])
        if isinstance(left, ConstantVariable) and left.python_type() is str and (text := text_of(self, op, [left, right])) is not None:
            return text
        for variable, other, reflected in self._operand_order(left, right):
            answer = variable.binary(self, op, other, reflected)
            if answer is not None:
                return answer
        if op in OUT_OF_PLACE:
            return self.binary(OUT_OF_PLACE[op], left, right)
        if op is operator.mod and isinstance(left, ConstantVariable) and isinstance(left.value, str):
            return self.fold(op, [left, right])
        if op in (operator.eq, operator.ne):
            return ConstantVariable(self._default_equal(left, right) is (op is operator.eq))
        name = getattr(op, "__name__", str(op))
        graph_break("unknown operation", f"{name}({left.describe()}, {right.describe()})")

    def _has_operator(self, left: Variable) -> bool:
        return isinstance(left, (SequenceVariable, ObjectVariable)) and not isinstance(left, TupleVariable)

    def _operand_order(self, left: Variable, right: Variable) -> list[tuple[Variable, Variable, bool]]:
        order = [(left, right, False), (right, left, True)]
        stronger = isinstance(right, TensorVariable) and not isinstance(left, (TensorVariable, ObjectVariable))
        if isinstance(left, ObjectVariable) and isinstance(right, ObjectVariable):
            stronger = right.cls is not left.cls and issubclass(right.cls, left.cls)
        return order[::-1] if stronger else order

    def _default_equal(self, left: Variable, right: Variable) -> bool:
        if isinstance(left, ObjectVariable) or isinstance(right, ObjectVariable):
            for variable in (left, right):
                if isinstance(variable, ObjectVariable):
                    entry = self.lookup(variable.cls, "__eq__")
                    if entry is not object.__eq__ and not isinstance(entry, types.FunctionType):
                        graph_break("unknown operation", f"comparison of {variable.describe()}")
        if isinstance(left, MethodVariable) and isinstance(right, MethodVariable):
            return self.is_same(left.owner, right.owner) and self.is_same(left.function, right.function)
        if isinstance(left, NamedMethod) and type(left) is type(right):
            return left.name == right.name and self.is_same(left.owner, right.owner)
        return self.is_same(left, right)

    def compare(self, op: Any, left: Variable, right: Variable) -> Variable:
        alike = left is right and not isinstance(left, (TensorVariable, ConstantVariable, SymVariable, ObjectVariable))
        return ConstantVariable(op is operator.eq) if alike and op in (operator.eq, operator.ne) else self.binary(op, left, right)

    def unary(self, op: Any, value: Variable) -> Variable:
        own: Any = getattr(value, "unary", None)
        if own is not None and (answer := own(self, op)) is not None:
            return answer
        if type(value) is SymVariable and op is not operator.invert and (op is operator.neg or not isinstance(value.value, SymFloat)):
            return self.literal(op(value.value))
        if isinstance(value, ObjectVariable):
            name = {"neg": "__neg__", "pos": "__pos__", "invert": "__invert__", "abs": "__abs__"}[op.__name__]
            return self.call_method(value, name, [])
        if isinstance(value, DictVariable):  # +counter, -counter
            return self.call_method(value, f"__{op.__name__}__", [])
        return self.fold(op, [value])

    # -- attributes and items -----------------------------------------------------------------------------------------------
    def attr(self, owner: Variable, name: str) -> Variable:
        if name == "__class__" and not isinstance(owner, (ObjectVariable, TensorVariable)):
            return self.class_variable(owner.python_type())
        if name in ("__enter__", "__exit__") and is_device(owner):
            graph_break("unknown context manager", f"{name}() of a device, called by hand")
        return owner.attr(self, name).realize(self)

    def item(self, owner: Variable, key: Variable) -> Variable:
        return owner.item(self, key).realize(self)

    def bind(self, entry: Any, owner: Variable | None, cls: type) -> Variable | None:
        """What a class's entry gives when it is asked of an instance (of the class without one), if it is one of Python's own kinds."""
        if isinstance(entry, staticmethod):
            return self.trusted(entry.__func__)
        if isinstance(entry, classmethod):
            return MethodVariable(self.trusted(entry.__func__), self.class_variable(cls))
        if isinstance(entry, types.FunctionType) or is_operator(entry):
            return self.trusted(entry) if owner is None else MethodVariable(self.trusted(entry), owner)
        if owner is not None and isinstance(entry, property):
            return self.call(self.trusted(entry.fget), [owner], {})
        if owner is not None and isinstance(entry, functools._lru_cache_wrapper):
            return MethodVariable(self.trusted(entry), owner)
        return None

    def is_data_descriptor(self, entry: Any) -> bool:
        """Does it come before what an instance has in its `__dict__`?"""
        return any(self.lookup(type(entry), name) is not MISSING for name in ("__set__", "__delete__"))

    def type_attribute(self, owner: Variable, kind: type, name: str) -> Variable:
        """A method of a built-in container that has no handler of its own, bound; found through the class."""
        entry = self.lookup(kind, name)
        bound = self.bind(entry, owner, kind)
        if bound is not None:
            return bound
        if isinstance(entry, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            return MethodVariable(self.trusted(entry), owner)
        graph_break("unknown attribute", f"{kind.__name__}.{name}")

    # -- iteration ----------------------------------------------------------------------------------------------------------
    def iterate(self, variable: Variable) -> Iterator[Variable]:
        """The elements of any iterable, looked at."""
        return (self._passed(element) for element in variable.realize(self).iterate(self))

    def _passed(self, element: Variable) -> Variable:
        self.count_step()
        return element.realize(self)

    def iterator(self, variable: Variable) -> Variable:
        """`iter(variable)`."""
        if isinstance(variable, IteratorVariable):
            return variable
        if type(variable).iterate is SequenceVariable.iterate:
            return SequenceIterator(variable)
        if isinstance(variable, ObjectVariable):
            found = variable.special(self, "__iter__")
            if found is not None and not isinstance(found, ObjectMethod):
                made = self.call(found, [], {})
                return made if isinstance(made, (IteratorVariable, ObjectVariable)) else IteratorVariable(self.iterate(made))
        kind = type(iter(range(0))) if isinstance(variable, RangeVariable) else type(iter(()))
        return IteratorVariable(self.iterate(variable), kind).made_by(iter, [variable])

    def next_or_none(self, iterator: Variable) -> Variable | None:
        """The next element, or None at the end."""
        if isinstance(iterator, IteratorVariable):
            self.effects.check(iterator)
            return iterator.next(self)
        if not hasattr(iterator.python_type(), "__next__"):
            self.raise_(TypeError, f"{iterator.python_type().__name__!r} object is not an iterator")
        try:
            return self.call_method(iterator, "__next__", [])
        except RaisedInTrace as error:
            if issubclass(error.value.python_type(), StopIteration):
                return None
            raise

    def next(self, iterator: Variable, default: Variable | None = None) -> Variable:
        element = self.next_or_none(iterator)
        if element is None:
            if default is None:
                raise RaisedInTrace(stop_of(iterator))
            return default
        return element

    def unpack(self, variable: Variable, count: int) -> Args:
        if isinstance(variable, TensorVariable) and variable.fake.ndim and int(variable.fake.shape[0]) != count:
            self._wrong_count(count, int(variable.fake.shape[0]))
        if not any(hasattr(variable.python_type(), name) for name in ("__iter__", "__getitem__")):
            self.raise_(TypeError, f"cannot unpack non-iterable {variable.python_type().__name__} object")
        items = list(self.iterate(variable))
        if len(items) != count:
            self._wrong_count(count, len(items))
        return items

    def _wrong_count(self, wanted: int, got: int) -> NoReturn:
        if got > wanted:
            self.raise_(ValueError, f"too many values to unpack (expected {wanted})")
        self.raise_(ValueError, f"not enough values to unpack (expected {wanted}, got {got})")

    # -- text ---------------------------------------------------------------------------------------------------------------
    def format(self, value: Variable, conversion: Callable[[Any], str] | None, spec: Variable) -> Variable:
        """What f-strings and format() give."""
        if conversion is not None:
            value = self.text(value, conversion)
        if isinstance(value, ObjectVariable):
            own = self.lookup(value.cls, "__format__")
            if isinstance(own, types.FunctionType):
                return self.call(self.trusted(own), [value, spec], {})
            if own is object.__format__:
                if self.known(spec):
                    self.raise_(TypeError, f"unsupported format string passed to {value.cls.__name__}.__format__")
                return self.text(value, str)
            if value.beneath is not None and not self.known(spec):
                return self.text(value, str)
        return text_of(self, format, [value, spec]) or ConstantVariable(self.checked(format, self.plain_text(value), self.known(spec)))

    def text(self, value: Variable, conversion: Callable[[Any], str]) -> Variable:
        """`str`, `repr` or `ascii` of a value."""
        if isinstance(value, ObjectVariable):
            entry = self.lookup(value.cls, "__str__") if conversion is str else object.__str__
            if entry is object.__str__:
                entry = self.lookup(value.cls, "__repr__")
            if isinstance(entry, types.FunctionType):
                text = self.call(self.trusted(entry), [value], {})
                return ConstantVariable(ascii(self.known(text))[1:-1]) if conversion is ascii else text
        if isinstance(value, ExceptionVariable):
            return self._exception_text(value, conversion is not str)
        return text_of(self, conversion, [value]) or ConstantVariable(self.checked(conversion, self.plain_text(value)))

    def plain_text(self, value: Variable) -> Any:
        """A value of which a text is to be known."""
        if isinstance(value, FloatVariable):
            return value.known(self, "text").value
        if isinstance(value, SymVariable):
            return value.specialize()
        try:
            return self.constant_of(value)
        except NotConstant as unknown:
            graph_break("print or logging", f"text of {unknown.args[0].describe()}")

    def _exception_text(self, error: ExceptionVariable, exact: bool) -> Variable:
        """What `str` or `repr` of an exception gives, by the built-in class that it comes from."""
        given = self.attr(error, "args")
        kind = next(base for base in error.cls.__mro__ if base.__module__ == "builtins")
        if not exact and isinstance(given, TupleVariable) and len(given.items) == 1 and kind.__str__ is BaseException.__str__:
            return self.text(given.items[0], str)
        args = self.known(given)
        text = repr(kind(*args)) if exact else str(kind(*args))
        return ConstantVariable(error.cls.__name__ + text.removeprefix(kind.__name__) if exact else text)

    def concatenate(self, parts: Args) -> Variable:
        return self.fold("".join, [TupleVariable(parts)])

    # -- types --------------------------------------------------------------------------------------------------------------
    def class_variable(self, cls: type) -> Variable:
        return ClassVariable(cls, constant_source(cls, trusted=True))

    def is_instance(self, value: Variable, kind: Variable) -> bool:
        if isinstance(kind, TupleVariable):
            return any(self.is_instance(value, item.realize(self)) for item in kind.items)
        wanted = self.known(kind)
        known = isinstance(value, (ConstantVariable, ClassVariable)) and not isinstance(value, UnreadText)
        if known and not isinstance(wanted, types.UnionType):
            return bool(self.checked(isinstance, value.as_constant(), wanted))
        if isinstance(wanted, type):
            check = self.lookup(type(wanted), "__instancecheck__")
            if isinstance(check, types.FunctionType) and type(wanted).__module__ != "abc":
                if isinstance(value, TensorVariable):
                    return isinstance(value.real if value.real is not None else value.fake, wanted)
                if isinstance(value, ObjectVariable) and value.value is not None:
                    return isinstance(value.value, wanted)
        return self.is_subclass(value.python_type(), wanted)

    def is_subclass(self, cls: type, wanted: Any) -> bool:
        """`issubclass(cls, wanted)`. Abstract classes can be told of others at any time."""
        answer = bool(self.checked(issubclass, cls, wanted))
        if isinstance(wanted, abc.ABCMeta) and wanted not in cls.__mro__:
            self.guards.add(f"issubclass({{0}}, {{1}}) is {answer}", constant_source(cls), constant_source(wanted), about="any")
        return answer

    def make_dict(self, entries: dict[Any, Variable]) -> DictVariable:
        """A new dict; the keys are variables."""
        made = DictVariable()
        for key, value in entries.items():
            made.set_item(self, key, value)
        return made

    # -- calls --------------------------------------------------------------------------------------------------------------
    def call(self, function: Variable, args: Args, kwargs: Kwargs) -> Variable:
        return function.realize(self).call(self, args, kwargs).realize(self)

    def call_slot(self, owner: Variable, name: str, args: Args) -> Variable | None:
        """A special method of a built-in type, or None if it has no model."""
        slot = _SLOTS.get(name)
        if slot is not None:
            return slot(self, owner, *args) or NONE
        op = getattr(operator, name, None) if name.startswith("__") and len(args) == 1 else None
        return self.binary(op, owner, getattr(args[0], "container", None) or args[0]) if op is not None else None

    def call_method(self, owner: Variable, name: str, args: Args) -> Variable:
        return owner.method(self, name, args, {}).realize(self)

    def bound_special(self, function: FunctionBase, name: str) -> Variable:
        """`f.__call__` and `f.__get__`."""
        if name == "__call__":
            return function
        return _Binder(function)

    def enter(self, manager: Variable) -> tuple[Variable, Variable]:
        """`with manager`: its bound `__exit__` and what `__enter__` gives."""
        scope = getattr(manager, "enter_scope", None)
        if scope is not None:
            return scope(self)
        if isinstance(manager, ObjectVariable):
            if issubclass(manager.cls, _C.OverrideScope) and all(
                    is_own(getattr(self.lookup(manager.cls, name), "__module__", __name__)) for name in ("__enter__", "__exit__")):
                return self.enter_mode(manager)
            exit_method, enter_method = manager.special(self, "__exit__"), manager.special(self, "__enter__")
            if exit_method is not None and enter_method is not None:
                return exit_method, self.call(enter_method, [], {})
        if is_device(manager):
            return DeviceScope(manager).enter_scope(self)
        graph_break("unknown context manager", manager.describe())

    def construct(self, cls: type, args: Args, kwargs: Kwargs) -> Variable:
        """`cls(*args, **kwargs)`."""
        special = self.construct_known(cls, args, kwargs)
        if special is not None:
            return special
        meta_call = self.lookup(type(cls), "__call__")
        if isinstance(meta_call, types.FunctionType):
            return self.call(self.trusted(meta_call), [self.class_variable(cls), *args], kwargs)
        return self.construct_plainly(cls, args, kwargs)

    def construct_plainly(self, cls: type, args: Args, kwargs: Kwargs) -> Variable:
        """`type.__call__`: `__new__`, then `__init__`."""
        if issubclass(cls, BaseException):
            return self._construct_exception(cls, args, kwargs)
        if issubclass(cls, tuple):
            return self._construct_tuple(cls, args, kwargs)
        if cls.__flags__ & (1 << 20):  # abstract
            self.checked(object.__new__, cls)
        new = self.lookup(cls, "__new__")
        new = getattr(new, "__func__", new)
        if isinstance(new, types.FunctionType):
            made = self.call(self.trusted(new), [self.class_variable(cls), *args], kwargs)
            if not issubclass(made.python_type(), cls):
                return made
        else:
            made = self.allocate(cls, args, kwargs)
        init = self.lookup(cls, "__init__")
        if isinstance(init, types.FunctionType):
            self.call(self.trusted(init), [made, *args], kwargs)
        elif isinstance(made, ObjectVariable) and made.container is not None:
            ObjectMethod(made, "__init__", init).call(self, args, kwargs)
        elif (args or kwargs) and new is object.__new__:
            self.raise_(TypeError, f"{cls.__name__}() takes no arguments")
        return made

    def allocate(self, cls: type, args: Args, kwargs: Kwargs | None = None) -> Variable:
        """A bare new object of a class that is written in Python; of one that derives from a plain type, the value of these arguments."""
        container: Variable | None = None
        bases = [base for base in cls.__mro__[1:] if written_in_c(base) and base is not object]
        if cls is object:
            return self.object_variable(cls, None)
        if issubclass(cls, dict):
            container = DictVariable({}, next(b for b in cls.__mro__ if b.__module__ in ("builtins", "collections")))
        elif issubclass(cls, list):
            container = ListVariable([])
        elif (plain := plain_base(cls)) is not None:
            container = self.call(self.class_variable(plain), args, kwargs or {})
        elif bases and any(base.__module__ not in ("typing", "abc", "collections.abc") and base is not _C.OverrideScope for base in bases):
            graph_break("call of C function", f"making a {cls.__module__}.{cls.__qualname__}")
        if written_in_c(cls):
            graph_break("call of C function", f"making a {cls.__module__}.{cls.__qualname__}")
        return self.object_variable(cls, container)

    def new_tuple(self, cls: type, items: Args) -> Variable:
        if hasattr(cls, "_fields") and cls.__base__ is tuple:
            return NamedTupleVariable(items, cls)
        if cls is tuple:
            return TupleVariable(items)
        return self.object_variable(cls, TupleVariable(items)) if not hasattr(cls, "_fields") else NamedTupleVariable(items, cls)

    def _construct_tuple(self, cls: type, args: Args, kwargs: Kwargs) -> Variable:
        new = self.lookup(cls, "__new__")
        new = getattr(new, "__func__", new)
        if isinstance(new, types.FunctionType):
            return self.call(self.trusted(new), [self.class_variable(cls), *args], kwargs)
        if new is tuple.__new__ and not isinstance(self.lookup(cls, "__init__"), types.FunctionType):
            return self.new_tuple(cls, list(self.iterate(args[0])) if args else [])
        graph_break("call of C function", f"making a {cls.__qualname__}")

    def _construct_exception(self, cls: type, args: Args, kwargs: Kwargs) -> Variable:
        if cls is OSError and len(args) > 1:  # the error number tells which kind of OSError it is
            cls = type(OSError(*map(self.known, args)))
        made = ExceptionVariable(cls, args, kwargs)
        init = self.lookup(cls, "__init__")
        if isinstance(init, types.FunctionType):
            self.call(self.trusted(init), [made, *args], kwargs)
        return made


class _Binder(Variable):
    """`f.__get__`: binds a function to an object."""

    def __init__(self, function: FunctionBase) -> None:
        self.function = function

    def call(self, tx: Any, args: Args, kwargs: Kwargs) -> Variable:
        return MethodVariable(self.function, args[0])


