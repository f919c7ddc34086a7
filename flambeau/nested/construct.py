"""Making nested tensors: of lists, of values and offsets, of parts of dense tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import ops
from ..core.device import as_device
from ..core.dtypes import bool_
from ..core.dtypes import dtype as Dtype
from ..core.memory_format import jagged, layout, strided
from ..core.size import extent
from ..core.tensor import Tensor
from .forms import from_padded, padded
from .tensor import Nested, NestedTensor, Parts, Ragged, assembled, jagged_of, strided_of, values_of

_ONLY_LISTS = "Only lists (List[Tensor] and List[List...[Scalar]]) are accepted in nested_tensor"


def nested_tensor(tensor_list: Any, *, dtype: Dtype | None = None, layout: layout | None = None, device: Any = None,
                  requires_grad: bool = False, pin_memory: bool = False) -> Any:
    """A nested tensor of copies of the tensors, or lists of numbers, in a list; with `requires_grad` a leaf."""
    if not isinstance(tensor_list, (list, tuple)) or isinstance(tensor_list, tuple):
        raise TypeError(f"{_ONLY_LISTS}, got {type(tensor_list).__name__}")
    rows = [row.detach() if isinstance(row, Tensor) else ops.tensor(row) for row in tensor_list]
    made = _of_list(rows, dtype, layout, device).detach()
    made = made.clone() if len(rows) == 1 else made
    return (made.pin_memory() if pin_memory else made).requires_grad_(requires_grad)


def _of_list(rows: Sequence[Tensor], dtype: Dtype | None, layout: layout | None, device: Any) -> Any:
    """A nested tensor of these components, at least one."""
    kind = strided if layout is None else layout
    if kind not in (strided, jagged):
        raise RuntimeError(f"Specified layout is unsupported for nested tensors: {kind}")
    if not rows and kind is jagged:
        raise RuntimeError("Cannot construct a nested tensor from an empty tensor list")
    if not rows:
        return assembled(ops.empty((0,), dtype=dtype, device=device), (Parts([]),))
    ranks = [row.ndim for row in rows]
    if len(set(ranks)) > 1:
        at = next(i for i, n in enumerate(ranks) if n != ranks[0])
        raise RuntimeError("When constructing a nested tensor, all tensors in list must have the same dim" if kind is jagged else
                           f"All Tensors given to nested_tensor must have the same dimension. Found dimension {ranks[at]} for Tensor at index "
                           f"{at} and dimension {ranks[0]} for Tensor at index 0.")
    if kind is jagged:
        if len({row.dtype for row in rows}) > 1 or len({row.device for row in rows}) > 1:
            raise RuntimeError("When constructing a nested tensor, all tensors in list must have the same dtype and device, got "
                               f"{sorted({f'{row.dtype} on {row.device}' for row in rows})}")
        if not ranks[0]:
            raise RuntimeError("Cannot construct a nested tensor from a list of zero-dim tensors")
    where = rows[0].device if device is None else as_device(device)
    rows = [row.to(device=where, dtype=dtype or rows[0].dtype) for row in rows]
    return strided_of(rows) if kind is strided else jagged_of(rows, _ragged_dim(rows) + 1)


def _ragged_dim(rows: Sequence[Tensor]) -> int:
    """The one dimension in which tensors differ: the first if none."""
    differ = [d for d, sizes in enumerate(zip(*[row.shape for row in rows])) if len(set(sizes)) > 1]
    if len(differ) > 1:
        raise RuntimeError("Cannot represent given tensor list as a nested tensor with the jagged layout. Note that the jagged layout only "
                           "allows for a single ragged dimension. For example: (B, *, D_0, D_1, ..., D_N), with ragged * dim. Got shapes "
                           f"{[list(row.shape) for row in rows]}")
    return differ[0] if differ else 0


def as_nested_tensor(ts: Any, dtype: Dtype | None = None, device: Any = None, layout: layout | None = None) -> Any:
    """A nested tensor of the tensors in a list, or of the slices of one; gradients flow to them. A nested tensor as it is."""
    if not isinstance(ts, (Tensor, list, tuple)) or not all(isinstance(t, Tensor) for t in (() if isinstance(ts, Tensor) else ts)):
        raise TypeError(f"as_nested_tensor(): Expected first argument to be a tensor or a list / tuple of tensors, got {type(ts).__name__}")
    kind = strided if layout is None else layout
    if isinstance(ts, Nested):
        if ts.layout is not kind or kind is strided:
            raise RuntimeError("as_nested_tensor(): Converting between nested tensor layouts is not supported")
        return ts.to(device=ts.device if device is None else device, dtype=dtype or ts.dtype)
    if isinstance(ts, Tensor):
        if ts.ndim < 2:
            raise RuntimeError(f"as_nested_tensor(): Expected tensor argument to have dim() > 1, got shape {list(ts.shape)}")
        ts = ts.unbind()
    return _of_list(ts, dtype, layout, device)


def nested_tensor_from_jagged(values: Tensor, offsets: Tensor | None = None, lengths: Tensor | None = None, jagged_dim: int | None = None,
                              min_seqlen: int | None = None, max_seqlen: int | None = None) -> NestedTensor:
    """The jagged tensor of which row i is `values[offsets[i]:offsets[i + 1]]`, or the first `lengths[i]` of that; `values` as it is, gradients
    flow to it. Without `offsets` the rows lie one after another. `jagged_dim` is the dimension of the result that is ragged."""
    if not isinstance(values, Tensor):
        raise TypeError(f"nested_tensor_from_jagged(): argument 'values' must be Tensor, not {type(values).__name__}")
    if isinstance(values, Nested):
        raise ValueError("nested_tensor_from_jagged(): expected values to be a tensor that is not nested")
    if offsets is None:
        if lengths is None:
            raise RuntimeError("nested_tensor_from_jagged(): At least one of offsets or lengths is required.")
        offsets, lengths = _starts(lengths.cumsum(0)), None
    at = 1 if jagged_dim is None else jagged_dim
    if at < 1:
        raise ValueError(f"Expected jagged_dim >=1, but got {at}.")
    if at > values.ndim:
        raise ValueError(f"Expected jagged_dim <= {values.ndim}, the dimensions of the values, but got {at}.")
    return nested_view_from_values_offsets_lengths(values, offsets, lengths, at, min_seqlen, max_seqlen)


def _starts(counts: Tensor) -> Tensor:
    """A 0 and then the counts."""
    return ops.cat((counts.new_zeros(1), counts))


def nested_view_from_values_offsets(values: Tensor, offsets: Tensor, ragged_idx: int = 1, min_seqlen: int | None = None,
                                    max_seqlen: int | None = None) -> NestedTensor:
    """The jagged tensor over these values, without holes."""
    return nested_view_from_values_offsets_lengths(values, offsets, None, ragged_idx, min_seqlen, max_seqlen)


def nested_view_from_values_offsets_lengths(values: Tensor, offsets: Tensor, lengths: Tensor | None, ragged_idx: int = 1,
                                            min_seqlen: int | None = None, max_seqlen: int | None = None) -> NestedTensor:
    """The jagged tensor over these values."""
    if offsets.ndim != 1:
        raise AssertionError(f"offsets must be 1D, but got {offsets.ndim}D")
    if offsets.dtype.category != 1:
        raise TypeError(f"offsets must be integers, got {offsets.dtype}")
    if lengths is not None and not offsets.shape[0] - 1 <= lengths.shape[0] <= offsets.shape[0]:
        raise AssertionError(f"offsets and lengths batch sizes must match: offsets.shape[0] - 1 = {offsets.shape[0] - 1}, lengths.shape[0] = "
                             f"{lengths.shape[0]}")
    return assembled(values, (Ragged(offsets, lengths, None, min_seqlen, max_seqlen), ragged_idx))


def narrow(tensor: Tensor, dim: int, start: int | Tensor, length: int | Tensor, layout: layout = strided) -> Any:
    """Of each slice of a dense tensor the `length` elements of dimension `dim` from `start` on; with layout jagged, where both may be tensors
    of a number for each slice, a view."""
    if layout is strided:
        if not isinstance(start, int) or not isinstance(length, int):
            raise RuntimeError("start and length must be integers for the strided layout NT impl")
        if dim:
            raise RuntimeError(f"narrow(): only dim=0 supported for nested tensors, but got: {dim}")
        return as_nested_tensor(tensor.narrow(0, start, length).unbind())
    if layout is not jagged:
        raise RuntimeError(f"Specified layout is unsupported for nested narrow: {layout}")
    if dim != 1:
        raise RuntimeError(f"jagged layout only supports dim=1, got {dim}")
    count, size = tensor.shape[:2]
    starts, lengths = (n if isinstance(n, Tensor) else ops.full((count,), n, dtype=ops.arange(1).dtype, device=tensor.device)
                       for n in (start, length))
    if starts.shape != (count,) or lengths.shape != (count,):
        raise RuntimeError("When constructing a jagged nested tensor using narrow(), your start and length must be Tensors that broadcast to "
                           f"input.shape[0]: got {list(starts.shape)} and {list(lengths.shape)} for {count}")
    begins = starts + ops.arange(count, device=tensor.device) * size
    offsets = ops.cat((begins, begins.new_full((1,), count * size)))
    return nested_view_from_values_offsets_lengths(tensor.contiguous().flatten(0, 1), offsets, lengths)


def masked_select(tensor: Tensor, mask: Tensor) -> NestedTensor:
    """The jagged tensor of the elements of each slice where the mask, of as many dimensions or fewer, is true."""
    if tensor.layout is not strided:
        raise RuntimeError(f"torch.nested.masked_select requires a strided tensor, given {tensor.layout}")
    if mask.layout is not strided:
        raise RuntimeError(f"torch.nested.masked_select requires a strided mask, given: {mask.layout}")
    if mask.dtype is not bool_:
        raise RuntimeError(f"expected BoolTensor for mask, got {mask.dtype}")
    return jagged_of([row.masked_select(part) for row, part in zip(tensor, mask.expand(tensor.shape))], 1)


def to_padded_tensor(input: Tensor, padding: float, output_size: Sequence[int] | None = None, out: Tensor | None = None) -> Tensor:
    """The dense tensor of all components, with `padding` behind them: of the sizes of the largest, or of `output_size`."""
    found = padded(input, padding, output_size)
    return found if out is None else out.copy_(found)


# -- names of torch's own -----------------------------------------------------------------------------------------------------------
def jagged_from_list(tensors: Sequence[Tensor], offsets: Tensor | None, dtype: Dtype | None = None, device: Any = None) -> tuple:
    """(the jagged tensor of a list, its offsets), of given offsets if they fit."""
    found = _of_list(tensors, dtype, jagged, device)
    if offsets is not None:
        found = nested_view_from_values_offsets(values_of(found), offsets)
    return found, found.offsets()


def buffer_from_jagged(x: NestedTensor) -> Tensor:
    """The values."""
    return values_of(x)


def nested_from_padded(padded: Tensor, offsets: Tensor, ragged_idx: int = 1, sum_S: int | None = None, min_seqlen: int | None = None,
                       max_seqlen: int | None = None) -> NestedTensor:
    """The jagged tensor with these offsets, of a dense one that has the rows padded."""
    ragged = Ragged(offsets, None, None, min_seqlen, max_seqlen)
    total = sum(ragged.rows[1]) if sum_S is None else sum_S
    shape = [n for d, n in enumerate(padded.shape) if d not in (0, ragged_idx)]
    like = assembled(padded.new_empty((*shape[:ragged_idx - 1], total, *shape[ragged_idx - 1:])), (ragged, ragged_idx))
    return from_padded(padded, like)


def from_mask(t: Tensor, mask: Tensor, mask_check: bool = True) -> Any:
    """The strided nested tensor of the first elements of each slice, as many as its mask has true."""
    if mask.dtype is not bool_:
        raise RuntimeError(f"Expected mask to be of ScalarType Bool, but got {mask.dtype} instead.")
    if mask.ndim != 2 or t.ndim != 3 or mask.shape != t.shape[:2]:
        raise RuntimeError("Padding mask should be 2D, the tensor 3D and their first two sizes the same, got "
                           f"{list(mask.shape)} and {list(t.shape)}")
    if mask_check and not is_left_aligned(t, mask):
        raise RuntimeError("Expected mask to be left-aligned")
    return as_nested_tensor([row[:count] for row, count in zip(t, mask.sum(1).tolist())])


def is_left_aligned(t: Tensor, mask: Tensor) -> bool:
    """Whether each row of a mask for the first two dimensions of `t` is true first and false behind."""
    counts = mask.sum(1, keepdim=True)
    return t.shape[:2] == mask.shape and bool((mask == (ops.arange(mask.shape[1], device=mask.device) < counts)).all())


def from_padded_sizes(padded: Tensor, cpu_nested_shape_example: Tensor, fuse_transform_0213: bool = False) -> Any:
    """The strided nested tensor of components of these sizes, of a dense one that has them padded."""
    if fuse_transform_0213:
        raise NotImplementedError("_nested_from_padded(fuse_transform_0213=True) is not implemented: transpose(1, 2) before")
    sizes = cpu_nested_shape_example.tolist()
    if any(n > most for size in sizes for n, most in zip(size, padded.shape[1:])):
        raise RuntimeError(f"_nested_from_padded(): components of sizes {sizes} are larger than the padded ones, {list(padded.shape[1:])}")
    return as_nested_tensor([row[tuple(slice(n) for n in size)] for row, size in zip(padded, sizes)])


def from_list(list: Sequence[Tensor], dtype: Dtype | None = None, layout: layout | None = None, device: Any = None,
              pin_memory: bool | None = None) -> Any:
    """The nested tensor of copies of the tensors in a list."""
    return nested_tensor([*list], dtype=dtype, layout=layout, device=device, pin_memory=bool(pin_memory))


def view_of_buffer(self: Tensor, nested_size: Tensor, nested_strides: Tensor, offsets: Tensor) -> Any:
    """The strided nested tensor over a flat buffer, of components of these sizes, strides and offsets."""
    if self.ndim != 1:
        raise RuntimeError(f"_nested_view_from_buffer(): expected a buffer of one dimension, got shape {list(self.shape)}")
    told = nested_size.tolist(), nested_strides.tolist(), offsets.tolist()
    if len({len(numbers) for numbers in told}) > 1:
        raise RuntimeError(f"_nested_view_from_buffer(): expected sizes, strides and an offset of each component, got {told}")
    for size, stride, offset in zip(*told):
        end = offset + extent(size, stride)
        if offset < 0 or (0 not in size and not 0 < end <= self.shape[0]):
            raise RuntimeError(f"_nested_view_from_buffer(): sizes {size}, strides {stride} and offset {offset} are out of bounds for a buffer "
                               f"of {self.shape[0]} elements")
    return assembled(self, (Parts(*told, self.shape[0]),))
