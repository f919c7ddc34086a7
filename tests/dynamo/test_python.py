# ruff: noqa - the functions are odd Python on purpose
"""Python as it is written: each function gives the same compiled as eager, in one graph."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import itertools
import math
import operator
import types
from typing import Any, NamedTuple

import pytest
from dynamo_harness import check

import flambeau as torch

SCALE = 3
TABLE = {"a": 1.5, "b": 2.5}
NAMES = ["a", "b"]


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Config:
    width: int = 2
    scale: float = 0.5
    tags: list = dataclasses.field(default_factory=list)

    def area(self) -> float:
        return self.width * self.scale


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Any
    y: int = 1


class Base:
    factor = 2

    def __init__(self, bias: float):
        self.bias = bias

    def apply(self, x):
        return x * self.factor + self.bias

    @property
    def doubled(self):
        return self.bias * 2

    @doubled.setter
    def doubled(self, value):
        self.bias = value / 2

    @staticmethod
    def static(x):
        return x + 1

    @classmethod
    def make(cls, bias):
        return cls(bias)

    def __call__(self, x):
        return self.apply(x) - 1

    def __getitem__(self, i):
        return self.bias + i

    def __len__(self):
        return 3

    def __add__(self, other):
        return Base(self.bias + other.bias)

    def __eq__(self, other):
        return isinstance(other, Base) and self.bias == other.bias

    __hash__ = None


class Derived(Base):
    factor = 5

    def __init__(self, bias: float):
        super().__init__(bias + 1)
        self.extra = [bias]

    def apply(self, x):
        return super().apply(x) * 2


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n <= 0:
            raise StopIteration
        self.n -= 1
        return self.n


class Scope:
    def __init__(self):
        self.events = []

    def __enter__(self):
        self.events.append("enter")
        return self

    def __exit__(self, kind, value, traceback):
        self.events.append("exit")
        return kind is ValueError


def outer_scale(x, by=2):
    return x * by


def decorated(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs) + 1

    return wrapper


@decorated
def plus_one(x):
    return x * 2


def generate(x, n):
    for i in range(n):
        yield x + i


def generate_more(x):
    yield x
    got = yield from generate(x, 2)
    yield x * 10
    assert got is None


X = torch.ones(3)


def fn_arith(x):
    return (x + 1) * 2 - x / 3 // 1 % 2


def fn_inplace_ops(x):
    y = x * 1
    y += 1
    y *= 2
    y -= x
    return y


def fn_reflected(x):
    return 1 - x, 2 / x, 3 * x, 2**x


def fn_compare(x):
    return x > 0, x == 1, 1 >= x, x != 2


def fn_unary(x):
    return -x, abs(x)


def fn_tuple(x):
    a, (b, c) = x, (x + 1, x + 2)
    return a, b, c


def fn_star_unpack(x):
    first, *middle, last = [x, x + 1, x + 2, x + 3]
    return first, middle, last


def fn_list(x):
    items = [x, x + 1]
    items.append(x + 2)
    items.insert(0, x - 1)
    items.extend([x * 2, x * 3])
    last = items.pop()
    items[0] = x * 9
    del items[1]
    return items[1:3], items[-1], last, len(items)


def fn_list_methods(x):
    numbers = [3, 1, 2]
    numbers.sort()
    numbers.reverse()
    return x * numbers[0] + numbers.index(2) + numbers.count(1), numbers, 3 in numbers


def fn_dict(x):
    d = {"a": x, "b": x + 1}
    d["c"] = d["a"] * 2
    d.update(e=x)
    removed = d.pop("b")
    total = sum(d.values())
    keys = [k for k in d]
    return total, removed, keys, d.get("z", 3), "a" in d, {**d, "q": 1}


def fn_dict_comprehension(x):
    return {k: x * v for k, v in TABLE.items()}


def fn_nested_containers(x):
    return {"a": [x, (x + 1, {"b": x + 2})]}


def fn_defaultdict(x):
    d = collections.defaultdict(list)
    d["a"].append(x)
    d["b"].append(x + 1)
    d["a"].append(x + 2)
    return d["a"], d["b"], len(d)


def fn_ordereddict(x):
    d = collections.OrderedDict(a=x, b=x + 1)
    d.move_to_end("a")
    return list(d), d


def fn_counter(x):
    c = collections.Counter(["a", "b", "a"])
    return x * c["a"] + c["missing"]


def fn_deque(x):
    q = collections.deque([1, 2, 3], maxlen=3)
    q.append(4)
    q.appendleft(9)
    return x * q.popleft(), list(q)


def fn_set(x):
    s = {1, 2, 3}
    s.add(4)
    s.discard(1)
    return x * len(s & {2, 4, 9}), sorted(s | {7}), 2 in s, s


def fn_namedtuple(x):
    p = Pair(x, x + 1)
    return p.first + p.second, p._replace(first=x * 2), p[0]


def fn_comprehensions(x):
    return [x * i for i in range(4) if i % 2], [(i, j) for i in range(2) for j in range(i)], {i: i for i in range(2)}


def fn_generator_expression(x):
    return sum(x * i for i in range(3)), any(i > 2 for i in range(9)), list(x + i for i in (1, 2))  # noqa: C400


def fn_for_loop(x):
    for i, name in enumerate(NAMES):
        x = x * TABLE[name] + i
    return x


def fn_while(x):
    n = 0
    while n < 5:
        n += 1
        if n == 2:
            continue
        if n == 4:
            break
        x = x + n
    else:
        x = x * 100
    return x, n


def fn_for_else(x):
    for i in range(3):
        if i == 7:
            break
    else:
        x = x + 10
    return x


def fn_zip(x):
    total = x
    for a, b in zip([1, 2], (3, 4, 5)):  # noqa: B905
        total = total + a * b
    return total


def fn_map_filter(x):
    return list(map(lambda i: x * i, filter(lambda i: i > 1, [1, 2, 3])))


def fn_reversed_sorted(x):
    return [x * i for i in reversed([1, 2, 3])], sorted([3, 1, 2], key=lambda v: -v, reverse=True)


def fn_min_max(x):
    return x * max(1, 5, 3) + min([4, 2]), max([1, 2, 3], key=lambda v: -v), max([], default=7)


def fn_any_all(x):
    return x + 1 if all([1, 2]) and not any([0, None, ""]) else x


def fn_builtins(x):
    return x * abs(-2) + round(2.6) + int("3") + divmod(7, 2)[0] + pow(2, 3), str(5), bool([]), float("1.5"), len("abc")


def fn_math(x):
    return x * math.sqrt(16) + math.pi + math.floor(2.5) + math.prod([2, 3])


def fn_isinstance(x):
    return x + 1 if isinstance(x, torch.Tensor) and not isinstance(3, str) and issubclass(bool, int) else x - 1


def fn_fstring(x):
    return x * 2, f"{SCALE}-{'a'!r}-{3.14159:.2f}", "{} {}".format(1, 2), "%d%%" % 3  # noqa: UP032


def fn_strings(x):
    return x, "a,b".split(","), "-".join(["x", "y"]), "Hello".lower().startswith("he"), "abc"[1:], "x" * 3


def fn_ternary_and_or(x, flag=True, nothing=None):
    y = x if flag else -x
    z = nothing or 3
    w = flag and 4
    return y * z * w


def fn_chained_comparison(x):
    return x + 1 if 0 < SCALE < 5 else x


def fn_global(x):
    return x * SCALE + len(NAMES)


def fn_lambda(x):
    return (lambda y, k=2: y * k + SCALE)(x)


def fn_closure(x):
    k = 3

    def inner(y):
        return y * k + x

    return inner(x + 1)


def fn_nonlocal(x):
    count = 0

    def step():
        nonlocal count
        count += 1
        return x * count

    return step() + step(), count


def fn_recursion(x):
    def down(y, n):
        return y if n == 0 else down(y + n, n - 1)

    return down(x, 4)


def fn_kwargs(x):
    def f(a, /, b, *rest, c=1, **more):
        return a + b * 2 + sum(rest) + c + more["d"]

    return f(x, x, 1, 2, d=4), f(x, b=x, c=9, d=1), f(*[x, x], **{"d": 2})


def fn_partial(x):
    return functools.partial(outer_scale, by=5)(x), functools.partial(operator.add, x)(1)


def fn_reduce(x):
    return functools.reduce(lambda a, b: a * b, [x, 2, 3])


def fn_operator_module(x):
    return operator.add(x, 1), operator.itemgetter(1)([1, 2]), operator.attrgetter("bias")(Base(2.0)), operator.neg(x)


def fn_itertools(x):
    return [x * a for a in itertools.chain([1], (2,))], list(itertools.product([1, 2], [3])), list(
        itertools.islice(itertools.count(5), 2)), list(itertools.accumulate([1, 2, 3])), list(itertools.zip_longest([1], [2, 3]))


def fn_decorator(x):
    return plus_one(x)


def fn_enum(x, color=Color.RED):
    return x * color.value if color is Color.RED else x, color.name, Color["BLUE"] == Color.BLUE


def fn_class_instance(x):
    b = Base(1.5)
    return b.apply(x) + b.doubled + b.static(x) + Base.make(2).bias + b(x) + b[1] + len(b)


def fn_class_returned(x):
    b = Derived(1.0)
    b.later = x
    return b


def fn_property_setter(x):
    b = Base(1.0)
    b.doubled = 10
    return x * b.bias


def fn_inheritance(x):
    d = Derived(2.0)
    return d.apply(x) + d.factor, isinstance(d, Base), type(d).__name__


def fn_operators_of_object(x):
    return (Base(1.0) + Base(2.0)).bias * x, Base(1.0) == Base(1.0), Base(1.0) != Base(2.0)


def fn_slots(x):
    s = Slotted(x, 2)
    s.a = s.a + 1
    return s.a * s.b


def fn_dataclass(x):
    c = Config(width=3)
    c.tags.append("t")
    return x * c.area(), c, dataclasses.asdict is not None


def fn_frozen_dataclass(x):
    return Frozen(x, 3), Frozen(x).y


def fn_getattr(x):
    b = Base(1.0)
    setattr(b, "other", 5)  # noqa: B010
    return x * getattr(b, "other") + getattr(b, "missing", 2), hasattr(b, "missing"), hasattr(b, "bias")  # noqa: B009


def fn_iterator_class(x):
    return [x * i for i in Countdown(3)]


def fn_generator_function(x):
    return list(generate(x, 3)), [y for y in generate_more(x)]  # noqa: C416


def fn_next(x):
    it = iter([1, 2])
    return x * next(it) + next(it) + next(it, 7)


def fn_try(x):
    try:
        raise ValueError("no")
    except (KeyError, ValueError) as e:
        x = x + len(str(e))
    else:
        x = x * 100
    finally:
        x = x + 1
    return x


def fn_try_lookup(x):
    try:
        TABLE["zzz"]
    except KeyError:
        x = x + 1
    try:
        [][3]
    except IndexError:
        x = x + 2
    try:
        x.no_such_attribute  # noqa: B018
    except AttributeError:
        x = x + 3
    try:
        1 / 0
    except ZeroDivisionError:
        x = x + 4
    return x


def fn_try_nested(x):
    def risky(n):
        if n:
            raise RuntimeError("bad", n)
        return x

    try:
        try:
            risky(3)
        except ValueError:
            x = x * 50
        finally:
            x = x + 1
    except RuntimeError as e:
        x = x * e.args[1]
    return x


def fn_reraise(x):
    try:
        try:
            raise KeyError("a")
        except KeyError:
            raise
    except LookupError:
        return x + 5


def fn_with(x):
    s = Scope()
    with s as t:
        x = x + len(t.events)
    return x, s.events


def fn_with_swallow(x):
    s = Scope()
    with s:
        x = x + 1
        raise ValueError
    return x, s.events


def fn_with_return(x):
    with Scope():
        return x + 2


def fn_assert(x):
    assert x.shape[0] == 3, "three"
    return x + 1


def fn_walrus(x):
    return x + n if (n := len(NAMES)) > 1 else x


def fn_slice_object(x):
    s = slice(0, 2)
    return [1, 2, 3][s], x + s.stop


def fn_match(x, command=("go", 3)):
    match command:
        case ("stop", _):
            return x
        case ("go", n) if n > 2:
            return x * n
        case _:
            return -x


def fn_match_class(x, p=Pair(1, 2)):
    match p:
        case Pair(first=1, second=s):
            return x * s
    return x


def fn_match_mapping(x):
    match {"kind": "add", "n": 2}:
        case {"kind": "add", "n": n}:
            return x + n
    return x


def fn_shape(x):
    n, = x.shape
    return x * n + x.size(0) + x.ndim + x.numel(), x.shape, x.dtype, x.device, x.dim()


def fn_methods(x):
    return x.add(1).mul(2).sum(), x.exp().log(), x.abs()


def fn_torch_functions(x):
    return torch.add(x, 1), torch.exp(x), torch.maximum(x, x + 1)


def fn_return_none(x):
    x + 1


def fn_identity(x):
    y = x
    return y is x, x is None, x + 1


def fn_del(x):
    y = x + 1
    z = y * 2
    del y
    return z


def fn_multiple_returns(x):
    if SCALE > 2:
        return x + 1
    return x - 1


def fn_type_call(x):
    return type(x) is torch.Tensor, type(3) is int, x + 1


def fn_no_grad(x):
    with torch.no_grad():
        y = x * 2
    return y + 1, torch.is_grad_enabled()


def fn_simple_namespace(x):
    return x * TABLE.get("a") * (TABLE | {"c": 4})["c"]


def fn_tuple_arith(x):
    return (1, 2) + (3,), (1,) * 3, (1, 2) < (1, 3), [1] + [2], x + 1


def fn_print_free_loop_with_index(x):
    out = []
    for i in range(2, 10, 3):
        out.append(x * i)
    return out


def fn_range_ops(x):
    r = range(10)
    return x + len(r[2:5]) + r[-1], 3 in r, list(r[::4])


def fn_mapping_proxy(x):
    return x * types.MappingProxyType({"a": 3})["a"]


def fn_bool_ops(x):
    return x + (True + 1), not SCALE, bool(NAMES)


def fn_varargs_tensor_sum(x):
    return sum([x, x, x]), sum([[1], [2]], [])


def fn_nested_functions_defaults(x, y=2.0, *, z=3):
    def g(a=y, *, b=z):
        return x * a + b

    return g(), g(1.0, b=0)


def fn_class_attr_mutation_of_new(x):
    b = Base(1.0)
    b.bias += 2
    b.bias *= 2
    return x * b.bias


def fn_list_of_tensors_loop(x):
    acc = []
    h = x
    for w in [x, x + 1, x + 2]:
        h = h * w
        acc.append(h)
    return acc[-1], acc


def fn_sequence_equality(x):
    return [1, 2] == [1, 2], (1, "a") != (1, "b"), {"a": 1} == {"a": 1}, x + 1


def fn_inner_class_method_as_callback(x):
    b = Base(2.0)
    f = b.apply
    return f(x), list(map(b.static, [x, x]))


def fn_string_format_of_values(x):
    return x, f"{[1, 2]} {(3, 'a')} {({'k': None})}"

def fn_deepcopy(x):
    import copy

    c = Config(width=4)
    c.tags.append([1])
    d = copy.deepcopy(c)
    d.tags[0].append(2)
    e = copy.copy(c)
    return x * d.width, c.tags, d.tags, e.tags is c.tags, copy.deepcopy([1, {"a": 2}]), copy.copy({"b": 1})


def fn_environment(x):
    import os

    if os.environ.get("FLAMBEAU_NOT_SET") is None and "PATH" in os.environ and os.getenv("FLAMBEAU_NOT_SET", "d") == "d":
        return x + 1
    return x


def fn_instance_dict(x):
    b = Base(1.0)
    b.__dict__["later"] = x
    fields = b.__dict__
    fields["again"] = 2
    return b.later * b.again, sorted(b.__dict__), vars(b)["bias"], "later" in b.__dict__


class Remapped:
    names = {"old": "new"}

    def __init__(self):
        self.new = 3

    def __getattribute__(self, name):
        if name != "names" and name in super().__getattribute__("names"):
            name = super().__getattribute__("names")[name]
        return super().__getattribute__(name)


REMAPPED = Remapped()


def fn_getattribute(x):
    return x * REMAPPED.old + REMAPPED.new


class LazyAttributes:
    def __getattr__(self, name):
        if name.startswith("n"):
            return len(name)
        raise AttributeError(name)


def fn_getattr_method(x):
    lazy = LazyAttributes()
    return x * lazy.nine, hasattr(lazy, "other"), getattr(lazy, "zzz", 5)


FUNCTIONS = [value for name, value in sorted(globals().items()) if name.startswith("fn_")]


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_same_as_eager(fn) -> None:
    graphs = 0 if fn is fn_return_none else None
    check(fn, torch.arange(3) * 1.0 + 1, graphs=graphs, breaks=0)


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_second_call_hits_the_cache(fn) -> None:
    from dynamo_harness import Counter, same

    from flambeau import dynamo

    counter = Counter()
    compiled = dynamo.compile(fn, backend=counter)
    compiled(X)
    graphs = len(counter.graphs)
    other = X * 3
    assert same(compiled(other), fn(other))
    assert len(counter.graphs) == graphs
