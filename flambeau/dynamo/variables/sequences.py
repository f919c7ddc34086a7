"""Lists, tuples, named tuples, sizes, ranges, slices, deques; and iterators over them."""

from __future__ import annotations

import collections
import operator
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NoReturn

from .. import policy
from ..break_kinds import graph_break
from ..source import Source
from ..typed import Trace, Writer
from .base import NONE, Args, ConstantVariable, Kwargs, ModelledVariable, NotConstant, Variable, is_none


class SequenceVariable(ModelledVariable):
    """Common part of lists and tuples: `items` are the elements, perhaps not yet looked at."""

    kind: Any = tuple

    def __init__(self, items: list[Variable], source: Source | None = None) -> None:
        self.items = items
        self.source = source

    def as_constant(self) -> Any:
        return self.kind(item.as_constant() for item in self.items)

    def like(self, items: list[Variable]) -> SequenceVariable:
        """A new sequence of the kind that slicing gives."""
        return type(self)(items)

    def truth(self, tx: Trace) -> bool:
        return bool(self.items)

    def length(self, tx: Trace) -> Variable:
        return ConstantVariable(len(self.items))

    def element(self, tx: Trace, index: int) -> Variable:
        """Element `index` (in range), looked at."""
        found = self.items[index] = self.items[index].realize(tx)
        return found

    def iterate(self, tx: Trace) -> Iterator[Variable]:
        return SequenceIterator(self).iterate(tx)

    def plain(self) -> Any:
        """A real tuple, list or deque of variables, on which Python itself does what the program asks for, or refuses it."""
        return tuple(self.items)

    def item(self, tx: Trace, key: Variable) -> Variable:
        index = tx.plain_index(key)
        found = tx.checked(operator.getitem, self.plain(), index)
        return self.like(list(found)) if isinstance(index, slice) else self.element(tx, operator.index(index))

    def contains(self, tx: Trace, key: Variable) -> bool:
        return next(self._places(tx, key), None) is not None

    def _places(self, tx: Trace, value: Variable, span: slice = slice(None)) -> Iterator[int]:
        """Where this value stands."""
        return (i for i in range(len(self.items))[span] if tx.same_or_equal(self.element(tx, i), value))

    def _index(self, tx: Trace, value: Variable, start: Variable = ConstantVariable(0), stop: Variable | None = None) -> Variable:
        span = slice(tx.index(start), None if stop is None else tx.index(stop))
        for i in self._places(tx, value, span):
            return ConstantVariable(i)
        return self._missing(tx, "index", value)

    def _missing(self, tx: Trace, method: str, value: Variable) -> NoReturn:
        """What Python says of a value that isn't there."""
        tx.checked(getattr(type(self).kind(), method), tx.known(value))
        raise AssertionError(f"{method}() found something in an empty {type(self).kind.__name__}")

    def _count(self, tx: Trace, value: Variable) -> Variable:
        return ConstantVariable(len(list(self._places(tx, value))))

    def binary(self, tx: Trace, op: Any, other: Variable, reflected: bool) -> Variable | None:
        if op in _COMPARISONS and isinstance(other, SequenceVariable):
            return self._compare(tx, op, other) if not reflected else None
        if op is operator.add and not reflected and isinstance(other, SequenceVariable):
            return self.like(list(tx.checked(op, self.plain(), other.plain())))
        if op is operator.mul and isinstance(other, ConstantVariable):
            return self.like(list(tx.checked(op, self.plain(), other.value)))
        return None

    def _compare(self, tx: Trace, op: Any, other: SequenceVariable) -> Variable | None:
        if type(self).kind is not type(other).kind:
            return ConstantVariable(op is operator.ne) if op in (operator.eq, operator.ne) else None
        for i in range(min(len(self.items), len(other.items))):
            mine, yours = self.element(tx, i), other.element(tx, i)
            if not tx.same_or_equal(mine, yours):
                return tx.compare(op, mine, yours)
        return ConstantVariable(op(len(self.items), len(other.items)))

    METHODS = {"index": _index, "count": _count}

    def make(self, w: Writer) -> str:
        return self.wrap_elements([w.value(item) for item in self.items], w)

    def wrap_elements(self, elements: list[str], w: Writer) -> str:
        raise NotImplementedError


_COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)


class TupleVariable(SequenceVariable):
    kind: Any = tuple

    def key(self) -> Any:
        return tuple(item.key() for item in self.items)

    def wrap_elements(self, elements: list[str], w: Writer) -> str:
        return f"({', '.join(elements)}{',' if len(elements) == 1 else ''})"


class SizeVariable(TupleVariable):
    """A `torch.Size`, of ints or symbolic sizes."""

    def __init__(self, items: list[Variable], kind: type, source: Source | None = None) -> None:
        super().__init__(items, source)
        self.kind = kind

    def like(self, items: list[Variable]) -> SequenceVariable:
        return SizeVariable(items, self.kind)

    def _numel(self, tx: Trace) -> Variable:
        total: Variable = ConstantVariable(1)
        for item in self.items:
            total = tx.binary(operator.mul, total, item)
        return total

    METHODS = {**SequenceVariable.METHODS, "numel": _numel}

    def wrap_elements(self, elements: list[str], w: Writer) -> str:
        return f"{w.constant(self.kind)}({super().wrap_elements(elements, w)})"


class NamedTupleVariable(TupleVariable):
    """An instance of a `collections.namedtuple` class or of one like it, such as `torch.return_types.max`."""

    def __init__(self, items: list[Variable], kind: type, source: Source | None = None) -> None:
        super().__init__(items, source)
        self.kind = kind

    def as_constant(self) -> Any:
        values = [item.as_constant() for item in self.items]
        return self.kind._make(values) if hasattr(self.kind, "_make") else self.kind(values)

    def like(self, items: list[Variable]) -> SequenceVariable:
        return TupleVariable(items)

    def fields(self) -> tuple[str, ...]:
        return tuple(self.kind._fields)

    def attr(self, tx: Trace, name: str) -> Variable:
        if name in self.fields():
            entry = tx.lookup(self.kind, name)
            own = tx.bind(entry, self, self.kind) if not policy.is_homemade(entry) else None
            if own is not None:
                return own
            return self.element(tx, self.fields().index(name))
        if name == "_fields" and hasattr(self.kind, name):
            return tx.literal(self.fields())
        return super().attr(tx, name)

    def _replace(self, tx: Trace, **kwargs: Variable) -> Variable:
        tx.checked(self.kind._make(self.fields())._replace, **dict.fromkeys(kwargs))
        return NamedTupleVariable(
            [kwargs.get(field, item) for field, item in zip(self.fields(), self.items, strict=True)], self.kind
        )

    def _asdict(self, tx: Trace) -> Variable:
        return tx.make_dict({ConstantVariable(f): v for f, v in zip(self.fields(), self.items, strict=True)})

    METHODS = {**SequenceVariable.METHODS, "_replace": _replace, "_asdict": _asdict}

    def wrap_elements(self, elements: list[str], w: Writer) -> str:
        inner = super().wrap_elements(elements, w)
        maker = "._make" if hasattr(self.kind, "_make") else ""
        return f"{w.constant(self.kind)}{maker}({inner})"


class StructSequenceVariable(NamedTupleVariable):
    """A tuple with named elements that C made, such as `sys.version_info`."""

    METHODS = SequenceVariable.METHODS

    def fields(self) -> tuple[str, ...]:
        return tuple(self.kind.__match_args__)


def _as_it_is(tx: Trace, value: Variable) -> Variable:
    return value


def _elements(tx: Trace, values: Variable) -> list[Variable]:
    return list(tx.iterate(values))


def _index(tx: Trace, value: Variable) -> int:
    return tx.index(value)


_MUTATIONS: dict[str, tuple[Callable[[Trace, Variable], Any], ...]] = {
    "append": (_as_it_is,), "appendleft": (_as_it_is,), "extend": (_elements,), "extendleft": (_elements,),
    "insert": (_index, _as_it_is), "pop": (_index,), "popleft": (), "clear": (), "reverse": (), "rotate": (_index,),
}  # fmt: skip
"""Methods of lists and deques that the real ones do to their variables: how each argument is taken."""


def _mutate(self: ListVariable, tx: Trace, *args: Variable, name: str) -> Variable | None:
    takes = _MUTATIONS[name]
    if len(args) > len(takes):
        graph_break("unknown operation", f"{self.kind.__name__}.{name}() with arguments that capture has no model of")
    plain = [take(tx, arg) for take, arg in zip(takes, args, strict=False)]
    self.changed(tx)
    found = tx.checked(getattr(self.items, name), *plain)
    return found.realize(tx) if isinstance(found, Variable) else None


_MUTATING = {name: partial(_mutate, name=name) for name in _MUTATIONS}


class ListVariable(SequenceVariable):
    kind: Any = list

    def as_constant(self) -> Any:
        raise NotConstant(self)

    def plain(self) -> Any:
        return self.items

    def changed(self, tx: Trace) -> None:
        """To be called before each mutation."""
        tx.effects.touch(self)

    def set_item(self, tx: Trace, key: Variable, value: Variable) -> None:
        index = tx.plain_index(key)
        new = list(tx.iterate(value)) if isinstance(index, slice) else value
        self.changed(tx)
        tx.checked(operator.setitem, self.items, index, new)

    def del_item(self, tx: Trace, key: Variable) -> None:
        index = tx.plain_index(key)
        self.changed(tx)
        tx.checked(operator.delitem, self.items, index)

    def binary(self, tx: Trace, op: Any, other: Variable, reflected: bool) -> Variable | None:
        if op is operator.iadd and not reflected:
            self.method(tx, "extend", [other], {})
            return self
        if op is operator.imul and not reflected:
            self.changed(tx)
            self.items *= tx.index(other)
            return self
        return super().binary(tx, op, other, reflected)

    def _remove(self, tx: Trace, value: Variable) -> None:
        place = next(self._places(tx, value), None)
        if place is None:
            self._missing(tx, "remove", value)
        self.changed(tx)
        del self.items[place]

    def _copy(self, tx: Trace) -> Variable:
        return self.like(list(self.items))

    def _sort(self, tx: Trace, *, key: Variable | None = None, reverse: Variable | None = None) -> None:
        ordered = sort_variables(tx, list(tx.iterate(self)), key, reverse)
        self.changed(tx)
        self.items[:] = ordered

    METHODS = {
        **SequenceVariable.METHODS, "remove": _remove, "copy": _copy, "sort": _sort,
        **_MUTATING,
    }  # fmt: skip

    def wrap_elements(self, elements: list[str], w: Writer) -> str:
        return f"[{', '.join(elements)}]"

    def replay(self, w: Writer) -> None:
        """Give an existing list its final contents."""
        elements = self.wrap_elements([w.value(item) for item in self.items], w)
        w.effect(f"list.__setitem__({w.fetch(self.source)}, slice(None), {elements})")


class ExistingList(ListVariable):
    """A list that existed before. While the program does nothing but append to it, it may have any length."""

    def __init__(self, value: list[Any], source: Source, elements: Callable[[], list[Variable]]) -> None:
        self.value, self.source, self.elements = value, source, elements
        self.added: list[Variable] = []
        self.opened: list[Variable] | None = None

    @property
    def items(self) -> list[Variable]:
        """All of them, of which there have to be as many as now."""
        if self.opened is None:
            self.opened = [*self.elements(), *self.added]
        return self.opened

    @items.setter
    def items(self, new: list[Variable]) -> None:
        self.opened = new

    def like(self, items: list[Variable]) -> SequenceVariable:
        return ListVariable(items)

    def method(self, tx: Trace, name: str, args: Args, kwargs: Kwargs) -> Variable:
        if self.opened is None and name in ("append", "extend") and len(args) == 1 and not kwargs:
            new = args if name == "append" else list(tx.iterate(args[0]))
            self.changed(tx)
            if self.opened is None:
                self.added += new
            else:
                self.opened += new
            return NONE
        return super().method(tx, name, args, kwargs)

    def replay(self, w: Writer) -> None:
        if self.opened is not None:
            return super().replay(w)
        for item in self.added:
            w.effect(f"list.append({w.fetch(self.source)}, {w.value(item)})")


class DequeVariable(ListVariable):
    """A `collections.deque`; its items are in one, too, of the same length at most."""

    kind: Any = collections.deque

    def __init__(self, items: Iterable[Variable], maxlen: int | None = None, source: Source | None = None) -> None:
        super().__init__(collections.deque(items, maxlen), source)  # type: ignore[arg-type]
        self.maxlen = maxlen

    def like(self, items: list[Variable]) -> SequenceVariable:
        return DequeVariable(items, self.maxlen)

    def attr(self, tx: Trace, name: str) -> Variable:
        return ConstantVariable(self.maxlen) if name == "maxlen" else super().attr(tx, name)

    def wrap_elements(self, elements: list[str], w: Writer) -> str:
        return f"{w.constant(collections.deque)}([{', '.join(elements)}], {self.maxlen})"

    def replay(self, w: Writer) -> None:
        target = w.fetch(self.source)
        elements = w.bind(super().wrap_elements([w.value(item) for item in self.items], w))
        w.effect(f"{target}.clear()")
        w.effect(f"{target}.extend(list({elements}))")


class RangeVariable(ConstantVariable):
    """A `range` of known bounds."""

    def iterate(self, tx: Trace) -> Iterator[Variable]:
        return map(ConstantVariable, self.value)


class SliceVariable(Variable):
    kind: Any = slice

    def __init__(self, start: Variable, stop: Variable, step: Variable, source: Source | None = None) -> None:
        self.parts = (start, stop, step)
        self.source = source

    def as_constant(self) -> Any:
        return slice(*(part.as_constant() for part in self.parts))

    def as_slice(self, tx: Trace) -> slice:
        """The slice as ints or None, for indexing a Python sequence."""
        return slice(*(None if is_none(part) else tx.plain_index(part) for part in self.parts))

    def attr(self, tx: Trace, name: str) -> Variable:
        if name in ("start", "stop", "step"):
            return self.parts[("start", "stop", "step").index(name)]
        return tx.type_attribute(self, slice, name)

    def method(self, tx: Trace, name: str, args: Args, kwargs: Kwargs) -> Variable:
        if name == "indices":
            return tx.literal(tx.checked(self.as_slice(tx).indices, tx.index(args[0])))
        graph_break("unknown attribute", f"slice.{name}")

    def build(self, w: Writer) -> str:
        return f"slice({', '.join(w.value(part) for part in self.parts)})"


class IteratorVariable(ModelledVariable):
    """An iterator: a Python generator of variables. Its remaining elements can't be known without running it, so it can exist
    outside of the graph only as long as none was taken: then the call that made it is made again."""

    started = False
    origin: tuple[Any, Args, Kwargs] | None = None
    """Function and arguments of that call."""

    def __init__(self, elements: Iterator[Variable], kind: type = type(iter(()))) -> None:
        self.elements = elements
        self.kind = kind

    def made_by(self, function: Any, args: Args, kwargs: Kwargs | None = None) -> IteratorVariable:
        """Note the call (of a function of Python or of a variable) that makes this iterator."""
        self.origin = (function, args, kwargs or {})
        return self

    def next(self, tx: Trace) -> Variable | None:
        """The next element, or None at the end."""
        self.started = True
        found = next(self.elements, None)
        return found.realize(tx) if found is not None else None

    def iterate(self, tx: Trace) -> Iterator[Variable]:
        tx.effects.check(self)
        while (element := self.next(tx)) is not None:
            yield element

    def truth(self, tx: Trace) -> bool:
        return True

    def contains(self, tx: Trace, key: Variable) -> bool:
        return any(tx.same_or_equal(element, key) for element in self.iterate(tx))

    METHODS: dict[str, Callable[..., Variable | None]] = {
        "__next__": lambda self, tx: tx.next(self), "__iter__": lambda self, tx: self,
    }  # fmt: skip

    def build(self, w: Writer) -> str:
        if self.started or self.origin is None:
            graph_break("iterator escapes", f"a {self.kind.__name__} object")
        function, args, kwargs = self.origin
        return w.bind(w.call(w.value(function) if isinstance(function, Variable) else w.constant(function), args, kwargs))


EXHAUSTED = sys.maxsize
"""The position of an iterator that has met the end: it stays there, whatever becomes of the list."""


def _check_state(sequence: SequenceVariable) -> None:
    if isinstance(sequence, DequeVariable):
        graph_break("iterator escapes", "an iterator of a deque")


class SequenceIterator(IteratorVariable):
    """`iter(sequence)`: knows where it stands, so it can be rebuilt."""

    def __init__(self, sequence: SequenceVariable, position: int = 0) -> None:
        self.sequence, self.position = sequence, position
        self.kind = type(iter([])) if sequence.kind is list else type(iter(()))

    def next(self, tx: Trace) -> Variable | None:
        if self.position >= len(self.sequence.items):
            self.position = EXHAUSTED
            return None
        self.position += 1
        return self.sequence.element(tx, self.position - 1)

    def build(self, w: Writer) -> str:
        if self.position == EXHAUSTED:
            return w.bind(f"iter({self.sequence.kind.__name__ if self.sequence.kind is list else 'tuple'}())")
        iterator = w.bind(f"iter({w.value(self.sequence)})")
        if self.position:
            _check_state(self.sequence)
            w.effect(f"{iterator}.__setstate__({self.position})")
        return iterator


class ReversedIterator(IteratorVariable):
    """`reversed(sequence)`: knows where it stands, too."""

    def __init__(self, sequence: SequenceVariable) -> None:
        self.sequence, self.position = sequence, len(sequence.items)
        self.kind = reversed

    def next(self, tx: Trace) -> Variable | None:
        self.position = self.position - 1 if self.position <= len(self.sequence.items) else -1
        return self.sequence.element(tx, self.position) if self.position >= 0 else None

    def build(self, w: Writer) -> str:
        _check_state(self.sequence)
        iterator = w.bind(f"{w.constant(reversed)}({w.value(self.sequence)})")
        w.effect(f"{iterator}.__setstate__({self.position - 1})")
        return iterator


class _Ordered:
    """A key that is compared by the traced program."""

    def __init__(self, tx: Trace, variable: Variable) -> None:
        self.tx, self.variable = tx, variable

    def __lt__(self, other: _Ordered) -> bool:
        return self.tx.truth(self.tx.compare(operator.lt, self.variable, other.variable))


def sort_variables(tx: Trace, items: Args, key: Variable | None, reverse: Variable | None) -> Args:
    """`sorted`: by the values of the keys if they are known, else by what the program says of them."""
    keys = [tx.call(key, [item], {}) if key is not None and not is_none(key) else item for item in items]
    try:
        plain: list[Any] = [k.as_constant() for k in keys]
    except NotConstant:
        plain = [_Ordered(tx, k) for k in keys]
    backwards = reverse is not None and tx.truth(reverse)
    try:
        order = sorted(range(len(items)), key=plain.__getitem__, reverse=backwards)
    except TypeError as error:
        tx.raise_(TypeError, *error.args)
    return [items[i] for i in order]
