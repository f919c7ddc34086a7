"""Making sparse tensors of indices and values, and checking these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import ops
from ..core.dtypes import dtype as Dtype
from ..core.dtypes import int32, int64
from ..core.memory_format import layout as Layout
from ..core.memory_format import sparse_coo, sparse_csc, sparse_csr
from ..core.sparse import Pattern, SparseTensor
from ..core.tensor import Tensor
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
    """With `requires_grad` it is a leaf; else gradients flow to the values."""
    if requires_grad:
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
        return _check_compressed(pattern, entries)
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


# -- compressed rows and columns ---------------------------------------------------------------------------------------------
def compressed_names(layout: Layout) -> tuple[str, str]:
    """What the two index tensors of a layout are called."""
    return ("crow_indices", "col_indices") if layout is sparse_csr else ("ccol_indices", "row_indices")


def sparse_compressed_tensor(compressed_indices: Any, plain_indices: Any, values: Any, size: Any = None, *, dtype: Dtype | None = None,
                             layout: Layout | None = None, device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
                             check_invariants: bool | None = None) -> SparseTensor:
    """The CSR (or CSC) tensor with these `values`: row i (column i) has those from `compressed_indices[i]` to `compressed_indices[i +
    1]`, at the
    columns (rows) `plain_indices`."""
    _refuse_pinned(pin_memory)
    if layout is None:
        raise RuntimeError("sparse_compressed_tensor(): layout is required: torch.sparse_csr or torch.sparse_csc")
    if layout not in (sparse_csr, sparse_csc):
        raise NotImplementedError(f"layout={layout} is not implemented; use torch.sparse_csr or torch.sparse_csc, or a COO tensor with "
                                  "dense dimensions")
    entries = _values(values, dtype, device)
    starts = _index(compressed_indices, entries.device, compressed_names(layout)[0])
    across = _index(plain_indices, entries.device, compressed_names(layout)[1])
    if starts.dtype is not across.dtype or starts.dtype not in (int32, int64):
        raise RuntimeError(f"compressed indices and plain indices must have one dtype, int32 or int64, got {starts.dtype} and "
                           f"{across.dtype}")
    if starts.ndim != 1 or across.ndim != 1:
        raise NotImplementedError(f"batches of {layout} tensors are not implemented: indices must be 1-D, got {list(starts.shape)} and "
                                  f"{list(across.shape)}; keep a list of tensors, or stack COO tensors")
    if size is None:
        lines, width = starts.shape[0] - 1, int(across.max()) + 1 if across.shape[0] else 0
        size = (*((lines, width) if layout is sparse_csr else (width, lines)), *entries.shape[1:])
    pattern = Pattern(layout, (starts, across), _sizes(size))
    if check_sparse_tensor_invariants.is_enabled() if check_invariants is None else check_invariants:
        _check_pattern(pattern, entries)
    return _finished(entries, pattern, requires_grad)


def _check_compressed(pattern: Pattern, entries: Tensor) -> None:
    starts, across = pattern.indices
    first, second = compressed_names(pattern.layout)
    shape, by_rows = pattern.shape, pattern.layout is sparse_csr
    if len(shape) < 2:
        raise RuntimeError(f"size must have 2 dimensions or more, got {list(shape)}")
    lines, width = (shape[0], shape[1]) if by_rows else (shape[1], shape[0])
    count, names = across.shape[0], ("nrows", "ncols") if by_rows else ("ncols", "nrows")
    counts = starts[1:] - starts[:-1]
    for holds, what in (
        (starts.shape[0] == lines + 1, f"`{first}.shape[-1] == {names[0]} + 1`: {starts.shape[0]}, {names[0]} = {lines}"),
        (entries.ndim >= 1 and entries.shape[0] == count, f"`values.shape[0] == nnz`: {list(entries.shape)}, nnz = {count}"),
        (tuple(entries.shape[1:]) == shape[2:], f"`values.shape[1:] == size[2:]`: {list(entries.shape)}, size {list(shape)}"),
        (lambda: int(starts[0]) == 0, f"`{first}[..., 0] == 0`"),
        (lambda: int(starts[-1]) == count, f"`{first}[..., -1] == nnz`, nnz = {count}"),
        (lambda: bool((counts >= 0).all()) and bool((counts <= width).all()),
         f"`0 <= {first}[..., 1:] - {first}[..., :-1] <= {names[1]}`"),
        (lambda: not count or (int(across.min()) >= 0 and int(across.max()) < width), f"`0 <= {second} < {names[1]}`"),
        (lambda: _sorted_lines(starts, across), f"`{second}[..., {first}[..., i - 1]:{first}[..., i]] for all i = 1, ..., {names[0]} are "
                                                "sorted and distinct along the last dimension values`"),
    ):
        if not (holds() if callable(holds) else holds):
            raise RuntimeError(f"{what.partition(': ')[0]} is not satisfied." + (f" Got {what.partition(': ')[2]}" if ": " in what else ""))


def _sorted_lines(starts: Tensor, across: Tensor) -> bool:
    if across.shape[0] < 2:
        return True
    begins = ops.zeros((across.shape[0] + 1,), dtype=int64, device=across.device)
    begins = begins.index_add(0, starts.long(), ops.ones_like(starts.long()))[1:-1] > 0
    return bool(((across[1:] > across[:-1]) | begins).all())


def _compressed(layout: Layout, first: str, second: str) -> Callable[..., SparseTensor]:
    def make(compressed: Any, plain: Any, values: Any, size: Any = None, *, dtype: Dtype | None = None, device: Any = None,
             pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None) -> SparseTensor:
        return sparse_compressed_tensor(compressed, plain, values, size, dtype=dtype, layout=layout, device=device, pin_memory=pin_memory,
                                        requires_grad=requires_grad, check_invariants=check_invariants)

    def named(*args: Any, **kwargs: Any) -> SparseTensor:
        missing = [kwargs.pop(name) for name in (first, second)[len(args):] if name in kwargs]
        return make(*args, *missing, **kwargs)

    named.__name__ = named.__qualname__ = f"{layout.name}_tensor"
    named.__doc__ = f"sparse_compressed_tensor with layout=torch.{layout.name}: `{first}`, `{second}`, `values` and perhaps a size."
    return named


sparse_csr_tensor = _compressed(sparse_csr, "crow_indices", "col_indices")
sparse_csc_tensor = _compressed(sparse_csc, "ccol_indices", "row_indices")


def _absent_blocks(name: str) -> Callable[..., Any]:
    def missing(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"torch.{name} is not implemented; use torch.sparse_csr_tensor, or a COO tensor with dense dimensions "
                                  f"(got {len(args) + len(kwargs)} arguments)")
    missing.__name__ = missing.__qualname__ = name
    missing.__doc__ = "Not implemented: blocks of entries; use sparse_csr_tensor."
    return missing


sparse_bsr_tensor, sparse_bsc_tensor = _absent_blocks("sparse_bsr_tensor"), _absent_blocks("sparse_bsc_tensor")


def typed(kind: Dtype) -> Callable[..., SparseTensor]:
    """torch.sparse.FloatTensor and its like: the COO tensor of (indices, values, size), of a size, or of nothing."""
    def make(*args: Any) -> SparseTensor:
        if len(args) < 2 or isinstance(args[0], int):
            return sparse_coo_tensor(size=args[0] if len(args) == 1 else args or (0,), dtype=kind)
        if isinstance(args[1], Tensor) and args[1].dtype is not kind:
            raise TypeError(f"expected values of {kind}, got {args[1].dtype}")
        return sparse_coo_tensor(*args, dtype=kind)
    make.__doc__ = f"The COO tensor of {kind} with these indices, values and size."
    return make


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Sequence[int], layout: Layout | None = None) -> SparseTensor:
    """The sparse matrix with the rows of `diagonals` along the diagonals `offsets`: element j of a row stands in column j."""
    rows = diagonals if diagonals.ndim == 2 else diagonals.unsqueeze(0)
    steps = offsets.reshape(-1).long()
    if rows.shape[0] != steps.shape[0]:
        raise ValueError(f"Number of diagonals ({rows.shape[0]}) does not match the number of offsets ({steps.shape[0]})")
    if ops.unique(steps).shape[0] != steps.shape[0]:
        raise ValueError("Offset tensor contains duplicate values")
    column = ops.arange(rows.shape[1], device=rows.device).expand(tuple(rows.shape))
    line = column - steps.unsqueeze(1)
    inside = (line >= 0) & (line < shape[0]) & (column < shape[1])
    made = sparse_coo_tensor(ops.stack((line[inside], column[inside])), rows[inside], tuple(shape))
    return made if layout is None else made.to_sparse(layout=layout)
