
"""Containers, numbers and tensors that change between the calls of compiled programs (changes.py)."""

from __future__ import annotations

import collections
import functools

import numpy as np
from changes import Counter, Programs, x

import flambeau as torch
from flambeau import nn

program = Programs()


# -- containers --------------------------------------------------------------------------------------------------------------
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


# -- numbers -----------------------------------------------------------------------------------------------------------------
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


# -- tensors -----------------------------------------------------------------------------------------------------------------
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


test_changes = program.test()
