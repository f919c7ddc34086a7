"""Dimensions by name, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch", reason="torch is the oracle")
RIGHT: list[tuple[str, tuple[int, ...], dict[str, int]]] = [
    ("a b -> b a", (2, 3), {}), ("a (b c) -> c (a b)", (2, 12), {"c": 4}), ("b ... -> ... b", (2, 3, 4), {}),
    ("a 1 b -> a b", (2, 1, 3), {}), ("a b -> a b 1", (2, 3), {}), ("a () b -> (a b)", (2, 1, 3), {}), ("... -> (...)", (2, 3), {}),
    ("b (h h2) (w w2) c -> h w (b c h2 w2)", (2, 4, 6, 3), {"h2": 2, "w2": 3}), ("a b -> a b", (0, 3), {}),
    ("(a b) ... -> b ... a", (6, 2, 2), {"a": 2})]
WRONG: list[tuple[str, tuple[int, ...], dict[str, int]]] = [
    ("a b -> a", (2, 3), {}), ("a b c -> a b", (2, 3), {}), ("a (...) -> a ...", (2, 3), {}), ("a b -> b a a", (2, 3), {}),
    ("a b -> a b", (2, 3), {"c": 3}), ("a b", (2, 3), {}), ("a _ -> a _", (2, 3), {}), ("a b -> b a", (2,), {}), ("(a b -> a b", (6,), {})]


@pytest.mark.parametrize(("pattern", "shape", "sizes"), RIGHT)
def test_patterns(pattern: str, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
    theirs, ours = (t.func.rearrange(t.arange(int(np.prod(shape))).reshape(shape), pattern, **sizes).numpy() for t in (torch, fl))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(("pattern", "shape", "sizes"), WRONG)
def test_patterns_that_are_none(pattern: str, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"."):
        fl.func.rearrange(fl.ones(*shape), pattern, **sizes)


@pytest.mark.parametrize("sizes", [{"a": 3}, {"c": 5}, {}])
def test_sizes_that_do_not_fit(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"rearrange|Identifiers"):
        fl.func.rearrange(fl.ones(2, 12), "a (b c) -> a b c", **sizes)


def test_lists_gradients_and_graphs() -> None:
    parts = [fl.ones(2, 3, requires_grad=True), fl.zeros(2, 3, requires_grad=True)]
    out = fl.func.rearrange(parts, "n a b -> a (n b)")
    assert out.tolist() == [[1, 1, 1, 0, 0, 0]] * 2
    (out * fl.arange(12.0).reshape(2, 6)).sum().backward()
    assert parts[1].grad.tolist() == [[3, 4, 5], [9, 10, 11]]

    def fn(x: Any) -> Any:
        return fl.func.rearrange(x, "a (b c) -> c (a b)", c=2) + 1

    x = fl.arange(8.0).reshape(2, 4)
    assert fl.compile(fn, fullgraph=True)(x).tolist() == fn(x).tolist()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("t", [torch, fl], ids=["torch", "flambeau"])
def test_what_is_behind_examples(t: Any) -> None:
    seen = []

    def inner(x: Any, y: Any) -> Any:
        seen.append((tuple(t.func.debug_unwrap(x).shape), tuple(t.func.debug_unwrap(x, recurse=False).shape)))
        return x + y

    t.func.vmap(t.func.vmap(inner, in_dims=(None, 0)), in_dims=(0, None))(t.ones(2, 3), t.ones(4, 3))
    assert seen[0][0] == (2, 3)
    plain = t.ones(2)
    assert t.func.debug_unwrap(plain) is plain
