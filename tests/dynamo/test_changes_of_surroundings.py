# ruff: noqa: E501 - programs of few lines
"""What else a program asks Python for, changing between the calls of compiled programs (changes.py)."""

from __future__ import annotations

import abc
import contextvars
import copy
import functools
import os
import warnings
import weakref

from changes import Counter, Programs

import flambeau as torch
from flambeau import _C, dynamo
from flambeau.dynamo.compiler import entries_of

program = Programs()


@program
def environment():
    name = "FLAMBEAU_TEST_SWITCH"
    os.environ.pop(name, None)
    return (lambda x: x * (2 if os.environ.get(name) == "1" else 1) + (name in os.environ) + len(os.getenv(name, ""))), [
        lambda: os.environ.__setitem__(name, "1"), lambda: os.environ.__setitem__(name, "22"), lambda: os.environ.pop(name, None),
    ]  # fmt: skip


@program
def context_variables():
    variable = contextvars.ContextVar("variable", default=2)
    return (lambda x: x * variable.get()), [lambda: variable.set(3), lambda: variable.set(4.5)]


@program
def weak_references():
    box = [Counter(n=2)]
    ref = weakref.ref(box[0])
    return (lambda x: x * (ref().n if ref() is not None else -1)), [lambda: setattr(box[0], "n", 3), box.clear]


@program
def partials():
    box = Counter(f=functools.partial(torch.add, alpha=2))
    return (lambda x: box.f(x, x)), [
        lambda: setattr(box, "f", functools.partial(torch.add, alpha=3)), lambda: setattr(box, "f", functools.partial(torch.mul)),
        lambda: box.f.keywords.update(out=None),
    ]  # fmt: skip


@program
def bound_methods():
    class A:
        def __init__(self, n):
            self.n = n

        def f(self, x):
            return x * self.n

    one, two = A(1), A(2)
    box = Counter(f=one.f)
    return (lambda x: box.f(x)), [lambda: setattr(box, "f", two.f), lambda: setattr(two, "n", 7), lambda: setattr(A, "f", lambda s, x: x)]


@program
def cached_functions():
    state = {"n": 1}

    @functools.lru_cache
    def rate(k):
        return state["n"] * k

    return (lambda x: x * rate(3)), [lambda: state.update(n=2), rate.cache_clear, lambda: state.update(n=5), rate.cache_clear]


@program
def single_dispatch():
    @functools.singledispatch
    def scale(value, x):
        return x

    scale.register(int, lambda value, x: x * value)
    box = Counter(value=3)
    return (lambda x: scale(box.value, x)), [
        lambda: setattr(box, "value", "text"), lambda: scale.register(str, lambda value, x: x + len(value)), lambda: setattr(box, "value", True),
    ]  # fmt: skip


@program
def generators_state():
    numbers = iter([1, 2, 3, 4])
    return (lambda x: x * next(numbers)), [lambda: None, lambda: next(numbers), lambda: None]


@program
def protocols():
    class Sized:
        def __len__(self):
            return 2

    box = Sized()
    return (lambda x: x * len(box) if box else x), [
        lambda: setattr(Sized, "__len__", lambda s: 0), lambda: setattr(Sized, "__bool__", lambda s: True), lambda: delattr(Sized, "__bool__"),
        lambda: setattr(Sized, "__len__", lambda s: 6),
    ]  # fmt: skip


@program
def iteration():
    class Items:
        def __iter__(self):
            return iter([1, 2])

    items = Items()
    return (lambda x: functools.reduce(lambda y, n: y * n, items, x)), [
        lambda: setattr(Items, "__iter__", lambda s: iter([5])), lambda: setattr(Items, "__contains__", lambda s, v: True),
    ]  # fmt: skip


@program
def abstract_registration():
    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self):
            pass

    class Square:
        pass

    box = Square()
    return (lambda x: x * (2 if isinstance(box, Shape) else 1)), [lambda: Shape.register(Square) and None]


@program
def exceptions():
    class Own(Exception):
        pass

    box = Counter(limit=10)

    def f(x):
        try:
            if box.limit < 5:
                raise Own("low")
            return x * box.limit
        except Own as error:
            return x, str(error)

    return f, [lambda: setattr(box, "limit", 3), lambda: setattr(Own, "__str__", lambda s: "changed"), lambda: setattr(box, "limit", 6)]


@program
def copies():
    class A:
        def __init__(self):
            self.n = 2

    a = A()
    return (lambda x: x * copy.copy(a).n), [lambda: setattr(a, "n", 3), lambda: setattr(A, "__copy__", lambda s: Counter(n=50))]


@program
def super_calls():
    class A:
        def f(self, x):
            return x + 1

    class B(A):
        def f(self, x):
            return super().f(x) * 2

    b = B()
    return (lambda x: b.f(x)), [lambda: setattr(A, "f", lambda s, x: x - 1), lambda: setattr(B, "f", A.f)]


@program
def class_counter():
    class A:
        made = 0

        def __init__(self):
            A.made += 1

    return (lambda x: (x * A().made, A.made)), [lambda: None, lambda: setattr(A, "made", 10), lambda: setattr(A, "made", 0.5)]


@program
def init_replaced():
    class A:
        def __init__(self, n):
            self.n = n

    return (lambda x: x * A(2).n), [
        lambda: setattr(A, "__init__", lambda s, n: setattr(s, "n", n * 10)), lambda: setattr(A, "__new__", lambda c, n: Counter(n=5)),
    ]  # fmt: skip


test_changes = program.test()


def test_functions_of_equal_text_have_versions_of_their_own() -> None:
    """Code objects made again and again from one text are equal; none counts among another's versions, and all are forgotten."""
    text = "def f(x):\n    y = x * 2\n    torch._dynamo.graph_break()\n    return y + k\n"
    made = []
    for k in range(dynamo.config.recompile_limit + 2):
        scope = {"torch": torch, "k": k}
        exec(compile(text, "<equal text>", "exec"), scope)
        f = torch.compile(scope["f"], backend="eager")
        assert f(torch.ones(2)).tolist() == [2 + k] * 2  # warnings are errors: no limit is reached
        made.append(scope["f"].__code__)
    assert made[0] == made[1] and [len(entries_of(code)) for code in made] == [2] * len(made)
    torch.compiler.reset()
    assert not any(_C.cache_entries(code) for code in made)


def test_what_has_no_text_may_be_what_changed() -> None:
    """What a recompilation or the limit of them says of a value must not raise what its `__repr__` does."""
    class Silent(list):
        def __repr__(self):
            raise RuntimeError("no text")

    def f(x, items):
        return x * sum(items)

    compiled = torch.compile(f, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(2 * torch._dynamo.config.recompile_limit):
            assert compiled(torch.ones(2), Silent([1] * k)).tolist() == [k, k]
