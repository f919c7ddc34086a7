"""What code written for PyTorch asks of a tensor beside its elements: layouts, storages, kinds that do not exist here."""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..core import shared
from ..core.dtypes import complex64
from ..core.memory_format import strided
from ..core.size import contiguous_strides
from ..core.storage import Storage
from ..core.tensor import Layout, Tensor, from_array, tensor_over
from . import prims
from .conversions import _set_data
from .creation import from_data, holds_data
from .registry import method, operator
from .views import _ints
from .writing import write

for _name in ("is_sparse", "is_sparse_csr", "is_quantized", "is_mkldnn", "is_nested", "is_mps", "is_xpu", "is_xla", "is_ipu",
              "is_maia", "is_mtia", "is_vulkan"):
    setattr(Tensor, _name, False)
for _name, _value in (("layout", strided), ("names", property(lambda self: (None,) * self.ndim)), ("name", None)):
    setattr(Tensor, _name, _value)


def _answer(value: Any, doc: str) -> Callable:
    def fn(self: Tensor) -> Any:
        return value
    fn.__doc__ = doc
    return fn


for _name in ("is_conj", "is_neg", "is_distributed"):
    method(_name)(_answer(False, "False: no tensor here is of that kind."))


@method("dequantize")
def _dequantize(self: Tensor) -> Tensor:
    """The tensor itself: none is quantized here."""
    return self


@method("is_shared")
def _is_shared(self: Tensor) -> bool:
    """Whether the memory is shared between processes: what one writes, the others see."""
    return shared.is_shared(self._storage.memory)


@method("share_memory_")
def _share_memory(self: Tensor) -> Tensor:
    """Move the memory to where other processes can map it: forked ones see what is written, and so does who receives the tensor
    through a queue or pipe, or as an argument. All tensors over it follow. A GPU's memory is left as it is."""
    shared.share_tensor(self)
    return self


# What a queue of a GPU may still read though nobody else holds it: (mark behind the work, memory), oldest first.
_in_use: deque[tuple[Any, Any]] = deque()


def _until_done(stream: Any, memory: Any) -> None:
    """The memory of a dead tensor goes back to the pool when the work that `stream` has now is done and the next one dies."""
    while _in_use and _in_use[0][0].done:
        _in_use.popleft()
    _in_use.append((stream.record(), memory))


@method("record_stream")
def _record_stream(self: Tensor, stream: Any) -> None:
    """Say that `stream`, which isn't the one that made the tensor, works with it: its memory is not used for another tensor before
    the work queued there when the tensor dies is done. Nothing is to be done for a tensor on the CPU, whose work is never queued."""
    if self.device.type == "cpu":
        return
    if not hasattr(stream, "_stream"):
        raise RuntimeError(f"record_stream() expects a torch.cuda.Stream, got {type(stream).__name__}")
    weakref.finalize(self._storage, _until_done, stream._stream, self._storage.buffer).atexit = False


@method("dim_order")
def _dim_order(self: Tensor) -> tuple[int, ...]:
    """Dimensions from the outermost in memory to the innermost."""
    return tuple(sorted(range(self.ndim), key=lambda d: (-self.stride(d), d)))


@method("is_set_to")
def _is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both look at the same memory in the same way."""
    return self._storage.memory is tensor._storage.memory and self._layout == tensor._layout


@operator
def _has_compatible_shallow_copy_type(input: Tensor, from_: Tensor) -> bool:
    """Whether one may take the other's memory as it is: both are dense, or of one class."""
    return type(input) is type(from_) or all(isinstance(x, Tensor) and type(x)._data is Tensor._data for x in (input, from_))


@method("const_data_ptr")
def _const_data_ptr(self: Tensor) -> int:
    """Address of the first element."""
    return self.data_ptr()


@method("chalf")
def _chalf(self: Tensor) -> Tensor:
    """The narrowest complex dtype there is: complex64."""
    return self.to(complex64)


@method("new")
def _new(self: Tensor, *args: Any) -> Tensor:
    """A tensor of this dtype: of a shape, or with a copy of data (the constructor of old)."""
    if holds_data(args):
        return from_data(args[0], self.dtype, self.device)
    return self.new_empty(*(args or ((0,),)))


def _written(self: Tensor, values: Iterator) -> Tensor:
    array = np.fromiter(values, self.dtype.numpy, self.numel()).reshape(tuple(self.shape))
    write(self, from_array(array, self.dtype))
    return self


@method("apply_")
def _apply(self: Tensor, callable: Callable) -> Tensor:
    """Each element replaced by callable(element), in Python."""
    if self.requires_grad:
        raise TypeError("apply_() on a tensor that requires grad; use it under no_grad on a detached tensor")
    return _written(self, (callable(v) for v in self.detach().reshape(-1).tolist()))


@method("map_")
def _map(self: Tensor, other: Tensor, callable: Callable) -> Tensor:
    """Each element replaced by callable(element, other's element), in Python."""
    theirs = other.expand(*self.shape).reshape(-1).tolist()
    return _written(self, (callable(a, b) for a, b in zip(self.detach().reshape(-1).tolist(), theirs)))


@method("map2_")
def _map2(self: Tensor, x: Tensor, y: Tensor, callable: Callable) -> Tensor:
    """Each element replaced by callable(element, x's element, y's element), in Python."""
    others = (t.expand(*self.shape).reshape(-1).tolist() for t in (x, y))
    return _written(self, map(callable, self.detach().reshape(-1).tolist(), *others))


# -- storages -----------------------------------------------------------------------------------------------------
class UntypedStorage:
    """The bytes that a tensor and its views share; equal and hashed by that memory. `UntypedStorage(n)`: n fresh bytes."""

    def __init__(self, storage: Storage | int = 0):
        self._storage = storage.memory if isinstance(storage, Storage) else Storage(np.zeros(storage, np.uint8), storage)

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The first `nbytes` of a file, mapped into memory; writes reach the file if `shared`."""
        if not nbytes:
            return cls(0)
        mapped = np.memmap(filename, np.uint8, "r+" if shared else "c", shape=(nbytes,))
        return cls(Storage(mapped.view(np.ndarray), nbytes))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The bytes, shared."""
        return np.array(self._storage.buffer, dtype=dtype, copy=copy)

    @property
    def device(self) -> Any:
        """Where the bytes are."""
        return self._storage.device

    def nbytes(self) -> int:
        """How many bytes there are."""
        return self._storage.nbytes

    size = __len__ = nbytes

    def data_ptr(self) -> int:
        """Address of the first byte; 0 without memory."""
        buffer = self._storage.buffer
        return 0 if buffer is None else buffer.__array_interface__["data"][0]

    def elements(self, kind: Any) -> Tensor:
        """A tensor of this dtype over as many elements as there are; knows nothing of autograd."""
        return tensor_over(self._storage, kind, Layout((self._storage.nbytes // kind.itemsize,), (1,), 0))

    def untyped(self) -> UntypedStorage:
        """As bytes: itself."""
        return self

    def element_size(self) -> int:
        """1: bytes."""
        return 1

    def __getitem__(self, i: Any) -> Any:
        part = self._storage.buffer[i]
        return UntypedStorage(Storage(part, part.nbytes, self.device)) if isinstance(i, slice) else int(part)

    def tolist(self) -> list[int]:
        """The bytes as numbers."""
        return self._storage.buffer.tolist()

    @classmethod
    def _new_shared(cls, size: int, *, device: Any = "cpu") -> UntypedStorage:
        """`size` fresh bytes in shared memory."""
        return cls(size).share_memory_()

    def share_memory_(self) -> UntypedStorage:
        """Move the bytes to where other processes can map them; see Tensor.share_memory_."""
        shared.share(self._storage)
        return self

    def is_shared(self) -> bool:
        """Whether the bytes are shared between processes."""
        return shared.is_shared(self._storage)

    def resize_(self, nbytes: int) -> UntypedStorage:
        """Another size; tensors made before keep looking at the old bytes."""
        if self._storage.device.type == "cpu" and self.is_shared():
            raise RuntimeError("Trying to resize storage that is not resizable: it is shared with other processes")
        old = self._storage.buffer
        fresh = np.zeros(nbytes, np.uint8)
        if old is not None:
            fresh[:min(nbytes, len(old))] = old[:nbytes]
        self._storage.buffer, self._storage.nbytes = fresh, nbytes
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and self._storage is other._storage

    def __hash__(self) -> int:
        return id(self._storage)

    _cdata = property(__hash__)

    def __repr__(self) -> str:
        return f"[torch.storage.UntypedStorage(device={self.device}) of size {self.nbytes()}]"


class TypedStorage(UntypedStorage):
    """The same, counted in elements of a dtype."""

    def __init__(self, storage: Storage, kind: Any):
        super().__init__(storage)
        self.dtype = kind

    def size(self) -> int:
        """How many elements fit."""
        return self._storage.nbytes // self.dtype.itemsize

    __len__ = size

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def untyped(self) -> UntypedStorage:
        """As bytes."""
        return UntypedStorage(self._storage)

    def _elements(self) -> np.ndarray:
        count = math.floor(self._storage.nbytes / self.dtype.itemsize)
        return self._storage.buffer[:count * self.dtype.itemsize].view(self.dtype.numpy)

    def __getitem__(self, i: Any) -> Any:
        part = self._elements()[i]
        return part.item() if np.isscalar(part) or not getattr(part, "ndim", 0) else part.tolist()

    def tolist(self) -> list:
        """The elements as numbers."""
        return self._elements().tolist()


@method("set_")
def set_(self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """Look at the memory of `source` (a tensor or a storage; nothing: an empty one) instead of one's own."""
    if source is None:
        source = self.new_empty((0,))
    if isinstance(source, UntypedStorage):
        source = source.elements(self.dtype)
    if not isinstance(source, Tensor):
        raise TypeError(f"set_(): argument 'source' must be Tensor or a storage, not {type(source).__name__}")
    if source.dtype is not self.dtype:
        raise RuntimeError(f"Could not set tensor of type {self.dtype} to a tensor of type {source.dtype}")
    if size is not None:
        shape = _ints((size,))
        source = prims.as_strided(source, shape, contiguous_strides(shape) if stride is None else _ints((stride,)), storage_offset)
    _set_data(self, source)
    return self


@method("untyped_storage")
def _untyped_storage(self: Tensor) -> UntypedStorage:
    """The bytes this tensor looks into."""
    return UntypedStorage(self._storage)


@method("storage", "_typed_storage")
def _typed_storage(self: Tensor) -> TypedStorage:
    """The bytes this tensor looks into, as elements of its dtype."""
    return TypedStorage(self._storage, self.dtype)


