"""One compiled function, called again and again with values that look alike: each call gives what it gives eagerly."""

from __future__ import annotations

import collections
import enum
import types
import weakref

import pytest
from dynamo_harness import same

import flambeau as torch
from flambeau import dynamo


class Text(enum.StrEnum):
    A = "a"


def set_of(*values):
    made = set()
    for value in values:
        made.add(value)
    return made


def tagged(tag=None):
    made = torch.ones(2)
    if tag is not None:
        made.tag = tag
    return made


Pair = collections.namedtuple("Pair", "a b")
CALLS = {
    "elements of a tuple": (lambda x, t: (x * t[0], f"{t[0]}"), [(1, 2), (True, 2), (1.0, 2), (1, 2)]),
    "elements of inner tuples": (lambda x, t: (x * t[0][0], f"{t[0][0]}"), [((1,), 2), ((1.0,), 2), ((True,), 2), ((0.0,),), ((-0.0,),)]),
    "texts in a tuple": (lambda x, t: (x * 2, repr(t)), [("a",), (Text.A,), (b"a",), ("a",)]),
    "kinds of tuples": (lambda x, t: (x * t[0], type(t).__name__), [Pair(1, 2), (1, 2), [1, 2], Pair(1, 3)]),
    "keys of a dict": (lambda x, d: ([x * k for k in d], list(d)), [{1: 0}, {True: 0}, {1.0: 0}, {1: 3}]),
    "texts as keys": (lambda x, d: (x * 2, [repr(k) for k in d]), [{"a": 0}, {Text.A: 0}, {b"a": 0}]),
    "elements of a set": (lambda x, s: [x * k for k in s], [{1}, {True}, {1.0}, frozenset((1,))]),
    "order of a set": (lambda x, s: [x * k for k in s], [set_of(0, 8), set_of(8, 0)]),
    "bounds of a range": (lambda x, r: (x * r.stop, len(r)), [range(0, 3, 2), range(0, 4, 2), range(0), range(1, 1)]),
    "bits of an int": (
        lambda x, i: (x * 2, i & 1, 8 | i, i ^ 3, i << 2, 64 >> i, ~i, "a" * i, [0] * i, "abcdefgh"[i:], (1, 2, 3, 4, 5, 6)[i], i == "a"),
        [3, 4, 5, 4],
    ),
    "one number twice": (lambda x, n: (x * n[0], n[0] is n[1], n[0] is None), [(0.5,) * 2, (0.7,) * 2, (0.9,) * 2, (3, 3), (4, 4)]),
    "a view of a dict": (
        lambda x, d: (x * d["a"], d == {"a": 1}, d == {"a": 1}, d != d.copy(), d | {"b": 2}),
        [types.MappingProxyType({"a": 1}), types.MappingProxyType({"a": 2}), {"a": 1}],
    ),
    "a cell": (lambda x, c: x * c.cell_contents, [types.CellType(1), types.CellType(2), types.CellType(3.5)]),
    "attributes of a tensor": (lambda x, y: (x * 2, hasattr(y, "tag"), getattr(y, "tag", 0)), [tagged(), tagged(1), tagged(2), tagged()]),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name, recwarn) -> None:
    function, values = CALLS[name]
    compiled = dynamo.compile(function, backend="eager")
    for value in [*values, *values]:
        x = torch.arange(3)
        want, got = function(x, value), compiled(x, value)
        assert same(want, got) and repr(want) == repr(got), f"{value!r}: eager gave {want}, compiled {got}"
    assert not [str(w.message) for w in recwarn if "fault of Flambeau" in str(w.message)]


def test_weak_references() -> None:
    class Owner:
        factor = 2

    owner = Owner()
    reference = weakref.ref(owner)
    compiled = dynamo.compile(lambda x: x * reference().factor, backend="eager", fullgraph=True)
    assert compiled(torch.ones(1)).item() == 2
    owner.factor = 3
    assert compiled(torch.ones(1)).item() == 3
