"""Tensor classes with `__torch_dispatch__`: they answer primitive calls below autograd, in place of a kernel.

Such a tensor has a layout, a dtype and a device but no elements of its own: to everything above it is a fake tensor, and where a fake
tensor's call would end in the shape rule alone, its class is asked instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import _C
from ..core import dispatch
from ..core.device import as_device
from ..core.dtypes import dtype
from ..core.tensor import Tensor, fake
from . import aten
from .custom import CustomOperator
from .promotion import default_dtype


class DispatchedOperator(aten.AtenOperator):
    """A step below autograd that ATen has not in this form: equal to `torch.ops.aten.NAME.default`, and called as the step was."""

    def __init__(self, handle: Any, step: Callable) -> None:
        super().__init__(handle.__name__)
        self._handle, self._step = handle, step

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._step(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return self._handle == (other._handle if isinstance(other, DispatchedOperator) else other)

    def __hash__(self) -> int:
        return hash(self._handle)


def step_of(prim: Any, args: tuple) -> tuple[Any, tuple, dict]:
    """A primitive's call as `__torch_dispatch__` gets to see it: (function, args, kwargs), an overload of ATen's where it is one."""
    handle = aten.name_of(prim, args)
    if isinstance(handle, CustomOperator):
        return handle, args, {}
    found = aten.step_target(handle, prim, args)
    return (DispatchedOperator(handle, prim), args, {}) if found is None else found


def told(prim: Any, args: tuple, ask: Callable[[Any, tuple, dict], Any]) -> Any:
    """What a primitive's call comes to where `ask(function, args, kwargs)` answers for what it is in ATen: one call, or each of several."""
    steps = prim.aten.steps
    if steps is None:
        return ask(*step_of(prim, args))

    def call(name: str | Callable, *given: Any, **named: Any) -> Any:
        return ask(aten.overload_named(name), given, named) if isinstance(name, str) else name(*given, **named)

    return steps(call, *args)


def in_aten(prim: Any, args: tuple) -> tuple[list[tuple[Any, tuple, dict]], Any]:
    """A call of a record as calls of overloads, and which give its result, as of `aten.steps_of`; no calls if ATen has none."""
    calls, result = aten.steps_of(prim, args)
    if not calls:
        calls, result = [step_of(prim, args)], aten.Step(0)
    return ([], None) if isinstance(calls[0][0], DispatchedOperator) else (calls, result)


class below_overrides(_C.OverrideScope):
    """In the block no function mode and no autocast sees anything: they stand above what `__torch_dispatch__` is asked for."""

    def inside(self) -> tuple:
        return (), None


def wrapping(args: Sequence) -> list[type]:
    """The classes with `__torch_dispatch__` among the arguments, subclasses before their bases."""
    found: list[type] = []
    for a in args:
        if type(a) in (tuple, list):
            kinds = wrapping(a)
        else:
            kinds = [type(a)] if dispatch.answers(a) else []
        for kind in kinds:
            if kind not in found:
                found.insert(next((i for i, other in enumerate(found) if issubclass(kind, other)), len(found)), kind)
    return found


def answer(prim: Any, args: tuple, whole: bool = False) -> Any:
    """What the first of the arguments' classes that answers gives; NotImplemented where none has `__torch_dispatch__`. Our own classes
    are told the record itself, by `_compute(record, args)`; others are asked for an operator as a `whole` where ATen has its steps."""
    kinds = wrapping(args)
    if not kinds:
        return NotImplemented
    if issubclass(kinds[0], dispatch.Computes):
        with dispatch.grad_enabled(False):
            return kinds[0]._compute(prim, args)
    if whole and prim.aten.steps is None:
        return NotImplemented
    with dispatch.grad_enabled(False), below_overrides():      # autograd, above, has its own record of this step
        return told(prim, args, _ask_classes)


def _ask_classes(func: Any, args: tuple, kwargs: dict) -> Any:
    """What the first class among the arguments' that answers gives for a step; the step itself where none has a say in it."""
    kinds = wrapping([*args, *kwargs.values()])
    for kind in kinds:
        out = kind.__torch_dispatch__(func, tuple(kinds), args, kwargs)     # type: ignore[attr-defined]
        if out is not NotImplemented:
            return tuple(out) if type(out) is list else out
    if not kinds:
        return func(*args, **kwargs)
    raise TypeError(f"Multiple dispatch failed for 'torch.ops.{func}'; all __torch_dispatch__ handlers returned NotImplemented: "
                    f"{[kind.__name__ for kind in kinds]}")


def _make_subclass(cls: type, data: Tensor, require_grad: bool = False, dispatch_strides: bool = False, dispatch_device: bool = False,
                   device_for_backend_keys: Any = None) -> Any:
    """`data`, without its history, as a tensor of class `cls`: its elements are its own."""
    _check_class("_make_subclass", cls)
    if dispatch_strides or dispatch_device or device_for_backend_keys is not None:
        raise NotImplementedError("_make_subclass(dispatch_strides=, dispatch_device=, device_for_backend_keys=) is not implemented; "
                                  "override the properties `shape` and `device` in the class")
    if hasattr(cls, "__torch_dispatch__"):
        raise NotImplementedError(f"_make_subclass({cls.__name__}, ...): a class with __torch_dispatch__ has no elements of its own here; "
                                  "keep the tensor as an attribute, and make it with Tensor._make_wrapper_subclass(cls, data.shape, ...)")
    with dispatch.scope(classes_off=1):     # the class is asked of no step of its own making
        made = data.detach()._as_subclass(cls)
        made.requires_grad = require_grad
    return made


def _make_wrapper_subclass(cls: type, size: Sequence[int], strides: Sequence[int] | None = None, storage_offset: int | None = None,
                           memory_format: Any = None, dtype: dtype | None = None, layout: Any = None, device: Any = None,
                           pin_memory: bool = False, requires_grad: bool = False, dispatch_sizes_strides_policy: str | None = None,
                           dispatch_device: bool = False, dispatch_layout: bool = False) -> Any:
    """A tensor of class `cls` with this layout, dtype and device, without elements: the class keeps what stands for them, and answers
    operators in `__torch_dispatch__`."""
    _check_class("_make_wrapper_subclass", cls)
    if not hasattr(cls, "__torch_dispatch__"):
        raise RuntimeError(f"_make_wrapper_subclass(): {cls.__name__} must define a classmethod __torch_dispatch__")
    if pin_memory:
        raise NotImplementedError("_make_wrapper_subclass(pin_memory=True): it has no memory; pin what it wraps")
    if layout is not None and str(layout) != "torch.strided":
        raise NotImplementedError(f"_make_wrapper_subclass(layout={layout}): wrappers are strided here; define a property `layout`")
    if memory_format is not None and strides is None and str(memory_format) != "torch.contiguous_format":
        strides = memory_format.strides(tuple(size))
    plain = fake(tuple(size), dtype or default_dtype(), as_device(device), None if strides is None else tuple(strides), storage_offset or 0)
    with dispatch.scope(classes_off=1):
        made = plain._as_subclass(cls)
        made.requires_grad = requires_grad
    # What the class computes by itself (`dispatch_*`) it does as a property, which Python finds first anyway.
    del dispatch_sizes_strides_policy, dispatch_device, dispatch_layout
    return made


def _check_class(name: str, cls: Any) -> None:
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise TypeError(f"{name}(): argument 'cls' must be a subclass of Tensor, not {cls!r}")


dispatch.wrapped = answer
Tensor._make_subclass = staticmethod(_make_subclass)
Tensor._make_wrapper_subclass = staticmethod(_make_wrapper_subclass)
