"""The memory behind tensors, as bytes (`UntypedStorage`) and as elements of a dtype (`TypedStorage`, `FloatStorage` and its like)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core import shared
from ..core.device import device as device_of
from ..core.dtypes import dtype as dtype_type
from ..core.dtypes import dtype_of_name, int64, uint8
from ..core.storage import Storage
from ..core.tensor import Layout, Tensor, fake, tensor_over
from .creation import from_data
from .promotion import default_dtype

CLASSES = {
    "float64": "DoubleStorage", "float32": "FloatStorage", "float16": "HalfStorage", "bfloat16": "BFloat16Storage",
    "int64": "LongStorage", "int32": "IntStorage", "int16": "ShortStorage", "int8": "CharStorage",
    "uint8": "ByteStorage", "bool": "BoolStorage", "complex64": "ComplexFloatStorage",
    "complex128": "ComplexDoubleStorage",
}  # fmt: skip
"""dtype name -> the class of its storages; the others have none."""


class UntypedStorage:
    """The bytes that a tensor and its views share; equal and hashed by that memory. `UntypedStorage(n)`: n fresh bytes."""

    is_sparse = is_sparse_csr = is_hpu = False
    filename = None

    def __init__(self, storage: Storage | int | Sequence[int] = 0, *, device: Any = None):
        where = device_of("cpu" if device is None else device)
        if isinstance(storage, Storage):
            self._storage = storage.memory
        elif isinstance(storage, int):
            self._storage = _fresh(storage, where)
        else:
            self._storage = from_data(storage, uint8, where)._storage.memory

    # -- where from -----------------------------------------------------------------------------------------------
    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The first `nbytes` of a file, mapped into memory; writes reach the file if `shared`."""
        if not nbytes:
            return cls(0)
        if shared:
            with open(filename, "ab") as file:
                file.truncate(max(nbytes, file.seek(0, 2)))
        mapped = np.memmap(filename, np.uint8, "r+" if shared else "c", shape=(nbytes,))
        made = cls(Storage(mapped.view(np.ndarray), nbytes))
        made.filename = str(filename)  # type: ignore[assignment]
        return made

    @classmethod
    def from_buffer(cls, buffer: Any, byte_order: str = "native", count: int = -1, offset: int = 0, *,
                    dtype: dtype_type = uint8) -> UntypedStorage:
        """A copy of `count` elements of a buffer (-1: all of it) from the byte `offset` on, in this machine's byte order."""
        return UntypedStorage(_storage_of(_elements_of(buffer, byte_order, count, offset, dtype)))

    @classmethod
    def _new_shared(cls, size: int, *, device: Any = "cpu") -> UntypedStorage:
        """`size` fresh bytes in shared memory."""
        return cls(size, device=device).share_memory_()

    # -- what it is -----------------------------------------------------------------------------------------------
    def _tensor(self) -> Tensor:
        """What it holds, as a tensor that shares the memory and knows nothing of autograd."""
        return self.elements(uint8)

    def _like(self, tensor: Tensor) -> UntypedStorage:
        """A storage of this kind over a tensor's memory."""
        return UntypedStorage(_storage_of(tensor))

    def elements(self, kind: Any) -> Tensor:
        """A tensor of this dtype over as many elements as there are; knows nothing of autograd."""
        return tensor_over(self._storage, kind, Layout((self._storage.nbytes // kind.itemsize,), (1,), 0))

    def read_as(self, kind: Any) -> Tensor:
        """The elements that `torch.tensor(storage, dtype=kind)` copies; of int64 if no dtype is given."""
        return self.elements(kind or int64)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The bytes, shared."""
        return np.array(self._storage.buffer, dtype=dtype, copy=copy)

    @property
    def device(self) -> Any:
        """Where the bytes are."""
        return self._storage.device

    @property
    def is_cuda(self) -> bool:
        """Whether that is a GPU."""
        return self.device.type == "cuda"

    def get_device(self) -> int:
        """The number of the GPU; -1 for the CPU."""
        return self.device.index if self.is_cuda else -1

    def nbytes(self) -> int:
        """How many bytes there are."""
        return self._storage.nbytes

    def size(self) -> int:
        """How many elements there are."""
        return self._storage.nbytes // self.element_size()

    def __len__(self) -> int:
        return self.size()

    def element_size(self) -> int:
        """1: bytes."""
        return 1

    def data_ptr(self) -> int:
        """Address of the first byte; 0 without memory."""
        buffer = self._storage.buffer
        return 0 if buffer is None else buffer.__array_interface__["data"][0]

    def untyped(self) -> UntypedStorage:
        """As bytes: itself."""
        return self

    def resizable(self) -> bool:
        """Whether `resize_` may change the size."""
        return not (self.device.type == "cpu" and self.is_shared())

    def is_pinned(self, device: Any = "cuda") -> bool:
        """Whether the memory is page-locked for transfers to a GPU."""
        return self._tensor().is_pinned(device)

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of its class; with `dtype` (a dtype or such a name) a storage of that kind with the same elements."""
        if dtype is None:
            return _type_name(self)
        return _typed(self._tensor().to(_kind_named(dtype), non_blocking=non_blocking))

    # -- elements -------------------------------------------------------------------------------------------------
    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            part = self._storage.buffer[i]
            return UntypedStorage(Storage(part, part.nbytes, self.device))
        return self._tensor()[self._within(i)].item()

    def __setitem__(self, i: Any, value: Any) -> None:
        if isinstance(value, UntypedStorage):
            value = value._tensor()
        self._tensor()[i if isinstance(i, slice) else self._within(i)] = value

    def _within(self, i: Any) -> int:
        if not isinstance(i, int):
            raise TypeError(f"can't index a {type(self).__name__} with {type(i).__name__}")
        if not -self.size() <= i < self.size():
            raise IndexError(f"index {i} out of range for storage of size {self.size()}")
        return i % self.size()

    def tolist(self) -> list:
        """The elements as numbers."""
        return self._tensor().tolist()

    def fill_(self, value: Any) -> UntypedStorage:
        """Every element set to `value`."""
        self._tensor().fill_(value)
        return self

    def copy_(self, source: UntypedStorage, non_blocking: bool | None = None) -> UntypedStorage:
        """The bytes of a storage of the same size."""
        if source.nbytes() != self.nbytes():
            raise RuntimeError(f"size does not match, self was {self.nbytes()} bytes but src was {source.nbytes()} bytes")
        self.elements(uint8).copy_(source.elements(uint8), bool(non_blocking))
        return self

    def byteswap(self, dtype: Any) -> None:
        """The bytes of each element of `dtype` the other way round, in place."""
        complex_parts = 2 if dtype.is_complex else 1
        whole = self._storage.nbytes // dtype.itemsize * dtype.itemsize
        bytes_ = self._storage.buffer[:whole].reshape(-1, dtype.itemsize // complex_parts)
        bytes_[:] = bytes_[:, ::-1].copy()
        self._storage.version += 1

    # -- copies ---------------------------------------------------------------------------------------------------
    def clone(self) -> Any:
        """A copy."""
        return self._like(self._tensor().clone())

    def __copy__(self) -> Any:
        return self.clone()

    def new(self) -> Any:
        """An empty storage of this kind, on this device."""
        return self._like(self._tensor().new_empty((0,)))

    def to(self, *, device: Any, non_blocking: bool = False) -> Any:
        """A copy on `device`; itself if it is there."""
        moved = self._tensor().to(device_of(device), non_blocking=non_blocking)
        return self if moved.device == self.device else self._like(moved)

    def cpu(self) -> Any:
        """A copy in host memory; itself if it is there."""
        return self.to(device="cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Any:
        """A copy on a GPU; itself if it is there."""
        return self.to(device="cuda" if device is None else device_of("cuda", device) if isinstance(device, int) else device,
                       non_blocking=non_blocking)

    def pin_memory(self, device: Any = "cuda") -> Any:
        """A copy in page-locked memory."""
        return self._like(self._tensor().pin_memory(device))

    # -- memory ---------------------------------------------------------------------------------------------------
    def share_memory_(self) -> Any:
        """Move the bytes to where other processes can map them; see Tensor.share_memory_."""
        shared.share(self._storage)
        return self

    def is_shared(self) -> bool:
        """Whether the bytes are shared between processes."""
        return shared.is_shared(self._storage)

    def resize_(self, nbytes: int) -> UntypedStorage:
        """Another size; tensors made before keep looking at the old bytes."""
        if not self.resizable():
            raise RuntimeError("Trying to resize storage that is not resizable: it is shared with other processes")
        old = self._storage.buffer
        fresh = np.zeros_like(old, shape=nbytes) if old is not None else np.zeros(nbytes, np.uint8)
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
        return f" {self._shown()}\n[torch.storage.{type(self).__name__}(device={self.device}) of size {self.size()}]"

    def _shown(self) -> str:
        """Its elements, a line for each."""
        return "\n ".join(map(str, self.tolist())) if self._storage.buffer is not None else "..."


class _Kinds(type):
    """Of TypedStorage: `isinstance` asks the dtype too where a class names one."""

    dtype: Any

    def __instancecheck__(cls, instance: Any) -> bool:
        kind = vars(cls).get("dtype")
        if not isinstance(kind, dtype_type):
            return super().__instancecheck__(instance)
        return isinstance(instance, TypedStorage) and instance.dtype is kind and instance.is_cuda == (cls.__module__ == "torch.cuda")


class TypedStorage(UntypedStorage, metaclass=_Kinds):
    """The same, counted in elements of a dtype: of a size, with a copy of data, or over `wrap_storage`."""

    dtype: Any = None

    def __init__(self, *args: Any, wrap_storage: UntypedStorage | None = None, dtype: Any = None, device: Any = None,
                 _internal: bool = False):
        del _internal  # torch's mark that no warning is wanted, and none is given
        self.dtype = dtype if isinstance(dtype, dtype_type) else default_dtype()
        if wrap_storage is not None:
            if args or not isinstance(wrap_storage, UntypedStorage):
                raise RuntimeError("expected one argument: wrap_storage=UntypedStorage, beside dtype=")
            super().__init__(wrap_storage._storage)
        elif len(args) > 1:
            raise RuntimeError(f"expected a size or a sequence, got {len(args)} arguments")
        elif args and not isinstance(args[0], int):
            super().__init__(_storage_of(from_data(args[0], self.dtype, device_of(device or "cpu"))))
        else:
            super().__init__((args[0] if args else 0) * self.dtype.itemsize, device=device)

    @classmethod
    def from_buffer(cls, buffer: Any, byte_order: str = "native", count: int = -1, offset: int = 0, *, dtype: Any = None) -> TypedStorage:
        """A copy of `count` elements of a buffer (-1: all of it) from the byte `offset` on, in this machine's byte order."""
        return _typed(_elements_of(buffer, byte_order, count, offset, dtype or cls.dtype or default_dtype()))

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, size: int = 0) -> TypedStorage:
        """The first `size` elements of a file, mapped into memory; writes reach the file if `shared`."""
        kind = cls.dtype or default_dtype()
        mapped = UntypedStorage.from_file(filename, shared, size * kind.itemsize)
        return TypedStorage(wrap_storage=mapped, dtype=kind)

    def _tensor(self) -> Tensor:
        return self.elements(self.dtype)

    def read_as(self, kind: Any) -> Tensor:
        """The elements, whose dtype `kind` has to be."""
        if kind not in (None, self.dtype):
            raise RuntimeError(f"Expected a storage of {kind} or an UntypedStorage, but got one of {self.dtype}")
        return self._tensor()

    @property
    def _untyped_storage(self) -> UntypedStorage:
        return self.untyped()

    def _like(self, tensor: Tensor) -> TypedStorage:
        return _typed(tensor)

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def untyped(self) -> UntypedStorage:
        """As bytes."""
        return UntypedStorage(self._storage)

    def pickle_storage_type(self) -> str:
        """The class that a pickle names."""
        return CLASSES[self.dtype.name]

    def resize_(self, size: int) -> TypedStorage:
        """Another number of elements; tensors made before keep looking at the old memory."""
        super().resize_(size * self.dtype.itemsize)
        return self

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        return super().__getitem__(i)

    def __repr__(self) -> str:
        return f" {self._shown()}\n[torch.storage.TypedStorage(dtype={self.dtype}, device={self.device}) of size {self.size()}]"


def _fresh(nbytes: int, where: Any) -> Storage:
    if where.type == "cpu":
        return Storage(np.zeros(nbytes, np.uint8), nbytes)
    if where.type == "meta":
        return fake((nbytes,), uint8, where)._storage
    return from_data(np.zeros(nbytes, np.uint8), uint8, where)._storage.memory


def _storage_of(tensor: Tensor) -> Storage:
    return tensor._storage.memory


def _typed(tensor: Tensor) -> TypedStorage:
    return TypedStorage(wrap_storage=UntypedStorage(_storage_of(tensor)), dtype=tensor.dtype)


def _elements_of(buffer: Any, byte_order: str, count: int, offset: int, kind: dtype_type) -> Tensor:
    if byte_order not in ("native", "little", "big"):
        raise ValueError(f"byte_order should be 'native', 'little' or 'big', got {byte_order!r}")
    whole = memoryview(buffer).cast("B")
    if count < 0 and (len(whole) - offset) % kind.itemsize:
        raise ValueError(f"buffer size ({len(whole) - offset}) must be a multiple of element size ({kind.itemsize})")
    nbytes = len(whole) - offset if count < 0 else count * kind.itemsize
    if not 0 <= offset <= len(whole) - nbytes:
        raise ValueError(f"{count} elements of {kind.itemsize} bytes from byte {offset} on do not fit a buffer of {len(whole)} bytes")
    made = UntypedStorage(Storage(np.frombuffer(whole[offset:offset + nbytes], np.uint8).copy(), nbytes))
    if byte_order not in ("native", sys.byteorder):
        made.byteswap(kind)
    return made.elements(kind)


def _type_name(storage: UntypedStorage) -> str:
    name = CLASSES.get(storage.dtype.name, "TypedStorage") if isinstance(storage, TypedStorage) else "storage.UntypedStorage"
    return f"torch.{'cuda.' if storage.is_cuda else ''}{name}"


def _kind_named(wanted: Any) -> dtype_type:
    if isinstance(wanted, dtype_type):
        return wanted
    kind = getattr(wanted, "dtype", None)  # a class of storages
    if isinstance(kind, dtype_type):
        return kind
    named = next((name for name, cls in CLASSES.items() if cls == str(wanted).rpartition(".")[2]), None)
    if named is None:
        raise ValueError(f"{wanted!r} names no type of storages")
    return dtype_of_name(named)


def _as(kind: dtype_type) -> Any:
    def convert(self: UntypedStorage) -> TypedStorage:
        return _typed(self._tensor().to(kind))

    convert.__doc__ = f"The elements as {kind}, copied if they are not that."
    return convert


for _name, _method in {"double": "float64", "float": "float32", "half": "float16", "long": "int64", "int": "int32", "short": "int16",
                       "char": "int8", "byte": "uint8", "complex_double": "complex128", "complex_float": "complex64",
                       "bfloat16": "bfloat16", "bool": "bool"}.items():
    setattr(UntypedStorage, _name, _as(dtype_of_name(_method)))


def _class(name: str, kind: dtype_type, module: str) -> Any:
    where = "cuda" if module == "torch.cuda" else None

    def new(cls: Any, *args: Any, wrap_storage: UntypedStorage | None = None, device: Any = where) -> TypedStorage:
        return TypedStorage(*args, wrap_storage=wrap_storage, dtype=kind, device=device)

    return _Kinds(name, (TypedStorage,), {"dtype": kind, "__new__": new, "__module__": module, "__qualname__": name,
                                                      "__doc__": f"Storages of {kind}."})


TYPED_STORAGES, CUDA_STORAGES = ({_name: _class(_name, dtype_of_name(_kind), _module) for _kind, _name in CLASSES.items()}
                                 for _module in ("torch", "torch.cuda"))
"""`FloatStorage` and its like: constructors, and types for isinstance: a TypedStorage of that dtype is an instance of them."""
