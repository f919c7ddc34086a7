"""What distributions are written with (torch.distributions.utils)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd.grad_mode import enable_grad
from ..core.dtypes import dtype, finfo
from ..core.tensor import Tensor
from ..ops.registry import OPERATORS
from .distribution import broadcast_all, sum_rightmost

euler_constant = 0.57721566490153286060
_sum_rightmost = sum_rightmost


def _standard_normal(shape: Any, dtype: dtype, device: Any) -> Tensor:
    """Standard normal numbers."""
    return OPERATORS["normal"](0.0, 1.0, tuple(shape), dtype=dtype, device=device)


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities a rounding away from 0 and 1 at least."""
    eps = finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """The probabilities of logits: sigmoid of log odds where `is_binary`, else softmax over the last dimension."""
    return logits.sigmoid() if is_binary else logits.softmax(-1)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """The logits of probabilities: log odds where `is_binary`, else logarithms."""
    clamped = clamp_probs(probs)
    return clamped.log() - (-clamped).log1p() if is_binary else clamped.log()


class lazy_property:
    """A property that is computed, with gradients recorded, when it is first asked for, and kept."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__
        self.__name__ = wrapped.__name__

    def __get__(self, instance: Any, obj_type: Any = None) -> Any:
        if instance is None:
            return _LazyPropertyOfClass(self.wrapped)
        with enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


class _LazyPropertyOfClass(property):
    """What the class itself says a lazy_property is."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        super().__init__(wrapped)


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The lower triangles of square matrices, row by row, as vectors."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, cols = OPERATORS["tril_indices"](n, n, diag, device=mat.device)
    return mat[..., rows, cols]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Lower triangular matrices from their elements, row by row."""
    size = (-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * vec.shape[-1] + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2
    n = round(size)
    rows, cols = OPERATORS["tril_indices"](n, n, diag, device=vec.device)
    if rows.shape[0] != vec.shape[-1]:
        raise ValueError(f"The size of last dimension is {vec.shape[-1]} which cannot be expressed as the lower triangular part of a "
                         "square D x D matrix.")
    made = vec.new_zeros((*vec.shape[:-1], n, n))
    made[..., rows, cols] = vec
    return made


__all__ = ["broadcast_all", "clamp_probs", "euler_constant", "lazy_property", "logits_to_probs", "probs_to_logits", "tril_matrix_to_vec",
           "vec_to_tril_matrix"]
