"""Lists of tensors sorted for functions that work on many at once (torch.utils._foreach_utils)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def _get_foreach_kernels_supported_devices() -> list[str]:
    """Device types on which optimizers step many tensors at once by default."""
    return ["cuda"]


def _group_tensors_by_device_and_dtype(tensorlistlist: Sequence[Sequence[Any]], with_indices: bool = False
                                       ) -> dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]]:
    """By (device, dtype) of the first list's tensors, the matching parts of all lists, and their places where `with_indices`."""
    found: dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]] = {}
    for i, first in enumerate(tensorlistlist[0]):
        lists, places = found.setdefault((first.device, first.dtype), ([[] for _ in tensorlistlist], []))
        for part, whole in zip(lists, tensorlistlist):
            if whole:
                part.append(whole[i])
        if with_indices:
            places.append(i)
    return found


__all__ = ["_get_foreach_kernels_supported_devices", "_group_tensors_by_device_and_dtype"]
