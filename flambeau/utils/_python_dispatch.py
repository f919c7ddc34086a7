"""`TorchDispatchMode`: a scope that sees every step that reaches a kernel, below autograd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..core import dispatch
from ..core.tensor import Tensor
from ..ops.wrappers import below_overrides, told


class TorchDispatchMode:
    """Override `__torch_dispatch__(self, func, types, args=(), kwargs=None)`; in it the mode, and what stands above it, is off. `func` is
    the overload of `torch.ops.aten` that the step is, with that one's arguments; a step that is several in ATen is told as these. A step that
    ATen hasn't in this form is equal to the operator that it belongs to, and has the arguments of Flambeau's primitive."""

    def __init__(self, _dispatch_key: Any = None) -> None:
        self._scopes: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __torch_dispatch__(self, func, types, args=(), kwargs=None)")

    def handle(self, prim: Any, args: tuple) -> Any:
        """What dispatch asks a mode."""
        def ask(func: Any, given: tuple, named: dict) -> Any:
            return self.__torch_dispatch__(func, tuple({type(a) for a in given if isinstance(a, Tensor)}), given, named)

        with dispatch.grad_enabled(False), below_overrides():
            return told(prim, args, ask)

    def __enter__(self) -> TorchDispatchMode:
        scopes = self.__dict__.setdefault("_scopes", [])    # a subclass need not call __init__
        scopes.append(dispatch.push_mode(self))
        scopes[-1].__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._scopes.pop().__exit__(*error)


class BaseTorchDispatchMode(TorchDispatchMode):
    """A mode that changes nothing."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextmanager
def _disable_current_modes() -> Iterator[list[Any]]:
    """In the block no mode sees anything."""
    state = dispatch.state
    modes, word = state.modes, state.word
    with dispatch.scope((), -len(modes)):
        yield list(modes)
    assert state.word == word


@contextmanager
def _pop_mode_temporarily() -> Iterator[Any]:
    """In the block the innermost mode, which it gives, sees nothing."""
    innermost = dispatch.state.modes[-1]
    with dispatch.scope((), -1):
        yield innermost


def _get_current_dispatch_mode() -> Any:
    """The innermost mode, or None."""
    return dispatch.state.modes[-1] if dispatch.state.modes else None


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """Whether `t` is a tensor made of others, which `__tensor_flatten__` gives."""
    return isinstance(t, Tensor) and type(t) is not Tensor and hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")


def return_and_correct_aliasing(func: Any, args: tuple, kwargs: dict | None, out: Any) -> Any:
    """What `__torch_dispatch__` of a subclass should give for `func`: the tensor written to, where it writes in place, else `out`."""
    name = getattr(func, "__name__", "").partition(".")[0]
    target = (kwargs or {}).get("out", args[0] if args and name.endswith("_") and not name.endswith("__") else None)
    return out if target is None else target


__all__ = ["BaseTorchDispatchMode", "TorchDispatchMode", "return_and_correct_aliasing", "is_traceable_wrapper_subclass"]
