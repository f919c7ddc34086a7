"""Reductions over given dimensions (without keepdim), scans, and sorting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backends.cpu import native
from ...core import dispatch
from ...core.dtypes import FLOAT, bool_, int64
from ...core.scalar import compute_dtype
from ...core.tensor import Tensor
from ..primitives import InAten, compiled, lies_like, told_by_dimensions
from ..registry import General, Linear, Spec, primitive


def _reduced(x: Tensor, dims: Sequence[int]) -> tuple:
    return tuple([size for d, size in enumerate(x._layout.shape) if d not in dims])


def _restore(g: Tensor, dims: Sequence[int], shape: Sequence) -> Tensor:
    """`g` with the reduced dimensions back, repeated."""
    for d in sorted(dims):
        g = g.unsqueeze(d)
    return g.expand(tuple(shape))


def _kept(x: Tensor) -> dict[str, Any]:
    """The dtype of a fold of integers, which ATen's folds widen."""
    return {} if x.dtype.category >= FLOAT else {"dtype": x.dtype}


def _accumulating(x: np.ndarray) -> Any:
    """Floats add up in float64, complex numbers likewise."""
    return np.complex128 if x.dtype.kind == "c" else np.float64 if x.dtype.kind in "fV" else x.dtype


def _sum_kernel(x: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    with np.errstate(all="ignore"):
        if (out := native.large_sum(x, dims)) is not None:
            return out
        return np.asarray(np.add.reduce(x, axis=dims, dtype=_accumulating(x)), x.dtype)


@primitive("sum", kernel=_sum_kernel, loop="sum", tags=("reduction", "linear"),
           aten=told_by_dimensions("sum")._replace(
               call=lambda x, dims: ("sum", (x,) if len(dims) == x.ndim else (x, list(dims)), _kept(x))),
           derivative=Linear(x=lambda g, x_shape, dims: _restore(g, dims, x_shape)),
           samples=lambda r: [(r.standard_normal((2, 3, 4)), (0, 2)), (r.standard_normal((2, 3)), (0, 1))])
def sum(x: Tensor, dims: tuple[int, ...]) -> Spec:
    """Sum over `dims`, in x's dtype; totals of floats are kept in f64."""
    return Spec(_reduced(x, dims), x.dtype)


def _quiet(fn: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        with np.errstate(all="ignore"):
            return fn(*args, **kwargs)
    return call


def _prod_vjp(g: Tensor, x: Tensor, dims: Sequence[int]) -> tuple:
    """d prod / d x_i = product of the others, those before and those after it: a division would stumble over zeros and infinities."""
    if not dims:
        return (g,)
    rest = [d for d in range(x.ndim) if d not in dims]
    order = (*rest, *dims)
    rows = x.permute(order).flatten(len(rest)).to(compute_dtype(x.dtype))
    others = _products_before(rows) * _products_before(rows.flip(-1)).flip(-1)
    back = [order.index(d) for d in range(x.ndim)]
    others = others.unflatten(-1, [x.shape[d] for d in dims]).permute(back)
    return ((_restore(g, dims, x.shape) * others.conj()).to(x.dtype),)


def _products_before(rows: Tensor) -> Tensor:
    """At each element of a row the product of those before it: 1 at the first."""
    size = rows.shape[-1]
    ones = rows.new_ones((*rows.shape[:-1], 1 if size else 0))
    return ones.new_cat([ones, rows.narrow(-1, 0, size - 1 if size else 0)], rows.ndim - 1).cumprod(-1)


def _prod_kernel(x: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    if (out := compiled(prod, x, dims)) is not NotImplemented:
        return out
    return np.asarray(np.multiply.reduce(x, axis=dims, dtype=x.dtype))


@primitive("prod", kernel=_quiet(_prod_kernel), loop="prod",
           aten=told_by_dimensions("prod")._replace(call=lambda x, dims: ("prod", (x, *dims), _kept(x)) if len(dims) == 1 else None),
           tags=("reduction",), derivative=General(_prod_vjp), samples=lambda r: [(r.standard_normal((2, 3, 4)), (1,))])
def prod(x: Tensor, dims: tuple[int, ...]) -> Spec:
    """Product over `dims`."""
    return Spec(_reduced(x, dims), x.dtype)


def _check_not_empty(x: Tensor, dims: Sequence[int], name: str) -> None:
    shape = x._layout.shape
    for d in dims:
        if d < len(shape) and shape[d] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size. (input shape {list(shape)})")


def _extremum_vjp(g: Tensor, x: Tensor, out: Tensor, dims: Sequence[int]) -> tuple:
    """Ties share the gradient evenly."""
    hit = x == _restore(out, dims, x.shape)
    hit = hit | (x.isnan() & _restore(out.isnan(), dims, x.shape)) if x.dtype.is_floating_point else hit
    count = hit.sum(tuple(dims), keepdim=True)
    return (_restore(g, dims, x.shape).masked_fill(~hit, 0) / count.to(g.dtype),)


def _extremum(name: str, ufunc: Any, loop: str, doc: str) -> Any:
    def shape(x: Tensor, dims: tuple[int, ...]) -> Spec:
        _check_not_empty(x, dims, name)
        return Spec(_reduced(x, dims), x.dtype)
    return primitive(name, kernel=_quiet(lambda x, dims: np.asarray(ufunc.reduce(x, axis=dims))), loop=loop, doc=doc,
                     aten=InAten(node=lambda x, dims: f"{loop}.1" if len(dims) == x.ndim else name),
                     tags=("reduction", "ordered"), derivative=General(_extremum_vjp),
                     samples=lambda r: [(r.standard_normal((2, 3, 4)), (0, 2))])(shape)


amax = _extremum("amax", np.maximum, "max", "Maximum over `dims`; NaN wins.")
amin = _extremum("amin", np.minimum, "min", "Minimum over `dims`; NaN wins.")


def _place_of(name: str, fn: Any, doc: str) -> Any:
    def kernel(x: np.ndarray, dim: int) -> np.ndarray:
        if x.ndim and x.strides[dim] != x.itemsize and (out := compiled(record, x, dim)) is not NotImplemented:
            return out  # NumPy is quick along the innermost dimension alone
        return np.asarray(fn(x.astype(np.float32) if x.dtype.kind == "V" else x, axis=dim), np.int64)

    def shape(x: Tensor, dim: int) -> Spec:
        _check_not_empty(x, (dim,), name)
        return Spec(_reduced(x, (dim,)), int64)
    record = primitive(name, kernel=kernel, loop=name, tags=("reduction", "ordered"), doc=doc,
                       samples=lambda r: [(r.standard_normal((2, 3)), 1)],
                       why_absent={"derivative": "an index is not differentiable"})(shape)
    return record


argmax = _place_of("argmax", np.argmax, "Index of the first maximum along `dim` (i64); NaN wins.")
argmin = _place_of("argmin", np.argmin, "Index of the first minimum along `dim` (i64); NaN wins.")


def _truth(name: str, ufunc: Any, doc: str) -> Any:
    def shape(x: Tensor, dims: tuple[int, ...]) -> Spec:
        return Spec(_reduced(x, dims), bool_)
    return primitive(name, kernel=lambda x, dims: np.asarray(ufunc.reduce(x, axis=dims), np.bool_), loop=name, tags=("reduction",),
                     doc=doc, samples=lambda r: [(r.standard_normal((2, 3)) > 0, (1,))],
                     why_absent={"derivative": "a truth value is not differentiable"})(shape)


any = _truth("any", np.logical_or, "Whether some element over `dims` is true (bool input).")
all = _truth("all", np.logical_and, "Whether every element over `dims` is true (bool input).")


def _scan_kernel(ufunc: np.ufunc) -> Any:
    def kernel(x: np.ndarray, dim: int, reverse: bool = False) -> np.ndarray:
        if not x.ndim:
            return x.copy()
        out = native.scan(x, dim, ufunc is np.multiply, reverse)
        if out is not None:
            return out
        out = ufunc.accumulate(np.flip(x, dim) if reverse else x, axis=dim, dtype=_accumulating(x))
        return np.ascontiguousarray(np.flip(out, dim) if reverse else out, x.dtype)
    return _quiet(kernel)


@primitive("cumsum", library="running", kernel=_scan_kernel(np.add), tags=("linear",),
           aten=InAten(call=lambda x, dim, reverse: None if reverse else ("cumsum", (x, dim), _kept(x))),
           derivative=Linear(x=lambda g, dim, reverse: cumsum(g, dim, not reverse)),
           samples=lambda r: [(r.standard_normal((2, 3)), 1, False), (r.standard_normal((2, 3)), 0, True)])
def cumsum(x: Tensor, dim: int, reverse: bool) -> Spec:
    """Running sum along `dim`; with `reverse` from the end, of each element and those after it."""
    return Spec(x._layout.shape, x.dtype)


def _cumprod_vjp(g: Tensor, x: Tensor, out: Tensor, dim: int) -> tuple:
    """d L / d x_k = sum over i >= k of g_i out_i / x_k up to the first zero, whose own gradient has the products without it;
    what comes after has none, nor is a single element divided by itself."""
    if not x.ndim or (type(x.shape[dim]) is int and x.shape[dim] == 1):
        return (g,)
    zeros = x == 0
    seen = not x.is_fake and bool(zeros.any())
    if seen and dispatch.state.grad_enabled:     # second derivatives look past the first zero
        return (_cumprod_grad_with_zeros(g, x, dim),)
    if not x.is_fake and not seen:
        return (cumsum(g * out.conj(), dim, True) / x.conj(),)
    passed = cumsum(zeros.to(int64), dim, False)
    weighted = cumsum((g * out.conj()).masked_fill(passed > 0, 0), dim, True)
    first = zeros & (passed == 1)
    without = cumsum(g * cumprod(x.masked_fill(first, 1), dim).conj(), dim, True)
    return (without.where(first, (weighted / x.masked_fill(zeros, 1).conj()).masked_fill(passed > 0, 0)),)


def _cumprod_grad_with_zeros(g: Tensor, x: Tensor, dim: int) -> Tensor:
    """Position by position: the product of all others up to i, by omitting x_k."""
    size = x.shape[dim]
    pieces = []
    for k in range(size):
        ones = x.narrow(dim, k, 1) * 0 + 1
        parts = [x.narrow(dim, 0, k), ones, x.narrow(dim, k + 1, size - k - 1)]
        omitted = parts[1].new_cat(parts, dim).cumprod(dim)
        tail = (g * omitted.conj()).narrow(dim, k, size - k)
        pieces.append(tail.sum(dim, keepdim=True))
    return pieces[0].new_cat(pieces, dim)


@primitive("cumprod", library="running", kernel=_scan_kernel(np.multiply), aten=InAten(call=lambda x, dim: ("cumprod", (x, dim), _kept(x))),
           derivative=General(_cumprod_vjp), samples=lambda r: [(r.standard_normal((2, 3)), 1), (np.array([2.0, 0.0, 3.0]), 0)])
def cumprod(x: Tensor, dim: int) -> Spec:
    """Running product along `dim`."""
    return Spec(x._layout.shape, x.dtype)


def _added_exponentials(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """log(e^x + e^y) of complex numbers."""
    larger = x.real >= y.real
    top, low = np.where(larger, x, y), np.where(larger, y, x)
    return np.where(np.isneginf(low.real), top, top + np.log1p(np.exp(low - top)))


def _running_exponentials(x: np.ndarray, dim: int, reverse: bool) -> np.ndarray:
    """In double precision; complex numbers by sums over 1, 2, 4, ... neighbours."""
    if not x.ndim:
        return x.copy()
    rows = np.flip(x, dim) if reverse else x
    if x.dtype.kind != "c":
        out = np.logaddexp.accumulate(rows.astype(np.float64), axis=dim)
    else:
        out = rows.astype(np.complex128)
        along, step = np.moveaxis(out, dim, 0), 1
        while step < len(along):
            along[step:] = _added_exponentials(along[:-step], along[step:])
            step *= 2
    return np.ascontiguousarray(np.flip(out, dim) if reverse else out, x.dtype)


def _logcumsumexp_vjp(g: Tensor, x: Tensor, out: Tensor, dim: int, reverse: bool) -> tuple:
    """d L / d x_k = sum over i >= k of g_i exp(x_k - out_i), in logarithms so that nothing overflows, narrow floats in float32."""
    kind = x.dtype
    if compute_dtype(kind) is not kind:
        x, g = x.to(compute_dtype(kind)), g.to(compute_dtype(kind))
        out = logcumsumexp(x, dim, reverse)
    far = out.masked_fill(out == -np.inf, 0)     # where nothing was added up yet

    def shares(weight: Tensor, some: Tensor) -> Tensor:
        logs = weight.masked_fill(~some, 1).log().masked_fill(~some, -np.inf)
        return (logcumsumexp(logs - far, dim, not reverse) + x).exp()
    if kind.is_complex:
        return (shares(g.conj(), g != 0).conj(),)
    return ((shares(g, g > 0) - shares(-g, g < 0)).to(kind),)


@primitive("logcumsumexp", kernel=_quiet(_running_exponentials), derivative=General(_logcumsumexp_vjp),
           aten=InAten(call=lambda x, dim, reverse: None if reverse else ("logcumsumexp", (x, dim), {})),
           samples=lambda r: [(r.standard_normal((2, 5)), 1, False), (r.standard_normal((4, 2)), 0, True)],
           why_absent={"loop": "a scan; inductor calls the kernel"})
def logcumsumexp(x: Tensor, dim: int, reverse: bool) -> Spec:
    """Running log(sum(e^x)) along `dim`; with `reverse` from the end."""
    return Spec(x._layout.shape, x.dtype)


def _running_extremum(better: Any) -> Any:
    def kernel(x: np.ndarray, dim: int) -> tuple:
        if not x.ndim:
            return x.copy(), np.zeros((), np.int64)
        if (found := native.scan_best(x, dim, better is np.maximum)) is not None:
            return found
        values = better.accumulate(x, axis=dim)
        index = np.arange(x.shape[dim]).reshape([-1 if d == dim else 1 for d in range(x.ndim)])
        return values, np.maximum.accumulate(np.where((x == values) | np.isnan(x), index, 0), axis=dim)
    return kernel


def _by_index_vjp(gs: tuple, x_shape: Sequence, out1: Tensor, dim: int) -> tuple:
    if gs[0] is None:
        return (None,)
    return (gs[0].new_zeros(tuple(x_shape)).scatter_add(dim, out1, gs[0]),)


def _running(name: str, ufunc: Any) -> Any:
    def shape(x: Tensor, dim: int) -> tuple[Spec, Spec]:
        """Running extremum along `dim` and the index (last of equals) where it stands."""
        return Spec(x._layout.shape, x.dtype), Spec(x._layout.shape, int64)
    return primitive(name, kernel=_quiet(_running_extremum(ufunc)), tags=("ordered",), derivative=General(_by_index_vjp),
                     samples=lambda r: [(r.standard_normal((2, 4)), 1)],
                     why_absent={"loop": "a scan; inductor calls the kernel"})(shape)


cummax, cummin = _running("cummax", np.maximum), _running("cummin", np.minimum)


def _picked(x: np.ndarray, index: np.ndarray, dim: int) -> np.ndarray:
    """np.take_along_axis, whose own work is more than that of few elements."""
    if dim != x.ndim - 1 or not x.flags.c_contiguous:
        return np.take_along_axis(x, index, dim)
    rows: Any = np.arange(0, x.size, x.shape[-1] or 1).reshape((*x.shape[:-1], 1)) if x.ndim > 1 and x.size else 0
    return x.reshape(-1).take(index + rows)


def _sort_kernel(x: np.ndarray, dim: int, descending: bool, stable: bool) -> tuple:
    if not x.ndim:
        return x.copy(), np.zeros((), np.int64)
    keys = x.astype(np.float32) if x.dtype.kind == "V" else x
    if descending:  # stable descending order: sort the reversed array ascending and reverse the answer
        backwards = (slice(None),) * dim + (slice(None, None, -1),)
        order = keys.shape[dim] - 1 - keys[backwards].argsort(dim, "stable")[backwards]
    else:
        order = keys.argsort(dim, "stable")
    return _picked(x, order, dim), order.astype(np.int64, copy=False)


@primitive("sort", library="order", kernel=_sort_kernel, tags=("ordered",), derivative=General(_by_index_vjp),
           samples=lambda r: [(r.standard_normal((2, 4)), 1, True, True), (r.standard_normal((2, 4)), 0, False, True)])
def sort(x: Tensor, dim: int, descending: bool, stable: bool) -> tuple[Spec, Spec]:
    """Values in order along `dim` and their indices; NaN counts as the largest. Always stable."""
    return Spec(x._layout.shape, x.dtype, lies_like([x])), Spec(x._layout.shape, int64, lies_like([x]))


def _topk_kernel(x: np.ndarray, k: int, dim: int, largest: bool, sorted_: bool) -> tuple:
    if x.ndim and 0 < 8 * k < x.shape[dim]:
        return _few_of_many(x, k, dim, largest)
    values, order = _sort_kernel(x, dim, largest, True)
    if not x.ndim:
        return values, order
    cut = [slice(None)] * x.ndim
    cut[dim] = slice(0, k)
    return np.ascontiguousarray(values[tuple(cut)]), np.ascontiguousarray(order[tuple(cut)])


def _few_of_many(x: np.ndarray, k: int, dim: int, largest: bool) -> tuple:
    """The k extreme ones by partition, then only these in order."""
    keys = x.astype(np.float32) if x.dtype.kind == "V" else x
    n = x.shape[dim]
    parted = keys.argpartition(n - k if largest else k - 1, dim)
    found = parted[(slice(None),) * dim + (slice(n - k, n) if largest else slice(k),)].copy()
    found.sort(dim)  # of equal values the first counts
    _, order = _sort_kernel(_picked(keys, found, dim), dim, largest, True)
    indices = _picked(found, order, dim)
    return _picked(x, indices, dim), indices.astype(np.int64, copy=False)


@primitive("topk", library="order", kernel=_topk_kernel, tags=("ordered",), derivative=General(_by_index_vjp),
           samples=lambda r: [(r.standard_normal((2, 4)), 2, 1, True, True)])
def topk(x: Tensor, k: int, dim: int, largest: bool, sorted_: bool) -> tuple[Spec, Spec]:
    """The `k` largest (or smallest) along `dim`, in order, and their indices."""
    shape = list(x._layout.shape)
    if shape and (k < 0 or k > shape[dim]):
        raise RuntimeError(f"selected index k out of range: k = {k}, dimension {dim} of shape {shape}")
    if shape:
        shape[dim] = k
    return Spec(tuple(shape), x.dtype), Spec(tuple(shape), int64)


def _nth_kernel(x: np.ndarray, place: np.ndarray, dim: int) -> np.ndarray:
    """By values, for NumPy orders those far quicker than places; of equal ones it is the stable order that tells."""
    if not x.ndim or not place.size:
        return np.zeros(place.shape, np.int64)
    keys, place = x.astype(np.float32) if x.dtype.kind == "V" else x, np.expand_dims(place, dim)
    first = int(place.flat[0])
    if place.size == 1:
        value = np.partition(keys, first, dim).take([first], dim)
    else:
        value = np.take_along_axis(np.sort(keys, dim), place, dim)
    hits, less = keys == value, keys < value
    if (nan := value != value).any():
        hits |= nan & (keys != keys)
        less |= nan & (keys == keys)
    if np.count_nonzero(hits) > place.size:
        nth = place - np.count_nonzero(less, axis=dim, keepdims=True)
        hits &= np.cumsum(hits, dim) == nth + 1
    return hits.argmax(dim)


@primitive("nth", kernel=_nth_kernel, tensors=2, tags=("ordered", "refuses_values"),
           why_absent={"derivative": "an index is not differentiable", "loop": "selection is not a loop over independent elements"},
           samples=lambda r: [(r.standard_normal((2, 4)), np.array([1, 3]), 1)])
def nth(x: Tensor, place: Tensor, dim: int) -> Spec:
    """Index along `dim` of what would stand at `place` (x's shape without `dim`) in stable ascending order; NaN is the largest."""
    return Spec(_reduced(x, (dim,)), int64)


__all__ = ["sum", "prod", "amax", "amin", "argmax", "argmin", "any", "all", "cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "sort",
           "topk", "nth"]
