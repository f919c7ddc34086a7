"""Batching rules: how a primitive computes a whole batch, of which it has seen one example.

A rule is the `batch` facet of a record, called as `rule(record, size, args, has)`. The tensors among `args` that differ between
examples hold the batch along a new first dimension (`has` is True for them; for a list, a tuple of such flags); all other
arguments are as they were for one example. It answers with outputs that have the batch first, or with NotImplemented.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.tensor import Tensor, example_of

Rule = Callable[[Any, int, tuple, tuple], Any]

_DIMENSIONS = frozenset({"dim", "dims", "dim1", "dim2"})    # count from the first dimension
_SIZES = frozenset({"shape", "size"})                       # one for each dimension of the result
_MARGINS = frozenset({"low", "high", "inner"})              # one for each dimension, none for the batch


def spread(value: Any, has: Any, size: int) -> Any:
    """`value` with the batch as its first dimension: repeated where it hadn't one."""
    if isinstance(value, Tensor):
        return value if has else value.unsqueeze(0).expand((size, *value.shape))
    if isinstance(has, tuple):
        return [spread(v, h, size) for v, h in zip(value, has, strict=True)]
    return value


def _behind_batch(name: str, value: Any, size: int) -> Any:
    """An attribute as it is for tensors with the batch in front."""
    if name in _DIMENSIONS:
        return value + 1 if isinstance(value, int) else tuple([d + 1 for d in value])
    if name in _SIZES:
        return (size, *value)
    return (0, *value) if name in _MARGINS and not isinstance(value, (int, float)) else value  # a number is a bound of values


def by_names(prim: Any, size: int, args: tuple, has: tuple) -> Any:
    """The rule of most: the names of its parameters say which attributes count dimensions."""
    if has[0] is True and args[0].ndim == 1 and "dim" in prim.params and prim.kind != "view":
        return each(prim, size, args, has)      # numbers: `dim` is 0, although they have no dimension
    return prim(*[_behind_batch(name, spread(a, h, size), size) for name, a, h in zip(prim.params, args, has, strict=True)])


def each(prim: Any, size: int, args: tuple, has: tuple) -> Any:
    """One example after the other, for what nobody can do at once."""
    if not size:
        return of_none(prim, args, has)
    answers = [prim(*[_example(a, h, i) for a, h in zip(args, has, strict=True)]) for i in range(size)]
    if not isinstance(answers[0], tuple):
        return stacked(answers)
    return tuple(stacked(column) for column in zip(*answers, strict=True))


def of_none(prim: Any, args: tuple, has: tuple) -> Any:
    """The results for a batch without examples, of which only the shape rule can tell what they would be."""
    batch = next(a for a, h in zip(args, has, strict=True) if h is True)
    specs = prim.shape(*[example_of(a, None) if h is True else a for a, h in zip(args, has, strict=True)])
    made = [batch.new_empty((0, *s.shape), dtype=s.dtype) for s in (specs if type(specs) is tuple else (specs,))]
    return tuple(made) if type(specs) is tuple else made[0]


def _example(value: Any, has: Any, i: int) -> Any:
    if has is True:
        return value.select(0, i)
    return [_example(v, h, i) for v, h in zip(value, has, strict=True)] if isinstance(has, tuple) else value


def stacked(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors of one shape along a new first dimension."""
    return tensors[0].new_cat([t.unsqueeze(0) for t in tensors], 0)


def refused(prim: Any, size: int, args: tuple, has: tuple) -> Any:
    """Of what has as many results as the values say: examples would not have the same shape."""
    raise RuntimeError("vmap: We do not support batching operators that can output dynamic shape: the shape of the result of "
                       f"{prim.name}() depends on values, which differ between examples; use masks and torch.where in place of selections")


def first_alone(record: Any, size: int, args: tuple, has: tuple) -> Any:
    """For operators on the last dimensions: as they are, if nothing but the first argument differs between examples."""
    return NotImplemented if any(has[1:]) else record(*args)


def merged(record: Any, size: int, args: tuple, has: tuple) -> Any:
    """For operators whose first dimension is a batch already, if nothing but the first argument differs: one larger batch."""
    if any(has[1:]):
        return NotImplemented
    first = args[0]
    count = first.shape[1]
    out = record(first.flatten(0, 1), *args[1:])
    return tuple(o.unflatten(0, (size, count)) for o in out) if isinstance(out, tuple) else out.unflatten(0, (size, count))


def all_merged(record: Any, size: int, args: tuple, has: tuple) -> Any:
    """The same, for operators that take several tensors with the batch of theirs first."""
    wide = [spread(a, h, size).flatten(0, 1) if isinstance(a, Tensor) else a for a, h in zip(args, has, strict=True)]
    out, sizes = record(*wide), (size, args[0].shape[1 if has[0] else 0])
    return tuple(o.unflatten(0, sizes) for o in out) if isinstance(out, tuple) else out.unflatten(0, sizes)
