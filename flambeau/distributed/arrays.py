"""What lies beneath tensors that travel: NumPy's arrays and CuPy's, laid out as engines want them, without gaps.

CuPy's kernels know neither bfloat16 nor float8: elements are moved as the bits that they are.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.unresolved import resolved


def library(array: Any) -> Any:
    """NumPy, or CuPy for an array on a GPU."""
    return np if isinstance(array, np.ndarray) else importlib.import_module("cupy")


def _bits(array: Any) -> Any:
    return array.view(f"u{array.dtype.itemsize}") if array.dtype.kind == "V" and not isinstance(array, np.ndarray) else array


def dense(array: Any) -> Any:
    """The elements without gaps: the array itself where it has none."""
    if isinstance(array, np.ndarray):
        return np.ascontiguousarray(resolved(array))
    return array if array.flags.c_contiguous else library(array).ascontiguousarray(_bits(array)).view(array.dtype)


def is_dense(array: Any) -> bool:
    """Whether it can be written to as it lies."""
    return bool(array.flags.c_contiguous and (not isinstance(array, np.ndarray) or array.flags.writeable))


def copy(into: Any, array: Any) -> None:
    """The elements of `array` into those of `into`."""
    if isinstance(into, np.ndarray):
        np.copyto(into, array)
    else:
        _bits(into)[...] = _bits(array)


def empty(like: Any, shape: Sequence[int]) -> Any:
    """Room for elements of the same kind in the same place."""
    return library(like).empty(tuple(shape), like.dtype)


def joined(arrays: Sequence[Any]) -> Any:
    """The elements of several, one array after another."""
    out = empty(arrays[0], (sum(a.size for a in arrays),))
    for a, part in zip(arrays, parts(out, [a.size for a in arrays])):
        copy(part, a.reshape(-1))
    return out


def parts(array: Any, counts: Sequence[int]) -> list:
    """Views of so many elements each."""
    ends = np.cumsum(counts)
    return [array[end - count : end] for end, count in zip(ends, counts)]


def overlap(first: Any, second: Any) -> bool:
    """Whether they may lie in the same memory."""
    return bool(library(first).may_share_memory(first, second))
