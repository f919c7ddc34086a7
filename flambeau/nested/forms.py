"""The forms of operators for nested tensors whose parameters do not say it: parts, shapes, products, attention, padding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .. import ops
from ..core.forms import check_may_write
from ..core.symbolic import SymInt
from ..core.tensor import Tensor
from ..nn import functional
from ..ops.nn import layers
from ..utils._pytree import tree_map
from .general import by_components, by_facets, elementwise, form, general, in_buffer, nested_in, overwritten, values_in_padded
from .tensor import (
    Nested,
    NestedInt,
    NestedTensor,
    Parts,
    StridedNestedTensor,
    assembled,
    canonical,
    components,
    jagged_of,
    strided_of,
    values_of,
)


def _like(x: Any, rows: Sequence[Tensor]) -> Any:
    """Rows as a nested tensor of the layout of `x`, ragged where it is."""
    return strided_of(rows) if isinstance(x, StridedNestedTensor) else jagged_of(rows, x._ragged_idx, x._ragged)


# -- parts -----------------------------------------------------------------------------------------------------------------------
@form(ops.unbind)
def _unbind(input: Any, dim: int = 0) -> tuple[Tensor, ...]:
    if canonical(dim, input.ndim):
        raise RuntimeError(f"unbind(): only supported for NestedTensor on dim=0, got dimension {dim}; NestedTensor can only be unbound along "
                           "dimension 0")
    return components(input)


@form(ops.select)
def _select(input: Any, dim: int, index: Any) -> Any:
    at = canonical(dim, input.ndim)
    if not at:
        return _component(input, index)
    if at == getattr(input, "_ragged_idx", None):
        raise RuntimeError(f"select(): not supported for NestedTensor on ragged dim {at}")
    return by_facets(ops.select, (input, dim, index), {})


def _component(x: Any, index: Any) -> Tensor:
    at = int(index)
    if not -x.count <= at < x.count:
        raise IndexError(f"index {at} is out of bounds for dimension 0 with size {x.count}")
    return components(x)[at]


@form(ops.narrow)
def _narrow(input: Any, dim: int, start: Any, length: int) -> Any:
    if canonical(dim, input.ndim):
        return by_facets(ops.narrow, (input, dim, start, length), {})
    return _getitem(input, slice(int(start), int(start) + length))


@form(ops.chunk)
def _chunk(input: Any, chunks: int, dim: int = 0) -> tuple:
    if canonical(dim, input.ndim) or isinstance(input, StridedNestedTensor):
        return by_facets(ops.chunk, (input, chunks, dim), {})
    rows, size = components(input), -(-input.count // chunks)
    return tuple([jagged_of(rows[i:i + size], input._ragged_idx) for i in range(0, len(rows), size)])


@form(Tensor.__getitem__)
def _getitem(input: Any, key: Any) -> Any:
    keys = list(key) if isinstance(key, tuple) else [key]
    if any(k is Ellipsis for k in keys):
        at = next(i for i, k in enumerate(keys) if k is Ellipsis)
        keys[at:at + 1] = [slice(None)] * (input.ndim - sum(k is not None and k is not Ellipsis for k in keys))
    first, rest = (keys[0], tuple(keys[1:])) if keys else (slice(None), ())
    if isinstance(first, (int, SymInt)) or (isinstance(first, Tensor) and not first.ndim and first.dtype.category == 1):
        row = _component(input, first)
        return row[rest] if rest else row
    if first is None:
        raise RuntimeError("unsqueeze(): not supported for NestedTensor on dim=0")
    if isinstance(first, Nested):
        return _masked_select(input, first)
    ragged = getattr(input, "_ragged_idx", 0)
    if ragged and first == slice(None) and all(k == slice(None) for k in rest[:ragged]):
        return _indexed_values(input, rest, ragged)
    every = components(input)
    chosen = [every[i] for i in range(len(every))[first]] if isinstance(first, slice) else [every[i] for i in _numbers(first, len(every))]
    rows = [row[rest] if rest else row for row in chosen]
    if not rows or (ragged and any(row.ndim != input.ndim - 1 for row in rows)):
        raise RuntimeError(f"slice(): not supported for NestedTensor on dim=0: {key!r} leaves no rows, or no ragged dimension")
    return jagged_of(rows, ragged) if ragged else in_buffer(rows, input)


def _numbers(index: Any, count: int) -> list[int]:
    """A list or a tensor of row numbers, or of a truth value for each row, as numbers."""
    found = index if isinstance(index, Tensor) else ops.tensor(index)
    if found.ndim != 1:
        raise NotImplementedError(f"a nested tensor is indexed by one list of rows, not by a tensor of shape {list(found.shape)}")
    if found.dtype.category == 0 and found.shape[0] != count:
        raise IndexError(f"the mask of {found.shape[0]} rows does not match a nested tensor of {count}")
    return found.tolist() if found.dtype.category else ops.nonzero(found).reshape(-1).tolist()


def _indexed_values(x: NestedTensor, rest: tuple, ragged: int) -> NestedTensor:
    """Subscripts that leave batch and ragged dimension whole."""
    before = sum(isinstance(k, int) for k in rest[:ragged - 1])
    return assembled(values_of(x)[rest], (x._ragged, ragged - before))


@form(Tensor.__setitem__)
def _setitem(self: Any, key: Any, value: Any) -> None:
    if not isinstance(self, Nested):
        raise TypeError(f"a nested tensor of layout {value.layout} cannot be written into a dense one of shape {list(self.shape)}; use "
                        "to_padded_tensor()")
    check_may_write(self)
    if isinstance(key, Nested):
        overwritten(self, ops.where(key, value, self))
        return
    target = _getitem(self, key)
    if not isinstance(target, Nested):
        target.copy_(value if isinstance(value, Tensor) else ops.tensor(value, dtype=target.dtype))
    elif target._dense._storage is self._dense._storage:
        (ops.copy_ if isinstance(value, Nested) else ops.fill_)(target, value)
    else:
        raise NotImplementedError(f"writing to {key!r} of a nested tensor: write to its components, x[i][...] = value")


@form(ops.cat)
def _cat(tensors: Sequence[Any], dim: int = 0, **kwargs: Any) -> Any:
    if not all(isinstance(x, Nested) for x in tensors):
        if not isinstance(nested_in(tensors)[0], NestedTensor):
            raise RuntimeError("cat(): expected each tensor in given list to be nested, got dense tensors as well")
        first = nested_in(tensors)[0]
        tensors = [x if isinstance(x, Nested) else from_padded(x, first) for x in tensors]
    if canonical(dim, tensors[0].ndim) or isinstance(tensors[0], NestedTensor):
        return by_facets(ops.cat, (tensors, dim), kwargs)
    return strided_of([row for x in tensors for row in components(x)])


@form(ops.masked_select)
def _masked_select(input: Any, mask: Any) -> Any:
    if isinstance(input, NestedTensor) and input.ndim != 2:
        raise RuntimeError(f"masked_select only support 2-D selections currently, got {tuple(input.shape)}")
    parts = components(mask) if isinstance(mask, Nested) else [mask] * input.count
    return _like(input, [row.masked_select(part) for row, part in zip(components(input), parts)])


# -- shapes ----------------------------------------------------------------------------------------------------------------------
@form(ops.permute)
def _permute(input: Any, *dims: Any, **named: Any) -> Any:
    order = [canonical(d, input.ndim) for d in _listed(dims, named)]
    if order[:1] != [0] or len(order) != input.ndim:
        raise ValueError(f"Permute is not supported on the batch dimension for jagged NT (got {order} for {input.ndim} dimensions)")
    inner = [d - 1 for d in order[1:]]
    if isinstance(input, StridedNestedTensor):
        parts = input._parts
        sizes, strides = ([tuple(row[d] for d in inner) for row in rows] for rows in (parts.sizes, parts.strides))
        return assembled(values_of(input), (Parts(sizes, strides, parts.offsets, parts.length),))
    return assembled(values_of(input).permute(inner), (input._ragged, order.index(input._ragged_idx)))


def _listed(sizes: tuple, named: dict[str, Any]) -> list:
    given = sizes or tuple(named.values())
    return list(given[0]) if len(given) == 1 and isinstance(given[0], (tuple, list)) else list(given)


def _reshaped(name: str, viewed: Callable[[Tensor, list], Tensor]) -> Callable:
    """view or reshape: the batch stays, and with jagged tensors the ragged dimension, which -1 may stand for."""
    def reshape(input: Any, *shape: Any, **named: Any) -> Any:
        sizes = _listed(shape, named)
        if name == "view" and len(sizes) == 1 and not isinstance(sizes[0], (int, SymInt)):
            return elementwise(ops.view, (input, *sizes), {})
        if isinstance(input, StridedNestedTensor):
            return _strided_view(name, input, sizes)
        if name == "reshape" and input._ragged.lengths is not None:
            input = _contiguous(input)
        ragged = [i for i, n in enumerate(sizes) if isinstance(n, NestedInt)] or [i for i, n in enumerate(sizes) if n == -1]
        at = ragged[0] if ragged else 0
        if sizes[:1] != [input.count] or not at or (isinstance(sizes[at], NestedInt) and sizes[at] != input._ragged.size):
            raise RuntimeError(f"{name}(): cannot view shape {tuple(input.shape)} as {sizes}")
        inner = [*sizes[1:at], input._dense.shape[input._ragged_idx - 1], *sizes[at + 1:]]
        shape_before, shape_after = input._dense.shape[:input._ragged_idx - 1], inner[:at - 1]
        if math.prod(shape_before) != math.prod(shape_after) and -1 not in inner:
            raise RuntimeError(f"{name}(): cannot view shape {tuple(input.shape)} as {sizes}")
        try:
            return assembled(viewed(values_of(input), inner), (input._ragged, at))
        except RuntimeError as error:
            raise RuntimeError(f"{name}(): cannot view shape {tuple(input.shape)} as {sizes}") from error
    return reshape


def _strided_view(name: str, x: StridedNestedTensor, sizes: list) -> Any:
    parts = x._parts
    if sizes[:1] != [len(parts.sizes)]:
        raise RuntimeError(f"{name}: For now nested {name} cannot change or infer the implicit batch dimension (asked for {sizes} of "
                           f"{len(parts.sizes)} components)")
    if not parts.contiguous:
        if name == "view":
            raise RuntimeError(f"view size is not compatible with the strides of the components {parts.strides}; use reshape()")
        x = _contiguous(x)
    rows = [row.view([row.shape[i] if n == -1 and i < row.ndim and sizes.count(-1) > 1 else n for i, n in enumerate(sizes[1:])])
            for row in components(x.detach())]
    return assembled(values_of(x), (Parts([row.shape for row in rows]),))


form(ops.view)(_reshaped("view", lambda values, sizes: values.view(sizes)))
form(ops.reshape)(_reshaped("reshape", lambda values, sizes: values.reshape(sizes)))


@form(ops.expand)
def _expand(self: Any, *sizes: Any, **named: Any) -> Any:
    wanted = _listed(sizes, named)
    if not isinstance(self, NestedTensor):
        raise NotImplementedError(f"expand() to {wanted} is not implemented for strided nested tensors or to nested shapes; use jagged ones")
    at, more = self._ragged_idx, len(wanted) - self.ndim
    kept = wanted[at:at + 1] in ([-1], [self._ragged.size]) and wanted[:1] in ([-1], [self.count])
    if more < 0 or not kept:
        raise RuntimeError(f"expand(): cannot expand shape {tuple(self.shape)} -> {wanted}")
    inner = [*wanted[1:at], self._dense.shape[at - 1], *wanted[at + 1:]]
    return assembled(values_of(self).expand(inner), (self._ragged, at))


@form(ops.view_as, ops.reshape_as, ops.expand_as)
def _as_other(self: Any, other: Any) -> Any:
    if isinstance(self, StridedNestedTensor) and isinstance(other, StridedNestedTensor) and self._sizes() == other._sizes():
        return self
    if not isinstance(self, Nested) or not isinstance(other, NestedTensor):
        raise RuntimeError(f"cannot view or expand a tensor of {self.ndim} dimensions as a nested one where not both are jagged; strided "
                           "nested tensors have no sizes to follow")
    return self.expand(other.shape) if self.ndim < other.ndim or self.shape == other.shape else self.reshape(other.shape)


@form(ops.contiguous)
def _contiguous(self: Any, *, memory_format: Any = None) -> Any:
    if self.is_contiguous(memory_format):
        return self
    if isinstance(self, NestedTensor) and self._ragged.lengths is None:
        return assembled(values_of(self).contiguous(), self.rows)
    return _like(self, components(self))


# -- copies ------------------------------------------------------------------------------------------------------------------------
@form(ops.to)
def _to(self: Any, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(self, Nested):
        like = nested_in((args, kwargs))[0]
        return self.to(like._dense.device, like.dtype)
    found = self._dense.to(*[a._dense if isinstance(a, Nested) else a for a in args], **kwargs)
    same = found is self._dense
    return self if same else assembled(values_of(self).to(*[a._dense if isinstance(a, Nested) else a for a in args], **kwargs), self.rows)


@form(ops.new_tensor)
def _new_tensor(self: Any, data: Any, **kwargs: Any) -> Tensor:
    return self._dense.new_tensor(data, **kwargs)


@form(ops.copy_)
def _copy(self: Any, src: Any, non_blocking: bool = False) -> Any:
    if not isinstance(self, Nested) or not isinstance(src, Nested):
        raise (ValueError if isinstance(self, NestedTensor) else RuntimeError)(
            f"copy_(): expected src and the tensor to be nested (get_nested_tensor_impl requires a NestedTensor), got {type(src).__name__} and "
            f"{type(self).__name__}")
    if self.layout is not src.layout:
        raise ValueError(f"copy_(): expected src to be of layout {self.layout}, got {src.layout}")
    if self._sizes() != src._sizes():
        raise RuntimeError(f"copy_ only supports Nested Tensors that have same size and offset, got {self._sizes()} and {src._sizes()}")
    check_may_write(self)
    found = src if src.rows == self.rows else _like(self, components(src))
    if self.requires_grad or src.requires_grad:
        return overwritten(self, general(ops.clone, (found.to(self.dtype),), {}))
    for mine, theirs in zip(components(self), components(found)):
        mine.copy_(theirs, non_blocking)
    return self


@form(ops.is_same_size)
def _is_same_size(input: Any, other: Any) -> bool:
    return isinstance(input, Nested) and isinstance(other, Nested) and input._sizes() == other._sizes()


@form(ops.equal)
def _equal(input: Any, other: Any) -> bool:
    return _is_same_size(input, other) and all(ops.equal(a, b) for a, b in zip(components(input), components(other)))


@form(ops.allclose)
def _allclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    return _is_same_size(input, other) and all(ops.allclose(a, b, rtol, atol, equal_nan) for a, b in zip(components(input), components(other)))


# -- products and layers ---------------------------------------------------------------------------------------------------------
def _of_last_dims(operator: Callable, taken: Callable[..., int]) -> None:
    """An operator of the last dimensions of its first argument, of which there are `taken(...)`, and dense tensors beside it."""
    @form(operator)
    def layer(input: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(input, StridedNestedTensor):
            return by_components(operator, (input, *args), kwargs)
        if not isinstance(input, NestedTensor) or nested_in((args, kwargs)):
            raise RuntimeError(f"{operator.__name__}(): the input alone may be nested, its weights are dense")
        if input._ragged_idx >= input.ndim - taken(*args, **kwargs):
            raise ValueError(f"{operator.__name__}(): not supported for NestedTensor of shape {tuple(input.shape)}: it works on the ragged "
                             "dimension; expected input to be a contiguous jagged layout NestedTensor")
        return assembled(operator(values_of(input), *args, **kwargs), input.rows)


def _normalized(normalized_shape: Sequence[int], *rest: Any, **named: Any) -> int:
    return len(normalized_shape)


_of_last_dims(ops.linear, lambda *args, **kwargs: 1)
_of_last_dims(ops.layer_norm, _normalized)
_of_last_dims(ops.rms_norm, _normalized)
_of_last_dims(ops.one_hot, lambda *args, **kwargs: 0)


@form(functional.embedding, ops.embedding)
def _embedding(*args: Any, **kwargs: Any) -> Any:
    """Both call it with the indices and the weight, in one order or the other: the weight has rows for each index."""
    operator, (x, *more) = (functional.embedding if isinstance(args[0], Nested) else ops.embedding), nested_in((args, kwargs))
    if more or isinstance(x, StridedNestedTensor):
        return by_components(operator, args, kwargs)
    given, named = tree_map(lambda leaf: values_of(leaf) if leaf is x else leaf, (args, kwargs))
    return assembled(operator(*given, **named), x.rows)


@form(layers.embedding_bag)
def _embedding_bag(input: Any, weight: Tensor, offsets: Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
    if offsets is not None or not isinstance(input, NestedTensor) or input.ndim != 2:
        raise ValueError("embedding_bag(): a nested input is jagged, of two dimensions, and its own offsets are the bags: got "
                         f"{input.ndim} dimensions and offsets {offsets}")
    x = _contiguous(input)
    return layers.embedding_bag(values_of(x), weight, x.offsets()[:-1], *args, **kwargs)


@form(ops.matmul, ops.bmm)
def _matmul(input: Any, other: Any) -> Any:
    if any(isinstance(x, StridedNestedTensor) for x in (input, other)):
        return _strided_matmul(input, other)
    if isinstance(input, NestedTensor) and isinstance(other, Tensor) and not isinstance(other, Nested) and other.ndim == 2 \
            and input._ragged_idx < input.ndim - 1:
        return assembled(values_of(input) @ other, input.rows)
    places = _ragged_from_last(input), _ragged_from_last(other)
    lead = input.ndim == other.ndim > 2 and input.shape[0] == other.shape[0]
    if not lead or places not in _PRODUCTS or (all(places) and input._ragged.rows[1] != other._ragged.rows[1]):
        raise RuntimeError(f"matmul(): not supported between inputs of shapes {tuple(input.shape)} and {tuple(other.shape)}")
    rows = [a @ b for a, b in zip(_rows(input), _rows(other))]
    kept = _PRODUCTS[places]
    return ops.stack(rows) if not kept else jagged_of(rows, input.ndim + kept, (input if places[0] else other)._ragged)


def _ragged_from_last(x: Any) -> int:
    return x._ragged_idx - x.ndim if isinstance(x, NestedTensor) else 0


_PRODUCTS = {(-2, 0): -2, (0, -1): -1, (-1, -2): 0, (-3, -3): -3, (-3, 0): -3, (0, -3): -3}
"""By where the operands are ragged, counted from the last dimension (0: nowhere), where their product is."""


def _rows(x: Any) -> Sequence[Tensor]:
    return components(x) if isinstance(x, Nested) else x.unbind()


def _strided_matmul(x: Any, y: Any) -> StridedNestedTensor:
    if isinstance(x, Nested) and isinstance(y, Nested):
        if x.count != y.count:
            raise RuntimeError(f"Expected size for the 1st dimension of 2nd input tensor to be: {x.count} but got: {y.count}.")
    elif isinstance(x, Nested) and y.ndim == 2:
        return strided_of([row @ y for row in components(x)])
    elif (y if isinstance(x, Nested) else x).ndim < 3:
        raise RuntimeError(f"Expected both to be nested, but got a {'' if isinstance(x, Nested) else 'non-'}nested self and "
                           f"{'' if isinstance(y, Nested) else 'non-'}nested other")
    return strided_of([a @ b for a, b in zip(_rows(x), _rows(y), strict=True)])


@form(ops.scaled_dot_product_attention)
def _attention(query: Any, key: Any, value: Any, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False, *,
               scale: float | None = None, enable_gqa: bool = False) -> Any:
    inputs = (query, key, value)
    if not all(isinstance(x, Nested) for x in inputs):
        raise ValueError("Expected query, key, and value to be nested tensors, but got query.is_nested: "
                         f"{query.is_nested}, key.is_nested: {key.is_nested}, and value.is_nested: {value.is_nested} instead.")
    if attn_mask is not None:
        raise ValueError(f"Masks are not yet supported! (got one of shape {list(attn_mask.shape)}); is_causal needs none")
    if len({x.count for x in inputs}) > 1 or key._sizes() != [(*s[:-1], k[-1]) for s, k in zip(value._sizes(), key._sizes())]:
        raise RuntimeError(f"scaled_dot_product_attention: expected as many keys as values, got {key._sizes()} and {value._sizes()}")
    rows = [ops.scaled_dot_product_attention(q, k, v, None, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
            for q, k, v in zip(*map(components, inputs))]
    if isinstance(query, NestedTensor) and query._ragged_idx == 2 and query.ndim == 4:    # lies as what was projected and transposed
        return jagged_of([row.transpose(0, 1) for row in rows], 1, query._ragged).transpose(1, 2)
    return _like(query, rows)


# -- padding ---------------------------------------------------------------------------------------------------------------------
def padded(x: Any, padding: float, output_size: Sequence[int] | None = None) -> Tensor:
    """The dense tensor of all components, and `padding` behind them: of the sizes of the largest, or of `output_size`."""
    if isinstance(x, StridedNestedTensor):
        return _padded_components(x, padding, output_size)
    if not isinstance(x, NestedTensor):
        raise NotImplementedError(f"Could not run 'aten::to_padded_tensor' with arguments from the 'CPU' backend: a dense tensor (of shape "
                                  f"{list(x.shape)}) has no rows to pad")
    if x._ragged.lengths is not None:
        raise RuntimeError("to_padded_tensor(): not supported for nested tensors with holes; use contiguous()")
    at = x._ragged_idx - 1
    most = x._ragged.most if output_size is None else output_size[at + 1]     # the other sizes are the tensor's own
    rows = values_of(x).movedim(at, 0)
    starts, counts = (ops.tensor(numbers, device=rows.device).unsqueeze(1) for numbers in x._ragged.rows)
    place = ops.arange(most, device=rows.device).unsqueeze(0)
    if rows.shape[0]:
        found = rows.index_select(0, (starts + place).clamp(max=rows.shape[0] - 1).reshape(-1))
        there = (place < counts).reshape(-1, *(1,) * (rows.ndim - 1))
        found = ops.where(there, found, ops.full((), padding, dtype=rows.dtype, device=rows.device))
    else:
        found = rows.new_full((x.count * most, *rows.shape[1:]), padding)
    out = found.reshape(x.count, most, *rows.shape[1:]).movedim(1, at + 1)
    return out


def _grown(x: Tensor, sizes: tuple, padding: float) -> Tensor:
    """A tensor padded behind to these sizes."""
    margins = [p for n, have in zip(sizes[::-1], x.shape[::-1]) for p in (0, n - have)]
    return functional.pad(x, margins, value=padding) if any(margins) else x


def _padded_components(x: StridedNestedTensor, padding: float, output_size: Sequence[int] | None) -> Tensor:
    if not x._parts.sizes:
        return x._dense.new_empty((0,))
    largest = tuple([max(ns) for ns in zip(*x._parts.sizes)])
    sizes = largest if output_size is None else tuple(output_size[1:])
    if len(sizes) != len(largest) or any(n < least for n, least in zip(sizes, largest)):
        raise RuntimeError(f"Value in output_size is less than NestedTensor padded size. Truncation is not supported. "
                           f"(output_size={output_size}, the components need {list(largest)})")
    return ops.stack([_grown(row, sizes, padding) for row in components(x)])


Nested.to_padded_tensor = padded    # type: ignore[method-assign, assignment]


def from_padded(dense: Tensor, like: NestedTensor) -> NestedTensor:
    """A jagged tensor with the rows of `like`, of a dense one that has them padded."""
    return assembled(values_in_padded(dense, like), like.rows)
