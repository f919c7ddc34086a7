"""Arguments that are integers: sizes, strides and dimensions, one by one or in a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsIndex, TypedDict

import numpy as np

from ..core.dtypes import INT
from ..core.tensor import Tensor

Ints = SupportsIndex | Sequence[SupportsIndex]
"""Sizes or dimensions one by one (`*size: Ints`), or as one sequence."""


class Sized(TypedDict, total=False):
    """The keyword by which factories take their sizes too."""

    size: Ints


def as_int(a: Any) -> Any:
    """An int from NumPy, a truth value or out of an integer tensor of one element; symbolic ones stay. TypeError for what is no int."""
    if isinstance(a, (int, np.integer)) or (isinstance(a, Tensor) and a.dtype.category <= INT and a.numel() == 1):
        return int(a)
    if isinstance(a, (Tensor, np.ndarray)) or not hasattr(type(a), "__index__"):
        what = repr(a) if not hasattr(a, "shape") else f"a {type(a).__name__} of {a.dtype} and shape {list(a.shape)}"
        raise TypeError(f"expected ints or one sequence of ints, but got {what}")
    return a


def as_ints(args: Sequence) -> tuple:
    """Sizes or dimensions given one by one or as one sequence."""
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = args[0]
    elif args and type(args[0]) is bool:       # elsewhere truth values are numbers
        raise TypeError(f"expected ints or one sequence of ints, but got {args}")
    return tuple([a if type(a) is int else as_int(a) for a in args])
