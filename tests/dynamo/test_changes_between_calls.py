# ruff: noqa: E501 - programs of few lines
"""Programs that are called again and again while something changes that their result depends on: eager and compiled agree each time.

A program is a function that makes a fresh (function, steps): `function(x)` is called first, and after each step, which changes something."""

from __future__ import annotations

import abc
import collections
import contextvars
import copy
import dataclasses
import enum
import functools
import os
import types
import typing
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dynamo_harness import same

import flambeau as torch
from flambeau import _C, dynamo, nn
from flambeau.dynamo.compiler import entries_of

PROGRAMS: dict[str, Callable[[], tuple[Callable[..., Any], list[Callable[[], Any]]]]] = {}


def program(make: Any) -> Any:
    assert make.__name__ not in PROGRAMS
    PROGRAMS[make.__name__] = make
    return make


def x() -> Any:
    return torch.tensor([1.0, 2.0, 3.0])


class Counter:
    """An object with attributes, for programs that need one."""

    kind = "counter"

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


# -- closures, globals, defaults ---------------------------------------------------------------------------------------------
@program
def closure_number():
    n = 1

    def set_(value):
        nonlocal n
        n = value

    return (lambda x: x * n), [lambda: set_(2), lambda: set_(2.0), lambda: set_(True), lambda: set_(1)]


@program
def closure_function():
    g = lambda x: x + 1

    def set_(f):
        nonlocal g
        g = f

    return (lambda x: g(x) * 2), [lambda: set_(lambda x: x - 1), lambda: set_(torch.sin), lambda: set_(nn.ReLU())]


@program
def closure_of_inner_function():
    def make(n):
        return lambda x: x * n

    box = [make(2)]
    return (lambda x: box[0](x)), [lambda: box.__setitem__(0, make(3)), lambda: box.__setitem__(0, make(2))]


@program
def deleted_cell():
    n = 3

    def drop():
        nonlocal n
        del n

    def f(x):
        try:
            return x * n
        except NameError as error:
            return x, type(error).__name__

    return f, [drop]


@program
def module_globals():
    module = types.ModuleType("made")
    exec("SCALE = 2\ndef helper(x): return x * SCALE\ndef f(x): return helper(x) + 1", module.__dict__)
    return module.f, [
        lambda: setattr(module, "SCALE", 3), lambda: setattr(module, "SCALE", 3.0),
        lambda: exec("def helper(x): return x - SCALE", module.__dict__), lambda: setattr(module, "helper", torch.cos),
        lambda: setattr(module, "len", None),
    ]  # fmt: skip


@program
def a_global_that_hides_a_builtin():
    module = types.ModuleType("made")
    exec("def f(x): return x * len([1, 2]) + abs(-3)", module.__dict__)
    return module.f, [
        lambda: setattr(module, "len", lambda v: 7), lambda: setattr(module, "abs", lambda v: 0), lambda: delattr(module, "len"),
    ]  # fmt: skip


@program
def defaults():
    def helper(x, n=2, *, m=1):
        return x * n + m

    return (lambda x: helper(x)), [
        lambda: setattr(helper, "__defaults__", (5,)), lambda: setattr(helper, "__kwdefaults__", {"m": 9}),
        lambda: setattr(helper, "__defaults__", (torch.full((3,), 2.0),)),
    ]  # fmt: skip


@program
def default_list():
    def helper(x, seen=[]):  # noqa: B006
        seen.append(1)
        return x * len(seen)

    return (lambda x: helper(x)), [lambda: None, lambda: helper.__defaults__[0].clear(), lambda: None]


@program
def method_defaults():
    class A:
        def f(self, x, n=2):
            return x * n

    a = A()
    return (lambda x: a.f(x)), [lambda: setattr(A.f, "__defaults__", (4,))]


@program
def function_attributes():
    def helper(x):
        return x * getattr(helper, "rate", 1)

    return (lambda x: helper(x)), [lambda: setattr(helper, "rate", 3), lambda: delattr(helper, "rate")]


@program
def code_of_a_helper():
    def helper(x):
        return x + 1

    def other(x):
        return x * 10

    return (lambda x: helper(x)), [lambda: setattr(helper, "__code__", other.__code__)]


# -- classes and instances ------------------------------------------------------------------------------------------------------
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


# -- containers -----------------------------------------------------------------------------------------------------------------
@program
def list_growth():
    values = [1, 2]
    return (lambda x: x * sum(values) + len(values)), [
        lambda: values.append(3), lambda: values.reverse(), lambda: values.__setitem__(0, 1.5), lambda: values.clear(),
    ]  # fmt: skip


@program
def list_of_tensors():
    values = [x()]
    return (lambda y: y + sum(v.sum() for v in values)), [
        lambda: values.append(x()), lambda: values.__setitem__(0, x() * 2), lambda: values.append(values[0]), lambda: values.pop(),
    ]  # fmt: skip


@program
def dict_order():
    table = {"a": 1, "b": 2}

    def f(x):
        for i, (name, value) in enumerate(table.items()):
            x = x * value + i if name == "a" else x + value
        return x

    return f, [lambda: table.update(a=table.pop("a")), lambda: table.update(c=3), lambda: table.pop("b")]


@program
def ordered_dict():
    table = collections.OrderedDict(a=2.0, b=3.0)
    return (lambda x: functools.reduce(lambda y, v: (y + v) * v, table.values(), x)), [
        lambda: table.move_to_end("a"), lambda: table.move_to_end("a", last=False), lambda: table.popitem(),
    ]  # fmt: skip


@program
def default_dict():
    table = collections.defaultdict(int, a=1)

    def f(x):
        table["b"] += 1
        return x * table["b"] + len(table)

    return f, [lambda: None, lambda: table.clear(), lambda: setattr(table, "default_factory", lambda: 5), lambda: table.clear()]


@program
def dict_key_types():
    table: dict = {1: 2.0}
    return (lambda x: x * table[1] + sum(type(k) is bool for k in table)), [
        lambda: (table.clear(), table.update({True: 3.0})), lambda: (table.clear(), table.update({1.0: 4.0})),
    ]  # fmt: skip


@program
def dict_missing_key():
    table: dict = {}
    return (lambda x: x * table.get("n", 1) + ("m" in table)), [lambda: table.update(n=2), lambda: table.update(m=None), lambda: table.clear()]


@program
def dict_of_objects():
    key = Counter()
    table = {key: 2}
    return (lambda x: x * table[key]), [lambda: table.update({key: 3}), lambda: table.update({Counter(): 5})]


@program
def sets():
    names = {"a"}
    return (lambda x: x * len(names) + ("b" in names)), [lambda: names.add("b"), lambda: names.discard("a"), lambda: names.update("cd")]


@program
def deques():
    history = collections.deque([1.0], maxlen=2)

    def f(x):
        history.append(history[-1] + 1)
        return x * sum(history)

    return f, [lambda: None, lambda: history.rotate(), lambda: history.clear() or history.append(5.0)]


@program
def nested_containers():
    config: dict = {"layers": [{"n": 1}, {"n": 2}]}
    return (lambda x: functools.reduce(lambda y, layer: y * layer["n"], config["layers"], x)), [
        lambda: config["layers"][1].update(n=3), lambda: config["layers"].append({"n": 4}), lambda: config.update(layers=[{"n": 9}]),
    ]  # fmt: skip


@program
def dict_subclass():
    class Config(dict):
        __getattr__ = dict.__getitem__

    config = Config(n=2)
    return (lambda x: x * config.n), [
        lambda: config.update(n=3), lambda: setattr(Config, "n", 8), lambda: delattr(Config, "n"),
        lambda: setattr(Config, "__getattr__", lambda s, name: 1),
    ]  # fmt: skip


# -- numbers --------------------------------------------------------------------------------------------------------------------
@program
def number_types():
    a = Counter(n=2)
    return (lambda x: x.to(torch.int64) * a.n), [
        lambda: setattr(a, "n", 2.0), lambda: setattr(a, "n", True), lambda: setattr(a, "n", 1), lambda: setattr(a, "n", 1 + 0j),
        lambda: setattr(a, "n", np.float32(2)), lambda: setattr(a, "n", np.int64(2)),
    ]  # fmt: skip


@program
def zeros_and_nans():
    a = Counter(n=0.0)
    return (lambda x: x / a.n), [
        lambda: setattr(a, "n", -0.0), lambda: setattr(a, "n", float("nan")), lambda: setattr(a, "n", 0), lambda: setattr(a, "n", 0.0),
    ]  # fmt: skip


@program
def numpy_scalars():
    a = Counter(n=np.float64(2))
    return (lambda x: x * float(a.n) + np.sqrt(a.n).item()), [lambda: setattr(a, "n", np.float32(3)), lambda: setattr(a, "n", np.int32(4))]


@program
def numpy_array():
    values = np.array([1.0, 2.0, 3.0], np.float32)
    return (lambda x: x + torch.from_numpy(values)), [lambda: values.__setitem__(0, 9), lambda: values.sort()]


@program
def strings():
    a = Counter(mode="relu")
    return (lambda x: getattr(torch, a.mode)(x)), [lambda: setattr(a, "mode", "sin"), lambda: setattr(a, "mode", "relu")]


@program
def dtypes_and_devices():
    a = Counter(kind=torch.float64, where="cpu")
    return (lambda x: x.to(a.kind).to(a.where)), [
        lambda: setattr(a, "kind", torch.int32), lambda: setattr(a, "where", torch.device("cpu")), lambda: setattr(a, "kind", torch.bool),
    ]  # fmt: skip


# -- tensors --------------------------------------------------------------------------------------------------------------------
@program
def tensor_attribute():
    a = Counter(w=x())
    return (lambda y: y * a.w), [
        lambda: setattr(a, "w", x().double()), lambda: setattr(a, "w", x()[:1]), lambda: setattr(a, "w", x().requires_grad_()),
        lambda: setattr(a, "w", 3), lambda: setattr(a, "w", torch.ones(6)[::2]), lambda: setattr(a, "w", nn.Parameter(x())),
    ]  # fmt: skip


@program
def tensor_in_place():
    w = x()
    return (lambda y: y * w), [lambda: w.add_(1), lambda: w.zero_(), lambda: w.requires_grad_()]


@program
def tensor_aliases():
    a = Counter(one=x(), two=x())

    def f(y):
        a.one.add_(1)
        return y * a.two

    return f, [lambda: setattr(a, "two", a.one), lambda: setattr(a, "two", x()), lambda: setattr(a, "two", a.one[:1])]


@program
def tensor_data():
    w = x()
    return (lambda y: y * w), [lambda: setattr(w, "data", torch.zeros(3)), lambda: setattr(w, "data", torch.ones(1))]


@program
def tensor_own_attribute():
    w = x()
    return (lambda y: y * w * getattr(w, "rate", 1)), [lambda: setattr(w, "rate", 2), lambda: setattr(w, "rate", 3), lambda: delattr(w, "rate")]


@program
def gradients_kept():
    w = x().requires_grad_()
    return (lambda y: y * (2 if w.grad is None else 3)), [lambda: setattr(w, "grad", torch.ones(3)), lambda: setattr(w, "grad", None)]


# -- modules --------------------------------------------------------------------------------------------------------------------
class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.drop, self.act = nn.Linear(3, 3), nn.Dropout(0.5), nn.ReLU()
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x):
        return self.act(self.drop(self.linear(x)) * self.scale)


@program
def module_train_and_eval():
    m = Block().eval()
    return (lambda x: m.act(m.linear(x)) if m.training else m(x)), [m.train, m.eval]


@program
def module_parts():
    m = Block().eval()
    return m, [
        lambda: setattr(m, "act", nn.Tanh()), lambda: setattr(m, "linear", nn.Identity()), lambda: setattr(m, "scale", torch.full((3,), 2.0)),
        lambda: m.register_buffer("scale", torch.full((1,), 3.0)), lambda: setattr(m.drop, "p", 0.1), lambda: m.double() and m.float() and None,
    ]  # fmt: skip


@program
def module_hooks():
    m = Block().eval()
    handles: list = []
    return m, [
        lambda: handles.append(m.register_forward_hook(lambda mod, args, out: out * 2)),
        lambda: handles.append(m.linear.register_forward_pre_hook(lambda mod, args: (args[0] + 1,))),
        lambda: handles.pop(0).remove(), lambda: handles.pop(0).remove(),
        lambda: handles.append(nn.modules.module.register_module_forward_hook(lambda mod, args, out: out + 1)),
        lambda: handles.pop(0).remove(),
    ]  # fmt: skip


@program
def module_forward_replaced():
    m = Block().eval()
    old = m.forward
    return (lambda x: m(x)), [
        lambda: setattr(m, "forward", lambda x: old(x) * 2), lambda: delattr(m, "forward"),
        lambda: setattr(m.linear, "forward", types.MethodType(lambda self, x: x * 3, m.linear)), lambda: delattr(m.linear, "forward"),
    ]  # fmt: skip


@program
def module_containers():
    layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
    nn.init.constant_(layers[0].weight, 0.1), nn.init.constant_(layers[1].weight, 0.2)
    for layer in layers:
        nn.init.zeros_(layer.bias)
    return (lambda x: functools.reduce(lambda y, layer: layer(y), layers, x)), [
        lambda: layers.append(nn.ReLU()), lambda: layers.__setitem__(0, nn.Identity()), lambda: layers.pop(2), lambda: layers.insert(0, nn.Tanh()),
    ]  # fmt: skip


@program
def module_requires_grad():
    m = Block().eval()
    return m, [lambda: m.requires_grad_(False) and None, lambda: m.linear.bias.requires_grad_()]


@program
def module_weight_tying():
    m = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    nn.init.constant_(m[0].weight, 0.5), nn.init.constant_(m[1].weight, 0.25)
    return m, [lambda: setattr(m[1], "weight", m[0].weight), lambda: setattr(m[1], "weight", nn.Parameter(torch.eye(3)))]


@program
def module_class_swap():
    class Loud(nn.Linear):
        def forward(self, x):
            return super().forward(x) * 10

    m = Block().eval()
    return m, [lambda: setattr(m.linear, "__class__", Loud), lambda: setattr(m.linear, "__class__", nn.Linear)]


# -- the process ------------------------------------------------------------------------------------------------------------------
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


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_changes_between_calls(name: str, backend: str) -> None:
    plain, plain_steps = PROGRAMS[name]()
    function, steps = PROGRAMS[name]()
    compiled = dynamo.compile(function, backend=backend)
    for number in range(len(steps) + 1):
        outcomes = []
        for call in (plain, compiled):
            try:
                outcomes.append(call(x()))
            except Exception as error:
                outcomes.append((type(error).__name__, str(error)))
        assert same(outcomes[0], outcomes[1]), f"after {number} changes: expected {outcomes[0]}, got {outcomes[1]}"
        if number < len(steps):
            plain_steps[number]()
            steps[number]()


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
