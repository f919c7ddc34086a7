"""Along which dimensions a primitive may be split over processes: read from its record.

An `Axis` is a dimension of the operands that can be split while each process computes its part alone. Elementwise primitives have one for
each dimension; reductions one for each, of which those that are reduced leave partial results; the loop body of an index map is run
with symbols for its indices, and a dimension that is read with nothing but one index is split as that dimension of the result. A
primitive whose attribute `dim` names the dimension that it needs whole has the others. The rest say it in their facet `sharding`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...core.scalar import evaluate
from ...core.tensor import Tensor


class Axis(NamedTuple):
    """`ins`: for each operand the dimension, None where it isn't split; `out`: that of the results, or None where `reduce` combines
    them; `adds`: the operands (by number) that are summands on such an axis."""

    ins: tuple[int | None, ...]
    out: int | None
    reduce: str | None = None
    adds: tuple[int, ...] = ()


def operands(args: Iterable[Any]) -> list[Tensor]:
    """The tensors among arguments, and in lists among them."""
    return [t for a in args for t in (a if type(a) in (list, tuple) else (a,)) if isinstance(t, Tensor)]


def axes(prim: Any, args: tuple) -> list[Axis]:
    """The axes of a call; none where nothing is known, so that every process needs everything."""
    tensors = operands(args)
    if prim.sharding is not None:
        told = prim.sharding(*args) if callable(prim.sharding) else prim.sharding
        return _by_letters(told, tensors) if isinstance(told, str) else [Axis(*axis) for axis in told]
    if "pointwise" in prim.tags:
        return [Axis((d,) * len(tensors), d) for d in range(tensors[0].ndim)]
    if prim.fold or prim.loop in ("argmax", "argmin"):
        return _of_reduction(prim, args)
    if callable(prim.loop):
        return _by_loop(prim, args, tensors)
    return _by_names(prim, args, tensors)


def _by_letters(text: str, tensors: Sequence[Tensor]) -> list[Axis]:
    left, _, out = text.partition("->")
    ranks = [t.ndim for t in tensors]
    terms = [_expanded(term, rank) for term, rank in zip(left.split(","), ranks, strict=True)]
    end = _expanded(out, ranks[0])
    letters = dict.fromkeys("".join(terms).replace("*", ""))
    where = [[t.index(c) if c in t else None for t in terms] for c in letters]
    return [Axis(tuple(ins), end.index(c) if c in end else None, None if c in end else "sum") for c, ins in zip(letters, where)]


def _expanded(term: str, rank: int) -> str:
    return "".join(chr(0x3b1 + i) for i in range(rank - len(term) + 3)) + term[3:] if term.startswith("...") else term


def multilinear(prim: Any, args: tuple) -> bool:
    """Whether a primitive is a product: linear in each operand while the others stay."""
    told = prim.sharding(*args) if callable(prim.sharding) else prim.sharding
    return isinstance(told, str)


def _of_reduction(prim: Any, args: tuple) -> list[Axis]:
    rank = args[0].ndim
    given = args[1] if len(args) > 1 else None
    dims = tuple(range(rank)) if given is None else (given,) if isinstance(given, int) else tuple(given)
    kept = [d for d in range(rank) if d not in dims]
    found = [Axis((d,), i) for i, d in enumerate(kept)]
    if prim.fold is None:
        return found
    how = prim.fold.of_numbers.name
    return found + [Axis((d,), None, "product" if how == "prod" else how) for d in dims]


def _by_names(prim: Any, args: tuple, tensors: Sequence[Tensor]) -> list[Axis]:
    """One tensor, of which the attribute `dim` or `dims` names what is needed whole."""
    given = next((a for name, a in zip(prim.params, args) if name in ("dim", "dims")), None)
    if given is None or len(tensors) != 1 or not tensors[0].ndim:
        return []
    whole = (given,) if isinstance(given, int) else tuple(given)
    specs = prim.specs(args)
    if any(len(s.shape) != tensors[0].ndim for s in (specs if type(specs) is tuple else (specs,))):
        return []
    return [Axis((d,), d) for d in range(tensors[0].ndim) if d not in whole]


# -- loop bodies ---------------------------------------------------------------------------------------------------------
class _Index:
    """A symbol for an index of the result, or something computed of some (`exact` None)."""

    def __init__(self, of: frozenset[int], exact: int | None = None) -> None:
        self.of, self.exact = of, exact

    def _with(self, other: Any) -> _Index:
        if type(other) is int and other == 0:
            return self
        return _Index(self.of | (other.of if isinstance(other, _Index) else frozenset()))

    def _mixed(self, other: Any) -> _Index:
        return self if type(other) is int and other == 1 else _Index(self._with(other).of)

    def _computed(self, other: Any) -> _Index:
        return _Index(self._with(other).of)

    __add__ = __radd__ = __sub__ = _with
    __mul__ = __rmul__ = __floordiv__ = _mixed
    __rsub__ = __mod__ = __rfloordiv__ = __rmod__ = _computed


class _Loader:
    """An operand that notes how it is read."""

    def __init__(self, tensor: Tensor) -> None:
        self.shape, self.dtype = tensor.shape, tensor.dtype
        self.reads: list[list] = []

    def __call__(self, idx: Sequence) -> _Index:
        self.reads.append(list(idx))
        return _Index(frozenset())


class _Handler:
    """Offers the scalar operations to a body; indices that are computed with as values stand for themselves no more."""

    def __init__(self) -> None:
        self.used: set[int] = set()

    def __getattr__(self, name: str) -> Callable:
        def operation(*values: Any, **options: Any) -> _Index:
            for v in (*values, *options.values()):
                v = v() if callable(v) and not isinstance(v, _Loader) else v
                self.used |= v.of if isinstance(v, _Index) else frozenset()
            return _Index(frozenset())
        return operation


def _by_loop(prim: Any, args: tuple, tensors: Sequence[Tensor]) -> list[Axis]:
    spec = prim.specs(args)
    rank = len(spec.shape)
    loaders: dict[int, _Loader] = {}

    def stand_in(a: Any) -> Any:
        if isinstance(a, Tensor):
            return loaders.setdefault(len(loaders), _Loader(a))
        return [stand_in(item) for item in a] if type(a) in (list, tuple) and operands([a]) else a
    handler, parameters = _Handler(), dict(zip(prim.params, args))
    try:
        handler.used |= prim.loop(handler, [_Index(frozenset({d}), d) for d in range(rank)], *[stand_in(a) for a in args]).of
    except (TypeError, AttributeError):
        return []       # a body that asks more of its indices
    found = []
    for d in range(rank):
        if d in handler.used or (d == parameters.get("dim") and "stop" in parameters):
            continue
        ins = tuple(_position(loaders[i].reads, d) for i in range(len(tensors)))
        sizes = [t.shape[at] for t, at in zip(tensors, ins) if at is not None and at >= 0]
        if -1 not in ins and sizes and all(n == spec.shape[d] for n in sizes):
            found.append(Axis(ins, d))
    return found


def _position(reads: list[list], d: int) -> int | None:
    """The dimension that is read at index `d` of the result; None if none is, -1 if it can't be told."""
    places: set[int | None] = set()
    for read in reads:
        here = [i for i, e in enumerate(read) if isinstance(e, _Index) and d in e.of]
        if len(here) > 1 or any(read[i].exact != d for i in here):
            return -1
        places.add(here[0] if here else None)
    return -1 if len(places) > 1 else places.pop() if places else None


# -- sums --------------------------------------------------------------------------------------------------------------------
_additive: dict[tuple, bool] = {}


def adds_up(prim: Any, args: tuple, which: frozenset[int]) -> bool:
    """Whether a primitive of sums is the sum of the primitive, when the operands `which` are the sums and the others stay."""
    tensors = operands(args)
    if "pointwise" in prim.tags:
        return prim.loop is not None and callable(prim.loop) and _is_additive(prim, args, which)
    if "linear" not in prim.tags or any(not tensors[i].dtype.category >= 2 for i in which):
        return False
    if multilinear(prim, args):
        return len(which) == 1
    linear = [i for i, t in enumerate(tensors) if t.dtype.category >= 2]
    return which == frozenset(linear)


def _is_additive(prim: Any, args: tuple, which: frozenset[int]) -> bool:
    """Tried on numbers: the body is its own definition."""
    numbers = tuple(("tensor",) if isinstance(a, Tensor) else a for a in args)
    try:
        key = (prim.name, numbers, which)
        known = _additive.get(key)
    except TypeError:
        return False
    if known is None:
        known = _additive[key] = _tried(prim, args, which)
    return known


def _tried(prim: Any, args: tuple, which: frozenset[int]) -> bool:
    rng = np.random.default_rng(0)
    places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
    if prim.specs(args).dtype.category < 2 or any(args[i].dtype.category != 2 for i in places):
        return False    # of truths and counts there is no sum

    def drawn() -> np.ndarray:
        """Few different numbers beside others, so that all that a body may ask of them (zero? equal?) is answered both ways."""
        return np.concatenate([rng.uniform(-2, 2, 64), rng.integers(-2, 3, 192).astype(float)])
    base: list = [drawn() if isinstance(a, Tensor) else a for a in args]
    other = list(base)
    total = list(base)
    for i in which:
        other[places[i]] = drawn()
        total[places[i]] = base[places[i]] + other[places[i]]
    with np.errstate(all="ignore"):
        try:
            one, two, both = (evaluate(prim.loop, *values) for values in (base, other, total))
            return bool(np.allclose(np.add(one, two), both, rtol=1e-9, atol=1e-12))
        except TypeError:
            return False
