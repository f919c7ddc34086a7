"""`FakeTensorMode`: within it factories make tensors without data, and operators compute shapes alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..core import dispatch
from ..core.symbolic import ShapeEnv
from ..core.tensor import Tensor, fake
from ..utils._pytree import tree_leaves


class _IsFake(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and instance.is_fake


class FakeTensor(metaclass=_IsFake):
    """What `isinstance` tells of a fake tensor; `FakeTensorMode.from_tensor` makes them."""


_entered = threading.local()


def _modes() -> tuple[FakeTensorMode, ...]:
    """The modes that this thread is within."""
    return getattr(_entered, "modes", ())


class FakeTensorMode:
    """A scope in which factories make fake tensors. Operators on fake tensors give fake ones also outside of it."""

    def __init__(self, *, allow_fallback_kernels: bool = True, allow_non_fake_inputs: bool = False, shape_env: ShapeEnv | None = None,
                 static_shapes: bool | None = None) -> None:
        self.allow_non_fake_inputs, self.shape_env = allow_non_fake_inputs, shape_env
        self.static_shapes = shape_env is None if static_shapes is None else static_shapes
        self._scopes: list[Any] = []

    def __enter__(self) -> FakeTensorMode:
        self._scopes.append(dispatch.fake_mode())
        self._scopes[-1].__enter__()
        _entered.modes = (*_modes(), self)
        return self

    def __exit__(self, *error: object) -> None:
        _entered.modes = _modes()[:-1]
        self._scopes.pop().__exit__(*error)

    def from_tensor(self, tensor: Tensor, *, static_shapes: bool | None = None) -> Tensor:
        """A fake tensor like a real one."""
        if not isinstance(tensor, Tensor):
            raise TypeError(f"from_tensor() takes a Tensor, got {type(tensor).__name__}")
        if not (self.static_shapes if static_shapes is None else static_shapes):
            raise NotImplementedError("FakeTensorMode with a ShapeEnv makes no symbolic sizes; torch.compile(dynamic=True) does")
        if tensor.is_fake:
            return tensor
        shape, strides, offset = tensor._layout
        made = fake(shape, tensor.dtype, tensor.device, strides, offset)
        made.requires_grad = tensor.requires_grad
        return made


@contextmanager
def unset_fake_temporarily() -> Iterator[None]:
    """Within the block factories make tensors with data again."""
    with dispatch.scope(fake=False):
        yield


class UnsupportedFakeTensorException(RuntimeError):
    """What cannot be done without data."""


DataDependentOutputException = DynamicOutputShapeException = NotImplementedError


def is_fake(x: Any) -> bool:
    """Whether a tensor has no data."""
    return isinstance(x, Tensor) and x.is_fake


def active_fake_mode() -> FakeTensorMode | None:
    """The innermost mode that is entered."""
    return (_modes() or (FakeTensorMode(),))[-1] if dispatch.state.fake else None


def detect_fake_mode(inputs: Any = None) -> FakeTensorMode | None:
    """A mode, if there is a fake tensor among the inputs or a mode is entered."""
    return active_fake_mode() or FakeTensorMode() if dispatch.state.fake or any(map(is_fake, tree_leaves(inputs))) else None


__all__ = ["FakeTensor", "FakeTensorMode", "active_fake_mode", "detect_fake_mode", "is_fake"]
