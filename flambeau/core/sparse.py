"""`SparseTensor`: a tensor that holds only some of its elements, in a layout that says where they belong.

Only the mechanism is here: what the tensor is made of, and how operators that have a form for such tensors are found. The forms
stand in `flambeau.sparse`, a table keyed by the operators themselves; any other operator refuses, it never computes nonsense.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

from .forms import FormTensor, check_may_write, formed
from .memory_format import layout, sparse_coo
from .size import canonical_dim
from .tensor import Tensor

FORMS: dict[Any, Callable] = {}
"""By operator: what it is for arguments of which some are sparse."""

BACKENDS = {"sparse_coo": "Sparse", "sparse_csr": "SparseCsr", "sparse_csc": "SparseCsc", "sparse_bsr": "SparseBsr", "sparse_bsc": "SparseBsc"}
"""By layout: what messages call it."""


class Pattern:
    """Where a sparse tensor has entries. It is never changed, so that tensors share it, and what follows from it is kept in `facts`.

    COO: `indices` is one int64 tensor (sparse dimensions, entries); `coalesced` says that they are sorted and distinct.
    CSR and CSC: `indices` are where each row (column) begins among the entries, and the entries' columns (rows), in batches of as many
    entries each. BSR and BSC: the same of `blocks` of that size, whose elements are the entries.
    """

    __slots__ = ("blocks", "coalesced", "facts", "indices", "layout", "shape", "sparse_dims")

    def __init__(self, layout: layout, indices: tuple[Tensor, ...], shape: tuple[int, ...], coalesced: bool = False,
                 blocks: tuple[int, ...] = ()):
        self.layout, self.indices, self.shape, self.blocks = layout, indices, tuple(shape), tuple(blocks)
        own = indices[0]._layout.shape
        self.sparse_dims: int = own[0] if layout is sparse_coo else len(own) + 1
        self.coalesced = coalesced or layout is not sparse_coo or self.stored < 2
        self.facts: dict[Any, Any] = {}

    @property
    def lead(self) -> tuple[int, ...]:
        """The shape of `values()`, but for that of one entry."""
        return (self.stored,) if self.layout is sparse_coo else (*self.indices[1].shape, *self.blocks)

    @property
    def stored(self) -> int:
        """The number of entries, or blocks, of a matrix: what `_nnz()` tells."""
        return self.indices[-1].shape[-1]

    @property
    def nnz(self) -> int:
        """The number of entries."""
        return math.prod(self.lead)

    @property
    def batch(self) -> tuple[int, ...]:
        """The sizes of a compressed layout's batches."""
        return tuple(self.indices[0].shape[:-1])

    @property
    def by_rows(self) -> bool:
        """Whether a compressed layout has rows compressed."""
        return self.layout.name in ("sparse_csr", "sparse_bsr")

    @property
    def dense_shape(self) -> tuple[int, ...]:
        """The shape of one entry."""
        return self.shape[self.sparse_dims:]


class SparseTensor(FormTensor, counted=False):
    """A tensor in a sparse layout: a pattern, and the entries along the first dimension of a dense tensor."""

    __slots__ = ("_entries", "_pattern")

    _entries: Tensor
    _pattern: Pattern
    instead = "to_dense(), or its values()"

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """The operator's form for sparse tensors, or else its body, if it is made of operators that have one. NotImplementedError where
        a step has none."""
        form, given = FORMS.get(func), dict(kwargs or {})
        out = given.pop("out", None)
        found = _composed(func, args, given) if form is None else form(*args, **given)
        return found if out is None else written_out(found, out, func)

    # -- facts -----------------------------------------------------------------------------------------------------------
    layout = property(lambda self: self._pattern.layout)
    is_sparse = property(lambda self: self._pattern.layout is sparse_coo)
    is_sparse_csr = property(lambda self: self._pattern.layout.name == "sparse_csr")
    ndim = property(lambda self: len(self._pattern.shape))

    def size(self, dim: int | None = None) -> Any:
        """All sizes, or that of `dim`."""
        return self.shape if dim is None else self._pattern.shape[canonical_dim(dim, self.ndim)]

    def numel(self) -> int:
        """The number of elements of the dense tensor that this one stands for."""
        return math.prod(self._pattern.shape)

    nelement = numel

    def __len__(self) -> int:
        return self._pattern.shape[0]

    def stride(self, dim: int | None = None) -> Any:
        """Zeros of a COO tensor; RuntimeError of another one: there are none."""
        if self.layout is sparse_coo:
            return (0,) * self.ndim if dim is None else 0
        raise RuntimeError(f"{BACKENDS[self.layout.name]} tensors do not have strides; those of its values(): "
                           f"{tuple(self._entries.stride())}, asked for {'all' if dim is None else dim}")

    def storage_offset(self) -> int:
        """0, as there is no array."""
        return 0

    def is_conj(self) -> bool:
        """False: the entries are what they are."""
        return False

    is_neg = is_conj

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """False: the elements lie in no order of the kind."""
        return memory_format is not None and False

    @property
    def nbytes(self) -> int:
        """RuntimeError of a COO tensor: it would be unclear of what. Of others as many as the dense tensor has."""
        if self.layout is not sparse_coo:
            return self.numel() * self.dtype.itemsize
        raise RuntimeError("nbytes is not defined for sparse tensors. Add the nbytes of its indices and values, or multiply numel() by "
                           "element_size() for those of the dense tensor")

    def item(self) -> Any:
        """The only element as a Python number; RuntimeError if there are more."""
        if self.numel() != 1:
            raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
        return self._entries.sum().item()

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise RuntimeError(f"Boolean value of Tensor with {'more than one' if self.numel() else 'no'} value is ambiguous")
        return bool(self.item())

    def numpy(self, *, force: bool = False) -> Any:
        """TypeError, or with `force` the array of the dense tensor."""
        if force:
            return self.detach().to_dense().numpy(force=True)
        raise TypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")

    def data_ptr(self) -> NoReturn:
        """RuntimeError: there is no array."""
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage; use that of its values()")

    def tolist(self) -> Any:
        """RuntimeError: there is no array."""
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage; use to_dense().tolist()")


def sparse_tensor(pattern: Pattern, entries: Tensor) -> SparseTensor:
    """The tensor of these entries; knows nothing of autograd."""
    if entries._data is None and entries.device.type != "meta":
        raise NotImplementedError(f"a sparse tensor (of shape {list(pattern.shape)}) needs data: none is made of fake tensors, and graphs "
                                  "hold none")
    made: SparseTensor = formed(SparseTensor, pattern.shape, (0,) * len(pattern.shape), entries)
    made._pattern, made._entries = pattern, entries
    return made


def become(tensor: SparseTensor, other: SparseTensor) -> SparseTensor:
    """In place: `tensor` takes over the pattern, the entries and the history of `other`."""
    check_may_write(tensor)
    if other.dtype is not tensor.dtype:
        raise RuntimeError(f"result type {other.dtype} can't be cast to the desired output type {tensor.dtype}")
    tensor._pattern, tensor._entries, tensor._lay = other._pattern, other._entries, other._lay
    if other._grad is not None:
        tensor._grad = other._grad
    return tensor


def _composed(func: Any, args: tuple, kwargs: dict) -> Any:
    """What an operator's body comes to, each step by its form."""
    operator = getattr(func, "_operator", None)
    if operator is None:
        refuse(getattr(func, "__name__", str(func)), args, kwargs)
    try:
        return operator.body(*args, **kwargs)
    except RuntimeError as error:
        refuse(func.__name__, args, kwargs, error)


def written_out(found: Any, out: Any, func: Any) -> Any:
    """A result in the tensor that was given as `out=`."""
    if isinstance(out, SparseTensor) or isinstance(found, SparseTensor):
        if not isinstance(out, SparseTensor) or out.layout is not found.layout:
            raise RuntimeError(f"{func.__name__}: the result is {found.layout} of shape {list(found.shape)}, but out is {out.layout}")
        return become(out, found if found.dtype is out.dtype else found.to(out.dtype))
    return (out if out.shape == found.shape else out.resize_(found.shape)).copy_(found)


def sparse_rows(indices: Tensor, rows: Tensor, shape: tuple[int, ...]) -> SparseTensor:
    """The COO tensor of this shape that has `rows` at these positions of its first dimension, added up where they repeat."""
    return sparse_tensor(Pattern(sparse_coo, (indices.reshape(1, -1),), shape), rows)


def sparse_like(x: SparseTensor, rows: Tensor) -> SparseTensor:
    """The pattern of `x` with other entries; knows nothing of autograd."""
    return sparse_tensor(x._pattern, rows)


def backend_of(tensor: Tensor) -> str:
    """What messages call the kind of a tensor: SparseCPU, SparseCsrCUDA ..."""
    kind = {"cpu": "CPU", "cuda": "CUDA"}.get(tensor.device.type, tensor.device.type)
    return BACKENDS.get(tensor.layout.name, "") + kind


def refuse(name: str, args: tuple, kwargs: dict, cause: Exception | None = None) -> NoReturn:
    """NotImplementedError for an operator that has no form for the sparse tensors among its arguments, nor a body of such (`cause`)."""
    values: list[Any] = [v for a in (*args, *kwargs.values()) for v in (a if isinstance(a, (tuple, list)) else (a,))]
    tensors = [v for v in values if isinstance(v, Tensor)]
    given = ", ".join(f"{t.layout} of shape {list(t.shape)}" for t in tensors)
    first = next(t for t in tensors if isinstance(t, SparseTensor))
    why = "" if cause is None or isinstance(cause, NotImplementedError) else f": {cause}"
    raise NotImplementedError(f"Could not run 'aten::{name}' with arguments from the '{backend_of(first)}' backend: it has no form for "
                              f"sparse tensors (given: {given}). Use to_dense() first, or compute with the values() and build a "
                              f"sparse tensor of them{why}") from cause
