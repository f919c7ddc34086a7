"""Tensors by pattern: diagonals, triangles, grids, one-hot rows, blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.device import as_device
from ..core.dtypes import dtype, int64
from ..core.size import canonical_dim, known_zero
from ..core.tensor import Tensor, from_array
from ..core.warned import warn_once
from . import prims
from .checks import checked
from .creation import count, finish, kind_for, new_arange
from .order import in_rows
from .primitives import read
from .prims.views import _diagonal_back
from .promotion import broadcast, cast, default_dtype, prepare, result_type
from .registry import OPERATORS, operator
from .writing import store_alike, with_out, with_out_alike


def _band(x: Tensor, rows: Any, columns: Any, compare: Callable) -> Tensor:
    """The bool matrix compare(column - row)."""
    i, j = prims.unsqueeze(new_arange(x, rows), 1), prims.unsqueeze(new_arange(x, columns), 0)
    return compare(j - i)


@operator
def eye(n: int, m: int | None = None, *, out: Tensor | None = None, dtype: dtype | None = None, layout: Any = None,
        device: Any = None, pin_memory: bool | None = False, requires_grad: bool | None = False) -> Tensor:
    """Ones on the diagonal of an n x m matrix (n x n without m), zeros elsewhere."""
    n, m = count(n), m if m is None else count(m)
    if n < 0 or (m is not None and m < 0):
        raise RuntimeError(f"n and m must be greater or equal to 0, got {n} and {m}")
    where = as_device(device)
    i = prims.iota(n, 0, 1, int64, where)
    j = i if m is None else prims.iota(m, 0, 1, int64, where)
    made = cast(prims.unsqueeze(i, 1) == prims.unsqueeze(j, 0), kind_for(dtype, out, default_dtype()))
    return finish(made, requires_grad, out, layout, pin_memory)


def _triangle(name: str, compare: Callable) -> Callable:
    def body(input: Tensor, diagonal: int) -> Tensor:
        """Zeros where the column is too far from the row."""
        keep = _band(input, input.shape[-2], input.shape[-1], lambda gap: compare(gap, diagonal))
        return input.where(keep, cast(0, input.dtype))

    fused = operator(body, name=f"_{name}", fused=True)

    def fn(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
        if input.ndim < 2:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions, got {list(input.shape)}")
        result = fused(in_rows(input), diagonal)
        return result if out is None else store_alike(out, result)

    side = "lower" if name == "tril" else "upper"
    fn.__name__, fn.__doc__ = name, f"The {side} triangle of the last two dimensions; zeros elsewhere."
    return operator(fn, method=True, node=True)


tril, triu = _triangle("tril", lambda gap, k: gap <= k), _triangle("triu", lambda gap, k: gap >= k)


def _triangle_indices(name: str, fn: Callable) -> Callable:
    def indices(row: int, col: int, offset: int = 0, *, dtype: dtype | None = int64, device: Any = None, layout: Any = None,
                pin_memory: bool | None = False, requires_grad: bool | None = False) -> Tensor:
        for what, size in (("row", row), ("col", col)):
            if size < 0:
                raise RuntimeError(f"{name}(): {what} must be non-negative, got {size}")
        made = from_array(np.stack(fn(row, offset, col)).astype((dtype or int64).numpy)).to(as_device(device))
        return finish(made, requires_grad, None, layout, pin_memory)

    indices.__name__, indices.__doc__ = name, "Row and column indices of a triangle, row by row, as a 2 x n tensor."
    return operator(indices)


tril_indices = _triangle_indices("tril_indices", np.tril_indices)
triu_indices = _triangle_indices("triu_indices", np.triu_indices)


@operator(method=True, vjp=lambda g, offset, dim1, dim2: (g.diagonal(offset, dim1, dim2),))
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The last dimension as a diagonal of new dimensions dim1, dim2; zeros elsewhere."""
    rank = input.ndim + 1
    a, b = canonical_dim(dim1, rank), canonical_dim(dim2, rank)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    size = input.shape[-1] + abs(offset)
    rest = iter(input.shape[:-1])
    shape = tuple(size if d in (a, b) else next(rest) for d in range(rank))
    return in_rows(_diagonal_back(input, shape, offset, a, b))


@operator(method=True)
@with_out_alike
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A vector as the diagonal of a matrix, or the diagonal of a matrix as a vector."""
    if input.ndim == 1:
        return diag_embed(input, diagonal)
    if input.ndim != 2:
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")
    return prims.diagonal(input, diagonal, 0, 1).clone()


@operator(method=True)
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """The flattened input as a diagonal."""
    return diag_embed(input.reshape(-1), offset)


@operator
def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Coordinate grids of 1-D (or 0-dim) tensors; indexing 'xy' swaps the first two. Without `indexing` it is 'ij', with a warning."""
    parts = list(tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors)
    if not parts:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    largest = max(t.ndim for t in parts)
    if indexing not in ("ij", "xy", None):
        raise RuntimeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    if largest > 1:
        raise RuntimeError(f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {[list(t.shape) for t in parts]}")
    if any(t.dtype is not parts[0].dtype for t in parts):
        raise RuntimeError(f"meshgrid expects all tensors to have the same dtype, but got {', '.join(str(t.dtype) for t in parts)}")
    if indexing is None:
        warn_once("torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument.")
    swap = indexing == "xy" and len(parts) > 1
    if swap:
        parts[0], parts[1] = parts[1], parts[0]
    shape = tuple(t.shape[0] if t.ndim else 1 for t in parts)
    grids = [t.reshape([-1 if i == d else 1 for i in range(len(parts))]).expand(*shape) for d, t in enumerate(parts)]
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


@operator
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """int64 rows with a one at each class index, in a new last dimension of `num_classes` (-1: largest class + 1)."""
    if tensor.dtype is not int64:
        raise RuntimeError(f"one_hot is only applicable to index tensor of type LongTensor, got {tensor.dtype}.")
    if num_classes <= 0 and any(map(known_zero, tensor.shape)):
        raise RuntimeError(f"Can not infer total number of classes from empty tensor of shape {list(tensor.shape)}: give num_classes.")
    if found := read(tensor, "min", "max"):
        least, greatest = found
        if least < 0:
            raise RuntimeError(f"Class values must be non-negative, got {least}.")
        if num_classes != -1 and greatest >= num_classes:
            raise RuntimeError(f"Class values must be smaller than num_classes, got {greatest} of {num_classes}.")
    if num_classes == -1:
        num_classes = int(tensor.max()) + 1
    made = _one_hot(*broadcast(prims.unsqueeze(in_rows(tensor), tensor.ndim), new_arange(tensor, num_classes)))
    return made if tensor._data is not None else checked(made, (tensor >= 0) & (tensor < num_classes))


@operator(name="_one_hot", fused=True)
def _one_hot(places: Tensor, classes: Tensor) -> Tensor:
    return cast(prims.eq(places, classes), int64)


@operator(node=True)
def block_diag(*tensors: Tensor) -> Tensor:
    """The matrices along the diagonal of one matrix."""
    for i, t in enumerate(tensors):
        if t.ndim > 2:
            raise RuntimeError(f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has {t.ndim} dimensions")
    kind = result_type(*tensors)
    parts = [cast(t.reshape(1, -1) if t.ndim < 2 else t, kind) for t in tensors]
    columns = sum(t.shape[1] for t in parts)
    strips, done = [], 0
    for t in parts:
        strips.append(prims.pad_zeros(t, (0, done), (0, columns - done - t.shape[1]), (0, 0)))
        done += t.shape[1]
    return OPERATORS["cat"](strips, 0)


@operator(autocast={"cpu": "wide"})
@with_out
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """abs * exp(i angle)."""
    if not (isinstance(abs, Tensor) and isinstance(angle, Tensor)):
        raise TypeError(f"polar(): arguments 'abs' and 'angle' must be Tensors, not {type(abs).__name__} and {type(angle).__name__}")
    if abs.dtype is not angle.dtype or not abs.dtype.is_floating_point:
        raise RuntimeError(f"polar(): expected both inputs to be floating-point tensors of one dtype, but got {abs.dtype} and "
                           f"{angle.dtype}")
    return _polar(*prepare(abs, angle))[0]


def _polar_vjp(gs: tuple, out0: Tensor, out1: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Along the direction, and across both results."""
    length = None if gs[0] is None else (gs[0] * out1.conj()).real
    turns = [(g * out.conj()).imag for g, out in ((gs[0], out0), (gs[1], out1)) if g is not None]
    return length, sum(turns[1:], turns[0]) if turns else None


@operator(name="_polar", vjp=_polar_vjp)
def _polar(abs: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    """(abs * exp(i angle), exp(i angle))."""
    x, y = angle.cos(), angle.sin()
    return prims.complex(abs * x, abs * y), prims.complex(x, y)
