# ruff: noqa: E501, F821, C405 - these are the ways of writing that are tested
"""Programs about what values are: equality, identity, order, errors in Python's own words, and classes that override their base."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import functools
import operator

from programs import program, v


def told(*calls):
    """What each of these says when it is called."""
    said = []
    for call in calls:
        try:
            said.append(call())
        except Exception as error:
            said.append((type(error).__name__, str(error)))
    return said


class Plain:
    kind = "plain"

    def __init__(self, t=0):
        self.t = t

    def method(self):
        return self.t

    @classmethod
    def make(cls):
        return cls.__name__


class Derived(Plain):
    pass


class ByValue(Plain):
    def __eq__(self, other):
        return isinstance(other, ByValue) and self.t == other.t

    def __hash__(self):
        return hash(self.t)


class Strange:
    def __eq__(self, other):
        return "equal"

    def __ne__(self, other):
        return "unequal"


# -- equality and identity -------------------------------------------------------------------------------------------------------
@program
def an_object_is_asked_whether_it_equals_itself(T):
    def f(x):
        a = Strange()
        return x * 2, a == a, a != a, a in [a], [a] == [a]

    return f, (v(T),)


@program
def bound_methods_are_equal_by_what_they_bind(T):
    def f(x, a):
        b = Plain(1)
        found = [b.method, a.method].index(a.method)
        same = a.method == a.method, a.method != a.method, a.method == b.method, a.method in [a.method], a.method is a.method
        return x * 2, found, same, "a".upper == "a".upper, Plain.make == Plain.make, functools.partial(a.method).func == a.method

    return f, (v(T), Plain(2))


@program(breaks=True)
def tuples_by_identity(T):
    def f(x, a, b):
        return x * 2, a is b, a == b

    pair = (1, v(T))
    return f, (v(T), pair, pair)


@program
def sets_have_pythons_order(T):
    def f(x, given, literal=frozenset((16, 8, 0))):
        added = set()
        for k in (32, 16, 8, 0, 64):
            added.add(k)
        made = [list({24, 16, 8, 0}), list({k * 8 for k in range(6)}), list(set([32, 16, 8, 0, 64])), list(literal)]
        algebra = [list(added | {1}), list(added - {0}), list(added & {8, 64, 5}), list(added ^ {8, 7}), list(added.copy())]
        for k in given:
            x = x * 3 + k
        return x, list(added), made, algebra, list(frozenset(added)), list(set(dict.fromkeys((40, 8, 0))))

    given = set(range(1000))
    given -= set(range(1000)) - {512, 3}  # one that lies in a table for many
    return f, (v(T), given)


@program
def sets_are_changed_in_place(T):
    def f(x, given):
        alias = given
        given.add(40)
        given.discard(1)
        given |= {8}
        given.difference_update([2], (3,))
        given ^= {5}
        return x * 2, alias is given, 40 in given, len(given)

    return f, (v(T), {0, 1, 2, 3, 16})


@program
def objects_that_hash_by_value(T):
    def f(x):
        table = {ByValue(1): x * 2, (ByValue(2), 0): 1}
        return table, {ByValue(1), ByValue(1), ByValue(3)}, table[ByValue(1)], sorted({ByValue(4)}, key=lambda a: a.t)

    def comparable(x):
        table, some, *rest = f(x)
        return [(k.t if isinstance(k, ByValue) else k[0].t, w) for k, w in table.items()], sorted(a.t for a in some), rest[0], rest[1][0].t

    return comparable, (v(T),)


# -- classes ---------------------------------------------------------------------------------------------------------------------
@program
def class_attributes_are_inherited_as_they_are_written(T):
    class Base:
        count = 0

        def get(self):
            return self.count

    class Sub(Base):
        def get(self):
            return super().get() + super().count

    def f(x, a):
        Base.count += 2
        Base.fresh = 5
        seen = Sub.count, a.count, a.get(), a.fresh, hasattr(a, "fresh"), hasattr(Sub, "fresh"), getattr(Sub, "other", 7)
        Sub.count = 9
        Base.late = lambda self: self.count + 1
        return x * Base.count, seen, a.count, Base.count, a.get(), a.late(), Base.late(a)

    return f, (v(T), Sub())


@program
def dict_with_missing(T):
    class Twice(dict):
        def __missing__(self, key):
            return key * 2

    def f(x, d):
        return x * d[3], d["a"], d.get("q"), "q" in d, told(lambda: d.pop("q")), Twice(b=1)["b"]

    return f, (v(T), Twice(a=1))


@program
def lists_that_override(T):
    class Loud(list):
        def __len__(self):
            return 99

        def __getitem__(self, index):
            return list.__getitem__(self, index) + 1

        def append(self, value):
            super().append(value * 2)

    def f(x, l):
        l.append(3)
        fresh = Loud()
        fresh += [5]
        fresh *= 2
        return x * 2, len(l), l[0], list(l), len(fresh), fresh[0], type(fresh).__name__

    return f, (v(T), Loud([7, 8]))


@program
def enum_values_that_change(T):
    class Bag(enum.Enum):
        FULL = [1]

        @property
        def first(self):
            return self.value[0]

    def f(x):
        Bag.FULL.value.append(len(Bag.FULL.value))
        return x * len(Bag.FULL.value), Bag.FULL.first, list(Bag.FULL.value)

    return f, (v(T),)


@program(breaks=True)
def callables_written_in_c(T):
    def f(x):
        key = functools.cmp_to_key(lambda a, b: b - a)
        return x * 2, key(1) < key(2), sorted([1, 3, 2], key=key)

    return f, (v(T),)


# -- containers ------------------------------------------------------------------------------------------------------------------
@program
def deques_of_limited_length(T):
    def f(x, d):
        made = [d.copy(), copy.copy(d), copy.deepcopy(d), d + collections.deque([4, 5]), d * 2]
        for one in made:
            one.append(9)
        d.extendleft([6, 7])
        d.rotate(-1)
        equal = d == [1], collections.deque([1]) == [1], collections.deque([1]) == collections.deque([1]), (1,) == [1]
        full = collections.deque(range(5), maxlen=2)
        errors = told(lambda: full.insert(0, 1), full.pop, full.popleft, full.pop, full.popleft, lambda: d[0:1], lambda: d[9], lambda: [1] + d)
        return x * 2, made, [m.maxlen for m in made], equal, full, errors, repr(d), str(full)

    return f, (v(T), collections.deque([1, 2, 3], maxlen=3))


@program
def an_iterator_at_its_end_stays_there(T):
    def f(x, l):
        own = iter(l)
        used = list(own), list(given)
        l.append(4)
        return x * 2, used, next(own, "end"), next(given, "end"), 2 in (k for k in range(4))

    l = [1, 2]
    given = iter(l)
    return f, (v(T), l)


@program
def functions_made_inside_have_their_attributes(T):
    def noted(fn):
        @functools.wraps(fn)
        def wrapper(*args):
            return fn(*args) + wrapper.tag

        return wrapper

    def f(x):
        def inner(a: int, b: str = "b") -> float:
            "What it does."
            return a

        inner.tag = 5
        inner.__defaults__ = (7,)
        decorated = noted(inner)
        names = decorated.__name__, decorated.__doc__, decorated.tag, hasattr(decorated, "tag"), decorated.__wrapped__ is inner
        return x * decorated(x), names, inner.__annotations__, inner.__dict__, decorated

    def called(x):
        *rest, decorated = f(x)
        return rest, decorated(1), decorated.__annotations__, decorated.__dict__["tag"]

    return called, (v(T),)


@program
def functions_that_exist_have_their_attributes(T):
    def counted():
        pass

    counted.calls = 1

    def f(x):
        counted.__dict__["calls"] += 1
        seen = counted.calls
        counted.calls += 1
        return x * counted.calls, seen, counted.__dict__["calls"], hasattr(counted, "other"), vars(counted) is counted.__dict__

    return f, (v(T),)


# -- globals, tracebacks, errors -------------------------------------------------------------------------------------------------
@program
def globals_that_come_and_go(T):
    def f(x):
        global PASSING, max
        PASSING, max = 5, 6
        seen = PASSING, max
        del PASSING, max
        return x * 2, seen, max(1, 2), told(lambda: PASSING)

    return f, (v(T),)


@program
def module_attributes_that_are_new(T):
    import types

    module = types.ModuleType("module")

    def f(x):
        module.fresh = 7
        return x * module.fresh, hasattr(module, "fresh"), hasattr(module, "other")

    return f, (v(T),)


@program
def there_is_a_traceback(T):
    log = []

    class Scope:
        def __enter__(self):
            return self

        def __exit__(self, kind, error, traceback):
            log.append((kind is None, traceback is None, bool(traceback), error is None or error.__traceback__ is None))
            return True

    def f(x):
        with Scope():
            raise ValueError
        with Scope():
            x = x + 1
        try:
            raise KeyError(1)
        except KeyError as error:
            seen = error.__traceback__ is None
        return x * 2, seen, KeyError(2).__traceback__ is None, list(log)

    return f, (v(T),)


@dataclasses.dataclass
class Record:
    a: int = 1


Pair = collections.namedtuple("Pair", "a b")


@program
def errors_in_pythons_words(T):
    def f(x, o, d, word="a"):
        gone = late = 1
        del gone, late

        def own():
            later = 2
            del later
            return (lambda: later), later

        def no_pair():
            a, b = 3
            return a, b

        return x * 2, told(
            lambda: [1].remove(3), lambda: [1].index(3), lambda: (1,).index(3), lambda: [1, 2][5:word], lambda: [1, 2][word], lambda: (1, 2)[word],
            lambda: [1] + (1,), lambda: {1} + {2}, lambda: [1] * "b", lambda: [].pop(), lambda: [1].pop(5), no_pair,
            lambda: list(zip([1], [1, 2], strict=True)), lambda: list(zip([1, 3], [1], strict=True)), lambda: list(zip([1], [2], [1, 3], strict=True)),
            lambda: [*3], lambda: {**3}, lambda: dict([(1, 2, 3)]), lambda: dict([1]), lambda: {}.popitem(), lambda: collections.OrderedDict().popitem(),
            lambda: reversed(3), lambda: len(o), lambda: 1 in o, lambda: o[0], lambda: delattr(o, "zz"), lambda: next([]), lambda: next(k for k in []),
            lambda: Pair(1, 2)._replace(c=1), lambda: getattr(o, 3), lambda: round(x), lambda: OSError(2, "no").__class__.__name__,
            lambda: set().remove(4), lambda: d["zz"], lambda: operator.methodcaller("zz")(o),
            lambda: object.__delattr__(o, "zz"), lambda: object.__getattribute__(o, "zz"), lambda: gone, own, lambda: (lambda: late).__closure__[0].cell_contents,
        )

    return f, (v(T), Plain(), {})


@program
def calls_with_method_caller(T):
    def f(x, o):
        return operator.methodcaller("sum", 0)(x), operator.methodcaller("method")(o), operator.methodcaller("add", 1, alpha=2)(x)

    return f, (v(T), Plain(3))


@program
def members_with_operators(T):
    class Step(enum.Enum):
        ONE = 1
        TWO = 2

        def __iter__(self):
            yield self.value
            yield self.name

        def __add__(self, other):
            return other + self.value

        def __radd__(self, other):
            return other - self.value

        def __lt__(self, other):
            return self.value < other.value

    class Parts(enum.Flag):
        A = 1
        B = 2

    def f(x, step, parts):
        return step + x, x + step, list(step), sorted([Step.TWO, step]), [part.name for part in parts], len(parts)

    return f, (v(T), Step.ONE, Parts.A | Parts.B)
