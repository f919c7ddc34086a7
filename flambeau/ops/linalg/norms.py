"""Norms of matrices, condition numbers, and products of vectors."""

from __future__ import annotations

import math
from typing import Any

from ...core.dtypes import FLOAT, dtype, scalar_type
from ...core.size import canonical_dim, known_zero, several
from ...core.tensor import Tensor
from ...core.warned import deprecated
from .. import prims
from ..reductions import Dims, in_norm_dtype, linalg_vector_norm
from ..registry import operator
from ..writing import with_out
from .decompositions import _check, linalg_svdvals
from .factors import linalg_inv_ex


def _matrix_norm(x: Tensor, ord: Any, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    if len(dims) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {dims}")
    rows, columns = (canonical_dim(d, x.ndim) for d in dims)
    if rows == columns:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got {dims}")
    if ord == "fro":
        return linalg_vector_norm(x, 2, (rows, columns), keepdim)
    if ord in ("nuc", 2, -2):
        s = linalg_svdvals(x.movedim((rows, columns), (-2, -1)))
        out = s.sum(-1) if ord == "nuc" or (ord == 2 and known_zero(s._layout.shape[-1])) else s.amax(-1) if ord == 2 else s.amin(-1)
    elif ord in (1, -1, math.inf, -math.inf):
        along, other = (rows, columns) if abs(ord) == 1 else (columns, rows)
        sums = prims.abs(x).sum(along, True)
        if ord > 0 and known_zero(x._layout.shape[other]):      # the largest of no sum is the sum of nothing
            sums = sums.sum(other, True)
        out = prims.squeeze(sums.amax(other, True) if ord > 0 else sums.amin(other, True), (rows, columns))
    else:
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    if keepdim:
        for d in sorted((rows, columns)):
            out = prims.unsqueeze(out, d)
    return out


@operator
@with_out(exact=True)
def linalg_matrix_norm(A: Tensor, ord: float | str = "fro", dim: tuple[int, int] = (-2, -1), keepdim: bool = False, *,
                       dtype: dtype | None = None) -> Tensor:
    """A matrix norm over two dimensions: fro, nuc, 1, -1, 2, -2, inf, -inf."""
    x = A if dtype is None else in_norm_dtype(A, dtype)
    if ord in ("nuc", 2, -2) or x.dtype.category < FLOAT or x.ndim < 2:  # the others are sums, in any float
        _check(x, "linalg.matrix_norm")
    return _matrix_norm(x, ord, tuple(dim), keepdim)


@operator(autocast={"cuda": "wide"})
@with_out(exact=True)
def linalg_norm(A: Tensor, ord: float | str | None = None, dim: Dims = None, keepdim: bool = False, *,
                dtype: dtype | None = None) -> Tensor:
    """A vector norm over one dimension (or of the flattened input), a matrix norm over two."""
    x = A if dtype is None else in_norm_dtype(A, dtype)
    if isinstance(dim, (tuple, list)) and not 1 <= len(dim) <= 2:
        raise RuntimeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dim)}")
    planes = (isinstance(dim, (tuple, list)) and len(dim) == 2) or (dim is None and x.ndim == 2)
    if ord is not None and planes:
        return _matrix_norm(x, ord, tuple(dim or (0, 1)), keepdim)      # type: ignore[arg-type]
    if isinstance(ord, str):
        raise RuntimeError(f"linalg.norm: order {ord!r} needs a matrix, got shape {list(x.shape)} and dim {dim}")
    if ord is not None and dim is None and x.ndim != 1:
        raise RuntimeError(f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {x.ndim}D.")
    return linalg_vector_norm(x, 2 if ord is None else ord, dim, keepdim)


@operator(autocast={"cpu": "wide"})
@with_out
def linalg_cond(A: Tensor, p: Any = None) -> Tensor:
    """The condition number in the norm `p` (2 unless given)."""
    _check(A, "linalg.cond")
    if 0 in A._layout.shape[-2:] and not isinstance(p, str):
        return A.new_zeros(tuple(A.shape[:-2]), dtype=A.dtype.to_real())
    if p in (None, 2, -2):
        s = linalg_svdvals(A)
        high, low = s.select(-1, 0), s.select(-1, s.shape[-1] - 1)
        return low / high if p == -2 else high / low
    inverse, info = linalg_inv_ex(A)
    both = _matrix_norm(A, p, (-2, -1), False) * _matrix_norm(inverse, p, (-2, -1), False)
    return both.masked_fill(info != 0, math.inf)


@operator(autocast="narrow")
@with_out(exact=True)
def linalg_vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Sums of products of conj(x) and y along `dim`."""
    for t in (x, y):
        if t.dtype.category < FLOAT:
            raise RuntimeError(f"linalg.vecdot: Expected a floating point or complex tensor as input. Got {scalar_type(t.dtype)}")
    if x.dtype is not y.dtype:
        raise RuntimeError(f"linalg.vecdot: Expected x and y to have the same dtype, but found x of type {scalar_type(x.dtype)} and y of "
                           f"type {scalar_type(y.dtype)} instead")
    return (x.conj() * y).sum(dim)


@operator
def linalg_diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonal of the planes (dim1, dim2), as a view."""
    return A.diagonal(offset, dim1, dim2)


@operator
@with_out
def frobenius_norm(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """The 2-norm over at most two dimensions (none: all of them)."""
    deprecated("frobenius_norm", "linalg.vector_norm")
    dims = several(dim)
    if len(dims) > 2:
        raise RuntimeError(f"Expected at most 2 dimensions, but got {len(dims)} dimensions instead.")
    return linalg_vector_norm(input, 2, dims or None, keepdim)


@operator
@with_out
def nuclear_norm(input: Tensor, dim: Any = (-2, -1), keepdim: bool = False) -> Tensor:
    """The sum of the singular values of matrices. `nuclear_norm(x, True)` keeps the dimensions."""
    deprecated("nuclear_norm", "linalg.matrix_norm")
    if isinstance(dim, bool):
        dim, keepdim = (-2, -1), dim
    _check(input, "linalg.matrix_norm")
    dims = several(dim)
    return linalg_matrix_norm(input, "nuc", tuple(canonical_dim(d, input.ndim) for d in dims), keepdim)   # type: ignore[arg-type]


@operator
def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norms of the slices along `dim`, with the other dimensions kept as 1; of the whole tensor for dim -1."""
    if dim == -1:
        return linalg_vector_norm(v, pow)
    kept = canonical_dim(dim, v.ndim)
    if not v.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    rows = linalg_vector_norm(v.movedim(kept, 0).reshape(v.shape[kept], -1), pow, 1)
    return rows.reshape([n if d == kept else 1 for d, n in enumerate(v.shape)])
