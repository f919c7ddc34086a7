"""Nested tensors: rows (components) of different sizes in one dense tensor, their `values`, beside a record of where each lies in it.

`torch.jagged`: one dimension is ragged, and the values have it and the batch as one dimension. `torch.strided`: any sizes; the values are
one flat buffer. What computes with nested tensors computes with their values or with their components, and the tape knows two steps:
`values_of` leads there and `assembled` back.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from .. import ops
from ..core import dispatch
from ..core.forms import FormTensor, formed
from ..core.memory_format import jagged, strided
from ..core.size import Size, contiguous_strides
from ..core.symbolic import SymInt
from ..core.tensor import Tensor
from ..sparse.bridge import step
from ..utils.weak import WeakIdKeyDictionary


class NestedInt(SymInt):
    """The size of a ragged dimension, one number for each row: equal to the size of what shares its rows, and at least 2 to whom asks."""

    __slots__ = ("factor", "number")
    _numbers = itertools.count()

    def __init__(self, number: int | tuple | None = None, factor: int = 1):  # deliberately not SymInt's: there is no expression
        """Of new rows; or a known one's multiple, or that of the rows with these sizes."""
        self.number, self.factor = next(self._numbers) if number is None else number, factor

    def __repr__(self) -> str:
        return f"j{self.number}" if self.factor == 1 else f"{self.factor}*j{self.number}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NestedInt) and (self.number, self.factor) == (other.number, other.factor)

    def __hash__(self) -> int:
        return hash((self.number, self.factor))

    def __ge__(self, other: Any) -> bool:
        if isinstance(other, NestedInt) and other.number == self.number:
            return self.factor >= other.factor
        if isinstance(other, int) and other <= 2:
            return True
        raise ValueError(f"ge: relation is indeterminate: {self} is a size of several rows, and was compared with {other}")

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __lt__(self, other: Any) -> bool:
        return not self >= other

    def __gt__(self, other: Any) -> bool:
        return self >= other + 1 if isinstance(other, int) else self >= other and self != other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __mul__(self, other: Any) -> NestedInt:
        if not isinstance(other, int):
            return NotImplemented
        return NestedInt(self.number, self.factor * other)

    __rmul__ = __mul__

    def _unknown(self, *other: Any) -> Any:
        raise NotImplementedError(f"{self} is the size of a ragged dimension, which each row has its own of: only its multiples and "
                                  f"comparisons are known{f', asked with {other[0]!r}' if other else ''}; use offsets() or the values()")

    __add__ = __radd__ = __sub__ = __rsub__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __truediv__ = __rtruediv__ = _unknown
    __neg__ = __index__ = __int__ = __float__ = __round__ = __pow__ = __rpow__ = _unknown
    hint = property(_unknown)

    def __bool__(self) -> bool:
        return True

    def __reduce__(self) -> tuple:
        return NestedInt, (self.number, self.factor)


class Ragged:
    """The rows of a jagged tensor: never changed, so that all that have the same rows share one, and with it the size `j1`.

    Row i is `values[offsets[i]:offsets[i + 1]]`, or the first `lengths[i]` of what begins at `offsets[i]`.
    """

    __slots__ = ("_rows", "lengths", "longest", "offsets", "shortest", "size")
    _known: ClassVar[WeakIdKeyDictionary] = WeakIdKeyDictionary()   # by the tensor that tells the rows

    def __init__(self, offsets: Tensor, lengths: Tensor | None = None, rows: tuple[list[int], list[int]] | None = None,
                 shortest: int | None = None, longest: int | None = None, size: NestedInt | None = None):
        self.offsets, self.lengths, self._rows, self.shortest, self.longest = offsets, lengths, rows, shortest, longest
        told = offsets if lengths is None else lengths
        if size is None:
            size = self._known.get(told) or NestedInt()
        self._known[told] = self.size = size

    @property
    def rows(self) -> tuple[list[int], list[int]]:
        """Where the rows begin, and how long they are."""
        if self._rows is None:
            starts = self.offsets.tolist()
            counts = [b - a for a, b in itertools.pairwise(starts)] if self.lengths is None else self.lengths.tolist()
            self._rows = starts[:len(counts)], counts
        return self._rows

    def __len__(self) -> int:
        return self.offsets.shape[0] - (self.lengths is None or self.offsets.shape[0] > self.lengths.shape[0])

    @property
    def most(self) -> int:
        """The length of the longest row."""
        return max(self.rows[1], default=0) if self.longest is None else self.longest

    @property
    def least(self) -> int:
        """The length of the shortest row."""
        return min(self.rows[1], default=0) if self.shortest is None else self.shortest

    def on(self, device: Any) -> Ragged:
        """The same rows, told on another device."""
        if self.offsets.device == device:
            return self
        lengths = None if self.lengths is None else self.lengths.to(device)
        return Ragged(self.offsets.to(device), lengths, self.rows, self.shortest, self.longest, self.size)


class Parts:
    """Where the components of a strided nested tensor lie in its buffer of `length` elements: sizes, strides and offset of each."""

    __slots__ = ("length", "offsets", "shape", "sizes", "strides")

    def __init__(self, sizes: Sequence[tuple], strides: Sequence[tuple] | None = None, offsets: Sequence[int] | None = None, length: int = -1):
        counts = [Size(size).numel() for size in sizes]
        self.sizes = [tuple(size) for size in sizes]
        self.strides = [contiguous_strides(size) for size in sizes] if strides is None else [tuple(s) for s in strides]
        self.offsets = [sum(counts[:i]) for i in range(len(counts))] if offsets is None else list(offsets)
        self.length = sum(counts) if length < 0 else length
        self.shape = (len(sizes), *(ns[0] if len(set(ns)) == 1 else NestedInt(ns) for ns in zip(*sizes)))

    def lie_as(self, other: Parts) -> bool:
        """Whether both are of the same places."""
        return self is other or all(getattr(self, name) == getattr(other, name) for name in ("sizes", "strides", "offsets", "length"))

    @property
    def contiguous(self) -> bool:
        """Whether the components lie in rows, one after another, and nothing else does."""
        return self.lie_as(Parts(self.sizes))

    def places(self, like: Tensor) -> Tensor:
        """Where the elements of all components lie in the buffer."""
        every = ops.arange(self.length, device=like.device)
        found = [every.as_strided(*lay).reshape(-1) for lay in zip(self.sizes, self.strides, self.offsets)]
        return ops.cat(found) if found else every


class Nested(FormTensor, counted=False):
    """A nested tensor of either layout: its values, and where the rows lie in them."""

    __slots__ = ("_dense",)

    _dense: Tensor
    is_nested = True
    instead = "its components (unbind()), or to_padded_tensor()"
    general: ClassVar[Callable]     # the room of operators fills it: general(func, args, kwargs)

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return Nested.general(func, args, kwargs or {})

    ndim = property(lambda self: len(self._lay.shape))

    def values(self) -> Tensor:
        """The values of all components in one dense tensor; gradients flow to the nested one."""
        return values_of(self)

    def _version_of_values(self) -> int:
        return self._dense._version

    _version = property(_version_of_values)

    @property
    def rows(self) -> tuple:
        """What says where the components lie."""
        raise NotImplementedError

    @property
    def count(self) -> int:
        """How many components there are."""
        return self._lay.shape[0]  # type: ignore[union-attr]

    def __len__(self) -> int:
        return self.count

    def __hash__(self) -> int:
        return id(self)

    def numel(self) -> int:
        """The number of elements of all components."""
        return sum(Size(size).numel() for size in self._sizes())

    nelement = numel
    nbytes = property(lambda self: self.numel() * self.dtype.itemsize)

    def share_memory_(self) -> Any:
        """The values, and what says where the rows are, moved to shared memory."""
        self._dense.share_memory_()
        return self

    def is_shared(self) -> bool:
        """Whether the values are in shared memory."""
        return self._dense.is_shared()

    def is_pinned(self, device: Any = None) -> bool:
        """Whether the values are in pinned memory."""
        return self._dense.is_pinned() if device is None else self._dense.is_pinned(device)

    def storage_offset(self) -> int:
        """0: that of the values is theirs."""
        return 0

    def untyped_storage(self) -> Any:
        """The storage of the values."""
        return self._dense.untyped_storage()

    def data_ptr(self) -> int:
        """Where the values lie."""
        return self._dense.data_ptr()

    def item(self) -> Any:
        """The only element as a Python number; RuntimeError if there are more."""
        if self.numel() != 1:
            raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
        return self._dense.sum().item()

    def __float__(self) -> float:
        if self.numel() != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        return float(self.item())

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        return bool(self.item())

    def tolist(self) -> Any:
        """RuntimeError: each component is a list of its own."""
        raise RuntimeError(f".tolist() is not supported for tensor subclasses, got {type(self).__name__}; use [c.tolist() for c in x]")

    def numpy(self, *, force: bool = False) -> Any:
        """RuntimeError: each component is an array of its own."""
        raise RuntimeError(f".numpy() is not supported for tensor subclasses (force={force}); use [c.numpy() for c in x.unbind()]")

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return self._text() if tensor_contents is None else f"{type(self).__name__}({tensor_contents})"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def _with_history(self, text: str) -> str:
        node = self.grad_fn
        more = f", grad_fn=<{node.name()}>" if node is not None else ", requires_grad=True" if self.requires_grad else ""
        return f"{text}{more})"

    def _sizes(self) -> list[tuple]:
        raise NotImplementedError

    def _text(self) -> str:
        raise NotImplementedError

    def __copy__(self) -> Any:
        return _made(self._dense, self.rows).requires_grad_(self.requires_grad)

    def __deepcopy__(self, memo: dict) -> Any:
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment")
        if id(self) not in memo:
            made = memo[id(self)] = self.detach().clone().requires_grad_(self.requires_grad)
            made.grad = None if self.grad is None else self.grad.clone()
        return memo[id(self)]


class NestedTensor(Nested, counted=False):
    """A nested tensor of layout `torch.jagged`: (batch, ..., ragged, ...). Dimension `_ragged_idx` is ragged."""

    __slots__ = ("_ragged", "_ragged_idx")

    _ragged: Ragged
    _ragged_idx: int
    layout = jagged
    _values = property(lambda self: self._dense)
    _offsets = property(lambda self: self._ragged.offsets)
    _lengths = property(lambda self: self._ragged.lengths)
    _size = property(lambda self: tuple(self.shape))
    _strides = property(lambda self: tuple(self.stride()))
    _max_seqlen = property(lambda self: self._ragged.most)
    _min_seqlen = property(lambda self: self._ragged.least)
    _maybe_max_seqlen = property(lambda self: self._ragged.longest)
    _maybe_min_seqlen = property(lambda self: self._ragged.shortest)

    def _get_max_seqlen(self) -> int:
        return self._ragged.most

    def _get_min_seqlen(self) -> int:
        return self._ragged.least

    @property
    def rows(self) -> tuple:
        return self._ragged, self._ragged_idx

    def offsets(self) -> Tensor:
        """(batch + 1,): where each row begins among the values, and where the last one ends."""
        return self._ragged.offsets

    def lengths(self) -> Tensor | None:
        """(batch,): how many of its values each row has, if there are holes between; else None."""
        return self._ragged.lengths

    def size(self, dim: int | None = None) -> Any:
        """All sizes, or that of `dim`."""
        return self.shape if dim is None else self.shape[canonical(dim, self.ndim)]

    def stride(self, dim: int | None = None) -> Any:
        """Strides of the values, and before them that of the batch."""
        outer = max(range(self.ndim - 1), key=self._dense.stride)
        strides = self._dense.stride()
        found = (strides[outer] * self.shape[outer + 1], *strides) if self.ndim > 1 else (1,)
        return found if dim is None else found[dim]

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the values lie in rows, as far as they are of rows."""
        starts, counts = self._ragged.rows
        whole = self._ragged.lengths is None and sum(counts) == self._dense.shape[self._ragged_idx - 1] and starts[:1] in ([], [0])
        plain = () if memory_format is None or memory_format.name == "preserve_format" else (memory_format,)
        return whole and self._dense.is_contiguous(*plain)

    def _sizes(self) -> list[tuple]:
        shape, at = self._dense.shape, self._ragged_idx - 1
        return [(*shape[:at], n, *shape[at + 1:]) for n in self._ragged.rows[1]]

    def _text(self) -> str:
        return self._with_history(f"NestedTensor(size={tuple(self.shape)}, offsets={self._ragged.offsets}, contiguous={self.is_contiguous()}")

    def __reduce_ex__(self, protocol: Any) -> tuple:
        ragged = self._ragged
        return rebuilt, (self._dense.detach(), ragged.offsets, ragged.lengths, self._ragged_idx, self.requires_grad)


class StridedNestedTensor(Nested, counted=False):
    """A nested tensor of layout `torch.strided`: a flat buffer, and of each component its sizes, strides and offset there."""

    __slots__ = ("_parts",)

    _parts: Parts
    layout = strided

    @property
    def rows(self) -> tuple:
        return (self._parts,)

    @property
    def shape(self) -> Size:
        """RuntimeError: components have shapes of their own."""
        raise RuntimeError("Internal error: NestedTensorImpl doesn't support sizes: the components of a strided nested tensor have their own "
                           f"({self._parts.sizes}); use x.size(dim) where all are the same, or [c.shape for c in x.unbind()]")

    def __len__(self) -> int:
        return Size(self.shape)[0]

    def size(self, dim: int | None = None) -> Any:
        """The size of `dim`, which all components have."""
        if dim is None:
            return self.shape
        at = canonical(dim, self.ndim)
        found = self._parts.shape[at]
        if isinstance(found, NestedInt):
            raise RuntimeError(f"Given dimension {at} is irregular and does not have a size.")
        return found

    def stride(self, dim: int | None = None) -> Any:
        """RuntimeError: components have strides of their own."""
        raise RuntimeError(f"Internal error: NestedTensorImpl doesn't support strides (asked for {'all' if dim is None else dim}); components "
                           f"have their own: {self._parts.strides}")

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the components lie in rows, one after another."""
        return self._parts.contiguous and getattr(memory_format, "rank", None) is None

    def _sizes(self) -> list[tuple]:
        return self._parts.sizes

    def _text(self) -> str:
        lines = ["  " + repr(c).replace("\n", "\n  ") for c in components(self.detach())]
        return self._with_history("nested_tensor([\n" + ",\n".join(lines) + "\n]")

    def _nested_tensor_size(self) -> Tensor:  # type: ignore[override]
        return ops.tensor(self._parts.sizes)

    def _nested_tensor_strides(self) -> Tensor:  # type: ignore[override]
        return ops.tensor(self._parts.strides)

    def _nested_tensor_storage_offsets(self) -> Tensor:  # type: ignore[override]
        return ops.tensor(self._parts.offsets)

    def __reduce_ex__(self, protocol: Any) -> tuple:
        parts = self._parts
        return rebuilt_strided, (self._dense.detach(), parts.sizes, parts.strides, parts.offsets, self.requires_grad)


def canonical(dim: int, ndim: int) -> int:
    """The dimension counted from the first; IndexError where there is none."""
    if not -ndim <= dim < ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {dim})")
    return dim % ndim


# -- the two steps of the tape -------------------------------------------------------------------------------------------------
def _made(values: Tensor, rows: tuple) -> Any:
    if isinstance(rows[0], Parts):
        made = formed(StridedNestedTensor, rows[0].shape, (0,) * len(rows[0].shape), values)
        made._parts, made._dense = rows[0], values
        return made
    ragged, at = rows
    shape = (len(ragged), *values.shape[:at - 1], ragged.size, *values.shape[at:])
    made = formed(NestedTensor, shape, (0,) * len(shape), values)
    made._ragged, made._ragged_idx, made._dense = ragged.on(values.device), at, values
    return made


@step("nested_values", lambda g, rows: (assembled(g, rows),))
def _values(x: Nested, rows: tuple) -> Tensor:
    return ops.alias_copy(x._dense) if dispatch.state.modes else x._dense.detach()


@step("nested_assembled", lambda g, rows, values_shape: (_gathered(g, rows, values_shape),))
def _assembled(values: Tensor, rows: tuple) -> Nested:
    return _made(values.detach(), rows)


def _gathered(g: Any, rows: tuple, shape: tuple) -> Tensor:
    """The gradient of values of that shape: what `g` has where the rows lie, 0 where there is nothing of a row."""
    if same_rows(g, rows):
        return values_of(g)
    if isinstance(rows[0], Parts):
        flat = ops.cat([c.reshape(-1) for c in components(g)])
        return flat.new_zeros(shape).index_add(0, rows[0].places(flat), flat)
    ragged, at = rows
    gaps = g.new_zeros(()).expand(shape)
    found, end = [], 0
    for start, part in sorted(zip(ragged.rows[0], components(g)), key=lambda pair: pair[0]):
        found += [gaps.narrow(at - 1, end, start - end), part]
        end = start + part.shape[at - 1]
    return ops.cat([*found, gaps.narrow(at - 1, end, shape[at - 1] - end)], at - 1)


def same_rows(x: Nested, rows: tuple) -> bool:
    """Whether the components of a tensor lie so."""
    mine, theirs = x.rows[0], rows[0]
    return x.rows[1:] == rows[1:] and (mine.lie_as(theirs) if isinstance(theirs, Parts) else mine.size == theirs.size)


def values_of(x: Nested) -> Tensor:
    """The values; gradients flow to the tensor."""
    return _values(x, x.rows)


def assembled(values: Tensor, rows: tuple) -> Any:
    """The nested tensor of these values; gradients flow to them."""
    return _assembled(values, rows)


# -- components ------------------------------------------------------------------------------------------------------------------
def components(x: Any) -> tuple[Tensor, ...]:
    """The components: views of the values."""
    values = values_of(x)
    if isinstance(x, StridedNestedTensor):
        parts = x._parts
        return tuple([values.as_strided(*lay) for lay in zip(parts.sizes, parts.strides, parts.offsets)])
    (starts, counts), at = x._ragged.rows, x._ragged_idx - 1
    if x._ragged.lengths is None and counts and starts[0] == 0 and sum(counts) == values.shape[at]:
        return ops.split(values, counts, at)
    return tuple([values.narrow(at, start, count) for start, count in zip(starts, counts)])


def jagged_of(rows: Sequence[Tensor], at: int, ragged: Ragged | None = None) -> NestedTensor:
    """The jagged tensor of these components, which is ragged in dimension `at`; of the same rows as `ragged`, if it has no holes."""
    counts = [row.shape[at - 1] for row in rows]
    values = ops.cat(list(rows), at - 1)
    if ragged is None or ragged.lengths is not None or ragged.rows[1] != counts:
        starts = [sum(counts[:i]) for i in range(len(counts))]
        offsets = ops.tensor([*starts, sum(counts)], device=values.device)
        ragged = Ragged(offsets, None, (starts, counts), min(counts), max(counts))
    return assembled(values, (ragged, at))


def strided_of(rows: Sequence[Tensor]) -> StridedNestedTensor:
    """The strided nested tensor of these components."""
    return assembled(ops.cat([row.reshape(-1) for row in rows]), (Parts([row.shape for row in rows]),))


def rebuilt(values: Tensor, offsets: Tensor, lengths: Tensor | None, at: int, requires_grad: bool = False) -> NestedTensor:
    """A jagged tensor of a pickle."""
    return _made(values, (Ragged(offsets, lengths), at)).requires_grad_(requires_grad)


def rebuilt_strided(values: Tensor, sizes: list, strides: list, offsets: list, requires_grad: bool = False) -> StridedNestedTensor:
    """A strided nested tensor of a pickle."""
    return _made(values, (Parts(sizes, strides, offsets, values.numel()),)).requires_grad_(requires_grad)
