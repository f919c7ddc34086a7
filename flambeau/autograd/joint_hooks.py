"""One hook for several tensors (torch.autograd.graph.register_multi_grad_hook)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..core.tensor import Tensor, bump_version
from .engine import queue_callback, tensor_hook


class _Handle:
    """Takes the hooks of all tensors away."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        """The hook is not called any more."""
        for handle in self.handles:
            handle.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable, *, mode: str = "all") -> _Handle:
    """`fn(gradients)` once in each backward that reaches any of `tensors`: as soon as all are there, or at its end with None for those
    not reached; or, with mode="any", `fn(gradient)` as soon as the first of them is there."""
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    seen: dict[int, Tensor] = {}
    told: list[bool] = []

    def tell() -> None:
        if not told and mode == "all":
            told.append(True)
            fn([seen.get(i) for i in range(len(tensors))])

    def end() -> None:
        tell()
        seen.clear()
        told.clear()

    def reached(i: int, grad: Tensor) -> None:
        if not seen:
            queue_callback(end)
            if mode == "any":
                fn(grad)
        seen[i] = grad
        if len(seen) == len(tensors):
            tell()

    return _Handle([tensor_hook(t, functools.partial(reached, i)) for i, t in enumerate(tensors)])


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Note a write that autograd could not see: what it saved of the memory before is refused in backward."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        bump_version(t)


__all__ = ["increment_version", "register_multi_grad_hook"]
