"""functools.wraps of every kind of callable, inside of a captured function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from dynamo_harness import check

import flambeau as torch


def add(a, b=1):
    """Sum."""
    return a + b


class Calls:
    """Callable in several ways."""

    def method(self, a):
        return a * 2

    def __call__(self, a):
        return a * 3

    @classmethod
    def of_class(cls, a):
        return a * 4

    @staticmethod
    def static(a):
        return a * 5


class Reticent(Calls):
    def __getattr__(self, name):
        raise AttributeError(name)


existing, partial, other = Calls(), functools.partial(add, b=2), functools.partial(add, b=3)
partial.extra = 5       # type: ignore[attr-defined]
identity = torch.nn.Identity()

KINDS: dict[str, Callable[[], Any]] = {
    "a function": lambda: add, "a lambda": lambda: lambda a: a - 1, "a wrapper": lambda: functools.wraps(add)(lambda *a: add(*a)),
    "a partial": lambda: other, "a partial with an attribute": lambda: partial,
    "a partial that is made": lambda: functools.partial(add, b=4),
    "a partial of a partial": lambda: functools.partial(functools.partial(add, b=4)),
    "a partial of one with an attribute": lambda: functools.partial(partial),
    "a method": lambda: existing.method, "a method of the class": lambda: Calls.of_class, "a static method": lambda: Calls.static,
    "an instance": lambda: existing, "an instance that is made": lambda: Calls(), "an instance without attributes": lambda: Reticent(),
    "a class": lambda: Calls, "an operator": lambda: torch.sin, "an operator of ATen": lambda: torch.ops.aten.sin,
    "a function of Python": lambda: abs, "a function of the library": lambda: torch.nn.functional.relu, "a module": lambda: identity,
}


@pytest.mark.parametrize("name", KINDS)
def test_wraps(name: str) -> None:
    kind = KINDS[name]

    def f(x):
        fn = kind()

        @functools.wraps(fn)
        def wrapper(*args):
            return fn(*args)

        told = [getattr(wrapper, each, None) for each in ("__name__", "__qualname__", "__module__", "__doc__", "extra")]
        entries = sorted(key for key in wrapper.__dict__ if key != "__wrapped__")
        return None if isinstance(fn, type) else wrapper(x), told, entries, wrapper.__wrapped__ is fn, x + 1

    check(f, torch.ones(2))


def test_partials_are_told_apart() -> None:
    def f(x, a, b):
        return x * 2 if a is b else x * 3, a is other, [partial, other].index(b)

    compiled = torch.compile(f, backend="eager")
    for a, b in ((partial, partial), (partial, other), (other, partial), (other, other)):
        expected, found = f(torch.ones(2), a, b), compiled(torch.ones(2), a, b)
        assert found[0].tolist() == expected[0].tolist() and found[1:] == expected[1:]


def test_entries_come_after_what_every_function_has() -> None:
    def f(x):
        def inner():
            return 1

        inner.__dict__["__dict__"] = 5
        inner.__dict__["__name__"] = "hidden"
        inner.__annotations__ = {"a": int}
        inner.note = "seen"
        return x + 1, inner.__name__, sorted(inner.__dict__), inner.__annotations__, inner.note, hasattr(inner, "__annotations__")

    check(f, torch.ones(2))


def test_a_method_that_is_compiled_may_be_compiled_again() -> None:
    class Scaled:
        factor = 3

        @torch.compile(backend="eager")
        def of(self, x):
            return x * self.factor

        @classmethod
        @torch.compile(backend="eager")
        def by_class(cls, x):
            return x * cls.factor

    again, by_class = torch.compile(Scaled().of, backend="eager"), torch.compile(Scaled.by_class, backend="eager")
    assert again(torch.ones(2)).tolist() == by_class(torch.ones(2)).tolist() == [3.0, 3.0]
    assert torch._dynamo.explain(Scaled().of)(torch.ones(2)).graph_count == 1
