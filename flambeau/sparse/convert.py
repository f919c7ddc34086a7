"""Between layouts: dense, COO, CSR, CSC, BSR and BSC; and what a sparse tensor tells of itself."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable
from typing import Any

from .. import ops
from ..core.device import as_device
from ..core.dtypes import as_dtype, int32, int64
from ..core.dtypes import dtype as Dtype
from ..core.memory_format import layout as Layout
from ..core.memory_format import sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr, strided
from ..core.sparse import BACKENDS, Pattern, SparseTensor, backend_of, become, refuse, sparse_tensor
from ..core.tensor import Tensor
from ..ops.creation import without_entries
from ..ops.printing import PRINT_OPTS, elements_text
from ..ops.registry import OPERATORS, method
from .bridge import assembled, coalesced, coordinates, entries, form, picked, places, step, summed_rows
from .construct import BLOCKED, COMPRESSED

_NAMES = {"strided": "Strided", **BACKENDS}


def expect_layout(x: Tensor, name: str, *layouts: Layout) -> SparseTensor:
    """The tensor, if it has one of the layouts."""
    if x.layout not in layouts:
        kind = "coordinate" if sparse_coo in layouts else "row compressed" if sparse_csr in layouts else "column compressed"
        raise RuntimeError(f"{name} expected sparse {kind} tensor layout but got {_NAMES[x.layout.name]}")
    return x  # type: ignore[return-value]


def _coo(x: Tensor, name: str) -> SparseTensor:
    """The tensor, if it is COO: of what other layouts have no such thing."""
    if x.layout is not sparse_coo:
        raise NotImplementedError(f"Could not run 'aten::{name}' with arguments from the '{backend_of(x)}' backend: a tensor of layout "
                                  f"{sparse_coo} is needed, got {x.layout} of shape {list(x.shape)}")
    return x  # type: ignore[return-value]


def _densified_vjp(g: Tensor, pattern: Pattern) -> tuple:
    """All of a gradient that is not zero, in the tensor's layout."""
    if isinstance(g, SparseTensor):
        return (g,)
    return (to_sparse(g, layout=pattern.layout, blocksize=pattern.blocks or None, dense_dim=len(pattern.dense_shape)),)


@step("sparse_densified", _densified_vjp)
def _densified(x: SparseTensor, pattern: Pattern) -> Tensor:
    return to_dense(x.detach())


# -- to dense and back ---------------------------------------------------------------------------------------------------------
@method("to_dense")
def to_dense(self: Tensor, dtype: Dtype | None = None, *, masked_grad: bool | None = None) -> Tensor:
    """The tensor with all its elements; a dense one as it is. The gradient of a sparse one has its pattern, and with
    `masked_grad=False` an entry wherever it is not zero."""
    if not isinstance(self, SparseTensor):
        return self if dtype is None else self.to(as_dtype(dtype, "to_dense"))
    if dtype is not None:
        raise RuntimeError("dtype argument is not supported by sparse_to_dense; use to_dense().to(dtype)")
    if masked_grad is False:
        return _densified(self, self._pattern)
    pattern = self._pattern
    count = 1
    for size in pattern.shape[:pattern.sparse_dims]:
        count *= size
    return summed_rows(entries(self), places(pattern), count).reshape(pattern.shape)


@step("sparse_taken", lambda g: (to_dense(g),))
def _taken(x: Tensor, pattern: Pattern) -> SparseTensor:
    """What a dense tensor has at the places of a pattern. A dense gradient comes back whole."""
    return sparse_tensor(pattern, picked(x.detach(), pattern))


def _nonzero(x: Tensor, sparse_dim: int | None = None) -> Pattern:
    """Where something is not zero; with `sparse_dim` in that many dimensions, the others lie in the entries."""
    dims = x.ndim if sparse_dim is None else sparse_dim
    if not 0 <= dims <= x.ndim or (x.ndim and not dims):
        raise RuntimeError(f"dense_to_sparse: sparse_dim argument must be in [{1 if x.ndim else 0},{x.ndim}] range, but {dims} is given")
    there = x.detach() != 0
    if dims < x.ndim:
        there = there.flatten(dims).any(-1)
    return Pattern(sparse_coo, (ops.nonzero(there).t().contiguous(),), x.shape, True)


def compressed(x: SparseTensor, layout: Layout, blocks: tuple[int, ...] = ()) -> SparseTensor:
    """The tensor, its last two sparse dimensions compressed, those before them batches."""
    if x.layout is layout and x._pattern.blocks == blocks:
        return x
    pattern = _compressed_pattern(coalesced(x)._pattern, layout, blocks)
    return assembled(picked(x, pattern), pattern)


def _compressed_pattern(source: Pattern, layout: Layout, blocks: tuple[int, ...]) -> Pattern:
    """The pattern of a compressed layout that has an entry wherever `source`, coalesced, has one: in each block that holds one."""
    *batch, rows, columns = coordinates(source).unbind(0)
    lead, sizes = source.shape[:len(batch)], source.shape[len(batch):len(batch) + 2]
    height, width = blocks or (1, 1)
    if sizes[0] % height or sizes[1] % width:
        raise RuntimeError(f"tensor sparse size ({sizes[0]},{sizes[1]}) must be divisible by given blocksize ({height},{width})")
    step = -1 if layout in (sparse_csc, sparse_bsc) else 1
    line, across = (rows // height, columns // width)[::step]
    lines, wide = (sizes[0] // height, sizes[1] // width)[::step]
    key = rows.new_zeros((source.nnz,))
    for size, index in zip((*lead, lines, wide), (*batch, line, across)):
        key = key * size + index
    key, count = ops.unique(key), math.prod(lead)

    def begins(n: int, of: int) -> Tensor:
        return ops.searchsorted(key // max(of, 1), ops.arange(n, device=key.device))

    outer, inner = begins(count + 1, wide * lines), begins(count * lines, wide).reshape(count, lines)
    if count > 1 and bool((outer.diff() != outer[1]).any()):
        raise RuntimeError(f"Expect the same number of specified elements per batch, got {outer.diff().tolist()}: a COO tensor may have "
                           "as many as it likes")
    starts = ops.cat((inner, outer[1:].unsqueeze(1)), 1) - outer[:-1].unsqueeze(1)
    found = (starts.reshape(*lead, lines + 1), (key % max(wide, 1)).reshape(*lead, key.shape[0] // max(count, 1)))
    return Pattern(layout, found, source.shape, blocks=blocks)


def _blocks(layout: Layout, blocksize: Any) -> tuple[int, ...]:
    """The size of blocks that a layout is asked for with, which must have some, or none."""
    if layout not in BLOCKED:
        if blocksize is not None:
            raise RuntimeError(f"to_sparse for {_NAMES['strided']} to {_NAMES[layout.name]} conversion does not use specified blocksize")
        return ()
    if blocksize is None:
        raise RuntimeError(f"to_sparse for {_NAMES[layout.name]} requires blocksize")
    sizes = (blocksize,) * 2 if isinstance(blocksize, int) else tuple(int(n) for n in blocksize)
    if len(sizes) != 2:
        raise RuntimeError(f"blocksize needs to be a tuple of size 2, but got {len(sizes)}")
    if min(sizes) < 1:
        raise RuntimeError(f"blocksize needs to be positive, but got {list(sizes)}")
    return sizes


@method("to_sparse")
def to_sparse(self: Tensor, sparse_dim: int | None = None, *, layout: Layout | None = None, blocksize: Any = None,
              dense_dim: int | None = None) -> Tensor:
    """The tensor in a sparse layout, COO unless another is asked for. Of a dense tensor compressed layouts take the two dimensions before
    the last `dense_dim` as matrices, and those before as batches."""
    if isinstance(sparse_dim, Layout):
        sparse_dim, layout = None, sparse_dim
    if sparse_dim is not None and (not isinstance(sparse_dim, int) or layout is not None):
        raise TypeError("to_sparse(): a number of sparse dimensions, or keywords without it, got "
                        f"sparse_dim={sparse_dim!r} and layout={layout}")
    layout = sparse_coo if layout is None else layout
    if layout is strided:
        return to_dense(self)
    if layout is not sparse_coo and layout not in COMPRESSED:
        raise RuntimeError(f"to_sparse(): {layout} is no sparse layout; there are torch.sparse_coo, {', '.join(map(str, COMPRESSED))}")
    blocks = _blocks(layout, blocksize)
    if isinstance(self, SparseTensor):
        return _of_sparse(self, sparse_dim, layout, blocks, dense_dim)
    if layout is not sparse_coo and (sparse_dim not in (None, 2) or self.ndim - (dense_dim or 0) < 2):
        raise RuntimeError(f"to_sparse: {layout} has 2 sparse dimensions, got sparse_dim={sparse_dim} and a tensor of shape "
                           f"{list(self.shape)} with dense_dim={dense_dim or 0}")
    pattern = _nonzero(self, sparse_dim if dense_dim is None and layout is sparse_coo else self.ndim - (dense_dim or 0))
    return _taken(self, pattern if layout is sparse_coo else _compressed_pattern(pattern, layout, blocks))


def _of_sparse(x: SparseTensor, sparse_dim: int | None, layout: Layout, blocks: tuple[int, ...], dense_dim: int | None) -> SparseTensor:
    """A sparse tensor in another layout."""
    pattern = x._pattern
    wanted = sparse_dim if dense_dim is None else x.ndim - dense_dim
    if wanted not in (None, pattern.sparse_dims):
        raise RuntimeError(f"to_sparse: the tensor has {pattern.sparse_dims} sparse dimensions, not {wanted}")
    if layout is sparse_coo:
        return x if x.layout is sparse_coo else coalesced(x)
    if x.layout is sparse_coo and pattern.sparse_dims != 2:
        raise RuntimeError(f"a tensor with {pattern.sparse_dims} sparse dimensions cannot become {layout}: it needs 2 (got shape "
                           f"{list(x.shape)}); batches of matrices stay torch.sparse_coo")
    return compressed(x, layout, blocks)


@method("to_sparse_coo")
def to_sparse_coo(self: Tensor) -> SparseTensor:
    """to_sparse(layout=torch.sparse_coo)."""
    return to_sparse(self)


@method("to_sparse_csr")
def to_sparse_csr(self: Tensor, dense_dim: int | None = None) -> SparseTensor:
    """to_sparse(layout=torch.sparse_csr)."""
    return to_sparse(self, layout=sparse_csr, dense_dim=dense_dim)


@method("to_sparse_csc")
def to_sparse_csc(self: Tensor, dense_dim: int | None = None) -> SparseTensor:
    """to_sparse(layout=torch.sparse_csc)."""
    return to_sparse(self, layout=sparse_csc, dense_dim=dense_dim)


@method("to_sparse_bsr")
def to_sparse_bsr(self: Tensor, blocksize: Any, dense_dim: int | None = None) -> SparseTensor:
    """to_sparse(layout=torch.sparse_bsr): blocks of this size wherever one has an element."""
    return to_sparse(self, layout=sparse_bsr, blocksize=blocksize, dense_dim=dense_dim)


@method("to_sparse_bsc")
def to_sparse_bsc(self: Tensor, blocksize: Any, dense_dim: int | None = None) -> SparseTensor:
    """to_sparse(layout=torch.sparse_bsc): blocks of this size wherever one has an element."""
    return to_sparse(self, layout=sparse_bsc, blocksize=blocksize, dense_dim=dense_dim)


# -- what it is made of --------------------------------------------------------------------------------------------------------
@method("coalesce")
def coalesce(self: Tensor) -> SparseTensor:
    """The tensor with sorted, distinct indices; itself where they are."""
    return coalesced(expect_layout(self, "coalesce", sparse_coo))


@method("is_coalesced")
def is_coalesced(self: Tensor) -> bool:
    """Whether the indices are known to be sorted and distinct."""
    return expect_layout(self, "is_coalesced", sparse_coo)._pattern.coalesced


@method("_coalesced_")
def _set_coalesced(self: Tensor, coalesced: bool) -> SparseTensor:
    """Say whether the indices are sorted and distinct."""
    x = _coo(self, "_coalesced_")
    x._pattern = Pattern(sparse_coo, x._pattern.indices, x._pattern.shape, coalesced)
    return x


def _asked(x: Tensor, name: str) -> SparseTensor:
    found = expect_layout(x, name, sparse_coo)
    if not found._pattern.coalesced:
        raise RuntimeError(f"Cannot get {name} on an uncoalesced tensor, please call .coalesce() first")
    return found


@method("indices")
def indices(self: Tensor) -> Tensor:
    """(sparse dimensions, entries): the indices of a coalesced tensor."""
    return _asked(self, "indices")._pattern.indices[0]


def in_lead(x: SparseTensor, rows: Tensor) -> Tensor:
    """Entries in the dimensions that `values()` has: of batches and blocks too."""
    pattern = x._pattern
    return rows.reshape(*pattern.lead, *pattern.dense_shape) if pattern.batch or pattern.blocks else rows


@method("values")
def values(self: Tensor) -> Tensor:
    """The entries of a coalesced COO tensor, or of a compressed one; gradients flow to it."""
    if self.layout in COMPRESSED:
        return in_lead(self, entries(self))  # type: ignore[arg-type]
    return entries(_asked(self, "values"))


@method("_indices")
def _indices(self: Tensor) -> Tensor:
    """The indices of a COO tensor, coalesced or not."""
    return _coo(self, "_indices")._pattern.indices[0]


@method("_values")
def _values(self: Tensor) -> Tensor:
    """The entries of a COO tensor, coalesced or not, cut off from the tape."""
    return _coo(self, "_values")._entries


@method("_nnz")
def nnz(self: Tensor) -> int:
    """The number of entries."""
    if not isinstance(self, SparseTensor):
        raise NotImplementedError(f"Could not run 'aten::_nnz' with arguments from the '{backend_of(self)}' backend: the tensor is "
                                  "dense; use count_nonzero()")
    return self._pattern.stored


def _compressed_index(name: str, at: int, *layouts: Layout) -> None:
    @method(name)
    def index(self: Tensor) -> Tensor:
        return expect_layout(self, name, *layouts)._pattern.indices[at]
    index.__name__, index.__doc__ = name, f"The `{name}` of a {' or '.join(map(str, layouts))} tensor."


for _layouts in ((sparse_csr, sparse_bsr), (sparse_csc, sparse_bsc)):
    for _at, _name in enumerate(COMPRESSED[_layouts[0]]):
        _compressed_index(_name, _at, *_layouts)


def _copying(name: str) -> Callable[[Tensor], Tensor]:
    def copying(input: Tensor) -> Tensor:
        return getattr(input, name)().clone()

    copying.__name__ = copying.__qualname__ = f"{name}_copy"
    copying.__doc__ = f"`input.{name}()`, copied."
    return copying


(indices_copy, values_copy, crow_indices_copy, col_indices_copy, ccol_indices_copy, row_indices_copy) = map(_copying, (
    "indices", "values", *COMPRESSED[sparse_csr], *COMPRESSED[sparse_csc]))


@method("sparse_dim")
def sparse_dim(self: Tensor) -> int:
    """How many dimensions are in the indices: none of a dense tensor, 2 of compressed layouts, whose batches do not count."""
    if not isinstance(self, SparseTensor):
        return 0
    return self._pattern.sparse_dims if self.layout is sparse_coo else 2


@method("dense_dim")
def dense_dim(self: Tensor) -> int:
    """How many dimensions are in the entries."""
    return len(self._pattern.dense_shape) if isinstance(self, SparseTensor) else self.ndim


@method("sparse_mask")
def sparse_mask(self: Tensor, mask: Tensor) -> SparseTensor:
    """The elements of the tensor at the indices of `mask`, with these indices."""
    if self.layout in COMPRESSED and mask.layout is not self.layout:
        raise RuntimeError("sparse_mask_sparse_compressed expects mask to have sparse compressed layout, that of the tensor: got "
                           f"{_NAMES[mask.layout.name]} for {_NAMES[self.layout.name]}")
    if not isinstance(mask, SparseTensor):
        raise NotImplementedError(f"sparse_mask expected a sparse mask, got layout {mask.layout}")
    if mask.shape != self.shape:
        raise RuntimeError(f"sparse_mask(): operands have incompatible sizes; self has size {list(self.shape)} but mask has size "
                           f"{list(mask.shape)}")
    return assembled(picked(self, mask._pattern), mask._pattern)


def _resized(self: Tensor, size: Any, sparse_dim: int, dense_dim: int, clear: bool) -> SparseTensor:
    x, shape = _coo(self, "sparse_resize_"), tuple(size)
    if len(shape) != sparse_dim + dense_dim:
        raise RuntimeError(f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(shape)}, sparse_dim = {sparse_dim}, "
                           f"dense_dim = {dense_dim}")
    if clear or not x._pattern.nnz:
        none = x._pattern.indices[0].new_zeros((sparse_dim, 0))
        found = sparse_tensor(Pattern(sparse_coo, (none,), shape, True), x._entries.new_zeros((0, *shape[sparse_dim:])))
        return become(x, found)
    if sparse_dim != x._pattern.sparse_dims or dense_dim != x.ndim - x._pattern.sparse_dims:
        raise RuntimeError(f"changing the number of sparse or dense dimensions ({x._pattern.sparse_dims} and "
                           f"{x.ndim - x._pattern.sparse_dims}, asked "
                           f"for {sparse_dim} and {dense_dim}) on a non-empty sparse tensor is not supported")
    if any(new < old for new, old in zip(shape, x.shape)):
        raise RuntimeError(f"shrinking the size of dimensions (from {list(x.shape)} to {list(shape)}) on a non-empty sparse tensor is "
                           "not supported")
    rows = x._entries
    for dim, length in enumerate(shape[sparse_dim:], 1):
        wider = rows.new_zeros((*rows.shape[:dim], length - rows.shape[dim], *rows.shape[dim + 1:]))
        rows = ops.cat((rows, wider), dim)
    return become(x, sparse_tensor(Pattern(sparse_coo, x._pattern.indices, shape, x._pattern.coalesced), rows))


@method("resize_as_sparse_")
def resize_as_sparse_(self: Tensor, the_template: Tensor) -> SparseTensor:
    """Give the tensor the sizes and the number of sparse dimensions of another one, in place."""
    return _resized(self, the_template.shape, sparse_dim(the_template), dense_dim(the_template), False)


@method("sparse_resize_")
def sparse_resize_(self: Tensor, size: Any, sparse_dim: int, dense_dim: int) -> SparseTensor:
    """Give the tensor another size in place; it keeps its entries."""
    return _resized(self, size, sparse_dim, dense_dim, False)


@method("sparse_resize_and_clear_")
def sparse_resize_and_clear_(self: Tensor, size: Any, sparse_dim: int, dense_dim: int) -> SparseTensor:
    """Give the tensor another size in place, without entries."""
    return _resized(self, size, sparse_dim, dense_dim, True)


# -- copies ----------------------------------------------------------------------------------------------------------------------
def with_entries(x: SparseTensor, make: Callable[[Tensor], Tensor]) -> SparseTensor:
    """The same pattern with what `make` makes of the entries."""
    return assembled(make(entries(x)), x._pattern)


@form(ops.clone)
def _clone(input: SparseTensor, *, memory_format: Any = None) -> SparseTensor:
    if getattr(memory_format, "name", "preserve_format") != "preserve_format":
        raise RuntimeError(f"unsupported memory format option {memory_format}: the tensor's layout is {input.layout}")
    return with_entries(input, ops.clone)


@form(ops.detach)
def _detach(self: SparseTensor) -> SparseTensor:
    return sparse_tensor(self._pattern, self._entries)


@form(ops.contiguous)
def _contiguous(self: SparseTensor, *, memory_format: Any = None) -> SparseTensor:
    raise RuntimeError(f"contiguous(memory_format={memory_format}): a {self.layout} tensor lies in no order; use coalesce()")


@form(ops.to)
def _to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    if kwargs.get("memory_format") is not None and kwargs["memory_format"].name != "preserve_format":
        raise RuntimeError(f"unsupported memory format option {kwargs['memory_format']}: the tensor's layout is {self.layout}")
    args = tuple(given for a in args for given in ((a.device, a.dtype) if isinstance(a, Tensor) else (a,)))
    if not isinstance(self, SparseTensor):
        return ops.to(self, *args, **kwargs)
    values = entries(self)
    moved = values.to(*args, **kwargs)
    if moved is values:
        return self
    pattern = self._pattern
    if moved.device.type == "meta":
        return _without_entries(self, moved.dtype, moved.device)
    if moved.device != self.device:
        pattern = Pattern(pattern.layout, tuple(i.to(moved.device) for i in pattern.indices), pattern.shape, pattern.coalesced, pattern.blocks)
    return assembled(moved, pattern)


@form(ops.copy_)
def _copy_into(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    if not (isinstance(self, SparseTensor) and isinstance(src, SparseTensor)):
        raise RuntimeError("copy_() between dense and sparse Tensors is not implemented! Found self type = "
                           f"{_type_name(self)} and src type = {_type_name(src)}; use to_dense() or to_sparse()")
    if self.shape != src.shape or self.layout is not src.layout:
        raise RuntimeError(f"copy_: shapes and layouts must be the same, got {self.layout} {list(self.shape)} and {src.layout} "
                           f"{list(src.shape)}")
    copied = ops.clone(src.to(self.device, self.dtype, non_blocking=non_blocking))
    return become(self, copied)


@form(ops.zeros_like, ops.empty_like)
def _zeros_like(input: SparseTensor, *, dtype: Any = None, layout: Layout | None = None, device: Any = None, requires_grad: bool = False,
                **kwargs: Any) -> Tensor:
    if kwargs.get("pin_memory"):
        raise NotImplementedError("pin_memory=True is not implemented for sparse tensors; pin the indices and the values")
    if layout is strided:
        return ops.zeros(input.shape, dtype=dtype or input.dtype, device=device or input.device, requires_grad=requires_grad)
    return _without_entries(input, dtype, device).requires_grad_(requires_grad)


def _without_entries(x: SparseTensor, dtype: Any = None, device: Any = None) -> SparseTensor:
    """A tensor of the same layout and shape that has none."""
    pattern = x._pattern
    last = pattern.indices[-1].new_zeros((*pattern.indices[-1].shape[:-1], 0), device=device)
    empty = (last,) if pattern.layout is sparse_coo else (ops.zeros_like(pattern.indices[0], device=device), last)
    rows = x._entries.new_zeros((0, *pattern.dense_shape), dtype=dtype, device=device)
    return assembled(rows, Pattern(pattern.layout, empty, pattern.shape, True, pattern.blocks))


@form(ops.zero_)
def _zero(self: SparseTensor) -> SparseTensor:
    return become(self, _zeros_like(self))


@form(ops.new_zeros, ops.new_empty)
def _new_zeros(self: SparseTensor, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> SparseTensor:
    shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    made = without_entries(tuple(shape), dtype or self.dtype, self.layout, as_device(device or self.device))
    return made.requires_grad_(requires_grad)  # type: ignore[return-value]


@form(ops.full_like)
def _full_like(input: SparseTensor, fill_value: Any, **kwargs: Any) -> SparseTensor:
    return _like(ops.full_like, input, fill_value, **kwargs)


def _like(operator: Callable, input: SparseTensor, *args: Any, **kwargs: Any) -> SparseTensor:
    """A compressed tensor with other entries at the same places."""
    if input.layout is sparse_coo or kwargs.pop("layout", None) not in (None, input.layout):
        refuse(operator.__name__, (input, *args), kwargs)
    needs = kwargs.pop("requires_grad", False)
    return assembled(operator(input._entries, *args, **kwargs), input._pattern).requires_grad_(needs)  # type: ignore[return-value]


for _random in (ops.rand_like, ops.randn_like, ops.ones_like):
    form(_random)(functools.partial(_like, _random))


def _drawn(operator: Callable) -> None:
    @form(operator)
    def draw(self: SparseTensor, *args: Any, **kwargs: Any) -> SparseTensor:
        if self.layout is sparse_coo:
            refuse(operator.__name__, (self, *args), kwargs)
        return become(self, with_entries(self, lambda values: operator(values.clone(), *args, **kwargs)))


for _random in OPERATORS.values():
    if {"random", "inplace"} <= _random._operator.tags:     # type: ignore[attr-defined]
        _drawn(_random)


@form(ops.fill_)
def _fill(self: SparseTensor, value: Any) -> SparseTensor:
    if self.layout is sparse_coo:
        refuse("fill_", (self, value), {})
    return become(self, with_entries(self, lambda values: ops.full_like(values, value)))


@form(ops.is_same_size)
def _is_same_size(input: Tensor, other: Tensor) -> bool:
    return input.shape == other.shape


# -- copies and pickles of the object ------------------------------------------------------------------------------------------
def rebuilt(layout: Layout, indices: tuple[Tensor, ...], rows: Tensor, shape: tuple, coalesced: bool, requires_grad: bool,
            extra: dict, blocks: tuple = ()) -> SparseTensor:
    """The tensor that a pickle tells of."""
    made = sparse_tensor(Pattern(layout, tuple(indices), tuple(shape), coalesced, blocks), rows)
    if requires_grad:
        made.requires_grad_()
    made.__dict__.update(extra)
    return made


def _reduce(self: SparseTensor, protocol: Any) -> tuple:
    pattern = self._pattern
    return rebuilt, (pattern.layout, pattern.indices, self._entries.detach(), pattern.shape, pattern.coalesced, self.requires_grad,
                     dict(self.__dict__), pattern.blocks)


def _deepcopy(self: SparseTensor, memo: dict) -> SparseTensor:
    if id(self) in memo:
        return memo[id(self)]
    if not self.is_leaf:
        raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment; "
                           "detach() it")
    made = memo[id(self)] = rebuilt(*copy.deepcopy(_reduce(self, 2)[1], memo))
    if self.grad is not None:
        made.grad = copy.deepcopy(self.grad, memo)
    return made


def _copied(self: SparseTensor) -> SparseTensor:
    return rebuilt(*_reduce(self, 2)[1])


def _type_name(x: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The type's old name, or the tensor converted to `dtype`."""
    if dtype is not None:
        return Tensor.type(x, dtype.replace("torch.sparse.", "torch.") if isinstance(dtype, str) else dtype, non_blocking)
    if isinstance(x, SparseTensor):
        return x._entries.type().replace("torch.", "torch.sparse.")
    return x.type()


# -- how it prints -----------------------------------------------------------------------------------------------------------------
def _text(self: SparseTensor, *, tensor_contents: Any = None) -> str:
    """As torch prints it: indices, values, size, and what is not the default."""
    pattern = self._pattern
    names = ("indices",) if pattern.layout is sparse_coo else COMPRESSED[pattern.layout]
    lines, meta = [], self.device.type == "meta"
    for name, value in zip((*names, "values"), (*pattern.indices, in_lead(self, self._entries.detach()))):
        start = f"{name}=tensor("
        shown = "..." if meta else "[]" if not value.numel() else tensor_contents or elements_text(value, 7 + len(start))
        text = f"{shown}, size={tuple(value.shape)}" if shown in ("...", "[]") else shown
        lines.append(f"{start}{text})")
    rest = [f"device='{self.device}'"] if self.device.type != "cpu" else []
    rest += [f"size={tuple(self.shape)}", *([] if meta else [f"nnz={pattern.stored}"])]
    if not meta and self.dtype not in (ops.tensor(0.0).dtype, ops.tensor(0).dtype, ops.tensor(True).dtype):
        rest.append(f"dtype={self.dtype}")
    rest.append(f"layout={self.layout}")
    grad_fn = self.grad_fn
    if grad_fn is not None:
        rest.append(f"grad_fn=<{grad_fn.name()}>")
    elif self.requires_grad:
        rest.append("requires_grad=True")
    if pattern.layout is sparse_coo:
        lines.append(", ".join(rest))
        return "tensor(" + ",\n       ".join(lines) + ")"
    text = "tensor(" + ",\n       ".join(lines)
    for part in rest:       # on the same line as long as it fits
        last = len(text) - text.rfind("\n") - 1
        text += f",\n       {part}" if last + len(part) + 2 > PRINT_OPTS.linewidth else f", {part}"
    return text + ")"


for _name, _fn in {"__reduce_ex__": _reduce, "__deepcopy__": _deepcopy, "__copy__": _copied, "type": _type_name, "__repr__": _text,
                   "__str__": _text, "__format__": object.__format__}.items():
    setattr(SparseTensor, _name, _fn)


# -- indices of rows and where rows begin --------------------------------------------------------------------------------------
def _convert_indices_from_coo_to_csr(input: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """Where each of `size` rows begins among entries whose rows are `input`, in order; and the number of entries."""
    if input.ndim != 1:
        raise RuntimeError(f"Input is supposed to be a vector, but got {input.ndim} dimensional tensor.")
    rows = ops.arange(size + 1, device=input.device, dtype=input.dtype)
    return ops.searchsorted(input.contiguous(), rows, out_int32=out_int32)


def _convert_indices_from_csr_to_coo(crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False,
                                     transpose: bool = False) -> Tensor:
    """(2, entries): the row and the column of each entry, or the other way round."""
    rows = ops.arange(crow_indices.shape[-1] - 1, device=crow_indices.device).repeat_interleave(crow_indices.diff())
    kind = int32 if out_int32 else int64
    pair = (col_indices, rows) if transpose else (rows, col_indices)
    return ops.stack([index.to(kind) for index in pair])
