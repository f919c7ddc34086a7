"""Changes to objects that existed before are replayed after the graph, with identity and order kept."""

from __future__ import annotations

import collections

import pytest
from dynamo_harness import Counter, check, run, same

import flambeau as torch
from flambeau import dynamo


def x3():
    return torch.arange(3) * 1.0 + 1


class Box:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def test_list_argument() -> None:
    def f(x, items):
        items.append(x + 1)
        items[0] = 7
        del items[1]
        return len(items)

    check(f, x3(), [1, 2, 3])


def test_dict_argument() -> None:
    def f(x, d):
        d["new"] = x * 2
        d["a"] += 1
        d.pop("b")
        return d

    check(f, x3(), {"a": 1, "b": 2})


def test_other_containers() -> None:
    def f(x, s, q, o):
        s.add(9)
        q.append(x)
        o["k"] = x
        o.move_to_end("a")
        return x + 1

    check(f, x3(), {1, 2}, collections.deque([1], maxlen=2), collections.OrderedDict(a=1, b=2))


def test_attributes() -> None:
    def f(x, box):
        box.count += 1
        box.fresh = x + box.count
        del box.old
        return box

    check(f, x3(), Box(count=1, old=3))


def test_identity_is_kept() -> None:
    def f(x, items):
        items.append(x)
        return items

    items: list = []
    result, _, _ = run(f, x3(), items)
    assert result is items and len(items) == 1


def test_aliased_arguments() -> None:
    def f(x, a, b):
        a.append(x)
        return len(b)

    shared: list = []
    result, _, counter = run(f, x3(), shared, shared)
    assert result == 1
    compiled = dynamo.compile(f, backend=(c := Counter()))
    first, second = [], [0, 0]
    assert compiled(x3(), first, second) == 2
    again: list = []
    assert compiled(x3(), again, again) == 1
    del counter, c


def test_new_object_refers_to_old_one() -> None:
    def f(x, items):
        box = Box()
        box.items = items
        items.append(box)
        box.value = x * 2
        return box

    items: list = []
    result, _, _ = run(f, x3(), items)
    assert result.items is items and items[0] is result and same(result.value, x3() * 2)


def test_swap_of_elements() -> None:
    def f(x, items):
        items[0], items[1] = items[1], items[0]
        return x + 1

    a, b = Box(n=1), Box(n=2)
    items = [a, b]
    run(f, x3(), items)
    assert items[0] is b and items[1] is a


def test_nonlocal_counter() -> None:
    count = 0

    def f(x):
        nonlocal count
        count += 1
        return x * 2

    compiled = dynamo.compile(f, backend="eager")
    for expected in (1, 2, 3):
        compiled(x3())
        assert count == expected


def test_class_attribute() -> None:
    class Holder:
        total = 0

    def f(x):
        Holder.total = Holder.total + 5
        return x + Holder.total

    result, _, _ = run(f, x3())
    assert Holder.total == 5 and same(result, x3() + 5)


def test_custom_setattr() -> None:
    class Watched:
        def __init__(self):
            object.__setattr__(self, "log", [])

        def __setattr__(self, name, value):
            self.log.append(name)
            object.__setattr__(self, name, value)

    def f(x, w):
        w.a = 1
        w.b = x * 2
        return w.a

    check(f, x3(), Watched())


def test_frozen_new_object_with_slots() -> None:
    class Slots:
        __slots__ = ("a",)

        def __init__(self, a):
            self.a = a

    def f(x, s):
        s.a = s.a + x
        return Slots(x * 2), s.a

    s = Slots(x3())
    (made, total), _, _ = run(f, x3(), s)
    assert same(made.a, x3() * 2) and same(s.a, x3() * 2) and same(total, x3() * 2)


def test_dict_subclass_instance() -> None:
    class Bag(dict):
        def put(self, key, value):
            self[key] = value
            self.last = key

    def f(x, bag):
        bag.put("b", x)
        made = Bag(a=1)
        made.put("z", x + 1)
        return made, bag["a"]

    bag = Bag(a=1)
    (made, got), _, _ = run(f, x3(), bag)
    assert got == 1 and list(bag) == ["a", "b"] and bag.last == "b"
    assert type(made) is Bag and list(made) == ["a", "z"] and made.last == "z"


def test_inplace_on_tensor_argument() -> None:
    def f(x):
        x.add_(1)
        return x * 2

    check(f, x3())


def test_tensor_returned_as_is() -> None:
    def f(x):
        return x, x + 1

    x = x3()
    result, _, _ = run(f, x)
    assert result[0] is x


def test_iterator_argument_advances() -> None:
    def f(x, it):
        return x * next(it)

    it = iter([2, 3, 4])
    compiled = dynamo.compile(f, backend="eager")
    assert same(compiled(x3(), it), x3() * 2)
    assert same(compiled(x3(), it), x3() * 3)
    assert next(it) == 4


def test_default_argument_that_is_mutated() -> None:
    def f(x, memo=[]):  # noqa: B006
        memo.append(1)
        return x * len(memo)

    compiled = dynamo.compile(f, backend="eager")
    assert same(compiled(x3()), x3())
    assert same(compiled(x3()), x3() * 2)


def test_exception_leaves_no_half_done_effects() -> None:
    def f(x, items):
        items.append(x)
        raise ValueError

    items: list = []
    with pytest.raises(ValueError):
        run(f, x3(), items)
    assert len(items) == 1


def test_instance_dict_written_directly() -> None:
    def f(x, box):
        a = box.n
        box.__dict__["n"] = a + 1
        box.__dict__["m"] = x * 2
        return box.n + a, box.m

    check(f, x3(), Box(n=1))


def test_class_attribute_read_through_an_instance() -> None:
    class Holder:
        total = 0

        def bump(self):
            type(self).total = self.total + 1

    def f(x, h):
        h.bump()
        h.bump()
        return x * h.total

    result, _, _ = run(f, x3(), Holder())
    assert Holder.total == 2 and same(result, x3() * 2)


def test_exceptions_that_a_caller_handles_are_seen() -> None:
    import sys

    def f(x):
        return x + 1, repr(sys.exc_info()[1]), repr(sys.exception())

    def handling(fn):
        try:
            raise ValueError("outer")
        except ValueError:
            return fn(torch.ones(2))

    compiled = dynamo.compile(f, backend="eager")
    assert compiled(torch.ones(2))[1:] == ("None", "None")
    assert handling(compiled)[1:] == handling(f)[1:] == ("ValueError('outer')", "ValueError('outer')")
    assert compiled(torch.ones(2))[1:] == ("None", "None")


def _assigned(x, held):
    held["last"] = x * 2
    return held["last"] + 1


def _assigned_twice(x, held):
    held["new"], held["last"], held["new"] = x, x * 2, x + 1
    return x


def _assigned_and_counted(x, held):
    held["last"] = x * 2
    return x + len(held), list(held)


def _assigned_and_deleted(x, held):
    held["last"] = x * 2
    held["other"] = x
    del held["other"]
    return x + 1


def _made_on_demand(x, held):
    return held.setdefault("made", x + 1) * 2


@pytest.mark.parametrize(("f", "graphs"), [(_assigned, 1), (_assigned_twice, 1), (_made_on_demand, 2), (_assigned_and_counted, None),
                                            (_assigned_and_deleted, None)])
@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, lambda entries: collections.defaultdict(list, entries)])
def test_a_dict_that_is_only_written_to_may_hold_anything(f, graphs, kind) -> None:
    """What else is in it, and whether the key was, is in no guard; its order is that of eager code."""
    counter = Counter()
    compiled = torch.compile(f, backend=counter)
    for entries in ({}, {"a": 1}, {"b": 2, "last": 3, "c": 4}, {"made": torch.ones(2), "z": 0}):
        ours, theirs = kind(dict(entries)), kind(dict(entries))
        for _ in range(2):
            x = torch.randn(2)
            assert same(f(x, theirs), compiled(x, ours))
            assert same(theirs, ours) and list(theirs) == list(ours)
    assert graphs is None or len(counter.graphs) == graphs
