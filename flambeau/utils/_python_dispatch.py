"""`TorchDispatchMode`: a scope that sees every step that reaches a kernel, below autograd."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..core import dispatch
from ..core.tensor import Tensor
from ..ops import aten
from ..ops.custom import CustomOperator


class DispatchedOperator(aten.AtenOperator):
    """A step as a mode sees it: equal to `torch.ops.aten.NAME.default`, and called as the step was."""

    def __init__(self, handle: Any, step: Callable) -> None:
        super().__init__(handle.__name__)
        self._handle, self._step = handle, step

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._step(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return other is self._handle or (isinstance(other, DispatchedOperator) and other._handle is self._handle)

    def __hash__(self) -> int:
        return hash(self._handle)


class TorchDispatchMode:
    """Override `__torch_dispatch__(self, func, types, args=(), kwargs=None)`; in it the mode is off. `func` is equal to the operator of
    `torch.ops.aten` that the step belongs to; its arguments are those of Flambeau's primitive."""

    def __init__(self, _dispatch_key: Any = None) -> None:
        self._scopes: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __torch_dispatch__(self, func, types, args=(), kwargs=None)")

    def handle(self, prim: Any, args: tuple) -> Any:
        """What dispatch asks a mode."""
        handle = aten.name_of(prim, args)
        func = handle if isinstance(handle, CustomOperator) else DispatchedOperator(handle, prim)
        return self.__torch_dispatch__(func, tuple({type(a) for a in args if isinstance(a, Tensor)}), args, {})

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
