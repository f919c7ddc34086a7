"""Shape operators (views where strides can express them) and conversions between dtypes, devices and Python."""

from __future__ import annotations

import functools
import itertools
import math
import operator as python
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .. import _C
from ..core import dispatch, dtypes
from ..core.dtypes import dtype
from ..core.memory_format import contiguous_format
from ..core.size import broadcast_shapes, canonical_dim, canonical_dims, several
from ..core.symbolic import must
from ..core.tensor import Tensor, bump_version
from ..core.warned import warn_once
from . import prims
from .conversions import clone, contiguous, counted_apart
from .ints import Ints, as_int, as_ints
from .primitives import waiting
from .promotion import expand_to
from .registry import Absent, on_tape, operator
from .writing import InPlace


# -- reshaping -------------------------------------------------------------------------------------------
def infer_size(shape: Sequence, numel: Any) -> tuple:
    """`shape` with its -1 replaced so that it holds `numel` elements; RuntimeError if that cannot be."""
    unknown = [i for i, n in enumerate(shape) if type(n) is int and n == -1]
    if len(unknown) > 1:
        raise RuntimeError(f"only one dimension can be inferred, got {list(shape)}")
    if any(type(n) is int and n < -1 for n in shape):
        raise RuntimeError(f"invalid shape dimension {min(n for n in shape if type(n) is int)}")
    if not unknown:
        if not must(math.prod(shape) == numel):
            raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")
        return tuple(shape)
    rest = math.prod(n for i, n in enumerate(shape) if i != unknown[0])
    if type(rest) is int and rest == 0:
        raise RuntimeError(f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified "
                           "dimension size -1 can be any value and is ambiguous")
    missing = numel // rest
    if not must(missing * rest == numel):
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
def view(self: Tensor, *shape: Ints | dtype, **named: Any) -> Tensor:
    """The same memory under another shape (one -1 is inferred), or, given a dtype, reinterpreted."""
    shape = _by_name(shape, named, "view", "size", "dtype")
    if len(shape) == 1 and isinstance(shape[0], (dtype, type)):
        for turned, word, bits in zip(waiting(self), ("conj", "neg"), ("conjugate", "negative")):
            if turned:
                raise RuntimeError(f"view() as another dtype is not supported for tensors with {bits} bit set: the bytes are not those of "
                                   f"the elements; call resolve_{word}() first")
        return prims.view_dtype(self, dtypes.as_dtype(shape[0], "view"))
    return prims.view_(self, infer_size(as_ints(shape), self.numel()))


@operator(method=True, tags=("view",))
def reshape(input: Tensor, *shape: Ints, **named: Any) -> Tensor:
    """The same elements under another shape: a view if strides allow it, else a copy."""
    shape = _by_name(shape, named, "reshape", "shape")
    lay = input._layout
    wanted = infer_size(as_ints(shape), input.numel())
    if _same_shape(wanted, lay.shape):
        return prims.view_(input, wanted)
    if prims.reshaped_strides(lay.shape, lay.strides, wanted) is None:
        input = clone(input, memory_format=contiguous_format)
    return prims.view_(input, wanted)


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


@operator(method=True, tags=("view",))
def permute(input: Tensor, *dims: Ints, **named: Any) -> Tensor:
    """The dimensions in the order `dims`."""
    given = as_ints(_by_name(dims, named, "permute", "dims"))
    if len(given) != input.ndim:
        raise RuntimeError("permute(): number of dimensions in the tensor input does not match the length of the desired ordering "
                           f"of dimensions, i.e. input.dim() = {input.ndim} is not equal to len(dims) = {len(given)}")
    order = tuple(canonical_dim(d, input.ndim) for d in given)
    if len(set(order)) != len(order):
        raise RuntimeError(f"permute(): duplicate dims are not allowed, got {order}")
    return prims.permute(input, order)


@operator(method=True, tags=("view",))
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Dimensions `source` moved to the positions `destination`; the others keep their order."""
    rank = max(input.ndim, 1)  # a number may be asked for dimension 0
    src = [canonical_dim(d, rank) for d in several(source)]
    dst = [canonical_dim(d, rank) for d in several(destination)]
    if len(src) != len(dst):
        raise RuntimeError(f"movedim: Invalid source or destination dims: source ({src} dims) should contain the same number of dims "
                           f"as destination ({dst} dims)")
    for name, given, found in (("source", source, src), ("destination", destination, dst)):
        if len(set(found)) != len(found):
            raise RuntimeError(f"movedim: repeated dim in `{name}` ({list(given)})")
    order: list = [None] * rank
    for s, d in zip(src, dst, strict=True):
        order[d] = s
    rest = iter(d for d in range(rank) if d not in src)
    return permute(input, tuple(next(rest) if d is None else d for d in order)[: input.ndim])


@operator(method=True, tags=("view",))
def squeeze(input: Tensor, dim: int | Sequence[int] | Absent = None, *more: int) -> Tensor:
    """Without the dimensions of size 1 (or those of `dim` that are)."""
    shape = input._layout.shape
    listed = isinstance(dim, (tuple, list)) and not dim     # of no dimension, where canonical_dims takes all
    among = range(0 if listed else len(shape)) if dim is None or listed else canonical_dims((dim, *more) if more else dim, len(shape))
    dims = tuple(d for d in among if shape[d] == 1)
    return prims.squeeze(input, dims)


@operator(method=True, tags=("view",))
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """With a new dimension of size 1 at `dim`."""
    return prims.unsqueeze(input, canonical_dim(dim, input.ndim + 1))


@operator(method=True, tags=("view",))
def expand(self: Tensor, *sizes: Ints, **named: Any) -> Tensor:
    """Dimensions of size 1 repeated to `sizes` without copying; -1 keeps a size."""
    wanted, have = list(as_ints(_by_name(sizes, named, "expand", "size"))), self._layout.shape
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


Tensor.broadcast_to = lambda self, *size: expand(self, *as_ints(size))  # type: ignore[method-assign]
Tensor.broadcast_to.__doc__ = broadcast_to.__doc__


@operator
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """The tensors expanded to their common shape."""
    from_list = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    shape = broadcast_shapes(*[x.shape for x in from_list])
    return tuple(expand_to(x, shape) for x in from_list)


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
    return _pieces(input, sizes, dim)


def _pieces(input: Tensor, sizes: Iterable, dim: int) -> tuple[Tensor, ...]:
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
        if any(isinstance(n, int) and n < 0 for n in sizes):
            raise RuntimeError(f"split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes={sizes}")
        if not must(sum(sizes) == size):
            raise RuntimeError(f"split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's size at "
                               f"dimension {d}), but got split_sizes={sizes}")
    else:
        step = split_size_or_sections
        if step < 0 or (step == 0 and size):
            raise RuntimeError(f"split expects split_size be non-negative, but got split_size={step}")
        whole = max(int((size + step - 1) // max(step, 1)), 1) - 1      # all but the last
        sizes = [step] * whole + [size - whole * step]
    pieces = _split(tensor, tuple(sizes), d)
    if pieces and isinstance(split_size_or_sections, (list, tuple)):
        on_tape("split_with_sizes", pieces[0])      # all have one node
    return pieces


@operator(method=True)
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` pieces of equal size (the last may be smaller) along `dim`."""
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    size = input.shape[canonical_dim(dim, input.ndim)]
    step = (size + chunks - 1) // chunks
    return split(input, step, dim) if not (type(step) is int and step == 0) else split(input, [0] * chunks, dim)


def _unsafe(of: Callable, name: str) -> Callable:
    """`of`, whose results autograd does not know as views: writing to one gives the whole no history."""
    @functools.wraps(of)
    def pieces(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        made = of(*args, **kwargs)
        for piece in made:
            piece._view = None
            counted_apart(piece)
        return made

    pieces.__name__ = name
    return pieces


for _name, _fn in (("unsafe_split", split), ("unsafe_split_with_sizes", split), ("unsafe_chunk", chunk)):
    operator(name=_name, method=True, node="unsafe_split_with_sizes" if "sizes" in _name else "unsafe_split")(_unsafe(_fn, _name))


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
    if isinstance(indices_or_sections, np.integer):
        indices_or_sections = int(indices_or_sections)
    if isinstance(indices_or_sections, int):
        if indices_or_sections <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {indices_or_sections}")
        n, extra = divmod(size, indices_or_sections)
        return _pieces(input, [n + 1] * extra + [n] * (indices_or_sections - extra), d)
    at = [python.index(i) for i in indices_or_sections]
    edges = [0, *[min(max(i if i >= 0 else i + size, 0), size) for i in at], size]
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
    return prims.as_strided(input, as_ints((size,)), as_ints((stride,)), as_int(offset))


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
    if waiting(input)[0]:
        raise RuntimeError("view_as_real doesn't work on unresolved conjugated tensors: the imaginary parts in memory have the other sign; "
                           "call resolve_conj() first")
    return prims.view_as_real(input)


@operator(method=True, autocast={"cpu": "wide"})
def view_as_complex(input: Tensor) -> Tensor:
    """The inverse of view_as_real."""
    return prims.view_as_complex(input)


# -- views of a tensor as attributes, and tensors that become views of themselves ---------------------------
def _reversed(self: Tensor) -> Tensor:
    """All dimensions in reverse order; of a matrix, its transpose."""
    if not self.ndim:
        _of_a_number("Tensor.T", "This function is the identity in these cases")
    elif self.ndim != 2:
        warn_once("The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated and it will throw an error "
                  "in a future release. `x.mT` transposes batches of matrices, and `x.permute(*range(x.ndim - 1, -1, -1))` reverses the "
                  "dimensions of a tensor.")
    return permute(self, *range(self.ndim - 1, -1, -1))


def _of_a_number(name: str, instead: str) -> None:
    warn_once(f"{name} is deprecated on 0-D tensors. {instead}.")


Tensor.T = property(_reversed)  # type: ignore[assignment, method-assign]


def _transposes(name: str, of: Callable[[Tensor], Tensor], most: float) -> Callable[[Tensor], Tensor]:
    """`of` of a matrix, or of a batch of them where there may be more than two dimensions; a number is its own transpose."""
    kinds = "matrices or batches of matrices" if most > 2 else "matrices (2-D tensors)"

    def transposed(self: Tensor) -> Tensor:
        n = self.ndim
        if n == 1 or n > most:
            hint = " For batches of matrices, consider using tensor.mH" if n > most else ""
            raise RuntimeError(f"tensor.{name} is only supported on {kinds}. Got {n}-D tensor.{hint}")
        if not n:
            _of_a_number(f"Tensor.{name}", "This function is the identity in these cases" if name == "mT" else "Consider using x.conj()")
        return of(self)

    return transposed


def _matrix_transpose(x: Tensor) -> Tensor:
    return transpose(x, -2, -1) if x.ndim else x


def _conjugate_transpose(x: Tensor) -> Tensor:
    return _matrix_transpose(x).conj()


Tensor.mT = property(_transposes("mT", _matrix_transpose, math.inf))  # type: ignore[assignment, method-assign]
Tensor.mH = property(_transposes("mH", _conjugate_transpose, math.inf))  # type: ignore[assignment, method-assign]
Tensor.H = property(_transposes("H", _conjugate_transpose, 2))  # type: ignore[assignment, method-assign]


def _straight(x: Tensor) -> Tensor:
    """What lies in the memory of a conjugate or negative view."""
    conj, neg = waiting(x)
    x = prims.conj_view(x) if conj else x
    return prims.neg_view(x) if neg else x


def _real(self: Tensor) -> Tensor:
    if not self.dtype.is_complex:
        return self
    part = prims.select(prims.view_as_real(_straight(self)), self.ndim, 0)
    return prims.neg_view(part) if waiting(self)[1] else part


def _imag(self: Tensor) -> Tensor:
    if not self.dtype.is_complex:
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    part, (conj, neg) = prims.select(prims.view_as_real(_straight(self)), self.ndim, 1), waiting(self)
    return prims.neg_view(part) if conj is not neg else part


Tensor.real, Tensor.imag = property(_real), property(_imag)  # type: ignore[assignment, method-assign]


@operator
def real(input: Tensor) -> Tensor:
    """The real part, as a view."""
    return _real(input)


@operator
def imag(input: Tensor) -> Tensor:
    """The imaginary part, as a view."""
    return _imag(input)


def _laid_out(self: Tensor, of: Callable, args: tuple, kwargs: dict) -> Tensor:
    """`self`, which becomes a view of what it was: views of it that were taken before go on to look into that."""
    InPlace.check(self)
    leaf = self._view is None and self.grad_fn is None and self.requires_grad
    before = self
    if self._view is None and not leaf and self._data is not None and not dispatch.state.modes:
        before = _C.tensor_alias(self)
        before._grad, before._was = self._grad, weakref.ref(self)
    with dispatch.grad_enabled(not leaf):   # no computation, so that it is part of the history in any mode
        out = of(before, *args, **kwargs)
    if leaf:
        out._grad = self._grad
    elif before is not self or self._view is not None:
        self._view = out._view
    for slot in ("_data", "_lay", "_store", "_grad"):
        setattr(self, slot, getattr(out, slot))
    bump_version(self)
    return dispatch.carried(out, self)


_RELAID: tuple[tuple[str, Callable], ...] = (
    ("squeeze_", squeeze), ("unsqueeze_", unsqueeze), ("transpose_", transpose), ("t_", t), ("swapaxes_", transpose),
    ("swapdims_", transpose), ("as_strided_", as_strided))

for _name, _fn in _RELAID:
    def _relayout(self: Tensor, *args: Any, _fn: Any = _fn, **kwargs: Any) -> Tensor:
        """The view operator applied to this tensor object itself."""
        return _laid_out(self, _fn, args, kwargs)
    _relayout.__name__, _relayout.becomes = _name, _fn  # type: ignore[attr-defined]
    setattr(Tensor, _name, _relayout)
