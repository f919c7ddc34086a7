"""`x[...]` and `x[...] = value`: NumPy's indexing, torch's way.

An index is read in two layers. Integers, slices, None, Ellipsis and booleans are a chain of view primitives. What remains -
integer tensors and masks - is one advanced index over that view.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backends.cuda.recording import under_way
from ..core import dispatch
from ..core.dtypes import FLOAT, bool_, int32, int64, uint8
from ..core.symbolic import is_of_data, sym_max, sym_min
from ..core.tensor import Tensor, bump_version, is_example, refuse_inference_write
from ..core.warned import warn
from . import prims
from .creation import from_data, from_numpy
from .promotion import broadcast, cast, expand_to, fitting, is_number, stored, together
from .registry import method, operator
from .writing import assign

_FULL = slice(None)


# -- reading an index ----------------------------------------------------------------------------------------
def _as_items(index: Any) -> list:
    """The index as a list of items, sequences made tensors."""
    if isinstance(index, tuple) or (isinstance(index, list) and len(index) < 32 and any(_makes_tuple(item) for item in index)):
        items = list(index)
    else:
        items = [index]
    return [_as_item(item) for item in items]


def _makes_tuple(item: Any) -> bool:
    """Whether a list with this item means a tuple of indices (an old rule that NumPy has dropped)."""
    return item is None or item is Ellipsis or isinstance(item, (Tensor, slice, list, tuple))


def _as_item(item: Any) -> Any:
    if type(item) is int or item is None or item is Ellipsis or isinstance(item, (slice, bool, Tensor)):
        return item
    if isinstance(item, np.bool_):
        return bool(item)
    if isinstance(item, np.ndarray):
        return from_numpy(item)
    if isinstance(item, (list, tuple, range)):
        made = from_data(item)
        return made if made.numel() else made.to(int64)
    if isinstance(item, (float, complex)):
        raise IndexError("only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices "
                         f"(got {type(item).__name__})")
    if hasattr(item, "__index__"):
        return item if type(item).__name__ == "SymInt" else item.__index__()
    if isinstance(item, (str, bytes)):  # sequences, but not of numbers
        raise TypeError(f"an index cannot be a string: new(): invalid data type {type(item).__name__!r}")
    raise IndexError("only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices "
                    f"(got {type(item).__name__})")


_INDICES = (int64, int32, uint8, bool_)


def _is_mask(item: Any) -> bool:
    return isinstance(item, Tensor) and item.dtype in (bool_, uint8)


def _as_mask(item: Tensor) -> Tensor:
    if item.dtype is uint8:
        warn("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.")
    return cast(item, bool_)


def _consumes(item: Any) -> int:
    """How many dimensions of the source the item takes."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    return item.ndim if _is_mask(item) else 1


def _without_ellipsis(items: list, rank: int) -> list:
    used = sum(_consumes(item) for item in items)
    if used > rank:
        if not rank:
            raise IndexError("invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to "
                             "convert a 0-dim tensor to a number")
        raise IndexError(f"too many indices for tensor of dimension {rank}")
    places = [i for i, item in enumerate(items) if item is Ellipsis]
    if not places:
        return items
    first = places[0]
    filled = items[:first] + [_FULL] * (rank - used) + items[first + 1:]
    return [_FULL if item is Ellipsis else item for item in filled] if len(places) == 1 else \
        [item for item in filled if item is not Ellipsis]


def check_step(step: Any) -> None:
    """RuntimeError for a function's step that is not positive; a subscript's is a ValueError, as Python has it."""
    if step is not None and step <= 0:
        raise RuntimeError(f"slice step must be positive, got {step}")


def slice_bounds(index: slice, size: Any) -> tuple[Any, Any, int]:
    """(start, stop, step) inside [0, size], start <= stop."""
    start, stop, step = (v.__index__() if isinstance(v, (Tensor, np.integer)) else v for v in (index.start, index.stop, index.step))
    step = 1 if step is None else step
    if step <= 0:
        raise ValueError("step must be greater than zero")
    if type(size) is int and (start is None or type(start) is int) and (stop is None or type(stop) is int):
        start, stop, step = slice(start, stop, step).indices(size)
        return start, max(start, stop), step
    start = 0 if start is None else _inside(start, size)
    stop = size if stop is None else _inside(stop, size)
    empty = stop < start
    return start, sym_max(start, stop) if is_of_data(size) or is_of_data(empty) else start if empty else stop, step


_MOST = 2**62     # more than any size


def _inside(bound: Any, size: Any) -> Any:
    """A bound of a slice as a position in [0, size]; negative ones count from the end."""
    if bound is size:
        return size
    if is_of_data(bound) and bound.env.is_signed(bound.expr):
        return sym_min(sym_max(bound - size * (bound // _MOST), 0), size)      # the quotient is -1 for negative ones
    if bound < 0:
        bound = bound + size
        return sym_max(bound, 0) if is_of_data(size) else bound if bound >= 0 else 0
    beyond = bound > size
    return sym_min(bound, size) if is_of_data(size) or is_of_data(beyond) else size if beyond else bound


def _select(x: Tensor, dim: int, i: Any) -> Tensor:
    size = x._layout.shape[dim]
    if i >= size or i < -size:
        raise IndexError(f"index {i} is out of bounds for dimension {dim} with size {size}")
    return prims.select(x, dim, i + size if i < 0 else i)


def _slice(x: Tensor, dim: int, item: slice) -> Tensor:
    size = x._layout.shape[dim]
    start, stop, step = slice_bounds(item, size)
    to_end = stop is size or (type(stop) is int and type(size) is int and stop == size)
    if step == 1 and type(start) is int and start == 0 and to_end:
        return x
    return prims.slice_(x, dim, start, stop, step)


def _number_of(item: Tensor) -> int | None:
    """The value of a 0-dim integer index, if reading it now is right: a recording on a GPU cannot wait for it."""
    if item.ndim or item._data is None or dispatch.state.word:
        return None
    if item.device.type == "cpu":
        return int(item._data)
    return None if under_way else int(item.item())


def _is_traced(x: Tensor, index: Tensor) -> bool:
    return (x._data is None or index._data is None) and not (is_example(x) or is_example(index))


def _selects(x: Tensor, item: Any) -> bool:
    """Whether an item is a number in a tensor, which is a basic index."""
    return isinstance(item, Tensor) and not item.ndim and not _is_mask(item) and (_number_of(item) is not None or _is_traced(x, item))


def _counted_from_start(index: Tensor, size: Any) -> Tensor:
    """A 0-dim index as a tensor of its own, which nobody writes to later."""
    index = cast(index.detach(), int64)
    return prims.where(index < 0, index + size, index)


def _check_mask(x: Tensor, mask: Tensor, dim: int) -> None:
    for d, (n, m) in enumerate(zip(x._layout.shape[dim:dim + mask.ndim], mask._layout.shape)):
        if n is not m and n != m:
            raise IndexError(f"The shape of the mask {list(mask.shape)} at index {d} does not match the shape of the indexed "
                             f"tensor {list(x.shape)} at index {dim + d}")


def _mask_indices(x: Tensor, mask: Tensor, dim: int) -> list[Tensor]:
    _check_mask(x, mask, dim)
    rows = prims.nonzero(mask)
    return [prims.select(rows, 1, d) for d in range(mask.ndim)]


def _beside(x: Tensor, index: Tensor) -> Tensor:
    """An index on the device of `x`, whose indices may lie on the CPU."""
    return index.to(x.device) if index.device.type == "cpu" and x.device.type != "cpu" else index


class Read:
    """An index taken apart: `view` is x seen through the basic items, `advanced` the index tensors by dimension of it."""

    __slots__ = ("advanced", "converts", "mask", "view")

    def __init__(self, x: Tensor, index: Any, masks_whole: bool = False):
        items = _without_ellipsis(_as_items(index), x.ndim)
        self.view = x
        self.advanced: list[Tensor | None] = []
        self.mask: tuple[Tensor, int] | None = None
        self.converts = True    # whether one value under the mask is converted
        lone_mask = masks_whole and sum(isinstance(i, (Tensor, bool)) and not _selects(x, i) for i in items) == 1
        dim = 0
        for item in items:
            dim = self._take(item, dim, lone_mask)
        self._gather_numbers()

    def _gather_numbers(self) -> None:
        """Indices of no dimensions select, whether or not their values are known by now: where the others' dimensions go in the result
        does not hang on them. So they are brought before the first of the others."""
        numbers = [d for d, i in enumerate(self.advanced) if i is not None and not i.ndim]
        others = [d for d, i in enumerate(self.advanced) if i is not None and i.ndim]
        if not numbers or not others:
            return
        rest = [d for d in range(self.view.ndim) if d not in numbers]
        at = rest.index(others[0])
        order = (*rest[:at], *numbers, *rest[at:])
        if order != tuple(range(self.view.ndim)):
            self.view = prims.permute(self.view, order)
            given = dict(enumerate(self.advanced))
            self.advanced = [given.get(d) for d in order[:1 + max(k for k, d in enumerate(order) if given.get(d) is not None)]]

    def _put(self, dim: int, tensors: list) -> None:
        self.advanced += [None] * (dim - len(self.advanced)) + tensors

    def _take(self, item: Any, dim: int, lone_mask: bool) -> int:
        """Apply one item at dimension `dim` of the view; the dimension of the next."""
        if isinstance(item, slice):
            if item != _FULL:
                self.view = _slice(self.view, dim, item)
            return dim + 1
        if item is None:
            self.view = prims.unsqueeze(self.view, dim)
            return dim + 1
        if isinstance(item, bool):
            self.view = prims.unsqueeze(self.view, dim)
            self._put(dim, [self.view.new_zeros((int(item),), dtype=int64)])
            return dim + 1
        if not isinstance(item, Tensor):
            self.view = _select(self.view, dim, item)
            return dim
        return self._take_tensor(item, dim, lone_mask)

    def _take_tensor(self, item: Tensor, dim: int, lone_mask: bool) -> int:
        if item.dtype not in _INDICES and not (_selects(self.view, item) and item.dtype.category < FLOAT):
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        if not _is_mask(item):
            number = _number_of(item)
            if number is not None:
                self.view = _select(self.view, dim, number)
                return dim
            if not item.ndim and _is_traced(self.view, item):
                self.view = prims.select(self.view, dim, _counted_from_start(item, self.view._layout.shape[dim]))
                return dim
            self._put(dim, [_beside(self.view, item)])
            return dim + 1
        mask = _as_mask(_beside(self.view, item))
        if not mask.ndim:
            self.view, self.converts = prims.unsqueeze(self.view, dim), False
            if lone_mask:
                self.mask = prims.unsqueeze(mask, 0), dim
            else:
                self._put(dim, [prims.select(prims.nonzero(prims.unsqueeze(mask, 0)), 1, 0)])
            return dim + 1
        if lone_mask:
            self.mask = mask, dim
        else:
            self._put(dim, _mask_indices(self.view, mask, dim))
        return dim + mask.ndim


def _check_broadcast(indices: Sequence) -> None:
    shapes = [tuple(i.shape) for i in indices if i is not None]
    for d in range(1, max(map(len, shapes)) + 1):
        there = [s[-d] for s in shapes if len(s) >= d]
        seen = [n for n in there if n != 1] if len(there) > 1 else []
        if all(type(n) is int for n in seen) and len(set(seen)) > 1:
            raise IndexError("shape mismatch: indexing tensors could not be broadcast together with shapes "
                             + ", ".join(str(list(s)) for s in shapes))


def advanced(x: Tensor, indices: list) -> Tensor:
    """x[indices] with index tensors (None: the whole dimension)."""
    _check_broadcast(indices)
    return prims.index(x, indices)


# -- x[...] --------------------------------------------------------------------------------------------------
@operator(name="getitem_", method="__getitem__", tags=("view",))
def getitem(self: Tensor, index: Any) -> Tensor:
    """x[index]: a view for integers, slices, None and Ellipsis; a copy where tensors, lists or masks are among the indices."""
    if type(index) is int and self.ndim:
        return _select(self, 0, index)
    read = Read(self, index)
    if read.advanced:
        return advanced(read.view, read.advanced)
    return prims.alias(self) if read.view is self else read.view


# -- x[...] = value ------------------------------------------------------------------------------------------
def _value_for(target: Tensor, value: Any, convert: bool) -> Any:
    """The value as a tensor of target's device (and dtype), or as a number."""
    if isinstance(value, (np.ndarray, np.generic)) and not is_number(value):
        value = from_data(value, target.dtype)
    if not isinstance(value, Tensor):
        if not is_number(value):
            raise TypeError(f"can't assign a {type(value).__name__} to a {target.type()}")
        return stored(value, target.dtype)
    if value.device != target.device:
        value = value.to(device=target.device)
    return cast(value, target.dtype) if convert else value


def _fit(value: Tensor, shape: tuple) -> Tensor:
    """`value` expanded to `shape`; extra leading dimensions of size 1 are dropped."""
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = prims.squeeze(value, (0,))
    have = value._layout.shape
    lead = len(shape) - len(have)
    for d, n in enumerate(have):
        want = shape[d + lead] if lead >= 0 else None
        if lead < 0 or (n is not want and n != want and n != 1):
            raise RuntimeError(f"The expanded size of the tensor ({want}) must match the existing size ({n}) at non-singleton "
                               f"dimension {d}.  Target sizes: {list(shape)}.  Tensor sizes: {list(have)}")
    return expand_to(value, shape)


@method("__delitem__")
def delitem(self: Tensor, index: Any) -> None:
    """TypeError: a tensor's size is its own."""
    raise TypeError(f"Tensor does not support deleting items (asked for {index!r} of shape {list(self.shape)}); index_select what stays")


@operator(name="setitem_", method="__setitem__")
def setitem(self: Tensor, index: Any, value: Any) -> None:
    """x[index] = value, written into x's own memory; a value tensor is broadcast, and converted where no index tensor is used."""
    if index is True:
        index = None    # the whole, of which nothing is chosen
    one = isinstance(value, Tensor) and all(type(n) is int and n == 1 for n in value._layout.shape)
    read = Read(self, index, masks_whole=one or not isinstance(value, Tensor))
    target = read.view
    if index is False:
        return
    if read.mask is not None:
        if one and not read.converts and value.dtype is not target.dtype:
            raise RuntimeError("Index put requires the source and destination dtypes match, got "
                               f"{target.dtype} for the destination and {value.dtype} for the source.")
        value = prims.view_(value, ()) if one and value.ndim else value
        if one:
            value = fitting(value, target.dtype)    # a single value is held, as a number is, or refused
        _set_masked(target, *read.mask, _value_for(target, value, True))
        return
    if not read.advanced:
        value = _value_for(target, value, True)
        assign(target, _fit(value, tuple(target.shape)) if isinstance(value, Tensor) else value, anew=True)
        return
    _check_broadcast(read.advanced)
    value = _value_for(target, value, False)
    rank = len(prims.index_shape(target._layout.shape, read.advanced)[0])
    while isinstance(value, Tensor) and value.ndim > rank and value.shape[0] == 1:
        value = prims.squeeze(value, (0,))
    put_(target, read.advanced, value, False)


def _set_masked(target: Tensor, mask: Tensor, dim: int, value: Any) -> None:
    """One value under a mask is a selection: no index is formed, so that it can be captured and fused."""
    _check_mask(target, mask, dim)
    for _ in range(target.ndim - dim - mask.ndim):
        mask = prims.unsqueeze(mask, mask.ndim)
    if _in_place_now(target, value):
        np.copyto(target._data, value._data if isinstance(value, Tensor) else value, where=mask._data, casting="unsafe")
        bump_version(target)
        return
    if dispatch.state.grad_enabled:
        mask = mask.clone()     # kept for backward: whoever made it may write to it
    assign(target, prims.where(*broadcast(mask, value, target)))


def _in_place_now(target: Tensor, value: Any) -> bool:
    """Whether a kernel may write straight into target's memory: nothing records or traces, and the data is here."""
    if dispatch.state.word or not isinstance(target._data, np.ndarray) or not target._data.flags.writeable:
        return False
    refuse_inference_write(target)
    if not dispatch.state.grad_enabled:
        return not (isinstance(value, Tensor) and value._data is None)
    return not target.requires_grad and not (isinstance(value, Tensor) and (value.requires_grad or value._data is None)) \
        and not (target._view is not None and target._view.base.requires_grad)


def put_(target: Tensor, indices: list, value: Any, accumulate: bool) -> Tensor:
    """Write (or add) `value` at `indices` of `target`, in place."""
    if not isinstance(value, Tensor):
        value = target.new_full((), value)
    elif not value.ndim:
        value = together((target, value))[1]
    if _in_place_now(target, value) and all(i is None or i._data is not None for i in indices):
        target._storage  # noqa: B018 - fixes the layout before the write
        with dispatch.fake_mode():
            prims.index_put(target, indices, value, accumulate)  # the shape rule's checks
        prims.write_index(target._data, [None if i is None else i._data for i in indices], value._data, accumulate)
        bump_version(target)
        return target
    return assign(target, prims.index_put(target, indices, value, accumulate))


def index_list(x: Tensor, indices: Sequence) -> list:
    """The `indices` of index_put: tensors by dimension, masks made index tensors, None for whole dimensions."""
    found: list = []
    for item in indices:
        if item is not None and not isinstance(item, Tensor):
            item = from_data(item)
        if item is not None and item.dtype not in _INDICES:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        item = item if item is None else _beside(x, item)
        if _is_mask(item):
            found.extend(_mask_indices(x, _as_mask(item), len(found)))     # type: ignore[arg-type]
        else:
            found.append(item)
    if len(found) > x.ndim:
        raise IndexError(f"too many indices for tensor of dimension {x.ndim}")
    return found

