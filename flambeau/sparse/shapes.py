"""Views, parts and joints of sparse tensors: what changes is the indices. Each gives a new tensor; none shares memory as views do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import ops
from ..core.memory_format import sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr
from ..core.size import canonical_dim
from ..core.sparse import FORMS, Pattern, SparseTensor, become, refuse
from ..core.tensor import Tensor
from .bridge import assembled, coalesced, coordinates, entries, form, integers, starts_of, summed_rows
from .convert import compressed, in_lead, to_sparse

_TURNED = {sparse_csr: sparse_csc, sparse_csc: sparse_csr, sparse_bsr: sparse_bsc, sparse_bsc: sparse_bsr}
"""By compressed layout: that of the transposed matrix."""


@form(ops.permute)
def _permute(input: SparseTensor, *dims: Any) -> SparseTensor:
    order = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
    if len(order) != input.ndim:
        raise RuntimeError(f"permute(): number of dimensions in the tensor input does not match the length of the desired ordering of "
                           f"dimensions, i.e. input.dim() = {input.ndim} is not equal to len(dims) = {len(order)}")
    order = tuple(canonical_dim(d, input.ndim) for d in order)
    if sorted(order) != list(range(input.ndim)):
        raise RuntimeError(f"permute(): {order} does not name each dimension of a tensor of shape {list(input.shape)} once")
    pattern = input._pattern
    if order == tuple(range(input.ndim)):
        return input
    sparse = pattern.sparse_dims
    if sorted(order[:sparse]) != list(range(sparse)):
        raise RuntimeError(f"permute(): {order} exchanges sparse dimensions (the first {sparse}) with dense ones")
    shape = tuple(pattern.shape[d] for d in order)
    rows = entries(input).permute(0, *(d - sparse + 1 for d in order[sparse:]))
    if pattern.layout is not sparse_coo:
        batches = sparse - 2
        if order[:batches] != tuple(range(batches)):
            raise RuntimeError(f"transpose(): {order} moves batch dimensions (the first {batches}) of a {pattern.layout} tensor")
        if order[batches:sparse] == (batches, batches + 1):
            return assembled(rows, Pattern(pattern.layout, pattern.indices, shape, blocks=pattern.blocks))
        if pattern.blocks:
            rows = rows.reshape(*pattern.lead, *rows.shape[1:]).transpose(batches + 1, batches + 2).reshape(rows.shape)
        return assembled(rows, Pattern(_TURNED[pattern.layout], pattern.indices, shape, blocks=pattern.blocks[::-1]))
    indices = pattern.indices[0].index_select(0, integers(list(order[:sparse]), pattern.indices[0]))
    return assembled(rows, Pattern(sparse_coo, (indices,), shape, pattern.coalesced and order[:sparse] == tuple(range(sparse))))


@form(ops.transpose, ops.swapaxes, ops.swapdims)
def _transpose(input: SparseTensor, dim0: int, dim1: int) -> SparseTensor:
    order = list(range(input.ndim))
    a, b = canonical_dim(dim0, input.ndim), canonical_dim(dim1, input.ndim)
    order[a], order[b] = b, a
    return _permute(input, order)


SparseTensor.T = property(lambda self: _permute(self, list(range(self.ndim))[::-1]))  # type: ignore[assignment, method-assign]
SparseTensor.mT = property(lambda self: _transpose(self, -2, -1))  # type: ignore[assignment, method-assign]


@form(ops.t)
def _t(input: SparseTensor) -> SparseTensor:
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
    return _transpose(input, 0, 1) if input.ndim == 2 else input


def _refused(name: str, message: str) -> Any:
    def no(*args: Any, **kwargs: Any) -> Any:
        refuse(name, args, kwargs) if not message else _raise(message)
    return no


def _raise(message: str) -> None:
    raise RuntimeError(message)


for _name, _method in list(vars(Tensor).items()):
    if (_view := getattr(_method, "becomes", None)) in FORMS:       # transpose_ and its like
        setattr(SparseTensor, _name, lambda self, *args, _of=FORMS[_view], **kwargs: become(self, _of(self, *args, **kwargs)))


form(ops.reshape)(_refused("reshape", "reshape is not implemented for sparse tensors"))
form(ops.expand, ops.expand_as, ops.broadcast_to)(_refused("expand", "expand is unsupported for Sparse tensors"))


@form(ops.broadcast_tensors)
def _broadcast_tensors(*tensors: Any) -> tuple:
    each = tuple(tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors)
    if any(t.shape != each[0].shape for t in each):
        refuse("broadcast_tensors", each, {})
    return each


@form(ops.unsqueeze)
def _unsqueeze(input: SparseTensor, dim: int) -> SparseTensor:
    x = to_sparse(input)
    pattern = x._pattern
    at = canonical_dim(dim, x.ndim + 1)
    shape = (*pattern.shape[:at], 1, *pattern.shape[at:])
    if at > pattern.sparse_dims:
        return assembled(entries(x).unsqueeze(at - pattern.sparse_dims + 1), Pattern(sparse_coo, pattern.indices, shape))
    indices = pattern.indices[0]
    made = ops.cat((indices[:at], indices.new_zeros((1, pattern.nnz)), indices[at:]))
    return assembled(entries(x), Pattern(sparse_coo, (made,), shape))


# -- parts ---------------------------------------------------------------------------------------------------------------------
def _kept(x: SparseTensor, keep: Tensor, indices: Tensor, shape: tuple, coalesced: bool = False) -> SparseTensor:
    """The entries of these numbers, with new indices."""
    return assembled(entries(x).index_select(0, keep), Pattern(sparse_coo, (indices,), shape, coalesced))


@form(ops.select)
def _select(input: SparseTensor, dim: int, index: int) -> Tensor:
    at = canonical_dim(dim, input.ndim)
    batch = at < len(input._pattern.batch) and input.layout is not sparse_coo
    x = input if batch else to_sparse(input)
    pattern = x._pattern
    size = pattern.shape[at]
    if not -size <= index < size:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(pattern.shape)} at dimension {at}")
    shape = (*pattern.shape[:at], *pattern.shape[at + 1:])
    place = int(index) % size
    if batch:
        rows = in_lead(x, entries(x)).select(at, place).reshape(-1, *pattern.dense_shape)
        return assembled(rows, Pattern(pattern.layout, tuple(i.select(at, place) for i in pattern.indices), shape, blocks=pattern.blocks))
    if at >= pattern.sparse_dims:
        rows = entries(x).select(at - pattern.sparse_dims + 1, place)
        return assembled(rows, Pattern(sparse_coo, pattern.indices, shape))
    keep = ops.nonzero(pattern.indices[0][at] == place).reshape(-1)
    if pattern.sparse_dims == 1:
        return entries(x).index_select(0, keep).sum(0)
    rest = integers([d for d in range(pattern.sparse_dims) if d != at], pattern.indices[0])
    return _kept(x, keep, pattern.indices[0].index_select(0, rest).index_select(1, keep), shape, input.layout is not sparse_coo)


@form(ops.narrow_copy)
def _narrow_copy(input: SparseTensor, dim: int, start: int, length: int) -> SparseTensor:
    if input.layout is not sparse_coo:
        refuse("narrow_copy", (input,), {})
    if not -input.ndim <= dim < input.ndim:
        raise RuntimeError(f"Dimension {dim} out of range. Expecting 0 <= dim < {input.ndim}.")
    pattern, at = input._pattern, dim % input.ndim
    size = pattern.shape[at]
    begin = start + size if start < 0 else start
    if length < 0 or begin < 0 or begin + length > size:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    shape = (*pattern.shape[:at], length, *pattern.shape[at + 1:])
    if at >= pattern.sparse_dims:
        rows = entries(input).narrow(at - pattern.sparse_dims + 1, begin, length)
        return assembled(rows, Pattern(sparse_coo, pattern.indices, shape, pattern.coalesced))
    line = pattern.indices[0][at]
    keep = ops.nonzero((line >= begin) & (line < begin + length)).reshape(-1)
    indices = pattern.indices[0].index_select(1, keep)
    moved = ops.zeros_like(indices)
    moved[at] = begin
    return _kept(input, keep, indices - moved, shape)


@form(ops.index_select)
def _index_select(input: SparseTensor, dim: int, index: Tensor) -> SparseTensor:
    """Entries of each wanted line, in the order of `index`."""
    pattern = input._pattern
    if input.layout is not sparse_coo:
        return compressed(_index_select(to_sparse(input), dim, index), input.layout, pattern.blocks)
    at = canonical_dim(dim, input.ndim)
    wanted, size = index.reshape(-1).long(), pattern.shape[at]
    shape = (*pattern.shape[:at], wanted.shape[0], *pattern.shape[at + 1:])
    if at >= pattern.sparse_dims:
        rows = entries(input).index_select(at - pattern.sparse_dims + 1, wanted)
        return assembled(rows, Pattern(sparse_coo, pattern.indices, shape))
    if wanted.shape[0] and (int(wanted.min()) < -size or int(wanted.max()) >= size):
        raise IndexError(f"index_select(): index out of range: dimension {at} of {list(pattern.shape)} has {size} lines")
    wanted = ops.where(wanted < 0, wanted + size, wanted)
    order = ops.argsort(pattern.indices[0][at], stable=True)
    starts = starts_of(pattern.indices[0][at].index_select(0, order), size)
    which, entry = runs(starts, wanted)
    keep = order.index_select(0, entry)
    indices = pattern.indices[0].index_select(1, keep)
    made = ops.cat((indices[:at], which.unsqueeze(0), indices[at + 1:]))
    return assembled(entries(input).index_select(0, keep), Pattern(sparse_coo, (made,), shape))


def runs(starts: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """For the runs of these numbers, one after another, each of which goes from `starts[i]` to `starts[i + 1]`: which of `wanted` a
    place belongs
    to, and the place."""
    begin = starts.index_select(0, wanted)
    counts = starts.index_select(0, wanted + 1) - begin
    which = ops.repeat_interleave(ops.arange(wanted.shape[0], device=wanted.device), counts)
    before = counts.cumsum(0) - counts
    place = ops.arange(which.shape[0], device=wanted.device) - before.index_select(0, which) + begin.index_select(0, which)
    return which, place


@form(ops.unbind)
def _unbind(input: SparseTensor, dim: int = 0) -> tuple:
    return tuple(_select(input, dim, i) for i in range(input.size(dim)))


def _subscripted(self: SparseTensor, key: Any) -> Tensor:
    """Numbers, `...` and whole slices select; anything else asks for what only arrays have."""
    keys = list(key) if isinstance(key, tuple) else [key]
    if any(k is Ellipsis for k in keys):
        at = next(i for i, k in enumerate(keys) if k is Ellipsis)
        keys[at:at + 1] = [slice(None)] * (self.ndim - len(keys) + 1)
    found: Tensor = self
    dim = 0
    for k in keys:
        if k == slice(None) if isinstance(k, slice) else False:
            dim += 1
        elif k is None:
            found, dim = ops.unsqueeze(found, dim), dim + 1
        elif (isinstance(k, int) and not isinstance(k, bool)) or (isinstance(k, Tensor) and not k.ndim and k.dtype.category == 1):
            if dim >= found.ndim:
                raise IndexError(f"too many indices for tensor of shape {list(self.shape)}: {key!r}")
            found = ops.select(found, dim, int(k))
        else:
            raise NotImplementedError(f"a sparse tensor takes numbers and None as subscripts, not {k!r} (of shape {list(self.shape)}, layout "
                                      f"{self.layout}); use index_select, narrow_copy, or to_dense()")
    return found


def _no_writing(self: SparseTensor, key: Any, value: Any) -> None:
    raise TypeError(f"Cannot assign to a sparse tensor ({self.layout}) at {key!r} (a value of type {type(value).__name__}): build one with "
                    "other values, or use to_dense()")


SparseTensor.__getitem__ = _subscripted  # type: ignore[assignment, method-assign]
SparseTensor.__setitem__ = _no_writing  # type: ignore[assignment, method-assign]


# -- joints --------------------------------------------------------------------------------------------------------------------
@form(ops.cat, ops.concat, ops.concatenate)
def _cat(tensors: Sequence[Tensor], dim: int = 0) -> SparseTensor:
    if not all(isinstance(t, SparseTensor) and t.layout is sparse_coo for t in tensors):
        if tensors[0].layout is not sparse_coo:
            refuse("cat", tuple(tensors), {})
        raise RuntimeError("Concatenating sparse tensors, but found a tensor of another layout: " + ", ".join(str(t.layout) for t in tensors))
    first: Any = tensors[0]
    pattern, at = first._pattern, canonical_dim(dim, first.ndim)
    for t in tensors:
        other: Any = t
        if other._pattern.sparse_dims != pattern.sparse_dims or any(
                a != b for d, (a, b) in enumerate(zip(pattern.shape, t.shape)) if d != at) or t.ndim != first.ndim:
            raise RuntimeError(f"All tensors must have the same shape (apart from dimension {at}) and sparse dimensions, got "
                               + ", ".join(f"{list(x.shape)} ({x.sparse_dim()} sparse)" for x in tensors))
    total = sum(t.shape[at] for t in tensors)
    shape = (*pattern.shape[:at], total, *pattern.shape[at + 1:])
    indices, rows, before = [], [], 0
    for t in tensors:
        index, values = coordinates(t._pattern), entries(t)  # type: ignore[arg-type, attr-defined]
        if at < pattern.sparse_dims:
            moved = ops.zeros_like(index)
            moved[at] = before
            index = index + moved
        else:
            axis = at - pattern.sparse_dims + 1
            lead, tail = tuple(values.shape[:axis]), tuple(values.shape[axis + 1:])
            values = ops.cat((values.new_zeros((*lead, before, *tail)), values,
                              values.new_zeros((*lead, total - before - t.shape[at], *tail))), axis)
        indices.append(index)
        rows.append(values)
        before += t.shape[at]
    return assembled(ops.cat(rows), Pattern(sparse_coo, (ops.cat(indices, 1),), shape))


@form(ops.stack)
def _stack(tensors: Sequence[Tensor], dim: int = 0) -> SparseTensor:
    return _cat([ops.unsqueeze(t, dim) for t in tensors], dim)


# -- sums ----------------------------------------------------------------------------------------------------------------------
@form(ops.sum)
def total(input: SparseTensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum along dimensions: dense where no sparse dimension is left, else COO."""
    rows = entries(input)
    if dtype is not None:
        rows = rows.to(dtype)
    if dim is None:
        return rows.sum()
    pattern = input._pattern
    dims = {canonical_dim(d, input.ndim) for d in ((dim,) if isinstance(dim, int) else dim)}
    sparse = pattern.sparse_dims
    inside = tuple(d - sparse + 1 for d in sorted(dims) if d >= sparse)
    if inside:
        rows = rows.sum(inside, keepdim=keepdim)
    elif rows.dtype.category < 2 and dtype is None:
        rows = rows.long()
    left = [d for d in range(sparse) if d not in dims]
    if not left:
        return rows.sum(0, keepdim) if not keepdim else rows.sum(0).reshape(*(1,) * sparse, *rows.shape[1:])
    shape = tuple(1 if d in dims else n for d, n in enumerate(pattern.shape) if keepdim or d not in dims)
    index = coordinates(pattern)
    lines = [index[d] if d in left else index.new_zeros((pattern.nnz,)) for d in range(sparse) if keepdim or d in left]
    made = assembled(rows, Pattern(sparse_coo, (ops.stack(lines),), shape, pattern.coalesced and len(left) == sparse))
    if input.layout in (sparse_csr, sparse_csc) and len(shape) == 2:
        return to_sparse(made, layout=input.layout)
    found = coalesced(made)
    return assembled(entries(found), Pattern(sparse_coo, found._pattern.indices, shape)) if keepdim else found


def sparse_sum(input: Tensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """The sum of a sparse tensor, of all its elements or along `dim`."""
    if not isinstance(input, SparseTensor):
        raise RuntimeError(f"torch.sparse.sum expects a sparse tensor, got layout {input.layout}; use torch.sum")
    return ops.sum(input, dtype=dtype) if dim is None else ops.sum(input, dim, dtype=dtype)


# -- softmax -------------------------------------------------------------------------------------------------------------------
def _normalised(input: Tensor, dim: int, dtype: Any, log: bool) -> SparseTensor:
    if not isinstance(input, SparseTensor) or input.layout is not sparse_coo:
        raise NotImplementedError(f"torch.sparse.{'log_' if log else ''}softmax expects a torch.sparse_coo tensor, got layout {input.layout}; "
                           "use to_sparse()")
    x = coalesced(input if dtype is None else input.to(dtype))  # type: ignore[arg-type]
    if not x.dtype.is_floating_point:
        raise NotImplementedError(f'"{"log_" if log else ""}softmax" not implemented for \'{x.dtype}\': convert the tensor to float first')
    pattern, at, rows = x._pattern, canonical_dim(dim, x.ndim), entries(x)
    if at >= pattern.sparse_dims:
        axis = at - pattern.sparse_dims + 1
        return assembled(rows.log_softmax(axis) if log else rows.softmax(axis), pattern)
    if not pattern.nnz:
        return x
    line = pattern.indices[0].new_zeros((pattern.nnz,))
    for d, index in enumerate(pattern.indices[0]):
        line = line if d == at else line * pattern.shape[d] + index
    group, which = ops.unique(line, return_inverse=True)
    count, where = group.shape[0], which.reshape(-1, *(1,) * (rows.ndim - 1)).expand(tuple(rows.shape))
    fixed = rows.detach()
    highest = fixed.new_full((count, *rows.shape[1:]), float("-inf")).scatter_reduce(0, where, fixed, "amax")
    shifted = rows - highest.index_select(0, which)
    parts = shifted.exp()
    sums = summed_rows(parts, which, count).index_select(0, which)
    return assembled(shifted - sums.log() if log else parts / sums, pattern)


def softmax(input: Tensor, dim: int, *, dtype: Any = None) -> SparseTensor:
    """Softmax along `dim` of a COO tensor: what is not there counts as minus infinity."""
    return _normalised(input, dim, dtype, False)


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> SparseTensor:
    """The logarithm of `softmax`."""
    return _normalised(input, dim, dtype, True)
