"""torch.func.rearrange: dimensions moved, split and joined by a pattern of their names, "b (h w) c -> b c h w" (einops' notation)."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from ..core.tensor import Tensor
from ..ops.registry import OPERATORS


class Group(NamedTuple):
    """What one dimension is made of: names, none of a size of 1. A bare `...` is several dimensions."""

    names: tuple[str, ...]
    bare: bool = True


Side = tuple[Group, ...]
_DOTS = "..."
_TOKEN = re.compile(r"\s*(\(|\)|\.\.\.|\w+|\S)")


def _read(text: str, pattern: str) -> Side:
    """One side of a pattern."""
    found: list[Group] = []
    group: list[str] | None = None
    for token in _TOKEN.findall(text):
        if token in "()":
            if (token == "(") != (group is None):
                raise ValueError(f"rearrange: brackets do not match in {pattern!r}")
            if group is None:
                group = []
            else:
                found.append(Group(tuple(group), False))
                group = None
        elif token != _DOTS and token != "1" and (not token.isidentifier() or token.startswith("_") or token.endswith("_")):
            raise ValueError(f"rearrange: {token!r} is no name of a dimension in {pattern!r}; names are letters, digits and inner "
                             "underscores")
        elif group is None:
            found.append(Group(() if token == "1" else (token,)))
        elif token != "1":
            group.append(token)
    if group is not None:
        raise ValueError(f"rearrange: brackets do not match in {pattern!r}")
    return tuple(found)


@functools.lru_cache(1024)
def _parsed(pattern: str, given: tuple[str, ...]) -> tuple[Side, Side]:
    if pattern.count("->") != 1:
        raise ValueError(f"Pattern must contain a single '->' separator: {pattern!r}")
    left, right = (_read(side, pattern) for side in pattern.split("->"))
    for side in (left, right):
        names = [name for group in side for name in group.names]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"rearrange: {sorted(twice)} stand more than once on one side of {pattern!r}")
    if any(_DOTS in group.names and not group.bare for group in left):
        raise ValueError(f"Ellipsis in brackets on the left side is not allowed: {pattern!r}")
    here, there = ({name for group in side for name in group.names} for side in (left, right))
    if here != there:
        raise ValueError(f"Identifiers only on one side of rearrange expression (should be on both): {sorted(here ^ there)} in {pattern!r}")
    unknown = set(given) - here
    if unknown:
        raise ValueError(f"Identifiers not found in rearrange expression: {sorted(unknown)} in {pattern!r}")
    return left, right


def _sizes(group: tuple[str, ...], size: int, known: dict[str, int], pattern: str) -> list[int]:
    """The sizes of the names that one dimension is made of."""
    missing = [name for name in group if name not in known]
    if len(missing) > 1:
        raise ValueError(f"rearrange: sizes of {missing} are wanted, as one of them at most follows from the others: {pattern!r}")
    rest = math.prod(known[name] for name in group if name in known)
    if (size % rest if missing else size != rest) if rest else size:
        raise ValueError(f"rearrange: a dimension of size {size} is not made of {', '.join(group) or '1'} with the sizes "
                         f"{ {name: known[name] for name in group if name in known} }: {pattern!r}")
    for name in missing:
        known[name] = size // rest if rest else 0
    return [known[name] for name in group]


def rearrange(tensor: Tensor | Sequence[Tensor], pattern: str, **axes_lengths: int) -> Tensor:
    """The tensor (or several of one shape, along a new first dimension) with its dimensions in another order, some of them split into
    several or joined: `rearrange(x, "b (h w) c -> b c h w", h=8)`. `...` stands for all dimensions that have no name, `1` and `()` for
    one of size 1. ValueError for patterns that are none, and for shapes that do not fit."""
    x = tensor if isinstance(tensor, Tensor) else OPERATORS["stack"](list(tensor))
    left, right = _parsed(pattern, tuple(sorted(axes_lengths)))
    dots = any(_DOTS in group.names for group in left)
    named = len(left) - dots
    if x.ndim < named or (not dots and x.ndim != named):
        raise ValueError(f"rearrange: {pattern!r} has {named} dimensions{' at least' if dots else ''}, the tensor has shape "
                         f"{list(x.shape)}")
    known, at = dict(axes_lengths), 0
    elementary: dict[str, list[int]] = {}
    shape: list[int] = []
    for group in left:
        if _DOTS in group.names:
            elementary[_DOTS] = list(range(len(shape), len(shape) + x.ndim - named))
            shape += list(x.shape[at:at + x.ndim - named])
            at += x.ndim - named
            continue
        for name, size in zip(group.names, _sizes(group.names, x.shape[at], known, pattern)):
            elementary[name] = [len(shape)]
            shape.append(size)
        at += 1
    order = [d for group in right for name in group.names for d in elementary[name]]
    joined: list[int] = []
    for group in right:
        sizes = [shape[d] for name in group.names for d in elementary[name]]
        joined += sizes if group.bare and _DOTS in group.names else [math.prod(sizes)]
    return x.reshape(shape).permute(order).reshape(joined)
