"""Limits on gradients, and gradients' norms."""

from __future__ import annotations

import math
import warnings
from collections.abc import Generator, Iterable
from typing import Any

from ...core import dispatch
from ...core.tensor import Tensor
from ...ops.creation import tensor
from ...ops.nn.steps import scale_all_, total_norm
from ...ops.telling import parameters_in


def _grads(parameters: Any) -> list[Tensor]:
    params = [parameters] if isinstance(parameters, Tensor) else parameters_in(parameters, "clip_grad_value_")
    return [p.grad for p in params if p.grad is not None]


def get_total_norm(tensors: Iterable[Tensor] | Tensor, norm_type: float = 2.0, error_if_nonfinite: bool = False,
                   foreach: bool | None = None) -> Tensor:
    """The norm of all elements of the tensors together, as a 0-dim tensor."""
    parts = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    p = float(norm_type)
    if not parts:
        return tensor(0.0)
    if p == 2.0:
        total = total_norm(parts)
    else:
        norms = [t.norm(p).reshape(1).to(parts[0].device) for t in parts]
        total = norms[0].new_cat(norms, 0).norm(p)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(f"The total norm of order {p} for gradients from `parameters` is non-finite, so it cannot "
                           f"be clipped. To disable "
                           "this error and scale the gradients by the non-finite norm anyway, set `error_if_nonfinite=False`")
    return total


def clip_grads_with_norm_(parameters: Any, max_norm: float, total_norm: Tensor, foreach: bool | None = None) -> None:
    """Scale the gradients by max_norm / total_norm where that is below 1."""
    with dispatch.grad_enabled(False):
        grads = _grads(parameters)
        if grads:
            scale_all_(grads, (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0))


def clip_grad_norm_(parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
                    foreach: bool | None = None) -> Tensor:
    """Scale the gradients, in place, so that their norm together is at most `max_norm`; returns the norm before."""
    params = [parameters] if isinstance(parameters, Tensor) else parameters_in(parameters, "clip_grad_norm_")
    if not params and isinstance(parameters, Generator):
        warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=2)
    with dispatch.grad_enabled(False):
        norm = get_total_norm(_grads(params), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(params, max_norm, norm)
    return norm


def clip_grad_value_(parameters: Any, clip_value: float, foreach: bool | None = None) -> None:
    """Limit each gradient's elements, in place, to [-clip_value, clip_value]."""
    with dispatch.grad_enabled(False):
        for g in _grads(parameters):
            g.clamp_(-float(clip_value), float(clip_value))


def clip_grad_norm(parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
                   foreach: bool | None = None) -> Tensor:
    """clip_grad_norm_, the old name."""
    warnings.warn("`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.", FutureWarning,
                  stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)
