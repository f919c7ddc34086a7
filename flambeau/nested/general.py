"""What an operator is for nested tensors, read off the operator itself: its parameters, its tags and its steps.

- One that counts dimensions computes with the values, whose dimensions are one fewer; along the ragged dimension, row by row.
- One of single elements, all whose steps are (`ops/elementwise.py`), computes with the values, whatever it is called.
- Anything else has a form (`forms.py`), or refuses.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NoReturn

from .. import ops
from ..core import dispatch
from ..core.dtypes import finfo, iinfo
from ..core.forms import check_may_write
from ..core.tensor import Tensor, fake
from ..ops.elementwise import Elementwise
from ..ops.registry import OPERATORS, is_operator
from ..ops.writing import new_value
from ..utils._pytree import tree_leaves, tree_map
from .tensor import (
    Nested,
    NestedTensor,
    Parts,
    StridedNestedTensor,
    assembled,
    canonical,
    components,
    jagged_of,
    same_rows,
    strided_of,
    values_of,
)

FORMS: dict[Any, Callable] = {}
"""By operator: what it is for arguments of which some are nested, where its facets do not say."""

_COUNTS = ("dim", "dims", "dim0", "dim1", "dim2", "start_dim", "end_dim", "dimension", "source", "destination")
_ROWS = (1009, 2003)    # two sizes that nothing else has: the dimension of a result that follows them is the ragged one


def form(*operators: Any) -> Callable:
    """Enter a function as what these operators are for nested tensors."""
    def enter(fn: Callable) -> Callable:
        FORMS.update(dict.fromkeys(operators, fn))
        return fn
    return enter


def refuse(name: str, why: str, args: Any) -> NoReturn:
    """NotImplementedError for an operator that nothing is known of."""
    given = ", ".join(f"{x.layout} of shape {list(x._lay.shape)}" for x in nested_in(args))
    raise NotImplementedError(f"{name}() is not implemented for nested tensors (given: {given}): {why}. Compute with the components "
                              "(unbind()), with the values(), or with to_padded_tensor()")


def nested_in(args: Any) -> list[Any]:
    """The nested tensors among arguments."""
    return [leaf for leaf in tree_leaves(args) if isinstance(leaf, Nested)]


def general(func: Callable, args: tuple, kwargs: dict) -> Any:
    """An operator with nested arguments: its form, or what its facets say."""
    found = FORMS.get(func)
    return by_facets(func, args, kwargs) if found is None else found(*args, **kwargs)


def by_facets(func: Callable, args: tuple, kwargs: dict) -> Any:
    """What an operator's facets say that it is."""
    if not is_operator(func):
        refuse(getattr(func, "__name__", str(func)), "it is no operator", (args, kwargs))
    if "inplace" in func._operator.tags or _writes(func):   # type: ignore[attr-defined]
        return _in_place(func, args, kwargs)
    given = _bound(func, args, kwargs)
    values = {name: given.arguments.get(name, p.default) for name, p in given.signature.parameters.items()}
    dims = {name: values[name] for name in _COUNTS if name in values and _are_dims(values[name])}
    if dims:
        return _along(func, given, dims)
    if "keepdim" in values:
        return _whole(func, given)
    return elementwise(func, args, kwargs)


Nested.general = staticmethod(general)


def _writes(func: Callable) -> bool:
    name = func._operator.name      # type: ignore[attr-defined]
    return name.endswith("_") and not name.endswith("__")


@cache
def _signature(func: Callable) -> inspect.Signature:
    return inspect.signature(func)


def _bound(func: Callable, args: tuple, kwargs: dict) -> inspect.BoundArguments:
    return _signature(func).bind(*args, **kwargs)


def _are_dims(value: Any) -> bool:
    return type(value) is int or (isinstance(value, (tuple, list)) and bool(value) and all(type(d) is int for d in value))


def _called(func: Callable, given: inspect.BoundArguments, **changed: Any) -> Any:
    """The operator with some of its arguments changed; what was left out stays so."""
    again = inspect.BoundArguments(given.signature, given.arguments | changed)
    return func(*again.args, **again.kwargs)


# -- of single elements ----------------------------------------------------------------------------------------------------------
def elementwise(func: Callable, args: tuple, kwargs: dict) -> Any:
    """An operator all whose steps are of single elements: of the values."""
    name = func.__name__
    first = _of_same_rows(name, nested_in((args, kwargs)))

    def single(_: str, step: str) -> NoReturn:
        refuse(name, f"it is not of single elements ({step} in it), and counts no dimensions", (args, kwargs))

    def met(leaf: Any) -> Any:      # of as many dimensions as the nested tensor has, for operators that look at their number
        if isinstance(leaf, Nested):
            return values_of(leaf)[(None,) * (leaf.ndim - leaf._dense.ndim)]
        return _beside(name, leaf, first) if isinstance(leaf, Tensor) and leaf.ndim else leaf

    if isinstance(first, StridedNestedTensor) and not all(x._parts.contiguous or same_rows(x, first.rows) for x in nested_in((args, kwargs))):
        return by_components(func, args, kwargs)
    given, named = tree_map(met, args), tree_map(met, kwargs)
    with dispatch.push_mode(Elementwise(name, single, by_place=False, all_there=_has_no_holes(first))):
        out = func(*given, **named)
    return tree_map(lambda value: _of_rows(name, value, first), out)


def _has_no_holes(x: Any) -> bool:
    """Whether all values are of rows."""
    return x._dense.numel() == x.numel()


def _of_rows(name: str, value: Any, like: Any) -> Any:
    if not isinstance(value, Tensor) or not value.ndim:
        return value
    at = getattr(like, "_ragged_idx", like.ndim - 1)
    if value.ndim != like.ndim or value.shape[at] != like._dense.shape[at - like.ndim]:
        raise RuntimeError(f"cannot call pointwise function {name} of values of shape {list(like._dense.shape)}: the result has shape "
                           f"{list(value.shape)}")
    return assembled(value[(0,) * (like.ndim - like._dense.ndim)], like.rows)


def _of_same_rows(name: str, tensors: Sequence[Any]) -> Any:
    """The first of nested tensors that have the same rows; RuntimeError where they have not."""
    first = tensors[0]
    for x in tensors[1:]:
        if type(x) is not type(first):
            raise RuntimeError(f"{name}(): nested tensors of different layouts do not meet, got {first.layout} and {x.layout}")
        if isinstance(first, StridedNestedTensor):
            if x._parts.sizes != first._parts.sizes:
                raise RuntimeError(f"{name} does not support broadcasting when given a NestedTensor: the components have sizes "
                                   f"{first._parts.sizes} and {x._parts.sizes}")
        elif x.ndim != first.ndim or not same_rows(x, first.rows):
            raise RuntimeError(f"cannot call binary pointwise function {name} with inputs of shapes {tuple(first.shape)} and {tuple(x.shape)}: "
                               "nested tensors that meet have the same offsets")
    return first


def _beside(name: str, dense: Tensor, x: Any) -> Tensor:
    """A dense tensor as it meets the values of a nested one, to whose shape it is broadcast."""
    if isinstance(x, StridedNestedTensor):
        if dense.numel() == 1 and not dense.ndim:
            return dense
        raise RuntimeError(f"Expected both self and other to be nested, but got a nested self and non-nested other ({name} of a dense tensor "
                           f"of shape {list(dense.shape)})")
    at, lead = x._ragged_idx, x.ndim - dense.ndim
    if lead < 0:
        raise NotImplementedError(f"{name}(): a nested tensor of {x.ndim} dimensions is not broadcast to a dense one of {dense.ndim} "
                                  f"({tuple(x.shape)} and {list(dense.shape)}); unsqueeze() it first")
    if at < lead:
        return dense
    batch = 1 if lead else dense.shape[0]
    if dense.shape[at - lead] == 1 and batch == 1:
        return dense if lead else dense.squeeze(0)
    if lead or batch not in (1, x.shape[0]):
        raise RuntimeError(f"cannot call binary pointwise function {name} with inputs of shapes {tuple(x.shape)} and {tuple(dense.shape)}")
    if dense.shape[at] == 1:
        return dense.squeeze(at).index_select(0, row_of_each(x)).movedim(0, at - 1)
    if dense.shape[at] != x._ragged.most:
        raise RuntimeError(f"The expanded size of the tensor ({x._ragged.most}) must match the existing size ({dense.shape[at]}) at "
                           f"non-singleton dimension {at}.  Target sizes: {[batch, x._ragged.most, *x._dense.shape[1:]]}.  Tensor sizes: "
                           f"{list(dense.shape)}")
    return values_in_padded(dense.expand(x.shape[0], *dense.shape[1:]), x)


def row_of_each(x: NestedTensor) -> Tensor:
    """For each of the values, the row that it is in, or lies behind."""
    every = ops.arange(x._dense.shape[x._ragged_idx - 1], device=x._dense.device)
    return (ops.searchsorted(x._ragged.offsets.to(every.dtype), every, right=True) - 1).clamp(0, max(x.count - 1, 0))


def values_in_padded(dense: Tensor, x: Any) -> Tensor:
    """The values that `x` would have, made of a dense tensor with all rows padded to one length."""
    at, row = x._ragged_idx, row_of_each(x)
    place = ops.arange(row.shape[0], device=row.device) - x._ragged.offsets.to(row.dtype).index_select(0, row)
    rows = dense.movedim(at, 1)
    flat = rows.reshape(-1, *rows.shape[2:]).index_select(0, row * rows.shape[1] + place.clamp(max=rows.shape[1] - 1))
    return flat.movedim(0, at - 1)


def by_components(func: Callable, args: tuple, kwargs: dict) -> StridedNestedTensor:
    """An operator of each row of components, the results components again."""
    parts = [iter(components(x)) for x in nested_in((args, kwargs))]
    count = nested_in((args, kwargs))[0].count

    def one() -> Any:
        turn = iter(parts)
        given, named = tree_map(lambda leaf: next(next(turn)) if isinstance(leaf, Nested) else leaf, (args, kwargs))
        return func(*given, **named)

    return strided_of([one() for _ in range(count)])


def _in_place(func: Callable, args: tuple, kwargs: dict) -> Any:
    """A write of single elements. What the tape is to know of it is the new value."""
    x = args[0]
    if not isinstance(x, Nested):
        refuse(func.__name__, "a dense tensor is written to", (args, kwargs))
    if "dim" in _signature(func).parameters:
        refuse(func.__name__, "it writes along a dimension", (args, kwargs))
    check_may_write(x)
    if not (dispatch.state.grad_enabled and any(leaf.requires_grad for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))):
        if isinstance(x, StridedNestedTensor) and not x._parts.contiguous:
            for part in components(x):
                func(part, *args[1:], **kwargs)
            return x
        elementwise(func, args, kwargs)
        return x
    plain = OPERATORS.get(func._operator.name[:-1])     # type: ignore[attr-defined]
    if plain is None:
        refuse(func.__name__, "it writes what is no function of elements, where gradients flow", (args, kwargs))
    return overwritten(x, new_value(lambda values: general(plain, args, kwargs), x._dense, (), {}))


def overwritten(x: Any, found: Any) -> Any:
    """`x` with the elements and the history of `found`, which has the same rows."""
    with dispatch.grad_enabled(False):
        x._dense.copy_(found._dense)
    x._grad = found._grad
    return x


# -- along dimensions --------------------------------------------------------------------------------------------------------------
def _along(func: Callable, given: inspect.BoundArguments, dims: dict[str, Any]) -> Any:
    """An operator that counts dimensions."""
    name, tensors = func.__name__, nested_in(list(given.arguments.values()))
    x, reduces = tensors[0], "keepdim" in given.signature.parameters
    if isinstance(x, StridedNestedTensor):
        return _along_components(func, given, dims, x)
    shifted, hit = _of_a_component(func, x.ndim, dims)
    if reduces:
        return _reduced(func, given, x, sorted(hit))
    if -1 in hit:
        raise BATCH_ERRORS.get(func, RuntimeError)(f"{name}(): not supported for NestedTensor on dim=0 (given dimensions {dims} of "
                                                   f"{tuple(x.shape)})")
    if x._ragged_idx - 1 in hit and not isinstance(tensors[-1], StridedNestedTensor) and "view" not in func._operator.tags:     # type: ignore[attr-defined]
        return _row_by_row(func, given, x, shifted)
    return of_values(func, given, **shifted)


def _gives_many(func: Callable) -> bool:
    """Whether an operator splits a tensor into as many as it takes."""
    return "..." in str(_signature(func).return_annotation)


def _of_a_component(func: Callable, ndim: int, dims: dict[str, Any]) -> tuple[dict[str, Any], set[int]]:
    """Dimensions as they are counted of one component, by parameter: those from the last one on are the same; and all of them, from the
    first one on (-1: the batch)."""
    ndim += func in GROWING
    every = [d for ds in dims.values() for d in ((ds,) if isinstance(ds, int) else ds)]
    shifted = {key: _shifted(ds) if isinstance(ds, int) else tuple(map(_shifted, ds)) for key, ds in dims.items()}
    return shifted, {canonical(d, ndim) - 1 for d in every}


def _shifted(dim: int) -> int:
    return dim if dim < 0 else dim - 1


def _refuse_ragged(name: str, x: Any) -> NoReturn:
    raise RuntimeError(f"{name}(): not supported for NestedTensor on ragged dim {x._ragged_idx} (of {tuple(x.shape)})")


def _row_by_row(func: Callable, given: inspect.BoundArguments, x: NestedTensor, dims: dict[str, Any]) -> Any:
    """Along the ragged dimension, of one row after the other; each keeps its length."""
    at, name = x._ragged_idx - 1, func.__name__
    if len(nested_in(list(given.arguments.values()))) > 1 or _gives_many(func):
        _refuse_ragged(name, x)
    if x._ragged.lengths is not None:
        raise RuntimeError(f"{name}(): not supported where lengths is not None if reducing across the ragged dimension for NestedTensor; use "
                           "contiguous()")
    rows = [_called(func, _with(given, {id(x): part}), **dims) for part in components(x)]
    columns = list(zip(*rows)) if isinstance(rows[0], tuple) else [rows]
    if any(row.ndim <= at or row.shape[at] != count for column in columns for row, count in zip(column, x._ragged.rows[1])):
        _refuse_ragged(name, x)
    found = [jagged_of(column, x._ragged_idx, x._ragged) for column in columns]
    return _as_result(rows[0], found)


def _as_result(like: Any, found: list) -> Any:
    """Results in the tuple, named or not, that an operator gave; or the one that it did."""
    if not isinstance(like, tuple):
        return found[0]
    return type(like)(found) if type(like) is tuple or hasattr(like, "n_fields") else type(like)(*found)


def _with(given: inspect.BoundArguments, parts: dict[int, Tensor]) -> inspect.BoundArguments:
    """The arguments with other tensors in the places of nested ones."""
    changed = tree_map(lambda leaf: parts.get(id(leaf), leaf), dict(given.arguments))
    return inspect.BoundArguments(given.signature, changed)


def of_values(func: Callable, given: inspect.BoundArguments, **changed: Any) -> Any:
    """An operator of the values of jagged tensors. The dimension of the result that grows with their number is ragged; an operator of whose
    result none does refuses."""
    name, tensors = func.__name__, nested_in(list(given.arguments.values()))
    x, at = tensors[0], tensors[0]._ragged_idx - 1
    for other in tree_leaves(list(given.arguments.values())):
        if isinstance(other, NestedTensor):
            if other._ragged_idx != x._ragged_idx or other._ragged.rows[1] != x._ragged.rows[1]:
                raise RuntimeError(f"{name}(): the nested tensors have different rows, {tuple(x.shape)} and {tuple(other.shape)}")
        elif isinstance(other, Tensor) and other.ndim > 1:
            refuse(name, f"a dense tensor of shape {list(other.shape)} is beside it", list(given.arguments.values()))
    out = _called(func, _with(given, {id(t): values_of(t) for t in tensors}), **changed)
    probes = [_called(func, _with(given, {id(t): _sized(t._dense, at, n) for t in tensors}), **changed) for n in _ROWS]
    outs, *sizes = [result if isinstance(result, (tuple, list)) else (result,) for result in (out, *probes)]
    found = []
    for value, *known in zip(outs, *sizes, strict=True):
        places = [d for d in range(value.ndim) if value.ndim == known[0].ndim and tuple([k.shape[d] for k in known]) == _ROWS]
        if len(places) != 1:
            _refuse_ragged(name, x)
        found.append(assembled(value, (x._ragged, places[0] + 1)))
    return _as_result(out if isinstance(out, tuple) else tuple(out) if isinstance(out, list) else out, found)


def _sized(values: Tensor, at: int, count: int) -> Tensor:
    shape = tuple(values.shape)
    return fake((*shape[:at], count, *shape[at + 1:]), values.dtype, values.device)


# -- reductions --------------------------------------------------------------------------------------------------------------------
def _whole(func: Callable, given: inspect.BoundArguments) -> Any:
    """A reduction to one number, of all elements of all components."""
    tensors = nested_in(list(given.arguments.values()))
    if len(tensors) > 1:    # max(x, other)
        return elementwise(func, given.args, given.kwargs)
    x = tensors[0]
    flat = values_of(x) if _has_no_holes(x) else ops.cat([part.reshape(-1) for part in components(x)])
    return _called(func, _with(given, {id(x): flat}))


def _reduced(func: Callable, given: inspect.BoundArguments, x: NestedTensor, hit: list[int]) -> Any:
    """A reduction along dimensions of the values (-1: the batch)."""
    at, name, keeps = x._ragged_idx - 1, func.__name__, bool(given.arguments.get("keepdim"))
    ragged, batch = at in hit, -1 in hit
    if batch and not ragged:
        raise RuntimeError(f"{name}(): reducing along the batch dimension but not the ragged dimension is not supported for nested tensors")
    if ragged and x._ragged.lengths is not None:
        raise RuntimeError(f"{name}(): reducing across the ragged dimension is not supported for non-contiguous nested tensors with holes")
    rest = [d for d in hit if d >= 0]
    dim: Any = rest[0] if len(rest) == 1 and isinstance(given.arguments.get("dim"), int) else tuple(rest)
    if not ragged:
        return of_values(func, given, dim=dim)
    if batch:
        out = _called(func, _with(given, {id(x): values_of(x)}), dim=dim)
        return out.unsqueeze(0) if keeps else out
    if len(hit) > 1:
        raise RuntimeError(f"{name}(): reducing along a ragged and non-batch dimension is not supported for nested tensors")
    rows = [_of_row(func, given, x, part, dim) for part in components(x)]
    return _as_result(rows[0], [ops.stack(column) for column in (zip(*rows) if isinstance(rows[0], tuple) else [rows])])


def _of_row(func: Callable, given: inspect.BoundArguments, x: NestedTensor, row: Tensor, dim: Any) -> Any:
    """The reduction of one row; of one without elements, if it has none, that of one element which no other is beyond."""
    try:
        return _called(func, _with(given, {id(x): row}), dim=dim)
    except IndexError:
        at = x._ragged_idx - 1
        if row.shape[at]:
            raise
        limits = finfo(row.dtype) if row.dtype.is_floating_point else iinfo(row.dtype)
        one = row.new_full((*row.shape[:at], 1, *row.shape[at + 1:]), getattr(limits, OF_NONE.get(func, "min")))
        return _called(func, _with(given, {id(x): one}), dim=dim)


def _along_components(func: Callable, given: inspect.BoundArguments, dims: dict[str, Any], x: StridedNestedTensor) -> Any:
    """Of each component of strided nested tensors; a view of each is a view of all."""
    name = func.__name__
    shifted, hit = _of_a_component(func, x.ndim, dims)
    if -1 in hit:
        raise RuntimeError(f"{name}(): Nested tensor dimension 0 cannot be transposed, split, joined or computed along")
    tensors = nested_in(list(given.arguments.values()))
    rows = [_called(func, _with(given, {id(t): part for t, part in zip(tensors, parts)}), **shifted)
            for parts in zip(*map(components, tensors), strict=True)]
    columns = list(zip(*rows)) if isinstance(rows[0], (tuple, list)) else [rows]
    return _as_result(tuple(rows[0]) if isinstance(rows[0], list) else rows[0], [in_buffer(column, x) for column in columns])


def in_buffer(rows: Sequence[Tensor], x: StridedNestedTensor) -> StridedNestedTensor:
    """The nested tensor of these components: over the buffer of `x`, if they are views of its own."""
    start = x._dense.storage_offset()
    if all(row._storage is x._dense._storage for row in rows):
        parts = Parts([row.shape for row in rows], [row.stride() for row in rows], [row.storage_offset() - start for row in rows],
                      x._dense.numel())
        return assembled(values_of(x), (parts,))
    return strided_of(rows)


GROWING = (ops.unsqueeze, ops.stack)
"""Operators that count the dimensions of their result."""
OF_NONE = {ops.amin: "max", ops.min: "max"}
"""By operator: the limit of the dtype that stands for a row of no elements, where that is not the least number."""
BATCH_ERRORS = {ops.transpose: ValueError, ops.permute: ValueError}
"""By operator: what an attempt to move the batch raises, where that is not RuntimeError."""
