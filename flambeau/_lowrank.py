"""A few singular vectors of a large matrix, by random projections: `torch.svd_lowrank`, `torch.pca_lowrank`.

The method is algorithms 4.4 and 5.1 of Halko, Martinsson and Tropp, "Finding structure with randomness" (2009).
"""

from __future__ import annotations

from .core.tensor import Tensor
from .ops.registry import OPERATORS


def _range_finder(a: Tensor, q: int, niter: int) -> Tensor:
    """An orthonormal basis of about what `a` maps to, of `q` columns."""
    qr = OPERATORS["linalg_qr"]
    basis = qr(a @ OPERATORS["randn"](a.shape[-1], q, dtype=a.dtype, device=a.device)).Q
    for _ in range(niter):
        basis = qr(a @ qr(a.mH @ basis).Q).Q
    return basis


def _check(name: str, a: Tensor) -> None:
    if not isinstance(a, Tensor):
        raise TypeError(f"{name}(): argument 'A' must be Tensor, not {type(a).__name__}")
    if a.ndim < 2:
        raise ValueError(f"{name}(): A is a matrix or a batch of them, got shape {list(a.shape)}")
    if not a.dtype.is_floating_point and not a.dtype.is_complex:
        raise RuntimeError(f"{name}(): A is of a floating or complex dtype, got {a.dtype}")


def svd_lowrank(A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """`(U, S, V)` with U diag(S) V^H close to A (to A - M), of at most `q` singular values; `niter` steps of subspace iteration."""
    _check("svd_lowrank", A)
    steps = 2 if niter is None else niter
    if steps < 0:
        raise ValueError(f"niter(={steps}) must be non-negative")
    a = A if M is None else A - M
    wide = a.shape[-2] < a.shape[-1]
    a = a.mH if wide else a
    basis = _range_finder(a, min(6 if q is None else q, *a.shape[-2:]), steps)
    u, s, vh = OPERATORS["linalg_svd"](basis.mH @ a, full_matrices=False)
    u, v = basis @ u, vh.mH
    return (v, s, u) if wide else (u, s, v)


def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """`(U, S, V)` of principal components: A @ V[:, :k] are the first k. `center`: of A less its mean."""
    _check("pca_lowrank", A)
    rows, columns = A.shape[-2:]
    count = min(6, rows, columns) if q is None else q
    if not 0 <= count <= min(rows, columns):
        raise ValueError(f"q(={count}) must be non-negative integer and not greater than min(m, n)={min(rows, columns)}")
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, count, niter)


__all__ = ["pca_lowrank", "svd_lowrank"]
