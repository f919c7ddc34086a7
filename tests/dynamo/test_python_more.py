# ruff: noqa - the functions are odd Python on purpose
"""More Python: values that leave the compiled function, control flow in corners, state that lives on."""

from __future__ import annotations

import contextlib
import functools
import sys
import typing
from collections import OrderedDict, UserDict, namedtuple

import pytest
from dynamo_harness import Counter, check, run, same

import flambeau as torch
from flambeau import dynamo

Point = namedtuple("Point", "x y")


def x3():
    return torch.arange(3) * 1.0 + 1


def m_late_binding(x):
    fs = [lambda: i for i in range(3)]
    gs = [lambda i=i: i for i in range(3)]
    return x * fs[0]() + gs[0](), [g() for g in gs]


def m_try_finally_return(x):
    log = []

    def f():
        try:
            return x + 1
        finally:
            log.append("done")

    return f(), log


def m_raise_from(x):
    try:
        try:
            {}["k"]
        except KeyError as e:
            raise ValueError("outer") from e
    except ValueError as e:
        return x + len(e.args[0]), type(e.__cause__).__name__


def m_except_star_args(x):
    class Custom(Exception):
        pass

    return x


def m_custom_exception(x):
    try:
        raise Problem(3, detail="why")
    except Problem as p:
        return x * p.code, p.detail, str(p)


class Problem(Exception):
    def __init__(self, code, detail=None):
        super().__init__(code)
        self.code, self.detail = code, detail


def m_nested_with(x):
    with contextlib.nullcontext(3) as a, contextlib.nullcontext(4) as b:
        return x * a + b


def m_suppress(x):
    with contextlib.suppress(ZeroDivisionError):
        x = x + 1
        1 / 0
        x = x * 100
    return x


@contextlib.contextmanager
def scaled(factor):
    yield factor * 2


def m_contextmanager(x):
    with scaled(3) as f:
        x = x * f
    return x


def m_generator_send(x):
    def g():
        total = 0
        while True:
            got = yield total
            if got is None:
                return
            total += got

    it = g()
    next(it)
    return x * it.send(3) + it.send(4)


def m_generator_in_for_with_break(x):
    def naturals():
        n = 0
        while True:
            yield n
            n += 1

    for n in naturals():
        if n > 3:
            break
        x = x + n
    return x


def m_augmented_targets(x):
    class Box:
        pass

    return x


class Box:
    def __init__(self):
        self.n = 1
        self.items = {"k": [1, 2]}


def m_augmented(x):
    b = Box()
    b.n += 2
    b.items["k"][0] *= 5
    b.items["k"] += [9]
    x = x * b.n
    x += b.items["k"][0]
    return x, b


def m_unpack_nested(x):
    (a, [b, *c]), d = (x, [1, 2, 3]), 4
    return a * b + d, c


def m_walrus_in_comprehension(x):
    return [y for n in range(4) if (y := n * 2) > 2], x + y


def m_swap(x):
    a, b, c = 1, 2, 3
    a, b, c = c, a, b
    return x * a + b - c


def m_slice_assign(x):
    xs = [1, 2, 3, 4]
    xs[1:3] = [7]
    del xs[-1]
    xs[len(xs):] = [8, 9]
    return x, xs


def m_shadowed_builtin(x):
    sum = lambda values: 100
    return x + sum([1])


def m_global_list_index(x):
    return x * NUMBERS[-1] + NUMBERS[ORDER["b"]]


NUMBERS, ORDER = [3, 5, 7], OrderedDict(a=0, b=1)


def m_dict_views(x):
    d = {"a": 1, "b": 2}
    return x, sorted(d.keys() & {"a", "z"}), list(d.items()), max(d.values()), [k + str(v) for k, v in d.items()], "a" in d.keys()


def m_dict_of_functions(x):
    return {"double": lambda t: t * 2, "neg": torch.neg}["double"](x) + {"neg": torch.neg}["neg"](x)


def m_partial_method(x):
    return functools.partial(Point, 1)(y=x).y + functools.partial(torch.add, alpha=2)(x, x)


def m_typing_cast(x):
    y: typing.Optional[torch.Tensor] = typing.cast(torch.Tensor, x)
    return y + 1


def m_is_comparisons(x):
    a = [1]
    b = a
    return x, a is b, a is not [1], None is None, x is x, type(a) is list


def m_string_building(x):
    parts = []
    for i, c in enumerate("abc"):
        parts.append(f"{c}{i}")
    return x, "".join(parts), "%s-%d" % ("k", 3), "a" < "b", "abc".find("c"), "a b".title()


def m_int_operations(x):
    return x + (7 // 2) + (-7 % 3) + (1 << 4) + (6 & 3) + (6 ^ 3) + ~2, 2**10, divmod(-7, 2), int("ff", 16)


def m_conditional_import(x):
    import math as m
    from collections import OrderedDict as O

    return x * m.floor(2.7), list(O(a=1))


def m_class_method_chain(x):
    return Chain(x).add(1).mul(2).value


class Chain:
    def __init__(self, value):
        self.value = value

    def add(self, n):
        self.value = self.value + n
        return self

    def mul(self, n):
        return type(self)(self.value * n)


class Registry(UserDict):
    pass


class Meta(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.tagged = True
        return made


class Tagged(metaclass=Meta):
    def __init__(self, n):
        self.n = n


def m_metaclass(x):
    t = Tagged(4)
    return x * t.n, t.tagged


class Descriptor:
    def __get__(self, owner, cls):
        return owner.raw * 2

    def __set__(self, owner, value):
        owner.raw = value


class Described:
    field = Descriptor()

    def __init__(self):
        self.raw = 2


def m_descriptor_read(x):
    return x * Described().field


class Indexed:
    def __getitem__(self, key):
        return key

    def __contains__(self, item):
        return item == 3

    def __iter__(self):
        yield 1
        yield 2

    def __bool__(self):
        return False

    def __enter__(self):
        return 5

    def __exit__(self, *exc):
        return None

    def __neg__(self):
        return 8

    def __radd__(self, other):
        return other + 10

    def __lt__(self, other):
        return True


def m_special_methods(x):
    i = Indexed()
    with i as five:
        x = x + five
    return x, 1 + i, i[2], i[1:3], 3 in i, list(i), not i, -i, i < 3, [*i]


def m_long_if_chain(x, mode="c"):
    if mode == "a":
        return x
    elif mode == "b":
        return x + 1
    elif mode in ("c", "d"):
        return x + 2
    raise ValueError(mode)


def m_early_continue(x):
    for a in range(3):
        for b in range(3):
            if b == 1:
                continue
            if a == 2:
                break
            x = x + a * b
        else:
            x = x * 2
    return x


FUNCTIONS = [value for name, value in sorted(globals().items()) if name.startswith("m_")]


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_same_as_eager(fn) -> None:
    broken = {m_except_star_args, m_augmented_targets}
    check(fn, x3(), graphs=None, breaks=None if fn in broken else 0)


def test_returned_closure() -> None:
    def f(x):
        k = 2
        y = x * 3

        def inner(z, by=k, *, more=1):
            nonlocal k
            k += 1
            return y * by + z + k + more

        inner.tag = "t"
        return inner

    eager, compiled = f(x3()), run(f, x3())[0]
    for _ in range(2):
        assert same(eager(x3()), compiled(x3()))
    assert compiled.tag == "t" and compiled.__name__ == "inner" and compiled.__qualname__ == eager.__qualname__


def test_returned_bound_method_and_partial() -> None:
    def f(x):
        c = Chain(x + 1)
        return c.add, functools.partial(torch.add, x)

    method, partial = run(f, x3())[0]
    assert same(method(1).value, x3() + 2) and same(partial(1), x3() + 1)


def test_two_closures_share_a_cell() -> None:
    def f(x):
        n = 0

        def up():
            nonlocal n
            n += 1

        def get():
            return n

        up()
        return up, get, x + n

    up, get, _ = run(f, x3())[0]
    up()
    assert get() == 2


def test_callback_argument_changes() -> None:
    def f(x, g):
        return g(x) + 1

    counter = Counter()
    compiled = dynamo.compile(f, backend=counter)
    for _ in range(3):
        assert same(compiled(x3(), lambda t: t * 2), x3() * 2 + 1)
    assert len(counter.graphs) == 1
    assert same(compiled(x3(), lambda t: t * 5), x3() * 5 + 1)
    k = 7
    assert same(compiled(x3(), lambda t: t * k), x3() * 7 + 1)


def test_closure_value_is_guarded() -> None:
    def make(k):
        def f(x):
            return x * k

        return dynamo.compile(f, backend="eager")

    assert same(make(0.5)(x3()), x3() * 0.5) and same(make(1.5)(x3()), x3() * 1.5)


def test_global_that_changes_is_guarded() -> None:
    global SETTING
    SETTING = "a"

    def f(x):
        return x + 1 if SETTING == "a" else x - 1

    compiled = dynamo.compile(f, backend="eager")
    assert same(compiled(x3()), x3() + 1)
    SETTING = "b"
    assert same(compiled(x3()), x3() - 1)


def test_attribute_that_appears_on_the_instance_shadows_the_class() -> None:
    class Holder:
        scale = 2

        def work(self, x):
            return x * self.scale

    def f(x, h):
        return h.work(x)

    h = Holder()
    compiled = dynamo.compile(f, backend="eager")
    assert same(compiled(x3(), h), x3() * 2)
    h.scale = 5
    assert same(compiled(x3(), h), x3() * 5)
    h.work = lambda x: x - 1
    assert same(compiled(x3(), h), x3() - 1)
    Holder.scale = 9
    assert same(compiled(x3(), Holder()), x3() * 9)


def test_user_dict() -> None:
    def f(x):
        r = Registry()
        r["a"] = x
        return r["a"] + len(r)

    check(f, x3(), graphs=None, breaks=None)


def test_staticmethod_and_classmethod_called_on_the_class() -> None:
    class Tool:
        offset = 4

        @staticmethod
        def double(x):
            return x * 2

        @classmethod
        def shift(cls, x):
            return cls.double(x) + cls.offset

    check(lambda x: Tool.shift(x) + Tool().double(x), x3())


def test_default_dtype_is_guarded() -> None:
    def f(x):
        return torch.ones(3) + 1

    compiled = dynamo.compile(f, backend=(counter := Counter()))
    assert compiled(x3()).dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert compiled(x3()).dtype is torch.float64
        assert len(counter.graphs) == 2
    finally:
        torch.set_default_dtype(torch.float32)


def test_import_of_an_own_module_that_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "flambeau._higher_order_ops.associative_scan"
    monkeypatch.delitem(sys.modules, name, raising=False)

    def f(x: torch.Tensor) -> torch.Tensor:
        from flambeau._higher_order_ops.associative_scan import associative_scan

        return associative_scan(lambda a, b: a + b, x, 0)

    x = torch.arange(4.0)
    assert same(torch.compile(f, backend="eager", fullgraph=True)(x), x.cumsum(0))
    assert name in sys.modules


def test_annotated_function_that_outlives_its_graph() -> None:
    def f(x: torch.Tensor) -> tuple:
        def g(a: int, *, b: "str" = "q") -> float:
            return a + 1

        torch._dynamo.graph_break()
        return g(x), g.__annotations__

    out, annotations = torch.compile(f, backend="eager")(torch.ones(2))
    assert same(out, torch.full((2,), 2.0)) and annotations == f(torch.ones(2))[1]


def test_a_function_registered_for_single_dispatch_later() -> None:
    @functools.singledispatch
    def twice(value: object) -> object:
        return value * 2

    compiled = torch.compile(lambda x: twice(x) + 1, backend="eager", fullgraph=True)
    x = torch.ones(2)
    assert compiled(x).tolist() == [3, 3]
    twice.register(torch.Tensor, lambda value: value * 3)
    assert compiled(x).tolist() == [4, 4]
