"""Ready-made parametrizations: orthogonal, weight_norm, spectral_norm."""

from __future__ import annotations

from ...core import dispatch
from ...core.tensor import Tensor
from ...ops.linalg.norms import norm_except_dim
from .. import functional as F
from ..modules.module import Module
from . import parametrize


def matrix_of(weight: Tensor, dim: int) -> Tensor:
    """The weight with `dim` first, and the others as one."""
    return weight.movedim(dim, 0).reshape(weight.shape[dim], -1)


class _WeightNorm(Module):
    """weight = g * v / |v|."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / norm_except_dim(weight_v, 2, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """(|w|, w)."""
        return norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Split a weight into magnitude and direction (Salimans and Kingma 2016)."""
    if getattr(module, name, None) is None:
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


class _SpectralNorm(Module):
    """weight / sigma, its largest singular value being followed by power iteration in training."""

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        if n_power_iterations <= 0:
            raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")
        self.dim = dim if dim >= 0 else dim + weight.ndim
        self.n_power_iterations, self.eps = n_power_iterations, eps
        if weight.ndim > 1:
            with dispatch.grad_enabled(False):
                matrix = matrix_of(weight, self.dim)
                u, v = (matrix.new_empty((n,)).normal_() for n in matrix.shape)
                self.register_buffer("_u", F.normalize(u, dim=0, eps=eps))
                self.register_buffer("_v", F.normalize(v, dim=0, eps=eps))
                self._iterate(matrix, 15)

    def _iterate(self, matrix: Tensor, times: int) -> None:
        with dispatch.grad_enabled(False):
            for _ in range(times):
                self._u.copy_(F.normalize(matrix.mv(self._v), dim=0, eps=self.eps))
                self._v.copy_(F.normalize(matrix.t().mv(self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = matrix_of(weight, self.dim)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()
        return weight / u.dot(matrix.mv(v))

    def right_inverse(self, value: Tensor) -> Tensor:
        """The value itself: its norm is 1 already if it came from here."""
        return value


def spectral_norm(module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
                  dim: int | None = None) -> Module:
    """Divide a weight by its largest singular value (Miyato et al. 2018)."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if dim is None:
        dim = 1 if "ConvTranspose" in type(module).__name__ else 0
    return parametrize.register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))


class _Orthogonal(Module):
    """The Q of a QR decomposition with a positive diagonal of R: rows or columns are orthonormal."""

    def forward(self, x: Tensor) -> Tensor:
        tall = x if x.shape[-2] >= x.shape[-1] else x.transpose(-2, -1)
        q, r = tall.qr()
        q = q * r.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)
        return q if x.shape[-2] >= x.shape[-1] else q.transpose(-2, -1)

    def right_inverse(self, value: Tensor) -> Tensor:
        """The value itself."""
        return value


def orthogonal(module: Module, name: str = "weight", orthogonal_map: str | None = None, *,
               use_trivialization: bool = True) -> Module:
    """Keep a matrix orthogonal, by QR. Other maps are not offered."""
    if orthogonal_map not in (None, "householder"):
        raise NotImplementedError(f"orthogonal(orthogonal_map={orthogonal_map!r}) is not implemented; leave it out for the QR map")
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    return parametrize.register_parametrization(module, name, _Orthogonal())


