"""Shape operators (views where strides can express them) and conversions between dtypes, devices and Python."""

from __future__ import annotations

import itertools
import math
import operator as python
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..backends.cpu import native
from ..core import dispatch, dtypes
from ..core.device import CPU, as_device, device
from ..core.dtypes import dtype
from ..core.memory_format import channels_last, channels_last_3d, contiguous_format, memory_format, preserve_format
from ..core.size import broadcast_shapes, canonical_dim, canonical_dims, elementwise_strides, looks_channels_last, permuted_strides
from ..core.tensor import Tensor, bump_version, fake, from_array, is_example
from . import prims
from .pointwise import InPlace, assign
from .promotion import cast, expand_to
from .registry import BACKENDS, Linear, Spec, method, operator, primitive


def _ints(args: Sequence) -> tuple:
    """Sizes or dims given one by one or as one sequence."""
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = args[0]
    return tuple(a if type(a) is int else _as_int(a) for a in args)


def _as_int(a: Any) -> Any:
    """An int from NumPy or out of a tensor; symbolic ones stay. TypeError for what is no int."""
    if isinstance(a, (str, float)):
        raise TypeError(f"expected ints or one sequence of ints, but got {a!r}")
    return int(a) if isinstance(a, (np.integer, Tensor)) else a


# -- reshaping -------------------------------------------------------------------------------------------
def infer_size(shape: Sequence, numel: Any) -> tuple:
    """`shape` with its -1 replaced so that it holds `numel` elements; RuntimeError if that cannot be."""
    unknown = [i for i, n in enumerate(shape) if type(n) is int and n == -1]
    if len(unknown) > 1:
        raise RuntimeError(f"only one dimension can be inferred, got {list(shape)}")
    if any(type(n) is int and n < -1 for n in shape):
        raise RuntimeError(f"invalid shape dimension {min(n for n in shape if type(n) is int)}")
    if not unknown:
        if math.prod(shape) != numel:
            raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")
        return tuple(shape)
    rest = math.prod(n for i, n in enumerate(shape) if i != unknown[0])
    if type(rest) is int and rest == 0:
        raise RuntimeError(f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified "
                           "dimension size -1 can be any value and is ambiguous")
    missing = numel // rest
    if missing * rest != numel:
        raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")
    return tuple(missing if i == unknown[0] else n for i, n in enumerate(shape))


def _same_shape(a: Sequence, b: Sequence) -> bool:
    return len(a) == len(b) and all(x is y or (type(x) is int and type(y) is int and x == y) for x, y in zip(a, b))


def _by_name(shape: tuple, named: dict[str, Any], name: str, *names: str) -> tuple:
    """The only argument, where it was given by one of `names`."""
    if not named:
        return shape
    if shape or len(named) > 1 or not named.keys() <= set(names):
        raise TypeError(f"{name}() takes sizes, or one of {', '.join(f'{n}=' for n in names)}; got {shape} and {sorted(named)}")
    return tuple(named.values())


@operator(method=True, tags=("view",))
def view(self: Tensor, *shape: Any, **named: Any) -> Tensor:
    """The same memory under another shape (one -1 is inferred), or, given a dtype, reinterpreted."""
    shape = _by_name(shape, named, "view", "size", "dtype")
    if len(shape) == 1 and isinstance(shape[0], (dtype, type)):
        return prims.view_dtype(self, dtypes.as_dtype(shape[0], "view"))
    return prims.view_(self, infer_size(_ints(shape), self.numel()))


@operator(tags=("view",))
def reshape(input: Tensor, *shape: Any, **named: Any) -> Tensor:
    """The same elements under another shape: a view if strides allow it, else a copy."""
    shape = _by_name(shape, named, "reshape", "shape")
    lay = input._layout
    wanted = infer_size(_ints(shape), input.numel())
    if _same_shape(wanted, lay.shape):
        return prims.view_(input, wanted)
    if prims.reshaped_strides(lay.shape, lay.strides, wanted) is None:
        input = clone(input, memory_format=contiguous_format)
    return prims.view_(input, wanted)


@method("reshape")
def _reshape_method(self: Tensor, *shape: Any, **named: Any) -> Tensor:
    return reshape(self, *shape, **named)


@operator(method=True)
def view_as(self: Tensor, other: Tensor) -> Tensor:
    """view(other.shape)."""
    return prims.view_(self, infer_size(tuple(other.shape), self.numel()))


@operator(method=True)
def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """reshape(other.shape)."""
    return reshape(self, tuple(other.shape))


@operator(method=True, tags=("view",))
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The dimensions start_dim..end_dim as one."""
    shape = tuple(input.shape)
    a, b = canonical_dim(start_dim, len(shape)), canonical_dim(end_dim, len(shape))
    if not shape:
        return reshape(input, (1,))
    if a > b:
        raise RuntimeError(f"flatten() has invalid args: start_dim cannot come after end_dim (start_dim={start_dim}, "
                           f"end_dim={end_dim}, shape {list(shape)})")
    if a == b:
        return input
    return reshape(input, shape[:a] + (math.prod(shape[a:b + 1]),) + shape[b + 1:])


@operator(method=True, tags=("view",))
def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Dimension `dim` split into `sizes` (one -1 is inferred)."""
    shape = tuple(input.shape)
    d = canonical_dim(dim, len(shape))
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    return reshape(input, shape[:d] + infer_size(tuple(sizes), shape[d]) + shape[d + 1:])


@operator(method=True, tags=("view",))
def ravel(input: Tensor) -> Tensor:
    """One contiguous dimension."""
    return reshape(contiguous(input), (-1,))


@operator(method=True, tags=("view",))
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Dimensions dim0 and dim1 swapped."""
    rank = input.ndim
    a, b = canonical_dim(dim0, rank), canonical_dim(dim1, rank)
    if not rank:
        return prims.alias(input)
    dims = list(range(rank))
    dims[a], dims[b] = b, a
    return prims.permute(input, tuple(dims))


@operator(method=True, tags=("view",))
def t(input: Tensor) -> Tensor:
    """Transpose of a matrix; vectors and numbers as they are."""
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
    return prims.permute(input, (1, 0)) if input.ndim == 2 else prims.alias(input)


@operator(tags=("view",))
def permute(input: Tensor, *dims: Any, **named: Any) -> Tensor:
    """The dimensions in the order `dims`."""
    given = _ints(_by_name(dims, named, "permute", "dims"))
    if len(given) != input.ndim:
        raise RuntimeError("permute(): number of dimensions in the tensor input does not match the length of the desired ordering "
                           f"of dimensions, i.e. input.dim() = {input.ndim} is not equal to len(dims) = {len(given)}")
    order = tuple(canonical_dim(d, input.ndim) for d in given)
    if len(set(order)) != len(order):
        raise RuntimeError(f"permute(): duplicate dims are not allowed, got {order}")
    return prims.permute(input, order)


@method("permute")
def _permute_method(self: Tensor, *dims: Any, **named: Any) -> Tensor:
    return permute(self, *dims, **named)


@operator(method=True, tags=("view",))
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Dimensions `source` moved to the positions `destination`; the others keep their order."""
    rank = max(input.ndim, 1)  # a number may be asked for dimension 0
    src = [canonical_dim(d, rank) for d in ((source,) if isinstance(source, int) else source)]
    dst = [canonical_dim(d, rank) for d in ((destination,) if isinstance(destination, int) else destination)]
    if len(src) != len(dst):
        raise RuntimeError(f"movedim: Invalid source or destination dims: source ({src} dims) should contain the same number of dims "
                           f"as destination ({dst} dims)")
    order: list = [None] * rank
    for s, d in zip(src, dst, strict=True):
        order[d] = s
    rest = iter(d for d in range(rank) if d not in src)
    return prims.permute(input, tuple(next(rest) if d is None else d for d in order)[: input.ndim])


@operator(method=True, tags=("view",))
def squeeze(input: Tensor, dim: int | Sequence[int] | None = None, *more: int) -> Tensor:
    """Without the dimensions of size 1 (or those of `dim` that are)."""
    shape = input._layout.shape
    among = range(len(shape)) if dim is None else canonical_dims((dim, *more) if more else dim, len(shape))  # type: ignore[arg-type]
    dims = tuple(d for d in among if shape[d] == 1)
    return prims.squeeze(input, dims)


@operator(method=True, tags=("view",))
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """With a new dimension of size 1 at `dim`."""
    return prims.unsqueeze(input, canonical_dim(dim, input.ndim + 1))


@operator(method=True, tags=("view",))
def expand(self: Tensor, *sizes: Any, **named: Any) -> Tensor:
    """Dimensions of size 1 repeated to `sizes` without copying; -1 keeps a size."""
    wanted, have = list(_ints(_by_name(sizes, named, "expand", "size"))), self._layout.shape
    lead = len(wanted) - len(have)
    if lead < 0:
        raise RuntimeError(f"expand({list(have)}, size={wanted}): the number of sizes provided ({len(wanted)}) must be "
                           f"greater or equal to the number of dimensions in the tensor ({len(have)})")
    for i, n in enumerate(wanted):
        old = have[i - lead] if i >= lead else None
        if type(n) is int and n == -1:
            if old is None:
                raise RuntimeError(f"The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension {i}")
            wanted[i] = old
        elif type(n) is int and n < 0:
            raise RuntimeError(f"expand(): a size cannot be negative, but for -1 where it keeps a size; got {wanted} for {list(have)}")
        elif old is not None and old is not n and old != n and old != 1:
            raise RuntimeError(f"The expanded size of the tensor ({n}) must match the existing size ({old}) at non-singleton "
                               f"dimension {i}.  Target sizes: {wanted}.  Tensor sizes: {list(have)}")
    return prims.expand(self, tuple(wanted))


@operator(method=True)
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """expand(other.shape)."""
    return expand(self, *other.shape)


@operator
def broadcast_to(input: Tensor, size: Sequence[int]) -> Tensor:
    """expand(size)."""
    return expand(input, *size)


Tensor.broadcast_to = lambda self, *size: expand(self, *_ints(size))  # type: ignore[attr-defined]


@operator
def broadcast_tensors(*tensors: Any) -> list[Tensor]:
    """The tensors expanded to their common shape."""
    from_list = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    shape = broadcast_shapes(*[x.shape for x in from_list])
    return [expand_to(x, shape) for x in from_list]


# -- parts -----------------------------------------------------------------------------------------------
@operator(method=True, tags=("view",))
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """`length` elements from `start` along `dim`."""
    d = canonical_dim(dim, input.ndim)
    size = input._layout.shape[d]
    if type(length) is int and length < 0:
        raise RuntimeError(f"narrow(): length must be non-negative, got {length}")
    if isinstance(start, Tensor):
        if start.ndim or start.dtype.category != dtypes.INT:
            raise RuntimeError(f"narrow(): start must be an 0-dim integral Tensor, got one of {start.dtype} and shape {list(start.shape)}")
        start = int(start)
    if type(start) is int and type(size) is int and not -size <= start <= size:
        raise IndexError(f"start out of range (expected to be in range of [{-size}, {size}], but got {start})")
    if type(start) is int and start < 0:
        start = start + size
    if start < 0 or start + length > size:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return prims.slice_(input, d, start, start + length, 1)


@operator(method=True, tags=("view",))
def select(input: Tensor, dim: int, index: Any) -> Tensor:
    """The slice at `index` along `dim`, without that dimension."""
    if not input.ndim:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    d = canonical_dim(dim, input.ndim)
    size = input._layout.shape[d]
    i = int(index) if isinstance(index, Tensor) else index
    if i >= size or (i < 0 and i < -size):
        raise IndexError(f"select(): index {i} out of range for tensor of size {list(input.shape)} at dimension {d}")
    return prims.select(input, d, i + size if type(i) is int and i < 0 else i)


def _split_vjp(gs: tuple, input_shape: tuple, sizes: tuple, dim: int) -> tuple:
    """The pieces' gradients one after the other, zeros for those that have none."""
    some = next(g for g in gs if g is not None)
    shapes = [(*input_shape[:dim], n, *input_shape[dim + 1:]) for n in sizes]
    return (prims.cat([some.new_zeros(shape) if g is None else g for g, shape in zip(gs, shapes)], dim),)


@operator(name="_split", tags=("views",), vjp=_split_vjp)
def _split(input: Tensor, sizes: tuple, dim: int) -> tuple[Tensor, ...]:
    """Views of the pieces of these sizes along `dim`. One node of the tape for all of them."""
    pieces, start = [], 0
    for n in sizes:
        pieces.append(prims.slice_(input, dim, start, start + n, 1))
        start = start + n
    return tuple(pieces)


def _unbind_vjp(gs: tuple, dim: int) -> tuple:
    some = next(g for g in gs if g is not None)
    return (prims.cat([prims.unsqueeze(some.new_zeros(some.shape) if g is None else g, dim) for g in gs], dim),)


@operator(name="_unbind", tags=("views",), vjp=_unbind_vjp)
def _unbind(input: Tensor, dim: int) -> tuple[Tensor, ...]:
    return tuple([prims.select(input, dim, i) for i in range(int(input._layout.shape[dim]))])


@operator(method=True)
def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of the pieces along `dim`: of one size (the last may be smaller), or of the sizes given."""
    d = canonical_dim(dim, tensor.ndim)
    if not tensor.ndim:
        raise RuntimeError("split expects at least a 1-dimensional tensor, got one of no dimension")
    size = tensor.shape[d]
    if isinstance(split_size_or_sections, (list, tuple)):
        sizes = list(split_size_or_sections)
        if sum(sizes) != size:
            raise RuntimeError(f"split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's size at "
                               f"dimension {d}), but got split_sizes={sizes}")
    else:
        step = split_size_or_sections
        if step <= 0:
            raise RuntimeError(f"split expects split_size be non-negative, but got split_size={step}")
        whole = max(int((size + step - 1) // step), 1) - 1      # all but the last
        sizes = [step] * whole + [size - whole * step]
    return _split(tensor, tuple(sizes), d)


@operator(method=True)
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` pieces of equal size (the last may be smaller) along `dim`."""
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    size = input.shape[canonical_dim(dim, input.ndim)]
    step = (size + chunks - 1) // chunks
    return split(input, step, dim) if not (type(step) is int and step == 0) else split(input, [0] * chunks, dim)


@operator(method=True)
def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces along `dim`: that many of nearly equal size, or between the indices."""
    d = canonical_dim(dim, input.ndim)
    size = input.shape[d]
    if isinstance(indices_or_sections, Tensor):
        if indices_or_sections.ndim > 1 or indices_or_sections.dtype is not dtypes.int64:
            raise RuntimeError("tensor_split(): a tensor of sections or indices has at most one dimension and dtype int64, got shape "
                               f"{list(indices_or_sections.shape)} and {indices_or_sections.dtype}")
        indices_or_sections = indices_or_sections.tolist()
    if isinstance(indices_or_sections, int):
        if indices_or_sections <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {indices_or_sections}")
        n, extra = divmod(size, indices_or_sections)
        return split(input, [n + 1] * extra + [n] * (indices_or_sections - extra), d)
    at = [python.index(i) for i in indices_or_sections]
    edges = [0, *[min(max(i if i >= 0 else i + size, 0), size) for i in at], size]
    if edges == sorted(edges):
        return _split(input, tuple([b - a for a, b in itertools.pairwise(edges)]), d)
    return tuple(prims.slice_(input, d, a, max(a, b), 1) for a, b in itertools.pairwise(edges))


@operator(method=True)
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """All slices along `dim`."""
    if not input.ndim:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    d = canonical_dim(dim, input.ndim)
    return _unbind(input, d)


@operator(method=True, tags=("view",))
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A view of the diagonal of the planes (dim1, dim2), as the last dimension."""
    return prims.diagonal(input, offset, canonical_dim(dim1, input.ndim), canonical_dim(dim2, input.ndim))


@operator(method=True, tags=("view",))
def as_strided(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """A view of the storage with this size, stride and offset."""
    offset = input.storage_offset() if storage_offset is None else storage_offset
    return prims.as_strided(input, _ints((size,)), _ints((stride,)), _as_int(offset))


@operator(method=True, tags=("view",))
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """A view of all windows of `size` along `dimension`, `step` apart, as a new last dimension."""
    d = canonical_dim(dimension, self.ndim)
    have = self._layout.shape[d] if self.ndim else 1
    if size < 0 or step <= 0:
        raise RuntimeError(f"unfold: size must be at least 0 and step above 0, got size={size} and step={step}")
    if size > have:
        raise RuntimeError(f"maximum size for tensor at dimension {d} is {have} but size is {size}")
    if not self.ndim:
        return prims.slice_(prims.unsqueeze(self, 0), 0, 0, size, 1)
    return prims.unfold(self, d, size, step)


@operator(method=True)
def view_as_real(input: Tensor) -> Tensor:
    """A complex tensor as a real one with a last dimension (real, imag)."""
    if not input.dtype.is_complex:
        raise RuntimeError("view_as_real is only supported for complex tensors")
    return prims.view_as_real(input)


@operator(method=True)
def view_as_complex(input: Tensor) -> Tensor:
    """The inverse of view_as_real."""
    return prims.view_as_complex(input)


# -- copies and conversions ------------------------------------------------------------------------------
def _clone_shape(x: Tensor, format: memory_format | tuple[int, ...]) -> Spec:
    """A copy: dense in the memory order of `x`, in `format`, or with these dimensions from the outermost to the innermost."""
    shape, strides, _ = x._layout
    if isinstance(format, tuple):
        return Spec(shape, x.dtype, permuted_strides(shape, format))
    if format is not preserve_format:
        return Spec(shape, x.dtype, format.strides(shape))
    return Spec(shape, x.dtype, elementwise_strides(shape, [strides]))


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
                      tags=("linear", "recomputable"),
                      derivative=Linear(x=lambda g: g), samples=lambda r: [(r.standard_normal((2, 3)),
                                                                            preserve_format)])(_clone_shape)


@operator(method=True)
def clone(input: Tensor, *, memory_format: memory_format | None = preserve_format) -> Tensor:
    """A copy, through which gradients flow."""
    return copy_prim(input, memory_format or preserve_format)


@operator(method=True)
def contiguous(self: Tensor, *, memory_format: memory_format = contiguous_format) -> Tensor:
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
        return _bare(self)
    with dispatch.grad_enabled(False):
        out = prims.alias(self)
    out._view = None  # to autograd it is no view: writing to it gives the original no history
    return out


def _bare(x: Tensor) -> Tensor:
    x._storage  # noqa: B018 - both count writes together
    made = Tensor._as_subclass(x, Tensor)
    made._grad = made._view = None
    return made


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
    mover = MOVERS.get((x.device.type, where.type)) or _load_mover(x.device.type, where.type)
    if mover is None:
        raise RuntimeError(f"cannot move a tensor from {x.device} to {where}: install the package that drives it "
                           "(pip install flambeau[cuda] for NVIDIA GPUs)" if x.device.type != "meta" else
                           "Cannot copy out of meta tensor; no data!")
    return from_array(mover(x._data, where, non_blocking), x.dtype, where)


def _load_mover(source: str, target: str) -> Any:
    for kind in (source, target):
        if kind in BACKENDS:
            BACKENDS[kind]()
    return MOVERS.get((source, target))


# backends: (from device type, to device type) -> function(array, device, non_blocking) -> array. "pinned" is host memory that a
# GPU reads by itself; the function from "pinned" to "cpu" tells whether an array lies there.
MOVERS: dict[tuple[str, str], Any] = {}


def _move_shape(x: Tensor, where: device, non_blocking: bool) -> Spec:
    """A copy of `x` on another device; with `non_blocking` between a GPU and pinned memory it is only queued."""
    return Spec(x._layout.shape, x.dtype, x._layout.strides)


def _back_to(g: Tensor, x_device: device) -> Tensor:
    return move_prim(g, x_device, False)


move_prim = primitive("to_device", derivative=Linear(x=_back_to), tags=("linear",),
                      why_absent={"loop": "a copy between memories", "samples": "it takes a second device"})(_move_shape)
move_prim.run = lambda args: _device_move(*args)


def _passes_for(x: Tensor) -> memory_format:
    """The format that strides say, as far as they do."""
    last = {4: channels_last, 5: channels_last_3d}.get(x.ndim)
    return last if last is not None and looks_channels_last(*x._layout[:2]) else contiguous_format


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
        result = prims.convert(result, dtype)
    if memory_format is not None and memory_format is not preserve_format:
        if result is not self:
            result = contiguous(result, memory_format=memory_format)
        elif copy or memory_format is not _passes_for(self):
            result = copy_prim(self, memory_format)
    return copy_prim(result, preserve_format) if copy and result is self else result


def _converter(name: str, kind: dtype) -> None:
    def convert(self: Tensor, *, memory_format: memory_format | None = None) -> Tensor:
        return to(self, dtype=kind, memory_format=memory_format)
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
    """The type's old name ('torch.FloatTensor'), or the tensor converted to `dtype`."""
    if dtype is None:
        return f"torch.{_OLD_NAMES.get(self.dtype.name, self.dtype.name.capitalize())}Tensor"
    if isinstance(dtype, str):
        old = {f"torch.{short}Tensor": name for name, short in _OLD_NAMES.items()}
        if dtype not in old:
            raise ValueError(f"invalid type: {dtype!r}; a dtype and {', '.join(old)} are valid")
        dtype = dtypes.DTYPES[old[dtype]]
    return to(self, dtype=dtype)


_OLD_NAMES = {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long", "int32": "Int",
              "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool"}


# -- to Python and NumPy ---------------------------------------------------------------------------------
@method("numel", "nelement")
def numel(self: Tensor) -> int:
    """The number of elements."""
    return math.prod(self._data.shape if self._data is not None else self._layout.shape)


@method("dim", "ndimension")
def _dim(self: Tensor) -> int:
    """The number of dimensions."""
    return self.ndim


@method("size")
def _size(self: Tensor, dim: int | None = None) -> Any:
    """All sizes, or that of `dim`."""
    return self.shape if dim is None else self._layout.shape[canonical_dim(dim, self.ndim)]


class DataNeeded:
    """Slot: what to do when Python asks a fake tensor for a value (symbolic tracers may answer)."""

    item: Any = None


VALUE_OF_EXAMPLE = (
    "vmap: the value of a tensor was asked for, by .item(), bool(), int(), a branch on it or the like, but it stands for all examples of "
    "a batch at once, and their values differ; use torch.where in place of a branch, or call this outside of vmap"
)


@method("item")
def item(self: Tensor) -> Any:
    """The only element as a Python number; RuntimeError if there are more."""
    if self._data is None:
        if is_example(self):
            raise RuntimeError(VALUE_OF_EXAMPLE)
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
    data = _host(self)
    return (data.astype(np.float32) if data.dtype.kind == "V" else data).tolist()


def _host(x: Tensor) -> np.ndarray:
    if x._data is None:
        raise RuntimeError(VALUE_OF_EXAMPLE if is_example(x) else "a fake or meta tensor has no values")
    return x._data if x.device.type == "cpu" else to(x.detach(), device=CPU)._data


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
        raise RuntimeError(VALUE_OF_EXAMPLE if is_example(self) else "numpy() of a tensor without data: a fake tensor has no values")
    self._storage  # noqa: B018 - the layout is now visible from outside
    return self._data.view()


@method("__bool__")
def _bool(self: Tensor) -> bool:
    if self._data is not None and self._data.size != 1:
        raise RuntimeError(f"Boolean value of Tensor with {'no' if not self._data.size else 'more than one'} value"
                           f"{'s' if not self._data.size else ''} is ambiguous")
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
    """This tensor as an instance of the subclass `cls`."""
    return Tensor._as_subclass(self, cls)


@method("get_device")
def _get_device(self: Tensor) -> int:
    """The device's index; -1 for the CPU."""
    return -1 if self.device.index is None else self.device.index


def _get_data(self: Tensor) -> Tensor:
    return detach(self)


def _set_data(self: Tensor, value: Tensor) -> None:
    """Let this tensor look at the memory of `value` instead."""
    for slot in ("_data", "_lay", "_store", "dtype", "device"):
        setattr(self, slot, getattr(value, slot))
    value._storage  # noqa: B018
    self._store = value._store


Tensor.data = property(_get_data, _set_data, doc="The same memory, cut off from the tape.")  # type: ignore[attr-defined]
Tensor.T = property(lambda self: prims.permute(self, tuple(range(self.ndim - 1, -1, -1))))  # type: ignore[attr-defined]


def _transposes(name: str, of: Callable[[Tensor], Tensor], most: float) -> Callable[[Tensor], Tensor]:
    """`of` of a matrix, or of a batch of them where there may be more than two dimensions; a number is its own transpose."""
    kinds = "matrices or batches of matrices" if most > 2 else "matrices (2-D tensors)"

    def transposed(self: Tensor) -> Tensor:
        n = self.ndim
        if n == 1 or n > most:
            hint = " For batches of matrices, consider using tensor.mH" if n > most else ""
            raise RuntimeError(f"tensor.{name} is only supported on {kinds}. Got {n}-D tensor.{hint}")
        return of(self)

    return transposed


def _matrix_transpose(x: Tensor) -> Tensor:
    return transpose(x, -2, -1) if x.ndim else x


def _conjugate_transpose(x: Tensor) -> Tensor:
    return _matrix_transpose(x).conj()


Tensor.mT = property(_transposes("mT", _matrix_transpose, math.inf))  # type: ignore[attr-defined]
Tensor.mH = property(_transposes("mH", _conjugate_transpose, math.inf))  # type: ignore[attr-defined]
Tensor.H = property(_transposes("H", _conjugate_transpose, 2))  # type: ignore[attr-defined]
Tensor.nbytes = property(lambda self: self.numel() * self.dtype.itemsize)  # type: ignore[attr-defined]


def _real(self: Tensor) -> Tensor:
    return prims.select(prims.view_as_real(self), self.ndim, 0) if self.dtype.is_complex else self


def _imag(self: Tensor) -> Tensor:
    if not self.dtype.is_complex:
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return prims.select(prims.view_as_real(self), self.ndim, 1)


Tensor.real, Tensor.imag = property(_real), property(_imag)  # type: ignore[attr-defined]


@operator
def real(input: Tensor) -> Tensor:
    """The real part, as a view."""
    return _real(input)


@operator
def imag(input: Tensor) -> Tensor:
    """The imaginary part, as a view."""
    return _imag(input)


@operator(method=True)
def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Overwrite with `src`, converted and broadcast."""
    if isinstance(src, Tensor):
        source = cast(src, self.dtype)
        if source.device != self.device:
            source = to(source, device=self.device)
        if source.shape != self.shape:
            source = expand(source, *self.shape)
        return assign(self, source, anew=True)
    if isinstance(src, complex) and self.dtype.category < dtypes.COMPLEX:
        src = src.real
    if isinstance(src, (int, float)) and self.dtype.category == dtypes.INT:     # as an element would be converted
        src = prims.full((), src, dtypes.int64 if isinstance(src, int) else dtypes.float64, self.device)
        return copy_(self, src)
    return assign(self, src, anew=True)


def _laid_out(self: Tensor, of: Callable, args: tuple, kwargs: dict) -> Tensor:
    """`self`, which becomes a view of what it was: views of it that were taken before go on to look into that."""
    InPlace.check(self)
    leaf = self._view is None and self.grad_fn is None and self.requires_grad
    before = self
    if self._view is None and not leaf and self._data is not None and not dispatch.state.modes:
        before = _bare(self)
        before._grad, before._was = self._grad, weakref.ref(self)  # type: ignore[attr-defined]
    with dispatch.grad_enabled(not leaf):   # no computation, so that it is part of the history in any mode
        out = of(before, *args, **kwargs)
    if leaf:
        out._grad = self._grad
    elif before is not self or self._view is not None:
        self._view = out._view
    for slot in ("_data", "_lay", "_store", "_grad"):
        setattr(self, slot, getattr(out, slot))
    bump_version(self)
    return self


for _name, _fn in (("squeeze_", squeeze), ("unsqueeze_", unsqueeze), ("transpose_", transpose), ("t_", t),
                   ("swapaxes_", transpose), ("swapdims_", transpose), ("as_strided_", as_strided)):
    def _relayout(self: Tensor, *args: Any, _fn: Any = _fn, **kwargs: Any) -> Tensor:
        """The view operator applied to this tensor object itself."""
        return _laid_out(self, _fn, args, kwargs)
    _relayout.__name__, _relayout.becomes = _name, _fn  # type: ignore[attr-defined]
    setattr(Tensor, _name, _relayout)
