"""Reductions of runs of rows (`segment_reduce`), and hashes of elements (`hash_tensor`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..core.dtypes import DTYPES, FLOAT, int64
from ..core.scalar import FOLDS
from ..core.size import canonical_dim, canonical_dims
from ..core.tensor import Tensor
from .checks import checked
from .pointwise import bitwise_xor
from .promotion import apart, cast
from .registry import OPERATORS, operator
from .writing import with_out

_REDUCTIONS = ("sum", "mean", "prod", "max", "min")


def _expect(held: bool, message: str) -> None:
    if not held:
        raise RuntimeError(f"segment_reduce(): {message}")


def _offsets(lengths: Tensor, size: Any, axis: int, unsafe: bool) -> Tensor:
    """Where segments of these lengths begin and end."""
    if not unsafe and lengths._data is not None and lengths.numel():
        _expect(bool((lengths >= 0).all()), f"lengths contains negative value! got {lengths.min().item()}")
        total = lengths.sum(axis)
        _expect(bool((total == size).all()), f"Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe, "
                                             f"got sums from {total.min().item()} to {total.max().item()} for a size of {size}.")
    made = OPERATORS["cat"]([lengths.new_zeros((*lengths.shape[:axis], 1)), OPERATORS["cumsum"](lengths, axis).to(lengths.dtype)], axis)
    if unsafe or lengths._data is not None:
        return made
    return checked(made, (lengths >= 0) & (lengths.sum(axis, keepdim=True) == size))


@operator
def segment_reduce(data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
                   offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False, initial: Any = None) -> Tensor:
    """The sum, mean, max, min or prod of each of the runs that `data` is cut into along `axis`, by their lengths or by where they
    begin and end (`offsets`, one more than there are runs).

    lengths (*batch, segments) -> (*batch, segments, *rest) for data (*batch, size, *rest), where `axis` is the number of batch
    dimensions. A run starts from `initial`; one without elements is that, or what the reduction of nothing is. `unsafe`: lengths are
    not looked at."""
    if reduce not in _REDUCTIONS:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}; here they are called "
                           f"{', '.join(_REDUCTIONS)}")
    _expect(indices is None, "indices based reduction is not supported yet; give lengths or offsets.")
    cuts = lengths if offsets is None else offsets
    if cuts is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    if data.dtype.category != FLOAT:
        raise NotImplementedError(f"segment_reduce() is not implemented for {data.dtype}, but for floating dtypes; cast data")
    if cuts.dtype.name not in ("int32", "int64"):
        raise NotImplementedError(f"segment_reduce() takes lengths and offsets of int32 or int64, got {cuts.dtype}")
    at = canonical_dim(axis, data.ndim)
    _expect(at == cuts.ndim - 1, f"Expected axis to be the last dimension of {'lengths' if offsets is None else 'offsets'} "
                                 f"(shape {list(cuts.shape)}) but got {axis}.")
    _expect(tuple(cuts.shape[:at]) == tuple(data.shape[:at]), f"the dimensions before axis {axis} differ: data has shape "
                                                              f"{list(data.shape)}, the segments {list(cuts.shape)}.")
    ends = _offsets(cuts, data.shape[at], at, unsafe) if offsets is None else offsets
    return _reduced(data, ends, at, reduce, initial)


def _reduced(data: Tensor, ends: Tensor, at: int, reduce: str, initial: Any) -> Tensor:
    """By a scatter: the rows before the first segment and those behind the last have a place of their own, which is cut away."""
    fold = FOLDS["sum" if reduce == "mean" else reduce]
    count, size = ends.shape[at] - 1, data.shape[at]
    position = OPERATORS["arange"](size, dtype=ends.dtype, device=data.device).expand(*ends.shape[:at], size)
    segment = OPERATORS["searchsorted"](ends.contiguous(), position.contiguous(), right=True)
    index = segment.reshape(*segment.shape, *[1] * (data.ndim - at - 1)).expand(*data.shape)
    room = (*data.shape[:at], count + 2, *data.shape[at + 1:])
    start = data.new_full(room, fold.empty if initial is None else initial)
    found = start.scatter_reduce(at, index, data, f"a{reduce}" if fold.combine.ordered else fold.name).narrow(at, 1, count)
    if reduce != "mean":
        return found
    sizes = OPERATORS["diff"](ends, dim=at).reshape(*ends.shape[:at], count, *[1] * (data.ndim - at - 1)).to(data.dtype)
    return found / (sizes if initial is None else sizes.clamp(min=1))


def _words(input: Tensor) -> Tensor:
    """Each element's 64 bits, as int64."""
    if input.dtype.is_floating_point:
        return cast(input, DTYPES["float64"]).view(int64)
    return cast(input, int64)


@operator
@with_out
def hash_tensor(input: Tensor, dim: int | Sequence[int] | None = None, *, keepdim: bool = False, mode: int = 0) -> Tensor:
    """The exclusive or of the elements along `dim` (of all of them without it), as bits of uint64: of floats as float64, of integers as
    int64. `mode` 0 is all there is."""
    if mode != 0:
        raise RuntimeError(f"Unknown hash_tensor mode: {mode}; it is 0, by exclusive or")
    if input.dtype.is_complex or input.dtype.name == "uint64":
        raise NotImplementedError(f"hash_tensor() is not implemented for {input.dtype}; hash torch.view_as_real(input) or "
                                  "input.view(torch.int64)")
    whole = dim is None or (isinstance(dim, (tuple, list)) and not dim)
    dims = canonical_dims(dim, input.ndim)
    if input.numel() == 0 and whole:
        raise RuntimeError("hash_tensor: Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with "
                           f"the 'dim' argument. The shape is {list(input.shape)}")
    for d in dims:
        if input.ndim and input.shape[d] == 0:
            raise IndexError(f"hash_tensor: Expected reduction dim {d} to have non-zero size, got shape {list(input.shape)}.")
    rest = [d for d in range(input.ndim) if d not in dims]
    words = _words(input).permute(*rest, *dims).reshape(*(input.shape[d] for d in rest), math.prod([input.shape[d] for d in dims]))
    folded = apart(_folded(words), input).view(DTYPES["uint64"]).contiguous()
    if not keepdim:
        return folded
    return folded.reshape([1 if d in dims else n for d, n in enumerate(input.shape)])


def _folded(words: Tensor) -> Tensor:
    """The exclusive or along the last dimension: halves upon each other."""
    while words.shape[-1] > 1:
        half = words.shape[-1] // 2
        upon = bitwise_xor(words[..., :half], words[..., half:2 * half])
        words = upon if words.shape[-1] == 2 * half else OPERATORS["cat"]([upon, words[..., 2 * half:]], -1)
    return words[..., 0]
