"""What modes and classes with `__torch_function__` are asked beside operators, in turn: the attributes and the other methods of tensors.

Plain tensors pay nothing for it: a class that overrides gets descriptors of its own, over those that it has from Tensor as they are.
"""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, MethodType
from typing import Any

from ..core import dispatch
from ..core.tensor import Tensor
from .registry import handle_torch_function

_OF_PYTHON = frozenset((
    "__array__", "__bool__", "__complex__", "__contains__", "__dir__", "__dlpack__", "__dlpack_device__", "__float__", "__format__",
    "__index__", "__int__", "__len__", "__reduce_ex__", "__repr__", "__reversed__"))
_PRIVATE = frozenset(("_base", "_version"))
_KEPT = frozenset(("as_subclass",))
"""Methods of Python's that are asked, attributes that are though their names are private, and what is not."""


class _Unasked(threading.local):
    blocks = 0      # how many are open in which no class is asked for attributes and methods


_unasked = _Unasked()


@contextmanager
def unasked() -> Iterator[None]:
    """A block of our own work, which looks at tensors of any class as they are; operators ask classes in it as ever."""
    _unasked.blocks += 1
    try:
        yield
    finally:
        _unasked.blocks -= 1


def _mode_asks() -> bool:
    modes = dispatch.state.function_modes
    if not modes:
        shown.settle()      # an interrupt may have come between the last mode's end and ours
    return bool(modes) and not getattr(modes[-1], "operators_only", False)


class Asked:
    """A function of a tensor, `plain`, for which the innermost mode, or else the tensor's class, is asked. Modes are told of this object,
    which is equal to `plain`: who calls it asks whoever comes next. Classes, which are the last, are told of `plain`."""

    def __init__(self, plain: Callable) -> None:
        self.plain = plain

    def __call__(self, instance: Any, *args: Any, **kwargs: Any) -> Any:
        if _unasked.blocks:
            return self.plain(instance, *args, **kwargs)
        if _mode_asks():
            return handle_torch_function(self, (instance,), instance, *args, **kwargs)
        kind: Any = type(instance)
        if dispatch.state.classes_off or not getattr(kind, "_asked", False) or kind._plain_torch_function:
            return self.plain(instance, *args, **kwargs)
        return handle_torch_function(self.plain, (instance,), instance, *args, **kwargs)

    def __eq__(self, other: Any) -> bool:
        return self.plain == member_of(other)

    def __hash__(self) -> int:
        return hash(self.plain)


class _AskedAccess(Asked):
    """`__get__`, `__set__` or `__delete__` of an attribute."""

    def __init__(self, attribute: Any, name: str) -> None:
        super().__init__(getattr(attribute, name))
        self.__self__, self.__name__ = attribute, name


class AskedAttribute:
    """An attribute whose accesses are asked for: `Tensor.NAME.__get__` is the function."""

    def __init__(self, plain: Any) -> None:
        self.plain = plain
        self.get, self.set, self.delete = [_AskedAccess(plain, name) for name in ("__get__", "__set__", "__delete__")]

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self.plain if instance is None else self.get(instance)

    def __set__(self, instance: Any, value: Any) -> None:
        self.set(instance, value)

    def __delete__(self, instance: Any) -> None:
        self.delete(instance)


class AskedMethod(Asked):
    """A method that is asked for."""

    def __init__(self, plain: Callable) -> None:
        super().__init__(plain)
        functools.update_wrapper(self, plain)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)


def plain_of(entry: Any) -> Any:
    """What a class is asked for where an entry of it asks: the function, or the attribute's `__get__`; None of any other entry."""
    if isinstance(entry, AskedAttribute):
        return entry.plain.__get__
    return entry.plain if isinstance(entry, AskedMethod) else None


@functools.cache
def members() -> dict[str, Any]:
    """By name, the attributes and methods of tensors that are no operators and that classes are asked for."""
    found = {name: member for base in reversed(Tensor.__mro__[:-1]) for name, member in vars(base).items()}
    return {name: member for name, member in found.items()
            if (name in _OF_PYTHON or name in _PRIVATE or not name.startswith("_")) and name not in _KEPT
            and (inspect.isdatadescriptor(member) or (isinstance(member, FunctionType) and not hasattr(member, "_operator")))}


@functools.cache
def accesses() -> dict[str, Any]:
    """By name, the functions that classes are asked for attributes with: `Tensor.NAME.__get__`."""
    attributes: dict[str, Any] = {name: member for name, member in members().items() if inspect.isdatadescriptor(member)}
    return {name: attribute.__get__ for name, attribute in attributes.items()}


@functools.cache
def asking(name: str) -> AskedAttribute | AskedMethod:
    """The entry of a class that asks, in the place of the member of that name."""
    member = members()[name]
    return AskedAttribute(member) if inspect.isdatadescriptor(member) else AskedMethod(member)


def _install(cls: type) -> None:
    """Let a class be asked for what it has as it is from Tensor."""
    for name, member in members().items():
        if member_of(inspect.getattr_static(cls, name, None)) is member:
            setattr(cls, name, asking(name))
    cls._asked = True   # type: ignore[attr-defined]


def member_of(entry: Any) -> Any:
    """What stands in an entry of a class that asks, or what a mode was told of; another one as it is."""
    return entry.plain if isinstance(entry, (Asked, AskedAttribute)) else entry


class _Shown:
    """While a mode of the program's is on, in any thread, Tensor has entries that ask modes in the places of its own.

    What is so follows from the modes that are on (`settle`), whatever an interrupt has kept from being done before.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.modes: dict[int, weakref.ref] = {}     # whose blocks may be open, by their ids
        self.pushed: list[Any] = []         # those that are on without a block
        self.begun = self.done = False      # are there such entries, and all of them?
        self.places: list[tuple[type, str, Any]] = []   # what has been there

    def settle(self, mode: Any = None) -> None:
        """For after a mode began or ended."""
        with self.lock:
            if mode is not None:
                self.modes[id(mode)] = weakref.ref(mode)
            self.modes = {key: kept for key, kept in self.modes.items() if (known := kept()) is not None and known.depth}
            on = bool(self.modes or self.pushed)
            if on and not self.done:
                self._show()
            elif not on and self.begun:
                self._hide()

    def _show(self) -> None:
        if not self.places:
            self.places = [(next(kind for kind in Tensor.__mro__ if name in vars(kind)), name, member) for name, member in members().items()]
        self.begun = True
        for _, name, _ in self.places:
            setattr(Tensor, name, asking(name))
        self.done = True

    def _hide(self) -> None:
        self.done = False
        for kind, name, member in self.places:
            if kind is Tensor:
                setattr(Tensor, name, member)
            elif name in vars(Tensor):
                delattr(Tensor, name)
        self.begun = False


shown = _Shown()
dispatch.overriding_class = _install
