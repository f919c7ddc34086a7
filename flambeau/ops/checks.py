"""Checks of what is in a tensor, for programs that are traced: there is nothing to look at until they run."""

from __future__ import annotations

from ..core.tensor import Tensor
from . import prims


def checked(out: Tensor, holds: Tensor) -> Tensor:
    """`out`, if all elements of `holds` are true when the program runs; else an error. It is for the case that an operator can't look
    itself: compiled code that fails runs again as it is written, so that the operator raises an error of its own."""
    whole = prims.all(holds, tuple(range(holds.ndim))) if holds.ndim else holds
    fine = prims.assured(whole)
    for _ in range(out.ndim):
        fine = prims.unsqueeze(fine, 0)
    shape = tuple(out._layout.shape)
    return prims.where(prims.expand(fine, shape) if shape else fine, out, out.new_zeros(()).expand(shape) if shape else out.new_zeros(()))


def presumed(condition: Tensor, truth: bool) -> Tensor:
    """True, if that is the truth value of a tensor of one element when the program runs; else an error."""
    holds = condition != 0
    return prims.assured(holds if truth else ~holds)
