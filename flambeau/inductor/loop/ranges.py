"""Loops are cut: where a comparison of their variable with a constant does, and folds where an index divides the variable.

Concatenation and padding choose by position what to load: `where(i < 384, load a[i], ...)`. Over `i < 384` alone that is
a plain copy of `a`, without a mask, and often one that a library call can write directly.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from flambeau.core.dtypes import int64
from flambeau.core.expr import Expr, Index, coefficient, free_variables, substitute, var
from flambeau.core.scalar import TABLE
from flambeau.inductor.loop.ir import Access, Compute, Loop, Program, Tracer, Value, walk
from flambeau.inductor.loop.scheduler import rewrite
from flambeau.inductor.loop.views import divisors_in

MOST_PIECES = 16
SHORTEST = 16  # elements in a row that a piece must have

_MIRROR = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def split_ranges(program: Program) -> None:
    """Cut the pointwise steps of `program` that this makes simpler, in place."""
    program.steps[:] = [piece for step in program.steps for piece in _pieces(step)]


def _pieces(step: object) -> Sequence:
    if not isinstance(step, Compute) or step.kind != "pointwise":
        return [step]
    values = step.values
    if not any(v.op in _MIRROR and _over_indices(v) for v in values):
        return [step]
    for name, size in step.loops:
        if not isinstance(size, int):
            continue
        cuts = sorted({cut for v in values if (cut := _cut(v, name)) is not None and 0 < cut < size})
        ends = [0, *cuts, size]
        stride = coefficient(step.index, name)
        if cuts and len(cuts) < MOST_PIECES and isinstance(stride, int) and all(
                (b - a) * stride >= SHORTEST for a, b in itertools.pairwise(ends)):
            return [p for a, b in itertools.pairwise(ends) for p in _pieces(_piece(step, name, a, b))]
    return [step]


def split_loops(program: Program) -> None:
    """Make loops of the parts that indices of `program` divide the loops of folds into, as a reshaped operand's do, and fold
    innermost along contiguous memory, in place."""
    program.steps[:] = [_by_parts(step) if isinstance(step, Compute) and step.reduce_loops else step for step in program.steps]


def _by_parts(step: Compute) -> Compute:
    for name, size in step.loops + step.reduce_loops:
        found = {d for a in step.loads for d in divisors_in(a.index, name)}
        if not found or not isinstance(size, int):
            continue
        ends = [1, *sorted(found), size]
        if all(b % a == 0 and b > a for a, b in itertools.pairwise(ends)):
            step = _contiguous_last(_in_parts(step, name, [b // a for a, b in itertools.pairwise(ends)][::-1]))
    return step


def _in_parts(step: Compute, name: str, sizes: Sequence[int]) -> Compute:
    """The step with a loop for each of `sizes` in the place of the loop `name`, whose size is their product."""
    parts = tuple((f"{name}_{k}", size) for k, size in enumerate(sizes))
    whole: Index = 0
    for part, size in parts:
        whole = whole * size + var(part, size=size)

    def place(x: Index) -> Index:
        return substitute(x, {name: whole})

    def divided(loops: Sequence[Loop]) -> tuple[Loop, ...]:
        return tuple(loop for old in loops for loop in (parts if old[0] == name else (old,)))
    return replace(step, index=place(step.index), loops=divided(step.loops), reduce_loops=divided(step.reduce_loops),
                   body=rewrite([step.body], Tracer(), place)[step.body.uid])


def _contiguous_last(step: Compute) -> Compute:
    """The step folding innermost along the loop in which most of its operands are contiguous."""
    def score(loop: tuple[str, Index]) -> int:
        return sum(coefficient(a.index, loop[0]) == 1 for a in step.loads)
    return replace(step, reduce_loops=tuple(sorted(step.reduce_loops, key=score)))


def _over_indices(v: Value) -> bool:
    return all(a.op in ("index", "constant") and a.dtype is int64 and not a.args for a in v.args)


def _cut(v: Value, name: str) -> int | None:
    """Where along the loop `name` the comparison `v` changes its answer."""
    if v.op not in ("lt", "le", "gt", "ge") or not _over_indices(v):
        return None
    gap = v.args[0].attr - v.args[1].attr
    if free_variables(gap) != {name} or coefficient(gap, name) not in (1, -1):
        return None
    step = coefficient(gap, name)
    rest = substitute(gap, {name: 0})
    assert isinstance(rest, int)
    op = v.op if step == 1 else _MIRROR[v.op]
    at = -rest if step == 1 else rest
    return at if op in ("lt", "ge") else at + 1


def _piece(step: Compute, name: str, start: int, end: int) -> Compute:
    """The step over `start <= name < end`."""
    shifted = var(name, size=end - start) + start

    def place(x: Index) -> Index:
        return substitute(x, {name: shifted})
    body = simplified(step.body, Tracer(), place)
    loops = tuple((n, end - start) if n == name else (n, size) for n, size in step.loops)
    return replace(step, index=place(step.index), loops=loops, body=body)


def simplified(root: Value, o: Tracer, place: Callable[[Index], Index]) -> Value:
    """`root` over other indices, with what has become constant folded."""
    new: dict[int, Value] = {}
    for v in walk([root]):
        new[v.uid] = _remade(v, [new[a.uid] for a in v.args], o, place)
    return new[root.uid]


def _remade(v: Value, args: list[Value], o: Tracer, place: Callable[[Index], Index]) -> Value:
    if v.op == "load":
        access: Access = v.attr
        mask = args[-1] if access.masked else None
        if mask is not None and mask.op == "constant":
            if not mask.attr:
                return o.constant(0, v.dtype)
            args, mask = args[:-1], None
        index = place(access.index)
        return o.make("load", tuple(args), v.dtype, Access(access.buffer, index, access.names, mask is not None))
    if v.op == "index":
        expr = place(v.attr)
        return o.make("index", tuple(args), v.dtype, expr) if isinstance(expr, Expr) else o.index(expr, v.dtype)
    if v.op in TABLE:
        return _folded(v.op, args, o)
    return o.make(v.op, tuple(args), v.dtype, v.attr)


def _folded(op: str, args: list[Value], o: Tracer) -> Value:
    if op in _MIRROR and all(a.op in ("index", "constant") and a.dtype is int64 and not a.args for a in args):
        x, y = (a.attr for a in args)
        if op in ("lt", "gt"):
            return o.index_lt(x, y) if op == "lt" else o.index_lt(y, x)
        if op in ("le", "ge"):
            return o.index_le(x, y) if op == "le" else o.index_le(y, x)
    if op == "add" and args[0].dtype.is_floating_point:  # what padding adds; a zero's sign is not worth a pass over memory
        for known, other in (args, args[::-1]):
            if known.op == "constant" and known.attr == 0:
                return other
    return getattr(o, op)(*args)
