# mypy: disable-error-code="arg-type,attr-defined"
# A mixin of Trace: `self` is a Trace.
"""From an existing Python value and its source to a variable, with the guards that make this right."""

from __future__ import annotations

import collections
import datetime
import enum
import functools
import itertools
import operator
import os
import random
import re
import threading
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .. import _C
from ..autograd.graph import disable_saved_tensors_hooks
from ..core import dispatch
from ..core.device import device
from ..core.dtypes import dtype
from ..core.forms import FormTensor
from ..core.memory_format import layout, memory_format
from ..core.size import Size, is_contiguous
from ..core.tensor import Tensor
from ..core.unresolved import waits
from ..ops.aten import AtenOperator, Overload
from ..ops.registry import is_operator
from . import policy
from .break_kinds import describe, graph_break
from .exceptions import RunEagerly
from .guards import About, typed
from .source import Source, constant_source
from .surroundings import MISSING, attributes_of, setting_at
from .variables.arrays import is_captured, wrap_array
from .variables.autocast import autocast_class, wrap_autocast
from .variables.base import (
    PLAIN_PARTS,
    ConstantVariable,
    LazyVariable,
    NamedMethod,
    NotConstant,
    ValueVariable,
    Variable,
    is_plain_constant,
    plain_base,
)
from .variables.builtins import HANDLERS, BuiltinVariable
from .variables.contexts import GRAD_SCOPES, DeviceScope, GradScope, ProfilerScope, Scope, ScopeExit, UnhookedScope, is_device
from .variables.dicts import DictVariable, MappingProxyVariable, SetVariable
from .variables.draws import RandomVariable
from .variables.floats import FloatVariable, NumpyNumberVariable
from .variables.functions import CellVariable, DisabledVariable, FunctionVariable, MethodVariable, PartialVariable
from .variables.nn_module import ModuleObjectVariable
from .variables.objects import ClassVariable, ModuleVariable, ObjectVariable, PropertyVariable, ThreadLocalVariable, written_in_c
from .variables.references import CounterVariable, ExistingReference, ProxyVariable
from .variables.sequences import (
    EXHAUSTED,
    DequeVariable,
    ExistingList,
    ListVariable,
    NamedTupleVariable,
    RangeVariable,
    SequenceIterator,
    SizeVariable,
    SliceVariable,
    StructSequenceVariable,
    TupleVariable,
)
from .variables.spread import computes, wrap_spread
from .variables.tensor import SymVariable
from .variables.texts import UnreadText
from .variables.wrappers import wrap_existing

IMMUTABLE = (dtype, device, layout, memory_format, types.CodeType, types.UnionType, types.GenericAlias)
"""Objects that are constants, compared by identity or value."""
IMMUTABLE_BY_TEXT = (datetime.date, datetime.time, datetime.datetime, datetime.timedelta)
"""The same, compared by what `repr` says of them."""


_Build = Callable[[Any, Any, Source], Variable]


class OpaqueVariable(ValueVariable):
    """An existing object that capture doesn't understand: it can be passed on, nothing else."""

    source: Source

    def as_constant(self) -> Any:
        raise NotConstant(self)

    def attr(self, tx: Any, name: str) -> Variable:
        if name == "__traceback__" and isinstance(self.value, BaseException):
            return tx.wrap(self.value.__traceback__, self.source.attr(name))
        entry = tx.lookup(type(self.value), name)
        if isinstance(entry, types.MethodDescriptorType) and name not in getattr(self.value, "__dict__", ()):
            return OpaqueMethod(self, name)
        return super().attr(tx, name)

    def has_attr(self, tx: Any, name: str) -> bool:
        return isinstance(tx.lookup(type(self.value), name), types.MethodDescriptorType) or super().has_attr(tx, name)

    def describe(self) -> str:
        return f"{type(self.value).__module__}.{type(self.value).__qualname__} object {self.source.words}"


class OpaqueMethod(NamedMethod):
    """A method of such an object: it is found and called in one step, between two graphs."""

    def describe(self) -> str:
        return f"{self.owner.describe()}.{self.name}"

    def call(self, tx: Any, args: Any, kwargs: Any) -> Variable:
        graph_break("call of C function", f"{self.describe()}()")


class NumpyFunction(ValueVariable):
    """A function of NumPy that is no Python function."""

    def describe(self) -> str:
        return f"numpy.{self.value.__name__}"

    def call(self, tx: Any, args: Any, kwargs: Any) -> Variable:
        return tx.call_numpy(self.value, args, kwargs)


class OperatorVariable(ValueVariable):
    """An operator that is an object, such as a custom one: a call of it is one node."""

    def call(self, tx: Any, args: Any, kwargs: Any) -> Variable:
        return tx.call_operator(self.value, args, kwargs)

    def attr(self, tx: Any, name: str) -> Variable:
        return tx.literal(tx.checked(getattr, self.value, name))

    def has_attr(self, tx: Any, name: str) -> bool:
        return hasattr(self.value, name)


class AtenVariable(OperatorVariable):
    """`torch.ops.aten.add` or one of its overloads: the operator behind it, or the function of ATen's arguments that calls some."""

    def call(self, tx: Any, args: Any, kwargs: Any) -> Variable:
        try:
            function, given, named = self.value.resolve(_folded(args), {name: _folded([v])[0] for name, v in kwargs.items()})
        except (NotImplementedError, TypeError) as error:
            graph_break("call of unknown object", str(error))
        given, named = [_unfolded(tx, v) for v in given], {name: _unfolded(tx, v) for name, v in named.items()}
        if is_operator(function):
            return tx.call_operator(function, given, named)
        return tx.inline(tx.wrap(function, constant_source(function)), given, named)


def _folded(values: Iterable[Variable]) -> list[Any]:
    """Constants by their values."""
    return [v.value if isinstance(v, ConstantVariable) else v for v in values]


def _unfolded(tx: Any, value: Any) -> Variable:
    return value if isinstance(value, Variable) else tx.literal(value)


class Builder:
    """Mixed into Trace."""

    def wrap(self, value: Any, source: Source) -> Variable:
        """The variable of an existing value."""
        known = self.effects.known(value)
        if known is not None:
            self._guard_alias(known, source)
            return known
        if type(value) is autocast_class():
            return wrap_autocast(self, value, source)
        special = self.special_value(value, source)
        if special is not None:
            return special
        build = _EXACT.get(type(value))
        if build is None:
            otherwise = _FACTS[getattr(type(value), "_flambeau_fact", None)]
            build = next((b for kinds, b in _BY_CLASS if isinstance(value, kinds)), otherwise)
        return build(self, value, source)

    def trusted(self, value: Any) -> Any:
        """The variable of an object that capture found by itself, such as a function in a class: taken as it is, without a guard."""
        return self.wrap(value, constant_source(value, trusted=True))

    def special_value(self, value: Any, source: Source) -> Variable | None:
        """Callables with a handler, operators that are objects, compiled and disabled functions."""
        if not callable(value):
            return None
        marks = attributes_of(value)
        plain_class = isinstance(value, type)
        if "_flambeau_original" in marks and not plain_class:
            return self._original(value, value._flambeau_original, source, "{0}._flambeau_original")
        if "_flambeau_captured_as" in marks:
            return self._original(value, value._flambeau_captured_as, source, "{0}._flambeau_captured_as")
        if hasattr(type(value), "_flambeau_original"):
            return self._original(value, type(value)._flambeau_original, source, "type({0})._flambeau_original")
        kind: Any = None
        if "_flambeau_disabled" in marks:
            kind = DisabledVariable
        elif is_operator(value) and not isinstance(value, (type, types.FunctionType)):
            kind = OperatorVariable
        elif not plain_class and self._has_handler(value):
            kind = BuiltinVariable
        return _by_identity(kind)(self, value, source) if kind is not None else None

    def _original(self, value: Any, original: Any, source: Source, template: str) -> Variable:
        """A compiled function or module inside of another: captured as what it was made from."""
        if source.is_constant:
            return self.trusted(original)
        self.guard_type(source, value)
        return self.wrap(original, source.derive(template))

    def _has_handler(self, value: Any) -> bool:
        try:
            return value in HANDLERS
        except TypeError:
            return False

    def _guard_alias(self, known: Variable, source: Source) -> None:
        if known.source is not None and known.source != source and not source.is_constant:
            self.guard("{0} is {1}", source, known.source, reason="the same object", about="identity")

    def remember(self, value: Any, variable: Any) -> Any:
        """An existing mutable object: one variable for all ways that lead to it."""
        self.effects.register(value, variable)
        variable.is_setting = setting_at(value) is not None
        return variable

    # -- guards -------------------------------------------------------------------------------------------------------------
    def guard(self, template: str, *sources: Source, reason: str = "", about: About = "value") -> None:
        if not all(source.is_constant for source in sources):
            self.guards.add(template, *sources, reason=reason, about=about)

    def guard_identity(self, source: Source, value: Any) -> None:
        if source.is_constant:
            return
        owner = getattr(value, "__self__", None)
        if isinstance(value, types.BuiltinMethodType) and isinstance(owner, type):  # a new object each time that it is asked for
            self.guard(f"{{0}}.__self__ is {{1}} and {{0}}.__name__ == {value.__name__!r}", source, constant_source(owner))
        else:
            self.guard("{0} is {1}", source, constant_source(value), about="identity")

    def guard_type(self, source: Source, value: Any) -> None:
        self.guard("{0} is {1}", source.type(), constant_source(type(value)), about="identity")

    def guard_number(self, source: Source, value: Any) -> None:
        """It is this float or complex number, NaN and the sign of zero included."""
        kind = type(value).__name__
        if value == 0 or isinstance(value, complex):
            self.guard(f"repr({{0}}) == {repr(value)!r}", source)
        elif value != value:
            self.guard(f"{{0}}.__class__ is {kind} and {{0}} != {{0}}", source)
        else:
            self.guard(f"{{0}}.__class__ is {kind} and {{0}} == {{1}}", source, constant_source(value))

    def guard_absent(self, source: Source, name: str) -> None:
        """`name` isn't in the instance's `__dict__`."""
        if not source.is_constant:
            self.absent.setdefault(source, set()).add(name)

    def guard_keys(self, source: Source, value: Any) -> None:
        """The keys of an existing dict, in order."""
        keys = list(value)
        if all(map(is_plain_constant, keys)):
            self.guard_elements(source, keys, reason="keys", about="keys")
        else:
            self.guard(f"len({{0}}) == {len(keys)}", source, about="length")
            for position, key in enumerate(keys):
                self.guard("{0} is {1}", source.derive(f"list({{0}})[{position}]"), constant_source(key))

    def guard_elements(self, source: Source, values: list[Any], *, reason: str = "", about: About = "value") -> None:
        """The elements of an iterable, in order. Equal ones may be of different types: 1, 1.0 and True."""
        self.guard("{1}({0}) == {2}", source, constant_source(typed), constant_source(typed(values)), reason=reason, about=about)

    def key_of(self, source: Source, key: Any, position: int) -> tuple[Variable, Source]:
        """The variable of a key of an existing dict, and the source of its value."""
        if isinstance(key, type):
            return ClassVariable(key), source.item(key)
        if is_plain_constant(key) or isinstance(key, IMMUTABLE):
            return ConstantVariable(key), source.item(key)
        key_source = source.derive(f"list({{0}})[{position}]")
        return self.wrap(key, key_source), source.derive("{0}[{1}]", key_source)

    def module_source(self, module: types.ModuleType) -> Source:
        """A module as a source that guards look into."""
        return constant_source(module).derive("{0}")

    # -- containers ---------------------------------------------------------------------------------------------------------
    def guard_sequence(self, value: Any, source: Source) -> list[Variable]:
        """Guard type and length; the elements stay unlooked-at."""
        self.guard_type(source, value)
        self.guard(f"len({{0}}) == {len(value)}", source, reason="length", about="length")
        return [LazyVariable(item, source.item(i)) for i, item in enumerate(value)]

    def existing_cell(self, cell: Any, source: Source) -> CellVariable:
        known = self.effects.known(cell)
        if isinstance(known, CellVariable):
            return known
        made = CellVariable(None, source)
        try:
            made.contents = LazyVariable(cell.cell_contents, source.contents())
        except ValueError:
            pass
        return self.remember(cell, made)


# -- how each kind of value is wrapped -----------------------------------------------------------------------------------------
def _by_identity(kind: Callable[..., Variable]) -> _Build:
    """An object that stands for itself: a guard says that it is this one."""

    def wrap(tx: Any, value: Any, source: Source) -> Variable:
        tx.guard_identity(source, value)
        return kind(value, source)

    return wrap


_wrap_same = _by_identity(ConstantVariable)


def _wrap_singleton(tx: Any, value: Any, source: Source) -> Variable:
    tx.guard(f"{{0}} is {'...' if value is ... else value}", source)
    return ConstantVariable(value, source)


def _wrap_int(tx: Any, value: int, source: Source) -> Variable:
    symbolic = tx.dynamic_int(value, source, tx.presumed_varying(source))
    if symbolic is not None:
        return symbolic
    tx.guard(f"{{0}}.__class__ is int and {{0}} == {value}", source)
    return ConstantVariable(value, source)


def _wrap_number(tx: Any, value: Any, source: Source) -> Variable:
    tx.guard_number(source, value)
    return ConstantVariable(value, source)


def _wrap_float(tx: Any, value: float, source: Source) -> Variable:
    if not tx.number_varies(value, source, tx.presumed_varying(source)):
        return _wrap_number(tx, value, source)
    tx.guard("{0}.__class__ is float", source, about="any")
    return FloatVariable(tx, value, source)


def _wrap_text(tx: Any, value: Any, source: Source) -> Variable:
    tx.guard(f"{{0}}.__class__ is {type(value).__name__}", source)
    return UnreadText(tx, value, source)


def _wrap_numpy_number(tx: Any, value: Any, source: Source) -> Variable:
    tx.guard_type(source, value)
    variable = NumpyNumberVariable(tx, value, source)
    if isinstance(value, (np.floating, np.integer)) and tx.number_varies(value.item(), source, presumed=True):   # an array to operators
        return variable
    return ConstantVariable(variable.specialize(), source)


def _wrap_equal(tx: Any, value: Any, source: Source) -> Variable:
    tx.guard_type(source, value)
    tx.guard("{0} == {1}", source, constant_source(value))
    return ConstantVariable(value, source)


def _wrap_by_text(tx: Any, value: Any, source: Source) -> Variable:
    """Equal ones may still differ, as two times in different zones."""
    tx.guard_type(source, value)
    tx.guard("repr({0}) == {1}", source, constant_source(repr(value)))
    return ConstantVariable(value, source)


def _wrap_tuple(tx: Any, value: tuple, source: Source) -> Variable:
    if value and len(value) <= 16 and all(map(_plainly_equal, value)) and not tx.may_vary(source):
        tx.guard_type(source, value)
        tx.guard_elements(source, list(value))
        return TupleVariable([tx.literal(v) for v in value], source)
    return TupleVariable(tx.guard_sequence(value, source), source)


def _wrap_list(tx: Any, value: list, source: Source) -> Variable:
    tx.guard_type(source, value)
    return tx.remember(value, ExistingList(value, source, lambda: tx.guard_sequence(value, source)))


def _wrap_deque(tx: Any, value: Any, source: Source) -> Variable:
    tx.guard(f"{{0}}.maxlen == {value.maxlen}", source)
    return tx.remember(value, DequeVariable(tx.guard_sequence(value, source), value.maxlen, source))


def _wrap_dict(tx: Any, value: dict, source: Source) -> Variable:
    tx.guard_type(source, value)
    made = DictVariable({}, type(value), source, value)
    if isinstance(value, collections.defaultdict) and value.default_factory is not None:
        made.default_factory = tx.wrap(value.default_factory, source.attr("default_factory"))
    return tx.remember(value, made)


def _plainly_equal(value: Any) -> bool:
    """Is it a constant for which `==` among values of its type says all? Of floats it doesn't: 0.0 and -0.0, NaN."""
    return isinstance(value, IMMUTABLE) or (is_plain_constant(value) and not isinstance(value, (float, complex)))


def _wrap_set(tx: Any, value: Any, source: Source) -> Variable:
    tx.guard_type(source, value)
    if all(is_plain_constant(item) or isinstance(item, (*IMMUTABLE, type, types.FunctionType)) for item in value):
        tx.guard_elements(source, list(value))
        variables = [tx.literal(item) for item in value]
    else:   # objects, which are told by where they stand
        tx.guard(f"len({{0}}) == {len(value)}", source, reason="length", about="length")
        variables = [tx.wrap(item, source.derive(f"list({{0}})[{i}]")) for i, item in enumerate(value)]
    return tx.remember(value, SetVariable({tx.hashable(v): v for v in variables}, type(value), source))


def _wrap_mapping_proxy(tx: Any, value: Any, source: Source) -> Variable:
    tx.guard_type(source, value)
    return MappingProxyVariable(DictVariable({}, dict, source, dict(value)), source)


def _wrap_range(tx: Any, value: range, source: Source) -> Variable:
    tx.guard_type(source, value)
    tx.guard("({0}.start, {0}.stop, {0}.step) == {1}", source, constant_source((value.start, value.stop, value.step)))
    return RangeVariable(value, source)


def _wrap_slice(tx: Any, value: slice, source: Source) -> Variable:
    tx.guard_type(source, value)
    start, stop, step = (tx.wrap(getattr(value, name), source.attr(name)) for name in ("start", "stop", "step"))
    return SliceVariable(start, stop, step, source)


class EnvironmentVariable(Variable):
    """`os.environ`: what is read is guarded."""

    kind: Any = type(os.environ)

    def __init__(self, source: Source) -> None:
        self.source = source

    def lookup(self, tx: Any, key: Variable) -> str | None:
        name = tx.known(key)
        value = os.environ.get(name)
        tx.guard(f"{{0}}.environ.get({name!r}) == {value!r}", tx.module_source(os), reason="environment variable")
        return value

    def item(self, tx: Any, key: Variable) -> Variable:
        value = self.lookup(tx, key)
        if value is None:
            tx.raise_(KeyError, tx.known(key))
        return ConstantVariable(value)

    def contains(self, tx: Any, key: Variable) -> bool:
        return self.lookup(tx, key) is not None

    def attr(self, tx: Any, name: str) -> Variable:
        return NamedMethod(self, name)

    def method(self, tx: Any, name: str, args: Any, kwargs: Any) -> Variable:
        if name != "get":
            graph_break("call of skipped function", f"os.environ.{name}()")
        value = self.lookup(tx, args[0])
        return args[1] if value is None and len(args) > 1 else ConstantVariable(value)


class ExistingIterator(SequenceIterator):
    """A list or tuple iterator that existed before; its position is a side effect. Where it stands is guarded once the program takes
    something: a loop whose rounds are compiled by themselves only passes it on."""

    def __init__(self, value: Any, source: Source) -> None:
        self.value, self.source, self.kind = value, source, type(value)
        self.looked_at = False

    def _look(self, tx: Any) -> None:
        assert self.source is not None
        _, state, *rest = self.value.__reduce__()
        if not rest:
            graph_break("unknown iterable", f"{self.source.words} is exhausted")
        tx.guard(f"{{0}}.__reduce__()[2] == {rest[0]}", self.source)
        self.sequence, self.position = tx.wrap(state[0], self.source.derive("{0}.__reduce__()[1][0]")), rest[0]
        self.looked_at = True

    def next(self, tx: Any) -> Variable | None:
        if not self.looked_at:
            self._look(tx)
        tx.effects.touch(self)
        return super().next(tx)

    def build(self, w: Any) -> str:
        return w.fetch(self.source)

    def replay(self, w: Any) -> None:
        iterator = w.fetch(self.source)
        w.effect(f"list({iterator})" if self.position == EXHAUSTED else f"{iterator}.__setstate__({self.position})")


def _wrap_function(tx: Any, value: types.FunctionType, source: Source) -> Variable:
    if source.is_constant or source.trusted or is_operator(value) or tx.is_stable(source):
        tx.guard_identity(source, value)
    else:
        tx.guard_type(source, value)
        tx.guard("{0} is {1}", source.code(), constant_source(value.__code__), about="identity")
    return FunctionVariable(value, source)


def _wrap_method(tx: Any, value: types.MethodType, source: Source) -> Variable:
    tx.guard_type(source, value)
    owner = tx.wrap(value.__self__, source.attr("__self__"))
    if isinstance(owner, Scope) and value.__func__.__name__ == "__exit__":
        return ScopeExit(owner)
    if isinstance(owner, RandomVariable):
        tx.guard(f"{{0}}.__name__ == {value.__name__!r}", source)
        return owner.attr(tx, value.__name__)
    tx.guard("{0} is {1}", source.attr("__func__"), constant_source(value.__func__))
    return MethodVariable(tx.trusted(value.__func__), owner, source)


def _wrap_builtin(tx: Any, value: Any, source: Source) -> Variable:
    owner = getattr(value, "__self__", None)
    bound_to_object = isinstance(value, (types.BuiltinMethodType, types.MethodWrapperType)) and owner is not None
    if bound_to_object and not isinstance(owner, (type, types.ModuleType)):
        tx.guard_type(source, value)
        tx.guard(f"{{0}}.__name__ == {value.__name__!r}", source)
        bound_to = tx.wrap(owner, source.attr("__self__"))
        if value.__name__ == "__exit__" and is_device(bound_to):
            return ScopeExit(DeviceScope(bound_to, source.attr("__self__")))
        if not _is_own_method(tx, value, source):
            return OpaqueVariable(value, source)
        if isinstance(bound_to, OpaqueVariable):
            return OpaqueMethod(bound_to, value.__name__)
        unknown = isinstance(bound_to, ValueVariable) and not isinstance(bound_to, RandomVariable)
        return OpaqueVariable(value, source) if unknown else tx.attr(bound_to, value.__name__)
    tx.guard_identity(source, value)
    return BuiltinVariable(value, source)


def _is_own_method(tx: Any, value: Any, source: Source) -> bool:
    """Is a bound method what its object has under this name, or one that is overridden there, which `super()` gave?"""
    owner, entry = value.__self__, tx.lookup(type(value.__self__), value.__name__)
    if not isinstance(entry, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return entry is not MISSING and not isinstance(entry, types.FunctionType)
    same = entry.__get__(owner) == value
    tx.guard(f"({{1}}.__get__({{0}}.__self__) == {{0}}) is {same}", source, constant_source(entry), about="any")
    return bool(same)


def _wrap_partial(tx: Any, value: functools.partial, source: Source) -> Variable:
    tx.guard_type(source, value)
    function = tx.wrap(value.func, source.attr("func"))
    args = tx.guard_sequence(value.args, source.attr("args"))
    tx.guard_keys(source.attr("keywords"), value.keywords)
    keywords = {k: LazyVariable(v, source.attr("keywords").item(k)) for k, v in value.keywords.items()}
    return tx.remember(value, PartialVariable(function, args, keywords, source, value))


class CachedFunction(Variable):
    """A function behind functools.lru_cache. Called with known arguments it gives the object that the cache holds, which exists
    outside of the graph as the same call, so that a guard sees what becomes of it. With sizes that vary it is traced through."""

    def __init__(self, function: Variable, value: Any, source: Source) -> None:
        self.function, self.value, self.source = function, value, source

    def python_type(self) -> type:
        return type(self.value)

    def call(self, tx: Any, args: Any, kwargs: Any) -> Variable:
        known = [_known_object(arg) for arg in args]
        named = {name: _known_object(value) for name, value in kwargs.items()}
        if all(item is not _UNKNOWN for item in (*known, *named.values())):
            result = tx.checked(self.value, *known, **named)
            parts = [f"{{{i}}}" for i in range(1, len(known) + 1)]
            parts += [f"{name}={{{i}}}" for i, name in enumerate(named, len(known) + 1)]
            values = map(constant_source, (*known, *named.values()))
            return tx.wrap(result, constant_source(self.value).derive(f"{{0}}({', '.join(parts)})", *values))
        if all(isinstance(arg, (ConstantVariable, SymVariable, ObjectVariable)) for arg in (*args, *kwargs.values())):
            return tx.call(self.function, args, kwargs)
        graph_break("call of C function", f"{self.function.describe()} behind functools.lru_cache, with a tensor or container")

    def attr(self, tx: Any, name: str) -> Variable:
        if name in ("cache_info", "cache_clear", "cache_parameters"):
            graph_break("unknown attribute", f"{self.function.describe()}.{name}")
        return tx.attr(self.function, name)


_UNKNOWN = object()


def _known_object(variable: Variable) -> Any:
    """The Python object that a cached function would get, or _UNKNOWN."""
    if isinstance(variable, ObjectVariable):
        unchanged = variable.value is not None and not variable.written and type(variable.value).__hash__ is object.__hash__
        return variable.value if unchanged else _UNKNOWN
    return variable.as_constant() if variable.is_constant() else _UNKNOWN


def _wrap_cached(tx: Any, value: Any, source: Source) -> Variable:
    tx.guard_identity(source, value)
    return tx.remember(value, CachedFunction(tx.trusted(value.__wrapped__), value, source))


def _of_its_type(kind: Callable[..., Variable]) -> _Build:
    """An object of which a guard says that it is of this type."""

    def wrap(tx: Any, value: Any, source: Source) -> Variable:
        tx.guard_type(source, value)
        return tx.remember(value, kind(value, source))

    return wrap


def _wrap_proxy(tx: Any, value: Any, source: Source) -> Variable:
    tx.guard_type(source, value)
    return ProxyVariable(tx, value, source)


def _wrap_tensor(tx: Any, value: Tensor, source: Source) -> Variable:
    kind = type(value)
    if issubclass(kind, FormTensor):
        raise RunEagerly(describe("nested tensor" if value.is_nested else "sparse tensor", source.words))
    if value._data is None:
        if computes(kind):
            return wrap_spread(tx, value, source)
        if dispatch.answers(value) and hasattr(kind, "__tensor_unflatten__"):
            return wrap_existing(tx, value, source)
        if value.device.type != "meta":     # there everything is but a shape
            raise RunEagerly(describe("fake tensor", source.words))
    if any(waits(value._data)):
        raise RunEagerly(describe("conjugate or negative view", source.words))
    dynamic = tx.dynamic_dims(value, source)
    strides: Any = True if is_contiguous(value.shape, value.stride()) else tuple(value.stride())
    variable = tx.tensor_input(value, source, dynamic, dispatching(kind))
    shape = tuple(int(s) if type(f) is int else None for s, f in zip(value.shape, variable.fake.shape, strict=True))
    if strides is not True:
        strides = tuple(s if type(f) is int else None for s, f in zip(strides, variable.fake.stride(), strict=True))
    spec = _C.TensorSpec(kind, value.dtype, value.device, shape, strides, value.requires_grad)
    tx.guards.tensors[source] = spec
    for dim, stride in enumerate(variable.fake.stride()):
        if type(stride) is not int and strides is not True:
            text = tx.shape_text(stride)
            tx.guard(f"{{0}}.stride({dim}) == {text[0]}", source, *text[1])
    return tx.remember(value, variable)


def dispatching(kind: type) -> bool:
    """Does a tensor class change what operators do?"""
    if kind is Tensor or getattr(kind, "_plain_torch_function", False):
        return False
    own: Any = getattr(kind, "__torch_function__", None)
    return own.__func__ is not Tensor.__torch_function__.__func__


def _wrap_scope(tx: Any, value: Any, source: Source) -> Variable:
    tx.guard_type(source, value)
    name = "mode" if hasattr(value, "mode") else "flag"
    flag = getattr(value, name)
    tx.guard(f"{{0}}.{name} is {flag}", source)
    for i, saved in enumerate(getattr(value, "saved", ())):
        tx.guard(f"{{0}}.saved[{i}] == {saved}", source)
    return tx.remember(value, GradScope(type(value), flag, None, value, source))


def _wrap_getter(tx: Any, value: Any, source: Source) -> Variable:
    """A getter of the module operator: as if the function had made it."""
    tx.guard_identity(source, value)
    kind, given = value.__reduce__()
    named = kind.keywords if isinstance(kind, functools.partial) else {}
    known = [*kind.args, *given] if named else given
    variables = [tx.wrap(item, constant_source(item)) for item in (*known, *named.values())]
    made = tx.call(tx.trusted(type(value)), variables[: len(known)], dict(zip(named, variables[len(known) :], strict=True)))
    made.source = source
    return tx.remember(value, made)


def _wrap_object(tx: Any, value: Any, source: Source) -> Variable:
    """An instance of a class written in Python; of any other class it is opaque."""
    cls = type(value)
    tx.guard_type(source, value)
    if policy.is_profiler_scope(cls):
        given: list[Any] = [LazyVariable(getattr(value, name), source.attr(name)) for name in ("name", "args") if hasattr(value, name)]
        return tx.remember(value, ProfilerScope(cls, given, {}, source))
    if policy.is_nn_module(value):
        tx.modules.add(source)
        return tx.remember(value, ModuleObjectVariable(cls, value, source))
    if isinstance(value, tuple) and isinstance(getattr(cls, "_fields", None), tuple):
        return NamedTupleVariable(tx.guard_sequence(value, source), cls, source)
    if isinstance(value, tuple) and getattr(cls, "n_fields", None) == len(value) == len(cls.__match_args__):
        return StructSequenceVariable(tx.guard_sequence(value, source), cls, source)
    if issubclass(cls, threading.local):
        return tx.remember(value, ThreadLocalVariable(cls, value, source))
    if cls.__module__.startswith(("numpy", "re")) or (written_in_c(cls) and cls is not types.SimpleNamespace):
        return tx.remember(value, OpaqueVariable(value, source))
    if any(written_in_c(base) and base not in (object, dict, list, tuple, collections.OrderedDict, types.SimpleNamespace, _C.OverrideScope)
           and base not in PLAIN_PARTS and base.__module__ not in ("typing", "abc") for base in cls.__mro__):  # fmt: skip
        return tx.remember(value, OpaqueVariable(value, source))
    container: Variable | None = None
    if (plain := plain_base(cls)) is not None:
        container = tx.wrap(PLAIN_PARTS[plain](value), source.derive("{1}({0})", constant_source(PLAIN_PARTS[plain])))
    elif isinstance(value, dict):
        kind = next(base for base in cls.__mro__ if base.__module__ in ("builtins", "collections"))
        container = DictVariable({}, kind, source, plain_entries(value))
        container.plain_source = source.derive("{1}({0})", constant_source(plain_entries))
    elif isinstance(value, (list, tuple)):
        base, made = (list, ListVariable) if isinstance(value, list) else (tuple, TupleVariable)
        elements = [*base.__iter__(value)]  # past what the class overrides
        tx.guard(f"{base.__name__}.__len__({{0}}) == {len(elements)}", source)
        container = made([
            LazyVariable(element, source.derive(f"{base.__name__}.__getitem__({{0}}, {i})")) for i, element in enumerate(elements)
        ], source)  # fmt: skip
    return tx.remember(value, ObjectVariable(cls, value, source, container))


_FACTS = {None: _wrap_object, "identity": _wrap_same, "value": _wrap_equal}
"""Objects of Flambeau's that are known while a graph is captured, by their identity or by what they are equal to; others."""


def plain_entries(value: dict[Any, Any]) -> dict[Any, Any]:
    """The entries of a subclass of dict, past the methods that it overrides."""
    keys = collections.OrderedDict.__iter__(value) if isinstance(value, collections.OrderedDict) else dict.__iter__(value)
    return {key: dict.__getitem__(value, key) for key in keys}


_NUMPY_NUMBERS = (np.float64, np.float32, np.float16, np.int64, np.int32, np.int16, np.int8, np.uint8, np.bool_)
_EXACT: dict[type, _Build] = {
    type(None): _wrap_singleton, bool: _wrap_singleton, type(...): _wrap_singleton, type(NotImplemented): _wrap_singleton,
    int: _wrap_int, float: _wrap_float, complex: _wrap_number, str: _wrap_text, bytes: _wrap_text,
    dtype: _wrap_same, layout: _wrap_same, memory_format: _wrap_same, device: _wrap_equal, types.CodeType: _wrap_same,
    re.Pattern: _wrap_equal, **dict.fromkeys(IMMUTABLE_BY_TEXT, _wrap_by_text),
    tuple: _wrap_tuple, list: _wrap_list, dict: _wrap_dict, collections.OrderedDict: _wrap_dict,
    collections.defaultdict: _wrap_dict, collections.Counter: _wrap_dict, collections.deque: _wrap_deque,
    Size: lambda tx, value, source: SizeVariable(tx.guard_sequence(value, source), Size, source),
    set: _wrap_set, frozenset: _wrap_set, types.MappingProxyType: _wrap_mapping_proxy, range: _wrap_range, slice: _wrap_slice,
    **dict.fromkeys((type(iter([])), type(iter(()))), _of_its_type(ExistingIterator)),
    types.FunctionType: _wrap_function, types.MethodType: _wrap_method, types.BuiltinFunctionType: _wrap_builtin,
    types.MethodDescriptorType: _wrap_builtin, types.WrapperDescriptorType: _wrap_builtin,
    types.MethodWrapperType: _wrap_builtin, types.ClassMethodDescriptorType: _wrap_builtin,
    type(os.environ): lambda tx, value, source: EnvironmentVariable(source), types.ModuleType: _by_identity(ModuleVariable),
    **dict.fromkeys((property, staticmethod, classmethod), _by_identity(PropertyVariable)),
    functools._lru_cache_wrapper: _wrap_cached, functools.partial: _wrap_partial, Tensor: _wrap_tensor,
    types.CellType: lambda tx, value, source: tx.existing_cell(value, source),
    **dict.fromkeys((np.ufunc, type(np.prod)), _by_identity(NumpyFunction)), **dict.fromkeys(_NUMPY_NUMBERS, _wrap_numpy_number),
    np.ndarray: lambda tx, value, source: (
        tx.remember(value, wrap_array(tx, value, source)) if is_captured(value) else _wrap_object(tx, value, source)),
    random.Random: _of_its_type(RandomVariable), AtenOperator: _by_identity(AtenVariable),
    Overload: _by_identity(AtenVariable),
    itertools.count: _of_its_type(CounterVariable), **dict.fromkeys(weakref.ProxyTypes, _wrap_proxy),
    types.UnionType: _wrap_same, types.GenericAlias: _wrap_same,
    **dict.fromkeys(GRAD_SCOPES, _wrap_scope),
    disable_saved_tensors_hooks: _of_its_type(UnhookedScope.existing),
    **dict.fromkeys((operator.attrgetter, operator.itemgetter, operator.methodcaller), _wrap_getter),
}  # fmt: skip


_BY_CLASS: list[tuple[Any, _Build]] = [
    (Tensor, _wrap_tensor),
    (enum.Enum, _wrap_same),
    (types.ModuleType, _by_identity(ModuleVariable)),
    (type, _by_identity(ClassVariable)),
    (weakref.ref, _of_its_type(ExistingReference)),
]
