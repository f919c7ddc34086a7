"""Differences that stay: where torch is wrong, or where Flambeau's own choice is documented. Each has its reason."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from . import compare
from .program import Ref, Step, Word, code


class Values(NamedTuple):
    """What a step came to: the tensors that it read (torch's, by name), and one result, ours and torch's."""

    step: Step
    inputs: dict[str, Any]
    ours: np.ndarray
    theirs: np.ndarray


@dataclass(frozen=True)
class Known:
    """An excuse: for errors a predicate over (ours, torch's, step), for values one over the step and `where`, a mask of elements; for
    layouts (strides, offset, memory shared), versions, gradients and the indices of equal elements one over the step too; for all that
    a step does one over the step and torch's result. `reads`: of gradients, the dtypes of which a step must read one; `at`: what the
    arrays that it reads or makes, by name, must be like."""

    reason: str
    error: Callable[[BaseException | None, BaseException | None, Step], bool] | None = None
    values: Callable[[Step], bool] | None = None
    where: Callable[[Values], Any] = lambda v: True
    layout: Callable[[Step], bool] | None = None
    version: Callable[[Step], bool] | None = None
    gradient: Callable[[Step], bool] | None = None
    reads: str = ""
    at: Callable[[Step, dict[str, np.ndarray]], Any] = lambda step, arrays: True
    index: Callable[[Step], bool] | None = None
    whole: Callable[[Step, Any], bool] | None = None


def _some(has: Callable[[np.ndarray], Any]) -> Callable[[Step, dict[str, np.ndarray]], bool]:
    return lambda step, arrays: any(a.dtype.kind in "fc" and bool(np.any(has(a))) for a in arrays.values())


def _shape_of(step: Step, place: int, name: str, arrays: dict[str, np.ndarray]) -> tuple[int, ...]:
    """The shape of the tensor that is an argument; none where it is less than a whole one."""
    given = step.args[place] if len(step.args) > place else step.kwargs.get(name)
    return arrays[code(given)].shape if isinstance(given, Ref) and code(given) in arrays else ()


def _says(error: BaseException | None, *words: str) -> bool:
    return error is not None and any(word in str(error) for word in words)


def _of(*names: str) -> Callable[[Step], bool]:
    return lambda step: step.op.rpartition(".")[2] in names


def _lost(v: Values) -> Any:
    """Where torch has NaN and Flambeau a number."""
    return ~np.isfinite(v.theirs) if v.theirs.dtype.kind in "fc" else False


def _read(v: Values) -> Iterator[Any]:
    """The tensors that a step reads, one by one."""
    left = list(v.inputs.values())
    while left:
        x = left.pop()
        if hasattr(x, "detach"):
            yield x
        elif isinstance(x, (list, tuple)):
            left.extend(x)


def _any(inputs: Any, has: Callable[[np.ndarray], Any]) -> bool:
    """Whether one of the tensors that a step reads has something."""
    if isinstance(inputs, (list, tuple, dict)):
        return any(_any(i, has) for i in (inputs.values() if isinstance(inputs, dict) else inputs))
    if not hasattr(inputs, "detach") or not (inputs.is_floating_point() or inputs.is_complex()):
        return False
    return bool(np.any(has((inputs.to_dense() if inputs.is_complex() else inputs.double()).detach().resolve_conj().numpy())))


def _by_condition(v: Values) -> Any:
    """Where a difference is what a library may lose of a matrix of such a condition: all of it where that is singular as far as its
    dtype tells."""
    lost = 0.0
    for x in v.inputs.values():
        if hasattr(x, "detach") and (x.is_floating_point() or x.is_complex()) and x.ndim >= 2 and x.numel() and x.isfinite().all():
            digits = np.finfo(np.float32 if x.dtype.itemsize <= 4 + 4 * x.is_complex() else np.float64).eps
            values = np.linalg.svd(compare.array(x.to_dense()).astype(np.complex128), compute_uv=False)
            lost = max(lost, float((8 * digits * values[..., 0] / np.maximum(values[..., -1], 1e-300)).max()))
    finite = np.abs(v.theirs[np.isfinite(v.theirs)])
    return lost >= 1 or np.abs(v.ours - v.theirs) <= lost * finite.max(initial=0)


def _not_finite(v: Values) -> bool:
    return _any(v.inputs, lambda x: ~np.isfinite(x))


def _large_integers(v: Values) -> bool:
    """Whether a step reads integers whose sums of products an integer dtype may not hold."""
    return any(compare.array(t).size > 0 and np.abs(compare.array(t).astype(np.float64)).max() ** 2 * max(t.numel(), 2) > np.iinfo(
               compare.array(t).dtype).max for t in _read(v) if compare.array(t).dtype.kind in "iu")


def _may_overflow(v: Values) -> bool:
    """Whether a product of the tensors that a step reads, or of one with itself, may be infinite, on the way or in the end."""
    largest = np.finfo(v.theirs.dtype).max if v.theirs.dtype.kind in "fc" else np.inf
    sizes = [np.abs(compare.array(t)).astype(np.float64) for t in _read(v) if t.numel()]
    with np.errstate(all="ignore"):
        return not math.prod(x.max() for x in (sizes * 2 if len(sizes) == 1 else sizes)) * max((x.size for x in sizes), default=1) < largest


def _has_constant_row(v: Values) -> bool:
    rows = [np.atleast_1d(compare.array(t)) for t in _read(v) if t.numel()]
    return any(bool((np.abs(x - x[..., :1]).max(-1) <= 1e-6 * np.abs(x).max(-1)).any()) for x in rows)


def _beside_nan(v: Values) -> Any:
    """Where an operand of an elementwise step is NaN; everywhere, where its elements are others than the result's."""
    nans = [np.isnan(compare.array(t)) for t in _read(v) if compare.array(t).dtype.kind in "fc"]
    fits = all(n.ndim <= v.ours.ndim and all(a in (1, b) for a, b in zip(n.shape[::-1], v.ours.shape[::-1])) for n in nans)
    return sum((np.broadcast_to(n, v.ours.shape) for n in nans), np.zeros(v.ours.shape, bool)) if fits else any(n.any() for n in nans)


def _overflows(v: Values) -> Any:
    """What is not finite, where a product of what a step reads may not be."""
    return (_lost(v) | ~np.isfinite(v.ours)) & _may_overflow(v)


def _reads(v: Values, dtypes: str) -> bool:
    """Whether a tensor that a step reads is of one of these dtypes."""
    return any(compare.dtype_name(t) in dtypes.split() for t in _read(v))


def _argument(v: Values, place: int, name: str) -> Any:
    """The tensor that an argument of a step was, torch's."""
    given = v.step.args[place] if len(v.step.args) > place else v.step.kwargs.get(name)
    return eval(code(given), dict(v.inputs)) if isinstance(given, Ref) else None


def target(step: Step) -> Any:
    """What a step writes to, if it does."""
    return step.written


def _copied(x: Any) -> Any:
    return [_copied(i) for i in x] if isinstance(x, (list, tuple)) else x.detach().clone() if hasattr(x, "detach") else x


def _as_of_copies(v: Values) -> bool:
    """Whether what a step wrote is what the other library writes where no operand shares memory with another."""
    step, into = v.step, target(v.step)
    written = eval(code(into), dict(v.inputs))
    library = type(written[0] if isinstance(written, (list, tuple)) else written).__module__.partition(".")[0]
    alone = {"kwargs": {**step.kwargs, "out": Ref("alone")}} if "out" in step.kwargs else {"args": (Ref("alone"), *step.args[1:])}
    space = {"torch": sys.modules[library], "numpy": np, "alone": _copied(written),
             **{name: _copied(x) for name, x in v.inputs.items()}}
    try:
        exec(replace(step, **alone).code(), space)
    except RuntimeError:    # torch writes a product to some out=, and refuses a copy of it that lies alike
        return False
    right, ours, theirs = compare.array(space["alone"]), v.ours, v.theirs
    alike = [(right, ours, theirs)] if right.shape == ours.shape else []
    alike.append(tuple(np.sort(x, None) for x in (right, ours, theirs)))    # another view of what was written
    return right.size != ours.size or any(
        tuple(bool(compare.unlike(x, want, str(want.dtype))) for x in (a, b)) == (False, True) for want, a, b in alike)


def _same_order(v: Values) -> bool:
    """Whether two orders of a tensor along some dimension put equal elements into the same places."""
    x = compare.array(_argument(v, 0, "input"))
    most = max(int(i.max(initial=0)) for i in (v.ours, v.theirs))
    along = [d for d in range(x.ndim) if x.shape == v.ours.shape and most < x.shape[d]]
    return any(np.array_equal(*(np.take_along_axis(x, order, d) for order in (v.ours, v.theirs)), equal_nan=x.dtype.kind in "fc")
               for d in along)


def _value(step: Step, place: int, name: str, default: Any) -> Any:
    return step.args[place] if len(step.args) > place else step.kwargs.get(name, default)


def _number(x: Any) -> Any:
    """A number, by itself or as NumPy's; 1 for what is none."""
    x = eval(x.text, {"numpy": np, "torch": sys.modules["torch"]}) if isinstance(x, Word) else x
    return x if isinstance(x, (int, float, complex, np.generic)) else 1


def _wild_scores(v: Values) -> Any:
    """Where an attention's scores, or the bias that is added to them, are not finite, row by row; everywhere, where a value is not."""
    query, key, value, mask = (_argument(v, at, name) for at, name in enumerate(("query", "key", "value", "attn_mask")))
    wild = compare.array(value)
    q, k = (compare.array(x).astype(np.float64) for x in (query, key))
    if not np.isfinite(wild).all() or q.shape[:-2] != k.shape[:-2]:
        return _not_finite(v)
    with np.errstate(all="ignore"):
        scores = (q @ np.swapaxes(k, -1, -2)).astype(v.theirs.dtype)
    rows = ~np.isfinite(scores).all(-1, keepdims=True)
    if mask is not None and mask.is_floating_point():
        bias = compare.array(mask).astype(np.float64)
        rows = rows | (np.isnan(bias) | (bias == np.inf)).any(-1, keepdims=True) | np.isinf(bias).all(-1, keepdims=True)
    return rows


def _beside_an_edge(v: Values) -> Any:
    """The bins of a histogram on whose edges an element lies, as far as rounding tells."""
    bins, span = _value(v.step, 1, "bins", 100), v.step.kwargs.get("range")
    x = compare.array(_argument(v, 0, "input")).astype(np.float64).reshape(-1)
    if not isinstance(bins, int) or v.ours.shape != (bins,) or not np.isfinite(x).all() or not x.size:
        return False
    low, high = (x.min(), x.max()) if span is None else span
    edges = np.linspace(low, high, bins + 1) if low < high else np.linspace(low - 1, high + 1, bins + 1)
    on = (np.abs(x[:, None] - edges) <= 4 * np.finfo(v.ours.dtype).eps * np.abs(edges).max()).any(0)
    return on[:-1] | on[1:]


def _put_there(v: Values) -> Any:
    """Where both libraries put one of several elements that are for the same place."""
    target = compare.array(_argument(v, 0, "input"))
    if target.size != v.ours.size or not target.size:
        return False
    if _of("as_strided_scatter")(v.step):
        size, stride, start = (_value(v.step, at, name, None) for at, name in ((2, "size"), (3, "stride"), (4, "storage_offset")))
        places = sum((s * np.arange(n).reshape(-1, *[1] * (len(size) - 1 - d)) for d, (n, s) in enumerate(zip(size, stride))),
                     _argument(v, 0, "input").storage_offset() if start is None else start)
        source = compare.array(_argument(v, 1, "src"))
    elif v.step.form == "setitem":
        space = {**v.inputs, "places": sys.modules["torch"].arange(target.size).reshape(target.shape)}
        exec(Step("found", "getitem", "", (Ref("places"), v.step.args[1])).code(), space)
        places = space["found"].numpy()
        source = np.broadcast_to(compare.array(_argument(v, 2, "")), places.shape)
    else:
        places, source = (compare.array(_argument(v, i, name)) for i, name in ((1, "index"), (2, "source")))
    given = np.arange(target.size)[:, None] == places.reshape(-1) % target.size
    source = source.reshape(-1).astype(v.ours.dtype)
    one, other = ((source == x.reshape(-1, 1)) | ((source != source) & (x != x).reshape(-1, 1)) for x in (v.ours, v.theirs))
    several = given.sum(1) > 1
    there = several & (given & one).any(1) & (given & other).any(1)
    if np.all(there | (v.ours == v.theirs).reshape(-1)):
        return there.reshape(v.ours.shape)
    meant = given[several].any(0)       # another view of what was written: its places are others, the elements are not
    return ((one & meant).any(1) & (other & meant).any(1)).reshape(v.ours.shape)


_LAPACK = ("inverse", "inv", "solve", "solve_ex", "inv_ex", "det", "slogdet", "logdet", "pinv", "pinverse", "cond", "matrix_power", "lstsq",
           "cholesky_solve", "cholesky_inverse", "solve_triangular", "tensorinv", "tensorsolve", "matrix_exp", "householder_product",
           "orgqr", "ormqr", "triangular_solve", "lu_solve")

_PLUS_PRODUCTS = tuple(n + e for n in ("addmm", "addmv", "addbmm", "baddbmm") for e in ("", "_"))


def _function(step: Step) -> str:
    """What a step computes, in place or not."""
    return step.op.rpartition(".")[2].rstrip("_")


# The Bessel functions' polynomials beyond 5; the cancelling of a half and half an erf; series that end early.
_OFF = {**dict.fromkeys(("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"), 1e-5), "airy_ai": 3e-6, "ndtr": 1e-7, "polygamma": 1e-8,
        "igamma": 1e-8, "igammac": 1e-8, "gammainc": 1e-8, "gammaincc": 1e-8}

_UNSEEN = {"Dimension out of range": ("roll", "cummax", "cummin", "diff"), "dropout probability": ("scaled_dot_product_attention",),
           "Expected a floating point or complex tensor": ("eigh", "eigvalsh", "lu", "lu_factor", "lu_factor_ex")}
_NO_DIMENSION = ("Dimension out of range", "tensor has no dimensions")

KNOWN = (
    Known("torch's special functions are so far off (tests/ops/test_math.py has more digits)", values=lambda step: _function(step) in _OFF,
          where=lambda v: np.abs(v.ours - v.theirs)
          < max(_OFF[_function(v.step)], np.finfo(v.ours.dtype).eps) * np.maximum(np.abs(v.ours), 1)),
    Known("torch takes the trapezoidal rule as the sum less half of the ends: infinite ends are NaN, integers overflow, and a single "
          "infinite point is an area", values=_of("trapz", "trapezoid"),
          where=lambda v: _lost(v) | _any(v.inputs, lambda x: np.abs(x) > 1e15) | (not _any(v.inputs, lambda x: True))),
    Known("what LAPACK makes of a matrix that holds infinities or NaNs hangs on the library, as does NaN for pivots that are subnormal",
          values=_of(*_LAPACK), where=lambda v: _lost(v) | _not_finite(v) | (np.isnan(v.ours) & _any(
              v.inputs, lambda x: (x != 0) & (np.abs(x) < 1e-37)))),
    Known("torch sorts NaNs among slices in no order, so that equal ones stay apart",
          whole=lambda step, theirs: _of("unique")(step) and "dim" in step.kwargs and _any(theirs, np.isnan)),
    Known("torch has complex infinity or NaN where what it passes through overflows, or is 0 ** 0, which is 1", values=lambda step: step.op
          in ("**", "**=") or _of("logaddexp", "logaddexp2", "logcumsumexp", "logsumexp", "pow", "pow_", "float_power", "float_power_",
          "vander")(step), where=lambda v: _lost(v) & (v.theirs.dtype.kind == "c")),
    Known("a logarithm's angle is known up to a turn, and not at all where it is huge",
          values=_of("logcumsumexp", "logaddexp", "logsumexp"), where=lambda v: v.ours.dtype.kind == "c" and (
              _any(v.inputs, lambda x: np.abs(x.imag) > 1e7) | np.isclose(v.ours.real, v.theirs.real, atol=1e-3) & np.isclose(
                  np.exp(1j * v.ours.imag), np.exp(1j * v.theirs.imag), atol=1e-3))),
    Known("torch takes a tensor beside an alpha by its place for a number", whole=lambda step, theirs: _of("rsub")(step)
          and len(step.args) > 2),
    Known("topk(sorted=False) is in no order", values=lambda step: _of("topk")(step) and (
          any(a is False for a in step.args[4:]) or step.kwargs.get("sorted") is False),
          where=lambda v: np.array_equal(np.sort(v.ours, None), np.sort(v.theirs, None), equal_nan=v.ours.dtype.kind in "fc")),
    Known("a sort that is not asked to be stable may leave equal elements in any order", index=_of("sort", "msort"),
          values=lambda step: _of("argsort")(step) and not step.kwargs.get("stable"), where=_same_order),
    Known("the softmax of scores that are infinite, by no mask, is NaN; torch takes a row that sees nothing for one, and the NaN of what a "
          "mask hides for one that is seen", values=_of("scaled_dot_product_attention"),
          where=lambda v: (np.isnan(v.ours) | np.isnan(v.theirs)) & _wild_scores(v)),
    Known("an attention is given a mask or is causal, as documented; torch's kernel of narrow floats takes both",
          error=lambda ours, theirs, step: theirs is None and _of("scaled_dot_product_attention")(step)
          and _says(ours, "Explicit attn_mask should not be set when is_causal=True")),
    Known("a position that is NaN stands for -1, as documented, and an infinite one is outside; what torch makes of it hangs on the "
          "padding", values=_of("grid_sample"), where=lambda v: ~np.isfinite(compare.array(_argument(v, 1, "grid"))).all(-1)[:, None]),
    Known("torch's cov of weighted observations takes their mean off the input itself", version=_of("cov"), values=_of("cov"),
          where=lambda v: (x := compare.array(_argument(v, 0, "input"))).tobytes() == v.ours.tobytes() and x.shape == v.ours.shape),
    Known("torch's polygamma is NaN of infinity, and not infinite at some poles; its zeta is NaN where it vanishes",
          values=_of("polygamma", "polygamma_", "zeta"),
          where=lambda v: (_lost(v) & (v.ours == 0)) if _of("zeta")(v.step) else _lost(v) | np.isinf(v.ours)),
    Known("torch's recurrences overflow to NaN, not to the infinity of the highest power, and make what lies in memory of NaN",
          values=lambda step: "_polynomial_" in step.op, where=lambda v: _lost(v) | ~np.isfinite(v.ours)),
    Known("torch's airy_ai loses all digits far below 0", values=_of("airy_ai"),
          where=lambda v: ((v.ours.dtype == np.float32) & (np.abs(v.ours - v.theirs) < 1e-4))
          | (compare.array(_argument(v, 0, "input")) < -1000)),
    Known("squares beyond float32, in which both take the variance (torch's batches channels last apart), and infinite weights: torch, "
          "which makes one factor of weight and deviation and takes the mean times it off, has NaN; equal elements leave their rounding",
          values=_of("layer_norm", "group_norm", "instance_norm", "batch_norm", "native_layer_norm"), where=lambda v: (
              (np.isnan(v.theirs) | (v.ours == 0)) & _any(v.inputs, lambda x: ~(np.abs(x) < 1e18))) | (
                  (v.ours == 0) & (np.abs(v.theirs) < 1e-3))),
    Known("which of several elements for one place stays is nobody's promise", where=_put_there, values=lambda step: (
          _of("put", "put_")(step) and _value(step, 3, "accumulate", False) is not True) or _of("as_strided_scatter")(step) or (
              step.form == "setitem" and isinstance(step.args[2], Ref))),
    Known("torch's softsign takes the absolute value, and adds 1, in integers", values=_of("softsign"), where=lambda v: (
          x := compare.array(_argument(v, 0, "input"))).dtype.kind in "iu" and np.abs(x.astype(float)) >= np.iinfo(x.dtype).max),
    Known("NaN is the largest number where equally frequent ones are told apart; torch takes the first", values=_of("mode"),
          where=lambda v: _any(v.inputs, np.isnan)),
    Known("a factor of Cholesky's has a real diagonal", values=_of("cholesky_inverse"), where=lambda v: v.ours.dtype.kind == "c" and _any(
          v.inputs, lambda x: np.diagonal(x, 0, -2, -1).imag != 0)),
    Known("powers of a matrix of a huge norm are rounding", values=_of("matrix_exp"),
          where=lambda v: _any(v.inputs, lambda x: np.abs(x) > 100)),
    Known("NaN is in no domain; torch takes the incomplete gamma functions of NaN and 0 to be 0 and 1, of tiny ones a multiple",
          values=_of("igamma", "igammac", "igamma_", "igammac_", "gammainc", "gammaincc"),
          where=lambda v: (np.isnan(v.ours) & _any(v.inputs, np.isnan)) | _any(v.inputs, lambda x: (x != 0) & (np.abs(x) < 1e-20))),
    Known("an infinite factor of a sum: torch multiplies the terms", values=_of(*_PLUS_PRODUCTS),
          where=lambda v: _lost(v) & (_number(v.step.kwargs.get("alpha", 1)) in (np.inf, -np.inf) or _of("addbmm", "addbmm_")(v.step))),
    Known("whether a padding of zeros is multiplied, and what overflows on the way, hangs on how sums of products are computed",
          values=lambda step: "conv" in step.op or _of("cov", "corrcoef")(step), where=_overflows),
    Known("what overflows on the way hangs on how a product is computed", where=_overflows,
          values=lambda step: step.op == "@" or _of("mm", "bmm", "matmul", "linear", "bilinear", "mv", "dot", "vdot", "inner", "tensordot",
                                                    "cov", "corrcoef", *_PLUS_PRODUCTS)(step)),
    Known("torch computes with integers in integers, which overflow: sums of products, squares, differences, means",
          values=_of("cov", "corrcoef", "local_response_norm", "triplet_margin_loss", "triplet_margin_with_distance_loss",
                     "gradient"), where=lambda v:
          _large_integers(v) or ("triplet" not in v.step.op and compare.array(_argument(v, 0, "input")).dtype.kind in "iub")),
    Known("torch adds the margin to one distance, in which it is lost if that is large, before it takes the other off",
          values=lambda step: "triplet_margin" in step.op, where=lambda v: np.abs(v.ours - v.theirs) <= 4 * max((
              compare.closeness(compare.dtype_name(t), compare.array(t)) for t in _read(v)), default=0)),
    Known("a product that overflows or vanishes on its way to a zero or an infinity hangs on the order", values=_of("prod"),
          where=lambda v: np.isnan(v.ours) != np.isnan(v.theirs)),
    Known("torch takes one complex number off another by multiplying it with -1, and the variance of each part, which makes NaN of half "
          "an infinity", values=_of("pairwise_distance", "dist", "std", "var", "std_mean", "var_mean"),
          gradient=_of("pairwise_distance", "dist", "triplet_margin_loss"), reads="complex64 complex128", at=_some(np.isinf),
          where=lambda v: np.isinf(v.ours) & np.isnan(v.theirs) & _reads(v, "complex64 complex128")),
    Known("torch passes an infinity on its way: the quotient of a remainder, the exponential of a soft margin or a Bessel function",
          values=lambda step: step.op in ("%", "%=") or _of("fmod", "remainder", "fmod_", "remainder_", "soft_margin_loss", "i0",
                                                            "i0_")(step),
          where=lambda v: _lost(v) & np.isfinite(v.ours)),
    Known("0 times what is not finite is NaN, as documented: alpha=0; BLAS does not look at it",
          values=lambda step: _of(*(n + e for n in ("addmm", "addmv", "addbmm", "baddbmm") for e in ("", "_")))(step) and not _number(
              step.kwargs.get("alpha", 1)), where=lambda v: np.isnan(v.ours)),
    Known("dtype= says to what elements are cast before they are added up; torch casts the sum", values=_of("sum", "mean"),
          where=lambda v: np.isnan(v.ours) & np.isinf(v.theirs) & ("dtype" in v.step.kwargs)),
    Known("torch lays an inverse that is written to an out= in rows",
          layout=lambda step: _of("matrix_power")(step) and "out" in step.kwargs),
    Known("NaN is nowhere near, nor within a margin; torch drops it", values=_of("cdist", "pdist", "multi_margin_loss",
          "multilabel_margin_loss"), where=lambda v: np.isnan(v.ours) & _not_finite(v)),
    Known("torch's ldexp lies in rows where nothing is broadcast", layout=_of("ldexp")),
    Known("torch's way to a number subtracts infinities or multiplies them by 0: what lies between two of them, the mean and the sum of "
          "what holds one, the loss of an infinite score", where=lambda v: _lost(v) & _not_finite(v),
          values=_of("var_mean", "std_mean", "quantile", "nanquantile", "zeta", "binary_cross_entropy_with_logits")),
    Known("what weights of 0 make of infinities hangs on the algorithm", values=lambda step: "fft" in step.op
          or _of("interpolate", "upsample", "tensordot", "grid_sample")(step),
          where=lambda v: (_lost(v) | ~np.isfinite(v.ours)) & _not_finite(v)),
    Known("a float that is beyond an integer's 32 bits comes to anything there", values=_of("to", "byte", "char", "short", "int", "type",
          "type_as", "copy_"), where=lambda v: v.theirs.dtype.kind in "iu" and _any(v.inputs, lambda x: ~(np.abs(x) < 2**31))),
    Known("torch scales a truth value where a product has no terms", error=lambda ours, theirs, step: ours is None
          and _of(*_PLUS_PRODUCTS)(step) and _says(theirs, "result type Long can't be cast to the desired output type Bool")),
    Known("torch's median along a dimension reads memory around a tensor that is expanded there", values=_of("median", "nanmedian"),
          where=lambda v: (x := compare.array(_argument(v, 0, "input"))).size > 0 and np.isin(v.ours, x) & ~np.isin(v.theirs, x)),
    Known("no integer is the median of nothing, nor an infinity", values=_of("median", "nanmedian", "nansum"),
          where=lambda v: v.theirs.dtype.kind in "iu" and (_not_finite(v) or any(t.numel() == 0 for t in v.inputs.values()))),
    Known("torch's matmul changes the strides of a vector that is out=",
          whole=lambda step, theirs: _of("matmul", "linear")(step) and "out" in step.kwargs and getattr(theirs, "ndim", 0) == 1),
    Known("torch lets aminmax write to its own operand where that is a number by its side", error=lambda ours, theirs, step:
          theirs is None and _of("aminmax")(step) and "out" in step.kwargs and _says(ours, "refer to a single memory location")),
    Known("a window of too many sizes, or of such that are no integers, is refused; torch does not look at them", error=lambda ours, theirs,
          step: theirs is None and "max_unpool" in step.op and _says(
              ours, "to be a single integer value or a list of", "must be Sizes", "must be int or a sequence of")),
    Known("torch's edges of bins of one width are rounded otherwise: what lies upon one may be counted beside it", values=_of("histogram"),
          where=lambda v: _beside_an_edge(v) & np.isclose(v.ours.sum(), v.theirs.sum())),
    Known("torch counts float16 and bfloat16 where a range is given or nothing is counted, and refuses them otherwise",
          error=lambda ours, theirs, step: theirs is None and _of("histogram")(step) and isinstance(ours, NotImplementedError)),
    Known("what is beyond all steps is the last one; torch makes an integer of it first, which wraps around",
          values=_of("fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine"),
          where=lambda v: _any(v.inputs, lambda x: ~(np.abs(x) < 1e7))),
    Known("detach_copy passes no gradient on, as detach; torch's does", gradient=_of("detach_copy")),
    Known("counts have no derivative; torch says that a histogram has one, and refuses it", gradient=_of("histogram")),
    Known("strides of dimensions of one element, which say nothing; all others are compared after each step",
          whole=lambda step, theirs: step.op == "stride"),
    Known("a constant row's correlation is 0 / 0; torch divides rounding by rounding", values=_of("corrcoef"),
          where=lambda v: np.isnan(v.ours) & _has_constant_row(v)),
    Known("torch reads what it has just written where operands share memory; Flambeau reads what was there",
          values=lambda step: isinstance(target(step), Ref), where=_as_of_copies),
    Known("which NaN it is, and so its sign, is nobody's promise", values=_of("signbit", "copysign", "copysign_", "view"),
          where=_beside_nan),
    Known(
        "torch has no kernel for this dtype on the CPU; Flambeau computes it",
        error=lambda ours, theirs, step: (
            ours is None
            and _says(
                theirs,
                "not implemented for",
                "not support",
                "nsupported dtype",
                "Unsupported input type",
                "INTERNAL ASSERT",
                "expected scalar type",
            )
        ),
    ),
    Known(
        "Flambeau names what it leaves out",
        error=lambda ours, theirs, step: isinstance(ours, NotImplementedError) and theirs is not None,
    ),
    Known("a hessian lies in rows; torch's is the transpose of one", layout=lambda step: "hessian" in step.op),
    Known("a truth value is asked for: a tensor is a TypeError; torch asks what it holds",
          error=lambda ours, theirs, step: isinstance(ours, TypeError) and _says(theirs, "Boolean value of Tensor")),
    Known(
        "torch's parser refuses an argument by its type before the operator sees it; Flambeau takes what Python's own rules take, and "
        "refuses the rest with an exception of the step that could not use it",
        error=lambda ours, theirs, step: isinstance(theirs, TypeError) and not isinstance(ours, AttributeError),
    ),
    Known(
        "torch still writes through expanded tensors in operators where it warns that it will refuse",
        error=lambda ours, theirs, step: theirs is None and _says(ours, "more than one element of the written-to tensor"),
    ),
    Known(
        "torch takes NumPy's bool for a float, not for a bool; what comes of it is not compared",
        whole=lambda step, theirs: "numpy.bool_(" in step.code(),
    ),
    Known("whether 3-D convolutions of torch lie channels last hangs on the dtype, the batch and the number of threads; Flambeau's do "
          "where the weight or the batch does", layout=_of("conv3d", "conv_transpose3d")),
    Known("an output that is a view is not resized beyond the memory that it looks into",
          error=lambda ours, theirs, step: _says(ours, "out= is a view of shape")),
    Known("torch forgets the weight's channels where the input has none",
          whole=lambda step, theirs: "conv" in step.op and hasattr(theirs, "numel") and not theirs.numel() and 0 in theirs.shape[:-1]),
    Known("torch's kron doesn't count writing to an out= of another dtype", version=_of("kron")),
    Known("torch views what it should reshape, and guesses sizes of nothing", error=lambda ours, theirs, step: ours is None and _of(
          "kron", "take_along_dim", "bilinear", "matrix_exp", "conv_tbc")(step)
          and _says(theirs, "view size is not compatible", "cannot reshape tensor of 0")),
    Known("what is read is read before anything is written: operands may overlap what they are written to; torch refuses that where it "
          "sees it", error=lambda ours, theirs, step: (ours is None or isinstance(ours, (IndexError, RuntimeError)))
          and _says(theirs, "input tensor and the written-to tensor refer to")),
    Known("a call with two mistakes is refused for one of them: torch has no kernel for the dtype, Flambeau says what else is wrong",
          error=lambda ours, theirs, step: isinstance(ours, (IndexError, TypeError, ValueError, RuntimeError))
          and _says(theirs, "not implemented for", "Unsupported dtype", "Could not run 'aten::")),
    Known("a call with two mistakes is refused for one of them: a dimension that is not there, and something else",
          error=lambda ours, theirs, step: all(isinstance(e, (IndexError, ValueError, RuntimeError)) for e in (ours, theirs))
          and (_says(ours, *_NO_DIMENSION) or _says(theirs, *_NO_DIMENSION))),
    Known("a call with two mistakes is refused for one of them: a number that the dtype doesn't hold, and an index",
          error=lambda ours, theirs, step: isinstance(ours, IndexError) and _says(theirs, "value cannot be converted to type")),
    Known("whether torch makes a transposed convolution's empty image hangs on the library that it takes", error=lambda ours, theirs, step:
          theirs is None and "conv_transpose" in step.op and _says(ours, "Output size is too small")),
    Known("torch does not look at what changes nothing: the dimension along which nothing is rolled or compared, a dropout below 0, "
          "the dtype of empty matrices", error=lambda ours, theirs, step: theirs is None and any(
              _of(*names)(step) and _says(ours, words) for words, names in _UNSEEN.items())),
    Known("what is singular, or positive-definite, up to rounding hangs on the library", error=lambda ours, theirs, step:
          (ours is None or theirs is None) and _says(ours or theirs, "is singular", "positive-definite", "failed to converge")),
    Known("an imaginary number is no float: TypeError; torch speaks of overflow", error=lambda ours, theirs, step:
          isinstance(ours, TypeError) and _says(theirs, "value cannot be converted to type") and "complex(" in step.code()),
    Known("a string is no index: TypeError, also where there is nothing to index", error=lambda ours, theirs, step:
          isinstance(ours, TypeError) and _says(ours, "an index cannot be a string") and isinstance(theirs, IndexError)),
    Known("torch unpacks a window of the wrong length, and asserts in Python; Flambeau says what is wrong",
          error=lambda ours, theirs, step: isinstance(ours, (RuntimeError, TypeError))
          and (_says(theirs, "values to unpack", "tuple index out of range") or isinstance(theirs, AssertionError))),
    Known("a call with two mistakes is refused for one of them: an argument of a wrong type, at which torch's functions in Python do not "
          "look", error=lambda ours, theirs, step: isinstance(ours, TypeError) and theirs is not None and _says(ours, "' (position ")
          and step.op.startswith("torch.nn.functional.")),
    Known("an index beyond the end is refused; torch's take_along_dim counts it modulo the size, and subscripts that come to nothing are "
          "not looked at", error=lambda ours, theirs, step: theirs is None and _says(ours, "out of bounds") and (
              step.form in ("getitem", "setitem") or _of("take_along_dim", "max_unpool1d", "max_unpool2d", "max_unpool3d")(step))),
    Known("a number that a narrow float doesn't hold is refused; torch makes an infinity of it where it fills a single element",
          error=lambda ours, theirs, step: theirs is None and ("fill" in step.op or "full" in step.op) and _says(
              ours, *(f"converted to type {kind} without overflow" for kind in ("float16", "bfloat16")))),
    Known("a complex result does not fit a real out=; torch keeps its real part",
          error=lambda ours, theirs, step: theirs is None and "out" in step.kwargs and _says(ours, "result type torch.complex")),
    Known("torch leaves more memory behind a loss than its element",
          error=lambda ours, theirs, step: theirs is None and _of("as_strided", "as_strided_", "as_strided_copy")(step)
          and _says(ours, "but the storage has")),
    Known("a square beyond a dtype is infinite; torch's is not where it is added up in the same instruction",
          values=lambda step: "RMSprop" in step.op, where=lambda v: np.isnan(v.ours) & _may_overflow(v)),
    Known("what would take more memory than there is: torch makes all that it will choose from",
          error=lambda ours, theirs, step: ours is None and _of("combinations")(step) and _says(theirs, "can't allocate memory")),
    Known("Intel's transforms refuse some empty batches", error=lambda ours, theirs, step: ours is None and _says(theirs, "MKL FFT error")),
    Known("torch.unique_consecutive(x, True) gives no inverse; return_inverse=True does",
          whole=lambda step, theirs: _of("unique_consecutive")(step) and len(step.args) > 1),
    Known("torch's ihfft2 and ihfftn leave what is given as out= as it was, or resize it and leave it empty",
          whole=lambda step, theirs: _of("ihfft2", "ihfftn")(step) and "out" in step.kwargs),
    Known("torch's vector loops of sinh and cosh overflow from half the largest number on, on some processors",
          values=_of(*(n + e for n in ("sinh", "cosh") for e in ("", "_"))),
          where=lambda v: np.isinf(v.theirs) & (np.abs(v.ours) > 1.7e38) & (np.sign(v.ours) == np.sign(v.theirs))),
    Known("torch fills an out= of these that is not in rows in the wrong order, or not at all",
          values=lambda step: _of("avg_pool3d", "gelu", "narrow_copy")(step) and "out" in step.kwargs),
    Known("a greatest common divisor is positive; torch's of the least integer wraps around", values=_of("gcd", "gcd_"),
          where=lambda v: (v.ours > 0) & (v.theirs == -v.ours)),
    Known("the only element of a tensor without dimensions is in the middle, as in NumPy; torch's roll wants a dimension",
          error=lambda ours, theirs, step: ours is None and _of("fftshift", "ifftshift")(step) and _says(theirs, "`shifts` required")),
    Known("what the factors of an ill-conditioned matrix round to hangs on the library", values=_of(*_LAPACK), where=_by_condition),
    Known("torch refuses images that it could pool: of four dimensions without a batch, as a batch of images without depth; and smaller "
          "than a kernel of three dimensions, though padded", error=lambda ours, theirs, step: _says(
              theirs, "Unsupported memory format. Supports only ChannelsLast3d", *(["smaller than kernel size"] if ours is None else []))),
    Known("a conjugate is computed, never a view that waits (which torch's ifft of real numbers is too)", layout=lambda step:
          _of("mH", "H", "adjoint", "conj", "imag", "resolve_conj", "resolve_neg")(step) or (_of("ifft")(step) and "out" in step.kwargs)),
    Known("a truth value written in place has no gradient; torch gives zeros for a comparison's operands, and passes a logical operation's",
          gradient=_of(*[name + "_" for name in ("eq", "ne", "lt", "le", "gt", "ge", "equal", "not_equal", "less", "less_equal", "greater",
                                                 "greater_equal", "logical_not", "logical_and", "logical_or", "logical_xor")])),
    Known("Flambeau knows derivatives that torch lacks, or that torch gives up because of a write of its own",
          gradient=lambda step: any(name in step.op for name in ("_polynomial_", "bessel", "vander", "airy"))),
    Known("torch's derivative is wrong: of ldexp 2**-n in integers, of polar by the sign of the length, of hardsigmoid a sixth in float32, "
          "of what is made of a factor of Cholesky's by its other triangle, which is not read",
          gradient=_of("ldexp", "ldexp_", "polar", "hardsigmoid", "cholesky_inverse", "cholesky_solve")),
    Known("torch's derivative is wrong: of what it negates, squares or scales in narrow integers",
          gradient=_of(*(n + e for n in ("atan2", "arctan2", "addcmul", "addcdiv", "lerp") for e in ("", "_"))),
          reads="uint8 int8 int16 int32"),
    Known("torch's derivative is wrong where it leaves the range of a dtype: of acosh by a square, of a power to the least integer",
          gradient=lambda step: step.op in ("**", "**=") or _of(*(n + e for n in ("acosh", "arccosh", "pow") for e in ("", "_")))(step),
          at=lambda step, arrays: any(np.any(np.abs(a) > 1e18) if a.dtype.kind == "f" else a.dtype.kind == "i" and np.any(
              a == np.iinfo(a.dtype).min) for a in arrays.values())),
    Known("torch's derivative of cosine_similarity takes what is shorter than eps for longer", gradient=_of("cosine_similarity"),
          at=lambda step, arrays: any(a.dtype.kind == "f" and np.any(np.abs(a) < _number(_value(step, 3, "eps", 1e-8)))
                                      for a in arrays.values())),
    Known("torch's derivative of nan_to_num is zero for a complex number of which one part alone was replaced",
          gradient=_of("nan_to_num", "nan_to_num_"), reads="complex64 complex128"),
    Known("torch's derivative of sinc loses its digits near 0", gradient=_of("sinc", "sinc_"), reads="float16 bfloat16 float32",
          at=_some(lambda x: (np.abs(x) < 0.1) | (np.abs(np.abs(x) - 1) < 0.1))),
    Known("at NaN torch takes the slope of a piecewise function for that of one piece or another, by where an element lies in a vector, "
          "and that of a Bessel function for its slope at 0", at=_some(np.isnan), gradient=_of(*(n + e for n in (
              "relu6", "elu", "selu", "celu", "hardtanh", "hardshrink", "softshrink", "hardswish", "i1", "i1e", "xlogy") for e in (
                  "", "_")))),
    Known("what LAPACK makes of a matrix that holds infinities hangs on the library",
          gradient=_of("svdvals", "svd", "nuclear_norm", *_LAPACK), at=_some(lambda x: ~np.isfinite(x))),
    Known("torch's derivative of an extremum shares with what include_self=False leaves out",
          gradient=lambda step: _of("scatter_reduce", "scatter_reduce_", "index_reduce", "index_reduce_")(step)
          and step.kwargs.get("include_self") is False and any(mode in step.code() for mode in ("amax", "amin"))),
    Known("torch's derivative of scatter_reduce repeats the gradient over what no index is for, and divides float16 by zero",
          gradient=_of("scatter_reduce", "scatter_reduce_"), at=lambda step, arrays: _shape_of(step, 2, "index", arrays)
          != _shape_of(step, 3, "src", arrays) or any(a.dtype == np.float16 and np.any(a == 0) for a in arrays.values())),
    Known("torch's derivative of as_strided_scatter is of what was written over, not of what is left", gradient=_of("as_strided_scatter")),
    Known("torch's view in the dtype that a tensor has already passes no gradient on", gradient=_of("view"),
          at=lambda step, arrays: "torch." in step.code().partition("(")[2]),
    Known("det's gradient is the cofactors; torch gives zeros for a singular matrix", gradient=_of("det")),
    Known("what has no derivative passes no gradient on where it writes in torch; Flambeau's is zeros",
          gradient=lambda step: step.op == "//=" or _of("floor_divide_", "heaviside_")(step)),
    Known("torch lets a logical operation write to a leaf that requires grad, and to one of several views, which raises later",
          error=lambda ours, theirs, step: theirs is None and _says(ours, "a leaf Variable", "of a function that returns multiple views")
          and _of("logical_xor_", "logical_and_", "logical_or_", "logical_not_")(step)),
    Known("torch's copies of views write to an out= though a gradient is asked for, which is lost", error=lambda ours, theirs, step:
          theirs is None and step.op.endswith("_copy") and "out" in step.kwargs and _says(ours, "don't support automatic differentiation")),
    Known("torch's stft looks into memory: elements that are one place share the mean of their gradients", gradient=_of("stft"),
          at=lambda step, arrays: any(np.unique(a).size < a.size for a in arrays.values())),
    Known("the edges of a window are what rounding leaves of 0", values=lambda step: step.op.endswith("_window") or ".windows." in step.op,
          where=lambda v: (np.abs(v.ours) < 1e-7) & (np.abs(v.theirs) < 1e-7)),
    Known("torch's digamma has a derivative of 1e-9", gradient=lambda step: _of("digamma", "psi", "digamma_")(step) or (
        "kl_divergence" in step.op and any(f"distributions.{name}(" in step.op for name in ("Beta", "Gamma", "Dirichlet")))),
    Known("a product of reflections of nothing has a gradient of zeros, in torch none", gradient=_of("orgqr", "householder_product"),
          at=lambda step, arrays: any(a.size == 0 for a in arrays.values())),
    Known("a truth value is no size; torch takes it for one where its Python reads sizes", error=lambda ours, theirs, step: theirs is None
          and isinstance(ours, TypeError) and _says(ours, "a tuple of ints, not bool")),
    Known("norm(p=0) counts: its gradient is zeros here and None in torch", gradient=lambda step: _of("norm", "dist", "pairwise_distance",
          "triplet_margin_loss", "vector_norm")(step) and any(
              type(x) in (int, float) and x == 0 for x in (*step.args, step.kwargs.get("p"), step.kwargs.get("ord")))),
    Known(
        "torch's Python stumbles over an argument of a wrong type; Flambeau says which, or takes a number for a tensor",
        error=lambda ours, theirs, step: (isinstance(ours, TypeError) or _says(theirs, "'float' object", "'int' object")) and (
            isinstance(theirs, AttributeError) or _says(
                theirs, "At least one of 'min' or 'max' must not be None", "only one element tensors can be converted",
                "align_to_window should only be set")),
    ),
    Known(
        "torch's deprecated calls with a number before the tensors that it scales, of which it warns",
        error=lambda ours, theirs, step: (
            _says(ours, "too many positional arguments") and _of(*(n + e for n in ("add", "sub", "addcmul", "addcdiv", "addmm", "addmv",
                  "addr", "baddbmm", "addbmm", "subtract") for e in ("", "_")))(step)
        ),
    ),
    Known(
        "torch computes garbage for matrices of narrow floats (the exponential of the identity is negative there)",
        error=lambda ours, theirs, step: isinstance(ours, NotImplementedError) and _of("matrix_exp")(step),
    ),
    Known(
        "there is no complex dtype of two float16",
        whole=lambda step, theirs: "complex32" in str(getattr(theirs, "dtype", "")),
        error=lambda ours, theirs, step: _says(ours, "view_as_complex is only supported for float and double"),
    ),
    Known("torch's derivative of complex numbers is wrong: of products by index_reduce and scatter_reduce it is not conjugated, and of a "
          "cumprod in a real dtype it is complex", reads="complex64 complex128", gradient=lambda step: _of(
              "index_reduce", "index_reduce_", "scatter_reduce", "scatter_reduce_")(step) or (
                  _of("cumprod", "cumprod_")(step) and "dtype" in step.kwargs)),
    Known("which of several equal elements is meant is nobody's promise", gradient=_of("quantile", "nanquantile"),
          index=_of("topk", "kthvalue", "mode", "median", "nanmedian")),
    Known(
        "torch copies the gaps between the elements of a sliced tensor too",
        layout=_of("slice_scatter", "select_scatter", "diagonal_scatter", "as_strided_scatter"),
    ),
    Known("a distribution's answers lie as whichever of several operands its formula meets first", layout=lambda step:
          "torch.distributions." in step.op),
    Known("torch writes running statistics without counting it as a write",
          version=_of("batch_norm", "instance_norm")),
)


def written_in_order(step: Step) -> bool:
    """Whether a step may write to a place several times; where it does, a GPU's threads do in no order."""
    names = ("scatter", "index_copy", "index_put", "put", "as_strided_scatter")
    return step.form == "setitem" or _of(*(n + e for n in names for e in ("", "_")))(step)


def tells_the_device(step: Step) -> bool:
    """Whether a step is another one on a GPU: it says where tensors lie, copies them elsewhere, or concerns the CPU alone; or it reads
    the bits of NaN."""
    telling = _of("cpu", "get_device", "is_cuda", "device", "repr", "str", "pin_memory", "is_pinned", "type", "hash_tensor")
    return telling(step) or '"cpu"' in step.op


def by_a_library(step: Step) -> bool:
    """Whether libraries compute a step, which on a GPU are others: they meet what is not finite in other orders."""
    name = _function(step)
    return name in _LAPACK or name.startswith(("conv", "eig", "svd", "qr", "cholesky", "lu", "group_norm")) or "stft" in name or "fft" in name


def ordered_by_size(step: Step) -> bool:
    """Whether a step adds up in an order that hangs on sizes: where they are symbolic, on those of the first call."""
    return _of("interpolate")(step)


def shows_places(step: Step) -> bool:
    """Whether a step reads memory by where it lies, which in a batch is elsewhere; torch's vmap of it makes other shapes."""
    return _of("as_strided_", "as_strided_scatter")(step)


def excuses_step(step: Step, theirs: Any) -> bool:
    return any(k.whole is not None and k.whole(step, theirs) for k in KNOWN)


def excuses_version(step: Step) -> bool:
    return any(k.version is not None and k.version(step) for k in KNOWN)


def excuses_layout(step: Step) -> bool:
    return any(k.layout is not None and k.layout(step) for k in KNOWN)


def excuses_error(ours: BaseException | None, theirs: BaseException | None, step: Step) -> bool:
    return any(k.error is not None and k.error(ours, theirs, step) for k in KNOWN)


def excuses_gradients(step: Step, tensors: dict[str, Any]) -> bool:
    """`tensors`: those of a program, by name."""
    rows = [k for k in KNOWN if k.gradient is not None and k.gradient(step)]
    if not rows:
        return False
    near = {name: t for name, t in tensors.items() if name.split("[")[0] in {*step.refs(), step.target}}
    read = {compare.dtype_name(t) for name, t in near.items() if name.split("[")[0] in step.refs()}
    arrays = {code(x): np.asarray(_number(x)) for x in step.args[1:]} | {name: compare.array(t) for name, t in near.items()}
    return any((not k.reads or read & set(k.reads.split())) and k.at(step, arrays) for k in rows)


def excuses_unused(steps: Iterable[Step]) -> bool:
    """torch loses the gradient of a view of a leaf that is a view itself, if something writes to its memory behind autograd."""
    steps = list(steps)
    return any("no_grad" in step.op for step in steps) or (
        any(_of("detach")(step) for step in steps) and any(target(step) is not None for step in steps))


def excused_values(step: Step, inputs: dict[str, Any], ours: np.ndarray, theirs: np.ndarray) -> Any:
    """Which elements of a result of a step are excused."""
    mask: Any = False
    for k in KNOWN:
        if k.values is not None and k.values(step):
            mask = mask | np.asarray(k.where(Values(step, inputs, ours, theirs)))
    return mask


def excused_gradients(steps: Iterable[Step], at: np.ndarray, ours: np.ndarray, theirs: np.ndarray) -> Any:
    """NaN, of zeros times what is not finite, where there may be a number, or of a sum of infinities; what no finite gradient is the
    gradient of; of which sign an infinity at 0 is; and NaN at NaN, where torch takes a piecewise function for the piece of larger
    numbers. torch's zeros for the gradient of sgn stay zeros times infinity (those of sign don't). `at`: what it is a gradient of."""
    steps = list(steps)
    if theirs.dtype.kind not in "fc":
        return False
    wild = ~np.isfinite(theirs) | (np.isnan(at) & np.isnan(ours)) | (np.isnan(ours) & any(map(_of("sgn", "sgn_"), steps)))
    poles = (at == 0) & np.isinf(ours) & np.isinf(theirs)
    return wild if any(map(_of("logdet", "slogdet"), steps)) else (wild & (np.isnan(theirs) | np.isnan(ours))) | poles


def excuses_index(step: Step, name: str) -> bool:
    """Whether `name` is the second result of a step, of which it is free which of several indices it holds."""
    out = step.kwargs.get("out")
    second = {f"{step.target}[1]"} | ({code(out[1])} if isinstance(out, tuple) and len(out) == 2 else set())
    return name in second and any(k.index is not None and k.index(step) for k in KNOWN)


# torch's derivatives that stumble where Flambeau's don't: over bools, a missing weight, int32 indices, a real operand beside a complex one
_STUMBLES = ("with a bool tensor is not supported", "on a bool tensor is not supported", "tensor does not have a device",
             "Expected dtype int64 for index", "isFloatingType(grad.scalar_type())", "with two bool tensors is not supported",
             "must be contiguous", "doesn't match the broadcast shape", "is triggered with a negative slope",
             "Expected grad_output to have non-zero size", "tensor.mH is only supported", "must be batches of square matrices")

# what they keep hangs on how they are computed; torch's kron keeps what it multiplies and misses a write to it
_KEEPERS = ("kron", "matmul", "inner", "tensordot", "bilinear", "scaled_dot_product_attention", "cross_entropy",
            "group_norm", "rms_norm", "gru_cell")


def _keeps_more(step: Step) -> bool:
    return step.op in ("@", "/") or _of(*_KEEPERS)(step)


def excuses_backward(ours: BaseException | None, theirs: BaseException | None, steps: Iterable[Step]) -> bool:
    """Flambeau keeps less for the backward pass than torch, and lets one of several views be written, so that programs run which torch
    refuses; a few operators keep more (tests/autograd/test_saved_values.py). Compiled programs compute again from their inputs what
    eager keeps: who writes to those in between is told so."""
    if _says(ours, "modified by an inplace operation") and (theirs is None or _says(theirs, *_STUMBLES)):
        return _says(ours, "needed by CompiledFunctionBackward") or theirs is not None or any(map(_keeps_more, steps))
    if isinstance(ours, NotImplementedError) and _says(ours, "the derivative of") and _says(theirs, *_STUMBLES):
        return True     # each is the first that its library meets of two steps without a derivative
    return ours is None and _says(theirs, "modified by an inplace operation", "derivative for", "not implemented for", "INTERNAL ASSERT",
                                        "can't be cast to", "another view of its base has been modified inplace", *_STUMBLES)
