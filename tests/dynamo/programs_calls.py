# ruff: noqa: B009, F821, F841, RUF017, UP031 - these are the ways of writing that are tested
"""Programs with calls that are unusual or fail, generators that are closed or thrown into, and state of the process."""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import math
import operator
import random
import sys

from programs import program, v


@program
def list_index_bounds(T):
    def f(x):
        xs = [1, 2, 3, 2]
        r = [xs.index(2, 2), xs.index(3, -2), xs.index(2, 0, 2), xs.index(2, -3, -1)]
        try:
            xs.index(3, 0, 2)
        except ValueError as e:
            r.append(str(e))
        return x * 2, r

    return f, (v(T),)


@program
def functions_of_operator(T):
    def f(x, xs):
        r = [operator.abs(-3), operator.inv(2), operator.call(max, 1, 4), operator.countOf([1, 2, 1, True], 1), operator.indexOf(xs, 5)]
        r += [operator.concat([1], [2]), operator.concat("a", "b"), operator.iconcat(xs, (7,)) is xs, operator.length_hint(xs, 9)]
        d = {"a": 1, "b": 2}
        operator.delitem(d, "a")
        operator.delitem(xs, 0)
        try:
            operator.indexOf(xs, 100)
        except ValueError as e:
            r.append(str(e))
        return operator.abs(x), operator.call(torch_sin, x, out=None), operator.countOf([x], x), r, d, xs

    torch_sin = T.sin
    return f, (v(T), [4, 5, 6])


@program
def slice_of_another_size(T):
    def f(x, xs):
        xs[::2] = [9, 9]
        try:
            xs[::2] = [1]
        except ValueError as e:
            m = str(e)
        xs[1:2] = []
        xs[:0] = [x]
        return x, xs, m

    return f, (v(T), [1, 2, 3, 4])


@program(breaks=True)
def wrong_calls_of_methods(T):
    def f(x):
        out = []
        for g in (lambda: [].append(), lambda: {}.get(), lambda: [1].index(), lambda: {1}.add(1, 2), lambda: {}.pop()):
            try:
                g()
            except TypeError:
                out.append("t")
        return x * 2, out

    return f, (v(T),)


@program
def set_updates(T):
    def f(x, s):
        a = {1, 2, 3}
        b = frozenset([3, 4])
        a.update([9], (10,))
        a.intersection_update({1, 9, 3})
        a.difference_update([9])
        a.symmetric_difference_update({3, 8})
        q = a.pop() if len(a) == 1 else None
        return (
            x,
            sorted(a),
            a | b,
            b - a,
            a < b,
            a.isdisjoint(b),
            sorted(a ^ b),
            len({*a, *b}),
            {1, 2} == {2, 1},
            set("hello") >= {"h"},
        )

    return f, (v(T), set())


@program
def zip_takes_no_more_than_it_gives(T):
    def f(x):
        it = iter([1, 2, 3, 4])
        pairs = list(zip(range(2), it))
        return x * next(it), pairs, list(zip(it, it))

    return f, (v(T),)


@program
def counter_by_keywords(T):
    def f(x):
        c = collections.Counter("hello")
        c.update(l=3)
        c.subtract("h")
        return x * c["l"], c.most_common(2), c.total(), dict(c + collections.Counter(z=1)), list(c.elements())[:2], c["none"]

    return f, (v(T),)


@program
def extremes_and_rounding(T):
    def f(x):
        return (
            x,
            max([1, 3], key=None),
            min((), default=None),
            max("a", "bb", key=len),
            min(3, 1),
            max({"a": 1, "b": 5}.items(), key=lambda k: k[1]),
            sum([[1], [2]], []),
            round(2.567, ndigits=1),
            round(-2.5),
            sum([1, 2], start=10),
            abs(-3),
            divmod(7, -2),
            pow(2, 3, 5),
            int("ff", 16),
            float("1e3"),
            any([]),
            all(()),
        )

    return f, (v(T),)


@program
def more_itertools(T):
    def f(x):
        return (
            x,
            [list(g) for k, g in itertools.groupby("aabbc")],
            list(itertools.chain.from_iterable([[1], [2, 3]])),
            list(itertools.islice(itertools.cycle([1, 2]), 5)),
            list(itertools.product("ab", repeat=2)),
            list(itertools.accumulate([1, 2, 3], operator.mul)),
            list(itertools.starmap(pow, [(2, 3)])),
            list(itertools.combinations([1, 2, 3], 2)),
            list(itertools.takewhile(lambda q: q < 3, [1, 2, 3, 1])),
            list(itertools.compress("abc", [1, 0, 1])),
            list(itertools.accumulate([x, x], initial=x * 0)),
            [*itertools.batched([1, 2, 3], 2)] if hasattr(itertools, "batched") else 0,
        )

    return f, (v(T),)


@program
def version_of_python(T):
    def f(x):
        known = sys.version_info >= (3, 11), sys.version_info[0], sys.version_info.major, [*sys.version_info][:2]
        info = sys.float_info
        return x * info.mant_dig, known, isinstance(info, tuple), len(info), sys.version_info, hasattr(info, "_fields")

    return f, (v(T),)


@program
def batches(T):
    """Python 3.12 has batched, 3.13 its `strict`."""

    def f(x):
        if sys.version_info < (3, 12):
            return x
        taken = iter([x, x + 1, x * 2])
        got = [next(itertools.batched(taken, 1)), *itertools.batched(taken, 2)]
        try:
            itertools.batched([1], 0)
        except ValueError as error:
            got.append(str(error))
        if sys.version_info >= (3, 13):
            try:
                for batch in itertools.batched([1, 2, 3], 2, strict=True):
                    got.extend(batch)
            except ValueError as error:
                got.append(str(error))
        return got

    return f, (v(T),)


@program(breaks=True)
def cache_of_lists(T):
    calls = []

    @functools.cache
    def tab(n):
        calls.append(n)
        return list(range(n))

    def f(x):
        y = x * sum(tab(3)) + sum(tab(3))
        return y, len(calls), tab.cache_info().currsize

    return f, (v(T),)


@program
def wrong_calls_of_functions(T):
    def g(a, b=2, *, c):
        return a

    def f(x):
        ms = []
        for call in (
            lambda: g(),
            lambda: g(1, 2, 3, c=1),
            lambda: g(1),
            lambda: g(1, c=2, d=3),
            lambda: g(1, a=2, c=3),
            lambda: g(*[1], c=1, e=1),
        ):
            try:
                call()
            except TypeError as e:
                ms.append(str(e))
        return x * 2, ms

    return f, (v(T),)


@program
def generator_closed(T):
    log = []

    def g():
        try:
            yield 1
            yield 2
        finally:
            log.append("closed")

    def f(x):
        it = g()
        a = next(it)
        it.close()
        r = list(log)
        log.clear()
        return x * a, r

    return f, (v(T),)


@program
def generator_thrown_into(T):
    def g():
        try:
            yield 1
        except ValueError as e:
            yield str(e)
        yield 3

    def f(x):
        it = g()
        a = next(it)
        b = it.throw(ValueError("hey"))
        return x * a, b, list(it)

    return f, (v(T),)


@program(breaks=True)
def generator_given_up(T):
    log = []

    def g():
        try:
            yield 1
            yield 2
        finally:
            log.append("closed")

    def h():
        for i in g():
            return i

    def f(x):
        a = h()
        r = list(log)
        log.clear()
        return x * a, r

    return f, (v(T),)


@program
def generator_scopes_and_errors(T):
    log = []

    @contextlib.contextmanager
    def cm(n):
        log.append(("in", n))
        try:
            yield n
        except ValueError:
            log.append("swallowed")
        finally:
            log.append(("out", n))

    def f(x):
        with cm(1) as a, cm(2) as b:
            y = x * a * b
            raise ValueError
        with cm(3):
            y = y + 1
        r = list(log)
        log.clear()
        return y, r

    return f, (v(T),)


@program
def forty_errors(T):
    def g(k):
        if k == 0:
            return 1 / 0
        if k == 1:
            return [][0]
        if k == 2:
            return {}["q"]
        if k == 3:
            return int("x")
        if k == 4:
            return None.foo
        if k == 5:
            return "a" + 1
        if k == 6:
            return undefined_thing
        if k == 7:
            raise StopIteration(3)
        if k == 8:
            return len(5)
        if k == 9:
            a, b = [1]
        if k == 10:
            return [1, 2].foo
        if k == 11:
            return (1).bit()
        if k == 12:
            raise OSError(2, "no")
        if k == 13:
            return sum(["a"])
        if k == 14:
            return x_unbound
        if k == 15:
            return max([])
        if k == 16:
            return [1] * "a"
        if k == 17:
            return {}[[]]
        if k == 18:
            return next(iter([]))
        if k == 19:
            return g(1, 2)
        if k == 22:
            return list(5)
        if k == 23:
            return "abc".index("z")
        if k == 24:
            return float("q")
        if k == 25:
            return 2**-1 + math.sqrt(-1)
        if k == 26:
            return "%d" % "a"
        if k == 27:
            return sorted([1, "a"])
        if k == 28:
            return 1 < "a"
        if k == 29:
            return {1, 2} + {3}
        if k == 30:
            return -"a"
        if k == 32:
            return getattr(1, "zz")
        if k == 33:
            return "a" in 5
        if k == 34:
            return {**5}
        if k == 35:
            return [*5]
        if k == 36:
            return int([])
        if k == 37:
            return range("a")
        if k == 38:
            return isinstance(1, 5)
        if k == 39:
            a, *b, c = [1]

    def f(x):
        r = []
        for k in range(40):
            try:
                g(k)
            except Exception as e:
                r.append((k, type(e).__name__, str(e)))
        return x * 2, r

    return f, (v(T),)


@program(breaks=True)
def seeds_inside(T):
    def f(x):
        T.manual_seed(3)
        a = T.rand(3)
        g = T.Generator()
        g.manual_seed(5)
        b = T.randn(2, generator=g)
        random.seed(1)
        c = random.random()
        d = random.choice([1, 2, 3])
        return a, b, c, d, T.randperm(4)

    return f, (v(T),)


@program(breaks=True)
def states_of_generators(T):
    def f(x):
        with T.random.fork_rng():
            T.manual_seed(1)
            a = T.rand(2)
        T.manual_seed(7)
        s = T.get_rng_state()
        b = T.rand(2)
        T.set_rng_state(s)
        c = T.rand(2)
        return a, b, c

    return f, (v(T),)


@program(breaks=True)
def default_dtype_inside(T):
    def f(x):
        T.set_default_dtype(T.float64)
        try:
            y = T.ones(2)
        finally:
            T.set_default_dtype(T.float32)
        return y, T.ones(2)

    return f, (v(T),)


@program(breaks=True)
def out_arguments(T):
    def f(a, b):
        T.add(a, b, out=a)
        T.mul(a, 2, out=b[:2]) if False else None
        c = T.empty(0)
        T.add(a, b, out=c)
        return c, a

    return f, (v(T), v(T))
