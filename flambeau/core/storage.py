"""Storage: a block of bytes that tensors look into, and its version counter."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .device import CPU, device
from .dispatch import state
from .size import extent, memory_order


class Storage:
    """Bytes shared by a tensor and its views. `version` counts in-place writes.

    `buffer` is a 1-D uint8 array, or None where there is no memory (fake and meta tensors). It may be given as a dense array
    that lies at its beginning: most storages exist for the sake of the version alone. `inference`: it was made in inference
    mode (by default, if that is on now). `uncounted` counts the writes that autograd isn't told of. `asked_where`: of a fake
    tensor's, that a program depends on where in it the tensor begins.
    """

    __slots__ = ("__weakref__", "_array", "_buffer", "asked_where", "device", "inference", "nbytes", "uncounted", "version")
    asked_where: bool

    def __init__(self, buffer: Any, nbytes: Any, where: device = CPU, array: Any = None, inference: bool | None = None):
        self.inference = state.inference if inference is None else inference
        self._buffer, self._array, self.nbytes, self.device, self.version = buffer, array, nbytes, where, 0
        self.uncounted = 0

    @property
    def buffer(self) -> Any:
        if self._buffer is None and self._array is not None:
            self._buffer = flat_bytes(self._array)
        return self._buffer

    @buffer.setter
    def buffer(self, buffer: Any) -> None:
        self._buffer, self._array = buffer, None

    @property
    def memory(self) -> Storage:
        """What stands for the bytes: of two storages of the same bytes, the one that was there first."""
        return self

    @property
    def writes(self) -> int:
        """All writes in place, those through `Tensor.data` too."""
        return self.memory.version + self.memory.uncounted

    def __reduce__(self) -> tuple:
        """Pickled as its bytes: the copy is made by whoever loads it, in the mode that is on there."""
        return Storage, (self.buffer, self.nbytes, self.device)


class Aside(Storage):
    """The bytes of a storage as `Tensor.data` shows them: with a version of its own, so that what autograd saved may be written to."""

    __slots__ = ("of",)

    def __init__(self, storage: Storage):
        super().__init__(storage._buffer, storage.nbytes, storage.device, storage._array, storage.inference)
        self.of = storage

    @property
    def memory(self) -> Storage:
        """The storage that stands for the bytes."""
        return self.of.memory


class Examples(Storage):
    """The memory of one example of a batch: there is none of its own. `values` is the batch, along whose first dimension the
    examples lie, and `level` the vmap that looks at them one by one."""

    __slots__ = ("level", "values")

    def __init__(self, values: Any, level: Any):
        self.values, self.level = values, level
        super().__init__(None, None, values.device)

    @property
    def version(self) -> int:
        """How often the batch was written in place."""
        return self.values._writes

    @version.setter
    def version(self, count: int) -> None:
        """The batch counts."""


class Unasked:
    """Stands for the storage of an inference tensor that nobody has asked for yet."""

    version, writes, inference = 0, 0, True


UNASKED = Unasked()


# What versions cannot tell of: storages whose memory other libraries were given, and how many recorded programs were replayed.
shared: weakref.WeakSet[Storage] = weakref.WeakSet()
unseen_writes = [0]


class ArrayKind(NamedTuple):
    """How to reach the memory of one library's arrays (NumPy's are built in; a backend registers its own)."""

    flat_bytes: Callable[[Any], Any]
    view_of: Callable[[Any, np.dtype, tuple, tuple, int], Any]


ARRAY_KINDS: dict[type, ArrayKind] = {}


def flat_bytes(array: Any) -> Any:
    """The memory of a dense array (in any dimension order) as a 1-D uint8 array; no copy."""
    if type(array) is not np.ndarray and type(array) in ARRAY_KINDS:
        return ARRAY_KINDS[type(array)].flat_bytes(array)
    if not array.flags.c_contiguous:
        order = memory_order(array.strides, array.shape)
        array = array.transpose(order)
        if not array.flags.c_contiguous:
            return _spanned_bytes(array)
    return array.reshape(-1).view(np.uint8)


class _Span:
    """Exposes `nbytes` bytes at an array's first element through the array interface; keeps the array alive."""

    def __init__(self, array: np.ndarray, nbytes: int):
        self.array = array
        self.__array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
            "data": (array.__array_interface__["data"][0], not array.flags.writeable),
        }


def _spanned_bytes(array: np.ndarray) -> np.ndarray:
    if array.size == 0:
        return np.empty(0, np.uint8)
    if min(array.strides) < 0:
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative strides "
            "are not currently supported. (You can probably work around this by making a copy of your array with array.copy().)"
        )
    return np.asarray(_Span(array, extent(array.shape, array.strides) - 1 + array.itemsize))


def view_of(buffer: Any, numpy_dtype: np.dtype, shape: tuple, strides: tuple, offset: int) -> Any:
    """The array over `buffer` with this layout (strides and offset in elements)."""
    if type(buffer) is not np.ndarray:
        return ARRAY_KINDS[type(buffer)].view_of(buffer, numpy_dtype, shape, strides, offset)
    if 0 in shape:
        return np.empty(shape, numpy_dtype)
    size = numpy_dtype.itemsize
    if not buffer.nbytes:  # NumPy takes that for a buffer of unknown size
        raise ValueError(f"a view of shape {list(shape)} into a storage of 0 bytes")
    return np.ndarray(shape, numpy_dtype, buffer, offset * size, [s * size for s in strides])
