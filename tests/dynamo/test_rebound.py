"""A function that is put in the place of another, wherever programs look it up by name, is seen by the next call; so is one that
goes away, and an attribute that wasn't there."""

from __future__ import annotations

import builtins
import functools
import math
import operator
import sys
import types
import unittest.mock
from collections.abc import Callable
from typing import Any

import pytest
from dynamo_harness import Counter, same

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import dynamo, nn

library = types.ModuleType("library")
library.scale = lambda x: x * 3  # type: ignore[attr-defined]


def helper(x):
    return x + 10


class Base:
    def shift(self, x):
        return x + 1

    @staticmethod
    def twice(x):
        return x * 2

    @classmethod
    def named(cls, x):
        return x + len(cls.__name__)

    @property
    def rate(self):
        return 0.5

    def __call__(self, x):
        return self.shift(x) - 5


class Derived(Base):
    pass


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.act = nn.Linear(3, 3), nn.ReLU()

    def forward(self, x):
        return self.act(self.linear(x))


NET, THING = Net(), Derived()


def times_two(original: Any) -> Any:
    """A wrapper as tools write them."""

    @functools.wraps(original)
    def wrapper(*args, **kwargs):
        answer = original(*args, **kwargs)
        return answer * 2 if isinstance(answer, (torch.Tensor, int, float)) else answer

    return wrapper


def plain(answer: Any) -> Any:
    return lambda original: lambda *args, **kwargs: answer


def mocked(original: Any) -> Any:
    return unittest.mock.Mock(return_value=torch.full((3,), 7.0))


PLACES: list[tuple[Any, str, Callable[[Any], Any], Callable[[Any], Any]]] = [
    (torch, "sin", times_two, lambda x: torch.sin(x) + 1),
    (torch, "sin", mocked, lambda x: torch.sin(x) + 1),
    (torch, "relu", times_two, lambda x: NET(x) + torch.relu(x)),
    (F, "relu", times_two, lambda x: F.relu(x) + 1),
    (F, "relu", times_two, lambda x: NET(x)),
    (F, "linear", times_two, lambda x: NET(x)),
    (F, "dropout", times_two, lambda x: F.dropout(x, 0.5, training=False)),
    (torch.cuda, "is_available", plain(True), lambda x: x + 1 if torch.cuda.is_available() else x - 1),
    (math, "sqrt", times_two, lambda x: x * math.sqrt(4.0)),
    (math, "sqrt", plain(100.0), lambda x: x * math.sqrt(4.0)),
    (math, "pi", lambda pi: 3, lambda x: x * math.pi),
    (builtins, "len", lambda old: lambda v: 5 if v == [1, 2] else old(v), lambda x: x * len([1, 2])),
    (builtins, "abs", times_two, lambda x: abs(x) + 1),
    (operator, "add", lambda old: operator.sub, lambda x: operator.add(x, 1)),
    (functools, "reduce", lambda old: lambda f, xs: xs[0], lambda x: functools.reduce(operator.add, [x, x, x])),
    (torch.Tensor, "sin", times_two, lambda x: x.sin() + 1),
    (torch.Tensor, "sin", mocked, lambda x: x.sin() + 1),
    (torch.Tensor, "__add__", times_two, lambda x: x + 1),
    (torch.Tensor, "__radd__", times_two, lambda x: 1 + x),
    (torch.Tensor, "__neg__", times_two, lambda x: -x),
    (torch.Tensor, "__getitem__", times_two, lambda x: x[1:]),
    (torch.Tensor, "__lt__", lambda old: torch.Tensor.__gt__, lambda x: x < 1),
    (torch.Tensor, "dim", plain(9), lambda x: x + x.dim()),
    (torch.Tensor, "extra", lambda old: property(lambda self: self * 4), lambda x: x.extra if hasattr(x, "extra") else x),
    (torch.Tensor, "more", lambda old: lambda self, n: self + n, lambda x: x.more(2) if hasattr(x, "more") else x),
    (nn.Linear, "forward", times_two, lambda x: NET(x)),
    (nn.ReLU, "forward", lambda old: lambda self, x: x * 9, lambda x: NET(x)),
    (nn.Module, "__call__", times_two, lambda x: NET(x)),
    (Net, "forward", times_two, lambda x: NET(x)),
    (Net, "__call__", lambda old: times_two(nn.Module.__call__), lambda x: NET(x)),
    (Net, "__getattr__", lambda old: lambda self, name: nn.Module.__getattr__(self, name), lambda x: NET(x)),
    (Base, "shift", times_two, lambda x: THING.shift(x)),
    (Derived, "shift", lambda old: lambda self, x: x - 1, lambda x: THING.shift(x)),
    (Derived, "shift", lambda old: lambda self, x: x - 1, lambda x: THING(x)),
    (Base, "twice", lambda old: staticmethod(lambda x: x * 5), lambda x: THING.twice(x)),
    (Base, "named", lambda old: classmethod(lambda cls, x: x), lambda x: THING.named(x)),
    (Base, "rate", lambda old: property(lambda self: 2.5), lambda x: x * THING.rate),
    (Base, "rate", lambda old: 4.5, lambda x: x * THING.rate),
    (Derived, "rate", lambda old: 4.5, lambda x: x * THING.rate),
    (Derived, "missing", lambda old: 4.5, lambda x: x * getattr(THING, "missing", 1.0)),
    (Base, "missing", lambda old: 4.5, lambda x: x * (2 if hasattr(THING, "missing") else 1)),
    (Base, "__getattr__", lambda old: lambda self, name: 6.5, lambda x: x * getattr(THING, "missing", 1.0)),
    (Base, "__getattribute__", lambda old: lambda self, name: 7.5, lambda x: x * getattr(THING, "missing", 1.0)),
    (Derived, "__bool__", lambda old: lambda self: False, lambda x: x if THING else x + 1),
    (Derived, "__len__", lambda old: lambda self: 0, lambda x: x if THING else x + 1),
    (Derived, "__eq__", lambda old: lambda self, other: True, lambda x: x if THING == 3 else x + 1),
    (Derived, "__add__", lambda old: lambda self, other: other * 8, lambda x: THING + x if hasattr(THING, "__add__") else x),
    (Derived, "__setattr__", lambda old: lambda self, name, value: None, lambda x: setattr(THING, "noted", 1) or x + 1),
    (Net, "missing", lambda old: 4.5, lambda x: x * getattr(NET, "missing", 1.0)),
    (Net, "missing", lambda old: property(lambda self: 3.5), lambda x: x * getattr(NET, "missing", 1.0)),
    (Derived, "CONSTANT", lambda old: 2, lambda x: x * (Derived.CONSTANT if hasattr(Derived, "CONSTANT") else 1)),
    (library, "scale", times_two, lambda x: library.scale(x)),
    (library, "other", lambda old: 5, lambda x: x * getattr(library, "other", 1)),
    (library, "other", lambda old: 5, lambda x: x * (3 if hasattr(library, "other") else 1)),
    (types.SimpleNamespace(**globals()), "helper", times_two, lambda x: helper(x)),
]


def _names() -> list[str]:
    return [f"{getattr(owner, '__name__', 'here')}.{name}-{i}" for i, (owner, name, _, _) in enumerate(PLACES)]


def put(monkeypatch: Any, owner: Any, name: str, value: Any) -> None:
    if isinstance(owner, types.SimpleNamespace):
        monkeypatch.setitem(globals(), name, value)
    else:
        monkeypatch.setattr(owner, name, value, raising=False)


@pytest.mark.parametrize(("owner", "name", "replace", "program"), PLACES, ids=_names())
def test_what_is_put_in_its_place_is_seen(owner: Any, name: str, replace: Any, program: Any) -> None:
    """Before, with the other function, and after; and the other way round, from one that was there before the first call."""
    x = torch.tensor([0.5, 1.0, 2.0])
    value = replace(getattr(owner, name, None))
    for first in (False, True):
        counter = Counter()
        dynamo.reset()
        compiled = dynamo.compile(program, backend=counter)
        for replaced in (first, not first, first, not first):
            with pytest.MonkeyPatch.context() as patch:
                if replaced:
                    put(patch, owner, name, value)
                expected, got = program(x), compiled(x)
            assert same(expected, got), f"replaced={replaced}, expected {expected}, got {got}"
        assert len(counter.graphs) <= 4, "a version that fits is used again"


def test_mock_counts_calls() -> None:
    compiled = dynamo.compile(lambda x: torch.cos(x) + torch.cos(x + 1), backend="eager")
    x = torch.ones(2)
    compiled(x)
    with unittest.mock.patch("flambeau.cos", side_effect=lambda value: value * 2) as mock:
        assert compiled(x).tolist() == [6.0, 6.0]
        assert mock.call_count == 2
    assert same(compiled(x), torch.cos(x) + torch.cos(x + 1))


def test_code_loaded_anew() -> None:
    """As IPython's autoreload does: the function stays, its code is another."""

    class Model(nn.Module):
        def forward(self, x):
            return self.inner(x) + 1

        def inner(self, x):
            return x * 2

    def other(self, x):
        return x * 5

    model = Model()
    compiled = dynamo.compile(model, backend="eager")
    assert compiled(torch.ones(1)).item() == 3
    Model.inner.__code__ = other.__code__
    assert compiled(torch.ones(1)).item() == 6


def test_a_class_that_counts_its_calls_is_not_compiled_each_time() -> None:
    class Counted(nn.Module):
        calls = 0

        def forward(self, x):
            return x + 1

    model, counter = Counted(), Counter()
    compiled = dynamo.compile(model, backend=counter)
    for i in range(4):
        Counted.calls += 1
        torch.Tensor.some_note = i  # type: ignore[attr-defined]
        compiled(torch.ones(1))
    del torch.Tensor.some_note  # type: ignore[attr-defined]
    assert len(counter.graphs) == 1


def test_the_log_says_what_was_rebound() -> None:
    compiled = dynamo.compile(lambda x: torch.sin(x), backend="eager", fullgraph=True)
    x = torch.ones(1)
    compiled(x)
    with pytest.MonkeyPatch.context() as patch, dynamo.compiler.observing(dynamo.api.Explanation()) as seen:
        patch.setattr(torch, "sin", torch.cos)
        compiled(x)
    assert "flambeau.sin was written to" in seen.recompiles[0]


def tool(factor: float) -> types.ModuleType:
    made = types.ModuleType("made")
    made.scale = lambda x: x * factor  # type: ignore[attr-defined]
    return made


def imports_whole(x):
    import made_tools

    return made_tools.scale(x)


def imports_by_another_name(x):
    import made_tools.inner as inner

    return inner.scale(x)


def imports_what_is_in_a_package(x):
    import made_tools.inner

    return made_tools.inner.scale(x)


def imports_names(x):
    from made_tools import scale

    return scale(x)


def imports_a_part(x):
    from made_tools import inner

    return inner.scale(x)


def imports_if_it_can(x):
    try:
        import made_tools
    except ImportError:
        return x - 1
    return made_tools.scale(x)


def looks_it_up(x):
    return sys.modules["made_tools"].scale(x)


@pytest.mark.parametrize("f", [imports_whole, imports_by_another_name, imports_what_is_in_a_package, imports_names, imports_a_part,
                               imports_if_it_can, looks_it_up])  # fmt: skip
def test_a_module_that_another_takes_the_place_of(f, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that puts a stand-in into `sys.modules` means the next import, compiled or not."""
    def install(whole: float, inner: float) -> None:
        package = tool(whole)
        package.inner = tool(inner)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "made_tools", package)
        monkeypatch.setitem(sys.modules, "made_tools.inner", package.inner)

    compiled = dynamo.compile(f, backend=Counter())
    for whole, inner in [(3.0, 4.0), (5.0, 4.0), (5.0, 7.0)]:
        install(whole, inner)
        assert same(compiled(x()), f(x()))
    if f is imports_if_it_can:
        monkeypatch.setitem(sys.modules, "made_tools", None)
        assert same(compiled(x()), f(x())) and same(f(x()), x() - 1)


def test_an_import_hook_that_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "made_tools", tool(3.0))
    compiled = dynamo.compile(imports_whole, backend=Counter())
    assert same(compiled(x()), x() * 3)
    usual, asked = builtins.__import__, []
    monkeypatch.setattr(builtins, "__import__", lambda name, *rest: (asked.append(name), usual(name, *rest))[1])
    assert same(compiled(x()), x() * 3)
    assert "made_tools" in asked


def x():
    return torch.arange(3.0)
