"""Pytrees: flattening, mapping, paths, structures as text; against PyTorch's where it is installed."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest

from flambeau.utils import _pytree as pytree

Point = namedtuple("Point", ["x", "y"])
TREES = [1, None, [], (), {}, [1, (2, 3), {"a": 4, "b": [5]}], Point(1, [2, 3]), OrderedDict(b=1, a=2), deque([1, 2], maxlen=3),
         defaultdict(list, {"k": [1, 2]}), {"a": None, "b": (Point(1, 2), [Point(3, 4)])}]


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_flatten_and_back(tree: Any) -> None:
    leaves, spec = pytree.tree_flatten(tree)
    again = pytree.tree_unflatten(leaves, spec)
    assert again == tree
    assert type(again) is type(tree)
    assert spec.num_leaves == len(leaves)
    assert pytree.tree_structure(again) == spec


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_leaves_are_torch_s(tree: Any) -> None:
    theirs = pytest.importorskip("torch").utils._pytree
    assert pytree.tree_leaves(tree) == theirs.tree_leaves(tree)
    mine = [(pytree.keystr(p), x) for p, x in pytree.tree_leaves_with_path(tree)]
    assert mine == [(theirs.keystr(p), x) for p, x in theirs.tree_leaves_with_path(tree)]


def test_map() -> None:
    assert pytree.tree_map(lambda x: x * 2, [1, {"a": 2}]) == [2, {"a": 4}]
    assert pytree.tree_map(lambda x, y: x + y, [1, {"a": 2}], [10, {"a": 20}]) == [11, {"a": 22}]
    assert pytree.tree_map(lambda x, y: (x, y), [1], [[2, 3]]) == [(1, [2, 3])]
    assert pytree.tree_map_only(int, str, [1, "a", 2.5]) == ["1", "a", 2.5]
    assert pytree.tree_map(len, [[1, 2], [3]], is_leaf=lambda x: isinstance(x, list) and isinstance(x[0], int)) == [2, 1]
    assert pytree.tree_any(lambda x: x > 2, [1, [3]])
    assert not pytree.tree_all(lambda x: x > 2, [1, [3]])


@pytest.mark.parametrize("other", [[1], [1, 2, 3], (1, 2), {"a": 1}], ids=str)
def test_map_over_other_structures_is_an_error(other: Any) -> None:
    with pytest.raises(ValueError, match="mismatch"):
        pytree.tree_map(lambda x, y: x, [1, 2], other)


def test_wrong_number_of_leaves() -> None:
    _, spec = pytree.tree_flatten([1, 2])
    with pytest.raises(ValueError, match="has length 1 but the spec refers to a pytree that holds 2"):
        pytree.tree_unflatten([1], spec)


def test_registered_classes() -> None:
    class Pair:
        def __init__(self, a: Any, b: Any) -> None:
            self.a, self.b = a, b

    assert pytree.tree_leaves(p := Pair(1, 2)) == [p]
    pytree.register_pytree_node(Pair, lambda p: ([p.a, p.b], None), lambda c, _: Pair(*c))
    try:
        doubled = pytree.tree_map(lambda x: 2 * x, [Pair(1, [2])])[0]
        assert (doubled.a, doubled.b) == (2, [4])
        with pytest.raises(ValueError, match="already registered"):
            pytree.register_pytree_node(Pair, lambda p: ([], None), lambda c, _: None)
        with pytest.raises(ValueError, match="flatten_with_keys_fn"):
            pytree.tree_flatten_with_path(Pair(1, 2))
    finally:
        pytree._deregister_pytree_node(Pair)


def test_dataclasses_and_constants() -> None:
    @dataclass
    class State:
        a: int
        b: list

    class Mode:
        pass

    pytree.register_dataclass(State)
    pytree.register_constant(Mode)
    try:
        assert pytree.tree_map(lambda x: x + 1, State(1, [2])) == State(2, [3])
        assert [pytree.keystr(p) for p, _ in pytree.tree_leaves_with_path(State(1, [2]))] == [".a", ".b[0]"]
        mode = Mode()
        assert pytree.tree_leaves([mode, 1]) == [1]
        assert pytree.tree_map(lambda x: x, [mode, 1]) == [mode, 1]
    finally:
        pytree._deregister_pytree_node(State)
        pytree._deregister_pytree_node(Mode)


def test_structures_as_text() -> None:
    spec = pytree.tree_structure([1, {"a": (2, 3)}])
    assert pytree.treespec_loads(pytree.treespec_dumps(spec)) == spec


def test_paths() -> None:
    tree = {"a": [1, Point(2, 3)]}
    paths = [p for p, _ in pytree.tree_leaves_with_path(tree)]
    assert [pytree.keystr(p) for p in paths] == ["['a'][0]", "['a'][1].x", "['a'][1].y"]
    assert [pytree.key_get(tree, p) for p in paths] == [1, 2, 3]
    assert pytree.tree_map_with_path(lambda p, x: (len(p), x), tree) == {"a": [(2, 1), Point((3, 2), (3, 3))]}
