"""Nested lists, tuples and dicts of tensors, as arguments and results of transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Spec(NamedTuple):
    """Structure: the container's type, its keys (dicts) and its children's; `kind` None is a leaf."""

    kind: type | None
    keys: tuple
    children: tuple


LEAF = Spec(None, (), ())


def _children(tree: Any) -> tuple[tuple, tuple] | None:
    """(keys, children) of a container; None for a leaf."""
    if isinstance(tree, dict):
        return tuple(tree), tuple(tree.values())
    return ((), tuple(tree)) if type(tree) in (list, tuple) or (isinstance(tree, tuple) and hasattr(tree, "_fields")) else None


def flatten(tree: Any) -> tuple[list, Spec]:
    """The leaves in order, and the structure."""
    parts = _children(tree)
    if parts is None:
        return [tree], LEAF
    flat = [flatten(child) for child in parts[1]]
    return [leaf for leaves, _ in flat for leaf in leaves], Spec(type(tree), parts[0], tuple(spec for _, spec in flat))


def unflatten(leaves: list, spec: Spec) -> Any:
    """The tree with this structure and these leaves."""
    rest = iter(leaves)

    def build(s: Spec) -> Any:
        if s.kind is None:
            return next(rest)
        values = [build(child) for child in s.children]
        if issubclass(s.kind, dict):
            return s.kind(zip(s.keys, values))
        kind: Any = s.kind
        return kind(*values) if hasattr(s.kind, "_fields") else kind(values)

    return build(spec)


def map_tree(fn: Callable, tree: Any) -> Any:
    """The tree with `fn(leaf)` at each leaf."""
    leaves, spec = flatten(tree)
    return unflatten([fn(leaf) for leaf in leaves], spec)
