"""Neural-network operators: linear maps and embeddings here; activations, norms, losses, windows, ... in the files beside."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.cpu import blas
from ...core import dispatch
from ...core.dtypes import int64
from ...core.sparse import sparse_rows
from ...core.tensor import Tensor, is_example
from .. import prims
from ..batching import first_alone
from ..primitives import InAten
from ..promotion import cast
from ..registry import COMPOSITES, Linear, operator
from ..writing import with_out
from .activations import widened


# -- linear ------------------------------------------------------------------------------------------------
def _flat(x: Tensor) -> Tensor:
    """The leading dimensions as one."""
    return x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _conj(x: Tensor) -> Tensor:
    return x.conj() if x.dtype.is_complex else x


def _linear_in_aten(call: Callable, x: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
    rows = x if x.ndim == 2 else call("view" if x.is_contiguous() else "reshape", x, [-1, x.shape[-1]])
    out = call("mm", rows, call("t", weight)) if bias is None else call("addmm", bias, rows, call("t", weight))
    return out if x.ndim == 2 else call("view", out, [*x.shape[:-1], weight.shape[0]])


@operator(name="_linear", aten=InAten(lambda x, w, bias: "mm" if bias is None else "addmm", steps=_linear_in_aten,
          node=lambda x, weight, bias: ("mm" if bias is None else "addmm") if x.ndim == 2 else "_unsafe_view" if bias is None else "view"),
          batch=first_alone, vjp=Linear(
    input=lambda g, weight, input_shape: prims.mm(_flat(g), _conj(weight)).reshape(input_shape),
    weight=lambda g, input: prims.mm(prims.permute(_flat(g), (1, 0)), _conj(_flat(input))),
    bias=lambda g: prims.sum(_flat(g), (0,))), flops=lambda out, input, weight, bias: 2 * math.prod(input) * weight[0])
def _linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    out = prims.mm(_flat(input), prims.permute(weight, (1, 0)))
    if bias is not None:
        out = prims.add(out, prims.expand(bias, tuple(out.shape)))
    return out if input.ndim == 2 else out.reshape(*input.shape[:-1], weight.shape[0])


def _linear_kernel(x: np.ndarray, w: np.ndarray, b: np.ndarray | None) -> Any:
    if b is not None and b.ndim != 1:
        return NotImplemented
    return blas.linear(x, w, b)


COMPOSITES["_linear"].has_kernel("cpu", _linear_kernel, small="linear")


@operator(autocast="narrow")
@with_out
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input weight^T + bias: (..., in) with (out, in), or (in,), -> (..., out), or (...)."""
    if not isinstance(input, Tensor) or not isinstance(weight, Tensor):
        raise TypeError(f"linear(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    if input.dtype is not weight.dtype or (bias is not None and bias.dtype is not input.dtype):
        kinds = [t.dtype for t in (input, weight, bias) if t is not None]
        raise RuntimeError(f"mat1 and mat2 must have the same dtype, but got {' and '.join(map(str, dict.fromkeys(kinds)))} (linear)")
    if weight.ndim == 1:
        out = input.matmul(weight)
        return out if bias is None else out + bias
    n, k = input._layout.shape[-1] if input.ndim else 1, weight._layout.shape[1]
    if weight.ndim != 2 or not input.ndim or (n is not k and n != k):
        lead = math.prod(input.shape[:-1]) if input.ndim else 1
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({lead}x{n} and {k}x{weight.shape[0]}): linear() of input "
                           f"{list(input.shape)} with weight {list(weight.shape)}")
    if bias is not None and (bias.ndim != 1 or bias._layout.shape[0] not in (1, weight._layout.shape[0])):
        raise RuntimeError(f"linear(): a bias of shape {list(bias.shape)} does not broadcast to the {weight.shape[0]} outputs of a "
                           f"weight of shape {list(weight.shape)}")
    if input.ndim == 1:
        return prims.squeeze(_linear(prims.unsqueeze(input, 0), weight, bias), (0,))
    return _linear(input, weight, bias)


@operator(autocast={"cuda": "promote"})
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x1^T W_k x2 + bias for each output k: (..., n), (..., m), (out, n, m) -> (..., out)."""
    outs, n, m = weight.shape
    if input1.shape[-1] != n or input2.shape[-1] != m:
        raise RuntimeError(f"bilinear(): input sizes do not match weight {list(weight.shape)}: got input1 {list(input1.shape)} and "
                           f"input2 {list(input2.shape)}")
    if bias is not None and bias.shape[:1] != (outs,):
        raise RuntimeError(f"bilinear(): bias size does not match weight size: got bias {list(bias.shape)} and weight {list(weight.shape)}")
    given = {"input1": input1, "input2": input2, "weight": weight, **({} if bias is None else {"bias": bias})}
    if any(t.dtype is not weight.dtype for t in given.values()):
        raise RuntimeError("All tensors must have the same dtype, got " + ", ".join(f"{name}: {t.dtype}" for name, t in given.items()))
    lead = tuple(input1.shape[:-1])
    a, b = _flat(input1), _flat(input2)
    mixed = prims.mm(a, prims.permute(weight, (1, 0, 2)).reshape(n, outs * m)).reshape(a.shape[0], outs, m)
    out = cast((widened(mixed) * widened(b).unsqueeze(1)).sum(-1), mixed.dtype).reshape(*lead, outs)
    return out if bias is None else out + bias


# -- embedding -----------------------------------------------------------------------------------------------
def _counts(indices: Tensor, rows: Any, like: Tensor) -> Tensor:
    """How often each index occurs."""
    flat = indices.reshape(-1)
    return prims.index_add(like.new_zeros((rows,)), 0, flat, like.new_ones(tuple(flat.shape)))


@operator
def embedding_backward(g: Tensor, indices: Tensor, rows: Any, padding_idx: int | None, scale_grad_by_freq: bool) -> Tensor:
    """Gradient of the embedding table: rows of g added up by index; the padding row stays zero."""
    flat, rows_g = indices.reshape(-1), g.reshape(indices.shape.numel(), g.shape[-1])
    if padding_idx is not None:
        padded = prims.expand(prims.unsqueeze(prims.eq(flat, padding_idx), 1), tuple(rows_g.shape))
        rows_g = prims.where(padded, 0.0, rows_g)
    if scale_grad_by_freq:
        rows_g = rows_g / _counts(flat, rows, g).index_select(0, flat).unsqueeze(1)
    return prims.index_add(prims.full((rows, g.shape[-1]), 0, g.dtype, g.device), 0, flat, rows_g)


def _embedding_vjp(g: Tensor, weight_shape: tuple, indices: Tensor, padding_idx: int | None, scale_grad_by_freq: bool) -> tuple:
    return (embedding_backward(g, indices, weight_shape[0], padding_idx, scale_grad_by_freq),)


def _embedding_in_aten(call: Callable, weight: Tensor, indices: Tensor, padding_idx: int | None, scale_grad_by_freq: bool) -> Any:
    return call("embedding", weight, indices, -1 if padding_idx is None else padding_idx, scale_grad_by_freq)


@operator(name="_embedding", aten=InAten("embedding", steps=_embedding_in_aten), vjp=_embedding_vjp)
def _embedding(weight: Tensor, indices: Tensor, padding_idx: int | None, scale_grad_by_freq: bool) -> Tensor:
    return prims.index_select(weight, 0, indices)


def _sparse_embedding_vjp(g: Tensor, weight_shape: tuple, indices: Tensor, padding_idx: int | None) -> tuple:
    flat, rows = indices.reshape(-1), g.reshape(indices.shape.numel(), g.shape[-1])
    if padding_idx is not None:
        kept = prims.ne(flat, padding_idx).nonzero().reshape(-1)
        flat, rows = flat.index_select(0, kept), rows.index_select(0, kept)
    return (sparse_rows(cast(flat, int64), rows, weight_shape),)


@operator(name="_sparse_embedding", vjp=_sparse_embedding_vjp)
def _sparse_embedding(weight: Tensor, indices: Tensor, padding_idx: int | None) -> Tensor:
    return prims.index_select(weight, 0, indices)


def padding_row(padding_idx: int | None, rows: int) -> int | None:
    """The row that `padding_idx` names, counted from the start."""
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise AssertionError(f"Padding_idx must be within num_embeddings, got {padding_idx} for {rows} rows")
    return padding_idx % rows


@operator(name="functional_embedding")
def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
              norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    """Rows of `weight` at the indices `input`. The row `padding_idx` gets no gradient; rows looked up are first shortened
    in place to `max_norm`; `scale_grad_by_freq` divides gradients by how often an index occurs. With `sparse` the gradient of `weight` is a
    COO tensor that holds these rows."""
    if input.dtype.category != 1:
        raise RuntimeError("Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, "
                           f"Int; but got {input.dtype} instead (while checking arguments for embedding)")
    if weight.ndim != 2:
        raise RuntimeError(f"'weight' must be 2-D, got size {list(weight.shape)}")
    row = padding_row(padding_idx, weight.shape[0])
    if max_norm is not None:
        _shorten_rows(weight, input, max_norm, norm_type)
    if sparse and dispatch.state.grad_enabled and weight.requires_grad:
        if scale_grad_by_freq:
            raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients; use sparse=False")
        if weight.is_fake:
            raise NotImplementedError("embedding(sparse=True) is not captured in graphs; it runs between them, or use sparse=False")
        return _sparse_embedding(weight, input, row)
    return _embedding(weight, input, row, scale_grad_by_freq)


def _shorten_rows(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> None:
    with dispatch.grad_enabled(False):
        used = _counts(cast(indices, int64), weight.shape[0], weight) > 0
        norms = weight.norm(norm_type, 1)
        scale = (max_norm / (norms + 1e-7)).masked_fill(~(used & (norms > max_norm)), 1)
        weight.mul_(scale.unsqueeze(1))


def _bags(input: Tensor, offsets: Tensor, include_last_offset: bool) -> tuple[Tensor, int]:
    """For each index, the bag that it lies in; and the number of bags."""
    bags = offsets.shape[0] - (1 if include_last_offset else 0)
    marks = input.new_zeros((input.shape[0] + 1,)).index_add(0, offsets[:bags], offsets.new_ones((bags,)).to(input.dtype))
    return marks[:-1].cumsum(0) - 1, bags


def _check_offsets(offsets: Tensor, length: int) -> None:
    """The first bag begins where the indices do, the last one not behind them; not looked at where that would wait for a device."""
    if offsets.device.type != "cpu" or offsets.is_fake or is_example(offsets) or not offsets.shape[0]:
        return
    first, last = int(offsets[0]), int(offsets[-1])
    if first != 0:
        raise RuntimeError("offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, got "
                           f"{first}")
    if last > length:
        raise RuntimeError(f"offsets[-1] can not be greater than input's length {length} but got offsets[-1] of {last}")


@operator(name="functional_embedding_bag", node="embedding_bag")
def embedding_bag(input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None,
                  norm_type: float = 2, scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
                  per_sample_weights: Tensor | None = None, include_last_offset: bool = False, padding_idx: int | None = None) -> Tensor:
    """Sum, mean or max of the embeddings of each bag: the rows of a 2-D `input`, or the runs that `offsets` begin in a 1-D one."""
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if input.ndim == 2:
        if offsets is not None:
            raise ValueError("if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length sequences.")
        flat = cast(input, int64)
    elif input.ndim == 1:
        if offsets is None:
            raise ValueError("offsets has to be a 1D Tensor but got None")
        if not isinstance(offsets, Tensor):
            raise TypeError(f"embedding_bag(): argument 'offsets' must be a Tensor, not {type(offsets).__name__}")
        if offsets.ndim != 1:
            raise ValueError(f"offsets has to be a 1D Tensor, but got shape {list(offsets.shape)}")
        _check_offsets(offsets, input.shape[0])
        flat = cast(input, int64)
        bag, bags = _bags(flat, cast(offsets, int64), include_last_offset)
    else:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError("embedding_bag: per_sample_weights was not None. per_sample_weights is only "
                                  f"supported for mode='sum' (got mode='{mode}').")
    rows = embedding(flat, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
    row = padding_row(padding_idx, weight.shape[0])
    kept = None if row is None else (flat != row)
    if input.ndim == 2:
        return _reduce_even_bags(rows, mode, kept, per_sample_weights)
    weights = None if per_sample_weights is None else widened(per_sample_weights)
    return cast(_reduce_bags(widened(rows), bag, bags, mode, kept, weights), rows.dtype)    # a sum of halves stops growing early


def _reduce_even_bags(rows: Tensor, mode: str, kept: Tensor | None, weights: Tensor | None) -> Tensor:
    """(bags, rows of each, features) over the rows."""
    if weights is not None:
        rows = rows * weights.unsqueeze(2)
    if kept is not None:
        rows = rows.masked_fill(~kept.unsqueeze(2), -math.inf if mode == "max" else 0)
    if mode == "max":
        best = rows.max(1)[0] if rows.shape[1] else rows.sum(1)
        return best if kept is None else best.masked_fill(~kept.any(1, True), 0)
    if mode == "sum":
        return rows.sum(1)
    return rows.sum(1) / (max(rows.shape[1], 1) if kept is None else kept.sum(1, True).clamp_min(1))


def _reduce_bags(rows: Tensor, bag: Tensor, bags: int, mode: str, kept: Tensor | None, weights: Tensor | None) -> Tensor:
    if weights is not None:
        rows = rows * weights.unsqueeze(1)
    if mode == "max":
        return _max_of_bags(rows, bag, bags, kept)
    if kept is not None:
        rows = rows.masked_fill(~kept.unsqueeze(1), 0)
    total = _sum_of_bags(rows, bag, bags)
    if mode == "sum":
        return total
    ones = bag.new_ones((bag.shape[0],)) if kept is None else kept.to(bag.dtype)    # a float stops counting at 2**24
    count = prims.index_add(bag.new_zeros((bags,)), 0, bag, ones)
    return total / count.clamp_min(1).unsqueeze(1)


_MANY, _RUN = 1 << 20, 1 << 10      # rows of which a float32 loses digits, a hundredth of it here; rows that are added up one by one


def _sum_of_bags(rows: Tensor, bag: Tensor, bags: int) -> Tensor:
    """The sum per bag. Where a bag may hold many rows, first those of each run of rows: bag and run never become
    less from row to row, so that their sum tells all pairs of them apart."""
    count, width = tuple(rows.shape)
    if type(count) is not int or count < _MANY:
        return prims.index_add(rows.new_zeros((bags, width)), 0, bag, rows)
    part, parts = bag + prims.iota(count, 0, 1, int64, rows.device) // _RUN, bags + -(-count // _RUN)
    sums = prims.index_add(rows.new_zeros((parts, width)), 0, part, rows)
    return prims.index_add(rows.new_zeros((bags, width)), 0, bag.new_zeros((parts,)).index_copy(0, part, bag), sums)


def _max_of_bags(rows: Tensor, bag: Tensor, bags: int, kept: Tensor | None) -> Tensor:
    """The maximum per bag; the first row that attains it takes the gradient."""
    count, width = tuple(rows.shape)
    if type(count) is int and not count:
        return _sum_of_bags(rows, bag, bags)
    values = rows.detach() if kept is None else rows.detach().masked_fill(~kept.unsqueeze(1), -math.inf)
    index = bag.unsqueeze(1).expand(count, width)
    best = prims.scatter_reduce(rows.new_full((bags, width), -math.inf).detach(), 0, index, values, "amax")
    hit = values == best.gather(0, index)
    if kept is not None:
        hit = hit & kept.unsqueeze(1)    # a bag of padding alone is empty
    order = prims.iota(count, 0, 1, int64, rows.device).unsqueeze(1).expand(count, width)
    first = prims.scatter_reduce(order.new_full((bags, width), count), 0, index, order.masked_fill(~hit, count), "amin")
    chosen = rows.gather(0, first.clamp(max=max(count - 1, 0)))
    return chosen.masked_fill(first == count, 0)
