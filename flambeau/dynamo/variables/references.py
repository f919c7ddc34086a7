"""Weak references and proxies, and counters: `weakref.ref`, `weakref.proxy`, `itertools.count`."""

from __future__ import annotations

import collections
import itertools
import types
import weakref
from typing import Any

from ..break_kinds import describe, graph_break
from ..exceptions import RunEagerly
from ..frame import Frame
from ..source import Source, constant_source
from ..typed import Trace, Writer
from .base import NONE, Args, ConstantVariable, IdentityKey, Kwargs, Variable, is_none
from .builtins import HANDLERS
from .identity import CountedVariable
from .sequences import IteratorVariable
from .tensor import SymVariable


class ReferenceVariable(Variable):
    """A `weakref.ref`: a call gives its object. Two are equal if their objects are."""

    kind: Any = weakref.ref

    def __init__(self, target: Variable, callback: Variable, kind: Any = weakref.ref) -> None:
        self.target, self.callback, self.kind = target, callback, kind
        self.written: dict[str, Variable] = {}
        """The slots of a class that derives from it."""

    def attr(self, tx: Trace, name: str) -> Variable:
        return self.written[name] if name in self.written else tx.type_attribute(self, self.kind, name)

    def set_attr(self, tx: Trace, name: str, value: Variable) -> None:
        if name not in getattr(self.kind, "__slots__", ()) or self.source is not None:
            graph_break("unknown attribute", f"{self.describe()}.{name} = ...")
        self.written[name] = value

    def call(self, tx: Trace, args: Args, kwargs: Kwargs) -> Variable:
        own = tx.lookup(self.kind, "__call__")
        return tx.call(tx.trusted(own), [self], {}) if isinstance(own, types.FunctionType) else self.called(tx)

    def called(self, tx: Trace) -> Variable:
        """What `weakref.ref.__call__` gives."""
        self._check_alive(tx)
        return self.referred(tx)

    def _check_alive(self, tx: Trace) -> None:
        """Has somebody the object, as far as capture can see? Else the replacement would keep it alive longer than the program."""
        if self.target.source is None and not _is_held(tx, self.target):
            raise RunEagerly(describe("unknown value", f"the object of {self.describe()}, which nobody may have any longer"))

    def truth(self, tx: Trace) -> bool:
        return True

    def referred(self, tx: Trace) -> Variable:
        """The object."""
        return self.target

    def key_in(self, tx: Trace) -> Any:
        """Its key in a dict or set: that of its object."""
        target = self.referred(tx)
        return ("weak reference", IdentityKey(self) if is_none(target) else tx.hashable(target))

    def binary(self, tx: Trace, op: Any, other: Variable, reflected: bool) -> Variable | None:
        if getattr(op, "__name__", "") not in ("eq", "ne") or not isinstance(other, ReferenceVariable):
            return None
        targets = self.referred(tx), other.referred(tx)
        return ConstantVariable(self is other) if any(map(is_none, targets)) else tx.compare(op, *targets)

    def make(self, w: Writer) -> str:
        self._check_alive(w.trace)
        made = w.bind(f"{w.constant(weakref.ref)}.__new__({w.constant(self.kind)}, {w.value(self.target)}, {w.value(self.callback)})")
        w.remember(self, made)
        for name, value in self.written.items():
            w.effect(f"{made}.{name} = {w.value(value)}")
        return made


class ExistingReference(ReferenceVariable):
    """One that existed before, perhaps of a class that derives from it; its object is looked up where it is asked for."""

    def __init__(self, value: Any, source: Source) -> None:
        super().__init__(NONE, NONE, type(value))
        self.value, self.source = value, source

    def referred(self, tx: Trace) -> Variable:
        assert self.source is not None
        return tx.wrap(weakref.ref.__call__(self.value), self.source.derive("{1}({0})", constant_source(weakref.ref.__call__)))

    def called(self, tx: Trace) -> Variable:
        return self.referred(tx)

    def attr(self, tx: Trace, name: str) -> Variable:
        assert self.source is not None
        if name in getattr(self.kind, "__slots__", ()):
            return tx.wrap(getattr(self.value, name), self.source.attr(name))
        return super().attr(tx, name)


def _is_held(tx: Trace, wanted: Variable) -> bool:
    """Does a way lead from the frames, or from what existed before, to this object, that is no weak reference?"""
    waiting: list[Any] = [*(each for frame in tx.frames for each in frame.held()), *tx.effects.touched()]
    seen: set[int] = set()
    while waiting:
        part = waiting.pop()
        if part is wanted:
            return True
        if id(part) in seen or isinstance(part, ReferenceVariable):
            continue
        seen.add(id(part))
        if isinstance(part, Variable):
            waiting += vars(part).values()
        elif isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, (list, tuple, collections.deque)):
            waiting += part
        elif isinstance(part, Frame):   # of a generator
            waiting += part.held()
    return False


def _reference(tx: Trace, target: Variable, callback: Variable = NONE, kind: Any = weakref.ref) -> Variable:
    target = target.realize(tx)
    if isinstance(target, (ConstantVariable, SymVariable)):
        graph_break("call of C function", "making a weak reference to a value that has no identity")
    return ReferenceVariable(target, callback, kind)


HANDLERS[weakref.ref] = _reference
HANDLERS[weakref.ref.__new__] = lambda tx, cls, target, callback=NONE: _reference(tx, target, callback, tx.known(cls))
HANDLERS[weakref.ref.__init__] = lambda tx, *args: NONE
HANDLERS[weakref.ref.__call__] = lambda tx, reference: reference.called(tx)


def referent(proxy: Any) -> Any:
    """The object that a `weakref.proxy` stands for; ReferenceError where it is gone."""
    return proxy.__init__.__self__


class ProxyVariable(Variable):
    """An existing `weakref.proxy`: what is done to it is done to its object."""

    def __init__(self, tx: Trace, value: Any, source: Source) -> None:
        self.source, self.kind = source, type(value)
        self.target = tx.wrap(tx.checked(referent, value), source.derive("{1}({0})", constant_source(referent)))


def _passed_on(name: str) -> Any:
    def passed(self: ProxyVariable, tx: Trace, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.target, name)(tx, *args, **kwargs)

    return passed


for _name in ("truth", "attr", "set_attr", "del_attr", "has_attr", "item", "set_item", "del_item", "contains", "length", "iterate", "call",
              "method", "binary"):  # fmt: skip
    setattr(ProxyVariable, _name, _passed_on(_name))


class CounterVariable(IteratorVariable):
    """An existing `itertools.count`. What it gives next is told by its text, so it is a number like one that the frame was given."""

    def __init__(self, value: Any, source: Source) -> None:
        self.kind, self.source, self.taken = itertools.count, source, 0
        self.start, self.step = state_of(value)

    def next(self, tx: Trace) -> Variable | None:
        assert self.source is not None
        tx.effects.touch(self)
        source = self.source.derive(f"{{1}}({{0}}, {self.taken})", constant_source(upcoming))
        self.taken += 1
        tx.counts = True
        return CountedVariable(tx, self.start + (self.taken - 1) * self.step, source)

    def build(self, w: Writer) -> str:
        return w.fetch(self.source)

    def replay(self, w: Writer) -> None:
        w.effect(f"{w.constant(skip)}({w.fetch(self.source)}, {self.taken})")


def state_of(counter: Any) -> tuple[Any, Any]:
    """The next number of an `itertools.count`, and its step, if both are integers."""
    try:
        numbers = [int(part) for part in repr(counter)[len("count(") : -1].split(",")]
    except ValueError:
        graph_break("unknown iterable", "an itertools.count of other numbers than integers")
    return numbers[0], numbers[1] if len(numbers) > 1 else 1


def upcoming(counter: Any, after: int) -> int:
    """The number that a counter gives when `after` numbers more were taken."""
    start, step = state_of(counter)
    return int(start + after * step)


def skip(counter: Any, count: int) -> None:
    """Take so many numbers."""
    for _ in range(count):
        next(counter)
