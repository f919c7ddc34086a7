"""Copies, conversions of dtype, device and layout, and the ways to Python and NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import _C
from ..backends.cpu import native
from ..core import dispatch, dtypes
from ..core.device import CPU, as_device, device
from ..core.dtypes import dtype
from ..core.forms import FormTensor
from ..core.memory_format import channels_last, channels_last_3d, contiguous_format, memory_format, preserve_format
from ..core.size import canonical_dim, copied_strides, looks_channels_last, permuted_strides
from ..core.storage import Aside, Storage
from ..core.tensor import Tensor, fake, from_array, is_example, look_at, no_view
from ..core.unresolved import resolved, waits
from ..core.warned import warn_once
from . import prims
from .asked import unasked
from .primitives import BACKENDS, InAten
from .promotion import cast
from .registry import Absent, Linear, Spec, method, operator, primitive
from .writing import assign


def _clone_shape(x: Tensor, format: memory_format | tuple[int, ...]) -> Spec:
    """A copy: dense in the memory order of `x`, in `format`, or with these dimensions from the outermost to the innermost."""
    shape, strides, _ = x._layout
    if isinstance(format, tuple):
        return Spec(shape, x.dtype, permuted_strides(shape, format))
    if format is not preserve_format:
        return Spec(shape, x.dtype, format.strides(shape))
    return Spec(shape, x.dtype, copied_strides(shape, strides))


def _clone_kernel(x: np.ndarray, format: memory_format | tuple[int, ...]) -> np.ndarray:
    if format is contiguous_format:
        return native.copy(x)
    if format is preserve_format:
        return native.copy(x, "K")
    strides = permuted_strides(x.shape, format) if type(format) is tuple else format.strides(x.shape)  # type: ignore[union-attr]
    return native.copy_strided(native.empty_strided(x.shape, strides, x.dtype), x)  # type: ignore[arg-type]


def _clone_batch(prim: Any, size: int, args: tuple, has: tuple) -> Tensor:
    x, format = args
    if type(format) is tuple:
        return prim(x, (0, *(d + 1 for d in format)))
    return prim(x, format if format in (preserve_format, contiguous_format) else preserve_format)


copy_prim = primitive("clone", kernel=_clone_kernel, batch=_clone_batch, loop=lambda o, idx, x, format: x(idx),
                      tags=("linear", "recomputable", "moving"),
                      derivative=Linear(x=lambda g: g), samples=lambda r: [(r.standard_normal((2, 3)), preserve_format)])(_clone_shape)


@operator(method=True)
def clone(input: Tensor, *, memory_format: memory_format | None = preserve_format) -> Tensor:
    """A copy, through which gradients flow."""
    return copy_prim(input, memory_format or preserve_format)


@operator(method=True)
def contiguous(self: Tensor, *, memory_format: memory_format | Absent = contiguous_format) -> Tensor:
    """Itself if it lies in this order in memory, else a copy that does."""
    if self.is_contiguous(memory_format=memory_format):
        return self
    if memory_format is preserve_format:
        raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
    return copy_prim(self, memory_format)


@operator(method=True)
def detach(self: Tensor) -> Tensor:
    """The same memory, cut off from the tape."""
    if self._data is not None and not dispatch.state.word:
        return _C.tensor_alias(self)
    with dispatch.grad_enabled(False):
        out = prims.alias(self)
    dispatch.forget(no_view(out))  # writing to it gives the original no history
    return out


@method("detach_")
def _detach_in_place(self: Tensor) -> Tensor:
    """Cut this tensor itself off from the tape."""
    if self._is_view():
        raise RuntimeError("Can't detach views in-place. Use detach() instead.")
    self._grad = self._view = None
    return self


def _device_move(x: Tensor, where: device, non_blocking: bool = False) -> Tensor:
    if where.type == "meta" or x._data is None:
        return fake(x._layout.shape, x.dtype, where, x._layout.strides)
    mover = mover_between(x.device.type, where.type)
    if mover is None:
        raise RuntimeError(f"cannot move a tensor from {x.device} to {where}: install the package that drives it "
                           "(pip install flambeau[cuda] for NVIDIA GPUs)" if x.device.type != "meta" else
                           "Cannot copy out of meta tensor; no data!")
    return from_array(mover(x._data, where, non_blocking), x.dtype, where)


def mover_between(source: str, target: str) -> Any:
    """Of MOVERS, whose backend is loaded where that is to be; None if there is none."""
    found = MOVERS.get((source, target))
    if found is None:
        for kind in {source, target} & BACKENDS.keys():
            BACKENDS[kind]()
    return found or MOVERS.get((source, target))


# backends: (from device type, to device type) -> function(array, device, non_blocking) -> array. "pinned" is host memory that a
# GPU reads by itself; the function from "pinned" to "cpu" tells whether an array lies there.
MOVERS: dict[tuple[str, str], Any] = {}


def _move_shape(x: Tensor, where: device, non_blocking: bool) -> Spec:
    """A copy of `x` on another device; with `non_blocking` between a GPU and pinned memory it is only queued."""
    return Spec(x._layout.shape, x.dtype, x._layout.strides)


move_prim = primitive("to_device", derivative=Linear(x=lambda g, x_device: move_prim(g, x_device, False)), tags=("linear",),
                      why_absent={"loop": "a copy between memories", "samples": "it takes a second device"})(_move_shape)
move_prim.run = lambda args: _device_move(*args)


def _passes_for(x: Tensor) -> memory_format:
    """The format that strides say, as far as they do."""
    last = {4: channels_last, 5: channels_last_3d}.get(x.ndim)
    return last if last is not None and looks_channels_last(*x._layout[:2]) else contiguous_format


def discarding(x: Tensor, kind: dtype) -> None:
    """Say once that what is converted loses its imaginary part, if it does."""
    if x.dtype.is_complex and kind.category < dtypes.COMPLEX and kind is not dtypes.bool_:
        warn_once("Casting complex values to real discards the imaginary part")


@operator(method=True)
def to(self: Tensor, *args: Any, dtype: dtype | None = None, device: Any = None, non_blocking: bool = False, copy: bool = False,
       memory_format: memory_format | None = None) -> Tensor:
    """This tensor with another dtype and/or device; itself where nothing changes and no copy is asked for. What lies in no format, with
    gaps or expanded or transposed, passes for contiguous_format there."""
    if len(args) > 1:
        flags = [a for a in args[1:] if isinstance(a, bool)]
        args = (args[0], *(a for a in args[1:] if not isinstance(a, bool)))
        non_blocking, copy = (*flags, *(non_blocking, copy)[len(flags):])
    for a in args:
        if isinstance(a, (dtypes.dtype, type)):
            dtype = dtypes.as_dtype(a, "to")
        elif isinstance(a, Tensor):
            dtype, device = a.dtype, a.device
        elif isinstance(a, (bool, float, complex)):
            dtype = dtypes.bool_ if isinstance(a, bool) else dtypes.float64 if isinstance(a, float) else dtypes.complex128
        elif a is not None:
            device = a
    result = self
    if device is not None:
        where = as_device(device)
        if where != self.device and not (where.type == self.device.type and where.index is None):
            result = move_prim(result, where, bool(non_blocking))
    if dtype is not None and dtype is not result.dtype:
        discarding(result, dtype)
        result = prims.convert(result, dtype)
    if memory_format is not None and memory_format is not preserve_format:
        if result is not self:
            result = contiguous(result, memory_format=memory_format)
        elif copy or memory_format is not _passes_for(self):
            result = copy_prim(self, memory_format)
    return copy_prim(result, preserve_format) if copy and result is self else result


def _converter(name: str, kind: dtype) -> None:
    def convert(self: Tensor, *, memory_format: memory_format | None = None) -> Tensor:
        return to(self, kind) if memory_format is None else to(self, kind, memory_format=memory_format)
    convert.__name__, convert.__doc__ = name, f"to({kind})."
    setattr(Tensor, name, convert)


for _name, _kind in {**dtypes.ALIASES, "bool": dtypes.bool_, "byte": dtypes.uint8, "char": dtypes.int8,
                     "bfloat16": dtypes.bfloat16}.items():
    _converter(_name, _kind)


@method("cpu")
def _cpu(self: Tensor, *, memory_format: memory_format | None = None) -> Tensor:
    """to("cpu")."""
    return to(self, device=CPU, memory_format=memory_format)


@method("cuda")
def _cuda(self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Tensor:
    """to("cuda")."""
    return to(self, device="cuda" if device is None else device, non_blocking=non_blocking, memory_format=memory_format)


@method("type_as")
def _type_as(self: Tensor, other: Tensor) -> Tensor:
    """to(other.dtype)."""
    return to(self, dtype=other.dtype)


@method("type")
def _type(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The type's old name ('torch.FloatTensor'), or the tensor converted to `dtype`: one, or such a name, or torch.FloatTensor itself."""
    if dtype is None:
        place = "" if self.device.type == "cpu" else f"{self.device.type}."
        return f"torch.{place}{_OLD_NAMES.get(self.dtype.name, self.dtype.name.capitalize())}Tensor"
    if isinstance(dtype, Tensor):
        raise TypeError("type(): dtype must be a type, str, or dtype object, not a tensor; type_as() takes one")
    where = getattr(dtype, "where", None)
    if isinstance(dtype, str):
        old = {f"{short}Tensor": name for name, short in _OLD_NAMES.items()}
        place, _, short = dtype.removeprefix("torch.").rpartition(".")
        if not dtype.startswith("torch.") or short not in old or place not in ("", "cuda"):
            raise ValueError(f"invalid type: {dtype!r}; a dtype and {', '.join(f'torch.{name}' for name in old)} are valid")
        where, dtype = as_device(place or "cpu"), dtypes.DTYPES[old[short]]
    elif where is not None:
        where, dtype = self.device if self.device.type == where.type else where, dtype.kind
    return to(self, device=where, dtype=dtype, non_blocking=non_blocking)


_OLD_NAMES = {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long", "int32": "Int",
              "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool"}


# -- to Python and NumPy ---------------------------------------------------------------------------------
@method("numel", "nelement")
def numel(self: Tensor) -> int:
    """The number of elements."""
    return math.prod(self._array_shape or self._layout.shape)


@method("dim", "ndimension")
def _dim(self: Tensor) -> int:
    """The number of dimensions."""
    return self.ndim


@method("size")
def _size(self: Tensor, dim: int | None = None) -> Any:
    """All sizes, or that of `dim`."""
    return self.shape if dim is None else self._layout.shape[canonical_dim(dim, self.ndim)]


class DataNeeded:
    """Slots: what to do when Python asks a fake tensor for a value, or for all as an array (symbolic tracers may answer)."""

    item: Any = None
    array: Any = None


_DIFFER = "It stands for all examples of a batch at once, and their values differ; use torch.where in place of a branch, or call this outside"
VALUE_OF_EXAMPLE = f"vmap: It looks like you're calling .item() on a Tensor, or asked for its value by int(), numpy() or the like. {_DIFFER}"
BRANCH_ON_EXAMPLE = f"vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. {_DIFFER}"


class _LocalScalar:
    """The step that reads a value, as classes with `__torch_dispatch__` see it."""

    name, aten = "_local_scalar_dense", InAten()

    def __call__(self, x: Tensor) -> Any:
        return x.item()


_local_scalar = _LocalScalar()


@method("item")
def item(self: Tensor) -> Any:
    """The only element as a Python number; RuntimeError if there are more."""
    if self._data is None:
        if is_example(self):
            raise RuntimeError(VALUE_OF_EXAMPLE)
        if (value := dispatch.ask(_local_scalar, (self,))) is not NotImplemented:
            return value
        if DataNeeded.item is not None:
            return DataNeeded.item(self)
        raise RuntimeError("item() of a tensor without data: a fake or meta tensor has no values")
    if self._data.size != 1:
        raise RuntimeError(f"a Tensor with {self._data.size} elements cannot be converted to Scalar")
    data = _host(self)
    value = data.item() if self.dtype.numpy.kind != "V" else float(data.reshape(())[()])
    return value if not isinstance(value, np.generic) and type(value).__module__ == "builtins" else float(value)


@method("tolist")
def _tolist(self: Tensor) -> Any:
    """Nested lists of Python numbers (a number for a 0-dim tensor)."""
    if self._data is None and DataNeeded.item is not None and not is_example(self):
        return [row.tolist() for row in self.unbind(0)] if self.ndim else self.item()
    data = _host(self)
    return (data.astype(np.float32) if data.dtype.kind == "V" else data).tolist()


def _host(x: Tensor) -> np.ndarray:
    if x._data is None:
        raise RuntimeError(VALUE_OF_EXAMPLE if is_example(x) else "a fake or meta tensor has no values")
    return resolved(x._data) if x.device.type == "cpu" else to(x.detach(), device=CPU)._data


@method("numpy")
def _numpy(self: Tensor, *, force: bool = False) -> np.ndarray:
    """The elements as a NumPy array that shares memory (bf16 as ml_dtypes.bfloat16)."""
    if force:
        return _host(self.detach())
    if self.requires_grad and dispatch.state.grad_enabled:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    if self.device.type != "cpu":
        raise TypeError(f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor "
                        "to host memory first.")
    if self._data is None:
        if DataNeeded.array is not None and not is_example(self):
            return DataNeeded.array(self)
        raise RuntimeError(VALUE_OF_EXAMPLE if is_example(self) else "numpy() of a tensor without data: a fake tensor has no values")
    for waiting, word in zip(waits(self._data), ("conj", "neg")):
        if waiting:
            raise RuntimeError(f"Can't call numpy() on Tensor that has {'conjugate' if word == 'conj' else 'negative'} bit set. Use "
                               f"tensor.resolve_{word}().numpy() instead.")
    self._storage  # noqa: B018 - the layout is now visible from outside
    return self._data.view()


@method("__bool__")
def _bool(self: Tensor) -> bool:
    if self._data is not None and self._data.size != 1:
        raise RuntimeError(f"Boolean value of Tensor with {'no' if not self._data.size else 'more than one'} value"
                           f"{'s' if not self._data.size else ''} is ambiguous")
    if self._data is None and is_example(self):
        raise RuntimeError(BRANCH_ON_EXAMPLE)
    return bool(item(self))


def _real_number(self: Tensor) -> Any:
    """The only element, for float() and int()."""
    if self._data is not None and self._data.size != 1:
        raise ValueError(f"only one element tensors can be converted to Python scalars, this one has shape {list(self.shape)}")
    value = item(self)
    if isinstance(value, complex):
        if value.imag:
            raise RuntimeError(f"value cannot be converted to type double without overflow: {value}")
        value = value.real
    return value


@method("__float__")
def _float(self: Tensor) -> float:
    return float(_real_number(self))


@method("__int__")
def _int(self: Tensor) -> int:
    return int(_real_number(self))


@method("__index__")
def _index(self: Tensor) -> int:
    if self.dtype.category > dtypes.INT or self.numel() != 1:
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(item(self))


@method("__complex__")
def _complex(self: Tensor) -> complex:
    return complex(item(self))


@method("is_floating_point")
def is_floating_point(self: Tensor) -> bool:
    """Whether the dtype is a float."""
    return self.dtype.is_floating_point


@method("is_complex")
def is_complex(self: Tensor) -> bool:
    """Whether the dtype is complex."""
    return self.dtype.is_complex


@method("is_signed")
def is_signed(self: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return self.dtype.is_signed


@method("is_pinned")
def _is_pinned(self: Tensor, device: Any = None) -> bool:
    """Whether this is a CPU tensor in memory that a GPU reads by itself."""
    test = MOVERS.get(("pinned", "cpu"))
    return test is not None and self._data is not None and self.device.type == "cpu" and test(self._data)


def _load_pin() -> Any:
    """What pins memory; RuntimeError where no GPU can be used."""
    try:
        BACKENDS["cuda"]()
    except RuntimeError as error:
        raise RuntimeError(f"Cannot access accelerator device when none is available: only for a GPU is memory pinned ({error})") from None
    return MOVERS["cpu", "pinned"]


@method("pin_memory")
def _pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """A copy in memory that a GPU reads by itself, so that `to(..., non_blocking=True)` is only queued; itself if it lies there.
    RuntimeError where no GPU can be used."""
    if self.device.type != "cpu":
        raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")
    pin = MOVERS.get(("cpu", "pinned")) or _load_pin()
    if self._data is None or _is_pinned(self):
        return self
    return from_array(pin(self._data), self.dtype)


@method("requires_grad_")
def requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
    """Set `requires_grad` and return this tensor."""
    if not isinstance(requires_grad, bool):
        raise TypeError(f"requires_grad_(): argument 'requires_grad' (position 1) must be bool, not {type(requires_grad).__name__}")
    if not requires_grad or self.grad_fn is None:
        self.requires_grad = requires_grad
    return self


@method("data_ptr")
def _data_ptr(self: Tensor) -> int:
    """Address of the first element."""
    if self.device.type == "cuda" and self._data is not None:
        return int(self._data.data.ptr)
    return 0 if self._data is None else self._data.__array_interface__["data"][0]


@method("as_subclass")
def _as_subclass(self: Tensor, cls: type) -> Any:
    """A view of the whole tensor as an instance of the subclass `cls`: what is written to one is written to both."""
    with unasked(), dispatch.grad_enabled(True):    # the same tensor, in no_grad too
        return Tensor._as_subclass(prims.alias(self), cls)


@method("get_device")
def _get_device(self: Tensor) -> int:
    """The device's index; -1 for the CPU."""
    return -1 if self.device.index is None else self.device.index


def counted_apart(x: Tensor) -> Tensor:
    """`x`, whose writes are no others' from now on: its memory has a version of its own."""
    if type(x._storage) in (Storage, Aside) and not x._storage.inference:    # something counts
        x._store = Aside(x._storage)
    return x


def _get_data(self: Tensor) -> Tensor:
    found = detach(self)
    return found if isinstance(found, FormTensor) else counted_apart(found)


def _set_data(self: Tensor, value: Tensor) -> None:
    """Let this tensor look at the memory of `value` instead."""
    if not isinstance(value, Tensor):
        raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
    if self.requires_grad and value.dtype.category < 2:
        raise RuntimeError(f"data set to a tensor that requires gradients must be floating point or complex dtype, this is {value.dtype}")
    look_at(self, value)
    value._storage  # noqa: B018
    self._store = value._store


Tensor.data = property(_get_data, _set_data, doc="The same memory, cut off from the tape.")  # type: ignore[assignment, method-assign]
Tensor.nbytes = property(lambda self: self.numel() * self.dtype.itemsize)  # type: ignore[assignment, method-assign]


@operator(method=True)
def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Overwrite with `src`, converted and broadcast."""
    if isinstance(src, Tensor):
        discarding(src, self.dtype)
        source = cast(src, self.dtype)
        if source.device != self.device:
            source = to(source, device=self.device)
        if source.shape != self.shape:
            source = source.expand(*self.shape)
        return assign(self, source, anew=True)
    if not hasattr(type(src), "__float__") and not isinstance(src, complex):
        raise TypeError(f"copy_(): argument 'other' (position 1) must be Tensor, not {type(src).__name__}")
    if isinstance(src, complex) and self.dtype.category < dtypes.COMPLEX:
        src = src.real
    if isinstance(src, (int, float)) and self.dtype.category == dtypes.INT:     # as an element would be converted
        src = prims.full((), src, dtypes.int64 if isinstance(src, int) else dtypes.float64, self.device)
        return copy_(self, src)
    return assign(self, src, anew=True)
