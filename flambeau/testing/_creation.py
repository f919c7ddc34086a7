"""Tensors of random numbers for tests."""

from __future__ import annotations

import math
import warnings
from typing import Any

from ..core.device import device as _device
from ..core.dtypes import bool_, dtype, finfo, float32, iinfo, int64
from ..core.tensor import Tensor
from ..ops.registry import OPERATORS


def _supported(kind: dtype) -> tuple[float, float]:
    """The least number of a dtype and the one behind its greatest (its greatest of int64 and floats)."""
    if kind is bool_:
        return 0, 2
    if kind.category == 1:
        facts = iinfo(kind)
        return facts.min, min(facts.max + 1, iinfo(int64).max)
    return finfo(kind.to_real()).min, finfo(kind.to_real()).max


def _interval(kind: dtype, low: float | None, high: float | None) -> tuple[float, float]:
    """[low, high) within what the dtype has; by default -9 to 9, integers up to 9, from 0 where there are none below."""
    least, most = _supported(kind)
    usual = (max(least, -9), min(most, 9 + (kind.category < 2)))
    low, high = usual[0] if low is None else low, usual[1] if high is None else high
    if any(isinstance(x, float) and math.isnan(x) for x in (low, high)):
        raise ValueError(f"`low` and `high` cannot be NaN, but got low={low} and high={high}")
    if low > high or (low == high and kind.category < 2):
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    if low == high:
        warnings.warn(f"make_tensor with low == high of {kind} is deprecated; use torch.full", FutureWarning, stacklevel=3)
    if low >= most or high <= least:
        raise ValueError(f"The value interval specified by `low` and `high` is [{low}, {high}), but {kind} only supports [{least}, {most})")
    low, high = max(low, least), min(high, most)
    return (math.ceil(low), math.ceil(high)) if kind.category < 2 else (low, high)


def _fill(x: Tensor, low: float, high: float) -> None:
    if x.dtype.category < 2:
        x.random_(int(low), int(high))
        return
    reals = x if not x.dtype.is_complex else x.view_as_real()
    if math.isinf(high - low) or high - low > finfo(reals.dtype).max:
        reals.uniform_(low / 2, high / 2).mul_(2)
    else:
        reals.uniform_(low, high)


def make_tensor(
    *shape: Any,
    dtype: dtype,
    device: _device | str,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """A tensor of numbers drawn evenly from [low, high), as far as the dtype has them; by default [-9, 9), integers up to 9, for bool
    and unsigned dtypes from 0. With `exclude_zero` zeros are the least positive number; `noncontiguous`: every second element of a row.

    Raises ValueError for a low that is not less than high, or outside of the dtype, for integers that shall require a gradient, and
    for `noncontiguous` with a memory format.
    """
    sizes = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    if noncontiguous and memory_format is not None:
        raise ValueError("The parameters `noncontiguous` and `memory_format` are mutually exclusive, but got noncontiguous=True and "
                         f"memory_format={memory_format}")
    if requires_grad and dtype.category < 2:
        raise ValueError(f"`requires_grad=True` is not supported for boolean and integral dtypes, but got dtype={dtype}")
    low, high = _interval(dtype, low, high)
    stretched = noncontiguous and math.prod(sizes) > 1
    narrow = dtype.itemsize == 1 and dtype.is_floating_point          # drawn as float32
    made = OPERATORS["empty"]((*sizes[:-1], 2 * sizes[-1]) if stretched else sizes, dtype=float32 if narrow else dtype, device=device)
    _fill(made, low, high)
    made = made.to(dtype)[..., 1::2] if stretched else made.to(dtype)
    if exclude_zero:
        tiny = finfo(dtype.to_real()).tiny if dtype.category > 1 else 1
        made[made == 0] = complex(tiny, tiny) if dtype.is_complex else tiny
    if memory_format is not None:
        made = made.contiguous(memory_format=memory_format)
    return made.requires_grad_(requires_grad) if dtype.category > 1 else made


__all__ = ["make_tensor"]
