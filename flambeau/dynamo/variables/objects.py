"""Instances of Python classes, classes, modules, properties, super(), exceptions, and generators."""

from __future__ import annotations

import enum
import functools
import operator
import types
from collections.abc import Iterator
from typing import Any, NoReturn

from .. import policy
from ..break_kinds import graph_break
from ..exceptions import RaisedInTrace, pythons_words
from ..source import Source, constant_source
from ..surroundings import MISSING, attributes_of, lookup_in_class
from ..typed import Trace, Writer
from .base import NONE, PLAIN_PARTS, Args, ConstantVariable, IdentityKey, Kwargs, LazyVariable, NamedMethod, ValueVariable, Variable, plain_base
from .dicts import DictVariable
from .functions import FunctionBase, MethodVariable
from .sequences import ListVariable, TupleVariable

_HEAP_TYPE = 1 << 9
METHODS = (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
"""What a class may have as a method: a Python function, or one of a built-in class, as in `__getattr__ = dict.__getitem__`."""
SLOT_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType)


def written_in_c(cls: type) -> bool:
    """Is it a class that C code defines? It may be a heap type as well; but then it has methods of its own that are not Python's."""
    methods = [entry for entry in vars(cls).values() if isinstance(entry, (types.WrapperDescriptorType, types.MethodDescriptorType))]
    return not cls.__flags__ & _HEAP_TYPE or any(method.__objclass__ is cls for method in methods)


def _is_own(entry: Any, name: str) -> bool:
    """Is a class's `__setattr__` or `__delattr__` a method of the program's, or another one of a built-in class?"""
    return isinstance(entry, types.FunctionType) or (isinstance(entry, METHODS) and entry.__name__ != name)


def _holds(value: Any, name: str) -> bool:
    """Has an existing object this attribute of its own, in its `__dict__` or in a slot?"""
    return name in attributes_of(value) or isinstance(lookup_in_class(type(value), name), SLOT_DESCRIPTORS)


def bind_written(value: Variable, name: str, owner: Variable | None) -> Variable:
    """What a class attribute that was written during capture gives when it is asked of an instance (of the class without one)."""
    if not hasattr(value.python_type(), "__get__"):
        return value
    if not isinstance(value, FunctionBase):
        graph_break("unknown attribute", f"{name}, a new {value.python_type().__name__}")
    return value if owner is None else MethodVariable(value, owner)


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
        self.beneath = container if plain_base(cls) is not None else None

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return f"{self.cls.__name__} object" + (f" {self.source.words}" if self.source is not None else "")

    # reading attributes, in the order of object.__getattribute__
    def attr(self, tx: Trace, name: str) -> Variable:
        own = tx.lookup(self.cls, "__getattribute__")
        fallback = tx.lookup(self.cls, "__getattr__")
        if isinstance(own, types.FunctionType):
            try:
                return tx.call(tx.trusted(own), [self, ConstantVariable(name)], {})
            except RaisedInTrace as error:
                if fallback is MISSING or not issubclass(error.value.python_type(), AttributeError):
                    raise
        else:
            found = self.find_attr(tx, name)
            if found is not None:
                return found
        if isinstance(fallback, METHODS):
            return tx.call(tx.trusted(fallback), [self, ConstantVariable(name)], {})
        self.no_attr(tx, name)

    def no_attr(self, tx: Trace, name: str) -> NoReturn:
        entry = tx.lookup(self.cls, name)
        if isinstance(entry, types.MemberDescriptorType):  # a slot that is empty
            tx.checked(entry.__get__, self._bare())
        tx.raise_(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")

    def _bare(self) -> Any:
        """Another object of the class, without attributes."""
        if self.container is not None:
            graph_break("unknown attribute", f"slots of {self.describe()}")
        return object.__new__(self.cls)

    def find_attr(self, tx: Trace, name: str) -> Variable | None:
        """What `object.__getattribute__` finds, or None."""
        if name == "__class__":
            return tx.class_variable(self.cls)
        if name == "__dict__" and self.cls.__dictoffset__:
            return InstanceDict(self)
        if self.written.get(name) is not None:
            return self.written[name]
        new = tx.effects.class_attribute(self.cls.__mro__, name)
        entry = tx.lookup(self.cls, name) if new is None else MISSING
        if isinstance(entry, property):
            return tx.call(tx.trusted(entry.fget), [self], {})
        if self.beneath is not None and isinstance(entry, SLOT_DESCRIPTORS) and entry.__objclass__ in PLAIN_PARTS:
            return self.beneath.attr(tx, name)
        if self.value is not None and name not in self.written:
            found = self.read.get(name) or self.existing_attr(tx, name, entry)
            if found is not None:
                self.read[name] = found
                return found
        if new is not None:
            return bind_written(new, name, self)
        if entry is MISSING or isinstance(entry, SLOT_DESCRIPTORS):
            return None
        return self.class_attr(tx, name, entry)

    def existing_attr(self, tx: Trace, name: str, entry: Any) -> Variable | None:
        assert self.source is not None
        instance = attributes_of(self.value)
        if name in instance and not tx.is_data_descriptor(entry):
            return tx.wrap(instance[name], self.source.dict_item(name))
        if isinstance(entry, SLOT_DESCRIPTORS):
            try:
                return tx.wrap(getattr(self.value, name), self.source.attr(name))
            except AttributeError:
                tx.guard(f"not hasattr({{0}}, {name!r})", self.source)
                return None
        if self.cls.__dictoffset__ and not tx.is_data_descriptor(entry):
            tx.guard_absent(self.source, name)
        return None

    def class_attr(self, tx: Trace, name: str, entry: Any) -> Variable:
        """A class attribute, bound as its descriptor says."""
        bound = tx.bind(entry, self, self.cls)
        if bound is not None:
            return bound
        special = self.special_method(tx, name, entry)
        if special is not None:
            return special
        if isinstance(entry, functools.cached_property) and entry.attrname is not None:
            value = tx.call(tx.trusted(entry.func), [self], {})
            self.store_attr(tx, entry.attrname, value)
            return value
        getter = tx.lookup(type(entry), "__get__")
        if isinstance(getter, types.FunctionType):
            owner = tx.wrap(entry, constant_source(self.cls).dict_item(name))
            return tx.call(tx.trusted(getter), [owner, self, tx.class_variable(self.cls)], {})
        if getter is not MISSING:
            graph_break("unknown attribute", f"{self.cls.__name__}.{name} is a {type(entry).__name__}")
        return tx.wrap(entry, constant_source(self.cls).class_attr(name))

    def special_method(self, tx: Trace, name: str, entry: Any) -> Variable | None:
        """Methods of object, dict, list and tuple that capture models."""
        if name in ("__setattr__", "__delattr__", "__getattribute__", "__init__", "__new__", "__eq__", "__ne__", "__hash__") and (
            entry is getattr(object, name, None)
        ):
            return ObjectMethod(self, name, entry)
        if self.container is not None and isinstance(entry, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            return ObjectMethod(self, name, entry)
        if name == "__init__" and isinstance(entry, types.WrapperDescriptorType):
            return ObjectMethod(self, name, entry)
        return None

    def has_attr(self, tx: Trace, name: str) -> bool:
        own = tx.lookup(self.cls, "__getattribute__")
        if tx.lookup(self.cls, "__getattr__") is MISSING and not isinstance(own, types.FunctionType):
            if self.written.get(name) is not None:
                return True
            entry = tx.lookup(self.cls, name)
            if not isinstance(entry, (property, *SLOT_DESCRIPTORS)):
                if entry is not MISSING:
                    return True
                return self.find_attr(tx, name) is not None
        return self.attr_or_none(tx, name) is not None

    def attr_or_none(self, tx: Trace, name: str) -> Variable | None:
        try:
            return self.attr(tx, name)
        except RaisedInTrace as error:
            if issubclass(error.value.python_type(), AttributeError):
                return None
            raise

    # writing
    def set_attr(self, tx: Trace, name: str, value: Variable) -> None:
        setter = tx.lookup(self.cls, "__setattr__")
        if _is_own(setter, "__setattr__") and not self.plain_setattr(setter, name, value):
            tx.call(tx.trusted(setter), [self, ConstantVariable(name), value], {})
        elif not self._by_descriptor(tx, name, "__set__", [value]):
            self.store_attr(tx, name, value)

    def _by_descriptor(self, tx: Trace, name: str, method: str, args: Args) -> bool:
        """Set or delete an attribute that is a property or another descriptor written in Python; False if it is none."""
        entry = tx.lookup(self.cls, name)
        if isinstance(entry, property):
            function, word = (entry.fset, "setter") if method == "__set__" else (entry.fdel, "deleter")
            if function is None:
                tx.raise_(AttributeError, f"property {name!r} of {self.cls.__name__!r} object has no {word}")
            tx.call(tx.trusted(function), [self, *args], {})
            return True
        own = tx.lookup(type(entry), method)
        if isinstance(own, types.FunctionType):
            tx.call(tx.trusted(own), [tx.wrap(entry, constant_source(self.cls).dict_item(name)), self, *args], {})
        return isinstance(own, types.FunctionType)

    def plain_setattr(self, setter: Any, name: str, value: Variable | None) -> bool:
        """Does the class's own `__setattr__` do nothing but object's here?"""
        return False

    def store_attr(self, tx: Trace, name: str, value: Variable | None) -> None:
        """`object.__setattr__`, or delete with None."""
        entry = tx.lookup(self.cls, name)
        if tx.is_data_descriptor(entry) and not isinstance(entry, (property, *SLOT_DESCRIPTORS)):
            graph_break("unknown attribute", f"{self.cls.__name__}.{name} is a {type(entry).__name__}")
        if not self.cls.__dictoffset__ and not isinstance(entry, SLOT_DESCRIPTORS):
            tx.checked(object.__setattr__, self._bare(), name, None)  # Python refuses in its own words
        tx.effects.touch(self)
        if value is None and (self.value is None or not _holds(self.value, name)):
            self.written.pop(name, None)  # it was made during capture
        else:
            self.written[name] = value

    def del_attr(self, tx: Trace, name: str) -> None:
        deleter = tx.lookup(self.cls, "__delattr__")
        if _is_own(deleter, "__delattr__") and not self.plain_setattr(deleter, name, None):
            tx.call(tx.trusted(deleter), [self, ConstantVariable(name)], {})
        elif not self._by_descriptor(tx, name, "__delete__", []):
            self.delete_attr(tx, name)

    def delete_attr(self, tx: Trace, name: str) -> None:
        """`object.__delattr__`."""
        if not self._has_own(tx, name, tx.lookup(self.cls, name)):
            tx.checked(object.__delattr__, self._bare(), name)
        self.store_attr(tx, name, None)

    def _has_own(self, tx: Trace, name: str, entry: Any) -> bool:
        """Has the object itself, not its class, this attribute?"""
        if name in self.written:
            return self.written[name] is not None
        return self.value is not None and self.existing_attr(tx, name, entry) is not None

    # operators: the class's special methods
    def special(self, tx: Trace, name: str) -> Variable | None:
        """`type(self).name` bound to self, or None."""
        entry = tx.lookup(self.cls, name)
        if entry is MISSING or entry is None:
            return None
        if isinstance(entry, types.FunctionType):
            return MethodVariable(tx.trusted(entry), self)
        if isinstance(entry, (types.WrapperDescriptorType, types.MethodDescriptorType)):
            return self.special_method(tx, name, entry)
        return self.class_attr(tx, name, entry)

    def _special_call(self, tx: Trace, name: str, args: Args, what: str) -> Variable:
        found = self.special(tx, name)
        if found is None:
            tx.raise_(TypeError, what.format(repr(self.cls.__name__)))
        return tx.call(found, args, {})

    def truth(self, tx: Trace) -> bool:
        for name in ("__bool__", "__len__"):
            if isinstance(tx.lookup(self.cls, name), types.FunctionType):
                return tx.truth(self._special_call(tx, name, [], ""))
        if self.container is not None:
            return self.container.truth(tx)
        if tx.lookup(self.cls, "__bool__") is MISSING and tx.lookup(self.cls, "__len__") is MISSING:
            return True
        graph_break("unknown operation", f"truth value of {self.describe()}")

    def length(self, tx: Trace) -> Variable:
        return self._special_call(tx, "__len__", [], "object of type {} has no len()")

    def item(self, tx: Trace, key: Variable) -> Variable:
        return self._special_call(tx, "__getitem__", [key], "{} object is not subscriptable")

    def set_item(self, tx: Trace, key: Variable, value: Variable) -> None:
        self._special_call(tx, "__setitem__", [key, value], "{} object does not support item assignment")

    def del_item(self, tx: Trace, key: Variable) -> None:
        self._special_call(tx, "__delitem__", [key], "{} object does not support item deletion")

    def contains(self, tx: Trace, key: Variable) -> bool:
        if self.special(tx, "__contains__") is not None:
            return tx.truth(self._special_call(tx, "__contains__", [key], ""))
        if self.special(tx, "__iter__") is None and self.special(tx, "__getitem__") is None:
            tx.raise_(TypeError, pythons_words(operator.contains, object(), 0).replace("'object'", repr(self.cls.__name__)))
        return any(tx.same_or_equal(item, key) for item in self.iterate(tx))

    def iterate(self, tx: Trace) -> Iterator[Variable]:
        if self.special(tx, "__iter__") is not None:
            made = self._special_call(tx, "__iter__", [], "")
            return made._drive(tx) if isinstance(made, ObjectVariable) else tx.iterate(made)
        if self.special(tx, "__next__") is not None:
            return self._drive(tx)
        if self.special(tx, "__getitem__") is not None:
            return self._by_index(tx)
        tx.raise_(TypeError, f"{self.cls.__name__!r} object is not iterable")

    def _drive(self, tx: Trace) -> Iterator[Variable]:
        while True:
            try:
                element = self._special_call(tx, "__next__", [], "{} object is not an iterator")
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
        own = self.special_binary(tx, op, other, reflected)
        if own is not None:
            return own
        if self.container is None:
            return None
        if self.beneath is not None:
            theirs = other.beneath or other
            return tx.binary(op, theirs, self.beneath) if reflected else tx.binary(op, self.beneath, theirs)
        made = self.container.binary(tx, op, getattr(other, "container", None) or other, reflected)
        return self if made is self.container else made  # in place

    def key(self) -> Any:
        if lookup_in_class(self.cls, "__eq__") is object.__eq__ or hasattr(self, "identity_hash"):
            return IdentityKey(self)
        graph_break("unknown operation", f"hash of {self.describe()}")

    # outside of the graph
    def make(self, w: Writer) -> str:
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
        if self.beneath is not None:
            args = f", {w.value(self.beneath)}"
        base = next(b for b in self.cls.__mro__ if b.__module__ in ("builtins", "collections", "types", "flambeau._C"))
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
            elif w.trace.lookup(self.cls, "__setattr__") is object.__setattr__:
                w.effect(f"{target}.{name} = {w.value(value)}")
            else:
                w.effect(f"object.__setattr__({target}, {name!r}, {w.value(value)})")

    def _replay_container(self, w: Writer, target: str) -> None:
        base = w.constant(self.container.python_type())  # type: ignore[union-attr]
        if isinstance(self.container, DictVariable):
            for key, value in self.container.items.values():
                w.effect(f"{base}.__setitem__({target}, {w.value(key)}, {w.value(value)})")
        elif isinstance(self.container, ListVariable):
            w.effect(f"list.extend({target}, {self.container.wrap_elements(list(map(w.value, self.container.items)), w)})")


class ThreadLocalVariable(ObjectVariable):
    """An existing `threading.local`: its attributes are those of this thread."""

    def existing_attr(self, tx: Trace, name: str, entry: Any) -> Variable | None:
        assert self.source is not None
        if name in self.value.__dict__:
            return tx.wrap(self.value.__dict__[name], self.source.attr(name))
        tx.guard(f"{name!r} not in {{0}}.__dict__", self.source, about="any")
        return None

    def store_attr(self, tx: Trace, name: str, value: Variable | None) -> None:
        tx.effects.touch(self)
        self.written[name] = value

    def replay(self, w: Writer) -> None:
        target = w.value(self)
        for name, value in self.written.items():
            w.effect(f"{target}.__dict__.pop({name!r}, None)" if value is None else f"{target}.{name} = {w.value(value)}")


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
        if tx.is_data_descriptor(tx.lookup(self.owner.cls, name)):
            graph_break("unknown attribute", f"{self.owner.describe()}.__dict__[{name!r}] = ...")
        self.owner.store_attr(tx, name, value)

    def del_item(self, tx: Trace, key: Variable) -> None:
        if self.lookup(tx, key) is None:
            tx.raise_(KeyError, tx.known(key))
        self.owner.store_attr(tx, tx.known(key), None)

    def _update(self, tx: Trace, *others: Variable, **kwargs: Variable) -> None:
        fresh = DictVariable()
        fresh.METHODS["update"](fresh, tx, *others, **kwargs)
        for key, value in fresh.items.values():
            self.set_item(tx, key, value)

    def _refuse(self, tx: Trace, *args: Variable) -> Variable:
        graph_break("unknown attribute", f"a method of {self.owner.describe()}.__dict__")

    METHODS = {**DictVariable.METHODS, "update": _update, "clear": _refuse, "popitem": _refuse}

    def build(self, w: Writer) -> str:
        return f"{w.value(self.owner)}.__dict__"


class ObjectMethod(NamedMethod):
    """A method that the class inherits from object, dict, list or tuple."""

    kind: Any = types.MethodWrapperType
    owner: ObjectVariable

    def __init__(self, owner: ObjectVariable, name: str, entry: Any) -> None:
        super().__init__(owner, name)
        self.entry = entry

    def build(self, w: Writer) -> str:
        return f"{w.constant(self.entry)}.__get__({w.value(self.owner)})"   # the class may have overridden what super() gives

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        owner, name = self.owner, self.name
        if name == "__setattr__":
            owner.store_attr(tx, str(args[0].as_constant()), args[1])
            return NONE
        if name == "__delattr__":
            owner.delete_attr(tx, str(args[0].as_constant()))
            return NONE
        if name == "__getattribute__":
            return owner.find_attr(tx, str(args[0].as_constant())) or owner.no_attr(tx, str(args[0].as_constant()))
        if name in ("__eq__", "__ne__") and owner.container is None:
            same = args[0] is owner
            return ConstantVariable(same is (name == "__eq__")) if same else ConstantVariable(NotImplemented)
        if name == "__init__" and owner.container is None:
            return NONE
        if owner.container is not None:
            return self._container_call(tx, owner.container, args, kwargs)
        graph_break("unknown attribute", f"{owner.describe()}.{name}")

    def _container_call(self, tx: Trace, container: Variable, args: Args, kwargs: Kwargs) -> Variable:
        if self.owner.beneath is None:
            tx.effects.touch(self.owner)
        missing = tx.lookup(self.owner.cls, "__missing__") if self.name == "__getitem__" else None
        if isinstance(missing, types.FunctionType) and not container.contains(tx, args[0]):
            return tx.call(tx.trusted(missing), [self.owner, *args], {})
        if self.name == "__init__":
            if isinstance(container, DictVariable):
                container.method(tx, "update", args, kwargs)
            elif isinstance(container, ListVariable) and args:
                container.method(tx, "extend", args, {})
            return NONE
        slot = tx.call_slot(container, self.name, args)
        if slot is not None:
            return slot
        return container.method(tx, self.name, args, kwargs)


class ClassVariable(ValueVariable):
    """A class."""

    def describe(self) -> str:
        return f"class {self.value.__qualname__}"

    def attr(self, tx: Trace, name: str) -> Variable:
        cls = self.value
        new: Variable | None = tx.effects.class_attribute(cls.__mro__, name)
        if new is not None:
            return bind_written(new, name, None)
        entry = tx.lookup(cls, name)
        meta = tx.lookup(type(cls), name)
        if isinstance(meta, property) and meta.fget is not None:
            return tx.call(tx.trusted(meta.fget), [self], {})
        if name == "__dict__":
            if tx.effects.attributes(cls):
                graph_break("unknown attribute", f"{self.describe()}.__dict__ after it was changed")
            return tx.wrap(cls.__dict__, constant_source(cls).attr(name))
        if entry is MISSING or isinstance(entry, types.GetSetDescriptorType):
            if isinstance(meta, types.FunctionType):
                return MethodVariable(tx.trusted(meta), self)
            return tx.wrap(tx.checked(getattr, cls, name), constant_source(cls).attr(name))
        bound = tx.bind(entry, None, cls)
        if bound is not None:
            return bound
        getter = tx.lookup(type(entry), "__get__")
        if isinstance(getter, types.FunctionType) and type(entry).__module__ not in ("enum", "types", "functools"):
            descriptor = tx.wrap(entry, constant_source(entry))
            return tx.call(tx.trusted(getter), [descriptor, NONE, self], {})
        return tx.wrap(getattr(cls, name), constant_source(cls).attr(name))

    def has_attr(self, tx: Trace, name: str) -> bool:
        if tx.effects.class_attribute(self.value.__mro__, name) is not None or tx.lookup(self.value, name) is not MISSING:
            return True
        return tx.lookup(type(self.value), name) is not MISSING and hasattr(self.value, name)

    def set_attr(self, tx: Trace, name: str, value: Variable) -> None:
        if isinstance(tx.lookup(type(self.value), "__setattr__"), types.FunctionType) or name.startswith("__"):
            graph_break("unknown attribute", f"{self.value.__name__}.{name} = ...")
        tx.note_write(self.value, name, value)
        tx.effects.set_attribute(self.value, name, value)

    def item(self, tx: Trace, key: Variable) -> Variable:
        if issubclass(self.value, enum.Enum):
            return tx.fold(operator.getitem, [self, key])
        own = tx.lookup(type(self.value), "__getitem__")
        if isinstance(own, types.FunctionType):
            return tx.call(tx.trusted(own), [self, key], {})
        entry = tx.lookup(self.value, "__class_getitem__")
        if entry is MISSING:
            return super().item(tx, key)
        function = getattr(entry, "__func__", None)
        if isinstance(function, types.FunctionType) and function.__module__ != "typing":
            return tx.call(tx.trusted(function), [self, key], {})
        return tx.fold(self.value.__class_getitem__, [key]) if function is None else self  # list[int]; Generic[T] is for annotations

    def contains(self, tx: Trace, key: Variable) -> bool:
        return bool(tx.fold(operator.contains, [self, key]).as_constant())

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


class ModuleVariable(ValueVariable):
    """A Python module."""

    def describe(self) -> str:
        return f"module {self.value.__name__}"

    def attr(self, tx: Trace, name: str) -> Variable:
        found = tx.effects.globals_of(self.value.__dict__).get(name, MISSING)
        if isinstance(found, Variable):
            return found
        try:
            value = tx.checked(getattr, self.value if found is MISSING else types.ModuleType(self.value.__name__), name)
        except RaisedInTrace:
            tx.surroundings.note(self.value.__dict__, name, "absent")
            raise
        base = constant_source(self.value, trusted=policy.is_trusted(self.value.__name__))
        if base.trusted and not isinstance(value, (bool, int, float, str, list, dict)):
            tx.surroundings.note_global(self.value.__dict__, name, value)
            return tx.trusted(value)
        return tx.wrap(value, constant_source(self.value).attr(name))

    def has_attr(self, tx: Trace, name: str) -> bool:
        written = tx.effects.globals_of(self.value.__dict__)
        if name in written:
            return written[name] is not None
        found = hasattr(self.value, name)
        if not found or name in self.value.__dict__:
            tx.surroundings.note(self.value.__dict__, name, "present" if found else "absent")
        return found

    def set_attr(self, tx: Trace, name: str, value: Variable) -> None:
        tx.note_write(self.value.__dict__, name, value)
        tx.effects.set_global(self.value.__dict__, name, value)


class PropertyVariable(ValueVariable):
    """`property`, `staticmethod` or `classmethod` objects met as values."""

    def attr(self, tx: Trace, name: str) -> Variable:
        return tx.wrap(getattr(self.value, name), constant_source(self.value).attr(name))


class SuperVariable(Variable):
    """`super(cls, owner)`."""

    kind: Any = super

    def __init__(self, cls: type, owner: Variable) -> None:
        self.cls, self.owner = cls, owner

    def _resolve(self, tx: Trace, name: str) -> tuple[Any, bool]:
        """The entry after `cls` in the MRO (a variable if capture wrote it), and whether the owner is a class."""
        is_class = isinstance(self.owner, ClassVariable) and issubclass(self.owner.value, self.cls)
        mro = (self.owner.value if is_class else self.owner.python_type()).__mro__  # type: ignore[attr-defined]
        rest = mro[mro.index(self.cls) + 1 :]
        written = tx.effects.class_attribute(rest, name)
        for base in rest if written is None else ():
            tx.lookup(base, name)    # noted
            if name in base.__dict__:
                return base.__dict__[name], is_class
        return MISSING if written is None else written, is_class

    def attr(self, tx: Trace, name: str) -> Variable:
        entry, is_class = self._resolve(tx, name)
        if isinstance(entry, Variable):
            return bind_written(entry, name, None if is_class else self.owner)
        if entry is MISSING:
            tx.raise_(AttributeError, f"'super' object has no attribute {name!r}")
        if name == "__new__":
            return tx.trusted(getattr(entry, "__func__", entry))
        bound = tx.bind(entry, None if is_class else self.owner, self.owner.value if is_class else self.owner.python_type())  # type: ignore[attr-defined]
        if bound is not None:
            return bound
        if isinstance(self.owner, ObjectVariable):
            special = self.owner.special_method(tx, name, entry)
            if special is not None:
                return special
        if not hasattr(type(entry), "__get__"):
            return tx.wrap(entry, constant_source(entry))
        if isinstance(self.owner, ClassVariable) and not is_class:
            return MethodVariable(tx.trusted(entry), self.owner)
        if isinstance(entry, types.WrapperDescriptorType) and not isinstance(self.owner, ObjectVariable):
            return MethodVariable(tx.trusted(entry), self.owner)
        graph_break("unknown attribute", f"super().{name} of {self.owner.describe()}")

    def has_attr(self, tx: Trace, name: str) -> bool:
        return self._resolve(tx, name)[0] is not MISSING

    def build(self, w: Writer) -> str:
        return f"super({w.constant(self.cls)}, {w.value(self.owner)})"
