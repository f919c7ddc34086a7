"""`Parameter` and `Buffer`: tensors that a module registers when they are assigned to it; and their lazy forms."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from flambeau import _C

from ..core import dispatch
from ..core.device import as_device
from ..core.dtypes import dtype
from ..core.tensor import Tensor, look_at
from ..ops.creation import uninitialised
from ..ops.promotion import default_dtype


def _empty(shape: tuple, kind: dtype | None = None, where: Any = None) -> Tensor:
    return uninitialised(shape, kind or default_dtype(), as_device(where))


class _ParameterMeta(type):
    """Lets a tensor of a user's subclass count as a Parameter when it is marked `_is_param`."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if type.__instancecheck__(cls, instance):
            return True
        return cls is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False)


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that a module trains: `Parameter(data, requires_grad=True)` shares memory with `data`, without its history."""

    _plain_torch_function = True

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Any:
        if data is None:
            data = _empty((0,))
        if not isinstance(data, Tensor):
            raise TypeError(f"cannot make a Parameter of {type(data).__name__}; give it a Tensor")
        plain = data.detach()
        if type(data) is Tensor or isinstance(data, cls):
            made = plain._as_subclass(cls)
        else:
            made = plain if plain is not data else plain.alias()  # type: ignore[attr-defined]
            made._is_param = True  # type: ignore[union-attr]
        made.requires_grad = requires_grad
        return made

    @staticmethod
    def __torch_function__(func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """The function itself, whatever the other arguments are, with plain tensors as results."""
        with dispatch.scope(classes_off=1):
            return func(*args, **(kwargs or {}))

    def __deepcopy__(self, memo: dict) -> Parameter:
        if id(self) not in memo:
            copy = type(self)(self.detach()._as_subclass(Tensor).clone(), self.requires_grad)
            memo[id(self)] = copy
        return memo[id(self)]

    def __repr__(self) -> str:
        return "Parameter containing:\n" + repr(self._as_subclass(Tensor))

    __str__ = __repr__

    def __reduce_ex__(self, protocol: Any) -> tuple:
        plain = self.detach()._as_subclass(Tensor)
        state = dict(self.__dict__)
        if not state:
            return _rebuild_parameter, (plain, self.requires_grad, OrderedDict())
        return _rebuild_parameter_with_state, (plain, self.requires_grad, OrderedDict(), state)


def _rebuild_parameter(data: Tensor, requires_grad: bool, hooks: Any) -> Parameter:
    return Parameter(data, requires_grad)


def _rebuild_parameter_with_state(data: Tensor, requires_grad: bool, hooks: Any, state: dict) -> Parameter:
    made = Parameter(data, requires_grad)
    made.__dict__.update(state)
    return made


class _BufferMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False)


class Buffer(Tensor, metaclass=_BufferMeta):
    """A tensor that is part of a module's state but not trained. Assigned to a module it is registered as a buffer.

    `persistent`: whether it appears in the module's state_dict.
    """

    _plain_torch_function = True

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Any:
        if data is None:
            data = _empty((0,))
        made = data.detach()
        if data.requires_grad:
            made.requires_grad = True
        made._is_buffer = True  # type: ignore[attr-defined]
        made.persistent = persistent  # type: ignore[attr-defined]
        return made


_C.know_plain(Parameter, Buffer)


_WITHOUT_VALUES = frozenset((
    "to", "half", "float", "double", "bfloat16", "char", "short", "int", "long", "cpu", "cuda", "get_device", "is_complex", "is_floating_point",
    "requires_grad_", "copy_", "__get__", "__set__", "__repr__"))
"""Methods and attributes that a tensor of unknown shape has."""


def _no_values(func: Any) -> ValueError:
    return ValueError(f"Attempted to use an uninitialized parameter in {getattr(func, '__name__', func)}(). Call the lazy module with an "
                      "input, or `materialize` the parameter, before computing with it")


class UninitializedTensorMixin:
    """A parameter or buffer whose shape is not known yet; `materialize(shape)` gives it one."""

    def materialize(self, shape: Any, device: Any = None, dtype: dtype | None = None) -> None:
        """Become an ordinary parameter (or buffer) of this shape, uninitialised."""
        kind, where = dtype or self.dtype, device or self.device
        made = _empty(tuple(shape), kind, where)
        look_at(self, made)
        self.__class__ = self._materialize_as

    def share_memory_(self) -> Any:
        """Refused: there is nothing to share yet."""
        raise RuntimeError("Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters before "
                           "calling `module.share_memory()`.")

    def __getattribute__(self, name: str) -> Any:
        if name == "shape":
            raise RuntimeError("Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
                               "`load_state_dict` when trying to load an uninitialized parameter into an initialized one. "
                               "Call `forward` to initialize the parameters before accessing their attributes.")
        return object.__getattribute__(self, name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    __str__ = __repr__

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Refused are all operators but those that a module's `to` and loading into it need: there are no values yet."""
        if getattr(func, "__name__", "") in _WITHOUT_VALUES:
            return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[misc]
        raise _no_values(func)

    def numel(self) -> int:
        """Refused, as all that needs a shape."""
        raise _no_values(Tensor.numel)

    def size(self, dim: int | None = None) -> Any:
        """Refused, as all that needs a shape."""
        raise _no_values(Tensor.size)


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A Parameter of unknown shape, for lazy modules."""

    _materialize_as = Parameter
    _plain_torch_function = False

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        made = _empty((0,), dtype, device)._as_subclass(cls)
        made.requires_grad = requires_grad
        return made

    def __deepcopy__(self, memo: dict) -> UninitializedParameter:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, self.device, self.dtype)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return UninitializedParameter, (self.requires_grad, self.device, self.dtype)


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer of unknown shape, for lazy modules."""

    _materialize_as = Tensor
    _plain_torch_function = False

    def __new__(cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True) -> Any:
        made = _empty((0,), dtype, device)._as_subclass(cls)
        made.requires_grad = requires_grad
        made.persistent = persistent
        made._is_buffer = True
        return made

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return UninitializedBuffer, (self.requires_grad, self.device, self.dtype, self.persistent)


def is_lazy(param: Any) -> bool:
    """Whether a parameter or buffer still has no shape."""
    return isinstance(param, UninitializedTensorMixin)


__all__ = ["Parameter", "Buffer", "UninitializedParameter", "UninitializedBuffer", "is_lazy"]
