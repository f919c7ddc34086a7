"""Between layouts: dense, COO, CSR and CSC; and what a sparse tensor tells of itself."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from .. import ops
from ..core.dtypes import as_dtype, int32, int64
from ..core.dtypes import dtype as Dtype
from ..core.memory_format import layout as Layout
from ..core.memory_format import sparse_coo, sparse_csc, sparse_csr, strided
from ..core.sparse import BACKENDS, Pattern, SparseTensor, backend_of, become, sparse_tensor
from ..core.tensor import Tensor
from ..ops.printing import elements_text
from ..ops.registry import method
from .bridge import assembled, coalesced, coordinates, entries, form, picked, places, starts_of, summed_rows
from .construct import compressed_names, sparse_coo_tensor

_NAMES = {"strided": "Strided", **BACKENDS}


def expect_layout(x: Tensor, name: str, *layouts: Layout) -> SparseTensor:
    """The tensor, if it has one of the layouts."""
    if x.layout not in layouts:
        kind = "coordinate" if sparse_coo in layouts else "row compressed" if layouts == (sparse_csr,) else "column compressed"
        raise RuntimeError(f"{name} expected sparse {kind} tensor layout but got {_NAMES[x.layout.name]}")
    return x  # type: ignore[return-value]


# -- to dense and back ---------------------------------------------------------------------------------------------------------
@method("to_dense")
def to_dense(self: Tensor, dtype: Dtype | None = None, *, masked_grad: bool | None = None) -> Tensor:
    """The tensor with all its elements; a dense one as it is. The gradient of a sparse one has its pattern, so `masked_grad=False` is
    refused."""
    if not isinstance(self, SparseTensor):
        return self if dtype is None else self.to(as_dtype(dtype, "to_dense"))
    if masked_grad is False:
        raise NotImplementedError("to_dense(masked_grad=False) is not implemented: gradients of sparse tensors have their patterns; "
                                  "leave it out")
    if dtype is not None:
        raise RuntimeError("dtype argument is not supported by sparse_to_dense; use to_dense().to(dtype)")
    pattern = self._pattern
    count = 1
    for size in pattern.shape[:pattern.sparse_dims]:
        count *= size
    return summed_rows(entries(self), places(pattern), count).reshape(pattern.shape)


def from_dense(x: Tensor, sparse_dim: int | None = None) -> SparseTensor:
    """The COO tensor of what is not zero; with `sparse_dim` of that many dimensions, the others lie in the entries."""
    dims = x.ndim if sparse_dim is None else sparse_dim
    if not 0 <= dims <= x.ndim or (x.ndim and not dims):
        raise RuntimeError(f"dense_to_sparse: sparse_dim argument must be in [{1 if x.ndim else 0},{x.ndim}] range, but {dims} is given")
    there = x.detach() != 0
    if dims < x.ndim:
        there = there.flatten(dims).any(-1)
    pattern = Pattern(sparse_coo, (ops.nonzero(there).t().contiguous(),), x.shape, True)
    return assembled(picked(x, pattern), pattern)


def compressed(x: SparseTensor, layout: Layout) -> SparseTensor:
    """The matrix as CSR or CSC."""
    if x.layout is layout:
        return x
    if x._pattern.sparse_dims != 2:
        raise RuntimeError(f"a tensor with {x._pattern.sparse_dims} sparse dimensions cannot become {layout}: it needs 2 (got shape "
                           f"{list(x.shape)}); batches of matrices stay torch.sparse_coo")
    source = coalesced(x)
    rows, columns = coordinates(source._pattern)
    values = entries(source)
    if layout is sparse_csc:
        order = ops.argsort(columns, stable=True)
        rows, columns, values = columns.index_select(0, order), rows.index_select(0, order), values.index_select(0, order)
    lines = x.shape[0 if layout is sparse_csr else 1]
    return assembled(values, Pattern(layout, (starts_of(rows, lines), columns), x._pattern.shape))


@method("to_sparse")
def to_sparse(self: Tensor, sparse_dim: int | None = None, *, layout: Layout | None = None, blocksize: Any = None,
              dense_dim: int | None = None) -> SparseTensor:
    """The tensor in a sparse layout, COO unless another is asked for."""
    if blocksize is not None:
        raise NotImplementedError("to_sparse(blocksize=...): blocks are not implemented; use torch.sparse_csr")
    if isinstance(sparse_dim, Layout):
        sparse_dim, layout = None, sparse_dim
    layout = sparse_coo if layout is None else layout
    if layout not in (sparse_coo, sparse_csr, sparse_csc):
        raise NotImplementedError(f"to_sparse(layout={layout}) is not implemented; use torch.sparse_coo, sparse_csr or sparse_csc")
    if layout is not sparse_coo and sparse_dim not in (None, 2):
        raise RuntimeError(f"to_sparse: {layout} has 2 sparse dimensions, not {sparse_dim}")
    if not isinstance(self, SparseTensor):
        if layout is not sparse_coo and self.ndim - (dense_dim or 0) != 2:
            raise RuntimeError(f"to_sparse: {layout} has 2 sparse dimensions, got a tensor of shape {list(self.shape)} with "
                               f"dense_dim={dense_dim or 0}")
        dims = sparse_dim if dense_dim is None else self.ndim - dense_dim
        return to_sparse(from_dense(self, dims), layout=layout)
    if sparse_dim not in (None, self._pattern.sparse_dims):
        raise RuntimeError(f"to_sparse: the tensor has {self._pattern.sparse_dims} sparse dimensions, not {sparse_dim}")
    if layout is sparse_coo:
        return self if self.layout is sparse_coo else coalesced(self)
    return compressed(self, layout)


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


def _absent_blocks(self: Tensor, blocksize: Any, dense_dim: int | None = None) -> SparseTensor:
    """NotImplementedError: entries are numbers, not blocks."""
    raise NotImplementedError(f"blocks of entries are not implemented (of {blocksize}, dense_dim={dense_dim}, for shape "
                              f"{list(self.shape)}); use to_sparse_csr()")


method("to_sparse_bsr", "to_sparse_bsc")(_absent_blocks)


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
    x = expect_layout(self, "_coalesced_", sparse_coo)
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


@method("values")
def values(self: Tensor) -> Tensor:
    """The entries of a coalesced COO tensor, or of a compressed one; gradients flow to it."""
    if self.layout in (sparse_csr, sparse_csc):
        return entries(self)  # type: ignore[arg-type]
    return entries(_asked(self, "values"))


@method("_indices")
def _indices(self: Tensor) -> Tensor:
    """The indices of a COO tensor, coalesced or not."""
    return expect_layout(self, "_indices", sparse_coo)._pattern.indices[0]


@method("_values")
def _values(self: Tensor) -> Tensor:
    """The entries of a COO tensor, coalesced or not, cut off from the tape."""
    return expect_layout(self, "_values", sparse_coo)._entries


@method("_nnz")
def nnz(self: Tensor) -> int:
    """The number of entries."""
    if not isinstance(self, SparseTensor):
        raise NotImplementedError(f"Could not run 'aten::_nnz' with arguments from the '{backend_of(self)}' backend: the tensor is "
                                  "dense; use count_nonzero()")
    return self._pattern.nnz


def _compressed_index(name: str, at: int, layout: Layout) -> None:
    @method(name)
    def index(self: Tensor) -> Tensor:
        return expect_layout(self, name, layout)._pattern.indices[at]
    index.__name__, index.__doc__ = name, f"The `{name}` of a {layout} tensor."


for _layout in (sparse_csr, sparse_csc):
    for _at, _name in enumerate(compressed_names(_layout)):
        _compressed_index(_name, _at, _layout)


def _copying(name: str) -> Callable[[Tensor], Tensor]:
    def copying(input: Tensor) -> Tensor:
        return getattr(input, name)().clone()

    copying.__name__ = copying.__qualname__ = f"{name}_copy"
    copying.__doc__ = f"`input.{name}()`, copied."
    return copying


(indices_copy, values_copy, crow_indices_copy, col_indices_copy, ccol_indices_copy, row_indices_copy) = map(_copying, (
    "indices", "values", *compressed_names(sparse_csr), *compressed_names(sparse_csc)))


@method("sparse_dim")
def sparse_dim(self: Tensor) -> int:
    """How many dimensions are in the indices: none of a dense tensor."""
    return self._pattern.sparse_dims if isinstance(self, SparseTensor) else 0


@method("dense_dim")
def dense_dim(self: Tensor) -> int:
    """How many dimensions are in the entries."""
    return self.ndim - sparse_dim(self)


@method("sparse_mask")
def sparse_mask(self: Tensor, mask: Tensor) -> SparseTensor:
    """The elements of the tensor at the indices of `mask`, with these indices."""
    if not isinstance(mask, SparseTensor):
        raise RuntimeError(f"sparse_mask expected a sparse mask, got layout {mask.layout}")
    if mask.shape != self.shape:
        raise RuntimeError(f"sparse_mask(): operands have incompatible sizes; self has size {list(self.shape)} but mask has size "
                           f"{list(mask.shape)}")
    return assembled(picked(self, mask._pattern), mask._pattern)


def _resized(self: Tensor, size: Any, sparse_dim: int, dense_dim: int, clear: bool) -> SparseTensor:
    x, shape = expect_layout(self, "sparse_resize_", sparse_coo), tuple(size)
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
def _to(self: SparseTensor, *args: Any, **kwargs: Any) -> SparseTensor:
    if kwargs.get("memory_format") is not None and kwargs["memory_format"].name != "preserve_format":
        raise RuntimeError(f"unsupported memory format option {kwargs['memory_format']}: the tensor's layout is {self.layout}")
    values = entries(self)
    moved = values.to(*args, **kwargs)
    if moved is values:
        return self
    pattern = self._pattern
    if moved.device != self.device:
        pattern = Pattern(pattern.layout, tuple(i.to(moved.device) for i in pattern.indices), pattern.shape, pattern.coalesced)
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
    pattern = input._pattern
    last = pattern.indices[-1].new_zeros((*pattern.indices[-1].shape[:-1], 0))
    empty = (last,) if pattern.layout is sparse_coo else (ops.zeros_like(pattern.indices[0]), last)
    rows = input._entries.new_zeros((0, *pattern.dense_shape), dtype=dtype, device=device)
    return assembled(rows, Pattern(pattern.layout, empty, pattern.shape, True)).requires_grad_(requires_grad)


@form(ops.zero_)
def _zero(self: SparseTensor) -> SparseTensor:
    return become(self, _zeros_like(self))


@form(ops.new_zeros, ops.new_empty)
def _new_zeros(self: SparseTensor, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> SparseTensor:
    shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    return sparse_coo_tensor(size=shape, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)


@form(ops.is_same_size)
def _is_same_size(input: Tensor, other: Tensor) -> bool:
    return input.shape == other.shape


# -- copies and pickles of the object ------------------------------------------------------------------------------------------
def rebuilt(layout: Layout, indices: tuple[Tensor, ...], rows: Tensor, shape: tuple, coalesced: bool, requires_grad: bool,
            extra: dict) -> SparseTensor:
    """The tensor that a pickle tells of."""
    made = sparse_tensor(Pattern(layout, tuple(indices), tuple(shape), coalesced), rows)
    if requires_grad:
        made.requires_grad_()
    made.__dict__.update(extra)
    return made


def _reduce(self: SparseTensor, protocol: Any) -> tuple:
    pattern = self._pattern
    return rebuilt, (pattern.layout, pattern.indices, self._entries.detach(), pattern.shape, pattern.coalesced, self.requires_grad,
                     dict(self.__dict__))


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
        return x.to(dtype, non_blocking=non_blocking)
    if isinstance(x, SparseTensor):
        return x._entries.type().replace("torch.", "torch.sparse.")
    return x.type()


# -- how it prints -----------------------------------------------------------------------------------------------------------------
def _text(self: SparseTensor, *, tensor_contents: Any = None) -> str:
    """As torch prints it: indices, values, size, and what is not the default."""
    pattern = self._pattern
    names = ("indices",) if pattern.layout is sparse_coo else compressed_names(pattern.layout)
    lines = []
    for name, value in zip((*names, "values"), (*pattern.indices, self._entries.detach())):
        start = f"{name}=tensor("
        text = f"[], size={tuple(value.shape)}" if not value.numel() else tensor_contents or elements_text(value, 7 + len(start))
        lines.append(f"{start}{text})")
    size = f"size={tuple(self.shape)}, nnz={pattern.nnz}"
    rest = [f"device='{self.device}'"] if self.device.type != "cpu" else []
    if self.dtype not in (ops.tensor(0.0).dtype, ops.tensor(0).dtype, ops.tensor(True).dtype):
        rest.append(f"dtype={self.dtype}")
    rest.append(f"layout={self.layout}")
    grad_fn = self.grad_fn
    if grad_fn is not None:
        rest.append(f"grad_fn=<{grad_fn.name()}>")
    elif self.requires_grad:
        rest.append("requires_grad=True")
    if pattern.layout is sparse_coo:
        lines.append(", ".join((size, *rest)))
        return "tensor(" + ",\n       ".join(lines) + ")"
    lines[-1] += f", {size}"
    return "tensor(" + ",\n       ".join((*lines, ", ".join(rest))) + ")"


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
