"""Smaller shape operators: splits by axis, copies of views, index arithmetic."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..core.dtypes import INT, dtype
from ..core.memory_format import contiguous_format
from ..core.size import canonical_dim, may_overlap, several
from ..core.tensor import Tensor
from ..core.warned import warn_once
from . import prims
from .indexing import _scatter, along_a_number, scattered_apart, view_scatter
from .ints import Ints, as_ints
from .order import like
from .promotion import cast
from .registry import OPERATORS, operator
from .subscript import check_step, slice_bounds
from .views import _by_name, narrow, tensor_split
from .writing import with_out, with_out_of_pieces


def _split_along(name: str, dim: int, least: int) -> Callable:
    def fn(input: Tensor, indices_or_sections: Any, *more: int) -> tuple[Tensor, ...]:
        if more:
            indices_or_sections = (indices_or_sections, *more)
        if input.ndim < least:
            raise RuntimeError(f"torch.{name} requires a tensor with at least {least} dimension(s), but got a tensor with "
                               f"{input.ndim} dimensions!")
        along = 0 if name == "hsplit" and input.ndim == 1 else dim
        if isinstance(indices_or_sections, int) and (indices_or_sections <= 0 or input.shape[along] % indices_or_sections):
            raise RuntimeError(f"torch.{name} attempted to split along dimension {along}, but the size of the dimension "
                               f"{input.shape[along]} is not divisible by the split_size {indices_or_sections}!")
        return tensor_split(input, indices_or_sections, along)

    fn.__name__, fn.__doc__ = name, f"Pieces along dimension {dim}: that many of equal size, or between the indices."
    return operator(fn, method=True)


hsplit, vsplit, dsplit = _split_along("hsplit", 1, 1), _split_along("vsplit", 0, 2), _split_along("dsplit", 2, 3)


@operator(method=True)
def adjoint(input: Tensor) -> Tensor:
    """Matrices transposed and conjugated."""
    if not input.ndim:
        warn_once("adjoint() is deprecated on 0-D tensors. Consider using x.conj().")
        return input.conj()
    return input.mT.conj() if input.dtype.is_complex else input.mT


@operator(method=True, node=True)
@with_out
def narrow_copy(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """narrow, copied."""
    if dim >= input.ndim:
        raise RuntimeError(f"narrow_copy: expected dim to be in the range of {input.ndim} dimensions, got {dim}")
    return _in_rows(narrow(input, dim, start, length))


@operator
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Flat indices as one index tensor a dimension of `shape`."""
    sizes = several(shape)
    if indices.dtype.category != INT or not all(hasattr(n, "__index__") for n in sizes):
        raise TypeError(f"unravel_index(): expected an integer tensor and ints as its shape, but got {indices.dtype} and {shape}")
    if any(type(n) is int and n < 0 for n in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {sizes}")
    found = []
    for n in reversed(sizes):
        found.append(indices % n)
        indices = indices.div(n, rounding_mode="floor")
    return OPERATORS["unbind"](OPERATORS["stack"](found[::-1], -1), -1) if found else ()


@operator(method=True, node=True)
def as_strided_scatter(input: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """A copy of `input`, which lies as it does, with what as_strided shows of it replaced by `src`; in rows where some of its elements
    are one place."""
    if may_overlap(input.shape, input.stride()):
        input = _in_rows(input)
    offset = input.storage_offset() if storage_offset is None else storage_offset
    sizes, strides = as_ints((size,)), as_ints((stride,))
    prims.views.check_pairs(sizes, strides)
    end = prims.views.reach(sizes, strides, offset)
    room = end if input._data is None else input._storage.nbytes // input.dtype.itemsize
    if end > room and src.numel():
        raise RuntimeError(f"as_strided_scatter: sizes {list(sizes)}, strides {list(strides)}, storage offset {offset} are out of bounds for "
                           f"storage of {room} elements")
    return like(view_scatter(input, ((prims.as_strided, (sizes, strides, offset)),), cast(src, input.dtype)), input)


@operator(method=True, node=True)
@with_out
def index_reduce(input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:
    """A copy of `input` with the slices of `source` combined at `index` along `dim`: prod, mean, amax or amin."""
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}.")
    return _index_reduce(input, dim, index, source, reduce, include_self)


@functools.partial(along_a_number, alike=True)
def _index_reduce(input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool) -> Tensor:
    wide = prims.view_(index, tuple(index.shape[0] if i == dim else 1 for i in range(input.ndim))).expand(*source.shape)
    if reduce == "mean":
        return input.scatter_reduce(dim, wide, source, "mean", include_self=include_self)
    return (_scatter if include_self else scattered_apart)(input, dim, wide, source, reduce)


@operator
@with_out
def slice_copy(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    """input[start:end:step] along `dim`, copied."""
    if not input.ndim:
        raise IndexError("slice() cannot be applied to a 0-dim tensor.")
    d = canonical_dim(dim, input.ndim)
    check_step(step)
    return prims.slice_(input, d, *slice_bounds(slice(start, end, step), input.shape[d])).clone(memory_format=contiguous_format)


@operator
@with_out
def alias_copy(input: Tensor) -> Tensor:
    """The tensor, copied."""
    return _copy_of(prims.alias(input))


def _in_rows(x: Tensor) -> Tensor:
    return x.clone(memory_format=contiguous_format)


def _copy_of(view: Tensor) -> Tensor:
    """The copy, whose node is called after the view's."""
    copy = _in_rows(view)
    if copy._grad is not None and copy._grad.grad_fn is not None and view._grad is not None and view._grad.grad_fn is not None:
        copy._grad.grad_fn.call(f"{type(view._grad.grad_fn).__name__}_copy")
    return copy


def _copied(name: str, mark: Callable[[Callable], Callable] = with_out) -> None:
    fn = OPERATORS[name]

    def copy(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        out = fn(input, *args, **kwargs)
        return tuple([_copy_of(o) for o in out]) if isinstance(out, tuple) else _copy_of(out)

    copy.__name__, copy.__doc__ = f"{name}_copy", f"{name}, copied instead of a view."
    operator(mark(copy))


for _name in ("expand", "permute", "transpose", "t", "squeeze", "unsqueeze", "select", "diagonal",
              "detach", "as_strided", "unfold", "view_as_real", "view_as_complex"):
    _copied(_name)
for _name in ("split", "unbind"):
    _copied(_name, with_out_of_pieces)


@operator
@with_out
def view_copy(input: Tensor, *shape: Ints, **named: Any) -> Tensor:
    """view, copied: also of what lies so that it has no such view."""
    shape = _by_name(shape, named, "view_copy", "size", "dtype")
    by_dtype = len(shape) == 1 and isinstance(shape[0], (dtype, type))
    return _copy_of(input.view(*shape) if by_dtype else input.reshape(*shape))
