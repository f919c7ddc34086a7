"""One hook for several tensors (torch.autograd.graph.register_multi_grad_hook)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from ..core.tensor import Tensor, bump_version
from .engine import queue_callback, tensor_hook
from .handles import HookDict, RemovableHandle


class _MultiHandle(RemovableHandle):
    """Takes the hooks of all tensors away."""

    def __init__(self, handles: Sequence[Any]) -> None:
        super().__init__(HookDict())
        self.handles = tuple(handles)

    def remove(self) -> None:
        """The hook is not called any more."""
        for handle in self.handles:
            handle.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable, *, mode: str = "all") -> _MultiHandle:
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

    return _MultiHandle([tensor_hook(t, functools.partial(reached, i)) for i, t in enumerate(tensors)])


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Note a write that autograd could not see: what it saved of the memory before is refused in backward."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        bump_version(t)


def set_warn_on_accumulate_grad_stream_mismatch(enabled: bool) -> None:
    """Nothing to warn of: a backward pass runs on the one stream that is current where it is called."""
    _expect_bool("set_warn_on_accumulate_grad_stream_mismatch", enabled)


def set_override_stale_capture_stream(enabled: bool) -> None:
    """Nothing to override: nodes remember no stream that a capture could find stale."""
    _expect_bool("set_override_stale_capture_stream", enabled)


def _expect_bool(name: str, enabled: bool) -> None:
    if not isinstance(enabled, bool):
        raise TypeError(f"{name}() takes a bool, not {type(enabled).__name__}")


def region_activation_memory_budget(budget: float) -> NoReturn:
    """Refused: RuntimeError outside of what torch.compile captures, where it has no effect, NotImplementedError inside."""
    if not 0 <= budget <= 1:
        raise ValueError(f"region_activation_memory_budget: the budget is between 0 and 1, got {budget}")
    raise RuntimeError("torch.autograd.graph.region_activation_memory_budget can only be used inside a torch.compile region, and is not "
                       "implemented there: the partitioner keeps what costs the least memory traffic; use torch.utils.checkpoint")


__all__ = ["increment_version", "region_activation_memory_budget", "register_multi_grad_hook", "set_override_stale_capture_stream",
           "set_warn_on_accumulate_grad_stream_mismatch"]
