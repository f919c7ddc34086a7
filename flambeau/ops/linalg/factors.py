"""Factors packed into one matrix, as LAPACK packs them: LU with row exchanges, L D L^H, and Householder reflections.

The derivative of LU is that of S. F. Walter and L. Lehmann, "Algorithmic differentiation of linear algebra functions" (2010); the
product of reflections is in the compact form of C. Puglisi, "Modification of the Householder method based on the compact WY
representation" (1992).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.dtypes import INT, int32, int64
from ...core.size import broadcast_shapes
from ...core.tensor import Tensor
from ...core.warned import deprecated
from .. import prims
from ..checks import checked
from ..patterns import tril, triu
from ..primitives import InAten
from ..promotion import apart, cast, expand_to
from ..registry import General, Spec, operator, primitive
from ..return_types import named
from ..writing import with_out
from .decompositions import (
    _WHY,
    LinAlgError,
    _check,
    _diagonal,
    _h,
    _identity,
    _square,
    columns,
    in_columns,
    linalg_inv,
    linalg_solve,
    linalg_solve_triangular,
    scipy_linalg,
    triangular_prim,
)


# -- LU ----------------------------------------------------------------------------------------------------------
def _lu_kernel(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    lu, pivots = np.empty_like(x, order="C"), np.empty((*x.shape[:-2], min(x.shape[-2:])), np.int32)
    info = np.zeros(x.shape[:-2], np.int32)
    if pivots.size:
        getrf, = scipy_linalg.get_lapack_funcs(("getrf",), dtype=x.dtype)
        for at in np.ndindex(x.shape[:-2]):
            lu[at], pivots[at], info[at] = getrf(x[at])
    return lu, pivots + 1, info


def _square_lu_grad(low: Tensor, up: Tensor, gl: Tensor, gu: Tensor) -> Tensor:
    """L^-H (tril(L^H gL, -1) + triu(gU U^H)) U^-H."""
    middle = tril(_h(low) @ gl, -1) + triu(gu @ _h(up))
    return _over(triangular_prim(_h(low), middle, True, True), up)


def _over(x: Tensor, up: Tensor) -> Tensor:
    """x U^-H."""
    return _h(triangular_prim(up, _h(x), True, False))


def _lu_vjp(gs: tuple, out0: Tensor, out1: Tensor) -> tuple:
    """Where the matrix isn't square, the rows of L (or columns of U) beyond the square follow from the square's factors."""
    if gs[0] is None:
        return (None,)
    g, lu, pivots = gs[0], out0, out1
    m, n = lu.shape[-2:]
    k = min(m, n)
    square, gl, gu = lu[..., :k, :k], tril(g[..., :k, :k], -1), triu(g[..., :k, :k])
    low, up = tril(square, -1) + _identity(lu, k), triu(square)
    if m > k:
        below = _over(g[..., k:, :], up)
        whole = prims.cat([_square_lu_grad(low, up, gl, gu - _h(lu[..., k:, :]) @ below), below], lu.ndim - 2)
    elif n > k:
        beside = triangular_prim(_h(low), g[..., k:], True, True)
        whole = prims.cat([_square_lu_grad(low, up, gl - beside @ _h(lu[..., k:]), gu), beside], lu.ndim - 1)
    else:
        whole = _square_lu_grad(low, up, gl, gu)
    return (_rows(whole, rows_prim(pivots, m).argsort(-1)),)


lu_factor_prim = primitive("lu_factor", kernel=_lu_kernel, derivative=General(_lu_vjp), why_absent=_WHY,
                           aten=InAten(node="linalg_lu_factor_ex"),
                           samples=lambda r: [(_square(r),), (r.standard_normal((2, 4, 3)),), (r.standard_normal((3, 4)),)], doc=
                           "(L and U in one matrix, row exchanges counted from 1, number of the first zero on U's diagonal or 0).")(
    lambda x: (columns(x), Spec((*x._layout.shape[:-2], min(x._layout.shape[-2:])), int32),
               Spec(x._layout.shape[:-2], int32)))


def _rows_kernel(pivots: np.ndarray, n: int) -> np.ndarray:
    swaps = pivots.reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1])
    if swaps.size and not 1 <= swaps.min() <= swaps.max() <= n:
        raise RuntimeError(f"pivots must be between 1 and {n}, the number of rows, but are from {swaps.min()} to {swaps.max()}")
    order = np.tile(np.arange(n), (len(swaps), 1))
    for rows, exchanges in zip(order, swaps - 1):
        for i, j in enumerate(exchanges):
            rows[[i, j]] = rows[[j, i]]
    return order.reshape(*pivots.shape[:-1], n)


rows_prim = primitive("lu_rows", kernel=_rows_kernel, tags=("refuses_values",),
                      samples=lambda r: [(np.array([[2, 2, 3], [3, 3, 3]], np.int32), 4)],
                      doc="The order of n rows that row exchanges lead to.",
                      why_absent={**_WHY, "derivative": "an index is not differentiable"})(
    lambda pivots, n: Spec((*pivots._layout.shape[:-1], n), int64))


def _rows(x: Tensor, rows: Tensor) -> Tensor:
    """The rows of matrices in another order."""
    return prims.gather(x, x.ndim - 2, expand_to(prims.unsqueeze(rows, rows.ndim), tuple(x.shape)))


def _regular(factor: Tensor, info: Tensor, why: str) -> Tensor:
    """The factor; LinAlgError `why` (of which element is zero) where `info` tells of one."""
    if info.is_fake:
        return checked(factor, info == 0)
    if bool((info != 0).any()):
        raise LinAlgError(why.format(int(info.max())))
    return factor


def _lu(A: Tensor, pivot: bool, name: str, check: bool) -> tuple[Tensor, Tensor, Tensor]:
    _check(A, name)
    if not pivot:
        raise NotImplementedError(f"{name} without pivoting; use pivot=True")
    lu, pivots, info = lu_factor_prim(A)
    why = "U[{0},{0}] is zero and using it on lu_solve would result in a division by zero. If you still want to perform the " \
          "factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)"
    return _regular(lu, info, f"torch.{name}: {why}") if check else lu, pivots, info


@operator(node=True)
@with_out(exact=True)
def linalg_lu(A: Tensor, *, pivot: bool = True) -> Any:
    """(P, L, U) with A = P L U, by partial pivoting."""
    lu, pivots, _ = _lu(A, pivot, "linalg.lu", False)
    return named("linalg_lu", *lu_unpack(lu, pivots))


@operator
@with_out(exact=True)
def linalg_lu_factor(A: Tensor, *, pivot: bool = True) -> Any:
    """(LU, pivots): both factors in one matrix, and the row exchanges, counted from 1."""
    return named("linalg_lu_factor", *_lu(A, pivot, "linalg.lu_factor", True)[:2])


@operator
@with_out(exact=True)
def linalg_lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """lu_factor and info: for each matrix 0, or which element of U's diagonal is zero, counted from 1."""
    return named("linalg_lu_factor_ex", *_lu(A, pivot, "linalg.lu_factor_ex", check_errors))


@operator(method=True)
@with_out(rows=True)
def lu(A: Tensor, pivot: bool = True, get_infos: bool | None = False) -> tuple:
    """linalg.lu_factor, with lu_factor_ex's info if `get_infos`."""
    deprecated("lu", "linalg.lu_factor / torch.linalg.lu_factor_ex")
    return tuple(linalg_lu_factor_ex(A, pivot=pivot) if get_infos else linalg_lu_factor(A, pivot=pivot))


@operator(node=True)
@with_out(exact=True)
def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    """(P, L, U) out of lu_factor's answer; empty tensors for what isn't asked for."""
    if LU_pivots.dtype is not int32:
        raise RuntimeError("torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.\n"
                           f"Note: this function is intended to be used with the output produced by torch.linalg.lu_factor; got "
                           f"{LU_pivots.dtype}")
    if LU_data.ndim < 2:
        raise RuntimeError(f"torch.lu_unpack: Expected tensor with 2 or more dimensions. Got size: {list(LU_data.shape)} instead")
    m, n = LU_data.shape[-2:]
    k = min(m, n)
    p = low = up = LU_data.new_empty((0,))
    if unpack_pivots:
        rows = rows_prim(LU_pivots, m)
        p = cast(prims.unsqueeze(rows, rows.ndim - 1) == prims.unsqueeze(rows.new_arange(m), 1), LU_data.dtype)
    if unpack_data:
        low, up = tril(LU_data[..., :k], -1) + _eye(LU_data, m, k), triu(LU_data[..., :k, :])
    return named("lu_unpack", p, low, up)


def _eye(like: Tensor, m: Any, n: Any) -> Tensor:
    return _identity(like, m)[:, :n]


def _check_system(name: str, factors: Tensor, pivots: Tensor, b: Tensor) -> None:
    """RuntimeError unless each matrix of factors has pivots of its own, as many as rows, and `b` as many rows."""
    n = factors.shape[-1]
    if b.shape[-2] != n:
        raise RuntimeError(f"{name}: Incompatible shapes of A and B for the equation AX = B ({n}x{n} and {b.shape[-2]}x{b.shape[-1]})")
    if tuple(pivots.shape[-1:]) != (n,):
        raise RuntimeError(f"{name}: Number of pivots per batch should be same as the dimension of the matrix, got {list(pivots.shape)} "
                           f"for {list(factors.shape)}")
    if tuple(pivots.shape) != tuple(factors.shape[:-1]):
        raise RuntimeError(f"{name}: Expected {list(factors.shape[:-1])}, the factors' shape[:-1], and pivots.shape to be the same, but got "
                           f"pivots with shape {list(pivots.shape)} instead")


@operator(node=True)
@with_out(exact=True)
def linalg_lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """X with A X = B (X A = B if not left, and A^H for A if adjoint), given lu_factor's answer for A."""
    _check(LU, "linalg.lu_solve", square=True)
    if pivots.dtype is not int32:
        raise RuntimeError(f"linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32, but it is of {pivots.dtype}")
    if B.ndim < 2:
        raise RuntimeError(f"linalg.lu_solve: The input tensor B must have at least 2 dimensions, got shape {list(B.shape)}.")
    if not left:
        return _h(linalg_lu_solve(LU, pivots, _h(B), adjoint=not adjoint))
    _check_system("linalg.lu_solve", LU, pivots, B)
    b = expand_to(B, (*broadcast_shapes(tuple(LU.shape[:-2]), tuple(B.shape[:-2])), *B.shape[-2:]))
    rows = rows_prim(pivots, LU.shape[-1])
    if adjoint:
        y = linalg_solve_triangular(_h(LU), b, upper=False)
        return in_columns(_rows(linalg_solve_triangular(_h(LU), y, upper=True, unitriangular=True), rows.argsort(-1)))
    return linalg_solve_triangular(LU, linalg_solve_triangular(LU, _rows(b, rows), upper=False, unitriangular=True), upper=True)


@operator(method=True, autocast={"cpu": "wide"}, node="linalg_lu_solve")
@with_out(exact=True)
def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """linalg.lu_solve with the right side first."""
    deprecated("lu_solve", "linalg.lu_solve")
    return linalg_lu_solve(LU_data, LU_pivots, b)


@operator(method=True, autocast={"cpu": "wide"}, node=True)
@with_out(exact=True)
def triangular_solve(b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> Any:
    """(X with A X = b, or A^T X = b, for triangular A; a copy of A)."""
    if b.ndim < 2 or A.ndim < 2:
        raise RuntimeError(f"torch.triangular_solve: Expected b and A to have at least 2 dimensions, but they have {b.ndim} and {A.ndim}")
    deprecated("triangular_solve", "linalg.solve_triangular")
    x = linalg_solve_triangular(A.mT if transpose else A, b, upper=upper is not transpose, unitriangular=unitriangular)
    return named("triangular_solve", x, apart(in_columns(A), A))


# -- answers that say which matrices are singular --------------------------------------------------------------------
def _with_lu(name: str, compute: Callable[[], Tensor], A: Tensor, B: Callable[[], Tensor], left: bool, check_errors: bool) -> Any:
    """(compute(), zeros) if a singular matrix is an error; else by LU, NaN for the singular matrices, with lu_factor_ex's info: eager
    as captured, and without an error in the gradient."""
    if check_errors:
        return named(name, compute(), A.new_zeros(tuple(A.shape[:-2]), dtype=int32))
    lu, pivots, info = lu_factor_prim(A)
    diagonal, singular = _diagonal(lu), prims.unsqueeze(prims.unsqueeze(info != 0, info.ndim), info.ndim + 1)
    usable = lu + cast(diagonal == 0, lu.dtype).diag_embed()
    solution = linalg_lu_solve(usable, pivots, B(), left=left) * cast(~singular, lu.dtype).masked_fill(singular, math.nan)
    return named(name, in_columns(solution), info)


@operator(autocast={"cpu": "wide"}, node=True)
@with_out(exact=True)
def linalg_inv_ex(A: Tensor, *, check_errors: bool = False) -> Any:
    """(inverse, info): for each matrix info is 0 where it exists, else which element of U's diagonal is zero (NaN then)."""
    return _with_lu("linalg_inv_ex", lambda: linalg_inv(A), A, lambda: _identity(A, A.shape[-1]), True, check_errors)


@operator(node=True)
@with_out(exact=True)
def linalg_solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    """(solution, info) of linalg.solve: for each matrix info is 0, or which element of U's diagonal is zero (NaN then)."""
    vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and tuple(B.shape) == tuple(A.shape[:-1]))
    solved = _with_lu("linalg_solve_ex", lambda: linalg_solve(A, B, left=left), A,
                      lambda: prims.unsqueeze(B, B.ndim) if vector else B, left, check_errors)
    return named("linalg_solve_ex", in_columns(prims.squeeze(solved[0], (B.ndim,))), solved[1]) if vector else solved


def _no_gradient(name: str, instead: str) -> Callable:
    def vjp(gs: tuple) -> tuple:
        raise NotImplementedError(f"the derivative of {name} is not implemented; use {instead}")
    return vjp


# -- L D L^H -------------------------------------------------------------------------------------------------------------
def _ldl_kernel(x: np.ndarray, hermitian: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    name = "hetrf" if hermitian and x.dtype.kind == "c" else "sytrf"
    ld, pivots, info = np.empty_like(x, order="C"), np.empty(x.shape[:-1], np.int32), np.zeros(x.shape[:-2], np.int32)
    if x.size:
        factor, = scipy_linalg.get_lapack_funcs((name,), dtype=x.dtype)
        for at in np.ndindex(x.shape[:-2]):
            ld[at], pivots[at], info[at] = factor(x[at], lower=1)
    return np.tril(ld), pivots, info


ldl_prim = primitive("ldl_factor", kernel=_ldl_kernel, samples=lambda r: [(_square(r), False)],
                     doc="(L and D in one matrix, LAPACK's pivots, number of the first zero of D or 0); the lower triangle is read.",
                     why_absent={**_WHY, "derivative": "of the packed form there is none; linalg.solve has one"})(
    lambda x, hermitian: (columns(x), Spec(x._layout.shape[:-1], int32), Spec(x._layout.shape[:-2], int32)))


@operator(name="_ldl_factor", vjp=_no_gradient("linalg.ldl_factor", "linalg.solve"))
def _ldl_factor(input: Tensor, hermitian: bool) -> tuple[Tensor, Tensor, Tensor]:
    return ldl_prim(input, hermitian)


def _ldl(A: Tensor, hermitian: bool, name: str, check: bool) -> tuple[Tensor, Tensor, Tensor]:
    _check(A, name, square=True)
    ld, pivots, info = _ldl_factor(A, hermitian)
    return _regular(ld, info, f"torch.{name}: D[{{0}}] is zero: the input matrix is singular") if check else ld, pivots, info


@operator
@with_out(exact=True)
def linalg_ldl_factor(A: Tensor, *, hermitian: bool = False) -> Any:
    """(LD, pivots) of symmetric (hermitian if asked for) matrices by the Bunch-Kaufman algorithm, as LAPACK packs them."""
    return named("linalg_ldl_factor", *_ldl(A, hermitian, "linalg.ldl_factor", True)[:2])


@operator
@with_out(exact=True)
def linalg_ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> Any:
    """ldl_factor and info: for each matrix 0, or which element of D is zero, counted from 1."""
    return named("linalg_ldl_factor_ex", *_ldl(A, hermitian, "linalg.ldl_factor_ex", check_errors))


@np.errstate(all="ignore")
def _ldl_solve_kernel(ld: np.ndarray, pivots: np.ndarray, b: np.ndarray, hermitian: bool) -> np.ndarray:
    out, rows = np.empty_like(b, order="C"), np.abs(pivots)
    if ((rows < 1) | (rows > ld.shape[-1])).any():      # LAPACK would write outside of B
        raise RuntimeError(f"linalg.ldl_solve: pivots must name rows from 1 to {ld.shape[-1]} (negative for blocks of two), as ldl_factor "
                           f"gives them; got numbers from {pivots.min()} to {pivots.max()}")
    if b.size:
        solve, = scipy_linalg.get_lapack_funcs(("hetrs" if hermitian and b.dtype.kind == "c" else "sytrs",), dtype=b.dtype)
        for at in np.ndindex(b.shape[:-2]):
            out[at] = solve(ld[at], pivots[at], b[at], lower=1)[0]
    return out


ldl_solve_prim = primitive("ldl_solve", kernel=_ldl_solve_kernel, tensors=3, tags=("refuses_values",),
                           samples=lambda r: [(np.eye(3) * 2, np.array([1, 2, 3], np.int32), r.standard_normal((3, 2)), False)],
                           doc="X with A X = B, given ldl_factor's answer for A, of the same batch.",
                           why_absent={**_WHY, "derivative": "the operator _ldl_solve has it, with respect to B"})(
    lambda ld, pivots, b, hermitian: columns(b))


def _ldl_solve_vjp(g: Tensor, ld: Tensor, pivots: Tensor, hermitian: bool, needs: tuple) -> tuple:
    """A^-H g: A is its own transpose, or its own conjugate transpose."""
    if needs[0]:
        raise NotImplementedError("the derivative of linalg.ldl_solve with respect to LD is not implemented; use linalg.solve")
    if hermitian or not g.dtype.is_complex:
        return None, None, _ldl_solve(ld, pivots, g, hermitian)
    return None, None, prims.conj(_ldl_solve(ld, pivots, prims.conj(g), False))


@operator(name="_ldl_solve", vjp=_ldl_solve_vjp)
def _ldl_solve(ld: Tensor, pivots: Tensor, b: Tensor, hermitian: bool) -> Tensor:
    return ldl_solve_prim(ld, pivots, b, hermitian)


@operator
@with_out(exact=True)
def linalg_ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """X with A X = B, given ldl_factor's answer for A."""
    _check(LD, "linalg.ldl_solve", square=True)
    if pivots.dtype.category != INT:
        raise RuntimeError(f"linalg.ldl_solve: Expected pivots to be integers. Got {pivots.dtype}")
    if B.ndim < 2:
        raise IndexError(f"linalg.ldl_solve: Expected B to have at least 2 dimensions, but it has {B.ndim} instead")
    if LD.dtype is not B.dtype:
        raise RuntimeError(f"linalg.ldl_solve: Expected b and A to have the same dtype, but found {B.dtype} and {LD.dtype}")
    _check_system("linalg.ldl_solve", LD, pivots, B)
    batch = tuple(broadcast_shapes(tuple(LD.shape[:-2]), tuple(B.shape[:-2])))
    return _ldl_solve(expand_to(LD, (*batch, *LD.shape[-2:])), expand_to(cast(pivots, int32), (*batch, pivots.shape[-1])),
                      expand_to(B, (*batch, *B.shape[-2:])), hermitian)


# -- Householder reflections -----------------------------------------------------------------------------------------------
@np.errstate(all="ignore")
def _geqrf_kernel(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    h, tau = np.linalg.qr(x, mode="raw")
    return np.swapaxes(h, -1, -2), tau


geqrf_prim = primitive("geqrf", kernel=_geqrf_kernel, samples=lambda r: [(r.standard_normal((2, 4, 3)),)],
                       doc="(R above the reflections' vectors, their scales) of a QR decomposition.",
                       why_absent={**_WHY, "derivative": "of the packed form there is none; linalg.qr has one"})(
    lambda x: (columns(x), Spec((*x._layout.shape[:-2], min(x._layout.shape[-2:])), x.dtype)))


@operator(name="_geqrf", vjp=_no_gradient("geqrf", "linalg.qr"))
def _geqrf(input: Tensor) -> tuple[Tensor, Tensor]:
    return geqrf_prim(input)


@operator(method=True, autocast={"cpu": "wide"})
@with_out
def geqrf(input: Tensor) -> Any:
    """(a, tau): R and, below its diagonal, the vectors of Householder reflections, whose scales are tau. See linalg.qr."""
    _check(input, "geqrf")
    return named("geqrf", *_geqrf(input))


def _reflected(a: Tensor, tau: Tensor, x: Tensor, adjoint: bool) -> Tensor:
    """Q x, or Q^H x, for Q = H_1 ... H_k = I - V T V^H with T = (I + diag(tau) triu(V^H V, 1))^-1 diag(tau)."""
    k = tau.shape[-1]
    v = tril(a[..., :k], -1) + _eye(a, a.shape[-2], k)
    scale = prims.unsqueeze(tau, tau.ndim)
    inner, y = triu(_h(v) @ v, 1) * scale, _h(v) @ x
    if adjoint:
        return x - v @ (_h(scale).mT * linalg_solve_triangular(_h(inner), y, upper=False, unitriangular=True))
    return x - v @ linalg_solve_triangular(inner, scale * y, upper=True, unitriangular=True)


def _check_reflections(a: Tensor, tau: Tensor, name: str) -> None:
    _check(a, name)
    if a.dtype is not tau.dtype or tau.ndim != a.ndim - 1 or tuple(tau.shape[:-1]) != tuple(a.shape[:-2]):
        raise RuntimeError(f"torch.{name}: tau must have the dtype of the input and its shape without the last dimension but for its "
                           f"length, but they are {tau.dtype} {list(tau.shape)} and {a.dtype} {list(a.shape)}")
    if a.shape[-1] < tau.shape[-1]:
        raise RuntimeError(f"torch.{name}: input.shape[-1] must be greater than or equal to tau.shape[-1], got {list(a.shape)} and "
                           f"{list(tau.shape)}")


@operator(name="linalg_householder_product", method="orgqr", autocast={"cpu": "wide"}, node=True)
@with_out
def linalg_householder_product(input: Tensor, tau: Tensor) -> Tensor:
    """The first columns of H_1 ... H_k with H_i = I - tau_i v_i v_i^H: v_i is 0 above its i-th element, which is 1, and the i-th
    column of `input` below it."""
    _check_reflections(input, tau, "linalg.householder_product")
    m, n = input.shape[-2:]
    if m < n:
        raise RuntimeError("torch.linalg.householder_product: input.shape[-2] must be greater than or equal to input.shape[-1], got "
                           f"{list(input.shape)}")
    return in_columns(_reflected(input, tau, expand_to(_eye(input, m, n), tuple(input.shape)), False))


@operator(method=True, autocast={"cpu": "wide"}, node=True)
@with_out(exact=True)
def ormqr(input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """Q other (other Q if not left; Q^H if transpose) for the square Q that geqrf's answer (input, tau) stands for."""
    _check_reflections(input, tau, "ormqr")
    if other.shape[-2 if left else -1] != input.shape[-2]:
        raise RuntimeError(f"torch.ormqr: other.shape[{-2 if left else -1}] must be equal to input.shape[-2], got {list(other.shape)} and "
                           f"{list(input.shape)}")
    return in_columns(_reflected(input, tau, other, transpose) if left else _h(_reflected(input, tau, _h(other), not transpose)))
