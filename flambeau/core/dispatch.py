"""Dispatch: the fixed ladder that every primitive call climbs down.

    __torch_function__ (operators) -> vmap -> autograd -> modes -> kernel

`state` is thread-local. `state.word` is zero when nothing but autograd can stand above the kernel; then a call
on inputs that need no gradient goes straight to it. Rooms above install themselves in the slots below.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from flambeau import _C


class Mode(Protocol):
    """Something that sees every primitive call below autograd (a tracer, a profiler, a fake-tensor scope)."""

    def handle(self, prim: Any, args: tuple) -> Any:
        """Answer `prim(*args)`; call `dispatch.run(prim, args)` for what lies further down."""


# What dispatch must know beside the arguments; every thread has values of its own (csrc/state.cpp, which native paths read):
#   word          number of active modes
#   grad_enabled  whether autograd records; inference: within torch.inference_mode, where it never does
#   grad_mode     grad_enabled as the user's scopes set it and is_grad_enabled() tells it: in inference mode a flag of its own
#   recording     these three as one number, to be put back
#   modes         the stack of modes, a tuple
#   fake          whether factories make fake tensors
#   function_modes  the stack of __torch_function__ modes, a tuple; autocast: (settings, cache), or None
#   overrides     zero where neither function modes nor autocast nor proxies (of which `proxies` counts the scopes) nor watchers want to see
#                 operators; watchers: who is told of what ran (watching.py), which changes nothing and is in no guard
#   classes_off   number of scopes in which no class is asked for its __torch_function__
#   overwriting   the target of an in-place operation whose new value is being computed, or None: autograd saves a copy of it
state = _C.DispatchState()

# Slots. autograd: record(prim, args, run) -> outputs, called when gradients are on and an input requires one.
record: Callable[[Any, tuple], Any]
# vmap: batched(prim, args) -> outputs, or NotImplemented where no argument is an example of a batch; None before the first vmap.
batched: Callable[[Any, tuple], Any] | None = None
# classes of users with `__torch_function__`: overriding_class(cls), told of each when it is defined.
overriding_class: Callable[[type], None] = lambda cls: None  # noqa: E731
# forward mode: forget(tensor), told of what was detached; carried(tensor, alias) -> alias, which has the tangent of the tensor;
# tangent_of(tensor) -> its tangent or None.
forget: Callable[[Any], None] = lambda tensor: None  # noqa: E731
carried: Callable[[Any, Any], Any] = lambda tensor, alias: alias  # noqa: E731
tangent_of: Callable[[Any], Any] = lambda tensor: None  # noqa: E731
# classes with `__torch_dispatch__`: wrapped(prim, args) -> outputs, or NotImplemented where no argument is of one; asked where a call would
# end in a shape rule, once there is such a class; and with `whole=True` by operators with facets, whose bodies run if nobody answers.
wrapped: Callable[..., Any] = lambda prim, args, whole=False: NotImplemented  # noqa: E731
wrapping = False
# Number of classes whose __torch_function__ may be asked: those that define one, and subclasses of Tensor that have instances. Zero
# lets operators skip the search for one.
override_classes = 0
_overriding: weakref.WeakSet[type] = weakref.WeakSet()


@runtime_checkable
class Computes(Protocol):
    """A tensor class of our own with `__torch_dispatch__`: it is told the record itself. If a captured graph is to hold such tensors, it has
    `__tensor_flatten__`, which names one part, `_part()`, that part, and `_of_part(part, *context)`; gradients flow through both."""

    @staticmethod
    def _compute(record: Any, args: tuple) -> Any: ...


def ask(prim: Any, args: tuple, whole: bool = False) -> Any:
    """What classes with `__torch_dispatch__` answer; NotImplemented where no argument is of one."""
    return wrapped(prim, args, whole) if wrapping else NotImplemented


def takes_every_call(value: Any) -> bool:
    """Whether `value` is of a class that is asked where users' classes are not: it has no array to compute with."""
    return getattr(type(value), "takes_every_call", False)


def answers(value: Any) -> bool:
    """Whether `value` is of a class with `__torch_dispatch__`."""
    return hasattr(type(value), "__torch_dispatch__")


def untold(value: Any) -> bool:
    """Whether nobody knows the elements of a tensor: it is fake, and no class answers for it."""
    return bool(state.fake) or (value._data is None and not answers(value))


def count_override(cls: type) -> None:
    """From now on operators look for arguments of this class."""
    global override_classes
    _overriding.add(cls)
    override_classes = len(_overriding)


def _no_autograd(prim: Any, args: tuple) -> Any:
    raise RuntimeError("flambeau.autograd is not loaded; import flambeau")


record = _no_autograd


def needs_grad(prim: Any, args: tuple) -> bool:
    """Whether autograd has to see this call."""
    return state.grad_enabled and prim.derivative is not None and _C.any_wants_grad(args, prim.tensor_positions)


def call(prim: Any, args: tuple) -> Any:
    """Climb down the ladder from the top."""
    if batched is not None and state.modes and (out := batched(prim, args)) is not NotImplemented:
        return out
    if needs_grad(prim, args):
        return record(prim, args)
    return run(prim, args)


def run(prim: Any, args: tuple) -> Any:
    """The part of the ladder below autograd: modes, then the kernel."""
    if state.modes:
        mode = state.modes[-1]
        with _without_top_mode():
            return mode.handle(prim, args)
    return prim.run(args)


def asked_mode(name: str) -> Callable | None:
    """A method of the innermost mode that most modes lack, for what is no call of a record: `warns`, `assigned`, `in_place` and `named`
    (ops/traced.py)."""
    modes = state.modes
    return getattr(modes[-1], name, None) if modes else None


scope = _C.dispatch_scope  # changes of the state for a block, which nothing can interrupt halfway


def _without_top_mode() -> AbstractContextManager[None]:
    return scope(state.modes[:-1])


def push_mode(mode: Mode) -> AbstractContextManager[Any]:
    """Put `mode` on top of the modes for the duration of the block."""
    return scope((*state.modes, mode), 1, value=mode)


def autocast_settings() -> tuple | None:
    """This thread's settings of autocast; None where it was not touched."""
    return None if state.autocast is None else state.autocast[0]


class autocast_as(_C.OverrideScope):
    """Within the block autocast has these settings, and keeps casts of weights in `cache`: one of its own, if not told."""

    def __init__(self, settings: tuple | None, cache: dict | None = None):
        self.autocast = None if settings is None else (settings, {} if cache is None else cache)

    def inside(self) -> tuple:
        return state.function_modes, self.autocast


def classes_off() -> AbstractContextManager[None]:
    """Within the block no class is asked for its `__torch_function__`."""
    return scope(classes_off=1)


def fake_mode() -> AbstractContextManager[None]:
    """Within the block every operation runs its shape rule only and factories make fake tensors."""
    return scope(word=1, fake=True)


grad_enabled = _C.grad_enabled  # `with grad_enabled(flag):`, the internal form of no_grad and enable_grad
