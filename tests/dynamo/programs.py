# ruff: noqa: E501 - these are the ways of writing that are tested
"""Small programs as users write them, one language feature each. `PROGRAMS[name](T)` gives a function and its arguments for the
torch or Flambeau module `T`; the function may change its arguments, and what it does to them is compared as well."""

from __future__ import annotations

import abc
import dataclasses
import enum
import functools
import typing
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

PROGRAMS: dict[str, Callable[[Any], tuple]] = {}
BREAKS: set[str] = set()
"""Programs that need a graph break."""


def program(fn: Any = None, *, breaks: bool = False) -> Any:
    if fn is None:
        return functools.partial(program, breaks=breaks)
    assert fn.__name__ not in PROGRAMS
    PROGRAMS[fn.__name__] = fn
    if breaks:
        BREAKS.add(fn.__name__)
    return fn


def v(T, n=4):
    return T.arange(n) * 1.0 + 1


# -- functions and scopes --------------------------------------------------------------------------------------------------------
@program
def closure(T):
    k = 3

    def make(n):
        def inner(x):
            return x * n + k

        return inner

    return (lambda x: make(2)(x) + make(5)(x)), (v(T),)


@program
def nonlocal_counter(T):
    def f(x):
        count = 0

        def bump(y):
            nonlocal count
            count += 1
            return y * count

        return bump(bump(bump(x))), count

    return f, (v(T),)


@program
def nonlocal_outside(T):
    count = 0

    def f(x):
        nonlocal count
        count += 1
        return x + count

    return f, (v(T),)


GLOBAL_LIST: list = []
GLOBAL_NUMBER = 1


@program
def global_state(T):
    def f(x):
        global GLOBAL_NUMBER
        GLOBAL_NUMBER = 5
        GLOBAL_LIST.append(GLOBAL_NUMBER)
        n = len(GLOBAL_LIST)
        GLOBAL_LIST.clear()
        return x * GLOBAL_NUMBER + n

    return f, (v(T),)


@program
def generators(T):
    def numbers(n):
        received = yield 0
        for i in range(n):
            received = yield i * (received or 1)
        return 7

    def outer(n):
        result = yield from numbers(n)
        yield result

    def f(x):
        for i in outer(4):
            x = x + i
        gen = numbers(2)
        first = next(gen)
        second = gen.send(5)
        return x, first, second, list(gen), sum(i * i for i in range(4))

    return f, (v(T),)


@program
def comprehensions(T):
    def f(x):
        squares = [i * i for i in range(5) if i % 2]
        table = {k: x * n for k, n in zip("abc", squares, strict=False)}
        flat = [a + b for a in squares for b in (1, 2)]
        return {c for c in "hello" if c > "f"}, table, flat, tuple(w for w in squares), x * sum(flat)

    return f, (v(T),)


@program
def walrus(T):
    def f(x, xs):
        if (n := len(xs)) > 2:
            x = x * n
        while (m := n - 1) > 0:
            n = m
            x = x + m
        return x, [y for i in xs if (y := i * 2) > 2]

    return f, (v(T), [1, 2, 3])


@program
def varargs(T):
    def g(a, /, b, *rest, c=3, d, **more):
        return a + b * 2 + sum(rest) * c + d + sum(more.values())

    def f(x, *args, **kwargs):
        return g(x, *args, d=2, **kwargs) + g(x, x, d=x) + g(x, 1, 2, 3, d=1, z=x)

    return (lambda x, args, kwargs: f(x, *args, **kwargs)), (v(T), (1, 2), {"c": 2, "e": 5})


@program
def mutable_default(T):
    def f(x, seen=[]):  # noqa: B006
        seen.append(len(seen))
        return x + len(seen)

    return (lambda x: f(x) * f(x) + f(x, [1, 2])), (v(T),)


@program
def partials(T):
    def scale(x, a, b=1):
        return x * a + b

    double = functools.partial(scale, a=2)
    method = functools.partialmethod

    class M:
        def go(self, x, n):
            return x * n

        twice = method(go, n=2)

    def f(x):
        again = functools.partial(double, b=5)
        return double(x) + again(x), again.keywords, M().twice(x)

    return f, (v(T),)


@program
def cached_function(T):
    @functools.cache
    def factor(n):
        return n * 2 + 1

    @functools.cache
    def table(n):
        return tuple(range(n))

    return (lambda x: x * factor(3) + sum(table(4))), (v(T),)


@program
def decorators(T):
    def logged(fn):
        @functools.wraps(fn)
        def inner(*args, **kwargs):
            inner.calls += 1
            return fn(*args, **kwargs) + 1

        inner.calls = 0
        return inner

    @logged
    def g(x):
        return x * 2

    return (lambda x: (g(x) * g(g(x)), g.__name__)), (v(T),)


@program
def single_dispatch(T):
    @functools.singledispatch
    def show(value):
        return 1

    @show.register
    def _(value: int):
        return 2

    @show.register
    def _(value: str):
        return 3

    class Table:
        @functools.singledispatchmethod
        def of(self, value):
            return 4

        @of.register(T.Tensor)
        def _(self, value):
            return value * 5

    table = Table()
    return (lambda x: x * show(5) + show("a") + show([]) + Table.of(None, x) + table.of(7)), (v(T),)


@program
def recursion(T):
    def tree(x, depth):
        return x if not depth else tree(x * 2, depth - 1) + tree(x + 1, depth - 1)

    return (lambda x: tree(x, 4)), (v(T),)


@program
def lambda_sort_keys(T):
    def f(x, names):
        order = sorted(names, key=lambda s: (len(s), s), reverse=True)
        best = max(names, key=len)
        least = min(names, key=lambda s: s[::-1], default="")
        return x * len(order[0]), order, best, least, sorted({3, 1, 2}), max(1, 2.5), min([4, 3])

    return f, (v(T), ["pear", "fig", "apple"])


# -- control flow ----------------------------------------------------------------------------------------------------------------
@program
def match_statement(T):
    @dataclasses.dataclass
    class Point:
        x: int
        y: int

    def kind(value):
        match value:
            case 0 | 1:
                return 1
            case int(n) if n > 100:
                return n
            case str() as s:
                return len(s)
            case [a, *rest]:
                return a + len(rest)
            case {"k": inner, **more}:
                return inner + len(more)
            case Point(x=0, y=y):
                return y * 10
            case Point(x, y):
                return x * y
            case None:
                return 50
            case _:
                return -1

    def f(x):
        values = [1, 500, "abc", [5, 6, 7], {"k": 9, "z": 1}, Point(0, 3), Point(2, 3), None, 2.5]
        return [x * kind(value) for value in values]

    return f, (v(T),)


@program
def try_finally(T):
    def f(x, events):
        def inner(y, fail):
            try:
                if fail:
                    raise ValueError("bad", 3)
                return y + 1
            except (KeyError, ValueError) as error:
                events.append(error.args)
                return y * 2
            else:
                events.append("else")
            finally:
                events.append("finally")

        try:
            {}["missing"]
        except KeyError as error:
            events.append(str(error))
        return inner(x, True) + inner(x, False)

    return f, (v(T), [])


class AppError(Exception):
    def __init__(self, code, text="?"):
        super().__init__(f"{text} ({code})")
        self.code = code


class SubError(AppError):
    pass


@program
def user_exceptions(T):
    def check(n):
        if n > 1:
            raise SubError(n, "too big")
        return n

    def f(x):
        total = 0
        for n in (1, 2, 3):
            try:
                total += check(n)
            except AppError as error:
                total += error.code * 10
                text = str(error)
        try:
            try:
                check(5)
            except SubError as error:
                raise RuntimeError("outer") from error
        except RuntimeError as outer:
            cause = outer.__cause__.code
        return x * total, text, cause

    return f, (v(T),)


@program
def loop_else_and_breaks(T):
    def f(x):
        for i in range(10):
            if i == 3:
                continue
            if i * i > 20:
                break
            x = x + i
        else:
            x = x * 100
        n = 0
        while n < 3:
            n += 1
        else:
            x = x * 2
        return x, i, n

    return f, (v(T),)


class Box:
    pass


@program
def deletion(T):
    def f(x, xs, table):
        y = x * 2
        del x
        del xs[0], xs[-1:]
        del table["a"]

        box = Box()
        box.a, box.b = 1, 2
        del box.a
        return y, xs, hasattr(box, "a"), box.b

    return f, (v(T), [1, 2, 3, 4], {"a": 1, "b": 2})


@program
def chained_comparison_and_ternary(T):
    def f(x, n):
        a = 1 if 0 < n < 10 else 2
        b = (n and a) or 7
        return x * a + b, not n, n is not None, n in (1, 2, 5), n not in [3]

    return f, (v(T), 5)


@program
def unpacking(T):
    def f(x, pairs):
        (a, b), *middle, last = pairs
        first, *_, end = "hello"
        m = {"p": 1, "q": 2}
        return x * a + b, middle, last, first + end, [*range(3), *m], (*m.values(),)

    return f, (v(T), [(1, 2), 3, 4, (5, 6)])


@program
def assertions(T):
    def f(x, n):
        assert n > 0, f"n is {n}"
        assert x.shape == (4,)
        assert isinstance(x, T.Tensor)
        try:
            assert n < 0, "negative wanted"
        except AssertionError as error:
            return x * 2, str(error)
        return x

    return f, (v(T), 3)


# -- classes ---------------------------------------------------------------------------------------------------------------------
@program
def dataclass_fields(T):
    @dataclasses.dataclass
    class Config:
        width: int
        scale: float = 2.0
        names: list = dataclasses.field(default_factory=list)

        def __post_init__(self):
            self.area = self.width * self.scale

    @dataclasses.dataclass(frozen=True)
    class Frozen:
        a: int = 1

    def f(x):
        config = Config(3, names=["a"])
        config.names.append("b")
        other = dataclasses.replace(config, width=5)
        fields = [field.name for field in dataclasses.fields(config)]
        return x * config.area + other.width, config.names, fields, config == other, Frozen(2) == Frozen(2)

    return f, (v(T),)


class Pair(NamedTuple):
    left: Any
    right: Any = 5

    def total(self):
        return self.left + self.right


Point3 = namedtuple("Point3", "x y z", defaults=(0,))


@program
def named_tuples(T):
    def f(x):
        p = Pair(x)
        q = Point3(1, y=2)
        _a, _b, c = q._replace(z=9)
        return p.total(), p, q.x + c, q._asdict(), p._fields, Point3._make([1, 2, 3])[1:], q == (1, 2, 0)

    return f, (v(T),)


class Color(enum.Enum):
    RED = 1
    GREEN = 2

    @property
    def double(self):
        return self.value * 2


class Flags(enum.IntFlag):
    A = 1
    B = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


@program
def enums(T):
    def f(x, color):
        n = {Color.RED: 10, Color.GREEN: 20}[color]
        names = [c.name for c in Color]
        return (x * n + color.double, names, color is Color.GREEN, Color(1), Color["RED"], Flags.A | Flags.B, Level.HIGH + 1,
                Flags.A in (Flags.A | Flags.B), len(Color), isinstance(color, Color))  # fmt: skip

    return f, (v(T), Color.GREEN)


@program
def properties(T):
    class Meter:
        def __init__(self):
            self._value = 1
            self.log = []

        @property
        def value(self):
            return self._value

        @value.setter
        def value(self, new):
            self.log.append(new)
            self._value = new

        @functools.cached_property
        def expensive(self):
            self.log.append("computed")
            return self._value * 100

        @classmethod
        def make(cls, n):
            made = cls()
            made.value = n
            return made

        @staticmethod
        def add(a, b):
            return a + b

    def f(x):
        meter = Meter.make(4)
        meter.value += 1
        total = meter.expensive + meter.expensive
        return Meter.add(x, meter.value) + total, meter.log

    return f, (v(T),)


@program
def inheritance(T):
    class A:
        def go(self, x):
            return x + 1

    class B(A):
        def go(self, x):
            return super().go(x) * 2

    class C(A):
        def go(self, x):
            return super().go(x) * 3

    class D(B, C):
        def go(self, x):
            return super().go(x) - 1

    def f(x):
        d = D()
        return d.go(x), isinstance(d, C), issubclass(D, A), type(d).__name__, D.__mro__[1] is B, type(d) is D

    return f, (v(T),)


@program
def special_methods(T):
    class Vec:
        def __init__(self, *items):
            self.items = list(items)

        def __getitem__(self, i):
            return self.items[i]

        def __setitem__(self, i, value):
            self.items[i] = value

        def __len__(self):
            return len(self.items)

        def __iter__(self):
            return iter(self.items)

        def __contains__(self, item):
            return any(item is other for other in self.items)

        def __add__(self, other):
            return Vec(*(a + b for a, b in zip(self, other, strict=True)))

        def __eq__(self, other):
            return isinstance(other, Vec) and len(self) == len(other)

        def __lt__(self, other):
            return len(self) < len(other)

        def __hash__(self):
            return 7

        def __bool__(self):
            return len(self) > 1

        def __call__(self, x):
            return x * len(self)

        def __neg__(self):
            return Vec(*(-i for i in self.items))

        def __matmul__(self, other):
            return sum(a * b for a, b in zip(self, other, strict=True))

        def __repr__(self):
            return f"Vec{len(self)}"

        def __enter__(self):
            return self

        def __exit__(self, *exc):
            self.items.append(0)

    def f(x):
        a, b = Vec(x, 2), Vec(x, 3)
        c = a + b
        c[1] = 10
        with a as same:
            y = same(x)
        return (list(c), len(a), a == c, a < c, bool(Vec(1)), y, (-b)[1], b @ Vec(1, 2), f"{a}", x in a, sorted([a, b], key=len)[0] is b)  # fmt: skip

    return f, (v(T),)


@program
def dynamic_attributes(T):
    class Lazy:
        def __init__(self):
            self.data = {"a": 1}

        def __getattr__(self, name):
            if name in self.data:
                return self.data[name]
            raise AttributeError(name)

        def __setattr__(self, name, value):
            object.__setattr__(self, name, value if name == "data" else value * 2)

    class Slots:
        __slots__ = ("a", "b")

        def __init__(self):
            self.a = 1

    class Desc:
        def __get__(self, obj, owner):
            return 42 if obj is None else obj.base * 2

        def __set__(self, obj, value):
            obj.base = value

    class WithDesc:
        field = Desc()

        def __init__(self):
            self.base = 3

    def f(x):
        lazy = Lazy()
        lazy.b = 5
        slots = Slots()
        slots.b = 2
        d = WithDesc()
        d.field = 7
        lazy.c = 1
        return (x * lazy.a + lazy.b, hasattr(lazy, "zz"), getattr(lazy, "zz", 3), slots.a + slots.b, hasattr(slots, "c"), d.field,
                WithDesc.field, lazy.c, vars(d))  # fmt: skip

    return f, (v(T),)


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self, x): ...


class Square(Shape):
    def area(self, x):
        return x * x


@typing.runtime_checkable
class HasArea(typing.Protocol):
    def area(self, x): ...


@program
def abstract_types(T):
    def f(x, items):
        s = Square()
        return (s.area(x), isinstance(s, Shape), isinstance(items, Sequence), isinstance(items, Mapping), isinstance({}, Mapping),
                isinstance(items, Iterable), callable(s.area), isinstance(s, Callable), issubclass(dict, Mapping), isinstance(3, (int, str)),
                isinstance(x, T.Tensor), isinstance(2, int | None))  # fmt: skip

    return f, (v(T), [1, 2])


@program
def protocol_check(T):
    return (lambda x: (x * 2, isinstance(Square(), HasArea))), (v(T),)


class Meta(type):
    registry: list = []

    def __call__(cls, *args):
        made = super().__call__(*args)
        made.tag = "made"
        return made


class Tagged(metaclass=Meta):
    def __init__(self, n):
        self.n = n


@program
def metaclass(T):
    return (lambda x: (x * Tagged(3).n, Tagged(1).tag)), (v(T),)


class Singleton:
    instance = None
    count = 0

    def __new__(cls):
        if cls.instance is None:
            cls.instance = super().__new__(cls)
        return cls.instance

    def __init__(self):
        type(self).count += 1


@program
def singleton(T):
    def f(x):
        a, b = Singleton(), Singleton()
        n = Singleton.count
        Singleton.count = 0
        return x * n, a is b

    return f, (v(T),)


@program(breaks=True)
def class_made_inside(T):
    def f(x):
        class Local:
            factor = 3

            def go(self, y):
                return y * self.factor

        return Local().go(x)

    return f, (v(T),)


class MyList(list):
    def total(self):
        return sum(self)


class MyDict(dict):
    def __missing__(self, key):
        return 5


@program
def subclasses_of_containers(T):
    def f(x):
        items = MyList([1, 2])
        items.append(3)
        table = MyDict(a=1)
        return x * items.total() + table["a"] + table["zz"], len(items), items[1:], list(table)

    return f, (v(T),)
