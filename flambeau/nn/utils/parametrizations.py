"""Ready-made parametrizations: orthogonal, weight_norm, spectral_norm."""

from __future__ import annotations

from functools import partial
from typing import Any

from ... import linalg
from ...core import dispatch
from ...core.tensor import Tensor
from ...ops.joining import cat
from ...ops.linalg.factors import geqrf
from ...ops.linalg.norms import norm_except_dim
from ...ops.patterns import eye
from ...ops.random import randn
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
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
    module._register_load_state_dict_pre_hook(partial(_rename_old, name))
    return module


def _rename_old(name: str, state: dict, prefix: str, *rest: Any) -> None:
    """States of `nn.utils.weight_norm`, which had name_g and name_v, in the place of this one's."""
    old = [f"{prefix}{name}_g", f"{prefix}{name}_v"]
    if all(key in state for key in old):
        for i, key in enumerate(old):
            state[f"{prefix}parametrizations.{name}.original{i}"] = state.pop(key)


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


def spectral_norm(module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None) -> Module:
    """Divide a weight by its largest singular value (Miyato et al. 2018)."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if dim is None:
        dim = 1 if "ConvTranspose" in type(module).__name__ else 0
    return parametrize.register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))


def _orthonormal(x: Tensor) -> Tensor:
    """The Q of a QR decomposition with a positive diagonal of R."""
    q, r = linalg.qr(x)
    return q * r.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


class _Orthogonal(Module):
    """An orthogonal matrix as a map of any matrix (Lezcano-Casado and Martinez-Rubio 2019): the exponential or the Cayley transform of the
    skew-symmetric matrix that its lower triangle gives, or a product of Householder reflections. `base`, a buffer, is an orthogonal
    matrix that the map's value is multiplied to: so any orthogonal matrix can be set."""

    base: Tensor | None

    def __init__(self, weight: Tensor, orthogonal_map: str, *, use_trivialization: bool = True) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.orthogonal_map, self.shape = orthogonal_map, weight.shape
        self.register_buffer("base", weight.new_empty(0) if use_trivialization else None)     # `right_inverse` fills it

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = x.shape[-2:]
        tall = x if rows >= columns else x.mT
        q = self._reflections(tall) if self.orthogonal_map == "householder" else self._rotation(tall)
        q = q if self.base is None else self.base @ q
        return q if rows >= columns else q.mT

    def _reflections(self, x: Tensor) -> Tensor:
        below = x.tril(-1)
        scales = 2 / (1 + (below * below).sum(-2))
        return linalg.householder_product(below, scales) * x.diagonal(dim1=-2, dim2=-1).detach().sign().unsqueeze(-2)

    def _rotation(self, x: Tensor) -> Tensor:
        rows, columns = x.shape[-2:]
        lower = F.pad(x.tril(), (0, rows - columns))
        skew = lower - lower.mH
        if self.orthogonal_map == "matrix_exp":
            return linalg.matrix_exp(skew)[..., :columns]
        one = eye(rows, dtype=x.dtype, device=x.device)
        return linalg.solve(one - skew / 2, one + skew / 2)[..., :columns]

    def right_inverse(self, value: Tensor) -> Tensor:
        """A matrix whose map is `value`, made orthogonal where it isn't."""
        if value.shape != self.shape:
            raise ValueError(f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {value.shape}.")
        tall = value if value.shape[-2] >= value.shape[-1] else value.mT
        with dispatch.grad_enabled(False):
            made = self._based_on(tall) if self.base is not None else self._reflecting(tall)
        return made if tall is value else made.mT

    def _based_on(self, x: Tensor) -> Tensor:
        rows, columns = x.shape[-2:]
        whole = x if rows == columns else cat([_orthonormal(x), randn(*x.shape[:-1], rows - columns, dtype=x.dtype, device=x.device)], -1)
        self.base = _orthonormal(whole)
        return -eye(rows, columns, dtype=x.dtype, device=x.device).expand(x.shape)     # what all of the maps give the identity for

    def _reflecting(self, x: Tensor) -> Tensor:
        if self.orthogonal_map != "householder":
            raise NotImplementedError("It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                                      "use_trivialization=False.")
        made, scales = geqrf(x)
        signs = made.diagonal(dim1=-2, dim2=-1).sign()
        made.diagonal(dim1=-2, dim2=-1).copy_(signs.where(scales != 0, -signs))      # a reflection of scale 0 is none
        return made


_MAPS = ("matrix_exp", "cayley", "householder")


def orthogonal(module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True) -> Module:
    """Keep a matrix orthogonal (or its rows, or its columns, orthonormal). `orthogonal_map` is "matrix_exp", "cayley" or "householder": the
    first for square and complex matrices where it isn't given, the last for others. `use_trivialization`: the map starts from the
    identity, at a matrix that is kept beside it."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if weight.shape[-2] == weight.shape[-1] or weight.is_complex() else "householder"
    if orthogonal_map not in _MAPS:
        raise ValueError(f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}')
    made = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    return parametrize.register_parametrization(module, name, made, unsafe=True)
