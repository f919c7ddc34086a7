"""Pseudo-inverses, least squares, ranks, powers and exponentials of matrices, and tensors as matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import dispatch
from ...core.dtypes import FLOAT, int64, scalar_type
from ...core.memory_format import contiguous_format
from ...core.scalar import compute_dtype
from ...core.size import broadcast_shapes
from ...core.tensor import Tensor
from .. import prims
from ..order import in_rows
from ..promotion import apart, cast
from ..reductions import _differ
from ..registry import Spec, operator
from ..return_types import named
from ..writing import with_out
from .decompositions import (
    _COMPUTED,
    _check,
    _h,
    _identity,
    _of_finite,
    _of_input,
    _routine,
    _square,
    in_columns,
    inv_prim,
    linalg_eigh,
    linalg_eigvalsh,
    linalg_inv,
    linalg_solve,
    linalg_svd,
    linalg_svdvals,
)
from .products import matmul


# -- pseudo-inverse, least squares, powers ----------------------------------------------------------------------------------
def _pinv_vjp(g: Tensor, x: Tensor, out: Tensor) -> tuple:
    p, ph, gh = out, _h(out), _h(g)
    m, n = x.shape[-2:]
    grad = -(ph @ g @ ph)
    grad = grad + (_identity(x, m) - x @ p) @ (gh @ p @ ph)
    return (grad + (ph @ p @ gh) @ (_identity(x, n) - p @ x),)


def _pinv(x: np.ndarray, rtol: Any, atol: float, hermitian: bool) -> np.ndarray:
    if atol and x.size:
        largest = np.linalg.norm(x, 2, (-2, -1))
        rtol = np.maximum(rtol, atol / np.where(largest > 0, largest, 1))
    return np.linalg.pinv(x, rcond=rtol, hermitian=hermitian)


pinv_prim = _routine(
    "pinv", _of_finite(_pinv), _pinv_vjp,
    lambda x, rtol, atol, hermitian: Spec((*x._layout.shape[:-2], x._layout.shape[-1], x._layout.shape[-2]), x.dtype),
    "The pseudo-inverse; singular values below rtol times the largest, or below atol, count as zero.",
    lambda r: (r.standard_normal((4, 3)), 1e-12, 0.0, False),
    failure="linalg.pinv: The algorithm failed to converge; NaNs in the input are a reason.")


def _is_tensor(*tolerances: Any) -> bool:
    return any(isinstance(t, Tensor) for t in tolerances)


def _counts(sizes: Tensor, x: Tensor, atol: Any, rtol: Any) -> Tensor:
    """Which of the matrices' singular values exceed atol, and rtol times the largest; tolerances may be tensors, of the batch's shape."""
    relative = rtol if rtol is not None else _rtol(x, None) if atol is None else 0.0
    limits: tuple[Any, Any] = (relative, atol)
    relative, least = (t.unsqueeze(-1) if isinstance(t, Tensor) else t or 0.0 for t in limits)
    return sizes > (sizes.amax(-1, True) * relative).clamp(min=least)


def _pinv_by_values(A: Tensor, atol: Any, rtol: Any, hermitian: bool) -> Tensor:
    """pinv with tolerances that are tensors: by the singular values that count."""
    if hermitian:
        values, left = linalg_eigh(A)
        right = left.mH
    else:
        left, values, right = linalg_svd(A, full_matrices=False)
    if not values.shape[-1]:
        return matmul(right.mH, left.mH)
    kept = _counts(values.abs(), A, atol, rtol)
    inverse = values.masked_fill(~kept, 1).reciprocal().masked_fill(~kept, 0)
    return matmul(right.mH * inverse.unsqueeze(-2), left.mH)


def _rtol(x: Tensor, rtol: float | None) -> float:
    return rtol if rtol is not None else max(x.shape[-2:]) * float(np.finfo(x.dtype.numpy).eps)


@operator(autocast="inside")
@with_out
def linalg_pinv(A: Tensor, rcond: float | None = None, hermitian: bool = False, *, atol: float | None = None,
                rtol: float | None = None) -> Tensor:
    """The Moore-Penrose pseudo-inverse; singular values count as zero below atol, and below rtol (0 beside an atol; once called rcond)
    times the largest."""
    if A.dtype not in _COMPUTED:
        raise RuntimeError(f"linalg.pinv({scalar_type(A.dtype)}{list(A.shape)}): expected a tensor with 2 or more dimensions of float, "
                           "double, cfloat or cdouble types")
    _check(A, "linalg.pinv")
    rtol = rcond if rtol is None else rtol
    if _is_tensor(atol, rtol) or dispatch.state.autocast is not None:     # whose last step is a product
        return _pinv_by_values(A, atol, rtol, hermitian)
    return pinv_prim(A, 0.0 if atol and rtol is None else _rtol(A, rtol), float(atol or 0.0), hermitian)


@operator(method=True, autocast={"cpu": "wide"})
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """linalg.pinv under its old name."""
    return linalg_pinv(input, rtol=rcond)


@operator(autocast={"cpu": "wide"}, node=True)
@with_out
def linalg_lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """(solution, residuals, rank, singular_values) of min |A X - B|. B may hold a vector for each matrix. `driver` names LAPACK's routine,
    by which some of the answers are empty: gelsy (the usual one) gives no residuals, nor does any of them of what lacks a rank."""
    vector = _check_system(A, B, driver)
    m, n = A.shape[-2:]
    b = prims.unsqueeze(B, B.ndim) if vector else B
    x = linalg_pinv(A, rtol=rcond) @ b
    low, high = (0,) * x.ndim, (*(0,) * (x.ndim - 2), max(m - n, 0), 0)     # the solution lies where the larger right side did
    x = prims.slice_(in_columns(prims.pad_zeros(x, low, high, low) if m > n else x), x.ndim - 2, 0, n, 1)
    s = linalg_svdvals(A.detach())
    rank = (s > _rtol(A, rcond) * s[..., :1]).sum(-1)
    told = driver in ("gels", "gelsd", "gelss") and m > n and (driver == "gels" or bool((rank == n).all()))
    residuals = ((A @ x - b).abs() ** 2).sum(-2) if told else s.new_zeros((0,))
    return named("linalg_lstsq", prims.squeeze(x, (x.ndim - 1,)) if vector else x, residuals,
                 rank if driver != "gels" else rank.new_zeros((0,)), s if driver in ("gelsd", "gelss") else s.new_zeros((0,)))


def _check_system(A: Tensor, B: Tensor, driver: str | None) -> bool:
    """Refuse what lstsq cannot solve; whether B holds a vector for each matrix."""
    _check(A, "linalg.lstsq")
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(f"torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss), got {driver!r}")
    if A.dtype is not B.dtype:
        raise RuntimeError("torch.linalg.lstsq: Expected input and other to have the same dtype, but got input's dtype "
                           f"{scalar_type(A.dtype)} and other's dtype {scalar_type(B.dtype)}")
    vector = B.ndim == A.ndim - 1 and (B.ndim == 1 or tuple(B.shape) == tuple(A.shape[:-1]))
    if B.ndim < 1 or not 0 <= A.ndim - B.ndim <= 1 or _differ(A.shape[-2], B.shape[-1 if vector else -2]):
        raise RuntimeError("torch.linalg.lstsq: expected matrices (..., m, n) and (..., m, k), or vectors (..., m) for all of them, got "
                           f"shapes {list(A.shape)} and {list(B.shape)}")
    return vector


@operator(autocast={"cpu": "wide"})
@with_out
def linalg_matrix_rank(A: Tensor, tol: Any = None, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Tensor:
    """How many singular values exceed max(atol, rtol * largest); of hermitian matrices, the sizes of the eigenvalues."""
    if 0 in A.shape[-2:]:
        tolerances: tuple[Any, ...] = (tol, atol, rtol)
        given = [t.shape for t in tolerances if isinstance(t, Tensor)]
        return A.new_zeros(broadcast_shapes(A.shape[:-2], *given), dtype=int64)
    s = linalg_eigvalsh(A).abs() if hermitian else linalg_svdvals(A)
    return _counts(s, A, atol if tol is None else tol, rtol).sum(-1)


@operator(method="matrix_power", autocast="inside")
@with_out(exact=True, rows=True)
def linalg_matrix_power(A: Tensor, n: int) -> Tensor:
    """A to an integer power, by repeated squaring (of the inverse if n < 0)."""
    if n < 0 or A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        _check(A, "linalg.matrix_power", square=True)
        return linalg_matrix_power(inv_prim(A), -n) if n < -1 else inv_prim(A)
    if n == 0:
        return A.clone(memory_format=contiguous_format).copy_(_identity(A, A.shape[-1]))   # so that A gets a gradient: of zeros
    result, square = None, A
    while n:
        if n & 1:
            result = square if result is None else matmul(result, square)
        n >>= 1
        if n:
            square = matmul(square, square)
    assert result is not None
    return in_rows(apart(result, A))


def _exp_vjp(g: Tensor, x: Tensor) -> tuple:
    """The top right block of exp([[A^H, g], [0, A^H]]) (Mathias, 1996)."""
    a = _h(x)
    top, bottom = prims.cat([a, g], x.ndim - 1), prims.cat([a * 0, a], x.ndim - 1)
    n = x.shape[-1]
    return (matrix_exp_prim(prims.cat([top, bottom], x.ndim - 2)).narrow(-2, 0, n).narrow(-1, n, n),)


_PADE = (64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600, 670442572800,
         33522128640, 1323241920, 40840800, 960960, 16380, 182, 1)


@np.errstate(all="ignore")
def _exp_kernel(x: np.ndarray) -> np.ndarray:
    """Scaling and squaring with the Pade approximant of degree 13, good for norms up to 5.37 (N. J. Higham, 2005)."""
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    if not x.size or x.shape[-1] == 1:
        return np.exp(wide).astype(x.dtype)
    norms = np.linalg.norm(wide, 1, (-2, -1))
    finite = np.isfinite(norms)
    halvings = np.where(finite & (norms > 5.371920351148152), np.frexp(norms / 5.371920351148152)[1], 0)[..., None, None]
    a = np.where(finite[..., None, None], wide, 0) * np.ldexp(1.0, -halvings)
    b, one = _PADE, np.eye(x.shape[-1])
    a2 = a @ a
    a4 = a2 @ a2
    a6 = a2 @ a4
    u = a @ (a6 @ (b[13] * a6 + b[11] * a4 + b[9] * a2) + b[7] * a6 + b[5] * a4 + b[3] * a2 + b[1] * one)
    v = a6 @ (b[12] * a6 + b[10] * a4 + b[8] * a2) + b[6] * a6 + b[4] * a4 + b[2] * a2 + b[0] * one
    out = np.linalg.solve(v - u, v + u)
    for k in range(int(halvings.max())):
        out = np.where(halvings > k, out @ out, out)
    return np.where(finite[..., None, None], out, np.nan).astype(x.dtype)


matrix_exp_prim = _routine(
    "matrix_exp", _exp_kernel, _exp_vjp, _of_input, "The exponential of (..., n, n).", lambda r: (_square(r),))


@operator(method="matrix_exp")
def linalg_matrix_exp(A: Tensor) -> Tensor:
    """The matrix exponential; of narrow floats by way of float32."""
    x = cast(A, compute_dtype(A.dtype)) if A.dtype.category >= FLOAT else A
    _check(x, "linalg.matrix_exp", square=True)
    return cast(matrix_exp_prim(x), A.dtype)


# -- tensors as matrices ------------------------------------------------------------------------------------------------
@operator(autocast={"cpu": "wide"})
@with_out(rows=True)
def linalg_tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of A as a map from its last dimensions to its first `ind`."""
    if not 0 < ind <= A.ndim:
        raise RuntimeError(f"linalg.tensorinv: Expected a strictly positive integer for 'ind', at most {A.ndim}, got {ind}")
    front, back = tuple(A.shape[:ind]), tuple(A.shape[ind:])
    if math.prod(front) != math.prod(back):
        raise RuntimeError(f"Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got "
                           f"{math.prod(back)} != {math.prod(front)}")
    return linalg_inv(A.reshape(math.prod(front), math.prod(back))).reshape(back + front)


@operator(autocast={"cpu": "wide"})
@with_out
def linalg_tensorsolve(A: Tensor, B: Tensor, dims: Any = None) -> Tensor:
    """X with tensordot(A, X, X.ndim) = B."""
    if dims is not None:
        A = A.movedim(tuple(dims), tuple(range(A.ndim - len(dims), A.ndim)))
    shape = tuple(A.shape[B.ndim:])
    return linalg_solve(A.reshape(B.numel(), math.prod(shape)), B.reshape(-1)).reshape(shape)
