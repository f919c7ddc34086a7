"""Elementwise operators of sparse tensors: functions that keep zero, sums, products and quotients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import ops
from ..core.memory_format import sparse_coo
from ..core.size import broadcast_shapes
from ..core.sparse import FORMS, Pattern, SparseTensor, become, refuse
from ..core.tensor import Tensor
from ..ops.promotion import result_type
from ..ops.registry import OPERATORS
from .bridge import assembled, coalesced, coordinates, entries, form, picked, places
from .convert import compressed, to_dense, with_entries

KEEPS_ZERO = tuple(dict.fromkeys(op for op in OPERATORS.values() if "keeps_zero" in op._operator.tags))    # type: ignore[attr-defined]
"""Functions of one element that give 0 for 0, and are not linear: entries of one place are added up first."""

IN_PLACE = {OPERATORS[f"{op.__name__}_"]: op for op in (*KEEPS_ZERO, ops.neg, ops.add, ops.sub, ops.mul, ops.div, ops.floor_divide, ops.pow)
            if f"{op.__name__}_" in OPERATORS}
"""Operators that write to their first argument, by what they write there."""


def _keeping_zero(operator: Callable) -> None:
    @form(operator)
    def of_entries(input: SparseTensor, *args: Any, **kwargs: Any) -> SparseTensor:
        return with_entries(_summed(input), lambda values: operator(values, *args, **kwargs))


def _in_place(operator: Callable, plain: Callable) -> None:
    @form(operator)
    def write(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if plain in KEEPS_ZERO and plain is not ops.neg and not self._pattern.coalesced:  # type: ignore[attr-defined]
            raise RuntimeError(f"{operator.__name__} requires coalesced input: coalesce() it first")
        found = plain(self, *args, **kwargs)
        if not isinstance(self, SparseTensor):
            return ops.copy_(self, to_dense(found))
        if not isinstance(found, SparseTensor):
            raise RuntimeError(f"{operator.__name__}: a dense result of shape {list(found.shape)} cannot be written to a {self.layout} tensor")
        return become(self, found)


def _summed(x: SparseTensor) -> SparseTensor:
    return coalesced(x) if x.layout is sparse_coo else x


for _operator in KEEPS_ZERO:
    _keeping_zero(_operator)
for _operator, _plain in IN_PLACE.items():
    _in_place(_operator, _plain)
_become_sum = FORMS[ops.add_]


@form(ops.add_)
def _add_in_place(input: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """Of a dense tensor only the rows that have entries are written."""
    one_dim = isinstance(other, SparseTensor) and other._pattern.sparse_dims == 1 and other.shape == input.shape
    if isinstance(input, SparseTensor) or not one_dim or other.dtype is not input.dtype:
        return _become_sum(input, other, alpha=alpha)
    return ops.index_add_(input, 0, coordinates(other._pattern)[0], entries(other), alpha=alpha)


@form(ops.neg)
def _neg(input: SparseTensor) -> SparseTensor:
    return with_entries(input, ops.neg)


@form(ops.angle)
def _angle(input: SparseTensor) -> SparseTensor:
    return with_entries(_summed(input), ops.angle)


@form(ops.conj, ops.conj_physical)
def _conj(input: SparseTensor) -> SparseTensor:
    return with_entries(input, ops.conj_physical) if input.dtype.is_complex else input


@form(ops.resolve_conj, ops.resolve_neg)
def _resolved(input: SparseTensor) -> SparseTensor:
    return input


@form(ops.real)
def _real(input: SparseTensor) -> SparseTensor:
    return with_entries(input, ops.real) if input.dtype.is_complex else input


@form(ops.imag)
def _imag(input: SparseTensor) -> SparseTensor:
    return with_entries(input, ops.imag)


SparseTensor.real, SparseTensor.imag = property(_real), property(_imag)  # type: ignore[assignment, method-assign]


@form(ops.pow)
def _pow(input: Any, exponent: Any) -> SparseTensor:
    if isinstance(exponent, Tensor) or not isinstance(input, SparseTensor):
        refuse("pow", (input, exponent), {})
    if exponent == 0:
        raise RuntimeError("pow: cannot raise to zeroth power on sparse tensor; it would make the result tensor dense")
    return with_entries(_summed(input), lambda values: values ** exponent)


@form(ops.any)
def _any(input: SparseTensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    if dim is not None or keepdim:
        refuse("any", (input,), {})
    return _summed(input)._entries.any()


# -- sums ---------------------------------------------------------------------------------------------------------------------
@form(ops.add)
def _add(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        raise RuntimeError("add: a number added to a sparse tensor would make it dense; use to_dense() + number, or add to its values()")
    if not isinstance(other, SparseTensor):
        if input.layout is sparse_coo:
            raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
        return ops.add(to_dense(input), other, alpha=alpha)
    if input.shape != other.shape and (isinstance(input, SparseTensor) or broadcast_shapes(input.shape, other.shape) != input.shape):
        raise RuntimeError(f"add: expected sizes of 'self' and 'other' to match, but {list(input.shape)} != {list(other.shape)}")
    if not isinstance(input, SparseTensor):
        return _added_to_dense(input, other, alpha)
    kind = result_type(input._entries, other._entries)
    first, second = entries(input).to(kind), entries(other).to(kind)
    if alpha != 1:
        second = second * alpha
    if input._pattern is other._pattern:
        return assembled(first + second, input._pattern)
    if input._pattern.sparse_dims != other._pattern.sparse_dims:
        raise RuntimeError(f"add: expected 'self' and 'other' to have the same sparse dimensions, got {input._pattern.sparse_dims} and "
                           f"{other._pattern.sparse_dims}")
    both = Pattern(sparse_coo, (ops.cat((coordinates(input._pattern), coordinates(other._pattern)), 1),), input._pattern.shape)
    found = assembled(ops.cat((first, second)), both)
    if input.layout is not sparse_coo:
        return compressed(found, input.layout, input._pattern.blocks)
    return coalesced(found) if input._pattern.coalesced and other._pattern.coalesced else found


def _added_to_dense(dense: Tensor, x: SparseTensor, alpha: Any) -> Tensor:
    pattern = x._pattern
    kind = result_type(dense, x._entries)
    rows = entries(x).to(kind)
    flat = dense.to(kind).reshape(-1, *pattern.dense_shape)
    if dense.shape != x.shape:
        return ops.add(dense, to_dense(x), alpha=alpha)
    return flat.index_add(0, places(pattern), rows, alpha=alpha).reshape(pattern.shape)


@form(ops.sub, ops.subtract)
def _sub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    return _add(input, other, alpha=-alpha)


@form(ops.rsub)
def _rsub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    return _add(other, input, alpha=-alpha)


# -- products and quotients --------------------------------------------------------------------------------------------------
@form(ops.mul, ops.multiply)
def _mul(input: Any, other: Any) -> SparseTensor:
    if not isinstance(input, SparseTensor):
        input, other = other, input
    if not isinstance(other, Tensor) or (not other.ndim and not isinstance(other, SparseTensor)):
        return with_entries(input, lambda values: values * other)
    if isinstance(other, SparseTensor):
        return _overlap(input, other)
    if broadcast_shapes(input.shape, other.shape) != input.shape:
        raise RuntimeError(f"mul(sparse, dense): the dense tensor must broadcast to the sparse one's shape, got {list(input.shape)} and "
                           f"{list(other.shape)}")
    x = input
    return with_entries(x, lambda values: values * picked(other, x._pattern))


def _overlap(x: SparseTensor, y: SparseTensor) -> SparseTensor:
    """The product: it has entries where both have."""
    if x.shape != y.shape or x._pattern.sparse_dims != y._pattern.sparse_dims:
        raise RuntimeError(f"mul operands have incompatible sizes: {list(x.shape)} and {list(y.shape)}, with {x._pattern.sparse_dims} and "
                           f"{y._pattern.sparse_dims} sparse dimensions")
    if x._pattern is y._pattern and x._pattern.coalesced:
        return assembled(entries(x) * entries(y), x._pattern)
    first, second = coalesced(x), coalesced(y)
    known, wanted = places(second._pattern), places(first._pattern)
    if not known.shape[0] or not wanted.shape[0]:
        kept = wanted.new_zeros((0,))
        at = kept
    else:
        at = ops.searchsorted(known, wanted).clamp(max=known.shape[0] - 1)
        kept = ops.nonzero(known.index_select(0, at) == wanted).reshape(-1)
        at = at.index_select(0, kept)
    values = entries(first).index_select(0, kept) * entries(second).index_select(0, at)
    indices = coordinates(first._pattern).index_select(1, kept)
    found = assembled(values, Pattern(sparse_coo, (indices,), x._pattern.shape, x._pattern.coalesced and y._pattern.coalesced))
    return found if x.layout is sparse_coo else compressed(found, x.layout, x._pattern.blocks)


@form(ops.div, ops.divide, ops.true_divide)
def _div(input: Any, other: Any, *, rounding_mode: str | None = None) -> SparseTensor:
    if not isinstance(input, SparseTensor):
        refuse("div", (input, other), {})
    if isinstance(other, Tensor) and (other.ndim or isinstance(other, SparseTensor)):
        raise RuntimeError("Sparse division requires a scalar or zero-dim dense tensor divisor (got a tensor of shape "
                           f"{list(getattr(other, 'shape', ()))}, layout {getattr(other, 'layout', None)}); divide the values(), or "
                           "multiply by its reciprocal")
    x = input if rounding_mode is None else _summed(input)
    return with_entries(x, lambda values: ops.div(values, other, rounding_mode=rounding_mode))


@form(ops.floor_divide)
def _floor_divide(input: Any, other: Any) -> SparseTensor:
    return _div(input, other, rounding_mode="floor")


@form(ops.norm)
def _norm(input: SparseTensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    if dim is not None or keepdim:
        raise NotImplementedError("norm of a sparse tensor along dimensions is not implemented; leave out dim and keepdim, or use "
                                  "to_dense()")
    if dtype is not None and p == "fro":
        raise ValueError(f"norm: the frobenius norm of a sparse tensor takes no dtype, got {dtype}; convert the tensor")
    return entries(_summed(input)).norm(p, dtype=dtype)
