"""What a loss does with its elements, as old code asks for it."""

from __future__ import annotations

import warnings

_NUMBERS = {"none": 0, "mean": 1, "elementwise_mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """The number of a reduction."""
    if reduction not in _NUMBERS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if reduction == "elementwise_mean":
        warnings.warn("reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.", stacklevel=2)
    return _NUMBERS[reduction]


def legacy_get_string(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> str:
    """The reduction that the two flags of old mean."""
    chosen = "none" if reduce is False else "sum" if size_average is False else "mean"
    if emit_warning:
        warnings.warn(f"size_average and reduce args will be deprecated, please use reduction='{chosen}' instead.", stacklevel=2)
    return chosen


def legacy_get_enum(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> int:
    """Its number."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
