"""What classes with `__torch_function__` are asked beside operators: the attributes and the other methods of tensors.

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


def _as_it_is() -> bool:
    return bool(dispatch.state.classes_off or _unasked.blocks)


class AskedAttribute:
    """An attribute whose class is asked with `Tensor.NAME.__get__`, `__set__` or `__delete__` as the function."""

    as_it_is = staticmethod(_as_it_is)  # whether nobody is to be asked now

    def __init__(self, plain: Any) -> None:
        self.plain = plain

    def _ask(self, which: str, instance: Any, *value: Any) -> Any:
        access = getattr(self.plain, which)
        if self.as_it_is():
            return access(instance, *value)
        return handle_torch_function(access, (instance, *value), instance, *value)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self.plain if instance is None else self._ask("__get__", instance)

    def __set__(self, instance: Any, value: Any) -> None:
        self._ask("__set__", instance, value)

    def __delete__(self, instance: Any) -> None:
        self._ask("__delete__", instance)


def _no_mode_asks() -> bool:
    modes = dispatch.state.function_modes
    if not modes:
        shown.settle()      # an interrupt may have come between the last mode's end and ours
    return not modes or _unasked.blocks > 0 or getattr(modes[-1], "operators_only", False)


class _ShownAttribute(AskedAttribute):
    """An attribute that modes are asked for, of tensors of any class."""

    as_it_is = staticmethod(_no_mode_asks)


class _ShownMethod:
    """A method that modes are asked for; of the class it is the method itself."""

    def __init__(self, plain: Callable) -> None:
        self.plain, self.asked = plain, _asked_method(plain, _no_mode_asks)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self.plain if instance is None else MethodType(self.asked, instance)


def _asked_method(plain: Callable, as_it_is: Callable[[], bool] = _as_it_is) -> Callable:
    @functools.wraps(plain)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if as_it_is():
            return plain(self, *args, **kwargs)
        return handle_torch_function(plain, (self, *args), self, *args, **kwargs)

    method.plain = plain    # type: ignore[attr-defined]
    return method


def plain_of(entry: Any) -> Any:
    """What a class is asked for where an entry of it asks: the function, or the attribute's `__get__`; None of any other entry."""
    if isinstance(entry, AskedAttribute):
        return entry.plain.__get__
    return getattr(entry, "plain", None) if isinstance(entry, (FunctionType, _ShownMethod)) else None


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


def _install(cls: type) -> None:
    """Let a class be asked for what it has as it is from Tensor."""
    for name, member in members().items():
        if member_of(inspect.getattr_static(cls, name, None)) is member:
            setattr(cls, name, AskedAttribute(member) if inspect.isdatadescriptor(member) else _asked_method(member))


def member_of(entry: Any) -> Any:
    """What stands in an entry of a class that asks; another entry as it is."""
    return getattr(entry, "plain", entry)


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
        for _, name, member in self.places:
            setattr(Tensor, name, _ShownAttribute(member) if inspect.isdatadescriptor(member) else _ShownMethod(member))
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
