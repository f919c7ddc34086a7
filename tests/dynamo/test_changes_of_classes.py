
"""Classes and instances that change between the calls of compiled programs (changes.py)."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import typing

from changes import Counter, Programs

program = Programs()


@program
def class_attribute():
    class A:
        n = 2

    a = A()
    return (lambda x: x * a.n), [
        lambda: setattr(A, "n", 3), lambda: setattr(a, "n", 4), lambda: delattr(a, "n"), lambda: setattr(A, "n", property(lambda s: 8)),
    ]  # fmt: skip


@program
def attribute_that_comes_and_goes():
    class A:
        pass

    a = A()
    return (lambda x: x * getattr(a, "n", 1) + hasattr(a, "m")), [
        lambda: setattr(a, "n", 3), lambda: setattr(a, "m", None), lambda: delattr(a, "n"), lambda: setattr(A, "n", 5),
        lambda: delattr(A, "n"),
    ]  # fmt: skip


@program
def bases_change():
    class One:
        def f(self, x):
            return x + 1

    class Two:
        def f(self, x):
            return x * 2

    class Child(One):
        pass

    child = Child()
    return (lambda x: child.f(x)), [lambda: setattr(Child, "__bases__", (Two,)), lambda: setattr(Two, "f", One.f)]


@program
def class_of_an_object():
    class A:
        def f(self, x):
            return x + 1

    class B:
        def f(self, x):
            return x * 2

    a = A()
    return (lambda x: a.f(x)), [lambda: setattr(a, "__class__", B), lambda: setattr(a, "__class__", A)]


@program
def instance_dict():
    a = Counter(n=1)
    return (lambda x: x * a.n + len(a.__dict__)), [
        lambda: a.__dict__.update(n=2), lambda: a.__dict__.__setitem__("extra", 1), lambda: setattr(a, "__dict__", {"n": 9}),
    ]  # fmt: skip


@program
def method_on_an_instance():
    class A:
        def f(self, x):
            return x + 1

    a = A()
    return (lambda x: a.f(x)), [lambda: setattr(a, "f", lambda x: x * 5), lambda: delattr(a, "f")]


@program
def slots():
    class A:
        __slots__ = ("n",)

    a = A()
    return (lambda x: x * getattr(a, "n", 1)), [lambda: setattr(a, "n", 3), lambda: setattr(a, "n", 4), lambda: delattr(a, "n")]


@program
def descriptors():
    class Doubled:
        def __get__(self, obj, cls=None):
            return 2 * obj.raw if obj is not None else self

    class A:
        value = Doubled()
        raw = 1

    a = A()
    return (lambda x: x * a.value), [
        lambda: setattr(a, "raw", 5), lambda: setattr(Doubled, "__get__", lambda s, o, c=None: 3),
        lambda: setattr(Doubled, "__set__", lambda s, o, v: None), lambda: a.__dict__.__setitem__("value", 11),
        lambda: delattr(Doubled, "__set__"),
    ]  # fmt: skip


@program
def getattr_fallback():
    class A:
        def __getattr__(self, name):
            return 3

    a = A()
    return (lambda x: x * a.n), [
        lambda: setattr(a, "n", 5), lambda: delattr(a, "n"), lambda: setattr(A, "n", 6), lambda: delattr(A, "n"),
        lambda: setattr(A, "__getattr__", lambda s, name: len(name)),
    ]  # fmt: skip


@program
def properties():
    class A:
        n = 1

        @property
        def rate(self):
            return self.n * 2

    a = A()
    return (lambda x: x * a.rate), [
        lambda: setattr(a, "n", 4), lambda: setattr(A, "rate", A.rate.getter(lambda s: 100)), lambda: setattr(A, "rate", 7),
    ]  # fmt: skip


@program
def cached_properties():
    class A:
        n = 2

        @functools.cached_property
        def rate(self):
            return self.n * 10

    a = A()
    return (lambda x: x * a.rate), [lambda: setattr(a, "n", 5), lambda: a.__dict__.pop("rate"), lambda: setattr(a, "rate", 1)]


@program
def operators_of_a_class():
    class A:
        def __add__(self, other):
            return other + 1

        def __eq__(self, other):
            return True

        __hash__ = None

    a = A()
    return (lambda x: (a + x) * (2 if a == 3 else 1)), [
        lambda: setattr(A, "__add__", lambda s, o: o * 2), lambda: setattr(A, "__eq__", lambda s, o: False),
    ]  # fmt: skip


@program
def calls_of_an_object():
    class A:
        def __call__(self, x):
            return x + 1

    a = A()
    return (lambda x: a(x)), [lambda: setattr(A, "__call__", lambda s, x: x * 4)]


@program
def metaclass():
    class Meta(type):
        def __getattr__(cls, name):
            return 4

        @property
        def rate(cls):
            return 2

    class A(metaclass=Meta):
        pass

    return (lambda x: x * A.missing + A.rate), [
        lambda: setattr(A, "missing", 5), lambda: setattr(Meta, "rate", 9), lambda: setattr(Meta, "__getattr__", lambda c, n: 8),
        lambda: delattr(A, "missing"),
    ]  # fmt: skip


@program
def dataclass_fields():
    @dataclasses.dataclass
    class Config:
        n: int = 2
        names: list = dataclasses.field(default_factory=list)

    config = Config()
    return (lambda x: x * config.n + len(config.names) + sum(f.name == "n" for f in dataclasses.fields(config))), [
        lambda: setattr(config, "n", 3), lambda: config.names.append("a"), lambda: setattr(config, "names", []),
    ]  # fmt: skip


@program
def frozen_dataclass():
    @dataclasses.dataclass(frozen=True)
    class Config:
        n: int

    box = Counter(config=Config(2))
    return (lambda x: x * box.config.n), [lambda: setattr(box, "config", Config(3)), lambda: setattr(box, "config", Config(True))]


@program
def enums():
    class Mode(enum.Enum):
        A = 1
        B = 2

        def apply(self, x):
            return x + self.value if self is Mode.A else x * self.value

    box = Counter(mode=Mode.A)
    return (lambda x: box.mode.apply(x)), [
        lambda: setattr(box, "mode", Mode.B), lambda: setattr(Mode, "apply", lambda s, x: x - 1), lambda: setattr(box, "mode", Mode.A),
    ]  # fmt: skip


@program
def named_tuples():
    Pair = collections.namedtuple("Pair", "a b")
    box = Counter(pair=Pair(1, 2))
    return (lambda x: x * box.pair.a + box.pair[1]), [
        lambda: setattr(box, "pair", Pair(3, 4)), lambda: setattr(box, "pair", (5, 6)) or setattr(box, "pair", Pair(5, 6)),
        lambda: setattr(Pair, "a", property(lambda s: 50)),
    ]  # fmt: skip


@program
def typed_dicts():
    class Options(typing.TypedDict, total=False):
        n: int

    options: Options = {"n": 1}
    return (lambda x: x * options.get("n", 7)), [lambda: options.update(n=2), lambda: options.pop("n")]


test_changes = program.test()
