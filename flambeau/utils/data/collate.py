"""Making one batch of a list of samples."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from ...core.dtypes import float64
from ...core.memory_format import strided
from ...core.tensor import Tensor
from ...ops.creation import as_tensor, from_numpy, tensor
from ...ops.joining import stack

_TEXT_KINDS = "SUO"  # NumPy arrays of bytes, str and objects cannot become tensors
HAS_NUMPY, MP_STATUS_CHECK_INTERVAL = True, 5.0    # for loaders of others: NumPy is there; seconds between looks at a worker
default_collate_err_msg_format = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
np_str_obj_array_pattern = re.compile(r"[SaUO]")

Collaters = Mapping[Any, Callable[..., Any]]
"""By class (or a tuple of classes): what joins samples of it, `join(batch, *, collate_fn_map)`."""


def collate_tensor_fn(batch: Sequence[Any], *, collate_fn_map: Collaters | None = None) -> Tensor:
    """Tensors stacked along a new first dimension."""
    if batch[0].layout is not strided:
        raise RuntimeError("Batches of sparse tensors are not currently supported by the default collate_fn; please provide a custom "
                           "collate_fn to handle them appropriately.")
    return stack(list(batch), 0)


def collate_numpy_array_fn(batch: Sequence[Any], *, collate_fn_map: Collaters | None = None) -> Any:
    """Arrays stacked as tensors."""
    if batch[0].dtype.kind in _TEXT_KINDS:
        raise TypeError(default_collate_err_msg_format.format(f"a numpy array of {batch[0].dtype}"))
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


def _like_mapping(first: Mapping, parts: dict) -> Any:
    """A mapping of the class of `first`, with what else that holds (a default factory, say); a dict where there can be none."""
    try:
        if not isinstance(first, MutableMapping):
            return type(first)(parts)  # type: ignore[call-arg]
        made = copy.copy(first)
        made.update(parts)
        return made
    except TypeError:  # one that is made in another way
        return parts


def _like_sequence(first: Sequence, parts: Iterable) -> Any:
    """A sequence of the class of `first`; a list where there can be none, and of tuples."""
    if isinstance(first, tuple):
        return type(first)(*parts) if hasattr(first, "_fields") else list(parts)
    parts = list(parts)
    try:
        if not isinstance(first, MutableSequence):
            return type(first)(parts)  # type: ignore[call-arg]
        made = copy.copy(first)
        for i, part in enumerate(parts):
            made[i] = part
        return made
    except TypeError:
        return parts


def _collate_sequence(batch: Sequence[Sequence], collaters: Collaters | None) -> Any:
    first = batch[0]
    if any(len(sample) != len(first) for sample in batch):
        raise RuntimeError("each element in list of batch should be of equal size, got lengths "
                           f"{sorted({len(sample) for sample in batch})}")
    return _like_sequence(first, (collate(column, collate_fn_map=collaters) for column in zip(*batch, strict=True)))


default_collate_fn_map: dict[Any, Callable[..., Any]] = {
    Tensor: collate_tensor_fn, np.ndarray: collate_numpy_array_fn, (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
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
        return _like_mapping(first, {key: collate([sample[key] for sample in batch], collate_fn_map=collate_fn_map) for key in first})
    if isinstance(first, Sequence):
        return _collate_sequence(batch, collate_fn_map)
    raise TypeError(default_collate_err_msg_format.format(type(first)))


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
        return _like_mapping(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _like_sequence(data, map(default_convert, data))
    return data


def pinned(data: Any) -> Any:
    """`data` with each tensor in it (and what has a `pin_memory()` of its own) in memory that a GPU reads by itself."""
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, Mapping):
        return _like_mapping(data, {key: pinned(value) for key, value in data.items()})
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return tuple(map(pinned, data)) if type(data) is tuple else _like_sequence(data, map(pinned, data))
    return data
