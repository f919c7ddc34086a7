"""Scopes that turn recording on and off: usable as context managers, decorators, and (set_grad_enabled) calls."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

from .. import _C
from ..core import dispatch
from ..core.tensor import Tensor

state = dispatch.state
GRAD, INFERENCE = 1, 2  # of state.recording


def decorated(scope: Any, fn: Callable) -> Callable:
    """`fn` within a fresh scope of this kind at each call; of a generator, while it runs and not between its yields."""
    if inspect.isclass(fn):
        warnings.warn("Decorating classes is deprecated and will be disabled in future versions. You should only decorate functions or "
                      "methods. To preserve the current behavior of class decoration, you can directly decorate the `__init__` method and "
                      "nothing else.", FutureWarning, stacklevel=2)
    if inspect.isgeneratorfunction(fn):
        return _decorated_generator(scope, fn)

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with scope.clone():
            return fn(*args, **kwargs)

    return wrapped


def _decorated_generator(scope: Any, fn: Callable) -> Callable:
    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        steps = fn(*args, **kwargs)
        send: Callable[[], Any] = functools.partial(next, steps)
        while True:
            try:
                with scope.clone():
                    found = send()
            except StopIteration as done:
                return done.value
            try:
                sent = yield found
                send = functools.partial(steps.send, sent)
            except GeneratorExit:
                with scope.clone():
                    steps.close()
                raise
            except BaseException as error:
                send = functools.partial(steps.throw, error)

    return wrapped


class _Scope(_C.UserScope):
    """A re-usable scope over the grad flag; also decorates functions and generator functions."""

    __call__ = decorated

    def clone(self) -> _Scope:
        """A fresh scope of the same kind, for each call of a decorated function."""
        return type(self)()


class set_multithreading_enabled:
    """torch's choice of threads for backward, as a function and as a context manager; it is remembered, but here backward runs in the
    calling thread."""

    chosen = True

    def __init__(self, mode: bool) -> None:
        _expect_bool("set_multithreading_enabled", "mode", mode)
        self.before, set_multithreading_enabled.chosen = set_multithreading_enabled.chosen, mode

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        set_multithreading_enabled.chosen = self.before


def is_multithreading_enabled() -> bool:
    """What `set_multithreading_enabled` was told last."""
    return set_multithreading_enabled.chosen


def _expect_bool(function: str, name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{function}(): argument '{name}' (position 1) must be bool, not {type(value).__name__}")


class no_grad(_Scope):
    """Within it nothing is recorded."""

    def __new__(cls, fn: Callable | None = None) -> Any:
        made = super().__new__(cls)
        return made if fn is None else made(fn)


class enable_grad(_Scope):
    """Within it operations on tensors that require grad are recorded, also inside no_grad (but not inside inference_mode)."""

    def __new__(cls, orig_func: Callable | None = None) -> Any:
        made = super().__new__(cls)
        made.flag = True
        return made if orig_func is None else made(orig_func)


class set_grad_enabled(_Scope):
    """Sets the flag at once; as a context manager it restores the old value on exit."""

    def __init__(self, mode: bool):
        _expect_bool("set_grad_enabled", "enabled", mode)
        self.flag, self.before = bool(mode), state.recording
        state.grad_mode = self.flag

    def __repr__(self) -> str:
        return f"torch.autograd.grad_mode.set_grad_enabled(mode={self.flag})"

    def clone(self) -> _Scope:
        return set_grad_enabled(self.flag)

    def __call__(self, fn: Callable) -> Callable:
        state.recording = self.before
        return super().__call__(fn)


class inference_mode(_Scope):
    """Within it nothing is recorded, and tensors are made that never will be: inference tensors.

    A tensor allocated here, and every view of it, is an inference tensor for good (`is_inference()`): it has no version counter, and
    outside of the block it cannot be written to in place, saved for backward, or told to require a gradient. `clone()` makes a
    normal tensor of it. Views of normal tensors are normal, and normal tensors may be written to. `inference_mode(False)` is a
    block outside of inference mode, with gradients on.
    """

    mode: bool

    def __new__(cls, mode: Any = True) -> Any:
        made = super().__new__(cls)
        made.mode = mode if isinstance(mode, bool) else True
        made.recording = INFERENCE if made.mode else GRAD
        return made(mode) if callable(mode) else made

    def clone(self) -> _Scope:
        return inference_mode(self.mode)


class _unsafe_preserve_version_counter:
    """Writes to these tensors within the block are not counted, so that autograd takes what it saved of them as unchanged."""

    def __init__(self, tensors: Tensor | tuple[Tensor, ...]) -> None:
        self.tensors = (tensors,) if isinstance(tensors, Tensor) else tensors

    def __enter__(self) -> None:
        self.before = [t._version for t in self.tensors]

    def __exit__(self, *error: object) -> None:
        for t, version in zip(self.tensors, self.before):
            t._storage.version = version


def is_grad_enabled() -> bool:
    """Whether operations are recorded (outside of inference mode: there it is what enable_grad and no_grad have said)."""
    return state.grad_mode


def is_inference_mode_enabled() -> bool:
    """Whether inference_mode is on."""
    return state.inference
