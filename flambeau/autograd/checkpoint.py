"""Activation checkpointing: forget what a block saved and compute it again when backward needs it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from ..core import dispatch
from ..core.tensor import Tensor
from ..ops.registry import OPERATORS
from . import engine
from .function import Function
from .graph import detached, saved_tensors_hooks


class CheckpointError(RuntimeError):
    """The recomputation saved other tensors than the original run."""


def _rng_state() -> Any:
    get = OPERATORS.get("get_rng_state")
    return None if get is None else get()


@contextlib.contextmanager
def _rng(state: Any) -> Iterator[None]:
    """The generator as it was at the first run, within the block."""
    if state is None:
        yield
        return
    now = _rng_state()
    OPERATORS["set_rng_state"](state)
    try:
        yield
    finally:
        OPERATORS["set_rng_state"](now)


def checkpoint(
    function: Callable,
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    context_fn: Callable | None = None,
    determinism_check: str = "default",
    debug: bool = False,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, keeping only its inputs; its intermediates are recomputed in backward."""
    if use_reentrant:
        if kwargs:
            raise ValueError(f"Unexpected keyword arguments: {','.join(kwargs)}; use_reentrant=True takes positional ones alone")
        return _Reentrant.apply(function, preserve_rng_state, *args)
    frame = _Frame(lambda: function(*args, **kwargs), preserve_rng_state)
    forward_context, frame.recompute_context = context_fn() if context_fn else (contextlib.nullcontext(), contextlib.nullcontext())
    with saved_tensors_hooks(frame.pack, frame.unpack), forward_context:
        out = function(*args, **kwargs)
    return out


class _Frame:
    """One checkpointed call: numbers what is saved, and fetches by number from a second run."""

    def __init__(self, again: Callable[[], Any], preserve: bool):
        self.again, self.count = again, 0
        self.state = _rng_state() if preserve else None
        self.recomputed: dict[int, Tensor] | None = None
        self.recompute_context: Any = None

    def pack(self, tensor: Tensor) -> int:
        self.count += 1
        return self.count - 1

    def unpack(self, number: int) -> Tensor:
        if self.recomputed is None or number not in self.recomputed:
            self._recompute()
        return self.recomputed.pop(number)  # type: ignore[union-attr]

    def _recompute(self) -> None:
        kept: list[Tensor] = []

        def keep(tensor: Tensor) -> int:
            kept.append(detached(tensor) if tensor.grad_fn is not None else tensor)
            return len(kept) - 1

        def never(number: Any) -> Tensor:
            return kept[number]

        with _rng(self.state), saved_tensors_hooks(keep, never), dispatch.grad_enabled(True), self.recompute_context:
            self.again()
        if len(kept) != self.count:
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the original forward and "
                f"recomputation. Number of tensors saved during forward: {self.count}. Number of tensors saved during "
                f"recomputation: {len(kept)}."
            )
        self.recomputed = dict(enumerate(kept))


class _Reentrant(Function):
    """Checkpointing by a nested backward pass."""

    @staticmethod
    def forward(ctx: Any, function: Callable, preserve: bool, *args: Any) -> Any:
        ctx.function, ctx.args = function, args
        ctx.state = _rng_state() if preserve else None
        return function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        inputs = [detached(a).requires_grad_(a.requires_grad) if isinstance(a, Tensor) else a for a in ctx.args]
        with _rng(ctx.state), dispatch.grad_enabled(True):
            out = ctx.function(*inputs)
        outs = out if isinstance(out, tuple) else (out,)
        pairs = [(o, g) for o, g in zip(outs, grads) if isinstance(o, Tensor) and o.requires_grad]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        engine.run_backward(
            [o for o, _ in pairs], [g for _, g in pairs], inputs=None, retain_graph=False, create_graph=False, accumulate=True
        )
        return (None, None, *[i.grad if isinstance(i, Tensor) else None for i in inputs])


def checkpoint_sequential(functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any) -> Any:
    """A sequence of modules in `segments` checkpointed parts (the last one runs as it is)."""
    modules = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = len(modules) // segments

    def run(part: list) -> Callable:
        def forward(x: Any) -> Any:
            for m in part:
                x = m(x)
            return x

        return forward

    for k in range(segments - 1):
        input = checkpoint(run(modules[k * size : (k + 1) * size]), input, use_reentrant=use_reentrant, **kwargs)
    return run(modules[(segments - 1) * size :])(input)
