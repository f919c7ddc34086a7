
"""Closures, globals, defaults and code that change between the calls of compiled programs (changes.py)."""

from __future__ import annotations

import types

from changes import Programs

import flambeau as torch
from flambeau import nn

program = Programs()


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


test_changes = program.test()
