"""Dictionaries of all kinds, sets, and their views."""

from __future__ import annotations

import collections
import inspect
import operator
from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any

from ..break_kinds import graph_break
from ..source import Source
from .base import NONE, Args, ConstantVariable, IdentityKey, Kwargs, LazyVariable, ModelledVariable, NotConstant, Variable
from .identity import IdVariable
from .sequences import IteratorVariable, ListVariable, SequenceVariable, TupleVariable

if TYPE_CHECKING:
    from ..replacement import Writer
    from ..trace import Trace


def _plain_id(tx: Trace, key: Variable, owner: Variable) -> Variable:
    """`id(x)` as a key of a container that existed before: its keys are numbers."""
    return key.specialize(tx) if isinstance(key, IdVariable) and owner.source is not None else key


class DictVariable(ModelledVariable):
    """A dict, OrderedDict, defaultdict or Counter.

    An existing dict is *closed* at first: single keys are read (and guarded) one by one. Whatever needs all keys (iteration,
    len, mutation) opens it, which guards its keys.
    """

    def __init__(self, items: dict[Any, tuple[Variable, Variable]] | None = None, kind: type = dict,
                 source: Source | None = None, real: dict[Any, Any] | None = None,
                 default_factory: Variable | None = None) -> None:  # fmt: skip
        self.items = items if items is not None else {}
        self.kind = kind
        self.source = source
        self.real = real
        self.default_factory = default_factory
        self.plain_source = source
        """Where the entries are read: for a subclass of dict, past what it overrides."""

    # reading
    def open(self, tx: Trace) -> dict[Any, tuple[Variable, Variable]]:
        """All entries; guards the keys of an existing dict."""
        if self.real is not None:
            real, self.real = self.real, None
            assert self.source is not None
            seen, self.items = self.items, {}
            assert self.plain_source is not None
            tx.guard_keys(self.plain_source, real)
            for position, (key, value) in enumerate(real.items()):
                key_variable = tx.key_variable(key, self.plain_source, position)
                hashed = tx.hashable(key_variable)
                self.items[hashed] = seen.get(hashed) or (
                    key_variable, LazyVariable(value, tx.key_source(self.plain_source, key, position))
                )  # fmt: skip
        return self.items

    def lookup(self, tx: Trace, key: Variable) -> Variable | None:
        """The value at `key`, or None."""
        hashed = self.hashed(tx, key)
        if self.real is not None and hashed not in self.items and key.is_constant():
            assert self.plain_source is not None
            value = key.as_constant()
            if value not in self.real:
                tx.guard("{1}.isdisjoint({0})", self.plain_source, tx.constant_key(frozenset((value,))), reason=f"key {value!r}",
                         about="absent")
                return None
            found: Variable = tx.wrap(self.real[value], self.plain_source.item(value))
            self.items[hashed] = (key, found)
            return found
        entry = (self.items if self.real is not None and hashed in self.items else self.open(tx)).get(hashed)
        if entry is None:
            return None
        found = entry[1].realize(tx)
        self.items[hashed] = (entry[0], found)
        return found

    def hashed(self, tx: Trace, key: Variable) -> Any:
        return tx.hashable(_plain_id(tx, key, self))

    def item(self, tx: Trace, key: Variable) -> Variable:
        found = self.lookup(tx, key)
        if found is not None:
            return found
        if self.default_factory is not None:
            value = tx.call(self.default_factory, [], {})
            self.set_item(tx, key, value)
            return value
        if self.kind is collections.Counter:
            return ConstantVariable(0)
        tx.raise_(KeyError, key.as_constant() if key.is_constant() else key.describe())

    def contains(self, tx: Trace, key: Variable) -> bool:
        return self.lookup(tx, key) is not None

    def truth(self, tx: Trace) -> bool:
        if self.real is not None and not self.items:
            assert self.source is not None
            tx.guard("{0}" if self.real else "not {0}", self.source, about="length")
            return bool(self.real)
        return bool(self.open(tx))

    def length(self, tx: Trace) -> Variable:
        return ConstantVariable(len(self.open(tx)))

    def iterate(self, tx: Trace) -> Iterator[Variable]:
        return (self.items[hashed][0] for hashed in self._hashes(tx))

    def _hashes(self, tx: Trace) -> Iterator[Any]:
        hashes = list(self.open(tx))
        for hashed in hashes:
            if len(self.items) != len(hashes):
                tx.raise_(RuntimeError, f"{'OrderedDict' if self.kind is collections.OrderedDict else 'dictionary'} "
                          f"{'mutated' if self.kind is collections.OrderedDict else 'changed size'} during iteration")
            if hashed not in self.items:
                tx.raise_(RuntimeError, "dictionary keys changed during iteration")
            yield hashed

    def values_of(self, tx: Trace) -> Iterator[Variable]:
        for hashed in self._hashes(tx):
            key, value = self.items[hashed]
            value = value.realize(tx)
            self.items[hashed] = (key, value)
            yield value

    def pairs_of(self, tx: Trace) -> Iterator[Variable]:
        for hashed in self._hashes(tx):
            key, value = self.items[hashed]
            self.items[hashed] = (key, value.realize(tx))
            yield TupleVariable([key, self.items[hashed][1]])

    # writing
    def changed(self, tx: Trace) -> None:
        self.open(tx)
        tx.effects.touch(self)

    def set_item(self, tx: Trace, key: Variable, value: Variable) -> None:
        self.changed(tx)
        hashed = self.hashed(tx, key)
        self.items[hashed] = (self.items[hashed][0] if hashed in self.items else key, value)

    def del_item(self, tx: Trace, key: Variable) -> None:
        if self.lookup(tx, key) is None:
            tx.raise_(KeyError, key.as_constant() if key.is_constant() else key.describe())
        self.changed(tx)
        del self.items[self.hashed(tx, key)]

    def update_from(self, tx: Trace, other: Variable) -> None:
        if isinstance(other, DictVariable):
            for hashed, entry in list(other.open(tx).items()):
                self.changed(tx)
                self.items[hashed] = (self.items[hashed][0] if hashed in self.items else entry[0], entry[1])
            return
        mapping = getattr(other, "mapping", None)
        if mapping is not None:
            return self.update_from(tx, mapping)
        if not isinstance(other, (DictView, SequenceVariable, IteratorVariable)) and tx.has_attr(other, "keys"):
            for key in tx.iterate(tx.call_method(other, "keys", [])):
                self.set_item(tx, key, tx.item(other, key))
            return
        for pair in tx.iterate(other):
            key, value = tx.iterate(pair)
            self.set_item(tx, key, value)

    # methods
    def _get(self, tx: Trace, key: Variable, default: Variable | None = None) -> Variable:
        found = self.lookup(tx, key)
        return found if found is not None else default or NONE

    def _pop(self, tx: Trace, key: Variable, default: Variable | None = None) -> Variable:
        found = self.lookup(tx, key)
        if found is None:
            return default if default is not None else self.item(tx, key)
        self.changed(tx)
        del self.items[self.hashed(tx, key)]
        return found

    def _popitem(self, tx: Trace, last: Variable | None = None) -> Variable:
        entries = list(self.open(tx))
        if not entries:
            tx.raise_(KeyError, "popitem(): dictionary is empty")
        hashed = entries[-1 if last is None or tx.truth(last) else 0]
        key, value = self.items[hashed]
        self.changed(tx)
        del self.items[hashed]
        return TupleVariable([key, value.realize(tx)])

    def _setdefault(self, tx: Trace, key: Variable, default: Variable | None = None) -> Variable:
        found = self.lookup(tx, key)
        if found is None:
            found = default or NONE
            self.set_item(tx, key, found)
        return found

    def _update(self, tx: Trace, *others: Variable, **kwargs: Variable) -> None:
        self.changed(tx)
        for other in others:
            self.update_from(tx, other)
        for name, value in kwargs.items():
            self.set_item(tx, ConstantVariable(name), value)

    def _clear(self, tx: Trace) -> None:
        self.changed(tx)
        self.items.clear()

    def _copy(self, tx: Trace) -> Variable:
        return DictVariable(dict(self.open(tx)), self.kind, default_factory=self.default_factory)

    def _move_to_end(self, tx: Trace, key: Variable, last: Variable | None = None) -> None:
        self.changed(tx)
        hashed = self.hashed(tx, key)
        if hashed not in self.items:
            tx.raise_(KeyError, key.as_constant() if key.is_constant() else key.describe())
        entry = self.items.pop(hashed)
        rest = dict(self.items)
        if last is None or tx.truth(last):
            self.items[hashed] = entry
        else:
            self.items.clear()
            self.items.update({hashed: entry, **rest})

    def _view(self, tx: Trace, which: str) -> Variable:
        return DictView(self, which)

    METHODS = {
        "get": _get, "pop": _pop, "popitem": _popitem, "setdefault": _setdefault, "update": _update, "clear": _clear,
        "copy": _copy, "move_to_end": _move_to_end, "keys": partial(_view, which="keys"),
        "values": partial(_view, which="values"), "items": partial(_view, which="items"),
    }  # fmt: skip

    def model_of(self, name: str) -> Callable[..., Variable | None] | None:
        if self.kind is collections.Counter and name in ("update", "subtract"):
            return partial(DictVariable._count, op=operator.add if name == "update" else operator.sub)
        return super().model_of(name) if self._python_method(name) is None else None

    def attr(self, tx: Trace, name: str) -> Variable:
        if name == "default_factory" and self.kind is collections.defaultdict:
            return self.default_factory or NONE
        return super().attr(tx, name)

    def _python_method(self, name: str) -> Any:
        """A method that the kind of dict (Counter) has written in Python."""
        found = inspect.getattr_static(self.kind, name, None)
        return found if isinstance(found, FunctionType) else None

    def _count(self, tx: Trace, values: Variable | None = None, *, op: Any, **kwargs: Variable) -> None:
        """Counter.update and Counter.subtract."""
        counted: Args = []
        if isinstance(values, (DictVariable, MappingProxyVariable)):
            mapping = values.mapping if isinstance(values, MappingProxyVariable) else values
            counted = list(mapping.pairs_of(tx))
        elif values is not None:
            counted = [TupleVariable([value, ConstantVariable(1)]) for value in tx.iterate(values)]
        counted += [TupleVariable([ConstantVariable(name), value]) for name, value in kwargs.items()]
        for pair in counted:
            key, count = tx.iterate(pair)
            self.set_item(tx, key, tx.binary(op, self.item(tx, key), count))

    def binary(self, tx: Trace, op: Any, other: Variable, reflected: bool) -> Variable | None:
        if not isinstance(other, DictVariable):
            return None
        own = next(filter(None, map(self._python_method, tx.special_names(op, reflected))), None)
        if own is not None:
            answer = tx.call(tx.class_function(own), [self, other], {})
            return None if answer.is_constant() and answer.as_constant() is NotImplemented else answer
        if op is operator.ior and not reflected:
            self._update(tx, other)
            return self
        if op is operator.or_ and not reflected:
            merged = self._copy(tx)
            assert isinstance(merged, DictVariable)
            merged.update_from(tx, other)
            return merged
        if op in (operator.eq, operator.ne):
            mine, yours = self.open(tx), other.open(tx)
            ordered = self.kind is other.kind is collections.OrderedDict
            equal = (list(mine) == list(yours) if ordered else mine.keys() == yours.keys()) and all(
                tx.same_or_equal(mine[k][1].realize(tx), yours[k][1].realize(tx)) for k in mine
            )
            return ConstantVariable(equal is (op is operator.eq))
        return None

    # outside of the graph
    def make(self, w: Writer) -> str:
        return self.literal(w)

    def literal(self, w: Writer) -> str:
        """A new dict with these entries."""
        entries = ", ".join(f"{w.value(key)}: {w.value(value)}" for key, value in self.items.values())
        plain = "{" + entries + "}"
        if self.kind is dict:
            return plain
        if self.kind is collections.defaultdict:
            factory = w.value(self.default_factory) if self.default_factory is not None else "None"
            return f"{w.constant(self.kind)}({factory}, {plain})"
        return f"{w.constant(self.kind)}({plain})"

    def replay(self, w: Writer) -> None:
        """Give an existing dict its final contents."""
        target, base = w.fetch(self.source), w.constant(self.kind)
        entries = [f"{w.value(key)}, {w.value(value)}" for key, value in self.items.values()]
        w.effect(f"{base}.clear({target})")  # through the base: a subclass may have overridden these
        for entry in entries:
            w.effect(f"{base}.__setitem__({target}, {entry})")


class DictView(Variable):
    """`d.keys()`, `d.values()` or `d.items()`."""

    def __init__(self, owner: DictVariable, which: str) -> None:
        self.owner, self.which = owner, which

    def python_type(self) -> type:
        return type(getattr({}, self.which)())

    def iterate(self, tx: Trace) -> Iterator[Variable]:
        if self.which == "keys":
            return self.owner.iterate(tx)
        return self.owner.values_of(tx) if self.which == "values" else self.owner.pairs_of(tx)

    def length(self, tx: Trace) -> Variable:
        return self.owner.length(tx)

    def truth(self, tx: Trace) -> bool:
        return self.owner.truth(tx)

    def contains(self, tx: Trace, key: Variable) -> bool:
        if self.which == "keys":
            return self.owner.contains(tx, key)
        return any(tx.same_or_equal(item, key) for item in self.iterate(tx))

    def as_set(self, tx: Trace) -> SetVariable:
        return SetVariable({tx.hashable(item): item for item in self.iterate(tx)})

    def binary(self, tx: Trace, op: Any, other: Variable, reflected: bool) -> Variable | None:
        if self.which == "values":
            return None
        mine = self.as_set(tx)
        yours = other.as_set(tx) if isinstance(other, DictView) else other
        return mine.binary(tx, op, yours, reflected)

    def build(self, w: Writer) -> str:
        return f"{w.value(self.owner)}.{self.which}()"


class MappingProxyVariable(Variable):
    """A read-only view of a dict."""

    kind: Any = MappingProxyType

    def __init__(self, mapping: DictVariable, source: Source | None = None) -> None:
        self.mapping, self.source = mapping, source

    def item(self, tx: Trace, key: Variable) -> Variable:
        return self.mapping.item(tx, key)

    def contains(self, tx: Trace, key: Variable) -> bool:
        return self.mapping.contains(tx, key)

    def length(self, tx: Trace) -> Variable:
        return self.mapping.length(tx)

    def truth(self, tx: Trace) -> bool:
        return self.mapping.truth(tx)

    def iterate(self, tx: Trace) -> Iterator[Variable]:
        return self.mapping.iterate(tx)

    def attr(self, tx: Trace, name: str) -> Variable:
        return self.mapping.attr(tx, name)

    def method(self, tx: Trace, name: str, args: Args, kwargs: Kwargs) -> Variable:
        if name in ("get", "keys", "values", "items", "copy"):
            return self.mapping.method(tx, name, args, kwargs)
        return super().method(tx, name, args, kwargs)


class SetVariable(ModelledVariable):
    """A set or frozenset of hashable values; iteration order is that of insertion, so building keeps only membership."""

    def __init__(self, items: dict[Any, Variable] | None = None, kind: type = set, source: Source | None = None) -> None:
        self.items = items if items is not None else {}
        self.kind = kind
        self.source = source

    def as_constant(self) -> Any:
        if self.kind is not frozenset:
            raise NotConstant(self)
        return frozenset(item.as_constant() for item in self.items.values())

    def changed(self, tx: Trace) -> None:
        tx.effects.touch(self)

    def truth(self, tx: Trace) -> bool:
        return bool(self.items)

    def length(self, tx: Trace) -> Variable:
        return ConstantVariable(len(self.items))

    def iterate(self, tx: Trace) -> Iterator[Variable]:
        if any(isinstance(key, IdentityKey) for key in self.items):
            graph_break("unknown iterable", "a set of objects, whose order depends on their addresses")
        return iter([self.items[key] for key in set(self.items)])  # a real set of the same keys has the same order

    def contains(self, tx: Trace, key: Variable) -> bool:
        return self.hashed(tx, key) in self.items

    def hashed(self, tx: Trace, key: Variable) -> Any:
        return tx.hashable(_plain_id(tx, key, self))

    def _add(self, tx: Trace, value: Variable) -> None:
        self.changed(tx)
        self.items.setdefault(self.hashed(tx, value), value)

    def _discard(self, tx: Trace, value: Variable) -> None:
        self.changed(tx)
        self.items.pop(self.hashed(tx, value), None)

    def _remove(self, tx: Trace, value: Variable) -> None:
        if not self.contains(tx, value):
            tx.raise_(KeyError, value.as_constant() if value.is_constant() else value.describe())
        self._discard(tx, value)

    def _clear(self, tx: Trace) -> None:
        self.changed(tx)
        self.items.clear()

    def _copy(self, tx: Trace) -> Variable:
        return SetVariable(dict(self.items), self.kind)

    def _update(self, tx: Trace, *others: Variable) -> None:
        for other in others:
            for item in list(tx.iterate(other)):
                self._add(tx, item)

    def _others(self, tx: Trace, others: tuple[Variable, ...]) -> list[dict[Any, Variable]]:
        return [{tx.hashable(item): item for item in tx.iterate(other)} for other in others]

    def _union(self, tx: Trace, *others: Variable) -> SetVariable:
        merged = dict(self.items)
        for other in self._others(tx, others):
            merged = {**other, **merged}
        return SetVariable(merged, self.kind)

    def _intersection(self, tx: Trace, *others: Variable) -> SetVariable:
        sets = self._others(tx, others)
        return SetVariable({k: v for k, v in self.items.items() if all(k in s for s in sets)}, self.kind)

    def _difference(self, tx: Trace, *others: Variable) -> SetVariable:
        sets = self._others(tx, others)
        return SetVariable({k: v for k, v in self.items.items() if not any(k in s for s in sets)}, self.kind)

    def _symmetric_difference(self, tx: Trace, other: Variable) -> SetVariable:
        (yours,) = self._others(tx, (other,))
        kept = {k: v for k, v in self.items.items() if k not in yours}
        return SetVariable({**kept, **{k: v for k, v in yours.items() if k not in self.items}}, self.kind)

    def _updated(self, tx: Trace, *others: Variable, by: Callable[..., SetVariable]) -> None:
        made = by(self, tx, *others)
        self.changed(tx)
        self.items = made.items

    def _compared(self, tx: Trace, other: Variable, *, by: Callable[[Any, Any], bool]) -> Variable:
        return ConstantVariable(by(self.items.keys(), self._others(tx, (other,))[0].keys()))

    METHODS = {
        "add": _add, "discard": _discard, "remove": _remove, "clear": _clear, "copy": _copy, "update": _update,
        "union": _union, "intersection": _intersection, "difference": _difference, "symmetric_difference": _symmetric_difference,
        "intersection_update": partial(_updated, by=_intersection), "difference_update": partial(_updated, by=_difference),
        "symmetric_difference_update": partial(_updated, by=_symmetric_difference),
        "issubset": partial(_compared, by=operator.le), "issuperset": partial(_compared, by=operator.ge),
        "isdisjoint": partial(_compared, by=lambda mine, yours: mine.isdisjoint(yours)),
    }  # fmt: skip

    _OPERATORS: dict[Any, Callable[..., Variable | None]] = {
        operator.or_: _union, operator.and_: _intersection, operator.sub: _difference,
        operator.xor: _symmetric_difference, operator.le: METHODS["issubset"], operator.ge: METHODS["issuperset"],
        operator.lt: partial(_compared, by=operator.lt), operator.gt: partial(_compared, by=operator.gt),
    }  # fmt: skip

    def binary(self, tx: Trace, op: Any, other: Variable, reflected: bool) -> Variable | None:
        if isinstance(other, DictView):
            other = other.as_set(tx)
        if not isinstance(other, SetVariable) or reflected:
            return None
        in_place = _IN_PLACE.get(op)
        if in_place is not None and self.kind is set:
            kept = self.binary(tx, in_place, other, False)
            assert isinstance(kept, SetVariable)
            self.changed(tx)
            self.items = kept.items
            return self
        op = in_place or op
        if op in (operator.eq, operator.ne):
            return ConstantVariable((self.items.keys() == other.items.keys()) is (op is operator.eq))
        handler = self._OPERATORS.get(op)
        return handler(self, tx, other) if handler is not None else None

    def literal(self, w: Writer) -> str:
        elements = ", ".join(w.value(item) for item in self.items.values())
        if self.kind is frozenset:
            return f"frozenset(({elements}{',' if len(self.items) == 1 else ''}))"
        return "{" + elements + "}" if self.items else "set()"

    def make(self, w: Writer) -> str:
        return self.literal(w)

    def replay(self, w: Writer) -> None:
        target, new = w.fetch(self.source), w.bind(self.literal(w))
        w.effect(f"{target}.clear()")
        w.effect(f"{target}.update({new})")


_IN_PLACE = {operator.ior: operator.or_, operator.iand: operator.and_, operator.isub: operator.sub, operator.ixor: operator.xor}


class ContainerMethod(Variable):
    """A bound method of a container, e.g. `append = xs.append`."""

    kind: Any = type([].append)

    def __init__(self, owner: Variable, name: str) -> None:
        self.owner, self.name = owner, name

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        return self.owner.method(tx, self.name, args, kwargs)

    def attr(self, tx: Trace, name: str) -> Variable:
        if name == "__self__":
            return self.owner
        if name == "__name__":
            return ConstantVariable(self.name)
        return super().attr(tx, name)

    def build(self, w: Writer) -> str:
        return f"{w.value(self.owner)}.{self.name}"


__all__ = [
    "ContainerMethod", "DictVariable", "DictView", "IteratorVariable", "ListVariable", "MappingProxyVariable", "SetVariable",
]  # fmt: skip
