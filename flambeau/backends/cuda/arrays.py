"""CuPy arrays as tensor memory: views over raw bytes, copies to and from the host."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from ...core.device import device
from ...core.size import memory_order
from ...core.storage import ARRAY_KINDS, ArrayKind


def _flat_bytes(array: Any) -> Any:
    """The memory of a dense CuPy array as 1-D uint8; no copy."""
    if array._c_contiguous:
        return cupy.ndarray((array.nbytes,), np.uint8, array.data)
    order = memory_order(array.strides, array.shape)
    return array.transpose(order).reshape(-1).view(cupy.uint8)


def _view_of(buffer: Any, numpy_dtype: np.dtype, shape: tuple, strides: tuple, offset: int) -> Any:
    size = numpy_dtype.itemsize
    return cupy.ndarray(shape, numpy_dtype, buffer.data + offset * size, tuple([s * size for s in strides]))


def to_gpu(array: np.ndarray, where: device) -> Any:
    """A copy on the GPU with the same memory order."""
    with cupy.cuda.Device(where.index or 0):
        if not array.ndim:
            return cupy.asarray(array)
        order = memory_order(array.strides, array.shape)
        dense = np.ascontiguousarray(array.transpose(order))
        back = np.argsort(order)
        return cupy.asarray(dense).transpose([int(b) for b in back])


def to_host(array: Any, where: device) -> np.ndarray:
    """A copy in host memory with the same memory order."""
    if not array.ndim:
        return array.get()
    order = memory_order(array.strides, array.shape)
    dense = cupy.ascontiguousarray(array.transpose(order)).get()
    return dense.transpose([int(b) for b in np.argsort(order)])


def between_gpus(array: Any, where: device) -> Any:
    """A copy on another GPU."""
    with cupy.cuda.Device(where.index or 0):
        return cupy.array(array, copy=True)


ARRAY_KINDS[cupy.ndarray] = ArrayKind(_flat_bytes, _view_of)
