"""Comparisons of whole tensors, number theory, special functions and numerical integration."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from operator import mul as multiply
from typing import Any

import numpy as np

from ..core.dtypes import BOOL, FLOAT, INT, bool_, float64, int32, scalar_type, uint8
from ..core.lazy import LazyFunctions
from ..core.scalar import compute_dtype
from ..core.size import canonical_dim, canonical_dims
from ..core.tensor import Tensor
from . import prims
from .formulas import _sine_over, logaddexp_backward
from .order import elementwise, in_rows
from .pointwise import not_tensors, where, with_fractions
from .primitives import InAten, lies_like, waiting
from .promotion import broadcast, cast, default_dtype, only_tensors, prepare, result_type, rounded, to_float
from .reductions import _differ, linalg_vector_norm, vector_norm_vjp
from .registry import OPERATORS, PRIMITIVES, Absent, General, Pointwise, Primitive, Spec, operator, pointwise, primitive
from .return_types import named
from .writing import assign, inplace, new_value, with_out

special = LazyFunctions("scipy.special")


# -- comparing whole tensors -------------------------------------------------------------------------------------
@operator(method=True)
def isclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Elementwise |input - other| <= atol + rtol * |other|."""
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{scalar_type(input.dtype)} did not match {scalar_type(other.dtype)}")
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value < 0:
            raise RuntimeError(f"{name} must be greater than or equal to zero, but got {value}")
    x, y = broadcast(input, other)
    same = x == y
    if x.dtype.category < FLOAT:
        if rtol == 0 and atol == 0:
            return same
        x, y = cast(x, float64), cast(y, float64)
    near = prims.abs(x - y) <= atol + rtol * prims.abs(y)
    close = same | (near & y.isfinite())
    return close | (x.isnan() & y.isnan()) if equal_nan else close


@operator(method=True)
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether isclose holds everywhere."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@operator(method=True)
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether shapes and all elements are the same."""
    if input.shape != other.shape:
        return False
    x, y = prepare(input, other)
    return bool(prims.eq(x, y).all())


@operator(method=True)
def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not zero."""
    if input.numel() != 1:
        many = "no values" if not input.numel() else "more than one value"
        raise RuntimeError(f"Boolean value of Tensor with {many} is ambiguous")
    return bool(input)


@operator(method=True)
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether the shapes are the same."""
    return tuple(input.shape) == tuple(other.shape)


def _refuse_complex(x: Tensor, name: str) -> None:
    if x.dtype.is_complex:
        raise RuntimeError(f"{name} does not support complex inputs, got {x.dtype}")


@operator(method=True, tags=("keeps_zero",))
@with_out(exact=True)
def isposinf(input: Tensor) -> Tensor:
    """Whether each element is +inf."""
    _refuse_complex(input, "isposinf")
    return input == math.inf if input.dtype.category >= FLOAT else prims.ne(input, input)


@operator(method=True, tags=("keeps_zero",))
@with_out(exact=True)
def isneginf(input: Tensor) -> Tensor:
    """Whether each element is -inf."""
    _refuse_complex(input, "isneginf")
    return input == -math.inf if input.dtype.category >= FLOAT else prims.ne(input, input)


@operator(method=True)
def isreal(input: Tensor) -> Tensor:
    """Whether each element has no imaginary part."""
    return prims.imag(input) == 0 if input.dtype.is_complex else prims.eq(input, input) | prims.ne(input, input)


@operator(method=True)
def resolve_conj(input: Tensor) -> Tensor:
    """A tensor whose elements lie in memory as they are: a copy of a conjugate view, other tensors themselves."""
    return input.clone() if waiting(input)[0] else input


@operator(method=True)
def resolve_neg(input: Tensor) -> Tensor:
    """A tensor whose elements lie in memory as they are: a copy of a negative view, other tensors themselves."""
    return input.clone() if waiting(input)[1] else input


@operator(method=("positive", "__pos__"))
def positive(input: Tensor) -> Tensor:
    """The tensor itself; bools are refused."""
    if input.dtype.category == BOOL:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


# -- primitives without a loop body: SciPy's and NumPy's functions ------------------------------------------------
_NO_LOOP = "no scalar operation for it; inductor calls the kernel"


def _wide(fn: Callable) -> Callable:
    """`fn` on f32 and f64 as they are, on narrower floats through f32."""
    def kernel(*args: Any) -> np.ndarray:
        kinds = [a.dtype for a in args if isinstance(a, np.ndarray)]
        with np.errstate(all="ignore"):
            if kinds[0].itemsize < 4:
                return np.asarray(fn(*(a.astype(np.float32) if isinstance(a, np.ndarray) else a for a in args))).astype(kinds[0])
            return np.asarray(fn(*args)).astype(kinds[0], copy=False)
    return kernel


_SPECIAL = frozenset({"i0e", "i1", "i1e", "ndtri", "erfcx", "log_ndtr", "zeta"})    # whose ATen names begin with special_


def _library(name: str, fn: Callable, d: dict[str, Any] | None = None, *, params: Sequence[str] = ("x",),
             why: str = "", samples: Any = None) -> Primitive:
    """An elementwise primitive computed by a library function."""
    def shape(x: Tensor, *rest: Any) -> Spec:
        if x.dtype.is_complex:
            raise NotImplementedError(f'"{name}_cpu" not implemented for \'{scalar_type(x.dtype)}\'; it takes real tensors')
        return Spec(x._layout.shape, x.dtype, lies_like([a for a in (x, *rest) if isinstance(a, Tensor)]))

    why_absent = {"loop": _NO_LOOP} | ({} if d else {"derivative": why or "no closed form in the table"})
    record = primitive(name, kernel=_wide(fn), derivative=Pointwise(**d) if d else None, tensors=len(params), why_absent=why_absent,
                       doc=f"Elementwise {name}, as scipy.special has "
                           f"it.", tags=("recomputable",), samples=samples or (lambda r: [(r.uniform(0.3, 0.9, (2, 3)),)]))(shape)
    record.params, record.aten = tuple(params), InAten(node=f"special_{name}" if name in _SPECIAL else "")
    return record


def _two_positive(r: Any) -> list:
    return [(r.uniform(0.5, 3, (2, 3)), r.uniform(0.5, 3, (2, 3)))]


def _unknown(name: str, which: str) -> Callable:
    """The rule of a derivative that has no formula here: asked for, it is refused, and not silently none."""
    def rule(g: Tensor) -> Tensor:
        raise NotImplementedError(f"the derivative of {name} for its {which} argument is not implemented; detach() that argument")
    rule.refuses = True  # type: ignore[attr-defined]
    return rule


_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def _over(i1: Tensor, x: Tensor) -> Tensor:
    """i1(x) / x, a half near 0."""
    near = prims.abs(x) < 1e-30
    return (i1 / x.masked_fill(near, 1)).masked_fill(near, 0.5)


i0_prim = _library("i0", special.i0, {"x": lambda x: i1_prim(x)})
i0e_prim = _library("i0e", special.i0e, {"x": lambda x, out: i1e_prim(x) - x.sgn() * out})
i1_prim = _library("i1", special.i1, {"x": lambda x, out: i0_prim(x) - _over(out, x)})
i1e_prim = _library("i1e", special.i1e, {"x": lambda x, out: i0e_prim(x) - out * x.sgn() - _over(out, x)})
ndtri_prim = _library("ndtri", special.ndtri, {"x": lambda out: (out * out / 2).exp() * math.sqrt(2 * math.pi)})
erfcx_prim = _library("erfcx", special.erfcx, {"x": lambda x, out: 2 * x * out - 2 / math.sqrt(math.pi)})
log_ndtr_prim = _library("log_ndtr", special.log_ndtr, {
    "x": lambda x: _SQRT_2_OVER_PI / erfcx_prim(-x * math.sqrt(0.5))})
polygamma_prim = _library("polygamma", lambda x, n: special.polygamma(n, x), {"x": lambda x, n: polygamma_prim(x, n + 1)},
                          params=("x", "n"), samples=lambda r: [(r.uniform(0.5, 3, (2, 3)), 1)])
polygamma_prim.tensors, polygamma_prim.tensor_positions = 1, (0,)
polygamma_prim.aten = InAten(call=lambda x, n: ("polygamma", (n, x), {}) if n > 1 else None)
zeta_prim = _library("zeta", special.zeta, {"x": _unknown("zeta", "first"), "y": lambda x, y: -x * zeta_prim(x + 1, y)}, params=("x", "y"),
                     samples=lambda r: [(r.uniform(2, 4, (2, 3)), r.uniform(1, 3, (2, 3)))])
igamma_prim = _library("igamma", special.gammainc, {
    "x": _unknown("igamma", "first"), "y": lambda x, y: ((x - 1) * y.log() - y - x.lgamma()).exp()},
    params=("x", "y"), samples=_two_positive)
igammac_prim = _library("igammac", special.gammaincc, {
    "x": _unknown("igammac", "first"), "y": lambda x, y: -((x - 1) * y.log() - y - x.lgamma()).exp()},
    params=("x", "y"), samples=_two_positive)
betainc_prim = _library("betainc", special.betainc, {
    "x": _unknown("betainc", "first"), "y": _unknown("betainc", "second"),
    "z": lambda x, y, z: ((x - 1) * z.log() + (y - 1) * (-z).log1p() + (x + y).lgamma() - x.lgamma() - y.lgamma()).exp()},
    params=("x", "y", "z"), samples=lambda r: [(*(r.uniform(0.5, 3, (2, 3)) for _ in range(2)), r.uniform(0.1, 0.9, (2, 3)))])


def _airy(slope: bool) -> Callable:
    """Ai or its derivative; where the library gives up, by the first term of its expansions (Abramowitz and Stegun, 10.4.59-10.4.62)."""
    def fn(x: np.ndarray) -> np.ndarray:
        out = np.asarray(special.airy(x)[int(slope)])
        far = np.isnan(out) & np.isfinite(x)
        if not far.any():
            return out
        size = np.abs(x, dtype=np.float64)
        turn, root = 2 / 3 * size ** 1.5 - math.pi / 4, size ** 0.25 / math.sqrt(math.pi)
        swing = np.sin(turn) * root if slope else np.cos(turn) / root / math.pi
        return np.where(far, np.where(x > 0, 0, swing), out)

    return fn


airy_ai_prim = _library("airy_ai", _airy(False), {"x": lambda x: airy_ai_slope_prim(x)})
airy_ai_slope_prim = _library("airy_ai_slope", _airy(True), {"x": lambda x: x * airy_ai_prim(x)})


def _hankel_terms(order: int, count: int) -> list[float]:
    """a_k of Hankel's expansion: the product of (4 order^2 - (2j - 1)^2) / (8 j) over j up to k."""
    products = itertools.accumulate(((4 * order**2 - (2 * j - 1) ** 2) / (8 * j) for j in range(1, count)), multiply, initial=1.0)
    return list(products)


def _far_bessel(order: int, second: bool) -> Callable:
    """J or Y of order 0 or 1, beyond 25 by Hankel's expansion (Abramowitz and Stegun, 9.2.5-9.2.10): cos(x - phase) from the cosine and
    the sine of x itself, since x - phase, rounded, is off by as much as half a last place of x."""
    near, terms = getattr(special, f"{'y' if second else 'j'}{order}"), _hankel_terms(order, 18)

    def fn(x: np.ndarray) -> np.ndarray:
        size = np.abs(x)
        far = (size > 25) & np.isfinite(size)
        out = np.asarray(near(x))
        if not far.any():
            return out
        z = np.asarray(x, np.float64)[far]
        t = 1 / np.abs(z)
        p, q = (sum((-1) ** k * a * t ** (2 * k) for k, a in enumerate(terms[odd::2])) for odd in (0, 1))
        q = q * t
        sin, cos = np.sin(np.abs(z)), np.cos(z)
        c, s = (sin + cos, sin - cos) if not order else (sin - cos, -sin - cos)    # of x - phase, times sqrt 2
        found = np.sqrt(t / math.pi) * (p * s + q * c if second else p * c - q * s)
        out = out.astype(np.float64)
        out[far] = np.where(z < 0, np.nan if second else found * (-1) ** order, found)
        return out
    return fn


for _name in ("j0", "j1", "y0", "y1", "k0", "k1", "k0e", "k1e"):
    _library(f"bessel_{_name}", _far_bessel(int(_name[1]), _name[0] == "y") if _name[0] in "jy" else getattr(special, _name),
             why="Bessel functions other than i0, i1 have none here yet")


def _trigamma(o: Any, x: Any) -> Any:
    """The recurrence ten steps up, then the asymptotic series; reflection below 0."""
    low = o.lt(x, 0)
    y = o.where(low, o.sub(1, x), x)
    steps = [o.reciprocal(o.mul(z, z)) for z in (o.add(y, k) for k in range(10))]
    v = o.reciprocal(o.add(y, 10))
    s, tail = o.mul(v, v), 7 / 6
    for term in (691 / 2730, 5 / 66, 1 / 30, 1 / 42, 1 / 30, 1 / 6):
        tail = o.sub(term, o.mul(s, tail))
    total = o.add(o.mul(v, o.add(1, o.mul(v, o.add(0.5, o.mul(v, tail))))), functools.reduce(o.add, reversed(steps)))
    mirror = o.truediv(math.pi, o.sin(o.mul(o.sub(x, o.round(x)), math.pi)))
    return o.where(low, o.sub(o.mul(mirror, mirror), total), total)


trigamma_prim = pointwise("trigamma", _trigamma, samples=lambda r: [(r.uniform(0.5, 3, (2, 3)),)], d=dict(x=lambda x: polygamma_prim(x, 2)))


def _unary(name: str, prim: Primitive, doc: str, *, method: Any = False) -> Callable:
    def fn(input: Tensor) -> Tensor:
        return prim(to_float(input))

    fn.__name__, fn.__doc__ = name, doc
    return operator(with_out(fn), name=name, method=method)


i0 = _unary("i0", i0_prim, "The modified Bessel function of order 0.", method=True)
special_ops = {
    name: _unary(f"special_{name}", prim, f"Elementwise {name} (see scipy.special).")
    for name, prim in (("i0e", i0e_prim), ("i1", i1_prim), ("i1e", i1e_prim), ("ndtri", ndtri_prim), ("erfcx", erfcx_prim),
                       ("log_ndtr", log_ndtr_prim), ("airy_ai", airy_ai_prim))}
inplace(i0, "i0_")


@operator(method=False, node=True)
@with_out
def polygamma(n: int, input: Tensor) -> Tensor:
    """The n-th derivative of digamma."""
    if n < 0:
        raise RuntimeError(f"polygamma(n, x) does not support negative n, got {n}")
    x = to_float(input)
    return prims.digamma(x) if n == 0 else trigamma_prim(x) if n == 1 else polygamma_prim(x, n)


Tensor.polygamma = lambda self, n: polygamma(n, self)  # type: ignore[method-assign, arg-type]
Tensor.polygamma.__doc__ = polygamma.__doc__
Tensor.polygamma_ = lambda self, n: assign(self, new_value(lambda x: polygamma(n, x), self, (), {}))  # type: ignore[arg-type, method-assign]
Tensor.polygamma_.__doc__ = f"{polygamma.__doc__} In place."


def pair(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Two operands, of which one may be a number, as tensors of one floating dtype and one shape."""
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        raise TypeError(f"expected a Tensor for one of the arguments, got {type(x).__name__} and {type(y).__name__}")
    kind = result_type(x, y)
    kind = kind if kind.category >= FLOAT else default_dtype()
    like = x if isinstance(x, Tensor) else y
    x, y = (cast(v, kind) if isinstance(v, Tensor) else like.new_full((), rounded(v, kind), dtype=kind) for v in (x, y))
    return broadcast(x, y)


def _binary(name: str, prim: Primitive, doc: str, method: Any = False, numbers: bool = False) -> Callable:
    def fn(input: Any, other: Any) -> Tensor:
        if not numbers and not (isinstance(input, Tensor) and isinstance(other, Tensor)):
            raise not_tensors(name, input, other)
        return prim(*pair(input, other))

    fn.__name__, fn.__doc__ = name, doc
    return operator(with_out(fn), name=name, method=method)


igamma = _binary("igamma", igamma_prim, "The regularised lower incomplete gamma function.", True)
igammac = _binary("igammac", igammac_prim, "The regularised upper incomplete gamma function.", True)
special_zeta = _binary("special_zeta", zeta_prim, "The Hurwitz zeta function.", numbers=True)


@operator(method=True, node=True)
@with_out
def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The log of the p-variate gamma function."""
    if input.dtype.category == BOOL:
        raise RuntimeError("The input tensor may not be a boolean tensor.")
    if p < 1:
        raise RuntimeError(f"mvlgamma(): p has to be greater than or equal to 1, got {p}")
    x = to_float(input)
    shifts = x.new_arange(p).to(x.dtype) * -0.5
    return prims.lgamma(prims.unsqueeze(x, x.ndim) + shifts).sum(-1) + p * (p - 1) / 4 * math.log(math.pi)


@operator(method=True)
@with_out
@elementwise
def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """log2(2^input + 2^other), without overflow."""
    only_tensors("logaddexp2", input=input, other=other)
    return _logaddexp2(*with_fractions("logaddexp2", *prepare(input, other)))


@operator(name="_logaddexp2", fused=True, vjp=lambda g, x, y: logaddexp_backward(g, x, y, math.log(2)))
def _logaddexp2(x: Tensor, y: Tensor) -> Tensor:
    kind, wide = x.dtype, compute_dtype(x.dtype)
    x, y = cast(x, wide), cast(y, wide)     # rounded once
    top = prims.maximum(x, y)
    return cast((top + (-abs(x - y)).exp2().log1p() * (1 / math.log(2))).where(~(top.isinf() & (x == y)), top), kind)


# -- integers and exponents -----------------------------------------------------------------------------------------
def _integers(name: str, fn: Callable) -> Callable:
    prim = primitive(name, kernel=fn, tensors=2, doc=f"Elementwise {name} of integers.",
                     samples=lambda r: [(r.integers(1, 50, (2, 3)), r.integers(1, 50, (2, 3)))],
                     why_absent={"derivative": "integers have none", "loop": _NO_LOOP})(
        lambda x, y: Spec(x._layout.shape, x.dtype, lies_like((x, y))))

    def of(input: Tensor, other: Tensor) -> Tensor:
        if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
            raise not_tensors(name, input, other)
        x, y = prepare(input, other)
        if x.dtype.category != INT:
            raise NotImplementedError(f'"{name}_cpu" not implemented for \'{scalar_type(x.dtype)}\'; it takes integers')
        return prim(x, y)

    of.__name__, of.__doc__ = name, f"Elementwise {name} of integers."
    made = operator(with_out(of), method=True)
    inplace(made, name + "_")
    return made


def _lcm(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Computed with 32 bits at least, as C computes, without a sign."""
    wide = np.promote_types(x.dtype, np.int32)
    return np.abs(np.lcm(x.astype(wide), y.astype(wide))).astype(x.dtype)


gcd, lcm = _integers("gcd", np.gcd), _integers("lcm", _lcm)


@operator(method=True)
@with_out
def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """input * 2 ** other."""
    if not isinstance(other, Tensor):
        raise not_tensors("ldexp", input, other)
    if input.dtype.category < FLOAT:
        return input * 2.0 ** other
    kind = result_type(input, other, 1.0)
    x, y = prepare(*(cast(t, compute_dtype(kind)) for t in (input, other)))     # an integer may be more than a narrow float holds
    return cast(elementwise(prims.ldexp)(x, y), kind) if kind.is_floating_point else x * 2.0 ** y


frexp_prim = primitive("frexp", doc="(mantissa, exponent) of floats.", samples=lambda r: [(r.standard_normal((2, 3)),)],
                       kernel=lambda x: tuple(np.frexp(x)), derivative=General(
    lambda gs, out1: (None if gs[0] is None else gs[0] * (-out1.to(gs[0].dtype)).exp2(),)), why_absent={"loop": _NO_LOOP})(
    lambda x: (Spec(x._layout.shape, x.dtype, lies_like([x])), Spec(x._layout.shape, int32, lies_like([x]))))


@operator(method=True)
@with_out(exact=True)
def frexp(input: Tensor) -> Any:
    """(mantissa in [0.5, 1), exponent) with input = mantissa * 2 ** exponent."""
    if input.dtype.category != FLOAT:
        raise RuntimeError(f"torch.frexp() only supports floating-point dtypes, got {input.dtype}")
    return named("frexp", *frexp_prim(input))


# -- integration and differences ------------------------------------------------------------------------------------
def _areas(y: Tensor, x: Tensor | None, dx: float, dim: int) -> Tensor:
    if x is None and isinstance(dx, (bool, complex)):
        raise RuntimeError(f"trapezoid: Currently, we only support dx as a real number. Got {dx}")
    d = canonical_dim(dim, y.ndim)
    n = y.shape[d]
    if x is not None and x.ndim == 1 and _differ(x.shape[0], n):
        raise RuntimeError(f"trapezoid: There must be one `x` value for each sample point, got shapes {list(x.shape)} and {list(y.shape)}")
    if y.dtype is bool_ or (x is not None and x.dtype is bool_):
        raise RuntimeError("trapezoid: received a bool input for `x` or `y`, but bool is not supported")
    y = to_float(y)  # sums of two integers may not fit their dtype
    pair = y.narrow(d, 1, n - 1) + y.narrow(d, 0, n - 1)
    if x is None:
        return pair * (dx / 2)
    lead = (1,) * (y.ndim - x.ndim)
    x = x.reshape((*lead[:d], -1, *lead[d:]) if x.ndim == 1 else (*lead, *x.shape))
    return pair * x.diff(dim=d) / 2


@operator(node=lambda y, x=None, **_: "mul.1" if x is None else "div.1")
def trapezoid(y: Tensor, x: Tensor | Absent = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """The trapezoidal rule along `dim`, over the points `x` or at distance dx."""
    return _trapezoid(y, x, dx, dim)


@operator(name="_trapezoid", fused=True)
def _trapezoid(y: Tensor, x: Tensor | None, dx: float, dim: int) -> Tensor:
    if not (x is None or isinstance(x, Tensor)):
        raise TypeError(f"trapezoid(): the points x must be a Tensor, not {type(x).__name__}; a distance is given as dx=")
    if not y.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    size = y.shape[canonical_dim(dim, y.ndim)]
    if type(size) is int and size == 0:
        return y.new_zeros(tuple(n for d, n in enumerate(y.shape) if d != canonical_dim(dim, y.ndim)))
    return _areas(y, x, dx, dim).sum(canonical_dim(dim, y.ndim))


@operator
def trapz(y: Tensor, x: Tensor | Absent = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """trapezoid under its older name, which takes True for 1."""
    return _trapezoid(y, x, float(dx) if isinstance(dx, bool) else dx, dim)


@operator
def cumulative_trapezoid(y: Tensor, x: Tensor | Absent = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """Running sums of the trapezoidal rule."""
    return _areas(y, x, dx, dim).cumsum(canonical_dim(dim, y.ndim))


def _slopes(x: Tensor, gaps: Any, d: int, edge_order: int) -> Tensor:
    """Derivatives along `d` over points `gaps` apart (a number, or a tensor of distances): of the parabola through three points."""
    s = x.diff(dim=d) / gaps
    n = s.shape[d]

    def at(v: Any, start: int, length: int) -> Any:
        return v.narrow(d, start, length) if isinstance(v, Tensor) else v

    def edge(i: int, beside: int) -> Tensor:
        s0, a = at(s, i, 1), at(gaps, i, 1)
        return s0 if edge_order == 1 else s0 + (s0 - at(s, beside, 1)) * (a / (a + at(gaps, beside, 1)))

    a, b = at(gaps, 0, n - 1), at(gaps, 1, n - 1)
    if isinstance(gaps, Tensor):
        middle = (a * at(s, 1, n - 1) + b * at(s, 0, n - 1)) / (a + b)
    else:       # what lies in the middle has no say
        middle = (at(x, 2, n - 1) - at(x, 0, n - 1)) / (2 * gaps)
    return OPERATORS["cat"]([edge(0, 1), middle, edge(n - 1, n - 2)], d)


@operator
def gradient(input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """The derivatives along each of `dim` (all, unless given) of a function known at points: second-order central differences
    (B. Fornberg, "Generation of finite difference formulas on arbitrarily spaced grids", 1988), one-sided at the ends.

    `spacing`: the distance of the points, or one distance, or tensor of coordinates, for each dimension.
    """
    if input.dtype is uint8:
        raise RuntimeError("torch.gradient does not support uint8 input.")
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    dims = range(input.ndim) if dim is None else canonical_dims(dim, input.ndim)
    spacing = 1 if spacing is None else spacing
    each = list(spacing) if isinstance(spacing, (tuple, list)) else [spacing] * len(dims)
    if len(each) != len(dims):
        raise RuntimeError(f"torch.gradient expected spacing to be a number or a list of one for each of {len(dims)} dimensions, but got "
                           f"a list of length {len(each)}")
    if any(input.shape[d] <= edge_order for d in dims):
        raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
    x, found = to_float(input), []
    for d, gaps in zip(dims, each):
        if isinstance(gaps, Tensor):
            if tuple(gaps.shape) != (x.shape[d],):
                raise RuntimeError(f"torch.gradient expected coordinates of shape [{x.shape[d]}] for dimension {d}, but got "
                                   f"{list(gaps.shape)}")
            gaps = gaps.diff().reshape([-1 if i == d else 1 for i in range(x.ndim)])
        found.append(_slopes(x, gaps, d, edge_order))
    return tuple(found)


@operator(method=True, autocast={"cuda": "wide"})
@with_out(exact=True)
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """The slices along `dim` scaled down to a p-norm of at most `maxnorm`."""
    if input.ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions")
    d = canonical_dim(dim, input.ndim)
    if p <= 0 or maxnorm < 0:
        raise RuntimeError(f"renorm: non-positive-norm not supported, and maxnorm is >= 0; got p={p} and maxnorm={maxnorm}")
    return _renorm(in_rows(input), float(p), [i for i in range(input.ndim) if i != d], float(maxnorm))


def _renorm_vjp(g: Tensor, input: Tensor, p: float, dims: Sequence[int], maxnorm: float) -> tuple:
    """Through the scale and its norm; as it came where nothing was scaled, be the norm NaN."""
    kind, wide = input.dtype, compute_dtype(input.dtype)
    g, x = cast(g, wide), cast(input, wide)
    size = linalg_vector_norm(x, p, dims, True)
    scale = maxnorm / (size + 1e-7)
    along = prims.real(g * x.conj()) if kind.is_complex else g * x
    through, = vector_norm_vjp(-along.sum(dims, keepdim=True) * scale / (size + 1e-7), x, size, p, dims, True)
    return (cast(where(size > maxnorm, g * scale + through, g), kind),)


@operator(name="_renorm", vjp=_renorm_vjp)
def _renorm(input: Tensor, p: float, dims: Sequence[int], maxnorm: float) -> Tensor:
    """The input times the scale that takes a norm over `dims` down to `maxnorm`."""
    x = cast(input, compute_dtype(input.dtype))
    size = linalg_vector_norm(x, p, dims, True)
    return cast(x * (maxnorm / (size + 1e-7)).masked_fill(~(size > maxnorm), 1), input.dtype)  # a norm that is NaN exceeds nothing


inplace(renorm, "renorm_")


# -- the rest of torch.special -----------------------------------------------------------------------------------------
@operator(node="mul.1")
@with_out(rows=True)
def special_ndtr(input: Tensor) -> Tensor:
    """The area under the standard normal density up to each element."""
    return 0.5 * prims.erfc(-to_float(input) * math.sqrt(0.5))


@operator
@with_out
@elementwise
def special_entr(input: Tensor) -> Tensor:
    """-x log x, 0 at 0, -inf below."""
    return _entr(to_float(input))


@operator(name="_entr", aten=InAten(node="special_entr"), vjp=Pointwise(x=lambda x: -x.log() - 1))
def _entr(x: Tensor) -> Tensor:
    safe = x.masked_fill(x <= 0, 1)
    return (-x * safe.log()).masked_fill(x < 0, -math.inf)


@operator
@with_out
@elementwise
def special_xlog1py(input: Any, other: Any) -> Tensor:
    """input * log1p(other), 0 where input is 0 (unless other is NaN)."""
    return _xlog1py(*pair(input, other))


@operator(name="_xlog1py", aten=InAten(node="special_xlog1py"), vjp=Pointwise(
    x=lambda g, x, y: _xlog1py(g, y).masked_fill((x == 0) & (y <= -1), 0),
    y=lambda g, x, y: (g * x / (y + 1)).masked_fill((x == 0) & (y == -1), 0)))
def _xlog1py(x: Tensor, y: Tensor) -> Tensor:
    zero = (x == 0) & ~y.isnan()
    return (x * prims.log1p(y.masked_fill(zero, 0))).masked_fill(zero, 0)


def _bessel(name: str) -> Callable:
    prim = PRIMITIVES[f"bessel_{name}"]
    return _unary(f"special_bessel_{name}", prim, f"The Bessel function {name} (see scipy.special).")


bessel_ops = {name: _bessel(name) for name in ("j0", "j1", "y0", "y1", "k0", "k1", "k0e", "k1e")}


@operator
@with_out
@elementwise
def special_spherical_bessel_j0(input: Tensor) -> Tensor:
    """sin(x) / x, 1 at 0 (Abramowitz and Stegun, 10.1.11)."""
    x = to_float(input)
    finite = x.isfinite()
    return _sine_over(x.masked_fill(~finite, 1)).masked_fill(~finite, 0).masked_fill(x.isnan(), math.nan)
