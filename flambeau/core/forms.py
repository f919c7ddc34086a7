"""`FormTensor`: a tensor that is not elements in one array, and so computes by forms of operators alone."""

from __future__ import annotations

from typing import Any, NoReturn

from . import dispatch
from .tensor import Layout, Tensor


class FormTensor(Tensor):
    """What sparse and nested tensors have in common: there is no array, and whatever an operator does it does by a form for the class.

    A class of its own has `__torch_function__`, which finds forms or refuses; so a dense kernel never sees such an operand.
    """

    __slots__ = ()

    takes_every_call = True  # even where classes are not asked (DisableTorchFunctionSubclass): there is no array to compute with
    is_fake = False
    instead = "its values()"

    def _without_array(self) -> NoReturn:
        raise NotImplementedError(f"this needs elements in one array, but the tensor of shape {list(self._lay.shape)} has layout "  # type: ignore[union-attr]
                                  f"{self.layout}; use {self.instead}")

    _data = _layout = _storage = property(_without_array)


def formed(cls: type, shape: tuple, strides: tuple, entries: Tensor) -> Any:
    """A tensor of this class, shape, and of the entries' dtype and device; knows nothing of autograd, nor of what the class keeps."""
    dispatch.count_override(cls)
    made: Any = object.__new__(cls)
    Tensor._data.__set__(made, None)
    made._lay, made._store, made._grad, made._view = Layout(shape, strides, 0), None, None, None
    made.dtype, made.device = entries.dtype, entries.device
    return made


def check_may_write(tensor: Tensor) -> None:
    """RuntimeError where an in-place operation on a leaf would spoil its gradient."""
    if dispatch.state.grad_enabled and tensor.requires_grad and tensor.is_leaf:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")

