"""torch.masked: reductions and normalizations of the elements that a mask leaves.

`mask` is true where an element counts; what a reduction of none gives is its identity. A `MaskedTensor` has its mask with it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from .. import autograd
from ..core.dtypes import dtype as DType
from ..core.dtypes import iinfo, int64
from ..core.memory_format import layout, sparse_coo, sparse_csr, strided
from ..core.size import canonical_dim
from ..core.sparse import SparseTensor, sparse_like
from ..core.tensor import Tensor
from ..nn import functional
from ..ops.promotion import to_float
from ..ops.registry import OPERATORS
from ..overrides import DisableTorchFunctionSubclass
from ..utils._pytree import tree_map
from .maskedtensor import MaskedTensor, _around, _data, as_masked_tensor, form, is_masked_tensor, masked_tensor, reducing


def _mask(x: Tensor, mask: Tensor | None) -> Tensor | None:
    """The mask as truth values of the shape of x."""
    if mask is None:
        return None
    if mask.ndim > x.ndim:
        raise IndexError("_input_mask expected broadcastable mask (got mask dimensionality higher than of the input): "
                         f"{list(mask.shape)} for {list(x.shape)}")
    mask = mask if mask.layout is strided else mask.to_dense()
    return (mask if mask.dtype.category == 0 else mask != 0).expand(x.shape)


def _filled(x: Tensor, mask: Tensor | None, value: Any) -> Tensor:
    found = _mask(x, mask)
    return x if found is None else OPERATORS["where"](found, x, OPERATORS["full"]((), value, dtype=x.dtype, device=x.device))


def _dims(dim: Any, x: Tensor) -> tuple[int, ...]:
    """The dimensions, from 0 and in order: all for None and none."""
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return tuple(range(x.ndim))
    dims = [canonical_dim(d, max(x.ndim, 1)) for d in ((dim,) if isinstance(dim, int) else dim)]
    for d in dims:
        if dims.count(d) > 1:
            raise RuntimeError(f"dim={d} appears multiple times in the list of dims: {tuple(dim)}")
    return tuple(sorted(dims)) if x.ndim else ()


def _first(dim: Any, x: Tensor) -> int:
    """The dimension of a function that is along one."""
    return (*_dims(dim, x), 0)[0]


def _strided(name: str, x: Tensor) -> Tensor:
    if x.layout is not strided:
        raise ValueError(f"masked {name} expects strided tensor (got {x.layout} tensor)")
    return x


def _also_sparse(*layouts: layout) -> Callable[[Callable], Callable]:
    """Let a reduction take tensors of these layouts: all elements that the mask leaves count, also those that are no entries, and a result is
    an entry where one counts. It is computed densely."""
    def of(function: Callable) -> Callable:
        called = inspect.signature(function)

        @functools.wraps(function)
        def reduction(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            if not isinstance(input, SparseTensor):
                return function(input, *args, **kwargs)
            given = called.bind(input, *args, **kwargs).arguments
            dim, kept = _dims(given.pop("dim", None), input), bool(given.pop("keepdim", False))
            counts = _where_it_counts(function.__name__, input, given.pop("mask", None), layouts, kept)
            found = function(**{**given, "input": input.to_dense()}, dim=dim, keepdim=kept, mask=counts)
            return found.sparse_mask(counts.any(dim, kept).to_sparse(layout=input.layout))
        return reduction
    return of


def _where_it_counts(name: str, x: SparseTensor, mask: Tensor | None, layouts: tuple, kept: bool) -> Tensor:
    """The mask of a sparse tensor, which for a sum may be that of its entries; what is not taken raises."""
    if x.layout not in layouts:
        raise ValueError(f"masked {name} expects strided or {' or '.join(map(str, layouts))} tensor (got {x.layout} tensor)")
    if mask is None and name != "sum":
        raise ValueError(f"masked {name} expects explicit mask for {x.layout.name} tensor input")
    if x.layout is sparse_csr and not kept:
        raise RuntimeError(f"masked {name}: reductions of {x.layout} tensors need keepdim=True (shape {list(x.shape)})")
    return _mask(x, sparse_like(x, OPERATORS["ones_like"](x._entries)) if mask is None else mask)  # type: ignore[return-value]


def _low(x: Tensor) -> Any:
    return float("-inf") if x.dtype.is_floating_point else _bounds("amax", x).min


def _high(x: Tensor) -> Any:
    return float("inf") if x.dtype.is_floating_point else _bounds("amin", x).max


def _bounds(name: str, x: Tensor) -> iinfo:
    if x.dtype.category == 0:
        raise NotImplementedError(f"identity of {name} on {x.dtype} input: convert it to a number type")
    return iinfo(x.dtype)


def _as(x: Tensor, dtype: DType | None) -> Tensor:
    return x if dtype is None else x.to(dtype)


def _counting(x: Tensor, dtype: DType | None) -> Tensor:
    """Integers and truth values in the dtype that they are added up in."""
    return _as(x, dtype if dtype is not None or x.dtype.category > 1 else int64)


def _floating(name: str, x: Tensor, dtype: DType | None) -> Tensor:
    x = _as(x, dtype)
    if not x.dtype.is_floating_point and not x.dtype.is_complex:
        raise ValueError(f"{name}(): Could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: "
                         f"{x.dtype}")
    return x


@_also_sparse(sparse_coo, sparse_csr)
def sum(input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """The sum; of none 0."""
    return _filled(_as(input, dtype), mask, 0).sum(_dims(dim, input), keepdim=bool(keepdim))


@_also_sparse(sparse_coo, sparse_csr)
def prod(input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """The product; of none 1."""
    out = _filled(_counting(input, dtype), mask, 1)
    for d in reversed(_dims(dim, input)):
        out = out.prod(d, keepdim=bool(keepdim))
    return out


@_also_sparse(sparse_coo, sparse_csr)
def amax(input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """The largest; of none the least number."""
    x = _as(input, dtype)
    return _filled(x, mask, _low(x)).amax(_dims(dim, x), bool(keepdim))


@_also_sparse(sparse_coo, sparse_csr)
def amin(input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """The least; of none the largest number."""
    x = _as(input, dtype)
    return _filled(x, mask, _high(x)).amin(_dims(dim, x), bool(keepdim))


def argmax(input: Tensor, dim: int | None = None, *, keepdim: bool | None = False, dtype: DType | None = None,
           mask: Tensor | None = None) -> Tensor:
    """Where the largest is, in the dtype of the input as in torch; of none at 0."""
    x = _as(_strided("argmax", input), dtype)
    return _filled(x, mask, _low(x)).argmax(dim, bool(keepdim)).to(x.dtype)


def argmin(input: Tensor, dim: int | None = None, *, keepdim: bool | None = False, dtype: DType | None = None,
           mask: Tensor | None = None) -> Tensor:
    """Where the least is, in the dtype of the input as in torch; of none at 0."""
    x = _as(_strided("argmin", input), dtype)
    return _filled(x, mask, _high(x)).argmin(dim, bool(keepdim)).to(x.dtype)


def _count(x: Tensor, dims: tuple, keepdim: bool, mask: Tensor | None) -> Tensor:
    found = _mask(x, mask)
    return (OPERATORS["ones_like"](x) if found is None else found.to(x.dtype)).sum(dims, keepdim=keepdim)


@_also_sparse(sparse_csr)
def mean(input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """The mean; of none NaN."""
    x, dims = _floating("mean", input, dtype), _dims(dim, input)
    return _filled(x, mask, 0).sum(dims, keepdim=bool(keepdim)) / _count(x, dims, bool(keepdim), mask)


def var(input: Tensor, dim: Any = None, unbiased: bool | None = None, *, correction: Any = None, keepdim: bool | None = False,
        dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """The variance; of none NaN."""
    if unbiased is not None and correction is not None:
        raise RuntimeError("var(): only one of unbiased and correction may be given")
    less = correction if correction is not None else 1 if unbiased in (None, True) else 0
    whole, dims = _as(_strided("std/var", input), dtype), _dims(dim, input)
    x = to_float(whole)
    centered = _filled(x - mean(x, dims, keepdim=True, mask=mask), mask, 0)
    squares = (centered * centered.conj()).real if x.dtype.is_complex else centered * centered
    count = _count(squares, dims, bool(keepdim), mask)
    return (squares.sum(dims, keepdim=bool(keepdim)) / (count - less).clamp(min=0)).to(x.dtype if dtype is None else dtype)


def std(input: Tensor, dim: Any = None, unbiased: bool | None = None, *, correction: int | None = None, keepdim: bool | None = False,
        dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """The standard deviation; of none NaN."""
    found = var(input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask)
    return found.real.sqrt().to(found.dtype) if found.dtype.is_complex else found.sqrt()


def median(input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """The median (the lower of two); of none NaN, which integers have no place for."""
    x, at, counts = _as(_strided("median", input), dtype), _first(dim, input), _mask(input, mask)
    if counts is None:
        return x.median(at, keepdim).values
    if x.dtype.is_floating_point:
        return _filled(x, counts, float("nan")).nanmedian(at, keepdim).values
    if not bool(counts.any(at).all()):
        raise ValueError(f"masked median expects no fully masked out rows if dtype is not floating point, got {x.dtype} of shape "
                         f"{list(x.shape)}")
    ordered, many = _filled(x.to(int64), counts, iinfo(int64).max).sort(at).values, counts.sum(at, keepdim=True)
    found = ordered.gather(at, (many - 1) // 2).to(x.dtype)
    return found if keepdim else found.squeeze(at)


def norm(input: Tensor, ord: Any = 2.0, dim: Any = None, *, keepdim: bool | None = False, dtype: DType | None = None,
         mask: Tensor | None = None) -> Tensor:
    """The `ord`-norm of vectors; of none 0 (infinite for -inf, and what is masked out counts as 0 for other negative ones)."""
    x = _strided("norm", input)
    return OPERATORS["linalg_vector_norm"](_filled(x, mask, float("inf") if ord == float("-inf") else 0), 2 if ord is None else ord,
                                           _dims(dim, x), bool(keepdim), dtype=dtype)


def normalize(input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """The elements divided by their norm along `dim`, by `eps` at least; 0 where masked out."""
    x = _strided("normalize", input)
    return _filled(x, mask, 0) / norm(x, ord, dim, keepdim=True, dtype=dtype, mask=mask).clamp(min=eps)


def logsumexp(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """log of the sum of exponentials; of none -inf."""
    x = _as(_strided("logsumexp", input), dtype)
    return _filled(x, mask, float("-inf") if x.dtype.category > 1 else _low(x)).logsumexp(_dims(dim, x), keepdim).to(x.dtype)


def logaddexp(input: Tensor, other: Tensor, *, dtype: DType | None = None, input_mask: Tensor | None = None,
              other_mask: Tensor | None = None) -> Tensor:
    """log(e^input + e^other), of what the masks leave."""
    x, y = _filled(_as(input, dtype), input_mask, float("-inf")), _filled(_as(other, dtype), other_mask, float("-inf"))
    return OPERATORS["logaddexp"](x, y)


def _along(name: str, fill: Callable[[Tensor], Any]) -> Callable:
    def function(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
        x = _as(_strided(name, input), dtype)
        return OPERATORS[name](_filled(x, mask, fill(x)), _first(dim, x))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"torch.{name} of the elements that the mask leaves."
    return function


cumsum, cumprod = _along("cumsum", lambda x: 0), _along("cumprod", lambda x: 1)
softmax, log_softmax, softmin = _along("softmax", _low), _along("log_softmax", _low), _along("softmin", _high)


def _all(input: Tensor, dim: Any = None, keepdim: bool = False, *, mask: Tensor | None = None) -> Tensor:
    """Whether all are true; of none True."""
    return OPERATORS["all"](_filled(input != 0, mask, True), _dims(dim, input), bool(keepdim))


def _gradients(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> tuple:
    """The gradients of masked tensors are masked as they are."""
    listed = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    with DisableTorchFunctionSubclass():
        found = autograd.grad(tree_map(_data, outputs), listed, *tree_map(_data, args), **tree_map(_data, kwargs))
    return tuple(_around(g, x._masked_mask) if isinstance(x, MaskedTensor) and g is not None else g for x, g in zip(listed, found))


form(autograd.grad)(_gradients)
for _function in (sum, prod, amax, amin, argmax, argmin, mean, var, std, norm):
    reducing((OPERATORS[_function.__name__],), _function, keeps=False)
for _function in (cumsum, cumprod, softmax, log_softmax):
    reducing((OPERATORS[_function.__name__], getattr(functional, _function.__name__, None)), _function, keeps=True)
reducing((OPERATORS["all"],), _all, keeps=False)
__all__ = ["MaskedTensor", "amax", "amin", "argmax", "argmin", "as_masked_tensor", "cumprod", "cumsum", "is_masked_tensor", "log_softmax",
           "logaddexp", "logsumexp", "masked_tensor", "mean", "median", "norm", "normalize", "prod", "softmax", "softmin", "std", "sum",
           "var"]
