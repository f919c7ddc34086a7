"""Dictionaries of all kinds, sets, and their views."""

from __future__ import annotations

import collections
import inspect
import operator
from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType, MappingProxyType
from typing import Any, NoReturn

from ..break_kinds import graph_break
from ..exceptions import pythons_words
from ..source import Source, constant_source
from ..typed import Trace, Writer
from .base import NONE, Args, ConstantVariable, IdentityKey, Kwargs, LazyVariable, ModelledVariable, NotConstant, Variable, by_equality
from .identity import MANY, CountedVariable, is_among, key_among
from .sequences import IteratorVariable, SequenceVariable, TupleVariable


def _no_key(tx: Trace, key: Variable) -> NoReturn:
    tx.raise_(KeyError, key.as_constant() if key.is_constant() else key.describe())


class DictVariable(ModelledVariable):
    """A dict, OrderedDict, defaultdict or Counter.

    An existing dict is *closed* at first: single keys are read (and guarded) and written one by one. Whatever needs all keys (iteration,
    len, deletion) opens it, which guards its keys.
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
        self._before = real
        self._assigned: dict[Any, None] = {}
        """The keys that were written while it was closed, hashed, in their order."""
        self._attributes: Variable | None = None

    # attributes of its own, which an OrderedDict or a Counter may have
    def attributes(self, tx: Trace) -> Variable | None:
        """Its `__dict__`, or None where its kind has none."""
        if self._attributes is None and self.kind.__dictoffset__:
            self._attributes = DictVariable()
            if self._before is not None and self.source is not None:
                self._attributes = tx.wrap(self._before.__dict__, self.source.attr("__dict__"))
        return self._attributes

    def set_attr(self, tx: Trace, name: str, value: Variable) -> None:
        held = self.attributes(tx)
        if held is None:
            tx.checked(object.__setattr__, self.kind(), name, None)     # Python refuses in its own words
        else:
            held.set_item(tx, ConstantVariable(name), value)

    def del_attr(self, tx: Trace, name: str) -> None:
        held = self.attributes(tx)
        if held is None or not held.contains(tx, ConstantVariable(name)):
            tx.checked(object.__delattr__, self.kind(), name)
        held.del_item(tx, ConstantVariable(name))    # type: ignore[union-attr]

    def has_attr(self, tx: Trace, name: str) -> bool:
        held = self.attributes(tx)
        return super().has_attr(tx, name) or (held is not None and held.contains(tx, ConstantVariable(name)))

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
                key_variable, source = tx.key_of(self.plain_source, key, position)
                hashed = tx.hashable(key_variable)
                known = seen.get(hashed)  # perhaps by an equal key of another type: True for 1
                self.items[hashed] = (key_variable, known[1] if known is not None else LazyVariable(value, source))
            self.items.update({hashed: seen[hashed] for hashed in self._assigned if hashed not in self.items})
        return self.items

    def lookup(self, tx: Trace, key: Variable) -> Variable | None:
        """The value at `key`, or None."""
        key = key.realize(tx)
        if key.changes and len(self.items if self.real is None else self.real) <= MANY:
            among = is_among(tx, key, self.open(tx))
            if among is None:
                return None
            key = among
        hashed = self.hashed(tx, key)
        if self.real is not None and hashed not in self.items and key.is_constant():
            assert self.plain_source is not None
            value = key.as_constant()
            if value not in self.real:
                tx.guard("{1}.isdisjoint({0})", self.plain_source, constant_source(frozenset((value,))), reason=f"key {value!r}",
                         about="absent")
                return None
            if self.kind is collections.defaultdict:    # which a guard that reads it would give the key
                tx.guard("{1} in {0}", self.plain_source, constant_source(value), reason=f"key {value!r}", about="any")
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
        return key_among(tx, key, self, self.open(tx) if isinstance(key, CountedVariable) else self.items)

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
        _no_key(tx, key)

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

    def entries(self, tx: Trace) -> Iterator[tuple[Variable, Variable]]:
        """Keys and values, looked at."""
        for hashed in self._hashes(tx):
            key, value = self.items[hashed]
            self.items[hashed] = (key, value.realize(tx))
            yield self.items[hashed]

    def values_of(self, tx: Trace) -> Iterator[Variable]:
        return (value for _, value in self.entries(tx))

    def pairs_of(self, tx: Trace) -> Iterator[Variable]:
        return (TupleVariable([key, value]) for key, value in self.entries(tx))

    # writing
    def changed(self, tx: Trace) -> None:
        self.open(tx)
        tx.effects.touch(self)

    def set_item(self, tx: Trace, key: Variable, value: Variable) -> None:
        closed = self.real is not None and key.is_constant() and not tx.effects.youngest
        if closed:
            tx.effects.touch(self)
        else:
            self.changed(tx)
        hashed = self.hashed(tx, key)
        if closed:
            self._assigned.setdefault(hashed)
        self.items[hashed] = (self.items[hashed][0] if hashed in self.items else key, value)

    def del_item(self, tx: Trace, key: Variable) -> None:
        if self.lookup(tx, key) is None:
            _no_key(tx, key)
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
        if not isinstance(other, (DictView, SequenceVariable, IteratorVariable)) and other.has_attr(tx, "keys"):
            for key in tx.iterate(tx.call_method(other, "keys", [])):
                self.set_item(tx, key, tx.item(other, key))
            return
        for number, pair in enumerate(tx.iterate(other)):
            if not hasattr(pair.python_type(), "__iter__"):
                tx.raise_(TypeError, pythons_words(dict, [0]).replace("#0", f"#{number}"))
            parts = list(tx.iterate(pair))
            if len(parts) != 2:
                tx.raise_(ValueError, f"dictionary update sequence element #{number} has length {len(parts)}; 2 is required")
            self.set_item(tx, *parts)

    # methods
    def _get(self, tx: Trace, key: Variable, default: Variable | None = None) -> Variable:
        found = self.lookup(tx, key)
        return found if found is not None else default or NONE

    def _pop(self, tx: Trace, key: Variable, default: Variable | None = None) -> Variable:
        found = self.lookup(tx, key)
        if found is None:
            return default if default is not None else self.item(tx, key)
        self.del_item(tx, key)
        return found

    def _popitem(self, tx: Trace, last: Variable | None = None) -> Variable:
        entries = list(self.open(tx))
        if not entries:
            tx.checked(self.kind().popitem)
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
            _no_key(tx, key)
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
        held = None if self.model_of(name) is not None else self.attributes(tx)
        if held is not None and name == "__dict__":
            return held
        found = held.lookup(tx, ConstantVariable(name)) if isinstance(held, DictVariable) else None
        return super().attr(tx, name) if found is None else found

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
            if op is not operator.ior or reflected or self.kind is collections.Counter:
                return None
            self._update(tx, other)
            return self
        own = next(filter(None, map(self._python_method, tx.special_names(op, reflected))), None)
        if own is not None:
            answer = tx.call(tx.trusted(own), [self, other], {})
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
        by_hand = any(map(by_equality, self.items))
        entries = () if by_hand else self.items.values()
        text = self._of_kind(w, "{" + ", ".join(f"{w.value(key)}: {w.value(value)}" for key, value in entries) + "}")
        own = self._attributes.items if isinstance(self._attributes, DictVariable) and self._attributes.source is None else {}
        if not by_hand and not own:
            return text
        made = w.bind(text)
        w.remember(self, made)
        for key, value in self.items.values() if by_hand else ():
            w.effect(f"{made}[{w.value(key)}] = {w.value(value)}")
        for key, value in own.values():
            w.effect(f"{made}.__dict__[{w.value(key)}] = {w.value(value)}")
        return made

    def _of_kind(self, w: Writer, plain: str) -> str:
        if self.kind is dict:
            return plain
        if self.kind is collections.defaultdict:
            factory = w.value(self.default_factory) if self.default_factory is not None else "None"
            return f"{w.constant(self.kind)}({factory}, {plain})"
        return f"{w.constant(self.kind)}({plain})"

    def replay(self, w: Writer) -> None:
        """Give an existing dict its final contents; one that stayed closed what was written to it."""
        target, base = w.fetch(self.source), w.constant(self.kind)
        written = self.items.values() if self.real is None else [self.items[hashed] for hashed in self._assigned]
        entries = [f"{w.value(key)}, {w.value(value)}" for key, value in written]
        if self.real is None:
            w.effect(f"{base}.clear({target})")  # through the base: a subclass may have overridden these
        for entry in entries:
            w.effect(f"{base}.__setitem__({target}, {entry})")


def set_of(tx: Trace, values: Variable, kind: type = set) -> SetVariable:
    """`set(values)`."""
    if isinstance(values, SetVariable):
        return SetVariable(dict(values.items), kind, None, kind(values.order))
    items: dict[Any, Variable] = {}
    for item in tx.iterate(values):
        items.setdefault(key_among(tx, item, item, items), item)
    return SetVariable(items, kind)


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
        return set_of(tx, self)

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

    def binary(self, tx: Trace, op: Any, other: Variable, reflected: bool) -> Variable | None:
        if op not in (operator.eq, operator.ne, operator.or_):
            return None
        return self.mapping.binary(tx, op, other.mapping if isinstance(other, MappingProxyVariable) else other, reflected)

    def attr(self, tx: Trace, name: str) -> Variable:
        return self.mapping.attr(tx, name)

    def method(self, tx: Trace, name: str, args: Args, kwargs: Kwargs) -> Variable:
        if name in ("get", "keys", "values", "items", "copy"):
            return self.mapping.method(tx, name, args, kwargs)
        return super().method(tx, name, args, kwargs)


_IN_PLACE = ("clear", "update", "intersection_update", "difference_update", "symmetric_difference_update")
_ALGEBRA = ("copy", "union", "intersection", "difference", "symmetric_difference", "issubset", "issuperset", "isdisjoint", *_IN_PLACE)
"""Methods of sets that take sets or iterables, and those of them that change the set."""
_IN_PLACE_OPERATORS = (operator.ior, operator.iand, operator.isub, operator.ixor)


def _algebra(self: SetVariable, tx: Trace, *others: Variable, name: str) -> Variable | None:
    taken = [other if isinstance(other, SetVariable) else set_of(tx, other) for other in others]
    known = {key: item for one in (*reversed(taken), self) for key, item in one.contents()}
    if name in _IN_PLACE:
        self.changed(tx)
        self.items = known
    made = tx.checked(getattr(self.order, name), *(one.order for one in taken))
    return self.answer(made, known)


class SetVariable(ModelledVariable):
    """A set or frozenset of hashable values: `order` is a real set of their keys, on which Python itself does what the program asks
    for, and which so has the program's order; `items` are the values of (at least) these keys."""

    def __init__(self, items: dict[Any, Variable], kind: type = set, source: Source | None = None, order: Any = None) -> None:
        self.items, self.kind, self.source = items, kind, source
        self.order: Any = kind(list(items)) if order is None else order
        self.existing = None if source is None else dict(items)
        """What an existing set held in the beginning, in its own order."""

    def as_constant(self) -> Any:
        if self.kind is not frozenset:
            raise NotConstant(self)
        return frozenset(item.as_constant() for _, item in self.contents())

    def contents(self) -> list[tuple[Any, Variable]]:
        """Keys and values in the order of the set."""
        return [(key, self.items[key]) for key in self.order]

    def changed(self, tx: Trace) -> None:
        tx.effects.touch(self)

    def truth(self, tx: Trace) -> bool:
        return bool(self.order)

    def length(self, tx: Trace) -> Variable:
        return ConstantVariable(len(self.order))

    def iterate(self, tx: Trace) -> Iterator[Variable]:
        if self.existing is None:
            if any(isinstance(key, IdentityKey) for key in self.order):
                graph_break("unknown iterable", "a set of objects, whose order depends on their addresses")
            return iter([item for _, item in self.contents()])
        if self.existing.keys() != self.order:
            graph_break("unknown iterable", "a set that was changed, whose order depends on its history")
        return iter(list(self.existing.values()))

    def contains(self, tx: Trace, key: Variable) -> bool:
        key = key.realize(tx)
        if key.changes and len(self.order) <= MANY:
            return is_among(tx, key, self.order) is not None
        return self.hashed(tx, key) in self.order

    def hashed(self, tx: Trace, key: Variable) -> Any:
        return key_among(tx, key, self, self.order)

    def _add(self, tx: Trace, value: Variable) -> None:
        self.changed(tx)
        key = self.hashed(tx, value)
        if key not in self.order:
            self.items[key] = value
            self.order.add(key)

    def _discard(self, tx: Trace, value: Variable) -> None:
        self.changed(tx)
        self.order.discard(self.hashed(tx, value))

    def _remove(self, tx: Trace, value: Variable) -> None:
        if not self.contains(tx, value):
            _no_key(tx, value)
        self._discard(tx, value)

    def _pop(self, tx: Trace) -> Variable:
        if not self.order:
            tx.raise_(KeyError, "pop from an empty set")
        if len(self.order) > 1 and (self.existing is not None or any(isinstance(key, IdentityKey) for key in self.order)):
            graph_break("unknown operation", "pop() from a set whose order depends on its history or on addresses")
        self.changed(tx)
        return self.items[self.order.pop()]

    METHODS = {"add": _add, "discard": _discard, "remove": _remove, "pop": _pop,
               **{name: partial(_algebra, name=name) for name in _ALGEBRA}}  # fmt: skip

    def answer(self, made: Any, known: dict[Any, Variable]) -> Variable | None:
        """What Python made of sets of keys: a set, a bool or None."""
        if made is None:
            return None
        return SetVariable(known, self.kind, None, made) if isinstance(made, (set, frozenset)) else ConstantVariable(made)

    def binary(self, tx: Trace, op: Any, other: Variable, reflected: bool) -> Variable | None:
        if isinstance(other, DictView):
            other = other.as_set(tx)
        if not isinstance(other, SetVariable) or reflected:
            return None
        known = {**other.items, **dict(self.contents())}
        if op in _IN_PLACE_OPERATORS and self.kind is set:
            self.changed(tx)
            self.items, self.order = known, op(self.order, other.order)
            return self
        return self.answer(tx.checked(op, self.order, other.order), known)

    # outside of the graph
    def make(self, w: Writer) -> str:
        added = [self.items[key] for key in self.items if key in self.order]
        if not any(map(by_equality, self.order)):
            elements = ", ".join(map(w.value, added))
            if self.kind is frozenset:
                return f"frozenset(({elements}{',' if len(added) == 1 else ''}))"
            return "{" + elements + "}" if added else "set()"
        if self.kind is frozenset:
            graph_break("value can't be rebuilt", "a frozenset of objects made during capture")
        made = w.bind("set()")
        w.remember(self, made)
        self._write(w, made, "add", added)
        return made

    def replay(self, w: Writer) -> None:
        assert self.existing is not None
        target = w.fetch(self.source)
        self._write(w, target, "discard", [item for key, item in self.existing.items() if key not in self.order])
        self._write(w, target, "add", [self.items[key] for key in self.items if key in self.order and key not in self.existing])

    def _write(self, w: Writer, target: str, method: str, values: Args) -> None:
        for value in map(w.value, values):
            w.effect(f"{target}.{method}({value})")
