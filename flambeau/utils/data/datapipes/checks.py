"""Checks of pipes: of the types of what goes in and comes out, and of pipes that may give something else each time."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any

from .datapipe import IterDataPipe


class _Switches:
    runtime_validation = True
    determinism = False


class DataChunk(list):
    """A batch: a list that prints as one, `raw_iterator()` over its items."""

    def __init__(self, items: Any) -> None:
        super().__init__(items)
        self.items = list(items)

    def as_str(self, indent: str = "") -> str:
        """The items as text."""
        return f"{indent}[{', '.join(map(str, self))}]"

    def raw_iterator(self) -> Iterator[Any]:
        """The items one by one."""
        yield from self.items


class DFIterDataPipe(IterDataPipe):
    """A stream of data frames: define `__iter__`."""


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of an annotated type, as far as that can be told without looking into it."""
    if kind is Any or isinstance(kind, (typing.TypeVar, str)):
        return True
    origin = typing.get_origin(kind)
    if origin is typing.Union:
        return any(_fits(value, part) for part in typing.get_args(kind))
    plain = origin or kind
    return isinstance(value, plain) if isinstance(plain, type) else True


def _element_type(cls: type) -> Any:
    """What a pipe's class says its elements are: `IterDataPipe[int]`."""
    for base in getattr(cls, "__orig_bases__", ()):
        if isinstance(typing.get_origin(base), type) and typing.get_args(base):
            return typing.get_args(base)[0]
    return Any


def argument_validation(f: Callable) -> Callable:
    """Decorate a pipe's `__init__`: TypeError for a pipe among its arguments that is not of the annotated class and element type."""
    signature, hints = inspect.signature(f), typing.get_type_hints(f)

    @functools.wraps(f)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            hint = hints.get(name, Any)
            origin = typing.get_origin(hint) or hint
            if not (isinstance(origin, type) and issubclass(origin, IterDataPipe)):
                continue
            if not isinstance(value, origin):
                raise TypeError(f"Expected argument '{name}' as a {origin.__name__}, but found {type(value)}")
            wanted, found = (typing.get_args(hint) or (Any,))[0], _element_type(type(value))
            if Any not in (wanted, found) and isinstance(wanted, type) and isinstance(found, type) and not issubclass(found, wanted):
                raise TypeError(f"Expected type of argument '{name}' as a pipe of {wanted}, but found one of {found}")
        return f(*args, **kwargs)

    return checked


def runtime_validation(f: Callable) -> Callable:
    """Decorate a pipe's `__iter__`: RuntimeError for an element that is not of the type that the class names."""

    @functools.wraps(f)
    def checked(self: Any) -> Iterator[Any]:
        kind = _element_type(type(self))
        for value in f(self):
            if _Switches.runtime_validation and not _fits(value, kind):
                raise RuntimeError(f"Expected an instance as subtype of {kind}, but found {value!r} ({type(value)})")
            yield value

    return checked


class _Switch:
    """`with switch():` has a setting for the block."""

    name, value = "", False

    def __init__(self) -> None:
        self.before = getattr(_Switches, self.name)
        setattr(_Switches, self.name, self.value)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        setattr(_Switches, self.name, self.before)


class runtime_validation_disabled(_Switch):
    """In the block `runtime_validation` does not look."""

    name, value = "runtime_validation", False


class guaranteed_datapipes_determinism(_Switch):
    """In the block pipes that are `non_deterministic` cannot be made: TypeError."""

    name, value = "determinism", True


class non_deterministic:
    """Decorate a pipe's class that may give something else each time; or with a function of its arguments that tells whether."""

    def __init__(self, arg: Any) -> None:
        self.cls: type | None = arg if isinstance(arg, type) else None
        if not callable(arg):
            raise TypeError(f"Expected a class or a callable to be decorated by `non_deterministic`, but got {arg!r}")
        self.tells: Callable[..., bool] = (lambda *args, **kwargs: True) if self.cls is not None else arg

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.cls is None:
            self.cls = args[0]
            return functools.wraps(self.cls, updated=())(functools.partial(self._make))
        return self._make(*args, **kwargs)

    def _make(self, *args: Any, **kwargs: Any) -> Any:
        cls: Any = self.cls
        told = self.tells(*args, **kwargs)
        if not isinstance(told, bool):
            raise TypeError("deterministic_fn of `non_deterministic` decorator is required to return a boolean value, but "
                            f"{told!r} is found")
        if told and _Switches.determinism:
            raise TypeError(f"{cls.__name__} is non-deterministic, but you set 'guaranteed_datapipes_determinism'. You can turn off "
                            "determinism for this DataPipe if that is acceptable for your application")
        return cls(*args, **kwargs)
