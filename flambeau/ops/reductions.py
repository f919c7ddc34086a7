"""Reductions over dimensions: sums, extrema, moments, norms, counts; and running (cumulative) forms."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

from ..core import dtypes
from ..core.dtypes import BOOL, COMPLEX, FLOAT, INT, bool_, complex128, dtype, float32, float64, int64, scalar_type, uint8
from ..core.scalar import compute_dtype
from ..core.size import canonical_dim, canonical_dims
from ..core.tensor import Tensor
from ..core.warned import warn
from . import prims
from .ints import Ints, as_ints
from .order import in_rows
from .primitives import InAten, told_by_dimensions
from .promotion import apart, broadcast, cast, only_tensors, result_type, to_float
from .registry import OPERATORS, Absent, General, Primitive, method, on_tape, operator
from .return_types import named
from .writing import a_tensor_as_out, assign, into_out, new_value, store_out, with_out

Dims = int | Sequence[int] | None

# -- helpers -------------------------------------------------------------------------------------------
def keep_dims(x: Tensor, dims: Sequence[int]) -> Tensor:
    """`x` with dimensions of size 1 at the positions `dims` (counted in the result)."""
    for d in sorted(dims):
        x = prims.unsqueeze(x, d)
    return x


def _spread(x: Tensor, dim: Dims, keepdim: bool, rank: int) -> Tensor:
    """A reduced tensor with its reduced dimensions back as size 1."""
    return x if keepdim else keep_dims(x, canonical_dims(dim, rank))


def _reduce(prim: Primitive, x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    dims = canonical_dims(dim, x.ndim)
    out = prim(x, dims)
    if keepdim or (dim is not None and len(dims) == x.ndim):    # by whose number the form of ATen is told
        told = prim.name if prim.name in ("amax", "amin") else f"{prim.name}.1"
        return on_tape(told, keep_dims(out, dims) if keepdim else out)
    return out


def _count(x: Tensor, dims: Sequence[int]) -> Any:
    """How many elements each result is made of."""
    return math.prod([x.shape[d] for d in dims])


def _finish(result: Tensor, out: Tensor | None) -> Tensor:
    return result if out is None else store_out(out, result)


def _names(x: Any, name: str) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(x).__name__}")


# -- sums and products -----------------------------------------------------------------------------------
def _computed_in(kind: dtype | None, out: Tensor | None) -> dtype | None:
    """The dtype that a sum or product is computed in: as told, or that of what it is written to."""
    return a_tensor_as_out(out).dtype if kind is None and out is not None else kind


def _accumulator(x: Tensor, kind: dtype | None) -> Tensor:
    """Integers and bools add up in int64 unless a dtype is asked for."""
    if kind is None:
        kind = int64 if x.dtype.category <= INT else x.dtype
    return cast(x, kind)


@operator(method=True, autocast={"cuda": "wide"})
def sum(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: dtype | None = None, out: Tensor | None = None) -> Tensor:
    """Sum over `dim` (all dimensions if None); integers and bools add up in int64 unless `dtype` says otherwise."""
    _names(input, "sum")
    kind = _computed_in(dtype, out) or (int64 if input.dtype.category <= INT else input.dtype)
    if kind is bool_:       # one and one is True
        return _finish(_reduce(prims.any, cast(input, bool_), dim, keepdim), out)
    if input.dtype is kind:
        return _finish(_reduce(prims.sum, input, dim, keepdim), out)
    return _finish(_sum_as(input, canonical_dims(dim, input.ndim), keepdim, kind), out)


@operator(name="_sum_as", aten=InAten("sum", lambda x, dims, keepdim, kind: ("sum", (x, list(dims), keepdim), {"dtype": kind})), fused=True)
def _sum_as(input: Tensor, dims: tuple[int, ...], keepdim: bool, kind: dtype) -> Tensor:
    """A sum in another dtype than the elements', without a copy of them in it."""
    return _reduce(prims.sum, cast(input, kind), dims, keepdim)


@operator(method=True, node=True)
def nansum(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: dtype | None = None, out: Tensor | None = None) -> Tensor:
    """Sum over `dim` with NaN counted as zero."""
    if input.dtype.is_complex:
        canonical_dims(dim, input.ndim)
        raise RuntimeError(f"nansum on CPU does not support complex inputs, got {input.dtype}")
    kind = _computed_in(dtype, out)
    if kind is not None and 0 not in input._layout.shape and input.dtype.category >= FLOAT and (kind.category < FLOAT or kind.is_complex):
        raise NotImplementedError(f'"nansum_cpu" not implemented for {scalar_type(kind)!r}')
    if input.dtype.category < FLOAT or dtype is not None or out is not None:
        return sum(_without_nan(input), dim, keepdim, dtype=dtype, out=out)
    return _nansum(input, dim, keepdim)


def _without_nan(x: Tensor) -> Tensor:
    return x.masked_fill(prims.isnan(x), 0) if x.dtype.category >= FLOAT else x


@operator(name="_nansum", fused=True)
def _nansum(input: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    return sum(_without_nan(input), dim, keepdim)


@operator(method=True, autocast="wide")
def prod(input: Tensor, dim: int | Absent = None, keepdim: bool = False, *, dtype: dtype | None = None,
         out: Tensor | None = None) -> Tensor:
    """Product over one dimension, or over all."""
    if dim is None and (keepdim or out is not None):
        raise TypeError("prod() with keepdim or out= is called as prod(input, dim, keepdim=False, *, dtype=None, out=None)")
    if isinstance(dim, (tuple, list)):
        raise TypeError(f"prod(): argument 'dim' must be int, not {type(dim).__name__}")
    return _finish(_reduce(prims.prod, _accumulator(input, _computed_in(dtype, out)), dim, keepdim), out)


@method("prod_dims")
def prod_dims(x: Tensor, dims: Sequence[int], keepdim: bool = False) -> Tensor:
    """Product over several dimensions."""
    return _reduce(prims.prod, x, tuple(dims), keepdim)


@operator(method=True)
def mean(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: dtype | None = None, out: Tensor | None = None) -> Tensor:
    """Arithmetic mean over `dim`; floating or complex input (or `dtype`). Narrow floats are averaged in f32."""
    _names(input, "mean")
    x = input if dtype is None else cast(input, dtype)
    if x.dtype.category < FLOAT:
        what = "Input dtype" if dtype is None else "Optional dtype"
        raise RuntimeError(f"mean(): could not infer output dtype. {what} must be either a floating point or complex dtype. "
                           f"Got: {scalar_type(x.dtype)}")
    return _finish(_mean(x, canonical_dims(dim, x.ndim), keepdim), out)


def _mean_vjp(g: Tensor, input_shape: tuple, dims: tuple, keepdim: bool) -> tuple:
    """The gradient of each result, shared evenly."""
    n = math.prod([input_shape[d] for d in dims])
    share = prims.truediv(g, _divisor(n))
    return (prims.expand(share if keepdim else keep_dims(share, dims), tuple(input_shape)),)


def _divisor(n: Any) -> Any:
    return n if type(n) is not int else float(n) if n else math.nan


@operator(name="_mean", fused=True, vjp=_mean_vjp, aten=told_by_dimensions("mean")._replace(
    name="mean", steps=lambda call, x, dims, keepdim: (
        call("mean", x) if len(dims) == x.ndim and not keepdim else call("mean.dim", x, list(dims), keepdim))))
def _mean(input: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    x = cast(input, float32) if input.dtype.itemsize < 4 else input
    average = prims.truediv(prims.sum(x, dims), _divisor(_count(x, dims)))
    return cast(keep_dims(average, dims) if keepdim else average, input.dtype)


def _is_zero(n: Any) -> bool:
    """Whether a size is 0; of one that other sizes decide, the answer is guarded."""
    return bool(n == 0)


@operator(method=True)
@with_out
def nanmean(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: dtype | None = None) -> Tensor:
    """Mean over `dim` of the elements that are not NaN."""
    if input.dtype.category < FLOAT:
        raise RuntimeError(f"nanmean(): expected input to have floating point or complex dtype but got {scalar_type(input.dtype)}")
    if dtype is not None and dtype.category < FLOAT:
        raise RuntimeError(f"nanmean(): expected a floating point or complex dtype, got {scalar_type(dtype)}")
    x = input if dtype is None else cast(input, dtype)
    return nansum(x, dim, keepdim) / (~x.isnan()).sum(dim, keepdim)


@operator(method=True)
def count_nonzero(input: Tensor, dim: Dims = None, *more: int) -> Tensor:
    """How many elements over `dim` are not zero (int64)."""
    return sum(input != 0, (dim, *more) if more else dim)   # type: ignore[arg-type]


@method("sum_to_size")
def sum_to_size(self: Tensor, *size: Ints) -> Tensor:
    """The sum down to a shape that broadcasts to this one."""
    shape = as_ints(size)
    lead = self.ndim - len(shape)
    if lead < 0 or builtins.any(_differ(s, n) and _differ(s, 1) for s, n in zip(shape, self.shape[lead:])):
        raise RuntimeError(f"size {{{list(shape)}}} is not expandable to size {{{list(self.shape)}}}.")
    if not shape:
        return sum(self)
    thin = [lead + i for i, s in enumerate(shape) if not _differ(s, 1)]
    dims = (*range(lead), *(d for d in thin if _differ(self.shape[d], 1)))
    x = sum(self, dims) if dims else self
    return keep_dims(x, [d - lead for d in dims if d >= lead]) if dims else x


def _differ(a: Any, b: Any) -> bool:
    return a is not b and bool(a != b)


# -- truth -------------------------------------------------------------------------------------------------
def _truth(prim: Primitive, name: str) -> Callable:
    def fn(input: Tensor, dim: Dims = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
        if out is not None and out.dtype not in (bool_, uint8):
            raise RuntimeError(f"{name} only supports bool tensor for result, got: {out.dtype}")
        x = cast(input, bool_)
        dims = () if isinstance(dim, (tuple, list)) and not dim else canonical_dims(dim, x.ndim)
        result = prim(x, dims)
        result = keep_dims(result, dims) if keepdim else result
        if out is not None and a_tensor_as_out(out).dtype not in (bool_, uint8):
            raise RuntimeError(f"{name} only supports bool tensor for result, got: {scalar_type(out.dtype)}")
        return _finish(cast(result, uint8) if input.dtype is uint8 else result, out)

    fn.__name__, fn.__doc__ = name, f"Whether {name} elements over `dim` are true; bool (uint8 for uint8 input)."
    return operator(fn, method=True)


any, all = _truth(prims.any, "any"), _truth(prims.all, "all")


# -- extrema -----------------------------------------------------------------------------------------------
def _check_ordered(x: Tensor, name: str) -> None:
    if x.dtype.category == COMPLEX:
        raise NotImplementedError(f'"{name}_cpu" not implemented for \'{scalar_type(x.dtype)}\': complex numbers have no order')


def _amax_like(name: str) -> Callable:
    prim = getattr(prims, name)

    def fn(input: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
        if input.dtype.is_complex and 0 not in input._layout.shape:
            canonical_dims(dim, input.ndim)
            _check_ordered(input, name)
        if (dim is None or (isinstance(dim, (tuple, list)) and not dim)) and _is_zero(input.shape.numel()):
            raise RuntimeError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0, got shape {list(input.shape)}")
        return _reduce(prim, input, dim, keepdim)

    fn.__name__, fn.__doc__ = name, f"The {name[1:]}imum over `dim`; ties share the gradient evenly."
    return operator(with_out(fn, exact=True), method=True)


amax, amin = _amax_like("amax"), _amax_like("amin")


def _arg_like(name: str) -> Callable:
    place = _place_of(name)

    def fn(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        if input.dtype is bool_:
            raise RuntimeError(f"{name}(): does not support bool input: convert it to a number type first")
        return place(input, dim, keepdim)

    fn.__name__, fn.__doc__ = name, f"Index of the first {name[3:]}imum along `dim` (int64), or in the flattened input."
    return operator(with_out(fn, exact=True), method=True)


def _place_of(name: str) -> Callable:
    """argmax or argmin of any dtype that has an order."""
    prim = getattr(prims, name)

    def place(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        _check_ordered(input, name)
        if dim is None:
            if _is_zero(input.shape.numel()):
                raise IndexError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0.")
            found = prim(input.reshape(-1), 0)
            return keep_dims(found, range(input.ndim)) if keepdim else found
        if not input.ndim:
            canonical_dim(dim, 0)
            return prim(prims.unsqueeze(input, 0), 0)
        d = canonical_dim(dim, input.ndim)
        found = prim(input, d)
        return prims.unsqueeze(found, d) if keepdim else found

    return place


argmax, argmin = _arg_like("argmax"), _arg_like("argmin")


def _pick(x: Tensor, dim: int, index: Tensor, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Values at `index` (of x's shape without `dim`), and the index, with the dimension kept or not."""
    if not x.ndim:
        return x.clone(), index
    wide = prims.unsqueeze(index, dim)
    values = prims.gather(x, dim, wide)
    return (values, wide) if keepdim else (prims.squeeze(values, (dim,)), index)


def _extremum(name: str) -> Callable:
    all_of, arg_of = getattr(prims, "a" + name), _place_of("arg" + name)
    pairwise = getattr(prims, name + "imum")

    def fn(input: Tensor, dim: Any | Absent = None, keepdim: bool = False, *, other: Tensor | Absent = None, out: Any = None) -> Any:
        _names(input, name)
        if isinstance(dim, Tensor) or other is not None:
            _check_ordered(input, name)
            second = dim if other is None else other
            kind = result_type(input, second)
            return _finish(pairwise(*broadcast(cast(input, kind), cast(second, kind))), out)
        if dim is None:
            if keepdim:
                raise TypeError(f"{name}() with keepdim is called as {name}(input, dim, keepdim=False, *, out=None)")
            _check_ordered(input, name)
            if _is_zero(input.shape.numel()):
                raise RuntimeError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
                                   "reduction dim with the 'dim' argument.")
            return _finish(all_of(input, tuple(range(input.ndim))), out)
        d = canonical_dim(dim, input.ndim)
        if input.ndim and _is_zero(input.shape[d]):
            raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size.")
        _check_ordered(input, name)
        values, places = _pick(input, d, arg_of(input, d), keepdim)
        pair = named(name, on_tape(name, values), places)
        return pair if out is None else into_out(pair, out, exact=True)

    fn.__name__ = name
    fn.__doc__ = f"{name}(input), {name}(input, dim, keepdim) -> (values, indices), or {name}(input, other) elementwise."
    return operator(fn, method=True)


max, min = _extremum("max"), _extremum("min")


@operator(method=True, node=True)
@with_out(exact=True, apart=True)
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Any:
    """(minimum, maximum) over `dim` or over everything."""
    return named("aminmax", amin(input, dim, keepdim), amax(input, dim, keepdim))


# -- moments -----------------------------------------------------------------------------------------------
def _check_moment(x: Tensor) -> None:
    if not isinstance(x, Tensor) or x.dtype.category < FLOAT:
        raise RuntimeError("std and var only support floating point and complex dtypes"
                           + (f", got {x.dtype}" if isinstance(x, Tensor) else f", got {type(x).__name__}"))


def _freedom(n: Any, correction: float) -> Any:
    """Degrees of freedom, no less than 0. Whether symbolic sizes leave some is guarded."""
    left = n - correction
    return 0 if left <= 0 or _is_zero(n) else left


def _warn_without_freedom(x: Tensor, dim: Dims, correction: float) -> None:
    """At every call: what is below may be a program by now, which warns of nothing."""
    if _is_zero(_freedom(_count(x, canonical_dims(dim, x.ndim)), correction)):
        warn("degrees of freedom is <= 0. Correction should be strictly less than the reduction factor (input numel "
                      "divided by output numel).")


def _var_vjp(g: Tensor, input: Tensor, dim: Dims, correction: float, keepdim: bool) -> tuple:
    """d var / d x_i = 2 (x_i - mean) / (n - correction); as infinite as the variance itself where no freedom is left."""
    dims = canonical_dims(dim, input.ndim)
    left, centred = _count(input, dims) - correction, input - mean(input, dims, True)
    if left <= 0:
        return (_spread(g, dim, keepdim, input.ndim) * (prims.abs(centred).sum(dims, True) * math.inf).expand_as(input),)
    return (_spread(g * (2.0 / left), dim, keepdim, input.ndim) * centred,)


@operator(name="_var", vjp=_var_vjp, fused=True)
def _var(input: Tensor, dim: Dims, correction: float, keepdim: bool) -> Tensor:
    return cast(_variance(input, dim, correction, keepdim), input.dtype.to_real())


def _variance(input: Tensor, dim: Dims, correction: float, keepdim: bool) -> Tensor:
    """Variance by two passes: the mean, then the mean square deviation. In float64, where squares don't overflow nor the mean lose
    digits of numbers that lie near to each other."""
    dims = canonical_dims(dim, input.ndim)
    x = cast(input, complex128 if input.dtype.is_complex else float64)
    n = _count(x, dims)
    centred = x - _reduce(prims.sum, x, dims, True) / (1 if _is_zero(n) else n)
    square = prims.real(centred) ** 2 + prims.imag(centred) ** 2 if x.dtype.is_complex else centred * centred
    left = _freedom(n, correction)
    total = _reduce(prims.sum, square, dims, keepdim)
    return total / left


def _arguments(dim: Any, unbiased: bool | None, correction: float | None) -> tuple[Dims, float]:
    """torch's two calling forms: var(unbiased) and var(dim, unbiased), and correction= over both."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if correction is None:
        correction = 1 if unbiased is None or unbiased else 0
    return dim, correction


def _std_vjp(g: Tensor, input: Tensor, out: Tensor, dim: Dims, correction: float, keepdim: bool) -> tuple:
    """Through the variance; zero where the deviation is zero."""
    return _var_vjp((g / (out * 2)).masked_fill(out == 0, 0), input, dim, correction, keepdim)


@operator(name="_std", vjp=_std_vjp, fused=True)
def _std(input: Tensor, dim: Dims, correction: float, keepdim: bool) -> Tensor:
    """The square root of the variance."""
    return cast(prims.sqrt(_variance(input, dim, correction, keepdim)), input.dtype.to_real())


def _moment(name: str, compute: Callable, doc: str, method: bool = False) -> Callable:
    def fn(input: Tensor, dim: Dims | bool = None, unbiased: bool | Absent = None, keepdim: bool = False, *,
           correction: float | None = None) -> Any:
        _check_moment(input)
        dim, correction = _arguments(dim, unbiased, correction)
        _warn_without_freedom(input, dim, correction)
        return compute(input, dim, correction, keepdim)

    fn.__name__, fn.__doc__ = name, doc
    return operator(with_out(fn), method=method, node=name if name.endswith("_mean") else "")


var = _moment("var", _var, "Variance over `dim`, divided by n - correction (1 unless given; `unbiased=False` means 0).", True)
std = _moment("std", _std, "Standard deviation over `dim`: the square root of `var`.", True)
var_mean = _moment("var_mean", lambda x, dim, correction, keepdim: (_var(x, dim, correction, keepdim), mean(x, dim, keepdim)),
                   "(var, mean) over `dim`.")
std_mean = _moment("std_mean", lambda x, dim, correction, keepdim: (_std(x, dim, correction, keepdim), mean(x, dim, keepdim)),
                   "(std, mean) over `dim`.")


# -- exponentials and norms ----------------------------------------------------------------------------------
def _logsumexp_vjp(g: Tensor, input: Tensor, out: Tensor, dim: Dims, keepdim: bool) -> tuple:
    """d logsumexp / d x_i = exp(x_i - logsumexp)."""
    rank = input.ndim
    return (_spread(g, dim, keepdim, rank) * prims.exp(input - _spread(out, dim, keepdim, rank)).conj(),)


@operator(name="_logsumexp", vjp=_logsumexp_vjp, fused=True)
def _logsumexp(input: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    """Shifted by the maximum so that nothing overflows."""
    dims = canonical_dims(dim, input.ndim)
    if builtins.any(_is_zero(input.shape[d]) for d in dims):
        return prims.log(_reduce(prims.sum, input, dims, keepdim))
    top = _reduce(prims.amax, prims.real(input) if input.dtype.is_complex else input, dims, True)
    top = cast(top.masked_fill(prims.isinf(top), 0), input.dtype)
    total = prims.log(_reduce(prims.sum, prims.exp(input - top), dims, True)) + top
    return total if keepdim else prims.squeeze(total, dims)


@operator(method=True)
@with_out
def logsumexp(input: Tensor, dim: int | Sequence[int] | Absent, keepdim: bool = False) -> Tensor:
    """log(sum(exp(input))) over `dim`, without overflow."""
    return _logsumexp(to_float(input), dim, keepdim)


def vector_norm_vjp(g: Tensor, input: Tensor, out: Tensor, ord: float, dim: Dims, keepdim: bool) -> tuple:
    """d |x|_p / d x = sgn(x) (|x| / |x|_p)^(p-1); zero at zero, and for the extrema shared among ties."""
    rank = input.ndim
    g, out = _spread(g, dim, keepdim, rank), _spread(out, dim, keepdim, rank)
    if ord == 0:
        return (input.new_zeros(tuple(input.shape)),)
    if ord == 2:
        x, g, size = (cast(t, compute_dtype(t.dtype)) for t in (input, g, out))
        return (cast((x / size).masked_fill(size == 0, 0) * g, input.dtype),)     # never more than g, be the norm hardly anything
    if ord == 1:
        return (input.sgn() * g,)
    size = prims.abs(input)
    if math.isinf(ord):
        hit = size == out
        share = g / sum(hit, canonical_dims(dim, rank), True)
        return ((input.sgn() * share).masked_fill(~hit, 0),)
    ratio = (size / out).masked_fill(size == 0, 1) ** (ord - 1)
    return ((input.sgn() * (ratio * g)).masked_fill(size == 0, 0),)


@operator(name="_vector_norm", aten=InAten(node="linalg_vector_norm"), vjp=General(vector_norm_vjp, forwards=True), fused=True)
def _vector_norm(input: Tensor, ord: float, dim: Dims, keepdim: bool) -> Tensor:
    """(sum |x|^p)^(1/p) with its limits for p = 0, inf and -inf."""
    dims = canonical_dims(dim, input.ndim)
    kind = input.dtype.to_real()
    x = cast(input, float32) if input.dtype.itemsize < 4 else input
    n = _count(input, dims)
    if type(n) is int and n == 1 and ord:
        out = in_rows(prims.squeeze(prims.abs(x), dims))    # no power of it, which may overflow
    elif ord == 2 and not x.dtype.is_complex:
        out = prims.sqrt(prims.sum(x * x, dims))
    elif ord == 0:
        out = cast(prims.sum(cast(x != 0, int64), dims), kind)
    elif math.isinf(ord):
        out = (prims.amax if ord > 0 else prims.amin)(prims.abs(x), dims)
    elif ord == 1:
        out = prims.sum(prims.abs(x), dims)
    else:
        out = prims.sum(prims.abs(x) ** ord, dims) ** (1.0 / ord)
    return keep_dims(cast(out, kind), dims) if keepdim else cast(out, kind)


@operator(autocast={"cuda": "wide"})
@with_out(exact=True)
def linalg_vector_norm(x: Tensor, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: dtype | None = None) -> Tensor:
    """The p-norm over `dim` of the elements (of the flattened input if `dim` is None)."""
    wide = in_norm_dtype(x, x.dtype if dtype is None else dtype)
    dims = canonical_dims(dim, x.ndim)
    if (ord < 0 or math.isinf(ord)) and builtins.any(_is_zero(x.shape[d]) for d in dims):
        raise RuntimeError(f"linalg.vector_norm cannot compute the {ord} norm on an empty tensor because the operation does not have an "
                           f"identity: shape {list(x.shape)}, dimensions {list(dims)}")
    return _vector_norm(wide, float(ord), dim, keepdim)


def in_norm_dtype(x: Tensor, wanted: dtype) -> Tensor:
    """What a norm in the dtype `wanted` is taken of. RuntimeError for integers, and where the dtype would lose something."""
    own = x.dtype
    if own.category < FLOAT:
        raise RuntimeError(f"linalg.vector_norm: Expected a floating point or complex tensor as input. Got {scalar_type(own)}")
    if own is wanted:
        return x
    fault = ("should be floating point or complex" if wanted.category < FLOAT else
             "should be complex for complex inputs" if own.is_complex and not wanted.is_complex else
             "should be real for real inputs" if wanted.is_complex and not own.is_complex else
             f"should hold the input's {scalar_type(own)} without narrowing" if dtypes.promote_types(own, wanted) is not wanted else "")
    if fault:
        raise RuntimeError(f"linalg.vector_norm: dtype {fault}, but got {scalar_type(wanted)}")
    return cast(x, wanted)


@operator(method=True, autocast={"cuda": "wide"})
@with_out(exact=True)
def norm(input: Tensor, p: float | str | None = "fro", dim: Dims = None, keepdim: bool = False, *, dtype: dtype | None = None) -> Tensor:
    """torch.norm: the p-norm over `dim` (over everything if None); 'fro' is the 2-norm of all elements."""
    if p == "nuc":
        return OPERATORS["linalg_matrix_norm"](input, "nuc", (-2, -1) if dim is None else dim, keepdim, dtype=dtype)
    if isinstance(p, str):
        if p != "fro":
            raise RuntimeError(f"torch.norm: order {p!r} is not known; strings are 'fro' and 'nuc'")
        if isinstance(dim, (tuple, list)) and len(dim) > 2:
            raise RuntimeError(f"torch.norm: the Frobenius norm is over at most 2 dimensions, got dim={tuple(dim)}")
        p = 2.0
    return linalg_vector_norm(input, 2.0 if p is None else p, dim, keepdim, dtype=dtype)


@operator(method=True, autocast={"cuda": "wide"}, node=True)
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of input - other."""
    only_tensors("dist", input=input, other=other)
    return linalg_vector_norm(input - other, p)


# -- running forms -------------------------------------------------------------------------------------------
def _running(name: str, *more: Any) -> Callable:
    prim = getattr(prims, name)

    def fn(input: Tensor, dim: int, *, dtype: dtype | None = None, out: Tensor | None = None) -> Tensor:
        dim = canonical_dim(dim, input.ndim)
        if _computed_in(dtype, out) is bool_ and input.ndim and 0 not in input._layout.shape:
            raise NotImplementedError(f'"{name}_out_cpu" not implemented for \'Bool\'; sums and products of bools are of int64')
        return _finish(prim(_accumulator(input, _computed_in(dtype, out)), dim, *more), out)

    fn.__name__, fn.__doc__ = name, f"Running {name[3:]} along `dim`; integers and bools in int64."
    made = operator(fn, method=True, autocast={"cuda": "wide"})

    @operator(name=f"{name}_", method=True, tags=("inplace",))
    def in_place(self: Tensor, dim: int, *, dtype: dtype | None = None) -> Tensor:
        """The running form written over `self`, in its dtype."""
        dim = canonical_dim(dim, self.ndim)
        if dtype is not None and dtype is not self.dtype:
            raise RuntimeError(f"Bad in-place call: input tensor dtype {self.dtype} and output tensor dtype {dtype} should match")
        if self.dtype.category == BOOL:
            if self.ndim and self.numel():
                raise NotImplementedError(f'"{name}_out_cpu" not implemented for \'Bool\'; convert the tensor with .int() first')
            return assign(self, self.clone())
        return assign(self, new_value(fn, self, (dim,), {"dtype": self.dtype}))

    return made


cumsum, cumprod = _running("cumsum", False), _running("cumprod")


def _running_extremum(name: str) -> Callable:
    prim = getattr(prims, name)

    def fn(input: Tensor, dim: int) -> Any:
        d = canonical_dim(dim, input.ndim)
        if not input.ndim:
            return named(name, input.clone(), input.new_zeros((), dtype=int64))
        return named(name, *prim(input, d))

    fn.__name__, fn.__doc__ = name, f"Running {name[3:]}imum along `dim` and where it stands (the last of equals)."
    return operator(with_out(fn, exact=True), method=True, node=True)


cummax, cummin = _running_extremum("cummax"), _running_extremum("cummin")


@operator(method=True)
@with_out(exact=True)
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """Running log(sum(exp(input))) along `dim`, without overflow."""
    d = canonical_dim(dim, input.ndim)
    if input.dtype.category < FLOAT:
        raise NotImplementedError(f'"logcumsumexp_out_cpu" not implemented for {scalar_type(input.dtype)!r}; convert it with .float() first')
    return prims.logcumsumexp(to_float(input), d, False) if input.ndim else to_float(input).clone()     # of one number it is that number


@operator(method=True)
@with_out
def diff(input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    """The n-th differences of neighbours along `dim`."""
    if not input.ndim:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"diff(): order must be non-negative but got {n}")
    d = canonical_dim(dim, input.ndim)
    pieces = [t for t in (prepend, input, append) if t is not None]
    if {t.ndim for t in pieces} != {input.ndim}:
        raise RuntimeError("diff expects prepend or append to be the same dimension as input, got shapes "
                           f"{[list(t.shape) for t in pieces]}")
    if n and len(pieces) == 1 and _is_zero(input.shape[d]):
        return input
    x = OPERATORS["cat"](pieces, d) if len(pieces) > 1 and n else input
    for _ in range(n):
        size = x.shape[d]
        if _is_zero(size):
            break
        later, earlier = x.narrow(d, 1, size - 1), x.narrow(d, 0, size - 1)
        x = later ^ earlier if x.dtype.category == BOOL else later - earlier
    return apart(x, input)
