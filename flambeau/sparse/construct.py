"""Making sparse tensors of indices and values, and checking these."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from .. import ops
from ..core.device import CPU
from ..core.dtypes import dtype as Dtype
from ..core.dtypes import int32, int64
from ..core.memory_format import layout as Layout
from ..core.memory_format import sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr
from ..core.sparse import Pattern, SparseTensor
from ..core.tensor import Tensor
from ..ops.creation import TypedMeta, typed_tensors
from .bridge import assembled


class check_sparse_tensor_invariants:
    """Whether indices are checked when a sparse tensor is made (they are, unless it is turned off): `disable()`, `enable()`,
    `is_enabled()`,
    or a block `with check_sparse_tensor_invariants(flag):`."""

    _on = True

    def __init__(self, enable: bool = True) -> None:
        self.flag = enable

    @classmethod
    def enable(cls) -> None:
        """Check."""
        check_sparse_tensor_invariants._on = True

    @classmethod
    def disable(cls) -> None:
        """Trust who makes sparse tensors."""
        check_sparse_tensor_invariants._on = False

    @classmethod
    def is_enabled(cls) -> bool:
        """Whether indices are checked."""
        return check_sparse_tensor_invariants._on

    def __enter__(self) -> None:
        self.before = self.is_enabled()
        check_sparse_tensor_invariants._on = self.flag

    def __exit__(self, *exc: object) -> None:
        check_sparse_tensor_invariants._on = self.before


def _index(data: Any, device: Any, name: str) -> Tensor:
    found = ops.as_tensor(data, device=device)
    if isinstance(found, SparseTensor) or found.layout.name != "strided":
        raise TypeError(f"{name} must be a dense tensor, got layout {found.layout}")
    if found.dtype.category != 1:
        found = found.long()
    return found.detach()


def _values(data: Any, kind: Dtype | None, device: Any) -> Tensor:
    return ops.as_tensor(data, dtype=kind, device=device)


def _finished(values: Tensor, pattern: Pattern, requires_grad: bool) -> SparseTensor:
    """Gradients flow to the values; where these need none, with `requires_grad` it is a leaf."""
    if requires_grad and not values.requires_grad:
        return assembled(values.detach(), pattern).requires_grad_()  # type: ignore[return-value]
    return assembled(values, pattern)


def _sizes(size: Any) -> tuple[int, ...]:
    sizes = tuple(int(n) for n in size)
    if any(n < 0 for n in sizes):
        raise RuntimeError(f"a sparse tensor's sizes must not be negative, got {list(sizes)}")
    return sizes


def sparse_coo_tensor(indices: Any = None, values: Any = None, size: Any = None, *, dtype: Dtype | None = None, device: Any = None,
                      pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
                      is_coalesced: bool | None = None) -> SparseTensor:
    """The COO tensor that has `values` (entries, ...) at `indices` (sparse dimensions, entries), which are added up where they repeat;
    without
    `size` as small as they allow. `sparse_coo_tensor(size=...)`, or with the size alone: no entries. Gradients flow to `values`."""
    _refuse_pinned(pin_memory)
    if values is None and indices is not None and size is None:
        if isinstance(indices, Tensor):
            raise TypeError(f"sparse_coo_tensor(): indices of shape {list(indices.shape)} without values")
        indices, size = None, indices
    if indices is None or values is None:
        if size is None or indices is not None or values is not None:
            raise TypeError("sparse_coo_tensor(): give indices and values, with or without a size, or a size alone")
        shape = _sizes(size)
        where = ops.empty((0,), dtype=dtype, device=device)
        none = ops.zeros((len(shape), 0), dtype=int64, device=where.device)
        return _finished(where, Pattern(sparse_coo, (none,), shape, True), requires_grad)
    entries = _values(values, dtype, device)
    index = _index(indices, entries.device, "indices")
    if index.ndim != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(index.shape)}")
    index = index.long()
    if not entries.ndim:
        entries = entries.reshape(1)
    if index.shape[1] != entries.shape[0]:
        raise RuntimeError(f"indices and values must have same nnz, but got nnz from indices: {index.shape[1]}, nnz from values: "
                           f"{entries.shape[0]}")
    shape = _inferred(index, entries) if size is None else _sizes(size)
    if len(shape) != index.shape[0] + entries.ndim - 1:
        raise RuntimeError("'len(size) == sparse_dim + dense_dim' is not satisfied: "
                           f"len(size) = {len(shape)}, sparse_dim = {index.shape[0]}, dense_dim = {entries.ndim - 1}")
    if shape[index.shape[0]:] != tuple(entries.shape[1:]):
        raise RuntimeError(f"values has incorrect size, expected {[index.shape[1], *shape[index.shape[0]:]]}, got {list(entries.shape)}")
    pattern = Pattern(sparse_coo, (index,), shape, bool(is_coalesced))
    if check_sparse_tensor_invariants.is_enabled() if check_invariants is None else check_invariants:
        _check_pattern(pattern, entries)
    return _finished(entries, pattern, requires_grad)


def check_indices(tensor: SparseTensor) -> None:
    """RuntimeError where the indices of a sparse tensor are not what its layout and its size ask for."""
    _check_pattern(tensor._pattern, tensor._entries)


def _check_pattern(pattern: Pattern, entries: Tensor) -> None:
    if pattern.layout is not sparse_coo:
        return _check_compressed(pattern, (*pattern.lead, *entries.shape[1:]))
    _check_bounds(pattern.indices[0], pattern.shape)
    if pattern.coalesced:
        _check_sorted(pattern)


def _refuse_pinned(pin_memory: bool) -> None:
    if pin_memory:
        raise NotImplementedError("pin_memory=True is not implemented for sparse tensors; pin the indices and the values")


def _inferred(index: Tensor, entries: Tensor) -> tuple[int, ...]:
    """The least shape that holds these indices."""
    if not index.shape[1]:
        return (*(0,) * index.shape[0], *entries.shape[1:])
    least = index.amin(1).tolist()
    for dim, value in enumerate(least):
        if value < 0:
            raise RuntimeError(f"found negative index {value} for dim {dim}")
    return (*(n + 1 for n in index.amax(1).tolist()), *entries.shape[1:])


def _check_bounds(index: Tensor, shape: tuple[int, ...]) -> None:
    if not index.shape[1]:
        return
    for dim, (low, high) in enumerate(zip(index.amin(1).tolist(), index.amax(1).tolist())):
        if low < 0:
            raise RuntimeError(f"found negative index {low} for dim {dim}")
        if high >= shape[dim]:
            raise RuntimeError(f"size is inconsistent with indices: for dim {dim}, size is {shape[dim]} but found index {high}")


def _check_sorted(pattern: Pattern) -> None:
    place = pattern.indices[0].new_zeros((pattern.nnz,))
    for size, index in zip(pattern.shape, pattern.indices[0]):
        place = place * size + index
    if not bool((place[1:] > place[:-1]).all()):
        raise RuntimeError("cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor")


# -- compressed rows and columns, of entries or of blocks ----------------------------------------------------------------------
COMPRESSED = {sparse_csr: ("crow_indices", "col_indices"), sparse_csc: ("ccol_indices", "row_indices"),
              sparse_bsr: ("crow_indices", "col_indices"), sparse_bsc: ("ccol_indices", "row_indices")}
"""By compressed layout: what the two index tensors are called."""
BLOCKED = (sparse_bsr, sparse_bsc)


def sparse_compressed_tensor(compressed_indices: Any, plain_indices: Any, values: Any, size: Any = None, *, dtype: Dtype | None = None,
                             layout: Layout | None = None, device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
                             check_invariants: bool | None = None) -> SparseTensor:
    """The CSR (or CSC) tensor with these `values`: row i (column i) has those from `compressed_indices[i]` to `compressed_indices[i + 1]`,
    at the columns (rows) `plain_indices`. BSR and BSC: the same of blocks, `values` (blocks, height, width, ...). All three may have
    batch dimensions in front, with as many values for each."""
    _refuse_pinned(pin_memory)
    if layout not in COMPRESSED:
        raise RuntimeError("expected sparse compressed layout, but got layout="
                           f"{layout}: one of {', '.join(map(str, COMPRESSED))} is required")
    given = _values(values, dtype, device)
    starts = _index(compressed_indices, given.device, COMPRESSED[layout][0])
    across = _index(plain_indices, given.device, COMPRESSED[layout][1])
    _check_forms(layout, starts, across, given)
    batches, blocked = starts.ndim - 1, 2 * (layout in BLOCKED)
    blocks, dense = given.shape[batches + 1:batches + 1 + blocked], given.shape[batches + 1 + blocked:]
    if size is None:
        lines, width = starts.shape[-1] - 1, int(across.max()) + 1 if across.numel() else 0
        matrix = (lines, width) if COMPRESSED[layout][0] == "crow_indices" else (width, lines)
        size = (*starts.shape[:-1], *(n * m for n, m in zip(matrix, blocks or (1, 1))), *dense)
    pattern = Pattern(layout, (starts, across), _sizes(size), blocks=tuple(blocks))
    if check_sparse_tensor_invariants.is_enabled() if check_invariants is None else check_invariants:
        _check_compressed(pattern, given.shape)
    return _finished(given.reshape(pattern.nnz, *dense), pattern, requires_grad)


def _check_forms(layout: Layout, starts: Tensor, across: Tensor, values: Tensor) -> None:
    """RuntimeError where the dimensions and dtypes of indices and values do not fit each other."""
    first, second = COMPRESSED[layout]
    blocked, batches = 2 * (layout in BLOCKED), starts.ndim - 1
    if starts.dtype is not across.dtype or starts.dtype not in (int32, int64):
        raise RuntimeError(f"{first} and {second} must have the same dtype, int32 or int64, bot got {starts.dtype} and {across.dtype}")
    for name, found in ((first, starts), (second, across)):
        if not found.ndim:
            raise RuntimeError(f"{name} must have dimensionality >= 1 but got 0")
    if across.ndim != starts.ndim:
        raise RuntimeError(f"{first} and {second} dimensionalities must be equal but got {starts.ndim} and {across.ndim}, respectively")
    if values.ndim < batches + 1 + blocked:
        raise RuntimeError(f"values must have dimensionality > sum of batch and block dimensionalities (={batches} + {blocked}) but got "
                           f"{values.ndim}")
    if tuple(values.shape[:batches + 1]) != tuple(across.shape) or across.shape[:-1] != starts.shape[:-1]:
        raise RuntimeError(f"all batch dimensions of {first} (={list(starts.shape[:-1])}), {second} (={list(across.shape[:-1])}) and values "
                           f"(={list(values.shape[:batches])}) must be equal to each other, and {second}.shape[-1] must be equal to nnz "
                           f"(={values.shape[batches]}) but got {across.shape[-1]}")


def _check_compressed(pattern: Pattern, values_shape: Any) -> None:
    starts, across = pattern.indices
    first, second = COMPRESSED[pattern.layout]
    shape, batches, blocks = pattern.shape, len(pattern.batch), pattern.blocks or (1, 1)
    dense = tuple(values_shape[batches + 1 + len(pattern.blocks):])
    if len(shape) != batches + 2 + len(dense):
        raise RuntimeError(f"tensor dimensionality must be sum of batch, base, and dense dimensionalities (={batches} + 2 + {len(dense)}) "
                           f"but got {len(shape)}")
    for holds, what in (
        (shape[:batches] == pattern.batch, f"`size[:{batches}] == {first}.shape[:-1]`: size {list(shape)}, {first} {list(starts.shape)}"),
        (shape[batches + 2:] == dense, f"`size[{batches + 2}:]` is the shape of one value: size {list(shape)}, values "
                                       f"{list(values_shape)}"),
        (all(n % m == 0 for n, m in zip(shape[batches:], blocks)), f"`size[{batches}:{batches + 2}]` is divisible by the blocks' size: "
                                                                   f"{list(shape)}, blocks {list(blocks)}")):
        if not holds:
            raise RuntimeError(f"{what.partition(': ')[0]} is not satisfied. Got {what.partition(': ')[2]}")
    lines, width = (n // m for n, m in list(zip(shape[batches:batches + 2], blocks))[::1 if pattern.by_rows else -1])
    if starts.shape[-1] != lines + 1:
        raise RuntimeError(f"{first}.shape[-1] must be equal to the number of {'rows' if pattern.by_rows else 'columns'} + 1 (={lines + 1}) "
                           f"but got {starts.shape[-1]}")
    count = math.prod(pattern.batch)
    for begin, at in zip(starts.reshape(count, lines + 1), across.reshape(count, pattern.stored)):
        _check_lines(begin, at, (first, second), width, pattern.by_rows)


def _check_lines(starts: Tensor, across: Tensor, names: tuple[str, str], width: int, by_rows: bool) -> None:
    """Of one matrix."""
    count, counts = across.shape[0], starts[1:] - starts[:-1]
    (first, second), (lines, columns) = names, ("nrows", "ncols") if by_rows else ("ncols", "nrows")
    for holds, what in (
        (lambda: int(starts[0]) == 0, f"`{first}[..., 0] == 0`"),
        (lambda: int(starts[-1]) == count, f"`{first}[..., -1] == nnz`"),
        (lambda: bool((counts >= 0).all()) and bool((counts <= width).all()), f"`0 <= {first}[..., 1:] - {first}[..., :-1] <= {columns}`"),
        (lambda: not count or (int(across.min()) >= 0 and int(across.max()) < width), f"`0 <= {second} < {columns}`"),
        (lambda: _sorted_lines(starts, across), f"`{second}[..., {first}[..., i - 1]:{first}[..., i]] for all i = 1, ..., {lines} are "
                                                "sorted and distinct along the last dimension values`"),
    ):
        if not holds():
            raise RuntimeError(f"{what} is not satisfied." + f" Got nnz = {count}, {columns} = {width}")


def _sorted_lines(starts: Tensor, across: Tensor) -> bool:
    if across.shape[0] < 2:
        return True
    begins = ops.zeros((across.shape[0] + 1,), dtype=int64, device=across.device)
    begins = begins.index_add(0, starts.long(), ops.ones_like(starts.long()))[1:-1] > 0
    return bool(((across[1:] > across[:-1]) | begins).all())


def _compressed(layout: Layout) -> Callable[..., SparseTensor]:
    def make(compressed: Any, plain: Any, values: Any, size: Any = None, *, dtype: Dtype | None = None, device: Any = None,
             pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None) -> SparseTensor:
        return sparse_compressed_tensor(compressed, plain, values, size, dtype=dtype, layout=layout, device=device, pin_memory=pin_memory,
                                        requires_grad=requires_grad, check_invariants=check_invariants)

    names = COMPRESSED[layout]

    def named(*args: Any, **kwargs: Any) -> SparseTensor:
        missing = [kwargs.pop(name) for name in names[len(args):] if name in kwargs]
        return make(*args, *missing, **kwargs)

    named.__name__ = named.__qualname__ = f"{layout.name}_tensor"
    named.__doc__ = f"sparse_compressed_tensor with layout=torch.{layout.name}: `{names[0]}`, `{names[1]}`, `values` and perhaps a size."
    return named


sparse_csr_tensor, sparse_csc_tensor, sparse_bsr_tensor, sparse_bsc_tensor = map(_compressed, COMPRESSED)


# -- checks alone --------------------------------------------------------------------------------------------------------------
def _validate_sparse_coo_tensor_args(indices: Tensor, values: Tensor, size: Any, is_coalesced: bool | None = None) -> None:
    """RuntimeError where no COO tensor can be made of these."""
    sparse_coo_tensor(indices, values, size, check_invariants=True, is_coalesced=is_coalesced)


def _validate_sparse_compressed_tensor_args(compressed_indices: Tensor, plain_indices: Tensor, values: Tensor, size: Any,
                                            layout: Layout) -> None:
    """RuntimeError where no compressed tensor can be made of these."""
    sparse_compressed_tensor(compressed_indices, plain_indices, values, size, layout=layout, check_invariants=True)


(_validate_sparse_csr_tensor_args, _validate_sparse_csc_tensor_args, _validate_sparse_bsr_tensor_args, _validate_sparse_bsc_tensor_args) = (
    functools.partial(_validate_sparse_compressed_tensor_args, layout=kind) for kind in COMPRESSED)


class _SparseTypedMeta(TypedMeta):
    """isinstance(x, torch.sparse.FloatTensor) asks for a COO tensor of that dtype. Called, it makes one of (indices, values, size), of a
    size, or of nothing."""

    layout = sparse_coo

    def __call__(cls, *args: Any) -> SparseTensor:
        if len(args) < 2 or isinstance(args[0], int):
            return sparse_coo_tensor(size=args[0] if len(args) == 1 else args or (0,), dtype=cls.kind)
        if isinstance(args[1], Tensor) and args[1].dtype is not cls.kind:
            raise TypeError(f"expected values of {cls.kind}, got {args[1].dtype}")
        return sparse_coo_tensor(*args, dtype=cls.kind)


TYPED_TENSORS = typed_tensors(CPU, "torch.sparse", _SparseTypedMeta)


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Sequence[int], layout: Layout | None = None) -> SparseTensor:
    """The sparse matrix with the rows of `diagonals` along the diagonals `offsets`: element j of a row stands in column j."""
    rows = diagonals if diagonals.ndim == 2 else diagonals.unsqueeze(0)
    steps = offsets.reshape(-1).long()
    if rows.shape[0] != steps.shape[0]:
        raise RuntimeError(f"Number of diagonals ({rows.shape[0]}) does not match the number of offsets ({steps.shape[0]})")
    if ops.unique(steps).shape[0] != steps.shape[0]:
        raise RuntimeError("Offset tensor contains duplicate values")
    column = ops.arange(rows.shape[1], device=rows.device).expand(tuple(rows.shape))
    line = column - steps.unsqueeze(1)
    inside = (line >= 0) & (line < shape[0]) & (column < shape[1])
    made = sparse_coo_tensor(ops.stack((line[inside], column[inside])), rows[inside], tuple(shape))
    return made if layout is None else made.to_sparse(layout=layout)  # type: ignore[return-value]
