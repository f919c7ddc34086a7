"""A few extreme eigenpairs of a large symmetric matrix by products with it alone: `torch.lobpcg`.

A. V. Knyazev, "Toward the optimal preconditioned eigensolver: locally optimal block preconditioned conjugate gradient method" (2001).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .autograd import Function
from .autograd.grad_mode import no_grad
from .core.dtypes import finfo
from .core.sparse import SparseTensor
from .core.tensor import Tensor
from .ops.registry import OPERATORS

METHODS = ("basic", "ortho")
_NIL: dict[str, Any] = {}


class LOBPCG:
    """The state of an iteration, which a tracker sees: `X`, `E`, `R` are the approximation and its residual, `ivars["istep"]` counts."""

    def __init__(self, A: Tensor, B: Tensor | None, X: Tensor, iK: Tensor | None, iparams: dict[str, int], fparams: dict[str, float],
                 bparams: dict[str, bool], method: str, tracker: Callable[[LOBPCG], None] | None) -> None:
        self.A, self.B, self.iK, self.method, self.tracker = A, B, iK, method, tracker
        self.iparams, self.fparams, self.bparams = iparams, fparams, bparams
        self.ivars: dict[str, int] = {"istep": 0, "converged_count": 0}
        self.fvars: dict[str, float] = {}
        self.bvars: dict[str, bool] = {"force_stop": False}
        self.tvars: dict[str, Tensor] = {}
        self.X, self.S, self.P = X, X, X[:, :0]
        self.E, self.R = X.new_zeros((X.shape[1],)), X
        self._rayleigh_ritz(X)
        self.fvars["A_norm"] = _scale(A, X)
        self.fvars["B_norm"] = 1.0 if B is None else _scale(B, X)

    def _times_b(self, x: Tensor) -> Tensor:
        return x if self.B is None else self.B @ x

    def _basis(self, s: Tensor) -> Tensor:
        """Columns that span what those of `s` do, orthonormal with respect to B."""
        s = s / s.norm(dim=0).clamp(min=finfo(s.dtype).tiny)
        gram = s.mH @ self._times_b(s)
        if self.method == "basic":
            return OPERATORS["linalg_solve_triangular"](OPERATORS["linalg_cholesky"](gram).mH, s, upper=True, left=False)
        weights, vectors = OPERATORS["linalg_eigh"]((gram + gram.mH) / 2)
        kept = weights > finfo(s.dtype).eps * 10 * weights[-1]      # directions that are in the span of others are dropped
        basis = s @ (vectors[:, kept] / weights[kept].sqrt())
        again = basis.mH @ self._times_b(basis)                     # once more: the first rounds too much
        return OPERATORS["linalg_solve_triangular"](OPERATORS["linalg_cholesky"](again).mH, basis, upper=True, left=False)

    def _rayleigh_ritz(self, s: Tensor) -> None:
        """The best approximation in the span of `s`, its residual, and the part of the step that isn't in the last approximation."""
        n = self.X.shape[1]
        basis = self._basis(s)
        small = basis.mH @ (self.A @ basis)
        values, vectors = OPERATORS["linalg_eigh"]((small + small.mH) / 2)
        if self.bparams["largest"]:
            values, vectors = values.flip(0), vectors.flip(1)
        before, self.S = self.X, basis
        self.E, self.X = values[:n], basis @ vectors[:, :n]
        self.P = self.X - before @ (before.mH @ self._times_b(self.X)) if s.shape[1] > n else self.X[:, :0]
        self.R = self.A @ self.X - self._times_b(self.X) * self.E

    def _converged(self) -> bool:
        size = self.X.norm(dim=0) * (self.fvars["A_norm"] + self.E.abs() * self.fvars["B_norm"])
        self.tvars["rerr"] = self.R.norm(dim=0) / size.clamp(min=finfo(self.X.dtype).tiny)
        self.ivars["converged_count"] = int((self.tvars["rerr"] < self.fparams["tol"]).sum())
        return bool((self.tvars["rerr"][:self.iparams["k"]] < self.fparams["tol"]).all())

    def run(self) -> tuple[Tensor, Tensor]:
        """Iterate until the first k pairs are within tol, or niter steps are done; their (values, vectors)."""
        limit, k = self.iparams["niter"], self.iparams["k"]
        while not self._converged() and self.ivars["istep"] != limit:
            towards = self.R if self.iK is None else self.iK @ self.R
            towards = towards - self.X @ (self.X.mH @ self._times_b(towards))
            self._rayleigh_ritz(OPERATORS["cat"]((self.X, towards, self.P), 1))
            self.ivars["istep"] += 1
            if self.tracker is not None:
                self.tracker(self)
                if self.bvars["force_stop"]:
                    break
        return self.E[:k], self.X[:, :k]


def _scale(a: Tensor, x: Tensor) -> float:
    """How large products with a matrix are, from those with some vectors."""
    return float((a @ x).norm() / x.norm())


class _Eigenpairs(Function):
    """lobpcg of a dense A as a function of A: the derivative is that of the exact pairs."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, solve: Callable[[Tensor], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        values, vectors = solve(A)
        ctx.save_for_backward(A, values, vectors)
        return values, vectors

    @staticmethod
    def backward(ctx: Any, of_values: Tensor, of_vectors: Tensor) -> tuple[Tensor, None]:
        a, values, vectors = ctx.saved_tensors
        return _pairs_vjp(a, values, vectors, of_values, of_vectors), None


def _pairs_vjp(a: Tensor, values: Tensor, vectors: Tensor, of_values: Tensor, of_vectors: Tensor) -> Tensor:
    """With v' = (lambda - A)^+ A' v for each pair: on the found vectors by their eigenvalues, on the rest by solving there."""
    gaps = values.unsqueeze(-2) - values.unsqueeze(-1)
    gaps.diagonal(dim1=-2, dim2=-1).fill_(math.inf)
    inside = vectors @ (vectors.mH @ of_vectors / gaps)
    rest = of_vectors - vectors @ (vectors.mH @ of_vectors)
    m = a.shape[-1]
    eye = OPERATORS["eye"](m, dtype=a.dtype, device=a.device)
    filled = vectors @ vectors.mH * (1 + a.abs().sum(-1).amax(-1)[..., None, None] * 2)     # keeps the found vectors out of the way
    shifted = values[..., None, None] * eye - (a + filled).unsqueeze(-3)
    outside = OPERATORS["linalg_solve"](shifted, rest.mT.unsqueeze(-1)).squeeze(-1).mT
    outside = outside - vectors @ (vectors.mH @ outside)
    return (vectors * of_values.unsqueeze(-2) + inside + outside) @ vectors.mH


def _expect(A: Tensor, B: Tensor | None, k: int, n: int, method: str) -> None:
    if A.shape[-2] != A.shape[-1] or A.ndim < 2:
        raise AssertionError(f"A must be square, got shape {list(A.shape)}")
    if not A.dtype.is_floating_point:
        raise RuntimeError(f"lobpcg() takes matrices of a real floating dtype, got {A.dtype}")
    if B is not None and B.shape != A.shape:
        raise RuntimeError(f"lobpcg(): B of shape {list(B.shape)} does not fit A of shape {list(A.shape)}")
    if method not in METHODS:
        raise ValueError(f"lobpcg(): method must be one of {', '.join(METHODS)}, got {method!r}")
    if not 1 <= k <= n:
        raise ValueError(f"lobpcg(): expected 1 <= k <= n, got k={k} and n={n}")
    if A.shape[-1] < 3 * n:
        raise ValueError(f"LOBPCG algorithm is not applicable when the number of A rows (={A.shape[-1]}) is smaller than 3 x the number of "
                         f"requested eigenpairs (={n})")


def lobpcg(A: Tensor, k: int | None = None, B: Tensor | None = None, X: Tensor | None = None, n: int | None = None,
           iK: Tensor | None = None, niter: int | None = None, tol: float | None = None, largest: bool | None = None,
           method: str | None = None, tracker: Callable[[LOBPCG], None] | None = None, ortho_iparams: dict[str, int] | None = None,
           ortho_fparams: dict[str, float] | None = None, ortho_bparams: dict[str, bool] | None = None) -> tuple[Tensor, Tensor]:
    """`(E, X)`, the k largest (or smallest) eigenvalues (*, k) with their vectors (*, m, k), of A x = E B x for symmetric A (*, m, m),
    dense or sparse, and positive B. X (*, m, n): where to start; iK: a preconditioner. Gradients flow to a dense A where B is None, to its
    symmetric part. The ortho_* dicts may say "tol" and "niter" too, where the arguments don't."""
    count = (1 if X is None else X.shape[-1]) if k is None else k
    width = X.shape[-1] if X is not None else count if n is None else n
    way = "ortho" if method is None else method
    _expect(A, B, count, width, way)
    more = {**(ortho_iparams or _NIL), **(ortho_fparams or _NIL), **(ortho_bparams or _NIL)}
    steps = more.get("niter", -1) if niter is None else niter
    limit = more.get("tol", finfo(A.dtype).eps ** 0.5) if tol is None else tol
    bparams = {"largest": True if largest is None else bool(largest), **(ortho_bparams or _NIL)}

    def one(a: Tensor, b: Tensor | None, x: Tensor | None, preconditioner: Tensor | None) -> tuple[Tensor, Tensor]:
        start = OPERATORS["randn"](a.shape[-1], width, dtype=a.dtype, device=a.device) if x is None else x
        sizes = {"m": a.shape[-1], "n": width, "k": count, "niter": 1000 if steps < 0 else steps, **(ortho_iparams or _NIL)}
        return LOBPCG(a, b, start, preconditioner, sizes, {"tol": limit, **(ortho_fparams or _NIL)}, bparams, way, tracker).run()

    def solve(a: Tensor) -> tuple[Tensor, Tensor]:
        with no_grad():
            if isinstance(a, SparseTensor) or a.ndim == 2:
                return one(a, B, X, iK)
            batch = a.shape[:-2]
            rows = [None if t is None else t.expand(*batch, *t.shape[-2:]).flatten(0, -3) for t in (B, X, iK)]
            found = [one(m, *(None if t is None else t[i] for t in rows)) for i, m in enumerate(a.flatten(0, -3))]
            values, vectors = (OPERATORS["stack"](parts).reshape(*batch, *parts[0].shape) for parts in zip(*found))
            return values, vectors

    if not A.requires_grad:
        return solve(A)
    if isinstance(A, SparseTensor) or B is not None:
        raise NotImplementedError("lobpcg() has gradients for a dense A without B alone; detach() A, or use torch.linalg.eigh")
    return _Eigenpairs.apply((A + A.mT) / 2, solve)


__all__ = ["LOBPCG", "lobpcg"]
