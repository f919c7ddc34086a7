"""What the traced program does to objects that existed before it: kept during capture, replayed after the graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from .break_kinds import graph_break
from .source import constant_source
from .typed import Writer
from .variables.base import Variable


def _same_entries(items: dict[Any, Any], before: dict[Any, Any], tx: Any) -> bool:
    return list(items) == list(before) and all(items[key][1].realize(tx) is value.realize(tx) for key, (_, value) in before.items())


class SideEffects:
    """Existing mutable objects by identity, and what was written to them."""

    def __init__(self) -> None:
        self._variables: dict[int, tuple[Any, Variable]] = {}
        self._touched: dict[int, Any] = {}
        self._globals: dict[int, tuple[dict[str, Any], dict[str, Variable | None]]] = {}
        self._attributes: dict[int, tuple[Any, dict[str, Variable]]] = {}
        self.grads: dict[Any, Variable] = {}
        """`.grad` written on input tensors."""
        self.hooks: list[Any] = []
        """Hooks on input tensors, by their handles."""
        self.data: dict[Any, Variable] = {}
        """`.data` written on input tensors."""
        self.flags: dict[Any, bool] = {}
        """`.requires_grad` of input tensors, set before the graph."""
        self.late_flags: dict[Any, bool] = {}
        """The same after it, of those that the graph has used."""
        self.youngest = 0
        """While a function is captured that an operator calls: what is no younger than this may not change."""
        self._before: dict[int, tuple[Any, dict[Any, Any]]] = {}
        """Dicts that did, with what they held, and must hold when the function ends."""

    # identity
    def known(self, value: Any) -> Variable | None:
        """The variable that already stands for this existing object."""
        found = self._variables.get(id(value))
        return found[1] if found is not None else None

    def register(self, value: Any, variable: Variable) -> None:
        self._variables[id(value)] = (value, variable)

    def changed(self, value: Any) -> Any:
        """The variable of an existing object if capture has written to it, else None."""
        found = self.known(value)
        return found if found is not None and id(found) in self._touched else None

    def existing(self) -> list[tuple[Any, Variable]]:
        return list(self._variables.values())

    def release(self) -> None:
        """Let go of them."""
        for held in (self._variables, self._touched, self._globals, self._attributes, self.grads, self.hooks, self.data, self.flags,
                     self.late_flags):  # fmt: skip
            held.clear()

    # mutation
    def touch(self, variable: Any) -> None:
        """`variable` is about to change."""
        self.check(variable)
        if variable.is_setting:
            graph_break("global state", f"a write to {variable.describe()}")
        if variable.source is not None:
            self._touched.setdefault(id(variable), variable)

    def check(self, variable: Any) -> None:
        """May it change now?"""
        if self.youngest and (variable is None or variable.source is not None or variable.born <= self.youngest):
            if variable is not None and variable.python_type() is dict and hasattr(variable, "items"):
                self._before.setdefault(id(variable), (variable, dict(variable.items)))
                return
            what = "a global" if variable is None else variable.describe()
            graph_break("unknown operation", f"it changes {what}, which exists outside of it")

    @contextmanager
    def frozen(self, tx: Any) -> Iterator[None]:
        """In the block only what is made in it may change; dicts for as long as it lasts (so does functional_call)."""
        saved = self.youngest, self._before
        self.youngest, self._before = Variable().born, {}
        try:
            yield
            for variable, before in self._before.values():
                if not _same_entries(variable.items, before, tx):
                    graph_break("unknown operation", f"it changes {variable.describe()}, which exists outside of it")
        finally:
            self.youngest, self._before = saved

    def touched(self) -> list[Any]:
        return list(self._touched.values())

    def globals_of(self, scope: dict[str, Any]) -> dict[str, Variable | None]:
        """Globals that were written during capture (None: deleted)."""
        found = self._globals.get(id(scope))
        return found[1] if found is not None else {}

    def set_global(self, scope: dict[str, Any], name: str, value: Variable | None) -> None:
        self.check(None)
        self._globals.setdefault(id(scope), (scope, {}))[1][name] = value

    def attributes(self, owner: Any) -> dict[str, Variable]:
        """Class attributes that were written during capture."""
        found = self._attributes.get(id(owner))
        return found[1] if found is not None else {}

    def class_attribute(self, classes: Iterable[type], name: str) -> Variable | None:
        """What capture wrote under a name, if a lookup in these classes (of an MRO) would find that."""
        for cls in classes if self._attributes else ():
            if name in self.attributes(cls):
                return self.attributes(cls)[name]
            if name in cls.__dict__:
                break
        return None

    def set_attribute(self, owner: Any, name: str, value: Variable) -> None:
        self.check(None)
        self._attributes.setdefault(id(owner), (owner, {}))[1][name] = value

    def snapshot(self) -> Any:
        """Equal ones say that no more than before was written to."""
        written = [{id(owner): {**names} for owner, names in each.values()} for each in (self._globals, self._attributes)]
        return set(self._touched), written, dict(self.grads), list(self.hooks), dict(self.data), dict(self.flags), dict(self.late_flags)

    def __bool__(self) -> bool:
        return bool(self._touched or self._globals or self._attributes or self.grads or self.hooks or self.data or self.flags
                    or self.late_flags)  # fmt: skip

    def replay(self, w: Writer) -> None:
        """Write everything down, in the order of the first change of each object."""
        for variable in self.touched():
            w.effects_of(variable)
        for owner, written in self._attributes.values():
            for name, new in written.items():
                w.effect(f"{w.fetch(constant_source(owner))}.{name} = {w.value(new)}")
        for scope, changed in self._globals.values():
            for name, value in changed.items():
                target = w.fetch(constant_source(scope))
                w.effect(f"{target}.pop({name!r}, None)" if value is None else f"{target}[{name!r}] = {w.value(value)}")
        for tensor, values in self.data.items():
            w.effect(f"{w.value(tensor)}.data = {w.value(values)}")
        for tensor, flag in self.late_flags.items():
            w.effect(f"{w.value(tensor)}.requires_grad = {flag}")
        for handle in self.hooks:
            w.value(handle)
        for tensor, gradient in self.grads.items():
            w.effect(f"{w.value(tensor)}.grad = {w.value(gradient)}")
