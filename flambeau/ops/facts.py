"""What code written for PyTorch asks of a tensor beside its elements: layouts, storages, kinds that do not exist here."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..core import shared
from ..core.dtypes import complex64
from ..core.memory_format import memory_format, preserve_format, strided
from ..core.size import contiguous_strides, elementwise_order
from ..core.tensor import Tensor, from_array
from . import prims
from .conversions import _set_data
from .creation import from_data, holds_data
from .ints import as_ints
from .primitives import waiting
from .registry import handle_torch_function, has_torch_function, method, operator
from .storages import CLASSES, TYPED_STORAGES, TypedStorage, UntypedStorage
from .writing import write


def _answer(value: Any, doc: str) -> Callable:
    def fn(self: Tensor) -> Any:
        return value
    fn.__doc__ = doc
    return fn


def _never(self: Tensor) -> bool:
    return False


for _name in ("is_sparse", "is_sparse_csr", "is_quantized", "is_mkldnn", "is_nested", "is_mps", "is_xpu", "is_xla", "is_ipu",
              "is_maia", "is_mtia", "is_vulkan"):
    setattr(Tensor, _name, property(_never, doc="False: no dense tensor here is of that kind."))
Tensor.layout = property(_answer(strided, "Torch.strided: sizes and steps."))  # type: ignore[assignment, method-assign]
Tensor.name = property(lambda self: None, doc="None: no tensor here has a name.")  # type: ignore[assignment, method-assign]
method("is_distributed")(_answer(False, "False: no tensor here is of that kind."))


@method("is_conj")
def _is_conj(self: Tensor) -> bool:
    """Whether the memory holds the conjugates of the elements: of `conj()`, which copies nothing."""
    return waiting(self)[0]


@method("is_neg")
def _is_neg(self: Tensor) -> bool:
    """Whether the memory holds the negatives of the elements: of the imaginary part of a conjugate."""
    return waiting(self)[1]


Tensor.volatile = property(lambda self: False)  # type: ignore[assignment, method-assign]  # of old; see torch.no_grad


def _device_of_others(kind: str) -> None:
    @method(kind)
    def to_device(self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = preserve_format) -> Tensor:
        given = {"device": device, "non_blocking": non_blocking, "memory_format": memory_format}
        raise AssertionError(f"no device of type {kind!r} is supported (asked of a tensor of shape {list(self.shape)}, with {given}); use "
                             "the CPU or an NVIDIA GPU")

    to_device.__name__ = to_device.__qualname__ = kind
    to_device.__doc__ = "AssertionError: there is no such device."


for _name in ("xpu", "ipu", "mtia"):
    _device_of_others(_name)


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
def _dim_order(self: Tensor, *, ambiguity_check: bool | list[memory_format] = False) -> tuple[int, ...]:
    """Dimensions from the outermost in memory to the innermost. `ambiguity_check`: RuntimeError where another order would do as well,
    or where not just one of these formats fits."""
    formats = ambiguity_check if isinstance(ambiguity_check, (list, tuple)) else []
    if not isinstance(ambiguity_check, (bool, list, tuple)) or not all(isinstance(f, memory_format) for f in formats):
        raise TypeError("The ambiguity_check argument must be a bool or a list of memory formats.")
    if formats:
        unclear = sum(self.is_contiguous(memory_format=f) for f in formats) != 1
    else:
        unclear = bool(ambiguity_check) and not _one_order(self)
    if unclear:
        raise RuntimeError(f"The tensor (shape {list(self.shape)}, strides {list(self.stride())}) does not have unique dim order, or "
                           "cannot map to exact one of the given memory formats.")
    if self.is_contiguous():
        return tuple(range(self.ndim))
    return tuple(elementwise_order(self._layout.shape, [self._layout.strides]))


def _one_order(x: Tensor) -> bool:
    """Whether no two dimensions could change places: all have elements to step over, and steps of their own."""
    strides = x.stride()
    return all(n != 1 for n in x.shape) and len(set(strides)) == len(strides)


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


@method("set_")
def set_(self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """Look at the memory of `source` (a tensor or a storage; nothing: an empty one) instead of one's own."""
    if source is None:
        source = self.new_empty((0,))
    if isinstance(source, TypedStorage) and source.dtype is not self.dtype:
        raise RuntimeError(f"Expected a Storage of type {self.dtype} or an UntypedStorage, but got type {source.dtype} for argument 'storage'")
    if isinstance(source, UntypedStorage):
        source = source.elements(self.dtype)
    if not isinstance(source, Tensor):
        raise TypeError(f"set_(): argument 'source' must be Tensor or a storage, not {type(source).__name__}")
    if source.dtype is not self.dtype:
        raise RuntimeError(f"Could not set tensor of type {self.dtype} to a tensor of type {source.dtype}")
    if size is not None:
        shape = as_ints((size,))
        source = prims.as_strided(source, shape, contiguous_strides(shape) if stride is None else as_ints((stride,)), storage_offset)
    _set_data(self, source)
    return self


@method("untyped_storage")
def _untyped_storage(self: Tensor) -> UntypedStorage:
    """The bytes this tensor looks into."""
    return UntypedStorage(self._storage)


@method("storage_type")
def _storage_type(self: Tensor) -> Any:
    """The class of this tensor's storage."""
    return TYPED_STORAGES.get(CLASSES.get(self.dtype.name, ""), TypedStorage)


@method("module_load")
def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """What `load_state_dict` puts in this parameter's or buffer's place where torch.__future__ says that it swaps tensors: `other`
    copied into this one's memory, or with `assign` as it is. A class may have another answer."""
    if has_torch_function((self, other)):
        return handle_torch_function(module_load, (self, other), self, other, assign=assign)
    return (other if assign else self.copy_(other)).detach()


@method("storage", "_typed_storage")
def _typed_storage(self: Tensor) -> TypedStorage:
    """The bytes this tensor looks into, as elements of its dtype."""
    return TypedStorage(wrap_storage=self.untyped_storage(), dtype=self.dtype)


