"""torch.masked: reductions and normalizations of the elements that a mask leaves.

`mask` is true where an element counts; what a reduction of none gives is its identity. A `MaskedTensor` has its mask with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.dtypes import dtype as DType
from ..core.dtypes import iinfo, int64
from ..core.size import canonical_dim
from ..core.tensor import Tensor
from ..nn import functional
from ..ops.promotion import to_float
from ..ops.registry import OPERATORS
from .maskedtensor import MaskedTensor, as_masked_tensor, is_masked_tensor, masked_tensor, reducing


def _mask(x: Tensor, mask: Tensor | None) -> Tensor | None:
    """The mask as truth values of the shape of x."""
    if mask is None:
        return None
    if mask.ndim > x.ndim:
        raise IndexError("_input_mask expected broadcastable mask (got mask dimensionality higher than of the input): "
                         f"{list(mask.shape)} for {list(x.shape)}")
    return (mask if mask.dtype.category == 0 else mask != 0).expand(x.shape)


def _filled(x: Tensor, mask: Tensor | None, value: Any) -> Tensor:
    found = _mask(x, mask)
    return x if found is None else OPERATORS["where"](found, x, OPERATORS["full"]((), value, dtype=x.dtype, device=x.device))


def _dims(dim: Any, x: Tensor) -> tuple[int, ...]:
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return tuple(range(x.ndim))
    return (dim,) if isinstance(dim, int) else tuple(dim)


def _low(x: Tensor) -> Any:
    return float("-inf") if x.dtype.is_floating_point else 0 if x.dtype.category == 0 else iinfo(x.dtype).min


def _high(x: Tensor) -> Any:
    return float("inf") if x.dtype.is_floating_point else 1 if x.dtype.category == 0 else iinfo(x.dtype).max


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


def sum(input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """The sum; of none 0."""
    return _filled(_as(input, dtype), mask, 0).sum(_dims(dim, input), keepdim=bool(keepdim))


def prod(input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """The product; of none 1."""
    out = _filled(_counting(input, dtype), mask, 1)
    for d in sorted([canonical_dim(d, input.ndim) for d in _dims(dim, input)], reverse=True):
        out = out.prod(d, keepdim=bool(keepdim))
    return out


def amax(input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """The largest; of none the least number."""
    x = _as(input, dtype)
    return _filled(x, mask, _low(x)).amax(_dims(dim, x), bool(keepdim))


def amin(input: Tensor, dim: Any = None, *, keepdim: bool | None = False, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """The least; of none the largest number."""
    x = _as(input, dtype)
    return _filled(x, mask, _high(x)).amin(_dims(dim, x), bool(keepdim))


def argmax(input: Tensor, dim: int | None = None, *, keepdim: bool | None = False, dtype: DType | None = None,
           mask: Tensor | None = None) -> Tensor:
    """Where the largest is, in the dtype of the input as in torch; of none at 0."""
    x = _as(input, dtype)
    return _filled(x, mask, _low(x)).argmax(dim, bool(keepdim)).to(x.dtype)


def argmin(input: Tensor, dim: int | None = None, *, keepdim: bool | None = False, dtype: DType | None = None,
           mask: Tensor | None = None) -> Tensor:
    """Where the least is, in the dtype of the input as in torch; of none at 0."""
    x = _as(input, dtype)
    return _filled(x, mask, _high(x)).argmin(dim, bool(keepdim)).to(x.dtype)


def _count(x: Tensor, dims: tuple, keepdim: bool, mask: Tensor | None) -> Tensor:
    found = _mask(x, mask)
    return (OPERATORS["ones_like"](x) if found is None else found.to(x.dtype)).sum(dims, keepdim=keepdim)


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
    whole, dims = _as(input, dtype), _dims(dim, input)
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
    """The median (the lower of two); of none NaN."""
    x = _as(input, dtype)
    if mask is None:
        return x.median(dim, keepdim).values
    if not x.dtype.is_floating_point:
        raise ValueError(f"median expects a floating dtype where elements are masked out, whose median is NaN; got {x.dtype}")
    return _filled(x, mask, float("nan")).nanmedian(dim, keepdim).values


def norm(input: Tensor, ord: Any = 2.0, dim: Any = None, *, keepdim: bool | None = False, dtype: DType | None = None,
         mask: Tensor | None = None) -> Tensor:
    """The `ord`-norm of vectors; of none 0 (infinite for negative `ord`)."""
    x = _floating("norm", input, dtype)
    return OPERATORS["linalg_vector_norm"](_filled(x, mask, 0 if ord is None or ord >= 0 else float("inf")), 2 if ord is None else ord,
                                           _dims(dim, x), bool(keepdim))


def normalize(input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """The elements divided by their norm along `dim`, by `eps` at least; 0 where masked out."""
    x = _floating("normalize", input, dtype)
    return _filled(x, mask, 0) / norm(x, ord, dim, keepdim=True, mask=mask).clamp(min=eps)


def logsumexp(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """log of the sum of exponentials; of none -inf."""
    x = _as(input, dtype)
    return _filled(x, mask, float("-inf") if x.dtype.category > 1 else _low(x)).logsumexp(_dims(dim, x), keepdim).to(x.dtype)


def logaddexp(input: Tensor, other: Tensor, *, dtype: DType | None = None, input_mask: Tensor | None = None,
              other_mask: Tensor | None = None) -> Tensor:
    """log(e^input + e^other), of what the masks leave."""
    x, y = _filled(_as(input, dtype), input_mask, float("-inf")), _filled(_as(other, dtype), other_mask, float("-inf"))
    return OPERATORS["logaddexp"](x, y)


def _along(name: str, fill: Any) -> Callable:
    def function(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
        x = _as(input, dtype)
        return OPERATORS[name](_filled(x, mask, fill), x.ndim - 1 if dim is None else dim)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"torch.{name} of the elements that the mask leaves."
    return function


cumsum, cumprod = _along("cumsum", 0), _along("cumprod", 1)
softmax, log_softmax, softmin = _along("softmax", float("-inf")), _along("log_softmax", float("-inf")), _along("softmin", float("inf"))


def _all(input: Tensor, dim: Any = None, keepdim: bool = False, *, mask: Tensor | None = None) -> Tensor:
    """Whether all are true; of none True."""
    return OPERATORS["all"](_filled(input != 0, mask, True), _dims(dim, input), bool(keepdim))


for _function in (sum, prod, amax, amin, argmax, argmin, mean, var, std, norm):
    reducing((OPERATORS[_function.__name__],), _function, keeps=False)
for _function in (cumsum, cumprod, softmax, log_softmax):
    reducing((OPERATORS[_function.__name__], getattr(functional, _function.__name__, None)), _function, keeps=True)
reducing((OPERATORS["all"],), _all, keeps=False)
__all__ = ["MaskedTensor", "amax", "amin", "argmax", "argmin", "as_masked_tensor", "cumprod", "cumsum", "is_masked_tensor", "log_softmax",
           "logaddexp", "logsumexp", "masked_tensor", "mean", "median", "norm", "normalize", "prod", "softmax", "softmin", "std", "sum",
           "var"]
