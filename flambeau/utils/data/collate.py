"""Making one batch of a list of samples."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...core.dtypes import float64
from ...core.tensor import Tensor
from ...ops.creation import as_tensor, from_numpy, tensor
from ...ops.joining import stack

_TEXT_KINDS = "SUO"  # NumPy arrays of bytes, str and objects cannot become tensors
HAS_NUMPY, MP_STATUS_CHECK_INTERVAL = True, 5.0    # for loaders of others: NumPy is there; seconds between looks at a worker
np_str_obj_array_pattern = re.compile(r"[SaUO]")

Collaters = Mapping[Any, Callable[..., Any]]
"""By class (or a tuple of classes): what joins samples of it, `join(batch, *, collate_fn_map)`."""


def collate_tensor_fn(batch: Sequence[Any], *, collate_fn_map: Collaters | None = None) -> Tensor:
    """Tensors stacked along a new first dimension."""
    return stack(list(batch), 0)


def collate_numpy_array_fn(batch: Sequence[Any], *, collate_fn_map: Collaters | None = None) -> Any:
    """Arrays stacked as tensors."""
    if batch[0].dtype.kind in _TEXT_KINDS:
        raise TypeError(f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found "
                        f"a numpy array of {batch[0].dtype}")
    return collate([as_tensor(array) for array in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch: Sequence[Any], *, collate_fn_map: Collaters | None = None) -> Any:
    """NumPy's numbers as a tensor."""
    return collate_numpy_array_fn(batch, collate_fn_map=collate_fn_map)


def collate_float_fn(batch: Sequence[Any], *, collate_fn_map: Collaters | None = None) -> Tensor:
    """Floats as a tensor of float64."""
    return tensor(list(batch), dtype=float64)


def collate_int_fn(batch: Sequence[Any], *, collate_fn_map: Collaters | None = None) -> Tensor:
    """Ints as a tensor."""
    return tensor(list(batch))


def collate_str_fn(batch: Sequence[Any], *, collate_fn_map: Collaters | None = None) -> Any:
    """Strings as they are."""
    return batch


def _collate_mapping(batch: Sequence[Mapping], collaters: Collaters | None) -> Any:
    joined = {key: collate([sample[key] for sample in batch], collate_fn_map=collaters) for key in batch[0]}
    try:
        return type(batch[0])(joined)  # type: ignore[call-arg]
    except TypeError:  # a mapping that is made in another way
        return joined


def _collate_sequence(batch: Sequence[Sequence], collaters: Collaters | None) -> Any:
    first = batch[0]
    if any(len(sample) != len(first) for sample in batch):
        raise RuntimeError("each element in list of batch should be of equal size, got lengths "
                           f"{sorted({len(sample) for sample in batch})}")
    columns = [collate(column, collate_fn_map=collaters) for column in zip(*batch, strict=True)]
    if isinstance(first, tuple):
        return type(first)(*columns) if hasattr(first, "_fields") else columns
    return type(first)(columns) if type(first) is not list else columns  # type: ignore[call-arg]


default_collate_fn_map: dict[Any, Callable[..., Any]] = {
    Tensor: collate_tensor_fn, np.ndarray: collate_numpy_array_fn, (np.bool_, np.number, np.object_, np.generic): collate_numpy_scalar_fn,
    float: collate_float_fn, int: collate_int_fn, str: collate_str_fn, bytes: collate_str_fn,
}
"""What `default_collate` goes by; libraries add their own classes."""


def collate(batch: Sequence[Any], *, collate_fn_map: Collaters | None = None) -> Any:
    """One batch of samples, joined by what the table says of their class, or else of a class above it; dicts, tuples and lists part
    by part. Raises TypeError for samples of any other kind."""
    first = batch[0]
    if collate_fn_map is not None:
        if type(first) in collate_fn_map:
            return collate_fn_map[type(first)](batch, collate_fn_map=collate_fn_map)
        for kind, join in collate_fn_map.items():
            if isinstance(first, kind):
                return join(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        return _collate_mapping(batch, collate_fn_map)
    if isinstance(first, Sequence):
        return _collate_sequence(batch, collate_fn_map)
    raise TypeError(f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {type(first)}")


def default_collate(batch: Sequence[Any]) -> Any:
    """One batch of `batch`, a list of samples of one structure.

    Tensors, arrays and numbers are stacked along a new first dimension; dicts, tuples and lists are collated part by
    part; strings stay a list. Raises TypeError for samples of any other kind.
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


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
