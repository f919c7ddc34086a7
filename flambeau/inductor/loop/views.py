"""What can be told of strided views whose sizes may be symbols."""

from __future__ import annotations

from collections.abc import Sequence

from flambeau.core.expr import Expr, Index, coefficient, free_variables, to_python
from flambeau.inductor.loop.ir import View


def dense(shape: Sequence[Index], strides: Sequence[Index]) -> bool:
    """Whether the strides cover a block of memory without gaps or overlaps, in some order of the dimensions."""
    step: Index = 1
    left = [(s, n) for n, s in zip(shape, strides, strict=True) if not (isinstance(n, int) and n <= 1)]
    if any(isinstance(n, int) and n == 0 for n in shape):
        return False
    while left:
        hit = next((item for item in left if item[0] is step or item[0] == step), None)
        if hit is None:
            return False
        left.remove(hit)
        step = step * hit[1]
    return True


def linear_strides(index: Index, idx: Sequence[Index]) -> tuple[tuple[Index, ...], Index] | None:
    """Strides and offset of a flat position that is linear in the loop variables `idx`; None if it isn't."""
    strides: list[Index] = []
    for i in idx:
        step = coefficient(index, to_python(i)) if not isinstance(i, int) else 0
        if step is None:
            return None
        strides.append(step)
        index = index - step * i
    if any(not isinstance(i, int) and to_python(i) in free_variables(index) for i in idx):
        return None
    return tuple(strides), index


def divisors_in(x: Index, name: str) -> list[int]:
    """The numbers by which `x` divides the variable `name`."""
    found: set[int] = set()
    for m in x.terms if isinstance(x, Expr) else ():
        for atom, _ in m:
            if atom.kind in ("floordiv", "mod") and isinstance(atom.args[1], int) and name in free_variables(atom.args[0]):
                found.add(atom.args[1])
    return sorted(found)


def split_batch(view: View, size: int) -> View:
    """A view whose first dimension has become two, the second of them of `size`."""
    n, step = view.shape[0], view.strides[0]
    return view._replace(shape=(n // size, size, *view.shape[1:]), strides=(step * size, step, *view.strides[1:]))


def is_matrix(view: View) -> bool:
    """Whether libraries take the last two dimensions as a matrix: one of them is contiguous, and nothing repeats."""
    sized = [s for s, n in zip(view.strides, view.shape, strict=True) if not (isinstance(n, int) and n == 1)]
    return (view.strides[-1] == 1 or view.strides[-2] == 1) and not any(isinstance(s, int) and s == 0 for s in sized)


def with_one_matrix(first: View, second: View, out: View) -> tuple[View, ...] | None:
    """A batch of products with the same second matrix as one product of more rows; None if it is no such batch."""
    if len(second.shape) != 3 or second.strides[0] != 0 or second.shape[0] == 1:
        return None
    rows = []
    for view in (first, out):
        (batch, n, columns), (outer, step, inner) = view.shape, view.strides
        if n != 1 and outer != n * step:
            return None
        rows.append(view._replace(shape=(batch * n, columns), strides=(outer if n == 1 else step, inner)))
    matrix = second._replace(shape=second.shape[1:], strides=second.strides[1:])
    return (rows[0], matrix, rows[1]) if is_matrix(rows[0]) and is_matrix(matrix) else None
