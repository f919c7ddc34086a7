"""Instances of Python classes, classes, modules, properties, super(), exceptions, and generators."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..break_kinds import graph_break
from ..exceptions import RaisedInTrace
from ..source import Source, constant_source
from .base import Args, ConstantVariable, IdentityKey, Kwargs, LazyVariable, ValueVariable, Variable
from .dicts import DictVariable
from .functions import MethodVariable
from .sequences import IteratorVariable, ListVariable, TupleVariable

if TYPE_CHECKING:
    from ..frame import Frame
    from ..replacement import Writer
    from ..trace import Trace

_MISSING = object()
SLOT_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType)


def lookup_in_class(cls: type, name: str) -> Any:
    """The raw entry of the first class in the MRO that has `name`, or _MISSING."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return _MISSING


class ObjectVariable(Variable):
    """An instance of a class: an existing one (`value`) or one made during capture (`value` is None).

    `written` holds the attributes set during capture (None: deleted). Subclasses of dict, list and tuple keep their items in
    `container`.
    """

    def __init__(self, cls: type, value: Any = None, source: Source | None = None, container: Variable | None = None) -> None:
        self.cls, self.value, self.source, self.container = cls, value, source, container
        self.written: dict[str, Variable | None] = {}
        self.read: dict[str, Variable] = {}
        self.new_args: Args = []

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return f"{self.cls.__name__} object" + (f" {self.source}" if self.source is not None else "")

    # reading attributes, in the order of object.__getattribute__
    def attr(self, tx: Trace, name: str) -> Variable:
        own = lookup_in_class(self.cls, "__getattribute__")
        fallback = lookup_in_class(self.cls, "__getattr__")
        if isinstance(own, types.FunctionType):
            try:
                return tx.call(tx.class_function(own), [self, ConstantVariable(name)], {})
            except RaisedInTrace as error:
                if fallback is _MISSING or not issubclass(error.value.python_type(), AttributeError):
                    raise
        else:
            found = self.find_attr(tx, name)
            if found is not None:
                return found
        if isinstance(fallback, types.FunctionType):
            return tx.call(tx.class_function(fallback), [self, ConstantVariable(name)], {})
        tx.raise_(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")

    def find_attr(self, tx: Trace, name: str) -> Variable | None:
        """What `object.__getattribute__` finds, or None."""
        if name == "__class__":
            return tx.class_variable(self.cls, self.source)
        if name == "__dict__":
            return InstanceDict(self)
        entry = lookup_in_class(self.cls, name)
        if isinstance(entry, property):
            if name in self.written:
                return self.written[name]
            return tx.call(tx.class_function(entry.fget), [self], {})
        if name in self.written:
            return self.written[name]
        if self.value is not None:
            found = self.read.get(name) or self.existing_attr(tx, name, entry)
            if found is not None:
                self.read[name] = found
                return found
        if entry is _MISSING or isinstance(entry, SLOT_DESCRIPTORS):
            return None
        return self.class_attr(tx, name, entry)

    def existing_attr(self, tx: Trace, name: str, entry: Any) -> Variable | None:
        assert self.source is not None
        instance = getattr(self.value, "__dict__", None)
        if instance is not None and name in instance and not inspect.isdatadescriptor(entry):
            return tx.wrap(instance[name], self.source.dict_item(name))
        if isinstance(entry, SLOT_DESCRIPTORS):
            try:
                return tx.wrap(getattr(self.value, name), self.source.attr(name))
            except AttributeError:
                tx.guard(f"not hasattr({{0}}, {name!r})", self.source)
                return None
        if instance is not None:
            tx.guard_absent(self.source, name)
        return None

    def class_attr(self, tx: Trace, name: str, entry: Any) -> Variable:
        """A class attribute, bound as its descriptor says."""
        for base in self.cls.__mro__:
            if name in tx.effects.attributes(base):
                return tx.effects.attributes(base)[name]
            if name in base.__dict__:
                break
        if isinstance(entry, staticmethod):
            return tx.class_function(entry.__func__)
        if isinstance(entry, classmethod):
            return MethodVariable(tx.class_function(entry.__func__), tx.class_variable(self.cls, None))
        if isinstance(entry, types.FunctionType) or tx.is_operator(entry):
            return MethodVariable(tx.class_function(entry), self)
        special = self.special_method(tx, name, entry)
        if special is not None:
            return special
        if isinstance(entry, functools._lru_cache_wrapper):
            return MethodVariable(tx.class_function(entry), self)
        if isinstance(entry, functools.cached_property) and entry.attrname is not None:
            value = tx.call(tx.class_function(entry.func), [self], {})
            self.store_attr(tx, entry.attrname, value)
            return value
        getter = lookup_in_class(type(entry), "__get__")
        if isinstance(getter, types.FunctionType):
            owner = tx.wrap(entry, constant_source(self.cls).dict_item(name))
            return tx.call(tx.class_function(getter), [owner, self, tx.class_variable(self.cls, None)], {})
        if getter is not _MISSING:
            graph_break("unknown attribute", f"{self.cls.__name__}.{name} is a {type(entry).__name__}")
        return tx.wrap(entry, constant_source(self.cls).attr(name))

    def special_method(self, tx: Trace, name: str, entry: Any) -> Variable | None:
        """Methods of object, dict, list and tuple that capture models."""
        if name in ("__setattr__", "__delattr__", "__getattribute__", "__init__", "__new__", "__eq__", "__ne__", "__hash__") and (
            entry is getattr(object, name, None)
        ):
            return ObjectMethod(self, name)
        if self.container is not None and isinstance(entry, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            return ObjectMethod(self, name)
        if name == "__init__" and isinstance(entry, types.WrapperDescriptorType):
            return ObjectMethod(self, name)
        return None

    def has_attr(self, tx: Trace, name: str) -> bool:
        own = lookup_in_class(self.cls, "__getattribute__")
        if lookup_in_class(self.cls, "__getattr__") is _MISSING and not isinstance(own, types.FunctionType):
            if name in self.written:
                return self.written[name] is not None
            entry = lookup_in_class(self.cls, name)
            if not isinstance(entry, (property, *SLOT_DESCRIPTORS)):
                if entry is not _MISSING:
                    return True
                return self.find_attr(tx, name) is not None
        try:
            self.attr(tx, name)
        except RaisedInTrace as error:
            if issubclass(error.value.python_type(), AttributeError):
                return False
            raise
        return True

    # writing
    def set_attr(self, tx: Trace, name: str, value: Variable) -> None:
        setter = lookup_in_class(self.cls, "__setattr__")
        if isinstance(setter, types.FunctionType) and not self.plain_setattr(setter, name, value):
            tx.call(tx.class_function(setter), [self, ConstantVariable(name), value], {})
            return
        entry = lookup_in_class(self.cls, name)
        if isinstance(entry, property):
            if entry.fset is None:
                tx.raise_(AttributeError, f"property {name!r} of {self.cls.__name__!r} object has no setter")
            tx.call(tx.class_function(entry.fset), [self, value], {})
            return
        own = lookup_in_class(type(entry), "__set__")
        if isinstance(own, types.FunctionType):
            tx.call(tx.class_function(own), [tx.wrap(entry, constant_source(self.cls).dict_item(name)), self, value], {})
            return
        self.store_attr(tx, name, value)

    def plain_setattr(self, setter: types.FunctionType, name: str, value: Variable) -> bool:
        """Does the class's own `__setattr__` do nothing but object's here?"""
        return False

    def store_attr(self, tx: Trace, name: str, value: Variable | None) -> None:
        """`object.__setattr__`, or delete with None."""
        entry = lookup_in_class(self.cls, name)
        if inspect.isdatadescriptor(entry) and not isinstance(entry, (property, *SLOT_DESCRIPTORS)):
            graph_break("unknown attribute", f"{self.cls.__name__}.{name} is a {type(entry).__name__}")
        tx.effects.touch(self)
        self.written[name] = value

    def del_attr(self, tx: Trace, name: str) -> None:
        deleter = lookup_in_class(self.cls, "__delattr__")
        if isinstance(deleter, types.FunctionType):
            tx.call(tx.class_function(deleter), [self, ConstantVariable(name)], {})
            return
        if self.find_attr(tx, name) is None:
            tx.raise_(AttributeError, name)
        self.store_attr(tx, name, None)

    # operators: the class's special methods
    def special(self, tx: Trace, name: str) -> Variable | None:
        """`type(self).name` bound to self, or None."""
        entry = lookup_in_class(self.cls, name)
        if entry is _MISSING or entry is None:
            return None
        if isinstance(entry, types.FunctionType):
            return MethodVariable(tx.class_function(entry), self)
        if isinstance(entry, (types.WrapperDescriptorType, types.MethodDescriptorType)):
            return self.special_method(tx, name, entry)
        return self.class_attr(tx, name, entry)

    def _special_call(self, tx: Trace, name: str, args: Args, what: str) -> Variable:
        found = self.special(tx, name)
        if found is None:
            tx.raise_(TypeError, f"{self.cls.__name__!r} object {what}")
        return tx.call(found, args, {})

    def truth(self, tx: Trace) -> bool:
        for name in ("__bool__", "__len__"):
            if isinstance(lookup_in_class(self.cls, name), types.FunctionType):
                return tx.truth(self._special_call(tx, name, [], ""))
        if self.container is not None:
            return self.container.truth(tx)
        if lookup_in_class(self.cls, "__bool__") is _MISSING and lookup_in_class(self.cls, "__len__") is _MISSING:
            return True
        graph_break("unknown operation", f"truth value of {self.describe()}")

    def length(self, tx: Trace) -> Variable:
        return self._special_call(tx, "__len__", [], "has no len()")

    def item(self, tx: Trace, key: Variable) -> Variable:
        return self._special_call(tx, "__getitem__", [key], "is not subscriptable")

    def set_item(self, tx: Trace, key: Variable, value: Variable) -> None:
        self._special_call(tx, "__setitem__", [key, value], "does not support item assignment")

    def del_item(self, tx: Trace, key: Variable) -> None:
        self._special_call(tx, "__delitem__", [key], "does not support item deletion")

    def contains(self, tx: Trace, key: Variable) -> bool:
        if self.special(tx, "__contains__") is not None:
            return tx.truth(self._special_call(tx, "__contains__", [key], ""))
        return any(tx.same_or_equal(item, key) for item in self.iterate(tx))

    def iterate(self, tx: Trace) -> Iterator[Variable]:
        if self.special(tx, "__iter__") is not None:
            return tx.iterate(self._special_call(tx, "__iter__", [], ""))
        if self.special(tx, "__next__") is not None:
            return self._drive(tx)
        if self.special(tx, "__getitem__") is not None:
            return self._by_index(tx)
        tx.raise_(TypeError, f"{self.cls.__name__!r} object is not iterable")

    def _drive(self, tx: Trace) -> Iterator[Variable]:
        while True:
            try:
                element = self._special_call(tx, "__next__", [], "is not an iterator")
            except RaisedInTrace as error:
                if issubclass(error.value.python_type(), StopIteration):
                    return
                raise
            yield element

    def _by_index(self, tx: Trace) -> Iterator[Variable]:
        index = 0
        while True:
            try:
                element = self.item(tx, ConstantVariable(index))
            except RaisedInTrace as error:
                if issubclass(error.value.python_type(), IndexError):
                    return
                raise
            yield element
            index += 1

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        found = self.special(tx, "__call__")
        if found is None:
            tx.raise_(TypeError, f"{self.cls.__name__!r} object is not callable")
        return tx.call(found, args, kwargs)

    def binary(self, tx: Trace, op: Any, other: Variable, reflected: bool) -> Variable | None:
        for name in tx.special_names(op, reflected):
            entry = lookup_in_class(self.cls, name)
            if isinstance(entry, types.FunctionType):
                answer = tx.call(tx.class_function(entry), [self, other], {})
                if not (isinstance(answer, ConstantVariable) and answer.value is NotImplemented):
                    return answer
        if self.container is not None:
            return self.container.binary(tx, op, getattr(other, "container", None) or other, reflected)
        return None

    def key(self) -> Any:
        if lookup_in_class(self.cls, "__hash__") is object.__hash__:
            return IdentityKey(self)
        if dataclasses.is_dataclass(self.cls) and self.cls.__hash__ is not None and self.value is None:
            return (self.cls, *(v.key() for v in self.written.values() if v is not None))
        graph_break("unknown operation", f"hash of {self.describe()}")

    # outside of the graph
    def build(self, w: Writer) -> str:
        if self.source is not None:
            return w.fetch(self.source)
        made = w.bind(self.allocation(w))
        w.remember(self, made)
        w.effects_of(self)
        return made

    def allocation(self, w: Writer) -> str:
        """An expression for the bare new object."""
        cls = w.constant(self.cls)
        args = "".join(f", {w.value(a)}" for a in self.new_args)
        if isinstance(self.container, TupleVariable):
            return f"tuple.__new__({cls}, ({''.join(w.value(i) + ', ' for i in self.container.items)}))"
        base = next(b for b in self.cls.__mro__ if b.__module__ in ("builtins", "collections", "types"))
        return f"{w.constant(base)}.__new__({cls}{args})"

    def replay(self, w: Writer) -> None:
        """Set the attributes that were written, in order."""
        target = w.value(self)
        if self.value is None and self.container is not None and not isinstance(self.container, TupleVariable):
            self._replay_container(w, target)
        for name, value in self.written.items():
            if value is None:
                if self.value is not None:
                    w.effect(f"object.__delattr__({target}, {name!r})")
            elif self._sets_plainly():
                w.effect(f"{target}.{name} = {w.value(value)}")
            else:
                w.effect(f"object.__setattr__({target}, {name!r}, {w.value(value)})")

    def _sets_plainly(self) -> bool:
        return lookup_in_class(self.cls, "__setattr__") is object.__setattr__

    def _replay_container(self, w: Writer, target: str) -> None:
        base = w.constant(self.container.python_type())  # type: ignore[union-attr]
        if isinstance(self.container, DictVariable):
            for key, value in self.container.items.values():
                w.effect(f"{base}.__setitem__({target}, {w.value(key)}, {w.value(value)})")
        elif isinstance(self.container, ListVariable):
            w.effect(f"list.extend({target}, {self.container.wrap_elements(list(map(w.value, self.container.items)), w)})")


class InstanceDict(DictVariable):
    """`obj.__dict__`: what is written through it is an attribute of the object, and the other way round."""

    def __init__(self, owner: ObjectVariable) -> None:
        source = owner.source.attr("__dict__") if owner.source is not None else None
        super().__init__({}, dict, source, None)
        self.owner = owner

    def open(self, tx: Trace) -> dict[Any, tuple[Variable, Variable]]:
        """All attributes of the instance, in order."""
        merged: dict[Any, tuple[Variable, Variable]] = {}
        if self.owner.value is not None:
            existing = self.owner.value.__dict__
            assert self.source is not None
            tx.guard_keys(self.source, existing)
            merged = {name: (ConstantVariable(name), self._existing(tx, name)) for name in existing}
        for name, value in self.owner.written.items():
            if value is None:
                merged.pop(name, None)
            else:
                merged[name] = (ConstantVariable(name), value)
        self.items = merged
        return merged

    def _existing(self, tx: Trace, name: str) -> Variable:
        assert self.owner.source is not None
        known = self.owner.read.get(name)
        return known or LazyVariable(self.owner.value.__dict__[name], self.owner.source.dict_item(name))

    def lookup(self, tx: Trace, key: Variable) -> Variable | None:
        name = tx.known(key)
        if name in self.owner.written:
            return self.owner.written[name]
        if self.owner.value is None:
            return None
        if name in self.owner.value.__dict__:
            found = self.owner.read[name] = self._existing(tx, name).realize(tx)
            return found
        assert self.owner.source is not None
        tx.guard_absent(self.owner.source, name)
        return None

    def truth(self, tx: Trace) -> bool:
        return bool(self.open(tx))

    def changed(self, tx: Trace) -> None:
        self.open(tx)

    def set_item(self, tx: Trace, key: Variable, value: Variable) -> None:
        name = tx.known(key)
        if inspect.isdatadescriptor(lookup_in_class(self.owner.cls, name)):
            graph_break("unknown attribute", f"{self.owner.describe()}.__dict__[{name!r}] = ...")
        self.owner.store_attr(tx, name, value)

    def del_item(self, tx: Trace, key: Variable) -> None:
        if self.lookup(tx, key) is None:
            tx.raise_(KeyError, tx.known(key))
        self.owner.store_attr(tx, tx.known(key), None)

    def _update(self, tx: Trace, *others: Variable, **kwargs: Variable) -> Variable:
        fresh = DictVariable()
        fresh.METHODS["update"](fresh, tx, *others, **kwargs)
        for key, value in fresh.items.values():
            self.set_item(tx, key, value)
        return ConstantVariable(None)

    def _pop(self, tx: Trace, key: Variable, default: Variable | None = None) -> Variable:
        found = self.lookup(tx, key)
        if found is None:
            return default if default is not None else self.item(tx, key)
        self.del_item(tx, key)
        return found

    def _refuse(self, tx: Trace, *args: Variable) -> Variable:
        graph_break("unknown attribute", f"a method of {self.owner.describe()}.__dict__")

    METHODS = {**DictVariable.METHODS, "update": _update, "pop": _pop, "clear": _refuse, "popitem": _refuse}

    def build(self, w: Writer) -> str:
        return f"{w.value(self.owner)}.__dict__"


class ObjectMethod(Variable):
    """A method that the class inherits from object, dict, list or tuple."""

    def __init__(self, owner: ObjectVariable, name: str) -> None:
        self.owner, self.name = owner, name

    def python_type(self) -> type:
        return types.MethodWrapperType

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        owner, name = self.owner, self.name
        if name == "__setattr__":
            owner.store_attr(tx, str(args[0].as_constant()), args[1])
            return ConstantVariable(None)
        if name == "__delattr__":
            owner.store_attr(tx, str(args[0].as_constant()), None)
            return ConstantVariable(None)
        if name == "__getattribute__":
            found = owner.find_attr(tx, str(args[0].as_constant()))
            if found is None:
                tx.raise_(AttributeError, args[0].as_constant())
            return found
        if name in ("__eq__", "__ne__") and owner.container is None:
            same = args[0] is owner
            return ConstantVariable(same is (name == "__eq__")) if same else ConstantVariable(NotImplemented)
        if name == "__init__" and owner.container is None:
            return ConstantVariable(None)
        if owner.container is not None:
            return self._container_call(tx, owner.container, args, kwargs)
        graph_break("unknown attribute", f"{owner.describe()}.{name}")

    def _container_call(self, tx: Trace, container: Variable, args: Args, kwargs: Kwargs) -> Variable:
        none = ConstantVariable(None)
        tx.effects.touch(self.owner)
        match self.name:
            case "__init__":
                if isinstance(container, DictVariable):
                    container.method(tx, "update", args, kwargs)
                elif isinstance(container, ListVariable) and args:
                    container.method(tx, "extend", args, {})
                return none
            case "__getitem__":
                return container.item(tx, args[0])
            case "__setitem__":
                container.set_item(tx, args[0], args[1])
                return none
            case "__delitem__":
                container.del_item(tx, args[0])
                return none
            case "__contains__":
                return ConstantVariable(container.contains(tx, args[0]))
            case "__len__":
                return container.length(tx)
            case "__iter__":
                return IteratorVariable(container.iterate(tx))
            case "__eq__" | "__ne__":
                return tx.compare(getattr(__import__("operator"), self.name), container, getattr(args[0], "container", args[0]))
        return container.method(tx, self.name, args, kwargs)

    def build(self, w: Writer) -> str:
        return f"{w.value(self.owner)}.{self.name}"


class ClassVariable(ValueVariable):
    """A class."""

    def describe(self) -> str:
        return f"class {self.value.__qualname__}"

    def attr(self, tx: Trace, name: str) -> Variable:
        cls = self.value
        written = tx.effects.attributes(cls)
        if name in written:
            return written[name]
        entry = lookup_in_class(cls, name)
        meta = lookup_in_class(type(cls), name)
        if isinstance(meta, property) and meta.fget is not None:
            return tx.call(tx.class_function(meta.fget), [self], {})
        if name == "__dict__":
            return tx.wrap(cls.__dict__, constant_source(cls).attr(name))
        if entry is _MISSING or isinstance(entry, types.GetSetDescriptorType):
            if isinstance(meta, types.FunctionType):
                return MethodVariable(tx.class_function(meta), self)
            try:
                return tx.wrap(getattr(cls, name), constant_source(cls).attr(name))
            except AttributeError as error:
                tx.raise_(AttributeError, *error.args)
        if isinstance(entry, classmethod):
            return MethodVariable(tx.class_function(entry.__func__), self)
        if isinstance(entry, staticmethod):
            return tx.class_function(entry.__func__)
        if isinstance(entry, types.FunctionType) or tx.is_operator(entry):
            return tx.class_function(entry)
        getter = lookup_in_class(type(entry), "__get__")
        if isinstance(getter, types.FunctionType) and type(entry).__module__ not in ("enum", "types", "functools"):
            descriptor = tx.wrap(entry, constant_source(entry))
            return tx.call(tx.class_function(getter), [descriptor, ConstantVariable(None), self], {})
        return tx.wrap(getattr(cls, name), constant_source(cls).attr(name))

    def has_attr(self, tx: Trace, name: str) -> bool:
        return name in tx.effects.attributes(self.value) or hasattr(self.value, name)

    def set_attr(self, tx: Trace, name: str, value: Variable) -> None:
        if isinstance(lookup_in_class(type(self.value), "__setattr__"), types.FunctionType):
            graph_break("unknown attribute", f"{self.value.__name__}.{name} = ...")
        tx.effects.set_attribute(self.value, name, value)

    def item(self, tx: Trace, key: Variable) -> Variable:
        if issubclass(self.value, enum.Enum):
            members: Any = self.value
            return tx.fold(lambda k: members[k], [key])
        if hasattr(self.value, "__class_getitem__"):
            return self  # list[int]: only annotations use it
        return super().item(tx, key)

    def contains(self, tx: Trace, key: Variable) -> bool:
        return bool(tx.fold(lambda k: k in self.value, [key]).as_constant())

    def iterate(self, tx: Trace) -> Iterator[Variable]:
        if issubclass(self.value, enum.Enum):
            return iter([ConstantVariable(member) for member in self.value])
        return super().iterate(tx)

    def length(self, tx: Trace) -> Variable:
        return tx.fold(len, [self])

    def binary(self, tx: Trace, op: Any, other: Variable, reflected: bool) -> Variable | None:
        if getattr(op, "__name__", "") == "or_":  # int | None in an annotation
            return ConstantVariable(op(self.value, other.as_constant()))
        return None

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        return tx.construct(self.value, args, kwargs)

    def build(self, w: Writer) -> str:
        return w.constant(self.value)


class ModuleVariable(ValueVariable):
    """A Python module."""

    def describe(self) -> str:
        return f"module {self.value.__name__}"

    def attr(self, tx: Trace, name: str) -> Variable:
        written = tx.effects.globals_of(self.value.__dict__)
        if name in written:
            return written[name]
        try:
            value = getattr(self.value, name)
        except AttributeError as error:
            tx.raise_(AttributeError, *error.args)
        base = constant_source(self.value, trusted=tx.is_trusted_module(self.value.__name__))
        if base.trusted and not isinstance(value, (bool, int, float, str, list, dict)):
            return tx.wrap(value, constant_source(value, trusted=True))
        return tx.wrap(value, constant_source(self.value).attr(name))

    def has_attr(self, tx: Trace, name: str) -> bool:
        return hasattr(self.value, name)

    def set_attr(self, tx: Trace, name: str, value: Variable) -> None:
        tx.effects.set_global(self.value.__dict__, name, value)

    def build(self, w: Writer) -> str:
        return w.constant(self.value)


class PropertyVariable(ValueVariable):
    """`property`, `staticmethod` or `classmethod` objects met as values."""

    def attr(self, tx: Trace, name: str) -> Variable:
        return tx.wrap(getattr(self.value, name), constant_source(self.value).attr(name))


class SuperVariable(Variable):
    """`super(cls, owner)`."""

    def __init__(self, cls: type, owner: Variable) -> None:
        self.cls, self.owner = cls, owner

    def python_type(self) -> type:
        return super

    def _resolve(self, name: str) -> tuple[Any, bool]:
        """The entry after `cls` in the MRO, and whether the owner is a class."""
        is_class = isinstance(self.owner, ClassVariable) and issubclass(self.owner.value, self.cls)
        mro = (self.owner.value if is_class else self.owner.python_type()).__mro__  # type: ignore[attr-defined]
        for base in mro[mro.index(self.cls) + 1 :]:
            if name in base.__dict__:
                return base.__dict__[name], is_class
        return _MISSING, is_class

    def attr(self, tx: Trace, name: str) -> Variable:
        entry, is_class = self._resolve(name)
        if entry is _MISSING:
            tx.raise_(AttributeError, f"'super' object has no attribute {name!r}")
        if isinstance(entry, staticmethod) or name == "__new__":
            return tx.class_function(getattr(entry, "__func__", entry))
        if isinstance(entry, classmethod):
            owner = self.owner if is_class else tx.class_variable(self.owner.python_type(), None)
            return MethodVariable(tx.class_function(entry.__func__), owner)
        if isinstance(entry, types.FunctionType):
            function = tx.class_function(entry)
            return function if is_class else MethodVariable(function, self.owner)
        if isinstance(entry, property):
            return tx.call(tx.class_function(entry.fget), [self.owner], {})
        if isinstance(self.owner, ObjectVariable):
            special = self.owner.special_method(tx, name, entry)
            if special is not None:
                return special
        if not hasattr(type(entry), "__get__"):
            return tx.wrap(entry, constant_source(entry))
        if isinstance(self.owner, ClassVariable) and not is_class:
            return MethodVariable(tx.class_function(entry), self.owner)
        graph_break("unknown attribute", f"super().{name} of {self.owner.describe()}")

    def has_attr(self, tx: Trace, name: str) -> bool:
        return self._resolve(name)[0] is not _MISSING

    def build(self, w: Writer) -> str:
        return f"super({w.constant(self.cls)}, {w.value(self.owner)})"


class ExceptionVariable(ObjectVariable):
    """An exception made by the traced program."""

    def __init__(self, cls: type, args: Args, kwargs: Kwargs | None = None) -> None:
        super().__init__(cls)
        self.args = args
        self.kwargs = kwargs or {}

    def attr(self, tx: Trace, name: str) -> Variable:
        if name in self.written and self.written[name] is not None:
            return self.written[name]  # type: ignore[return-value]
        if name == "args":
            return TupleVariable(list(self.args))
        if name in ("__cause__", "__context__", "__traceback__"):
            return ConstantVariable(None)
        if name == "value" and issubclass(self.cls, StopIteration):
            return self.args[0] if self.args else ConstantVariable(None)
        if name == "with_traceback":
            return MethodVariable(tx.python_function(_with_traceback), self)
        return super().attr(tx, name)

    def special_method(self, tx: Trace, name: str, entry: Any) -> Variable | None:
        if name == "__init__" and isinstance(entry, types.WrapperDescriptorType):
            return ExceptionInit(self)
        return super().special_method(tx, name, entry)

    def store_attr(self, tx: Trace, name: str, value: Variable | None) -> None:
        self.written[name] = value

    def text(self) -> str:
        return ", ".join(str(a.as_constant()) if a.is_constant() else a.describe() for a in self.args)

    def build(self, w: Writer) -> str:
        parts = [w.value(a) for a in self.args] + [f"{k}={w.value(v)}" for k, v in self.kwargs.items()]
        made = w.bind(f"{w.constant(self.cls)}({', '.join(parts)})")
        w.remember(self, made)
        for name, value in self.written.items():
            if value is not None:
                w.effect(f"{made}.{name} = {w.value(value)}")
        return made


def _with_traceback(error: Any, traceback: Any) -> Any:
    return error


class ExceptionInit(Variable):
    """`super().__init__` of an exception class."""

    def __init__(self, owner: ExceptionVariable) -> None:
        self.owner = owner

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        self.owner.written["args"] = TupleVariable(args)
        return ConstantVariable(None)


class GeneratorVariable(IteratorVariable):
    """A generator made by the traced program; its frame is interpreted as elements are asked for."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.kind = types.GeneratorType
        self.finished = False

    def next(self, tx: Trace) -> Variable | None:
        return self.send(tx, ConstantVariable(None))

    def send(self, tx: Trace, value: Variable) -> Variable | None:
        """Run to the next yield, or None at the end."""
        if self.finished:
            return None
        if self.started:
            self.frame.push(value)
        self.started = True
        try:
            produced = tx.run_generator(self.frame)
        except RaisedInTrace:
            self.finished = True
            raise
        if produced is None:
            self.finished = True
        return produced

    def result(self) -> Variable:
        """What the generator returned."""
        return self.frame.returned or ConstantVariable(None)

    def method(self, tx: Trace, name: str, args: Args, kwargs: Kwargs) -> Variable:
        if name == "send":
            produced = self.send(tx, args[0])
            if produced is None:
                tx.raise_variable(ExceptionVariable(StopIteration, [self.result()]))
            return produced
        if name == "close":
            self.finished = True
            return ConstantVariable(None)
        return super().method(tx, name, args, kwargs)

    def attr(self, tx: Trace, name: str) -> Variable:
        if name in ("send", "close", "__next__", "__iter__"):
            return tx.container_method(self, name)
        return super().attr(tx, name)

