"""Making one batch of a list of samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...core.dtypes import float64
from ...core.tensor import Tensor
from ...ops.creation import as_tensor, from_numpy, tensor
from ...ops.indexing import stack

_TEXT_KINDS = "SUO"  # NumPy arrays of bytes, str and objects cannot become tensors


def _collate_arrays(batch: Sequence[Any]) -> Tensor:
    if batch[0].dtype.kind in _TEXT_KINDS:
        raise TypeError(f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found "
                        f"a numpy array of {batch[0].dtype}")
    return stack([as_tensor(array) for array in batch], 0)


def _collate_mapping(batch: Sequence[Mapping]) -> Any:
    joined = {key: default_collate([sample[key] for sample in batch]) for key in batch[0]}
    try:
        return type(batch[0])(joined)  # type: ignore[call-arg]
    except TypeError:  # a mapping that is made in another way
        return joined


def _collate_sequence(batch: Sequence[Sequence]) -> Any:
    first = batch[0]
    if any(len(sample) != len(first) for sample in batch):
        raise RuntimeError("each element in list of batch should be of equal size, got lengths "
                           f"{sorted({len(sample) for sample in batch})}")
    columns = [default_collate(column) for column in zip(*batch, strict=True)]
    if isinstance(first, tuple):
        return type(first)(*columns) if hasattr(first, "_fields") else columns
    return type(first)(columns) if type(first) is not list else columns  # type: ignore[call-arg]


_COLLATERS: tuple[tuple[Any, Callable[[Sequence[Any]], Any]], ...] = (
    (Tensor, lambda batch: stack(list(batch), 0)),
    ((np.ndarray, np.generic), _collate_arrays),
    (float, lambda batch: tensor(list(batch), dtype=float64)),
    (int, lambda batch: tensor(list(batch))),
    ((str, bytes), lambda batch: batch),
    (Mapping, _collate_mapping),
    (Sequence, _collate_sequence),
)


def default_collate(batch: Sequence[Any]) -> Any:
    """One batch of `batch`, a list of samples of one structure.

    Tensors, arrays and numbers are stacked along a new first dimension; dicts, tuples and lists are collated part by
    part; strings stay a list. Raises TypeError for samples of any other kind.
    """
    for kind, collate in _COLLATERS:
        if isinstance(batch[0], kind):
            return collate(batch)
    raise TypeError("default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found "
                    f"{type(batch[0])}")


def default_convert(data: Any) -> Any:
    """`data` with each NumPy array and scalar in it turned into a tensor: what happens when batching is off."""
    if isinstance(data, np.ndarray):
        return data if data.dtype.kind in _TEXT_KINDS else from_numpy(data)
    if isinstance(data, np.generic) and data.dtype.kind not in _TEXT_KINDS:
        return as_tensor(data)
    if isinstance(data, Mapping):
        return type(data)({key: default_convert(value) for key, value in data.items()})  # type: ignore[call-arg]
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(default_convert, data))
    if isinstance(data, (list, tuple)):
        return [default_convert(part) for part in data]
    return data


def pinned(data: Any) -> Any:
    """`data` with each tensor in it (and what has a `pin_memory()` of its own) in memory that a GPU reads by itself."""
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, Mapping):
        return type(data)({key: pinned(value) for key, value in data.items()})  # type: ignore[call-arg]
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(pinned, data))
    return type(data)(map(pinned, data)) if isinstance(data, (list, tuple)) else data
