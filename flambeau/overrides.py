"""`__torch_function__`: classes and modes that take over operators (torch.overrides)."""

from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from . import _C
from .core import dispatch
from .core.tensor import ATTRIBUTES_AS_THEY_ARE, Tensor
from .ops import registry
from .ops.asked import accesses, member_of, members, shown
from .ops.aten import AtenOperator
from .ops.custom import CustomOperator
from .ops.registry import OPERATORS, handle_torch_function


class _Here(threading.local):
    skip = False    # the next function that asks whether classes take over is told that none do


_here = _Here()


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether some argument overrides `__torch_function__`, or a mode does; for functions in Python, whose operators are asked about anew.
    Classes that take every call and modes that are for operators only see those alone."""
    state = dispatch.state
    if not state.overrides:
        for arg in relevant_args:
            if type(arg) is not Tensor:
                break
        else:
            return False
    if _here.skip:
        _here.skip = False
        return False
    if state.function_modes:
        return not getattr(state.function_modes[-1], "operators_only", False)
    asked = state.proxies > 0 or not state.classes_off
    return asked and any(not dispatch.takes_every_call(owner) for owner in registry._overriding(relevant_args))


def has_torch_function_unary(obj: Any) -> bool:
    """Whether `obj` overrides `__torch_function__`."""
    return has_torch_function((obj,))


def has_torch_function_variadic(*args: Any) -> bool:
    """Whether some argument overrides `__torch_function__`."""
    return has_torch_function(args)


class DisableTorchFunctionSubclass(dispatch.scope):
    """Within the block `__torch_function__` of classes is not asked; modes are."""

    def __new__(cls) -> DisableTorchFunctionSubclass:
        return super().__new__(cls, classes_off=1)


class _NoModes(_C.OverrideScope):
    """No mode is asked in the block."""

    def inside(self) -> tuple:
        return (), dispatch.state.autocast


class DisableTorchFunction(_NoModes):
    """Within the block nothing takes over operators: neither classes nor modes."""

    def __enter__(self) -> DisableTorchFunction:
        super().__enter__()
        dispatch.state.classes_off += 1
        return self

    def __exit__(self, *error: object) -> None:
        dispatch.state.classes_off -= 1
        super().__exit__(*error)


class _TorchFunctionState(enum.Enum):
    """What may take over operators in this thread."""

    ENABLED, SUBCLASSES_DISABLED, ALL_DISABLED = range(3)


def _get_torch_function_state() -> _TorchFunctionState:
    """Whether classes are asked. Where all is disabled there are no modes, which tells no more."""
    return _TorchFunctionState.SUBCLASSES_DISABLED if dispatch.state.classes_off else _TorchFunctionState.ENABLED


def _set_torch_function_state(state: _TorchFunctionState) -> None:
    """Let classes be asked, or not."""
    if state is _TorchFunctionState.ALL_DISABLED:
        raise NotImplementedError("_set_torch_function_state(ALL_DISABLED) is not implemented; use with torch._C.DisableTorchFunction()")
    dispatch.state.classes_off = state.value


def _len_torch_function_stack() -> int:
    """How many modes are on."""
    return len(dispatch.state.function_modes)


def _get_function_stack_at(level: int) -> Any:
    """The mode of a level, 0 for the outermost."""
    return dispatch.state.function_modes[level]


def _push_on_torch_function_stack(mode: Any) -> None:
    """Turn a mode on, until it is popped."""
    dispatch.state.function_modes = (*dispatch.state.function_modes, mode)
    shown.pushed.append(mode)
    shown.settle()


def _pop_torch_function_stack() -> Any:
    """Turn the innermost mode off; it is the result."""
    *rest, last = dispatch.state.function_modes
    dispatch.state.function_modes = tuple(rest)
    shown.pushed = [mode for mode in shown.pushed if mode is not last]
    shown.settle()
    return last


class TorchFunctionMode(_C.OverrideScope):
    """A scope that sees every operator called in it, in its thread: override `__torch_function__(func, types, args, kwargs)`."""

    operators_only = False  # whether functions that are made of operators pass it by

    def inside(self) -> tuple:
        return (*dispatch.state.function_modes, self), dispatch.state.autocast

    def __enter__(self) -> Any:
        mode = super().__enter__()
        if not self.operators_only:
            shown.settle(self)
        return mode

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        if not self.operators_only:
            shown.settle()

    def __getstate__(self) -> dict:
        """Copies are not within the blocks of the original."""
        return self.__dict__

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __torch_function__(self, func, types, args, kwargs)")


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return func(*args, **(kwargs or {}))


def is_tensor_like(inp: Any) -> bool:
    """Whether `inp` is a Tensor or can stand for one."""
    return isinstance(inp, Tensor) or hasattr(inp, "__torch_function__")


def is_tensor_method_or_property(func: Callable) -> bool:
    """Whether `func` is an attribute of Tensor."""
    return any(member_of(value) is member_of(func) for value in vars(Tensor).values()) or getattr(func, "__name__", None) == "__get__"


def wrap_torch_function(dispatcher: Callable) -> Callable[[Callable], Callable]:
    """Decorate a function to be overridable; `dispatcher(*args, **kwargs)` gives the relevant arguments."""

    def decorate(func: Callable) -> Callable:
        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = dispatcher(*args, **kwargs)
            if dispatch.state.function_modes or has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return func(*args, **kwargs)

        return wrapped

    return decorate


_NAMESPACES = ("functional", "nn.functional", "linalg", "fft", "special", "", "Tensor")
"""Of torch, where functions are that can be overridden. The first that has one gives it its name."""


def _asks(fn: Any) -> bool:
    """Whether a function can be overridden: an operator, or one written in Python that asks."""
    return registry.is_operator(fn) or "handle_torch_function" in getattr(getattr(fn, "__code__", None), "co_names", ())


def _belongs(fn: Any, name: str, space: str) -> bool:
    """Whether a function that a namespace has is at home there, not only known there as well."""
    if not space and getattr(fn, "__name__", "").startswith("__"):      # of the subscripts' and their kin
        return False
    if space in ("nn.functional", "fft"):
        return f".{space.partition('.')[0]}" in (getattr(fn, "__module__", "") or "")
    return space not in ("linalg", "special") or getattr(fn, "__name__", "") == f"{space}_{name}"


def _namespace(space: str) -> Any:
    return functools.reduce(getattr, filter(None, space.split(".")), sys.modules[__name__.rpartition(".")[0]])


@functools.cache
def _found() -> dict[str, dict[str, Callable]]:
    """By namespace and name, each function that can be overridden, once."""
    seen: set[int] = set()
    found: dict[str, dict[str, Callable]] = {}
    for space in _NAMESPACES:
        owner = _namespace(space)
        names = vars(owner) if isinstance(owner, type) else getattr(owner, "__all__", dir(owner))
        public = [n for n in names if not n.startswith("_") or space == "Tensor"]
        found[space] = {}
        for name in sorted(public, key=lambda n: getattr(getattr(owner, n, None), "__name__", "") != n):     # aliases last
            fn: Any = getattr(owner, name, None)
            if _asks(fn) and id(fn) not in seen and _belongs(fn, name, space):
                seen.add(id(fn))
                found[space][name] = fn
    for name, member in members().items():
        if not inspect.isdatadescriptor(member) and id(member) not in seen:
            seen.add(id(member))
            found["Tensor"][name] = member
    return found


def resolve_name(f: Any) -> str | None:
    """The name under which users know a function that can be overridden, or an attribute of tensors: `torch.add`,
    `torch.nn.functional.relu`, `torch.Tensor.T.__get__`; None for another."""
    if isinstance(f, (AtenOperator, CustomOperator)):
        return repr(f)
    for space, functions in _found().items():
        name = next((n for n, fn in functions.items() if fn is f), None)
        if name is not None:
            return ".".join(filter(None, ("torch", space, name)))
    f = member_of(f)
    owner, suffix = (f.__self__, f".{f.__name__}") if getattr(f, "__name__", "") in ("__get__", "__set__") else (f, "")
    found = next((n for kind in Tensor.__mro__ for n, value in vars(kind).items() if member_of(value) is owner), None)
    return None if found is None else f"torch.Tensor.{found}{suffix}"


def get_overridable_functions() -> dict[Any, list[Callable]]:
    """The functions that classes and modes may take over, by the namespace of torch that has them."""
    return {_namespace(space): list(found.values()) for space, found in _found().items()}


def get_default_nowrap_functions() -> set[Callable]:
    """Attributes of tensors that give a tensor as it is, of whatever class: gradients and what a view looks into."""
    return set(ATTRIBUTES_AS_THEY_ARE)


def get_ignored_functions() -> set[Callable]:
    """The operators that make tensors of data, or of a shape: no class can answer them."""
    return {fn for fn in OPERATORS.values() if "from_data" in vars(fn)["_operator"].tags or _is_factory(fn)}


def _is_factory(fn: Callable) -> bool:
    first, *_ = parameters = inspect.signature(fn).parameters.values() or [None]
    return any(p.name == "device" for p in parameters if p) and "Tensor" not in str(getattr(first, "annotation", ""))


def redispatch_function(func: Callable, types: Any, args: tuple, kwargs: dict | None) -> Any:
    """`func(*args, **kwargs)` as it is without the classes and the mode that are at work on it, whose `__torch_function__` this is called
    in: operators give plain tensors; what a function in Python calls inside asks them again."""
    if not all(isinstance(kind, type) for kind in types):
        raise TypeError(f"redispatch_function(): types are classes, got {types!r}")
    if getattr(func, "_operator", None) is not None or member_of(vars(Tensor).get(getattr(func, "__name__", ""))) is member_of(func):
        with dispatch.classes_off(), _NoModes():
            return getattr(func, "_plain", member_of(func))(*args, **(kwargs or {}))
    _here.skip = True
    try:
        return func(*args, **(kwargs or {}))
    finally:
        _here.skip = False


@contextlib.contextmanager
def enable_reentrant_dispatch() -> Iterator[None]:
    """Nothing to enable: what a `__torch_dispatch__` calls is dispatched as anything else."""
    yield


@functools.cache
def get_testing_overrides() -> dict[Callable, Callable]:
    """For each operator a function of the same signature that returns -1: for tests of classes that override them all."""
    ignored = get_ignored_functions()
    asked = {fn: _minus_one(fn) for found in _found().values() for fn in found.values() if fn not in ignored}
    return asked | {access: lambda self: -1 for access in accesses().values()}


def _minus_one(fn: Callable) -> Callable:
    signature = inspect.signature(fn)

    def answer(*args: Any, **kwargs: Any) -> int:
        signature.bind(*args, **kwargs)
        return -1

    answer.__name__, answer.__doc__ = fn.__name__, fn.__doc__
    answer.__signature__ = signature    # type: ignore[attr-defined]
    return answer


__all__ = [
    "enable_reentrant_dispatch", "get_testing_overrides", "redispatch_function",
    "get_ignored_functions",
    "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic", "handle_torch_function", "TorchFunctionMode",
    "BaseTorchFunctionMode", "DisableTorchFunctionSubclass", "is_tensor_like", "is_tensor_method_or_property",
    "wrap_torch_function", "resolve_name", "get_overridable_functions",
]
