"""CuPy arrays as tensor memory: views over raw bytes, copies to and from the host."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import cupy
import numpy as np

from ... import _C
from ...core.device import device
from ...core.size import memory_order
from ...core.storage import ARRAY_KINDS, ArrayKind
from . import recording, strays
from .cubins import stream_pointer


def _flat_bytes(array: Any) -> Any:
    """The memory that a CuPy array spans as 1-D uint8; no copy."""
    if array.size and min(array.strides, default=0) < 0:
        raise ValueError(f"an array with negative strides is not supported: strides {array.strides}; make a copy with array.copy()")
    span = sum((n - 1) * s for n, s in zip(array.shape, array.strides)) + array.itemsize if array.size else 0
    return cupy.ndarray((span,), np.uint8, array.data)


def _view_of(buffer: Any, numpy_dtype: np.dtype, shape: tuple, strides: tuple, offset: int) -> Any:
    size = numpy_dtype.itemsize
    data = buffer.data + offset * size if buffer.size else buffer.data      # of no memory there is no place
    return cupy.ndarray(shape, numpy_dtype, data, tuple([s * size for s in strides]))


def copied(array: np.ndarray) -> Any:
    """A contiguous array on the current GPU; in a CUDA graph that is being recorded, copied at each replay."""
    return recording.under_way[-1].upload(array) if recording.under_way else cupy.asarray(array)


def elsewhere(index: int) -> Any:
    """A block in which GPU `index` is this thread's current one; None where it is already."""
    return None if cupy.cuda.runtime.getDevice() == index else cupy.cuda.Device(index)


def to_gpu(array: np.ndarray, where: device, non_blocking: bool = False) -> Any:
    """A copy on the GPU with the same memory order. With `non_blocking`, a copy of pinned memory is only queued."""
    with cupy.cuda.Device(where.index or 0):
        if not array.ndim:
            return copied(array)
        order = memory_order(array.strides, array.shape)
        dense = np.ascontiguousarray(array.transpose(order))
        back = [int(b) for b in np.argsort(order)]
        if not (non_blocking and dense.size and is_pinned(dense)):
            return copied(dense).transpose(back)
        out, stream = cupy.ndarray(dense.shape, dense.dtype), cupy.cuda.get_current_stream()
        out.data.copy_from_host_async(dense.ctypes.data, dense.nbytes, stream)
        _keep_until(stream, dense)
        return out.transpose(back)


def of_others(array: Any, where: device, non_blocking: bool = False) -> Any:
    """The memory of another library's array on a GPU, through DLPack or the CUDA array interface."""
    with cupy.cuda.Device(where.index or 0):
        return cupy.from_dlpack(array) if hasattr(array, "__dlpack__") else cupy.asarray(array)


def to_host(array: Any, where: device, non_blocking: bool = False) -> np.ndarray:
    """A copy in host memory with the same memory order. With `non_blocking` it is pinned, and the copy is only queued."""
    if not array.ndim:
        return _waited(array.get())
    with elsewhere(array.data.device_id) or nullcontext():
        return _dense_to_host(array, non_blocking)


def _dense_to_host(array: Any, non_blocking: bool) -> np.ndarray:
    order = memory_order(array.strides, array.shape)
    back = [int(b) for b in np.argsort(order)]
    dense = cupy.ascontiguousarray(array.transpose(order))
    if not non_blocking or not dense.size:
        return _waited(dense.get()).transpose(back)
    out = _pinned(dense.shape, dense.dtype)
    stream = cupy.cuda.get_current_stream()
    dense.data.copy_to_host_async(out.ctypes.data, dense.nbytes, stream)
    _keep_until(stream, out)
    return out.transpose(back)


def _waited(array: np.ndarray) -> np.ndarray:
    strays.check()
    return array


def between_gpus(array: Any, where: device, non_blocking: bool = False) -> Any:
    """A copy on another GPU."""
    with cupy.cuda.Device(where.index or 0):
        return cupy.array(array, copy=True)


_in_flight: list[tuple[Any, np.ndarray]] = []     # marks in streams, and host memory that is read or written before them


def _keep_until(stream: Any, array: np.ndarray) -> None:
    """Keep host memory for what is queued on `stream` now: freed, it would be handed out again at once."""
    while _in_flight and _in_flight[0][0].done:
        _in_flight.pop(0)
    _in_flight.append((stream.record(), array))


def _pinned(shape: tuple, kind: Any) -> np.ndarray:
    """An array in pinned memory, which lives as long as the array and its views."""
    count = math.prod(shape)
    memory = cupy.cuda.alloc_pinned_memory(max(count, 1) * np.dtype(kind).itemsize)
    return np.frombuffer(memory, kind, count).reshape(shape)


def pin(array: np.ndarray) -> np.ndarray:
    """A copy in pinned memory with the same memory order."""
    order = memory_order(array.strides, array.shape)
    source = array.transpose(order)
    out = _pinned(source.shape, source.dtype)
    out[...] = source
    return out.transpose([int(b) for b in np.argsort(order)])


def is_pinned(array: np.ndarray) -> bool:
    """Whether an array lies in memory that the driver has pinned."""
    try:
        facts = cupy.cuda.runtime.pointerGetAttributes(array.ctypes.data)
    except cupy.cuda.runtime.CUDARuntimeError:
        return False
    return bool(getattr(facts, "type", None) == _PINNED)


_PINNED = 1     # cudaMemoryTypeHost
ARRAY_KINDS[cupy.ndarray] = ArrayKind(_flat_bytes, _view_of)
_C.know_gpu_arrays(cupy.ndarray, cupy.cuda.runtime.getDevice, stream_pointer(), cupy.cuda.alloc)
