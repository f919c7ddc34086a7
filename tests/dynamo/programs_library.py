# ruff: noqa: UP031, UP032, SIM905, E501 - these are the ways of writing that are tested
"""Small programs about containers, text and the standard library.

`PROGRAMS[name](T)` gives a function and its arguments for the torch or Flambeau module `T`; what the function does to its
arguments is compared as well.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import dataclasses
import datetime
import functools
import heapq
import itertools
import logging
import math
import operator
import os
import pathlib
import random
import re
import struct
import sys
import threading
import time
import warnings
import zlib
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

import numpy as np
from programs import program, v


# -- containers ------------------------------------------------------------------------------------------------------------------
@program
def lists(T):
    def f(x, xs):
        xs.append(x)
        xs.extend([1, 2])
        xs.insert(1, 7)
        popped = xs.pop()
        xs.remove(7)
        xs += [4]
        xs[1:2] = [8, 9]
        ys = xs[::-1] * 2
        zs = [3, 1, 2]
        zs.sort(reverse=True)
        return popped, ys, zs, zs.index(1), zs.count(3), zs.copy() == zs, [1, 2] < [1, 3], list(reversed(zs))

    return f, (v(T), [10, 20])


@program
def dicts(T):
    def f(x, d):
        d["x"] = x
        d.update(b=2, c=3)
        gone = d.pop("b")
        d.setdefault("n", []).append(1)
        merged = d | {"z": 1}
        d |= {"w": 2}
        other = dict.fromkeys("ab", 0)
        return (gone, list(d), "c" in d, merged["z"], d.get("nope", 4), other, {k: i for i, k in enumerate(d)}, d.items() and len(d),
                d.keys() & {"x", "q"}, dict(sorted(other.items())), dict(zip("ab", [1, 2], strict=True)), d.popitem())  # fmt: skip

    return f, (v(T), {"a": 1})


@program
def sets(T):
    def f(x):
        a, b = {1, 2, 3}, {3, 4}
        a.add(9)
        a.discard(1)
        c = a | b
        c -= {4}
        return (x * len(c), a & b, a ^ b, a - b, a <= c, frozenset(b), {1} < {1, 2}, a.isdisjoint({100}), a.union([7]),
                sorted(c))  # fmt: skip

    return f, (v(T),)


@program
def pop_of_a_set(T):
    def f(x, s):
        made = {3, 1, 7, 40}
        made.add(2)
        popped = [made.pop(), made.pop(), s.pop()]
        try:
            s.pop()
        except KeyError as error:
            popped.append(error.args)
        return x * popped[0], popped, len(s), made

    return f, (v(T), {5})


@program(breaks=True)
def pop_of_a_set_that_was_given(T):
    return (lambda x, s: (x * s.pop(), len(s))), (v(T), {5, 6})


@program
def collections_types(T):
    def f(x):
        q = deque([1, 2, 3], maxlen=3)
        q.append(4)
        q.appendleft(0)
        q.rotate(1)
        od = OrderedDict(a=1, b=2)
        od.move_to_end("a")
        dd = defaultdict(list)
        dd["k"].append(x)
        c = Counter("hello")
        c.update("l")
        cm = collections.ChainMap({"a": 1}, {"b": 2})
        return list(q), list(od), dd["k"][0] * 2, dd["new"], c["l"], c.most_common(1), x * q.popleft(), cm["b"], c["zz"]

    return f, (v(T),)


@program
def itertools_functions(T):
    def f(x):
        a = list(itertools.chain([1], (2, 3)))
        b = list(itertools.islice(itertools.count(3), 4))
        c = list(itertools.product("ab", [1, 2]))
        d = [(k, list(g)) for k, g in itertools.groupby([1, 1, 2, 3, 3])]
        e = list(itertools.accumulate([1, 2, 3], operator.mul))
        g = list(itertools.zip_longest([1], [2, 3], fillvalue=0))
        h = list(itertools.combinations(range(3), 2)) + list(itertools.pairwise([1, 2, 3]))
        i, j = itertools.tee([1, 2])
        k = list(itertools.compress("abc", [1, 0, 1])) + list(itertools.filterfalse(None, [0, 1]))
        m = [next(itertools.cycle([5, 6])), *itertools.repeat(2, 2), *itertools.takewhile(lambda n: n < 2, a)]
        return x * sum(a) + sum(b), c, d, e, g, h, list(i) + list(j), k, m, functools.reduce(operator.add, a)

    return f, (v(T),)


@program
def zip_and_enumerate(T):
    def f(x):
        out = []
        for i, (a, b) in enumerate(zip([x, x + 1], (2, 3), strict=True), 1):
            out.append(a * b + i)
        try:
            list(zip([1], [1, 2], strict=True))
        except ValueError as error:
            text = type(error).__name__
        return out, text, list(map(max, [1, 5], [4, 2])), list(filter(None, [0, 1, 2])), any([0, 1]), all([])

    return f, (v(T),)


@program
def slices(T):
    def f(x, xs):
        s = slice(1, None, 2)
        return x[s], xs[s], x[1:3] * 2, x[..., None].shape, x[-1], x[[0, 2]], s.start, xs[-2:], x[None, ::2], x[1:][0], s.indices(4)

    return f, (v(T), [1, 2, 3, 4])


# -- text ------------------------------------------------------------------------------------------------------------------------
@program
def strings(T):
    def f(x, name):
        text = f"{name!r:>10} {len(name):03d} {3.14159:.2f} {x.shape} {x.ndim=}"
        parts = "a,b,c".split(",")
        return (x * len(text), text, "-".join(parts), name.upper().replace("N", "M"), name[::-1], "%s=%d" % (name, 3), "{:>5}|{k}".format(1, k=2), parts,
                name.startswith("n"), "z" * 3, " pad ".strip(), ord("a"), chr(98), "b" in name, name.find("m"), "ab" < "b",
                str(x.dtype), repr(name), "x".isdigit(), b"ab".decode(), "a\tb".expandtabs(2), "Title".swapcase(),
                int("42"), "%.1f" % 2.25)  # fmt: skip

    return f, (v(T), "nine")


@program
def numbers(T):
    def f(x, n):
        return (x * math.sqrt(n) + math.pi, n // 3, -n % 5, divmod(n, 4), abs(-n), round(2.567, 1), pow(2, 5), n ** 2, n << 1, ~n, n & 3,
                float("inf"), math.floor(2.7), int(3.9), bool(n), complex(1, 2).imag, max(n, 3), sum([n, 1]), hash(3), math.prod([2, 3]),
                1e-3 < 1, 0.1 + 0.2, math.isclose(0.3, 0.1 + 0.2), n.bit_length(), (3.5).is_integer())  # fmt: skip

    return f, (v(T), 10)


# -- modules of the standard library ------------------------------------------------------------------------------------------------
@program
def context_managers(T):
    @contextlib.contextmanager
    def scope(log, n):
        log.append("in")
        try:
            yield n * 2
        finally:
            log.append("out")

    def f(x, log):
        with scope(log, 2) as a, contextlib.nullcontext(5) as b:
            x = x * a + b
        with contextlib.suppress(ValueError):
            x = x + 1
            raise ValueError
        with contextlib.ExitStack() as stack:
            n = stack.enter_context(scope(log, 1))
            stack.callback(log.append, "callback")
            x = x + n
        return x

    return f, (v(T), [])


@program
def operator_module(T):
    def f(x, items):
        get, name = operator.itemgetter(1), operator.attrgetter("shape")
        call = operator.methodcaller("sum")
        return operator.add(x, 1), get(items), name(x), operator.mul(2, 3), call(x), operator.contains(items, 2), operator.getitem(items, 0)

    return f, (v(T), [1, 2])


@program(breaks=True)
def logging_and_warnings(T):
    logger = logging.getLogger("program")

    def f(x):
        y = x * 2
        logger.info("shape %s", y.shape)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("careful", stacklevel=1)
        return y + 1

    return f, (v(T),)


@program(breaks=True)
def clocks(T):
    def f(x):
        started = time.perf_counter()
        y = x * 2
        took = time.perf_counter() - started
        return y, took >= 0

    return f, (v(T),)


@program
def environment(T):
    def f(x):
        os.environ.get("HOME")
        return x * len(os.environ.get("NOT_SET_ANYWHERE", "abc")), "NOT_SET_ANYWHERE" in os.environ, os.path.join("a", "b")

    return f, (v(T),)


@program(breaks=True)
def random_numbers(T):
    def f(x):
        random.seed(3)
        a = random.random()
        b = random.randint(1, 6)
        c = random.choice([1, 2, 3])
        return x * a + b + c

    return f, (v(T),)


@program
def random_generator(T):
    def f(x, rng):
        return x * rng.random() + rng.randint(0, 3)

    return f, (v(T), random.Random(5))


@program(breaks=True)
def printing(T):
    def f(x):
        y = x + 1
        print("y", y.shape)
        return y * 2

    return f, (v(T),)


@program
def in_place_operators(T):
    def f(x, log):
        states = (x,)
        first = states
        states += (x + 1,)
        states *= 2
        items = [x]
        same_items = items
        items *= 2
        items += (x,)
        kept = {1, 2}
        alias = kept
        kept |= {3}
        kept -= {1}
        frozen = frozenset([1])
        frozen |= {2}
        n = x.shape[0]
        n *= 2
        n -= 1
        n **= 2
        n %= 30
        log += [n]
        return states, first, same_items is items, items, alias is kept, kept, frozen, n

    return f, (v(T), [0])


@program
def class_methods_of_builtin_types(T):
    def f(x, words):
        table = dict.fromkeys(words, 1)
        make = dict.fromkeys
        return x * len(make("abc")), table, int.from_bytes(b"\x01\x02", "big"), float.fromhex("0x1p3"), str.maketrans("a", "b"), dict(table)

    return f, (v(T), ["p", "q"])


@program
def reversed_sees_changes(T):
    def f(x):
        values = [1, 2, 3]
        seen = []
        for i in reversed(values):
            values[0] = 100
            seen.append(i)
        rest = reversed(values)
        next(rest)
        values.append(5)
        return x, seen, list(rest), list(reversed(range(3)))

    return f, (v(T),)


@program
def counters(T):
    def f(x, c):
        c.update("ll")
        c.subtract({"h": 3})
        return x * c["l"], c + Counter("a"), c - Counter("l"), c | Counter("z"), c.total(), sorted(c.elements()), c == Counter("hello"), +c

    return f, (v(T), Counter("hello"))


@program
def numpy_numbers(T):
    scale = np.float64(2.5)

    def f(x):
        return x / np.sqrt(x.shape[0]) * scale + np.prod(x.shape) + int(np.ceil(2.5)), np.float32(2) * x, np.maximum(2, 3), np.pi

    return f, (v(T),)


@program
def runtime_checks(T):
    def f(x):
        T._check(x.shape[0] == 4, lambda: "four wanted")
        try:
            T._check(x.ndim > 3, lambda: f"{x.ndim} dimensions")
        except RuntimeError as error:
            return x * 2, str(error)

    return f, (v(T),)


@program
def heap_of_tuples(T):
    def f(x, given):
        heapq.heapify(given)
        heap = []
        for i, key in enumerate((3, 1, 2)):
            heapq.heappush(heap, (key, i, x * key))
        first = heapq.heappushpop(heap, (0, 9, x))
        taken = [heapq.heappop(heap)[2] for _ in range(2)]
        return first, taken, heap, heapq.heapreplace(given, 8), heapq.nsmallest(2, given), list(heapq.merge(given, [4]))

    return f, (v(T), [5, 3, 9, 1])


@program
def sorted_lists(T):
    def f(x, rows):
        bisect.insort(rows, 4)
        bisect.insort_left(rows, -7, key=abs)
        return x * bisect.bisect(rows, 3) + bisect.bisect_left(rows, 3, 1), bisect.bisect_right([3, 1], 2, key=lambda q: -q)

    return f, (v(T), [1, 3, 5])


@program
def exit_stack_of_scopes(T):
    def f(x):
        done = []
        with contextlib.ExitStack() as stack:
            for scope in (T.no_grad(), T.enable_grad(), T.no_grad(), T.autocast("cpu", dtype=T.bfloat16)):
                stack.enter_context(scope)
            stack.callback(done.append, 1)
            y = x.reshape(1, 4) @ x
        kept = contextlib.ExitStack()
        kept.enter_context(T.no_grad())
        z = x * 2
        kept.pop_all().close()
        return y, z, x * 3, done

    return f, (v(T).requires_grad_(),)


@program(breaks=True)
def class_statements(T):
    def f(x):
        y = x * 2
        scale = 3

        class Base:
            k = 2

            def of(self, z):
                return z * self.k + scale

        @dataclasses.dataclass
        class Child(Base):
            weight: Any
            k: int = 5

            def of(self, z):
                return super().of(z) * self.weight

        class Model(T.nn.Module):
            def forward(self, z):
                return Child(y).of(z)

        return Model()(x), Base().of(x), Child.__qualname__, [field.name for field in dataclasses.fields(Child)]

    return f, (v(T),)


@program(breaks=True)
def class_statement_in_a_loop(T):
    def f(x):
        for i in range(3):

            class Scale:
                by = i
                total = x.sum()

            x = x * Scale.by + Scale.total
        return x

    return f, (v(T),)


# -- dicts and names that are made in one graph ------------------------------------------------------------------------------------
@program
def dict_of_keys(T):
    def f(x):
        made = defaultdict.fromkeys(["a", "b"], 2)
        ordered = OrderedDict.fromkeys("ba", x)
        return x * made["a"] + ordered["b"], type(made) is defaultdict, made.default_factory, ordered, dict.fromkeys((1, 2))

    return f, (v(T),)


@program
def dict_joined_with_pairs(T):
    def f(x, given):
        made = {"a": x}
        made |= [("c", x * 3), ("a", x - 1)]
        given |= zip("xy", (x, 2), strict=True)
        try:
            made |= 3
        except TypeError as error:
            return made, str(error)

    return f, (v(T), {"z": 0})


@program
def interned(T):
    def f(x):
        return {sys.intern("abc"): x}["abc"] * 2

    return f, (v(T),)


# -- what C code has written --------------------------------------------------------------------------------------------------------
@program
def regular_expressions(T):
    pattern = re.compile(r"(?P<layer>\d+)\.(weight|bias)")

    def f(x, names):
        found = [(m["layer"], m.group(2), m.span(), m.groupdict()) for name in names if (m := pattern.fullmatch(name))]
        words = [m.group() for m in re.finditer(r"[a-z]+", names[1])]
        return (x * len(found), found, words, re.sub(r"\d", "#", names[0]), re.split(r"\.", names[0]), pattern.pattern,
                bool(re.match("z", "a")), re.findall("a.", "abac"), pattern.sub(r"\2", names[0]))

    return f, (v(T), ["0.weight", "1.bias", "q"])


@program(breaks=True)
def a_function_in_a_regular_expression(T):
    def f(x, text):
        seen = []

        def upper(m):
            seen.append(m.group())
            return m.group().upper()

        return x + 1, re.sub("[a-c]", upper, text), seen

    return f, (v(T), "abcd")


@program
def methods_of_dict_for_attributes(T):
    class Fields(dict):
        __getattr__ = dict.__getitem__
        __setattr__ = dict.__setitem__
        __delattr__ = dict.__delitem__

    class Lenient(dict):
        __getattr__ = dict.get

    fields, lenient = Fields(a=2), Lenient(b=3)

    def f(x):
        fields.c, fields.n, fields.gone = x, fields.get("n", 0) + 1, 1
        del fields.gone
        made = Fields(z=x)
        made.y = 4
        try:
            _ = fields.missing
        except KeyError as error:
            missing = error.args
        return x * fields.a, fields.n, lenient.b, lenient.absent, dict(made), made.y, missing, sorted(fields), hasattr(lenient, "absent")

    return f, (v(T),)


class Depth(threading.local):
    def __init__(self):
        self.depth, self.names = 0, []

    @property
    def top(self):
        return self.names[-1] if self.names else None


@program
def locals_of_a_thread(T):
    own, plain = Depth(), threading.local()
    plain.gone = 1

    def f(x):
        own.depth += 1
        own.names.append("a")
        plain.new = own.depth
        had = hasattr(plain, "gone")
        if had:
            del plain.gone
        return x * own.depth, own.top, getattr(plain, "absent", 5), hasattr(plain, "gone"), plain.new

    return f, (v(T),)


@program
def more_of_numpy(T):
    def f(x):
        a = x.numpy().reshape(2, 2)
        return T.from_numpy(-a), T.from_numpy(np.ascontiguousarray(a.T)), T.from_numpy(abs(a)), T.from_numpy(~(a > 2)), float(np.hypot(3, 4))

    return f, (v(T),)


@program
def dates_and_times(T):
    start = datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC)

    def f(x, days):
        day = start + datetime.timedelta(days=days)
        return x * day.weekday(), day.isoformat(), (day - start).total_seconds(), f"{day:%Y-%m}", day > start, datetime.date(2024, 2, 29).month

    return f, (v(T), 3)


@program
def paths_and_bytes(T):
    path = pathlib.PurePosixPath("/a/b/c.txt")

    def f(x):
        packed = struct.pack("<hf", 3, 1.5)
        return x * len(path.parts), path.stem, str(path.parent), path.suffix, struct.unpack("<hf", packed), zlib.crc32(packed), packed.hex()

    return f, (v(T),)


@program
def built_in_functions_of_objects(T):
    class Amount:
        def __init__(self, value):
            self.value = value

        def __round__(self, digits=0):
            return ("rounded", digits)

        def __divmod__(self, other):
            return NotImplemented if other is None else (self.value // other, self.value % other)

        def __rdivmod__(self, other):
            return "from the right", other

        def __floor__(self):
            return "floor"

        def __ceil__(self):
            return "ceiling"

        def __trunc__(self):
            return "truncated"

    def f(x):
        a = Amount(7)
        return x * a.value, round(a), round(a, 2), divmod(a, 2), divmod(3, a), math.floor(a), math.ceil(a), math.trunc(a)

    return f, (v(T),)
