"""Activation checkpointing: forget what a block saved and compute it again when backward needs it."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from ..core import dispatch
from ..core.tensor import Tensor
from ..ops.generators import all_states, set_all_states
from . import engine
from .function import Function
from .graph import detached, saved_tensors_hooks


class CheckpointError(RuntimeError):
    """The recomputation saved other tensors than the original run."""


@contextlib.contextmanager
def _rng(state: Any) -> Iterator[None]:
    """The generators as they were at the first run, within the block."""
    if state is None:
        yield
        return
    now = all_states()
    set_all_states(state)
    try:
        yield
    finally:
        set_all_states(now)


class Defaults:
    """What the scopes below set for the checkpoints within them; None leaves it to their arguments."""

    early_stop: bool | None = None
    debug: bool | None = None


@contextlib.contextmanager
def _default(name: str, value: bool | None) -> Iterator[None]:
    before = getattr(Defaults, name)
    setattr(Defaults, name, value)
    try:
        yield
    finally:
        setattr(Defaults, name, before)


def set_checkpoint_early_stop(enable: bool) -> contextlib.AbstractContextManager:
    """Within the block, whether recomputation ends as soon as it has saved what backward needs."""
    return _default("early_stop", enable)


def set_checkpoint_debug_enabled(enabled: bool | None) -> contextlib.AbstractContextManager:
    """Within the block, whether errors list the operators of both runs; None: as the argument `debug` says."""
    return _default("debug", enabled)


def noop_context_fn() -> tuple[contextlib.AbstractContextManager, contextlib.AbstractContextManager]:
    """Contexts for both runs that do nothing: the default `context_fn`."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def _warn_of_default(name: str) -> None:
    warnings.warn(f"torch.utils.{name}: the use_reentrant parameter should be passed explicitly. It is False here where it is left out, "
                  "which is what PyTorch recommends; there it is True", stacklevel=3)


def checkpoint(
    function: Callable,
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    context_fn: Callable = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, keeping only its inputs; its intermediates are recomputed in backward.

    `context_fn` gives the contexts of the first run and of the second (`create_selective_checkpoint_contexts`). `determinism_check`:
    "none" lets the second run save tensors of other shapes. `debug`: errors list the operators of both runs. `early_stop`: the second
    run ends once it has saved everything.
    """
    if determinism_check not in ("default", "none"):
        raise ValueError(f"determinism_check should be one of ['default', 'none'], but got {determinism_check}")
    if use_reentrant is None:
        _warn_of_default("checkpoint")
    if use_reentrant:
        if context_fn is not noop_context_fn or debug:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        if kwargs:
            raise ValueError(f"Unexpected keyword arguments: {','.join(kwargs)}; use_reentrant=True takes positional ones alone")
        if not any(isinstance(a, Tensor) and a.requires_grad for a in args):
            warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)
        return CheckpointFunction.apply(function, preserve_rng_state, *args)
    frame = _Frame(lambda: function(*args, **kwargs), preserve_rng_state)
    frame.early_stop = early_stop if Defaults.early_stop is None else Defaults.early_stop
    frame.checked = determinism_check == "default"
    if debug if Defaults.debug is None else Defaults.debug:
        frame.logs = (_Log(), _Log())
    forward_context, frame.recompute_context = context_fn()
    with saved_tensors_hooks(frame.pack, frame.unpack), frame.logged(0), forward_context:
        out = function(*args, **kwargs)
    return out


class _Log(list):
    """A mode that writes down the operators that it sees."""

    def handle(self, prim: Any, args: tuple) -> Any:
        self.append(f"{prim.name}({', '.join(str(list(a.shape)) if isinstance(a, Tensor) else repr(a) for a in args)})")
        return dispatch.run(prim, args)


class GraphExecGroup:
    """In its block checkpoints that several backward passes run into are computed again once, each pass taking other saved tensors of the
    region. They are in any case: what a recomputation saved is kept until it is taken."""

    def __enter__(self) -> GraphExecGroup:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class _Enough(BaseException):
    """Ends a recomputation that has saved everything."""


def _facts(tensor: Tensor) -> dict[str, Any]:
    return {"shape": tensor.shape, "dtype": tensor.dtype, "device": tensor.device}


class _Frame:
    """One checkpointed call: numbers what is saved, and fetches by number from a second run."""

    early_stop = checked = True
    logs: tuple[_Log, ...] = ()
    recompute_context: Any

    def __init__(self, again: Callable[[], Any], preserve: bool):
        self.again = again
        self.state = all_states() if preserve else None
        self.autocast = dispatch.autocast_settings()
        self.facts: list[dict] = []
        self.recomputed: dict[int, Tensor] | None = None

    def logged(self, run: int) -> contextlib.AbstractContextManager:
        """The scope in which the operators of the first or the second run are written down, if they are."""
        return dispatch.push_mode(self.logs[run]) if self.logs else contextlib.nullcontext()

    def pack(self, tensor: Tensor) -> int:
        self.facts.append(_facts(tensor))
        return len(self.facts) - 1

    def unpack(self, number: int) -> Tensor:
        if self.recomputed is None or number not in self.recomputed:
            self._recompute()
        return self.recomputed.pop(number)  # type: ignore[union-attr]

    def _recompute(self) -> None:
        kept: list[Tensor] = []

        def keep(tensor: Tensor) -> int:
            kept.append(detached(tensor) if tensor.grad_fn is not None else tensor)
            if self.early_stop and len(kept) == len(self.facts):
                raise _Enough
            return len(kept) - 1

        with (contextlib.suppress(_Enough), _rng(self.state), saved_tensors_hooks(keep, kept.__getitem__), dispatch.grad_enabled(True),
              dispatch.autocast_as(self.autocast), self.logged(1), self.recompute_context):
            self.again()
        self._check(kept)
        self.recomputed = dict(enumerate(kept))

    def _check(self, kept: list[Tensor]) -> None:
        if len(kept) != len(self.facts):
            self._fail(
                "A different number of tensors was saved during the original forward and recomputation.\n"
                f"Number of tensors saved during forward: {len(self.facts)}\nNumber of tensors saved during recomputation: {len(kept)}."
            )
        found = [(i, was, _facts(now)) for i, (was, now) in enumerate(zip(self.facts, kept)) if was != _facts(now)]
        if self.checked and found:
            self._fail("Recomputed values for the following tensors have different metadata than during the forward pass.\n" + "\n".join(
                f"tensor at position {i}:\nsaved metadata: {was}\nrecomputed metadata: {now}" for i, was, now in found))

    def _fail(self, why: str) -> None:
        runs = [f"\n\nOperations of the {name} run:\n" + "\n".join(log) for name, log in zip(("first", "second"), self.logs)]
        raise CheckpointError(f"torch.utils.checkpoint: {why}{''.join(runs)}")


class CheckpointFunction(Function):
    """Checkpointing by a nested backward pass: `apply(function, preserve_rng_state, *args)`."""

    @staticmethod
    def forward(ctx: Any, function: Callable, preserve: bool, *args: Any) -> Any:
        ctx.function, ctx.args = function, args
        ctx.state = all_states() if preserve else None
        ctx.autocast = dispatch.autocast_settings()
        return function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if not engine._is_checkpoint_valid():
            raise RuntimeError("When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` parameter "
                               "to .backward(). To resolve this error, you can either set use_reentrant=False, or call .backward() without "
                               "passing the `inputs` argument.")
        inputs = [detached(a).requires_grad_(a.requires_grad) if isinstance(a, Tensor) else a for a in ctx.args]
        with _rng(ctx.state), dispatch.grad_enabled(True), dispatch.autocast_as(ctx.autocast):
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
    if use_reentrant is None:
        _warn_of_default("checkpoint.checkpoint_sequential")
    modules = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = len(modules) // segments

    def run(part: list) -> Callable:
        def forward(x: Any) -> Any:
            for m in part:
                x = m(x)
            return x

        return forward

    for k in range(segments - 1):
        input = checkpoint(run(modules[k * size : (k + 1) * size]), input, use_reentrant=bool(use_reentrant), **kwargs)
    return run(modules[(segments - 1) * size :])(input)
