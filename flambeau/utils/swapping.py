"""Two tensors in each other's place."""

from __future__ import annotations

from ..core.tensor import Tensor
from ..ops.conversions import _set_data


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Let each of two leaves have the other's class, memory, gradient, and attributes; who holds one of them sees the other."""
    for t in (t1, t2):
        if not isinstance(t, Tensor):
            raise TypeError(f"swap_tensors() takes tensors, not {type(t).__name__}")
        if not t.is_leaf:
            raise RuntimeError("Cannot swap a tensor that has a history: detach() it first")
    facts = [(t.__class__, t.detach(), t.requires_grad, t.grad, dict(t.__dict__)) for t in (t1, t2)]
    for t, (kind, data, wants, grad, extra) in ((t1, facts[1]), (t2, facts[0])):
        t.grad = None
        t.requires_grad = False
        t.__class__ = kind
        _set_data(t, data)
        t.__dict__.clear()
        t.__dict__.update(extra)
        t.requires_grad = wants
        t.grad = grad
