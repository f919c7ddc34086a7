"""Factors, inverses and solutions, of which ONNX has none: loops over the rows or columns of matrices, a step for each.

A model cannot raise: of what eager refuses (a singular matrix, one that is not positive-definite) there are infinities and NaNs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.dtypes import float32, int32, int64
from ..core.tensor import Tensor
from .forms import form
from .functions import loop
from .writer import Number, Value, Writer

TERMS = 14
"""How many powers an exponential of a matrix whose norm is at most 1/2 is the sum of, in float64."""


def _numbers(x: Tensor, *_: Any, **__: Any) -> bool:
    return x.dtype.is_floating_point


def _fixed(x: Tensor, *_: Any, **__: Any) -> bool:
    return _numbers(x) and all(isinstance(n, int) for n in x._layout.shape[-2:])


def _like(o: Writer, x: Value, number: float) -> Value:
    """A tensor of one number, of the shape of another one."""
    made = o.Expand(o.constant(number, x.dtype), o.Shape(x))
    made.shape = x.shape
    return made


def _places(o: Writer, n: Any) -> tuple[Value, Value]:
    """0 ... n - 1 as a column and as a row."""
    row = o.Range(0, o.scalar(n), 1) if isinstance(n, Number) else o.constant(list(range(n)), int64)
    return o.Unsqueeze(row, [1]), row


def _where(o: Writer, condition: Value, x: Value, y: Any) -> Value:
    return o.Where(condition, x, y if isinstance(y, Value) else o.constant(y, x.dtype), _dtype=x.dtype)


def _turned(o: Writer, x: Value) -> Value:
    """The transposed matrices."""
    rank = x.rank
    return o.Transpose(x, perm=[*range(rank - 2), rank - 1, rank - 2])


def _shaped(x: Value, shape: Sequence[Any] | None) -> Value:
    return Value(x.name, x.dtype, shape)


# -- elimination -------------------------------------------------------------------------------------------------------------------------
def _pivoted(o: Writer, x: Value, k: Value, rows: Value) -> tuple[Value, Value, Value]:
    """The matrices with the row of the greatest element of column k, from row k on, in the place of row k; that row; where it was."""
    column = o.Gather(x, k, axis=-1)
    place = o.ArgMax(_where(o, o.GreaterOrEqual(rows, k), o.Abs(column), -1.0), axis=-2, keepdims=1)
    there, here = o.Equal(rows, place), o.Equal(rows, k)
    best, row = o.ReduceSum(_where(o, there, x, 0.0), [-2], keepdims=1), o.Gather(x, k, axis=-2)
    return _where(o, here, best, _where(o, there, row, x)), best, place


def _eliminated(o: Writer, a: Value, b: Value) -> Value:
    """A^-1 B by Gauss and Jordan: of A and B beside each other all columns of A become those of the identity."""
    n = o.size(a, -1)
    rows, _ = _places(o, n)

    def step(k: Value, both: Value) -> list[Value]:
        both, best, _ = _pivoted(o, both, k, rows)
        row = o.Div(best, o.Gather(best, k, axis=-1))
        return [_where(o, o.Equal(rows, k), row, o.Sub(both, o.Mul(o.Gather(both, k, axis=-1), row)))]

    both, = loop(o, n, [o.Concat(a, b, axis=-1)], step)
    return o.Slice(both, o.value([n]), o.value([2**62]), o.value([-1]))


@form("primitive:inv", "primitive:inv_or_infinite", takes=_numbers)
def inv(o: Writer, a: Value) -> Value:
    """The inverse: a solution for the identity."""
    n = o.size(a, -1)
    rows, row = _places(o, n)
    return _eliminated(o, a, o.Expand(o.cast(o.Equal(rows, row), a.dtype), o.Shape(a)))


@form("primitive:solve", takes=_numbers)
def solve(o: Writer, a: Value, b: Value) -> Value:
    """X with A X = B."""
    return _eliminated(o, a, b)


@form("primitive:slogdet", takes=_numbers)
def slogdet(o: Writer, a: Value) -> tuple[Value, Value]:
    """The sign of the determinant and the logarithm of its absolute value, by the pivots; a column without one leaves the others alone."""
    n = o.size(a, -1)
    rows, _ = _places(o, n)
    corner = [*[1] * a.rank]

    def step(k: Value, x: Value, sign: Value, log: Value) -> list[Value]:
        x, best, place = _pivoted(o, x, k, rows)
        pivot = o.Gather(best, k, axis=-1)
        turned = _where(o, o.Equal(place, k), o.Sign(pivot), o.Neg(o.Sign(pivot)))
        row = o.Div(best, _where(o, o.Equal(pivot, 0.0), _like(o, pivot, 1.0), pivot))
        x = _where(o, o.Greater(rows, k), o.Sub(x, o.Mul(o.Gather(x, k, axis=-1), row)), x)
        return [x, o.Mul(sign, turned), o.Add(log, o.Log(o.Abs(pivot)))]

    one = _shaped(o.ReduceSum(_like(o, a, 0.0), [-2, -1], keepdims=1), corner)
    _, sign, log = loop(o, n, [a, o.Add(one, 1.0), one], step)
    sign, log = (o.Squeeze(v, [-2, -1]) for v in (sign, log))
    return sign, log


@form("linalg_det", "det", "primitive:det", takes=_numbers)
def det(o: Writer, a: Value) -> Value:
    """The determinant; runtimes have it for float32."""
    if a.dtype is float32:
        return o.Det(a)
    sign, log = slogdet(o, a)
    return o.Mul(sign, o.Exp(log))


@form("primitive:lu_factor", takes=_fixed)
def lu_factor(o: Writer, a: Value) -> tuple[Value, Value, Value]:
    """L and U in one matrix, the exchanges of rows, and which pivot is the first that is zero."""
    m, n = o.size(a, -2), o.size(a, -1)
    (rows, _), (_, columns) = _places(o, m), _places(o, n)

    def step(k: Value, x: Value) -> list[Value]:
        x, best, place = _pivoted(o, x, k, rows)
        pivot = o.Gather(best, k, axis=-1)
        factor = o.Div(o.Gather(x, k, axis=-1), _where(o, o.Equal(pivot, 0.0), _like(o, pivot, 1.0), pivot))
        inner = _where(o, o.Greater(columns, k), o.Sub(x, o.Mul(factor, best)), x)
        below = _where(o, o.Equal(columns, k), o.Expand(factor, o.Shape(x)), inner)
        return [_where(o, o.Greater(rows, k), below, x), o.Add(place, 1), o.cast(o.Equal(pivot, 0.0), int64)]

    count = min(m, n)
    lu, places, zeros = loop(o, count, [a], step, kept=2)
    order = [*range(1, a.rank - 1), 0]
    places, zeros = (o.Transpose(o.Squeeze(v, [-2, -1]), perm=order) for v in (places, zeros))
    first = o.Add(o.ArgMax(zeros, axis=-1, keepdims=0), 1)
    return lu, o.cast(places, int32), o.cast(o.Mul(first, o.ReduceMax(zeros, [-1], keepdims=0)), int32)


@form("primitive:lu_rows", takes=lambda pivots, n: isinstance(pivots._layout.shape[-1], int) and isinstance(n, int))
def lu_rows(o: Writer, pivots: Value, n: int) -> Value:
    """The order of rows after exchanges."""
    _, places = _places(o, n)
    pivots = o.cast(pivots, int64)
    batch = o.Slice(o.Shape(pivots), o.value([0]), o.value([pivots.rank - 1]), o.value([0]))
    first = _shaped(o.Expand(places, o.Concat(batch, o.value([n]), axis=0)), None)

    def step(k: Value, order: Value) -> list[Value]:
        other = o.Sub(o.Gather(pivots, k, axis=-1), 1)
        here, there = o.Equal(places, k), o.Equal(places, other)
        mine = o.Gather(order, k, axis=-1)
        theirs = o.ReduceSum(_where(o, there, order, 0), [-1], keepdims=1)
        return [_where(o, here, theirs, _where(o, there, mine, order))]

    return loop(o, o.size(pivots, -1), [first], step)[0]


# -- triangles ---------------------------------------------------------------------------------------------------------------------------
@form("primitive:cholesky", takes=_numbers)
def cholesky(o: Writer, a: Value) -> Value:
    """The lower factor, a column at a time."""
    n = o.size(a, -1)
    rows, columns = _places(o, n)

    def step(k: Value, lower: Value) -> list[Value]:
        mine = _turned(o, _shaped(o.Gather(lower, k, axis=-2), a.shape))
        column = o.Sub(o.Gather(a, k, axis=-1), o.MatMul(lower, mine))
        column = o.Div(column, o.Sqrt(o.Gather(column, k, axis=-2)))
        return [_where(o, o.Equal(columns, k), _where(o, o.GreaterOrEqual(rows, k), column, 0.0), lower)]

    return loop(o, n, [_like(o, a, 0.0)], step)[0]


@form("primitive:solve_triangular", takes=_numbers)
def solve_triangular(o: Writer, a: Value, b: Value, upper: bool, unit: bool) -> Value:
    """X with A X = B, a row at a time."""
    n = o.size(a, -1)
    rows, _ = _places(o, n)
    a = o.Trilu(a, upper=int(upper))

    def step(k: Value, x: Value) -> list[Value]:
        at = o.Sub(o.Sub(o.value([n]), 1), k) if upper else k
        row = o.Gather(a, at, axis=-2)
        mine = o.Sub(o.Gather(b, at, axis=-2), o.MatMul(row, x))
        return [_where(o, o.Equal(rows, at), mine if unit else o.Div(mine, o.Gather(row, at, axis=-1)), x)]

    return loop(o, n, [_like(o, b, 0.0)], step)[0]


@form("primitive:qr", takes=_fixed)
def qr(o: Writer, x: Value, mode: str) -> tuple[Value, Value]:
    """Q and R by reflections of Householder's, which take what is below the diagonal of a column to zero."""
    m, n = o.size(x, -2), o.size(x, -1)
    rows, row = _places(o, m)
    batch = o.Slice(o.Shape(x), o.value([0]), o.value([x.rank - 2]), o.value([0]))
    whole = o.Expand(o.cast(o.Equal(rows, row), x.dtype), o.Concat(batch, o.value([m, m]), axis=0))

    def step(k: Value, r: Value, q: Value) -> list[Value]:
        column = o.Gather(r, k, axis=-1)
        below = o.ReduceSumSquare(_where(o, o.Greater(rows, k), column, 0.0), [-2], keepdims=1)
        first = o.Gather(column, k, axis=-2)
        norm = o.Sqrt(o.Add(o.Mul(first, first), below))
        top = o.Sub(first, _where(o, o.Less(first, 0.0), norm, o.Neg(norm)))
        u = _where(o, o.Equal(rows, k), top, _where(o, o.Greater(rows, k), column, 0.0))
        length = o.ReduceSumSquare(u, [-2], keepdims=1)
        nothing = o.Equal(below, 0.0)
        factor = _where(o, nothing, _like(o, below, 0.0), o.Div(_like(o, length, 2.0), _where(o, nothing, _like(o, length, 1.0), length)))
        across = _turned(o, _shaped(u, x.shape))
        return [o.Sub(r, o.Mul(factor, o.MatMul(u, o.MatMul(across, r)))), o.Sub(q, o.Mul(factor, o.MatMul(o.MatMul(q, u), across)))]

    r, q = loop(o, min(m - 1, n), [x, _shaped(whole, None)], step)
    r = o.Trilu(r, upper=1)
    if mode == "complete":
        return q, r
    q, r = (o.Slice(v, o.value([0]), o.value([min(m, n)]), o.value([axis])) for v, axis in ((q, -1), (r, -2)))
    return q if mode == "reduced" else o.Slice(q, o.value([0]), o.value([0]), o.value([-1])), r


@form("primitive:matrix_exp", takes=_numbers)
def matrix_exp(o: Writer, a: Value) -> Value:
    """A sum of powers of A / 2^s, for which that is small, s times squared."""
    n = o.size(a, -1)
    rows, row = _places(o, n)
    unit = o.Expand(o.cast(o.Equal(rows, row), a.dtype), o.Shape(a))
    norm = o.ReduceMax(o.ReduceSum(o.Abs(a), [-1], keepdims=0), keepdims=0)
    halvings = o.Max(o.Ceil(o.Div(o.Log(o.Max(o.Mul(norm, 2.0), 1.0)), o.constant(0.6931471805599453, a.dtype))), 0.0)
    part = o.Div(a, o.Pow(o.constant(2.0, a.dtype), halvings))

    def term(k: Value, total: Value) -> list[Value]:
        return [o.Add(unit, o.Div(o.MatMul(part, total), o.cast(o.Sub(o.value([TERMS]), k), a.dtype)))]

    total, = loop(o, TERMS, [_shaped(unit, a.shape)], term)
    return loop(o, o.cast(halvings, int64), [total], lambda k, x: [o.MatMul(x, x)])[0]
