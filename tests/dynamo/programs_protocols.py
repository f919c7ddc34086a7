# ruff: noqa: B018, C416, E711, E742, F841, RUF015, UP032 - these are the ways of writing that are tested
"""Programs that lean on what classes define: attributes, operators, text, keys, patterns."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import operator
import types
import typing
from abc import ABC, abstractmethod

from programs import program, v


@program
def getattr_runs_a_property_once(T):
    class A:
        n = 0

        @property
        def p(self):
            self.n += 1
            return self.n

    a = A()

    def f(x):
        return x * getattr(a, "p", None), a.n, hasattr(a, "q")

    return f, (v(T),)


@program
def getattr_runs_getattr_once(T):
    class A:
        log = []

        def __getattr__(self, name):
            self.log.append(name)
            if name.startswith("_"):
                raise AttributeError(name)
            return 3

    a = A()

    def f(x):
        return x * getattr(a, "p", None) + getattr(a, "_q", 7), list(a.log)

    return f, (v(T),)


@program
def property_deleter(T):
    class A:
        def __init__(self):
            self._v = 3

        @property
        def v(self):
            return self._v

        @v.setter
        def v(self, x):
            self._v = x * 2

        @v.deleter
        def v(self):
            self._v = None

    def f(x):
        a = A()
        a.v = 4
        y = x * a.v
        del a.v
        return y, a.v

    return f, (v(T),)


@program
def property_deleter_of_an_argument(T):
    class A:
        def __init__(self):
            self._v = 3
            self.n = 0

        @property
        def v(self):
            return self._v

        @v.deleter
        def v(self):
            self.n += 1
            self._v = None

    a = A()

    def f(x):
        y = x * 2
        del a.v
        return y, a.v, a.n

    return f, (v(T),)


@program
def attributes_for_a_while(T):
    class A:
        pass

    def f(x, a):
        a.tmp = x * 2
        y = a.tmp + 1
        del a.tmp
        a.q = 1
        del a.q
        a.q = 2
        return y, hasattr(a, "tmp"), sorted(vars(a))

    return f, (v(T), A())


@program
def slots(T):
    class S:
        __slots__ = ("a", "b")

        def __init__(s, a):
            s.a = a

    s = S(2)

    def f(x):
        s.b = s.a + 1
        del s.a
        t = S(5)
        try:
            t.b
        except AttributeError as e:
            m = str(e)
        try:
            t.zz = 3
        except AttributeError as e:
            m2 = str(e)
        r = hasattr(s, "a")
        s.a = 1
        return x * s.b, m, m2, r, hasattr(t, "__dict__")

    return f, (v(T),)


@program
def cached_property_deleted(T):
    class A:
        def __init__(s):
            s.n = 0

        @functools.cached_property
        def p(s):
            s.n += 1
            return s.n * 10

    def f(x, a):
        r = a.p + a.p
        del a.p
        return x * r + a.p, a.n, "p" in a.__dict__

    return f, (v(T), A())


@program
def descriptors_that_check(T):
    class Typed:
        def __init__(s, k):
            s.k = k

        def __set_name__(s, o, n):
            s.n = "_" + n

        def __get__(s, o, t=None):
            return s if o is None else getattr(o, s.n, 0)

        def __set__(s, o, val):
            if not isinstance(val, s.k):
                raise TypeError(f"{s.n} wants {s.k.__name__}")
            setattr(o, s.n, val)

        def __delete__(s, o):
            delattr(o, s.n)

    class A:
        a = Typed(int)
        b = Typed(float)

    def f(x, o):
        o.a = 3
        try:
            o.b = 2
        except TypeError as e:
            m = str(e)
        p = A()
        p.a = o.a + 1
        del p.a
        return x * o.a, m, p.a, A.a.n

    return f, (v(T), A())


@program
def registry_of_subclasses(T):
    class R:
        reg = {}

        def __init_subclass__(cls, /, key, **k):
            super().__init_subclass__(**k)
            R.reg[key] = cls

        def __class_getitem__(cls, k):
            return cls.reg[k]

        def go(s, x):
            return x

    class A(R, key="a"):
        def go(s, x):
            return x * 2

    class B(R, key="b"):
        def go(s, x):
            return super().go(x) + 3

    def f(x, name):
        return R.reg[name]().go(x), R["b"]().go(x), [k for k in R.reg]

    return f, (v(T), "a")


@program
def new_and_numbers_as_bases(T):
    class A:
        inst = None

        def __new__(cls, *a, **k):
            o = super().__new__(cls)
            o.k = len(a)
            return o

        def __init__(s, n=1):
            s.n = n

    class B(A):
        def __new__(cls, n):
            return super().__new__(cls, n)

    class I(int):
        def __new__(cls, q):
            return int.__new__(cls, q + 1)

    class S(str):
        def shout(s):
            return s.upper()

    class F(float):
        pass

    def f(x):
        b = B(4)
        return x * b.n, b.k, I(3) + 1, S("a").shout(), F(2.5) * 2, isinstance(I(2), int)

    return f, (v(T),)


@program(breaks=True)
def abstract_class_refuses(T):
    class Base(ABC):
        @abstractmethod
        def go(s, x): ...
        @property
        @abstractmethod
        def n(s): ...
        def run(s, x):
            return s.go(x) * s.n

    class A(Base):
        n = 3

        def go(s, x):
            return x + 1

    def f(x):
        try:
            Base()
        except TypeError as e:
            m = str(e)
        return (
            A().run(x),
            m,
            isinstance(A(), Base),
            isinstance([], collections.abc.Sequence),
            isinstance({}, typing.Mapping),
            callable(A),
            hasattr(A, "go"),
        )

    return f, (v(T),)


@program(breaks=True)
def every_operator(T):
    class V:
        def __init__(s, t):
            s.t = t

        def __add__(s, o):
            return V(s.t + (o.t if isinstance(o, V) else o))

        __radd__ = __add__

        def __iadd__(s, o):
            s.t = s.t + o
            return s

        def __neg__(s):
            return V(-s.t)

        def __getitem__(s, i):
            return s.t[i]

        def __setitem__(s, i, val):
            s.t = s.t.clone()
            s.t[i] = val

        def __len__(s):
            return len(s.t)

        def __iter__(s):
            return iter(s.t)

        def __contains__(s, q):
            return q == 3

        def __call__(s, q):
            return s.t * q

        def __bool__(s):
            return False

        def __matmul__(s, o):
            return s.t @ o.t

        def __eq__(s, o):
            return isinstance(o, V)

        def __hash__(s):
            return 5

        def __abs__(s):
            return s.t.abs()

        def __index__(s):
            return 1

        def __int__(s):
            return 7

        def __float__(s):
            return 2.5

        def __enter__(s):
            return s

        def __exit__(s, *a):
            s.t = s.t + 100

        def __lt__(s, o):
            return True

        def __rmul__(s, k):
            return k * s.t

        def __floordiv__(s, k):
            return NotImplemented

    def f(x):
        a = V(x)
        b = a + 1
        c = 1 + a
        a += 5
        d = sum([V(x), V(x)], V(x * 0))
        a[0] = 9
        try:
            a // 2
        except TypeError as e:
            m = str(e)
        with a as q:
            z = q(2)
        return (
            b.t,
            c.t,
            a.t,
            d.t,
            (-a).t,
            a[1],
            len(a),
            3 in a,
            bool(a),
            a @ b,
            a == b,
            a != b,
            {a: 1}[b],
            abs(a),
            [10, 20][a],
            int(a),
            float(a),
            a < b,
            2 * a,
            m,
            [t for t in a][0],
            z,
        )

    return f, (v(T),)


@program
def iterators_by_protocol(T):
    class It:
        def __init__(s, n):
            s.i = 0
            s.n = n

        def __iter__(s):
            return s

        def __next__(s):
            if s.i >= s.n:
                raise StopIteration
            s.i += 1
            return s.i

    class Seq:
        def __getitem__(s, i):
            if i > 2:
                raise IndexError
            return i * 10

        def __len__(s):
            return 3

    def f(x, it):
        a = next(it)
        r = [i for i in it]
        d = next(it, None)
        return (
            x * a,
            r,
            d,
            list(Seq()),
            list(reversed(Seq())),
            20 in Seq(),
            max(Seq()),
            list(zip(It(2), Seq())),
            sum(It(3)),
            [*It(2)],
            dict(enumerate(It(2))),
            tuple(map(str, Seq())),
            sorted(Seq(), reverse=True),
            it.i,
        )

    return f, (v(T), It(4))


@program
def unequal_dataclasses(T):
    @dataclasses.dataclass
    class C:
        a: int = 1

    def f(x):
        return x * 2, C() != C(), C(2) != C(), C() != 3, C() in [C()], [C()] == [C()], [C(2)].index(C(2)), [C()].count(C())

    return f, (v(T),)


@program
def equality_that_declines(T):
    class A:
        def __eq__(s, o):
            return NotImplemented if not isinstance(o, A) else True

    def f(x):
        a = A()
        return x, a == 1, a != 1, a == 1, a == A(), a != A(), a in [1, A()], a == None

    return f, (v(T),)


@program(breaks=True)
def dataclass_options(T):
    @dataclasses.dataclass(order=True)
    class A:
        x: int
        y: float = 2.0
        z: list = dataclasses.field(default_factory=list, compare=False, repr=False)
        k: dataclasses.InitVar[int] = 3
        c: typing.ClassVar[int] = 9

        def __post_init__(self, k):
            self.t = self.x * k

    @dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    class B:
        p: int
        q: int = 5

    def f(x):
        a = A(1, z=[1])
        b = A(2, k=4)
        c = B(p=3)
        try:
            c.p = 4
        except dataclasses.FrozenInstanceError as e:
            m = "frozen"
        return (
            x * a.t + b.t + c.q,
            a < b,
            sorted([b, a])[0].x,
            dataclasses.asdict(a),
            dataclasses.astuple(c),
            repr(a),
            m,
            A.c,
            hash(c) == hash(B(p=3)),
            c == B(p=3),
            {c: 1}[B(p=3)],
        )

    return f, (v(T),)


@program
def ordered_by_the_class(T):
    @functools.total_ordering
    class V:
        def __init__(s, n):
            s.n = n

        def __eq__(s, o):
            return s.n == o.n

        def __lt__(s, o):
            return s.n < o.n

        def __hash__(s):
            return hash(s.n)

    def f(x):
        a, b = V(1), V(2)
        return (
            x * max(a, b).n,
            a >= b,
            a != b,
            sorted([b, a], reverse=True)[0].n,
            sorted([b, a], key=lambda q: -q.n)[0].n,
            min([b, a]).n,
        )

    return f, (v(T),)


@program
def enum_with_methods(T):
    class Act(enum.Enum):
        RELU = "relu"
        ID = "id"

        def apply(self, x):
            return T.relu(x) if self is Act.RELU else x

        @classmethod
        def default(cls):
            return cls.RELU

        @staticmethod
        def s(x):
            return x + 1

        def __call__(self, x):
            return self.apply(x)

        def __str__(self):
            return "act:" + self.value

    def f(x, a):
        return (
            a.apply(x - 2) + Act.default()(x) + Act.s(x),
            str(a),
            f"{a}",
            [m.name for m in Act],
            Act("id") is Act.ID,
            len(Act),
            Act.RELU in Act,
        )

    return f, (v(T), Act.RELU)


@program(breaks=True)
def format_of_objects(T):
    class A:
        def __format__(self, spec):
            return f"<{spec}>"

        def __str__(self):
            return "abc"

    def f(x):
        a = A()
        return x * 2, f"{a:10}", f"{a!s:>6}", f"{a}", format(a, "z"), "{:q} {}".format(a, a)

    return f, (v(T),)


@program(breaks=True)
def conversions_in_f_strings(T):
    class A:
        def __repr__(self):
            return "A\u00e9"

    def f(x):
        a = A()
        return x + 1, f"{a!r:>6}", f"{a!a}", str(a), repr(a), f"{a=}", f"{[a]}"

    return f, (v(T),)


@program
def format_spec_refused(T):
    class A:
        pass

    def f(x):
        try:
            s = f"{A():>10}"
        except TypeError as e:
            s = "terr"
        return x + 1, s

    return f, (v(T),)


@program
def pattern_of_missing_attributes(T):
    class P:
        def __init__(s, **k):
            s.__dict__.update(k)

    def k(o):
        match o:
            case P(z=0):
                return 1
            case P(x=0, y=y):
                return 2 + y
            case P():
                return 5

    def f(x):
        return x * k(P(x=0, y=3)) + k(P(z=0)) + k(P(x=0))

    return f, (v(T),)


@program
def patterns_of_containers(T):
    class L(list):
        pass

    class D(dict):
        pass

    N = collections.namedtuple("N", "a b")

    def k(o):
        match o:
            case [a]:
                return ("one", a)
            case [a, b]:
                return ("two", a, b)
            case [a, *r]:
                return ("many", a, list(r))
            case {"a": a, **rest}:
                return ("map", a, rest)
            case {}:
                return ("emptymap",)
            case str(s):
                return s
            case _:
                return None

    def f(x):
        return (
            x + 1,
            k(range(2)),
            k(L([1])),
            k(D(a=1, c=2)),
            k(N(1, 2)),
            k(collections.deque([1, 2, 3])),
            k(types.MappingProxyType({"a": 5})),
            k("ab"),
            k(b"a"),
            k({}),
            k(collections.OrderedDict(a=1)),
            k({1, 2}),
            k(iter([1])),
        )

    return f, (v(T),)


@program
def patterns_of_tensors(T):
    def k(o):
        match o:
            case T.Tensor(shape=(n,)):
                return o * n
            case T.Tensor(ndim=2):
                return o.sum(0)
            case [T.Tensor() as a, T.Tensor() as b]:
                return a + b

    def f(x):
        return k(x), k(x[None]), k([x, x])

    return f, (v(T),)


# -- objects of the module operator that exist, classes of classes ---------------------------------------------------------------
_second = operator.itemgetter(1)
_facts = operator.attrgetter("shape", "dtype")
_row_sums = operator.methodcaller("sum", dim=1, keepdim=True)


@program
def getters_that_exist(T):
    class Turned:
        def __init__(self, x):
            self.x = x

        other = property(operator.attrgetter("x.T"))

    def f(x, d):
        return _second(x), _facts(x), _row_sums(x), sorted(d.items(), key=_second), {"g": _second}["g"] is _second, Turned(x).other + 1

    return f, (v(T, 6).reshape(2, 3), {"a": 3, "b": 1})


@program
def metaclass_with_getitem(T):
    class Meta(type):
        def __getitem__(cls, key):
            return key + 1

    class A(metaclass=Meta):
        def __class_getitem__(cls, key):
            return key * 10

    return (lambda x: x * A[2]), (v(T),)
