"""Making tensors: from Python data, filled, and the `new_*` and `*_like` families."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, Unpack

import numpy as np

from ..core import dispatch, dtypes
from ..core.device import CPU, as_device, device
from ..core.dtypes import FLOAT, bool_, dtype, dtype_of_numpy, int64
from ..core.memory_format import contiguous_format, memory_format, preserve_format, refuse_layout, sparse_coo, strided
from ..core.settings import Numerics
from ..core.size import canonical_dim, contiguous_strides, elementwise_order, is_dense, memory_order, permuted_strides
from ..core.sparse import BACKENDS, Pattern, SparseTensor, sparse_tensor
from ..core.storage import shared
from ..core.tensor import Tensor, example_of, from_array, is_example
from ..core.warned import warn, warn_once
from . import prims
from .conversions import mover_between
from .ints import Ints, Sized, as_int
from .primitives import InAten
from .prims.views import _inverse
from .promotion import cast, category_of_number, default_dtype, fitting, is_number, limits
from .registry import PRIMITIVES, method, operator
from .writing import a_tensor_as_out, store_out


# -- helpers -------------------------------------------------------------------------------------------
def _named_size(size: tuple, keyword: Any, name: str) -> tuple:
    """The size where it was given as `size=`."""
    if "size" in keyword:
        size = (keyword.pop("size"),)
    if keyword:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(keyword))}'; sizes are given one by one, as a tuple, or "
                        "as size=")
    return size


def sizes(args: Sequence, name: str) -> tuple:
    """A shape given one by one or as one sequence; TypeError or RuntimeError if it is not one."""
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = args[0]
    if all(type(n) is int and n >= 0 for n in args):
        return tuple(args)
    shape: list = []
    for n in args:
        try:
            n = as_int(n)
        except TypeError:
            raise TypeError(f"{name}(): argument 'size' (position 1) must be tuple of ints, not {type(n).__name__}") from None
        if isinstance(n, int) and n < 0:
            raise RuntimeError(f"{name}: Dimension size must be non-negative, got {list(args)}.")
        shape.append(n)
    return tuple(shape)


def _strided_sizes(size: Any, stride: Any, name: str) -> tuple[tuple, tuple]:
    """A shape and strides for it; TypeError or RuntimeError where one is neither, or they do not fit."""
    if not isinstance(size, (tuple, list)) or not isinstance(stride, (tuple, list)):
        raise TypeError(f"{name}() takes size and stride as tuples of ints, not {type(size).__name__} and {type(stride).__name__}")
    shape, strides = sizes((size,), name), sizes((stride,), name)
    if len(shape) != len(strides):
        raise RuntimeError(f"{name}: dimensionality of sizes ({len(shape)}) must match dimensionality of strides ({len(strides)})")
    return shape, strides


def finish(made: Tensor, requires_grad: bool | None, out: Tensor | None = None, layout: Any = None,
           pin_memory: bool | None = False) -> Tensor:
    """The last step of every factory: `layout=`, `pin_memory=`, `out=` and `requires_grad=`."""
    if layout is not None and layout is not strided:
        refuse_layout(layout)
    if pin_memory:
        made = _pinned(made, pin_memory)
    if out is not None:
        return store_out(out, made.to(a_tensor_as_out(out).device))      # without operands, only `out=` says where
    if requires_grad:
        if requires_grad is not True:
            raise TypeError(f"argument 'requires_grad' must be bool, not {type(requires_grad).__name__}")
        if made.dtype.category < FLOAT:
            raise RuntimeError(f"Only Tensors of floating point and complex dtype can require gradients, this one is {made.dtype}")
        made.requires_grad = True
    return made


def _pinned(made: Tensor, pin_memory: Any) -> Tensor:
    """What a factory made with `pin_memory=True`; without data there is nothing to pin."""
    if not isinstance(pin_memory, bool):
        raise TypeError(f"argument 'pin_memory' must be bool, not {type(pin_memory).__name__}")
    return made if made.is_meta else made.pin_memory()


def kind_for(given: dtype | None, out: Tensor | None, usual: dtype) -> dtype:
    """The dtype that a factory makes: as given, as `out=` has, or the usual one."""
    if out is None:
        return given or usual
    if given is not None and given is not out.dtype:
        raise RuntimeError(f"dtype {given} does not match dtype of out tensor ({out.dtype})")
    return out.dtype


def uninitialised(shape: tuple, kind: dtype, where: device, strides: tuple | None = None) -> Tensor:
    """A tensor of memory as it is found (`filled_where_asked`), in rows or with these strides."""
    return filled_where_asked(prims.empty(shape, kind, where) if strides is None else prims.empty_strided(shape, strides, kind, where))


def filled_where_asked(made: Tensor) -> Tensor:
    """A tensor of memory as it was found, filled with NaN, the greatest integer or True where deterministic algorithms are asked for."""
    if Numerics.deterministic and Numerics.fill_uninitialized_memory and made.dtype.itemsize:
        kind = made.dtype
        made.fill_(True if kind is bool_ else math.nan if kind.category >= FLOAT else dtypes.iinfo(kind).max)
    return made


def finish_line(made: Tensor, requires_grad: bool | None, out: Tensor | None, layout: Any, pin_memory: bool | None) -> Tensor:
    """`finish` for numbers in a row: an `out=` of as many elements takes them in its own shape."""
    if out is not None and out.shape != made.shape and out.numel() == made.numel():
        made = made.reshape(tuple(out.shape))
    return finish(made, requires_grad, out, layout, pin_memory)


def number_dtype(value: Any) -> dtype:
    """The dtype that a Python or NumPy number gets by itself."""
    if isinstance(value, np.generic):
        return dtype_of_numpy(value.dtype)
    return (bool_, int64, default_dtype(), default_dtype().to_complex())[category_of_number(value)]


def count(n: Any) -> Any:
    """How many elements: an int, or out of a tensor; symbolic ones stay. TypeError for a float."""
    if isinstance(n, float):
        raise TypeError(f"expected an int as the number of elements, not {n!r}")
    return int(n) if isinstance(n, (Tensor, np.integer)) else n


def filled(shape: tuple, value: Any, kind: dtype, where: device) -> Tensor:
    """prims.full with `value` checked against and converted to `kind`."""
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(f"fill_value must be a number or a 0-dim tensor, got a tensor of shape {list(value.shape)}")
        return prims.expand(cast(value, kind).to(where), shape).clone(memory_format=contiguous_format)
    return prims.full(shape, fitting(value, kind), kind, where)


_NOTHING_SPECIAL = contextlib.nullcontext()


class _New:
    """The step `new_NAME(like, ...)`: what the primitive NAME makes, for classes with `__torch_dispatch__` to answer."""

    aten = InAten()

    def __init__(self, prim: Any) -> None:
        self.prim, self.name = prim, f"new_{prim.name}"

    def __call__(self, like: Tensor, *args: Any) -> Any:
        with faking_like(like):
            return self.prim(*args)


class _MadeLike:
    """A mode in which what makes tensors asks the class of `source`."""

    def __init__(self, source: Tensor) -> None:
        self.source = source

    def handle(self, prim: Any, args: tuple) -> Any:
        if any(isinstance(a, Tensor) for a in args):
            return dispatch.run(prim, args)
        return dispatch.ask(_New(prim), (self.source, *args))


def faking_like(source: Tensor) -> contextlib.AbstractContextManager:
    """Within the block factories make fakes if `source` is one, and tensors of its class if that answers for itself."""
    if dispatch.wrapping and dispatch.answers(source):
        return dispatch.push_mode(_MadeLike(source))
    fake = source._array_shape is None and source.device.type != "meta" and not is_example(source)
    return dispatch.fake_mode() if fake else _NOTHING_SPECIAL


def for_each(source: Tensor, made: Tensor) -> Tensor:
    """`made` like `source`: where that stands for each example of a batch, there is one for each example, which may be written to."""
    if not is_example(source):
        return made
    examples: Any = source._store
    one = for_each(examples.values, made)
    many = prims.expand(prims.unsqueeze(one, 0), (examples.level.size, *one._layout.shape))
    return example_of(many.clone(), examples.level)


# -- from Python data --------------------------------------------------------------------------------------
def _is_sequence(data: Any) -> bool:
    """What has a length and answers to indices: a list, a range, a deque, a class of the user's; not text, not a dictionary."""
    if isinstance(data, np.ndarray):
        return data.ndim > 0
    kind = type(data)
    return hasattr(kind, "__getitem__") and hasattr(kind, "__len__") and not isinstance(data, (str, bytes, dict, Tensor, np.generic))


def _leaf_shape(data: Any) -> tuple:
    """Sizes of nested sequences, by their first elements."""
    shape: list[int] = []
    while _is_sequence(data):
        shape.append(len(data))
        if not len(data):
            break
        data = data[0]
    if shape and isinstance(data, (str, bytes)):
        raise ValueError(f"too many dimensions {type(data).__name__!r}")
    return tuple(shape)


def _leaves(data: Any, shape: tuple, depth: int, out: list) -> None:
    """Append the numbers in `data` in order; ValueError or TypeError where they do not fill `shape`."""
    if depth == len(shape):
        if isinstance(data, Tensor):
            if data.numel() != 1:
                raise ValueError("only one element tensors can be converted to Python scalars")
        elif isinstance(data, (str, bytes)):
            raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
        elif not (is_number(data) or isinstance(data, (np.generic, np.ndarray))):
            raise RuntimeError(f"Could not infer dtype of {type(data).__name__}")
        out.append(data)
        return
    if not _is_sequence(data):
        raise TypeError(f"not a sequence: {data!r} at dim {depth}, where a sequence of length {shape[depth]} is expected")
    if len(data) != shape[depth]:
        raise ValueError(f"expected sequence of length {shape[depth]} at dim {depth} (got {len(data)})")
    for item in data:
        _leaves(item, shape, depth + 1, out)


def _leaf_dtype(leaves: list) -> dtype:
    kind: dtype | None = None
    for leaf in leaves:
        mine = leaf.dtype if isinstance(leaf, Tensor) else int64 if type(leaf) is int else number_dtype(leaf)
        kind = mine if kind is None else dtypes.promote_types(kind, mine)
    return default_dtype() if kind is None else kind


def _plain_array(data: Any) -> np.ndarray | None:
    """Nested Python numbers through NumPy's own parser; None where it needs a closer look."""
    probe = data
    while type(probe) in (list, tuple) and len(probe):
        probe = probe[0]
    if type(probe) not in (bool, int, float, complex, list, tuple):
        return None
    try:
        array = np.array(data)
    except (ValueError, TypeError, OverflowError, RuntimeError):
        return None
    if array.dtype not in _PARSED:
        return None
    # NumPy makes floats of integers, too: of those beside floats, and of all where no one dtype holds them
    return None if array.dtype.kind in "fc" and np.any(np.abs(array) >= _DIGITS) else array


_DIGITS = 2.0**53
_PARSED = {np.dtype(t) for t in (np.bool_, np.int64, np.float64, np.complex128)}


def _convert_array(array: np.ndarray, kind: dtype) -> np.ndarray:
    if kind is bool_:
        return array.astype(np.bool_)
    if array.dtype.kind == "c" and not kind.is_complex:
        raise TypeError("must be real number, not complex")
    if kind.category == dtypes.INT and array.dtype.kind in "iuf" and array.size:
        low, high = limits(kind) if array.dtype.kind in "iu" or kind.is_signed else (0, limits(kind)[1])
        if not np.isfinite(array).all() or array.max() > high or array.min() < low:
            raise RuntimeError(f"value cannot be converted to type {kind.name} without overflow")
    with np.errstate(all="ignore"):
        return array.astype(kind.numpy)


def _from_leaves(data: Any, kind: dtype | None) -> Tensor:
    """The careful way: checks every element, and takes tensors and symbolic sizes among them."""
    shape = _leaf_shape(data)
    leaves: list = []
    if 0 not in shape:
        _leaves(data, shape, 0, leaves)
    kind = kind or _leaf_dtype(leaves)
    if any((isinstance(v, Tensor) and v.is_fake) or type(v).__name__ in ("SymInt", "SymFloat", "SymBool") for v in leaves):
        parts = [v.reshape(1).to(kind) if isinstance(v, Tensor) else prims.full((1,), v, kind, CPU) for v in leaves]
        return prims.cat(parts, 0).reshape(shape)
    values = [v.item() if isinstance(v, (Tensor, np.generic, np.ndarray)) else v for v in leaves]
    return from_array(_array_of_numbers(values, kind).reshape(shape), kind)


def _array_of_numbers(values: list, kind: dtype) -> np.ndarray:
    """Python numbers as an array, none of which loses digits on its way."""
    if kind is bool_:
        return np.array([bool(v) for v in values], np.bool_)
    if any(isinstance(v, complex) for v in values) and not kind.is_complex:
        raise TypeError("must be real number, not complex")
    if kind.category >= FLOAT:
        wide: Any = complex if kind.is_complex else float
        return _convert_array(np.array([wide(v) for v in values], wide), kind)
    return _convert_array(np.array([_whole(v, kind) for v in values], np.uint64 if kind is dtypes.uint64 else np.int64), kind)


def _whole(value: Any, kind: dtype) -> int:
    """A real number as an integer of 64 bits."""
    if isinstance(value, float):
        low, high = limits(kind) if kind.is_signed else (0, limits(kind)[1])
        if not low <= value <= high:
            raise RuntimeError(f"value cannot be converted to type {kind.name} without overflow: {value}")
        return int(value)
    if kind is dtypes.uint64 and not 0 <= value < 1 << 64:
        raise OverflowError("can't convert negative int to unsigned" if value < 0 else f"int too big to convert: {value}")
    if kind is not dtypes.uint64 and not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"Overflow when unpacking long long: {value}")
    return value


def constant_on(made: Tensor, where: device) -> Tensor:
    """A fresh tensor of the host on a device, past all modes: a constant of what is traced lies where it is used."""
    return made if where.type == "cpu" else PRIMITIVES["to_device"].run((made, where, False))


def from_data(data: Any, kind: dtype | None = None, where: Any = None) -> Tensor:
    """A fresh tensor of nested sequences, numbers, arrays or tensors (always a copy)."""
    target = as_device(where)
    if isinstance(data, Tensor):
        made = data.detach().clone()
        return made.to(device=target if where is not None else None, dtype=kind)
    if data is None:
        raise RuntimeError("Could not infer dtype of NoneType")
    if isinstance(data, str):
        raise TypeError("new(): invalid data type 'str'")
    if isinstance(data, (np.ndarray, np.generic)):
        array = np.array(data, copy=True, order="C")
        if isinstance(data, np.generic) and kind is not None:
            made = from_array(_convert_array(array, kind), kind)
        else:
            made = from_array(array, dtype_of_numpy(array.dtype))
            if kind is not None and kind is not made.dtype:     # as a tensor is converted, but past all modes
                made = PRIMITIVES["convert"].run((made, kind))
    else:
        if hasattr(data, "read_as"):        # a storage
            return from_data(data.read_as(kind), None, where)
        if not isinstance(data, (list, tuple, range)):
            if hasattr(data, "__cuda_array_interface__"):
                return from_data(as_tensor(data), kind, where)
            if hasattr(data, "__array__"):
                return from_data(np.asarray(data), kind, where)
        array = _plain_array(data) if kind is not dtypes.uint64 else None  # type: ignore[assignment]
        if array is None:
            made = _from_leaves(data, kind)
        else:
            own = kind or (bool_, int64, default_dtype(), default_dtype().to_complex())["bifc".index(array.dtype.kind)]
            made = from_array(_convert_array(array, own), own)
    return made.to(device=target) if made._data is None else constant_on(made, target)


def _recommend_clone(name: str) -> None:
    warn("To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
         f"sourceTensor.detach().clone().requires_grad_(True), rather than {name}(sourceTensor).")


@operator(tags=("from_data",))
def tensor(data: Any, *, dtype: dtype | None = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """A leaf tensor with a copy of `data`: a number, nested sequences of numbers, an array or a tensor."""
    if isinstance(data, Tensor):
        _recommend_clone("torch.tensor")
        if device is None:
            device = data.device
        if type(data) is not Tensor:
            data = data._as_subclass(Tensor)
    return finish(from_data(data, dtype, device), requires_grad, None, None, pin_memory)


@operator(tags=("from_data",))
def as_tensor(data: Any, dtype: dtype | None = None, device: Any = None) -> Tensor:
    """`data` as a tensor, sharing memory (and history) with a tensor or array where dtype and device allow."""
    if isinstance(data, Tensor):
        return data.to(device=device, dtype=dtype)
    if isinstance(data, np.ndarray):
        return from_numpy(data).to(device=device, dtype=dtype)
    if hasattr(data, "__cuda_array_interface__"):
        return _from_gpu(data, getattr(getattr(data, "device", None), "id", 0)).to(device=device, dtype=dtype)
    return from_data(data, dtype, device)


@operator(tags=("from_data",))
def asarray(obj: Any, *, dtype: dtype | None = None, device: Any = None, copy: bool | None = None,
            requires_grad: bool | None = None) -> Tensor:
    """`obj` (tensor, array, DLPack exporter, buffer, number, sequence) as a tensor; `copy` True or False forces or forbids one.
    `requires_grad` False cuts it off from the tape that it is on."""
    if isinstance(obj, Tensor):
        made = obj
    elif isinstance(obj, np.ndarray):
        made = from_numpy(obj)
    elif hasattr(obj, "__dlpack__"):
        made = from_dlpack(obj)
    elif isinstance(obj, (bytes, bytearray, memoryview)):
        made = frombuffer(obj, dtype=dtype or default_dtype())
    else:
        if copy is False:
            raise ValueError(f"can't alias arbitrary sequence: {type(obj).__name__}")
        return finish(from_data(obj, dtype, device), requires_grad)
    moved = made.to(device=device, dtype=dtype)
    if copy and moved is made:
        moved = made.clone()
    if copy is False and moved is not made:
        raise ValueError("can't alias: the dtype or device asked for needs a copy")
    return finish(moved.detach() if requires_grad is False and moved.requires_grad else moved, requires_grad)


@operator(tags=("from_data",))
def from_numpy(ndarray: np.ndarray) -> Tensor:
    """A tensor over the array's own memory: writes to either are seen by the other."""
    return _over(ndarray, "NumPy array")


def _over(ndarray: np.ndarray, what: str) -> Tensor:
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    if not ndarray.dtype.isnative:
        raise ValueError("given numpy array has byte order different from the native byte order. Conversion between byte orders is "
                         "currently not supported.")
    kind = dtype_of_numpy(ndarray.dtype)
    if any(s < 0 for s in ndarray.strides):
        raise ValueError("At least one stride in the given numpy array is negative, and tensors with negative strides are not "
                         "currently supported. (You can probably work around this by making a copy of your array with array.copy().)")
    if any(s % ndarray.itemsize for s in ndarray.strides):
        raise ValueError("given numpy array strides not a multiple of the element byte size. Copy the numpy array to "
                         "reallocate the memory.")
    if not ndarray.flags.writeable:
        warn_once(f"The given {what} is not writable, which tensors cannot say of themselves: writing to this one writes to memory that is "
                  f"thought not to change. Copy the {what} first.")
    made = from_array(ndarray.view(np.ndarray), kind)
    made._storage  # noqa: B018 - the memory has an owner outside: it counts as seen
    return made


@operator(tags=("from_data",))
def frombuffer(buffer: Any, *, dtype: dtype, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A 1-D tensor over the memory of a bytes-like object."""
    size = memoryview(buffer).nbytes
    if size == 0 or count == 0:
        raise ValueError(f"both buffer length ({size}) and count ({count}) must not be 0")
    if not 0 <= offset < size:
        raise ValueError(f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({size} bytes) minus 1")
    if count < 0 and (size - offset) % dtype.itemsize:
        raise ValueError(f"buffer length ({size - offset} bytes) after offset ({offset} bytes) must be a multiple of element size "
                         f"({dtype.itemsize})")
    if count > 0 and offset + count * dtype.itemsize > size:
        raise ValueError(f"requested buffer length ({count} * {dtype.itemsize} bytes) after offset ({offset} bytes) must not be "
                         f"greater than actual buffer length ({size} bytes)")
    return finish(_over(np.frombuffer(buffer, dtype.numpy, count, offset), "buffer"), requires_grad)


# -- filled --------------------------------------------------------------------------------------------------
def without_entries(shape: tuple, kind: dtype, layout: Any, where: device) -> SparseTensor:
    """The tensor of zeros in a sparse layout."""
    def numbers(*sizes: int) -> Tensor:
        return prims.full(sizes, 0, int64, where)

    if layout is sparse_coo:
        return sparse_tensor(Pattern(layout, (numbers(len(shape), 0),), shape, True), prims.full((0,), cast(0, kind), kind, where))
    if len(shape) < 2 or layout.name not in ("sparse_csr", "sparse_csc"):
        raise RuntimeError(f"torch.empty: Only batched sparse compressed (non-block) tensors are supported, but got size {list(shape)} and "
                           f"layout {layout}")
    lines = shape[-2 if layout.name == "sparse_csr" else -1]
    pattern = Pattern(layout, (numbers(*shape[:-2], lines + 1), numbers(*shape[:-2], 0)), shape)
    return sparse_tensor(pattern, prims.full((0,), cast(0, kind), kind, where))


def _is_sparse(layout: Any) -> bool:
    return getattr(layout, "name", "") in BACKENDS


def _constant_factory(name: str, value: Any) -> Callable:
    def fn(*dims: Ints, out: Tensor | None = None, dtype: dtype | None = None, layout: Any = None, device: Any = None,
           pin_memory: bool | None = False, requires_grad: bool | None = False, **keyword: Unpack[Sized]) -> Tensor:
        size = _named_size(dims, keyword, name)
        kind = kind_for(dtype, out, default_dtype())
        if not value and _is_sparse(layout):
            return finish(without_entries(sizes(size, name), kind, layout, as_device(device)), requires_grad)
        return finish(prims.full(sizes(size, name), cast(value, kind), kind, as_device(device)), requires_grad, out, layout, pin_memory)

    fn.__name__, fn.__doc__ = name, f"A tensor of `size` filled with {name} in the default (or given) dtype."
    return operator(fn, name=name)


zeros, ones = _constant_factory("zeros", 0), _constant_factory("ones", 1)


@operator
def full(size: Any, fill_value: Any, *, out: Tensor | None = None, dtype: dtype | None = None, layout: Any = None,
         device: Any = None, pin_memory: bool | None = False, requires_grad: bool | None = False) -> Tensor:
    """A tensor of `size` filled with `fill_value`, whose kind of number decides the dtype unless one is given."""
    if isinstance(fill_value, np.generic):  # a Python number in this place, whatever its width
        fill_value = fill_value.item()
    kind = kind_for(dtype, out, fill_value.dtype if isinstance(fill_value, Tensor) else number_dtype(fill_value))
    if isinstance(fill_value, Tensor):
        fill_value = fitting(fill_value, kind)
    shape = sizes(size if isinstance(size, (tuple, list)) else (size,), "full")
    return finish(filled(shape, fill_value, kind, as_device(device)), requires_grad, out, layout, pin_memory)


@operator
def empty(*dims: Ints, out: Tensor | None = None, dtype: dtype | None = None, layout: Any = None, device: Any = None,
          pin_memory: bool | None = False, requires_grad: bool | None = False, memory_format: memory_format | None = contiguous_format,
          **keyword: Unpack[Sized]) -> Tensor:
    """An uninitialised tensor of `size`."""
    shape, kind, where = sizes(_named_size(dims, keyword, "empty"), "empty"), kind_for(dtype, out, default_dtype()), as_device(device)
    if _is_sparse(layout):
        return finish(without_entries(shape, kind, layout, where), requires_grad)
    if out is not None and out.shape == shape:
        return finish(filled_where_asked(out), False, None, layout, pin_memory)
    strides = None if memory_format in (None, contiguous_format, preserve_format) else memory_format.strides(shape)
    return finish(uninitialised(shape, kind, where, strides), requires_grad, out, layout, pin_memory)


@operator
def empty_strided(size: Sequence[int], stride: Sequence[int], *, dtype: dtype | None = None, layout: Any = None, device: Any = None,
                  pin_memory: bool | None = False, requires_grad: bool | None = False) -> Tensor:
    """An uninitialised tensor of `size` with these strides."""
    shape, strides = _strided_sizes(size, stride, "empty_strided")
    made = uninitialised(shape, dtype or default_dtype(), as_device(device), strides)
    return finish(made, requires_grad, None, layout, pin_memory)


@operator
def empty_permuted(size: Sequence[int], physical_layout: Sequence[int], *, dtype: dtype | None = None, layout: Any = None,
                   device: Any = None, pin_memory: bool | None = False, requires_grad: bool | None = False) -> Tensor:
    """An uninitialised tensor of `size` whose dimensions lie in memory in the order `physical_layout`, the outermost first."""
    shape = sizes((size,), "empty_permuted")
    if len(shape) != len(physical_layout):
        raise RuntimeError(f"Number of dimensions in size does not match the length of the physical_layout; i.e. len(size) = {len(shape)} "
                           f"is not equal to len(physical_layout) = {len(physical_layout)}")
    if sorted(physical_layout) != list(range(len(shape))):
        raise RuntimeError(f"physical_layout {list(physical_layout)} is no order of the dimensions 0 to {len(shape) - 1}")
    inner = contiguous_strides([shape[d] for d in physical_layout])
    strides = tuple(inner[list(physical_layout).index(d)] for d in range(len(shape)))
    made = uninitialised(shape, dtype or default_dtype(), as_device(device), strides)
    return finish(made, requires_grad, None, layout, pin_memory)


@operator
def scalar_tensor(s: Any, *, dtype: dtype | None = None, layout: Any = None, device: Any = None, pin_memory: bool | None = False,
                  requires_grad: bool | None = False) -> Tensor:
    """A 0-dim tensor in the default (or given) dtype."""
    return finish(filled((), s, dtype or default_dtype(), as_device(device)), requires_grad, None, layout, pin_memory)


# -- like another tensor -------------------------------------------------------------------------------------
def _in_layout(source: Tensor, format: memory_format | None, make: Callable[[tuple], Tensor]) -> Tensor:
    """`make(shape)` with the dimension order that `format` asks for (preserve: source's, if it is dense)."""
    shape, strides, _ = source._layout
    if format is None or format is preserve_format:
        exactly = any(type(n) is int and n == 0 for n in shape)
        if not exactly and strides == contiguous_strides(shape):
            return make(tuple(shape))
        dense = is_dense(shape, strides)
        order = memory_order(strides, shape) if dense else tuple(elementwise_order(shape, [strides]))
        if exactly or (dense and permuted_strides(shape, order) != strides):
            return _alone(prims.as_strided(make(tuple(shape)), tuple(shape), strides, 0))
    elif format is contiguous_format:
        return make(tuple(shape))
    else:
        order = memory_order(format.strides(shape) or (), shape)
    return _alone(prims.permute(make(tuple(shape[d] for d in order)), _inverse(order)))


def _alone(made: Tensor) -> Tensor:
    """A view of what nobody else holds is no view."""
    if made._data is not None and not dispatch.state.word:
        made._view = None
    return made


def _like(name: str, value: Any) -> Callable:
    def fn(input: Tensor, *, dtype: dtype | None = None, layout: Any = None, device: Any = None, pin_memory: bool | None = False,
           requires_grad: bool | None = False, memory_format: memory_format | None = preserve_format) -> Tensor:
        kind, where = dtype or input.dtype, input.device if device is None else as_device(device)
        with faking_like(input):
            made = _in_layout(input, memory_format, lambda shape: uninitialised(shape, kind, where) if value is None else
                              prims.full(shape, cast(value, kind), kind, where))
        return finish(for_each(input, made), requires_grad, None, layout, pin_memory)

    fn.__name__, fn.__doc__ = name, f"{name.split('_')[0]} in the shape, layout, dtype and device of `input` unless given."
    return operator(fn)


zeros_like, ones_like, empty_like = _like("zeros_like", 0), _like("ones_like", 1), _like("empty_like", None)


@operator
def full_like(input: Tensor, fill_value: Any, *, dtype: dtype | None = None, layout: Any = None, device: Any = None,
              pin_memory: bool | None = False, requires_grad: bool | None = False,
              memory_format: memory_format | None = preserve_format) -> Tensor:
    """`fill_value` in the shape, layout, dtype and device of `input` unless given."""
    kind, where = dtype or input.dtype, input.device if device is None else as_device(device)
    with faking_like(input):
        made = _in_layout(input, memory_format, lambda shape: filled(shape, fill_value, kind, where))
    return finish(for_each(input, made), requires_grad, None, layout, pin_memory)


def _new_constant(name: str, value: Any) -> None:
    def fn(self: Tensor, *size: Ints, dtype: dtype | None = None, device: Any = None, requires_grad: bool | None = False,
           layout: Any = None, pin_memory: bool | None = False, **kwargs: Any) -> Tensor:
        kind, where = dtype or self.dtype, self.device if device is None else as_device(device)
        with faking_like(self):
            shape = sizes(_named_size(size, kwargs, name), name)
            made = uninitialised(shape, kind, where) if value is None else prims.full(shape, cast(value, kind), kind, where)
        return finish(for_each(self, made), requires_grad, None, layout, pin_memory)

    fn.__name__, fn.__doc__ = name, f"{name[4:]}(size) in this tensor's dtype and on its device unless given."
    operator(fn, name=name, method=True)


for _name, _value in (("new_zeros", 0), ("new_ones", 1), ("new_empty", None)):
    _new_constant(_name, _value)


@operator(method=True)
def new_full(self: Tensor, size: Any, fill_value: Any, *, dtype: dtype | None = None, device: Any = None,
             requires_grad: bool | None = False, layout: Any = None, pin_memory: bool | None = False) -> Tensor:
    """full(size, fill_value) in this tensor's dtype and on its device unless given."""
    with faking_like(self):
        made = filled(sizes((size,), "new_full"), fill_value, dtype or self.dtype, self.device if device is None else as_device(device))
    return finish(for_each(self, made), requires_grad, None, layout, pin_memory)


@operator(method=True)
def new_tensor(self: Tensor, data: Any, *, dtype: dtype | None = None, device: Any = None, requires_grad: bool = False,
               layout: Any = None, pin_memory: bool = False) -> Tensor:
    """A leaf with a copy of `data` in this tensor's dtype and on its device unless given."""
    if isinstance(data, Tensor):
        _recommend_clone("tensor.new_tensor")
    return finish(from_data(data, dtype or self.dtype, self.device if device is None else device), requires_grad, None, layout, pin_memory)


@operator(method=True)
def new_empty_strided(self: Tensor, size: Sequence[int], stride: Sequence[int], dtype: dtype | None = None, device: Any = None,
                      requires_grad: bool | None = False, *, layout: Any = None, pin_memory: bool | None = False) -> Tensor:
    """empty_strided in this tensor's dtype and on its device unless given."""
    shape, strides = _strided_sizes(size, stride, "new_empty_strided")
    with faking_like(self):
        made = uninitialised(shape, dtype or self.dtype, self.device if device is None else as_device(device), strides)
    return finish(for_each(self, made), requires_grad, None, layout, pin_memory)


@method("new_arange")
def new_arange(self: Tensor, n: Any) -> Tensor:
    """0, 1, ..., n - 1 in int64 on this tensor's device."""
    with faking_like(self):
        return prims.iota(n, 0, 1, int64, self.device)


@method("new_cat")
def new_cat(self: Tensor, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors one after another along `dim`."""
    return prims.cat(list(tensors), canonical_dim(dim, self.ndim))


# -- exchange with NumPy and DLPack ------------------------------------------------------------------------------
@method("__array__")
def _array(self: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    array = self.numpy()
    if dtype is not None and array.dtype != dtype:
        return array.astype(dtype)
    return array.copy() if copy else array


@method("__array_wrap__")
def _array_wrap(self: Tensor, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Tensor:
    return from_numpy(np.ascontiguousarray(array) if array.ndim else array)


Tensor.__array_priority__ = 1000  # type: ignore[attr-defined]


@method("__dlpack__")
def _dlpack(self: Tensor, *, stream: Any = None, max_version: tuple | None = None, dl_device: tuple | None = None,
            copy: bool | None = None) -> Any:
    """A DLPack capsule over this tensor's memory."""
    if self.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if self.device.type != "cpu":
        shared.add(self._storage)       # who gets the memory may write to it unseen
        return self._data.__dlpack__(stream=stream)
    array = self.numpy()
    return (array.copy() if copy else array).__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device)


@method("__dlpack_device__")
def _dlpack_device(self: Tensor) -> tuple[int, int]:
    """(device type, device id) in DLPack's numbering."""
    return ({"cpu": 1, "cuda": 2}[self.device.type], self.device.index or 0)


class _Capsule:
    """A bare DLPack capsule as an exporter."""

    def __init__(self, capsule: Any):
        self.capsule = capsule

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class _Writable:
    """The memory of an array through the array interface, writable: exporters without flags do not mean read-only."""

    def __init__(self, array: np.ndarray):
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.__array_interface__["data"][0], False)}


def _from_gpu(array: Any, index: int) -> Tensor:
    """A tensor over the memory of an array of another library on a GPU."""
    where = device("cuda", index)
    made = from_array(mover_between("others", "cuda")(array, where), None, where)
    shared.add(made._storage)
    return made


@operator(tags=("from_data",))
def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of a DLPack exporter (or capsule), without copying; on another `device`, or with `copy`, of its own."""
    source = ext_tensor if hasattr(ext_tensor, "__dlpack__") else _Capsule(ext_tensor)
    kind, index = source.__dlpack_device__()
    if kind == 1:
        array = np.from_dlpack(source)
        read_only = isinstance(ext_tensor, np.ndarray) and not ext_tensor.flags.writeable
        made = from_numpy(array if array.flags.writeable or read_only or not array.size else np.asarray(_Writable(array)))
    elif kind == 2:
        made = _from_gpu(source, index)
    else:
        raise NotImplementedError(f"from_dlpack: device {(kind, index)} has no importer here; copy to the CPU first")
    if device is not None and as_device(device) != made.device:
        if copy is False:
            raise ValueError(f"from_dlpack(copy=False) cannot move a tensor from {made.device} to {device}")
        return made.to(device)
    return made.clone() if copy else made


@operator(tags=("from_data",))
def from_file(filename: Any, shared: bool | None = None, size: int | None = 0, *, dtype: dtype | None = None, device: Any = None,
              requires_grad: bool | None = False) -> Tensor:
    """A tensor over the first `size` elements of a file, mapped into memory; writes reach the file if `shared`, which makes the file
    large enough first."""
    kind, filename = dtype or default_dtype(), os.fspath(filename)
    if as_device(device).type != "cpu":
        raise NotImplementedError(f"from_file maps files into the CPU's memory, not into that of {device}; move the tensor there")
    count, nbytes = size or 0, (size or 0) * kind.itemsize
    if not count:
        return uninitialised((0,), kind, CPU)
    if shared:
        with open(filename, "ab") as file:
            file.truncate(max(nbytes, file.seek(0, 2)))
    elif os.path.getsize(filename) < nbytes:
        raise RuntimeError(f"file {filename} of {os.path.getsize(filename)} bytes is too small for {count} elements of {kind}")
    mapped = np.memmap(filename, kind.numpy, "r+" if shared else "c", shape=(count,)).view(np.ndarray)
    return from_array(mapped).requires_grad_(bool(requires_grad))


# -- torch.Tensor(...) and the typed constructors ------------------------------------------------------------------
def holds_data(args: tuple) -> bool:
    """Whether the arguments of a constructor of old are data, not sizes; TypeError where they are neither."""
    if len(args) != 1 or type(args[0]).__name__ == "Size" or (hasattr(args[0], "__index__") and not isinstance(args[0], np.ndarray)):
        return False
    name = type(args[0]).__name__
    if isinstance(args[0], (str, bytes)):
        raise TypeError(f"new(): invalid data type '{name}'")
    if not isinstance(args[0], np.ndarray) and not _is_sequence(args[0]):
        raise TypeError(f"new(): data must be a sequence (got {name})")
    return True


def _legacy(args: tuple, kind: dtype | None, where: Any) -> Tensor:
    kind = kind or default_dtype()
    if not args:
        return uninitialised((0,), kind, as_device(where))
    first = args[0]
    if len(args) == 1 and isinstance(first, Tensor):
        return prims.alias(first) if first.dtype is kind or kind is default_dtype() else first.to(kind)
    return from_data(first, kind, where) if holds_data(args) else uninitialised(sizes(args, "new"), kind, as_device(where))


def _legacy_constructor(*args: Any, device: Any = None, **kwargs: Any) -> Tensor:
    if "data" in kwargs:
        args = (kwargs.pop("data"),)
    if kwargs:
        raise TypeError(f"new() received an invalid combination of arguments - unexpected keyword {next(iter(kwargs))!r}; "
                        "use torch.tensor(data, dtype=...) or torch.empty(size, dtype=...)")
    return _legacy(args, None, device)


Tensor._legacy_constructor = staticmethod(_legacy_constructor)


class TypedMeta(type):
    """isinstance(x, torch.FloatTensor) asks for a CPU tensor of that dtype, torch.cuda.FloatTensor for one on a GPU."""

    kind: dtype
    where: device
    layout = strided

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Tensor) and x.dtype is cls.kind and x.device.type == cls.where.type and x.layout is cls.layout

    def __call__(cls, *args: Any) -> Tensor:
        if len(args) == 1 and isinstance(args[0], Tensor) and args[0].dtype is not cls.kind:
            raise TypeError(f"{cls.__name__}() takes a tensor of {cls.kind}, got one of {args[0].dtype}; use to({cls.kind})")
        return _legacy(args, cls.kind, cls.where)


_TYPED = {"Float": dtypes.float32, "Double": dtypes.float64, "Half": dtypes.float16, "BFloat16": dtypes.bfloat16, "Long": int64,
          "Int": dtypes.int32, "Short": dtypes.int16, "Char": dtypes.int8, "Byte": dtypes.uint8, "Bool": bool_}


def typed_tensors(where: device, module: str, meta: type[TypedMeta] = TypedMeta) -> dict[str, type]:
    """By name, the types of the tensors of each dtype on a device."""
    return {f"{short}Tensor": meta(f"{short}Tensor", (), {"kind": kind, "dtype": kind, "where": where, "__module__": module})
            for short, kind in _TYPED.items()}


# torch.FloatTensor, torch.cuda.FloatTensor and their kin: constructors of old, and types for isinstance and `type`.
TYPED_TENSORS = typed_tensors(CPU, "torch")
CUDA_TENSORS = typed_tensors(device("cuda"), "torch.cuda")
