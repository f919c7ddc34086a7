"""Solving and decomposing matrices: LAPACK through NumPy and SciPy, with derivatives.

The reverse rules are those of M. B. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
differentiation" (2008); I. Murray, "Differentiation of the Cholesky decomposition" (2016); S. F. Walter and L. Lehmann,
"Algorithmic differentiation of linear algebra functions" (2010, QR); J. Townsend, "Differentiating the singular value
decomposition" (2016); G. Golub and V. Pereyra, "The differentiation of pseudo-inverses" (1973).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...backends.cpu.blas import NARROW
from ...core.dtypes import FLOAT, complex64, complex128, dtype, float32, float64, int32, scalar_type
from ...core.lazy import LazyFunctions
from ...core.size import broadcast_shapes, column_strides
from ...core.tensor import Tensor
from ...core.warned import deprecated
from .. import prims
from ..checks import checked
from ..order import laid
from ..patterns import eye, tril, triu
from ..primitives import NO_CALL, InAten
from ..promotion import cast, expand_to
from ..reductions import _differ
from ..registry import General, Spec, operator, primitive
from ..return_types import named
from ..writing import with_out, with_out_in_rows

scipy_linalg = LazyFunctions("scipy.linalg")
_COMPUTED = (float32, float64, complex64, complex128)
_WHY = {"loop": "a LAPACK routine; inductor calls the kernel"}


def _square(r: Any) -> np.ndarray:
    """A well-conditioned sample."""
    return r.standard_normal((2, 3, 3)) + 3 * np.eye(3)


def _positive(r: Any) -> np.ndarray:
    x = _square(r)
    return x @ x.transpose(0, 2, 1)


class _LinAlgError(RuntimeError):
    """A matrix that has no such inverse, factor or solution."""


LinAlgError = _LinAlgError  # the public name


# -- helpers ---------------------------------------------------------------------------------------------------
def _check(x: Tensor, name: str, *, square: bool = False, rank: int = 2) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}(): argument must be Tensor, not {type(x).__name__}")
    if x.dtype not in _COMPUTED and x.dtype.category >= FLOAT and 0 not in x._layout.shape:    # of nothing, no number is rounded
        raise NotImplementedError(f'"{name}" not implemented for \'{scalar_type(x.dtype)}\': convert to float32 or float64')
    if x.dtype.category < FLOAT:
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {scalar_type(x.dtype)}")
    if x.ndim < rank:
        raise RuntimeError(f"{name}: The input tensor A must have at least {rank} dimensions, got shape {list(x.shape)}.")
    if square and x.shape[-1] is not x.shape[-2] and x.shape[-1] != x.shape[-2]:
        raise RuntimeError(f"{name}: A must be batches of square matrices, but they are {x.shape[-2]} by {x.shape[-1]} matrices")


def _which(message: str, kernel: Callable, args: Sequence[Any]) -> str:
    """The message, with the number of the first of several matrices that fails."""
    batch = args[0].shape[:-2]
    for number, at in enumerate(np.ndindex(batch) if batch else ()):
        try:
            kernel(*(a[at] if getattr(a, "shape", ())[: len(batch)] == batch else a for a in args))
        except np.linalg.LinAlgError:
            return message.replace(": ", f": (Batch element {number}): ", 1)
    return message


def _lapack(message: str) -> Callable:
    """Turn NumPy's LinAlgError into ours."""
    def wrap(kernel: Callable) -> Callable:
        @functools.wraps(kernel)
        def call(*args: Any) -> Any:
            try:
                return kernel(*args)
            except np.linalg.LinAlgError as error:
                raise LinAlgError(_which(message, kernel, args)) from error
        vars(call)["failing_alike"] = wrap  # for the kernels of other devices
        return call
    return wrap


def _of_any_float(kernel: Callable) -> Callable:
    """LAPACK has no narrow floats; of those there is nothing here, nor warnings of values."""
    @functools.wraps(kernel)
    @np.errstate(all="ignore")
    def call(*args: Any) -> Any:
        kind = args[0].dtype
        if kind not in NARROW:
            return kernel(*args)
        out = kernel(*[a.astype(np.float32) if isinstance(a, np.ndarray) and a.dtype == kind else a for a in args])
        made = [a.astype(kind) if a.dtype == np.float32 else a for a in (out if isinstance(out, tuple) else (out,))]
        return tuple(made) if isinstance(out, tuple) else made[0]
    return call


def _routine(name: str, kernel: Callable, vjp: Callable, shape: Callable, doc: str, sample: Callable, *, tensors: int = 1,
             failure: str | None = None, aten: InAten = InAten()) -> Any:
    """A primitive that LAPACK computes; `failure` is the message of the LinAlgError where it cannot."""
    kernel = _of_any_float(kernel)
    return primitive(name, aten=aten._replace(node=aten.node or f"linalg_{name}"), doc=doc,
                     kernel=kernel if failure is None else _lapack(failure)(kernel), tensors=tensors, derivative=General(vjp),
                     samples=lambda r: [sample(r)], tags=() if failure is None else ("refuses_values",), why_absent=_WHY)(shape)


def columns(like: Tensor, shape: tuple | None = None, kind: dtype | None = None) -> Spec:
    """Matrices that lie column by column, as LAPACK leaves them, of the shape and dtype of `like` unless given."""
    shape = like._layout.shape if shape is None else shape
    return Spec(shape, kind or like.dtype, column_strides(shape))


def in_columns(x: Tensor) -> Tensor:
    """Matrices that lie column by column."""
    return laid(x, column_strides(x.shape))


def _of_input(x: Tensor) -> Spec:
    return Spec(x._layout.shape, x.dtype)


def _h(x: Tensor) -> Tensor:
    """Conjugate transpose of the matrices."""
    t = prims.permute(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))
    return prims.conj(t) if x.dtype.is_complex else t


def _identity(like: Tensor, n: Any) -> Tensor:
    return eye(n, dtype=like.dtype, device=like.device)


def _diagonal(x: Tensor) -> Tensor:
    return prims.diagonal(x, 0, x.ndim - 2, x.ndim - 1)


def _columns(x: Tensor, scale: Tensor) -> Tensor:
    """x diag(scale)."""
    return x * prims.unsqueeze(scale, scale.ndim - 1)


def _real(x: Tensor) -> Tensor:
    return prims.real(x) if x.dtype.is_complex else x


# -- inverse, solve, determinant ------------------------------------------------------------------------------------
def _inv_vjp(g: Tensor, out: Tensor) -> tuple:
    return (-(_h(out) @ g @ _h(out)),)


inv_prim = _routine("inv", np.linalg.inv, _inv_vjp, lambda x: columns(x), "The inverse of (..., n, n).", lambda r: (_square(r),),
                    aten=InAten(node="linalg_inv_ex"),
                    failure="linalg.inv: The inversion could not be completed because the input matrix is singular.")


@operator(method="inverse", autocast={"cpu": "wide"})
@with_out
def linalg_inv(A: Tensor) -> Tensor:
    """The inverse of square matrices (..., n, n)."""
    _check(A, "linalg.inv", square=True)
    return inv_prim(A)


def _solve_vjp(g: Tensor, a: Tensor, out: Tensor) -> tuple:
    gb = solve_prim(_h(a), g)
    return -(gb @ _h(out)), gb


solve_prim = _routine("solve", np.linalg.solve, _solve_vjp, lambda a, b: columns(b),
                      "X with A X = B for (..., n, n) and (..., n, k) of the same batch.",
                      lambda r: (_square(r), r.standard_normal((2, 3, 2))), tensors=2, aten=InAten(node="linalg_solve_ex"),
                      failure="torch.linalg.solve: The solver failed because the input matrix is singular.")


@operator(autocast={"cpu": "wide"}, node="linalg_solve_ex")
@with_out
def linalg_solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X with A X = B (X A = B if not left); B is a matrix, or a vector (a batch of them if its shape is A's without the last)."""
    _check(A, "linalg.solve", square=True)
    if A.dtype is not B.dtype:
        raise RuntimeError(f"linalg.solve: Expected A and B to have the same dtype, but found A of type {A.dtype} and B of type "
                           f"{B.dtype} instead")
    vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and tuple(B.shape) == tuple(A.shape[:-1]))
    b = prims.unsqueeze(B, B.ndim) if vector else B
    if not left:
        return _h(linalg_solve(_h(A), _h(b)))
    if b.shape[-2] != A.shape[-1]:
        raise RuntimeError(f"linalg.solve: Incompatible shapes of A and B for the equation AX = B ({A.shape[-2]}x{A.shape[-1]} and "
                           f"{b.shape[-2]}x{b.shape[-1]})")
    batch = tuple(broadcast_shapes(tuple(A.shape[:-2]), tuple(b.shape[:-2])))
    x = solve_prim(expand_to(A, (*batch, *A.shape[-2:])), expand_to(b, (*batch, *b.shape[-2:])))
    return laid(prims.squeeze(x, (x.ndim - 1,)), column_strides(tuple(x.shape[:-1]))) if vector else x


def _triangular_kernel(a: np.ndarray, b: np.ndarray, upper: bool, unit: bool) -> np.ndarray:
    """By substitution, which divides by a zero on the diagonal like any other number: infinities and NaNs, not an error."""
    out = np.empty(b.shape[:-2] + b.shape[:-3:-1], b.dtype).swapaxes(-1, -2)    # column by column
    if not b.size:
        return out
    if not scipy_linalg.is_installed:
        return _substitute(a, b, out, upper, unit)
    solve, = scipy_linalg.get_blas_funcs(("trsm",), (a,))
    for at in np.ndindex(b.shape[:-2]):
        out[at] = solve(1, a[at], b[at], lower=not upper, diag=unit)
    return out


def _substitute(a: np.ndarray, b: np.ndarray, out: np.ndarray, upper: bool, unit: bool) -> np.ndarray:
    """The same row by row, where there is no SciPy: its matrix products are NumPy's."""
    n = a.shape[-1]
    with np.errstate(all="ignore"):
        for i in reversed(range(n)) if upper else range(n):
            known = slice(i + 1, n) if upper else slice(0, i)
            row = b[..., i, :] - (a[..., i:i + 1, known] @ out[..., known, :])[..., 0, :]
            out[..., i, :] = row if unit else row / a[..., i, i, None]
    return out


def _triangular_vjp(g: Tensor, a: Tensor, out: Tensor, upper: bool, unit: bool) -> tuple:
    gb = triangular_prim(_h(a), g, not upper, unit)
    ga = -(gb @ _h(out))
    k = 1 if unit else 0
    return triu(ga, k) if upper else tril(ga, -k), gb


triangular_prim = _routine("solve_triangular", _triangular_kernel, _triangular_vjp,
                           lambda a, b, upper, unit: columns(b), "X with A X = B for triangular A, of one batch.",
                           lambda r: (_square(r), r.standard_normal((2, 3, 2)), True, False), tensors=2)


@operator(node=True)
@with_out
def linalg_solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """X with A X = B (X A = B if not left) for triangular A."""
    _check(A, "linalg.solve_triangular", square=True)
    _check(B, "linalg.solve_triangular")
    if A.dtype is not B.dtype:
        raise RuntimeError(f"linalg.solve_triangular: Expected A and B to have the same dtype, but found {A.dtype} and {B.dtype}")
    if _differ(A.shape[-1], B.shape[-2 if left else -1]):
        raise RuntimeError(f"linalg.solve_triangular: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'}: "
                           f"{list(A.shape)} and {list(B.shape)}")
    if not left:
        return in_columns(_h(linalg_solve_triangular(_h(A), _h(B), upper=not upper, unitriangular=unitriangular)))
    batch = tuple(broadcast_shapes(tuple(A.shape[:-2]), tuple(B.shape[:-2])))
    return triangular_prim(expand_to(A, (*batch, *A.shape[-2:])), expand_to(B, (*batch, *B.shape[-2:])), upper, unitriangular)


def _for_each(x: Tensor) -> Tensor:
    """A number for each matrix, beside the matrices."""
    return prims.unsqueeze(prims.unsqueeze(x, x.ndim), x.ndim + 1)


def _unbounded_inverse(x: np.ndarray) -> np.ndarray:
    """The inverse of a matrix that may have none, by substitution: there are infinities and NaNs in it then, and no error is raised."""
    p, lower, upper = scipy_linalg.lu(x, check_finite=False)
    return _triangular_kernel(upper, _triangular_kernel(lower, p.T.astype(x.dtype), False, True), True, False)


def _inverse_or_infinite(x: np.ndarray) -> np.ndarray:
    try:
        return np.linalg.inv(x)
    except np.linalg.LinAlgError:
        return np.array([_unbounded_inverse(m) for m in x.reshape(-1, *x.shape[-2:])], x.dtype).reshape(x.shape)


inv_or_infinite_prim = _routine("inv_or_infinite", np.errstate(all="ignore")(_inverse_or_infinite), _inv_vjp, lambda x: columns(x),
                                "The inverse of (..., n, n), infinite or NaN where there is none.", lambda r: (_square(r),))


@np.errstate(all="ignore")
def _cofactors(x: np.ndarray) -> np.ndarray:
    """det(A) A^-T; of (nearly) singular matrices by their singular values, A = U S V^H, of which it takes all products but one."""
    try:
        inverse = np.linalg.inv(x)
        near = np.linalg.norm(x, 1, (-2, -1)) * np.linalg.norm(inverse, 1, (-2, -1)) > np.finfo(x.dtype).eps ** -0.5
    except np.linalg.LinAlgError:
        inverse, near = np.full_like(x, np.nan), np.ones(x.shape[:-2], bool)
    out = np.asarray(np.linalg.det(x))[..., None, None] * inverse.swapaxes(-1, -2)
    near &= np.isfinite(x).all((-2, -1))
    if near.any():
        u, s, vh = np.linalg.svd(x[near])
        others = np.where(np.eye(s.shape[-1], dtype=bool), 1, s[..., None, :]).prod(-1)
        turned = (np.linalg.det(u) * np.linalg.det(vh))[..., None, None]
        out[near] = turned * ((u.conj() * others[..., None, :]) @ vh.conj())
    return out


def _cofactor_vjp(g: Tensor, x: Tensor, out: Tensor) -> tuple:
    """The conjugate of (s I - C h^T) A^-T with h the conjugate of g, s the sum of h C."""
    h = g.conj()
    total = _for_each((h * out).sum((-2, -1)))
    return (((total * _identity(x, x.shape[-1]) - out @ h.mT) @ inv_or_infinite_prim(x).mT).conj(),)


cofactor_prim = _routine("cofactor", _cofactors, _cofactor_vjp, _of_input,
                         "The cofactors of (..., n, n): the derivatives of the determinant.", lambda r: (_square(r),))


def _nan_where_nan(out: np.ndarray, x: np.ndarray) -> np.ndarray:
    """A determinant of NaNs is NaN; LAPACK's search for a pivot steps over them and may call the matrix singular."""
    return np.where(np.isnan(x).any((-2, -1)), out.dtype.type(np.nan), out)


@np.errstate(all="ignore")
def _det(x: np.ndarray) -> np.ndarray:
    return _nan_where_nan(np.asarray(np.linalg.det(x)), x)


@np.errstate(all="ignore")
def _slogdet(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    sign, log = np.linalg.slogdet(x)
    log = _nan_where_nan(np.asarray(log), x)
    return np.where(np.isnan(log), 0, sign).astype(x.dtype), log


det_prim = _routine("det", _det, lambda g, x: (_for_each(g) * cofactor_prim(x).conj(),), lambda x: Spec(x._layout.shape[:-2], x.dtype),
                    "Determinants: (..., n, n) -> (...).", lambda r: (_square(r),))


@operator(method="det")
@with_out
def linalg_det(A: Tensor) -> Tensor:
    """Determinants of square matrices."""
    _check(A, "linalg.det", square=True)
    return det_prim(A)


def _slogdet_vjp(gs: tuple, x: Tensor, out0: Tensor) -> tuple:
    """log |det A| + i angle = log det A, whose derivative is tr(A^-1 dA); a real sign is constant."""
    g = None if gs[1] is None else cast(gs[1], x.dtype)
    if gs[0] is not None and x.dtype.is_complex:
        turned = cast(prims.imag(gs[0] * out0.conj()), x.dtype) * 1j
        g = turned if g is None else g + turned
    if g is None:
        return (None,)
    return (_for_each(g) * _h(inv_or_infinite_prim(x)),)


slogdet_prim = _routine("slogdet", _slogdet, _slogdet_vjp,
                        lambda x: (Spec(x._layout.shape[:-2], x.dtype), Spec(x._layout.shape[:-2], x.dtype.to_real())),
                        "(sign, log |det|) of (..., n, n).", lambda r: (_square(r),))


@operator(method="slogdet")
@with_out
def linalg_slogdet(A: Tensor) -> Any:
    """(sign, log of the absolute value) of the determinant."""
    _check(A, "linalg.slogdet", square=True)
    return named("linalg_slogdet", *slogdet_prim(A))


@operator(method=True)
def logdet(input: Tensor) -> Tensor:
    """log det, NaN where the determinant is negative."""
    sign, log = linalg_slogdet(input)
    return prims.complex(log, sign.angle()) if sign.dtype.is_complex else log.masked_fill(sign < 0, math.nan)


# -- factorizations ---------------------------------------------------------------------------------------------------
def _cholesky_vjp(g: Tensor, out: Tensor) -> tuple:
    """L^-H phi(L^H g) L^-1, made hermitian; phi keeps the lower triangle and halves the diagonal."""
    middle = tril(_h(out) @ g)
    middle = middle - (_diagonal(middle) * 0.5).diag_embed()
    lower_h = _h(out)
    left = triangular_prim(lower_h, middle, True, False)
    whole = _h(triangular_prim(lower_h, _h(left), True, False))
    return ((whole + _h(whole)) * 0.5,)


def _cholesky(x: np.ndarray) -> np.ndarray:
    factor = np.linalg.cholesky(x)
    if not np.isfinite(factor).all():
        raise np.linalg.LinAlgError("not positive-definite: it holds NaNs or infinities")
    return factor


cholesky_prim = _routine(
    "cholesky", _cholesky, _cholesky_vjp, lambda x: columns(x), "The lower Cholesky factor of hermitian positive-definite matrices.",
    lambda r: (_positive(r),), aten=InAten(node="linalg_cholesky_ex"),
    failure="linalg.cholesky: The factorization could not be completed because the input is not positive-definite.")


@operator(autocast={"cpu": "wide"}, node="linalg_cholesky_ex")
@with_out
def linalg_cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """L with A = L L^H for hermitian positive-definite A (only its lower triangle is read); U = L^H if `upper` (only the upper one)."""
    _check(A, "linalg.cholesky", square=True)
    lower = cholesky_prim(_h(A) if upper else A)
    return in_columns(_h(lower)) if upper else lower


@operator(method=True, autocast={"cpu": "wide"}, node=True)
@with_out_in_rows
def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """torch.cholesky: see linalg.cholesky. What is empty, of any shape and dtype, is its own factor."""
    deprecated("cholesky", "linalg.cholesky")
    if 0 in input._layout.shape:
        return input.clone()
    return linalg_cholesky(input, upper=upper)


@operator(autocast={"cpu": "wide"}, node=True)
@with_out
def linalg_cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    """(L, info): info is 0 where the factorization succeeded, 1 where it did not (L is then NaN)."""
    return _with_info("linalg_cholesky_ex", lambda: linalg_cholesky(A, upper=upper), A, check_errors)


def _with_info(name: str, compute: Callable[[], Tensor], like: Tensor, check_errors: bool) -> Any:
    if like._data is None and like.device.type != "meta":
        raise NotImplementedError(f"{name}() of a tensor without data (fake) cannot say whether it succeeds; it breaks the graph")
    batch = tuple(like.shape[:-2])
    try:
        return named(name, compute(), like.new_zeros(batch, dtype=int32))
    except LinAlgError:
        if check_errors:
            raise
        return named(name, like * math.nan, like.new_ones(batch, dtype=int32))


@operator(method=True, autocast={"cpu": "wide"}, node=True)
@with_out_in_rows
def cholesky_solve(input: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """X with A X = input, given the Cholesky factor of A."""
    for name, x in (("b", input), ("A", L)):
        if x.ndim < 2:
            raise RuntimeError(f"cholesky_solve: {name} should have at least 2 dimensions, but has {x.ndim} dimensions instead")
    if input.dtype is not L.dtype:
        raise RuntimeError(f"Expected b and A to have the same dtype, but found b of type {scalar_type(input.dtype)} and A of type "
                           f"{scalar_type(L.dtype)} instead.")
    _check(L, "cholesky_solve", square=True)
    if input.shape[-2] != L.shape[-1]:
        raise RuntimeError(f"Incompatible matrix sizes for cholesky_solve: each A matrix is {L.shape[-1]} by {L.shape[-1]} but "
                           f"each b matrix is {input.shape[-2]} by {input.shape[-1]}")
    lower = _h(L) if upper else L
    y = linalg_solve_triangular(lower, input, upper=False)
    return linalg_solve_triangular(_h(lower), y, upper=True)


@operator(method=True, autocast={"cpu": "wide"}, node=True)
@with_out
def cholesky_inverse(input: Tensor, upper: bool = False) -> Tensor:
    """The inverse of A, given its Cholesky factor."""
    _check(input, "cholesky_inverse", square=True)
    regular = _diagonal(input) != 0
    if input._data is None:
        input = checked(input, regular)
    elif len(zero := (~regular).nonzero()):
        raise LinAlgError(f"cholesky_inverse: The diagonal element {int(zero[0, -1]) + 1} is zero, the inversion could not be completed "
                          "because the input matrix is singular.")
    return cholesky_solve(expand_to(_identity(input, input.shape[-1]), tuple(input.shape)), input, upper)


def _qr_kernel(x: np.ndarray, mode: str) -> tuple:
    if mode == "r":
        return np.empty(0, x.dtype), np.linalg.qr(x, "r")
    return tuple(np.linalg.qr(x, mode))  # type: ignore[call-overload]


def _qr_vjp(gs: tuple, outs: tuple, x_shape: Sequence, mode: str) -> tuple:
    """(gQ + Q copyltu(M)) R^-H with M = R gR^H - gQ^H Q; copyltu mirrors the lower triangle."""
    (gq, gr), (q, r) = gs, outs
    m, n = x_shape[-2:]
    if mode == "r" or (mode == "complete" and m > n):
        raise RuntimeError(f"The QR decomposition is not differentiable when mode={mode!r} and the shape is {m} x {n}")
    if gq is None and gr is None:
        return (None,)
    if m < n:    # the first m columns decide about Q; the others are Q times theirs of R
        return (_wide_qr_vjp(gq, gr, q, r),)
    middle: Any = (r @ _h(gr) if gr is not None else 0) - (_h(gq) @ q if gq is not None else 0)
    low = tril(middle, -1)
    mirrored = low + _h(low) + _real(_diagonal(middle)).to(middle.dtype).diag_embed()
    right = q @ mirrored + (gq if gq is not None else 0)
    return (_h(triangular_prim(r, _h(right), True, False)),)


def _wide_qr_vjp(gq: Tensor | None, gr: Tensor | None, q: Tensor, r: Tensor) -> Tensor:
    m, n = r._layout.shape[-2:]
    gr = r.new_zeros(r.shape) if gr is None else gr
    rest = gr.narrow(-1, m, n - m)
    turned = (q @ r.narrow(-1, m, n - m)) @ _h(rest)
    (square,) = _qr_vjp((turned if gq is None else gq + turned, gr.narrow(-1, 0, m)), (q, r.narrow(-1, 0, m)), q._layout.shape, "reduced")
    return prims.cat([square, q @ rest], r.ndim - 1)


def _qr_shape(x: Tensor, mode: str) -> tuple[Spec, Spec]:
    """(Q, R) with x = Q R: mode reduced, complete, or r (R alone)."""
    *batch, m, n = x._layout.shape
    k = min(m, n)
    width = m if mode == "complete" else k
    q = (0,) if mode == "r" else (*batch, m, width)
    return columns(x, q), columns(x, (*batch, k if mode != "complete" else m, n))


qr_prim = _routine("qr", _qr_kernel, _qr_vjp, _qr_shape, "", lambda r: (r.standard_normal((4, 3)), "reduced"),
                   aten=NO_CALL)


@operator(autocast={"cpu": "wide"})
@with_out
def linalg_qr(A: Tensor, mode: str = "reduced") -> Any:
    """(Q, R) with A = Q R, Q with orthonormal columns, R upper triangular."""
    _check(A, "linalg.qr")
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'")
    return named("linalg_qr", *qr_prim(A, mode))


@operator(method=True, autocast={"cpu": "wide"})
@with_out
def qr(input: Tensor, some: bool = True) -> Any:
    """torch.qr: see linalg.qr."""
    deprecated("qr", "linalg.qr")
    return named("qr", *linalg_qr(input, "reduced" if some else "complete"))


def _svd_vjp(gs: tuple, outs: tuple, full: bool) -> tuple:
    gu, gs_, gvh = gs
    u, s, vh = outs
    if full and (u.shape[-1] != s.shape[-1] or vh.shape[-2] != s.shape[-1]):
        k = s.shape[-1]
        gu = None if gu is None else gu.narrow(-1, 0, k)
        gvh = None if gvh is None else gvh.narrow(-2, 0, k)
        u, vh = u.narrow(-1, 0, k), vh.narrow(-2, 0, k)
    if gu is None and gvh is None:
        return (None,) if gs_ is None else (_columns(u, cast(gs_, u.dtype)) @ vh,)
    return (_svd_grad(u, s, vh, gu, gs_, gvh),)


def _svd_grad(u: Tensor, s: Tensor, vh: Tensor, gu: Any, gs: Any, gvh: Any) -> Tensor:
    kind = u.dtype
    k = s.shape[-1]
    square = s * s
    gap = prims.unsqueeze(square, s.ndim - 1) - prims.unsqueeze(square, s.ndim)     # s_j^2 - s_i^2
    f = cast((1 / (gap + _identity(gap, k))) * (1 - _identity(gap, k)), kind)
    scale, inverse = cast(s, kind), cast(1 / s, kind)
    middle: Any = 0
    if gs is not None:
        middle = cast(gs, kind).diag_embed()
    extra: Any = 0
    if gu is not None:
        inner = _h(u) @ gu
        skew = f * (inner - _h(inner))
        middle = middle + _columns(skew, scale)
        if kind.is_complex:
            middle = middle + (1j * _columns_imag(inner) * inverse).diag_embed()
        if u.shape[-2] > k:
            extra = extra + _columns(gu - u @ inner, inverse) @ vh
    if gvh is not None:
        gv = _h(gvh)
        inner = vh @ gv
        skew = f * (inner - _h(inner))
        middle = middle + prims.unsqueeze(scale, scale.ndim) * skew
        if vh.shape[-1] > k:
            extra = extra + u @ (prims.unsqueeze(inverse, inverse.ndim) * (_h(gv) - _h(inner) @ vh))
    return u @ middle @ vh + extra


def _columns_imag(x: Tensor) -> Tensor:
    return prims.imag(_diagonal(x))


def _of_finite(kernel: Callable) -> Callable:
    """A kernel that LAPACK may not come back from where a matrix holds an infinity: of those all results are NaN."""
    @functools.wraps(kernel)
    def call(x: np.ndarray, *args: Any) -> Any:
        finite = np.isfinite(x).all(axis=(-2, -1))
        if finite.all():
            return kernel(x, *args)
        if np.isnan(x).any():
            raise np.linalg.LinAlgError("the input holds NaNs")
        made = kernel(np.where(finite[..., None, None], x, 0), *args)
        for out in made if isinstance(made, tuple) else (made,):
            out[~finite] = np.nan
        return made
    return call


def _svd_shape(x: Tensor, full: bool) -> tuple[Spec, Spec, Spec]:
    """(U, S, V^H) with x = U diag(S) V^H."""
    *batch, m, n = x._layout.shape
    k = min(m, n)
    return (columns(x, (*batch, m, m if full else k)), Spec((*batch, k), x.dtype.to_real()),
            columns(x, (*batch, n if full else k, n)))


svd_prim = _routine("svd", _of_finite(lambda x, full: tuple(np.linalg.svd(x, full_matrices=full))), _svd_vjp, _svd_shape, "",
                    lambda r: (r.standard_normal((4, 3)), False),
                    aten=NO_CALL, failure="linalg.svd: The algorithm failed to converge; NaNs in the input are a reason.")


def _check_driver(A: Tensor, driver: str | None) -> None:
    """`driver` chooses among cuSOLVER's algorithms for one answer; the one in use here serves for all."""
    if driver is not None and (not A.is_cuda or driver not in ("gesvd", "gesvdj", "gesvda")):
        raise RuntimeError(f"linalg.svd: keyword argument `driver=` is one of gesvd, gesvdj and gesvda for CUDA inputs, and not supported "
                           f"for others; got driver={driver!r} for an input on {A.device}")


@operator(autocast={"cpu": "wide"})
@with_out
def linalg_svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> Any:
    """(U, S, Vh): A = U diag(S) Vh, singular values in descending order."""
    _check(A, "linalg.svd")
    _check_driver(A, driver)
    return named("linalg_svd", *svd_prim(A, full_matrices))


@operator(autocast={"cpu": "wide"})
@with_out
def linalg_svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """Singular values in descending order."""
    _check(A, "linalg.svdvals")
    _check_driver(A, driver)
    return svd_prim(A, False)[1]


@operator(method=True, autocast={"cpu": "wide"})
@with_out
def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> Any:
    """torch.svd: (U, S, V), V not transposed; without `compute_uv` U and V are square and zero."""
    if not compute_uv:
        _check(input, "linalg.svd")
        *batch, m, n = input.shape
        return named("svd", input.new_zeros((*batch, m, m)), linalg_svdvals(input), input.new_zeros((*batch, n, n)))
    u, s, vh = linalg_svd(input, not some)
    return named("svd", u, s, _h(vh))


# -- eigenvalues --------------------------------------------------------------------------------------------------------
def _eigh_vjp(gs: tuple, outs: tuple) -> tuple:
    (gl, gv), (values, v) = gs, outs
    if gv is None:
        return (None,) if gl is None else (_columns(v, cast(gl, v.dtype)) @ _h(v),)
    gap = prims.unsqueeze(values, values.ndim - 1) - prims.unsqueeze(values, values.ndim)   # l_j - l_i
    one = _identity(gap, values.shape[-1])
    middle = (_h(v) @ gv) * cast((1 - one) / (gap + one), v.dtype)
    if gl is not None:
        middle = middle + cast(gl, v.dtype).diag_embed()
    whole = v @ middle @ _h(v)
    return ((whole + _h(whole)) * 0.5,)


eigh_prim = _routine("eigh", lambda x, uplo: tuple(np.linalg.eigh(x, uplo)), _eigh_vjp,
                     lambda x, uplo: (Spec(x._layout.shape[:-1], x.dtype.to_real()), columns(x)),
                     "(eigenvalues, eigenvectors) of hermitian matrices; uplo says which triangle is read.", lambda r: (_positive(r), "L"),
                     failure="linalg.eigh: The algorithm failed to converge.")


@operator(autocast={"cpu": "wide"})
@with_out
def linalg_eigh(A: Tensor, UPLO: str = "L") -> Any:
    """(eigenvalues in ascending order, eigenvectors as columns) of hermitian matrices, of which one triangle is read."""
    _check(A, "linalg.eigh", square=True)
    if not isinstance(UPLO, str):
        raise TypeError(f"linalg.eigh(): argument 'UPLO' (position 2) must be str, not {type(UPLO).__name__}")
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return named("linalg_eigh", *eigh_prim(A, UPLO))


@operator(autocast={"cpu": "wide"})
@with_out
def linalg_eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """Eigenvalues of hermitian matrices in ascending order."""
    return linalg_eigh(A, UPLO)[0]


def _eig_kernel(x: np.ndarray) -> tuple:
    values, vectors = np.linalg.eig(x)
    kind = np.result_type(x.dtype, np.complex64)
    return values.astype(kind), vectors.astype(kind)


def _eig_vjp(gs: tuple, outs: tuple, x_dtype: dtype) -> tuple:
    (gl, gv), (values, v) = gs, outs
    if gl is None and gv is None:
        return (None,)
    middle: Any = 0
    if gv is not None:
        gap = prims.unsqueeze(values, values.ndim - 1) - prims.unsqueeze(values, values.ndim)
        one = _identity(gap, values.shape[-1])
        inner = _h(v) @ gv
        free = inner - _columns(_h(v) @ v, cast(prims.real(_diagonal(inner)), v.dtype))
        middle = free * ((1 - one) / (gap + one)).conj()
    if gl is not None:
        middle = middle + gl.diag_embed()
    whole = solve_prim(_h(v), middle @ _h(v))
    return (whole if x_dtype.is_complex else prims.real(whole),)


eig_prim = _routine("eig", _eig_kernel, _eig_vjp,
                    lambda x: (Spec(x._layout.shape[:-1], x.dtype.to_complex()), columns(x, kind=x.dtype.to_complex())),
                    "(eigenvalues, eigenvectors), complex.", lambda r: (_square(r),),
                    failure="linalg.eig: The algorithm failed to converge.")


@operator(autocast={"cpu": "wide"})
@with_out
def linalg_eig(A: Tensor) -> Any:
    """(eigenvalues, eigenvectors as columns), complex, in no order."""
    _check(A, "linalg.eig", square=True)
    return named("linalg_eig", *eig_prim(A))


@operator(autocast={"cpu": "wide"})
@with_out
def linalg_eigvals(A: Tensor) -> Tensor:
    """Eigenvalues, complex, in no order."""
    return linalg_eig(A)[0]
