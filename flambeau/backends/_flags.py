"""Flags of a backend: `flags(...)` sets some for a block, and `disable_global_flags` leaves that as the only way to set them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

_frozen = False


def flags_frozen() -> bool:
    """Whether flags can be set for a block alone."""
    return _frozen


def disable_global_flags() -> None:
    """From now on flags can be set for a block alone: writing to one raises RuntimeError."""
    global _frozen
    _frozen = True


@contextmanager
def __allow_nonbracketed_mutation() -> Iterator[None]:
    """A block in which flags may be set in any case."""
    global _frozen
    before, _frozen = _frozen, False
    try:
        yield
    finally:
        _frozen = before


class _Backend(ModuleType):
    """A module with flags."""

    _flags: tuple[str, ...]

    def __setattr__(self, name: str, value: Any) -> None:
        if _frozen and name in self._flags:
            raise RuntimeError(f"not allowed to set {self.__name__}.{name} after disable_global_flags(); use its flags() for a block")
        super().__setattr__(name, value)


def flags_of(namespace: dict[str, Any], *names: str) -> Callable[..., Any]:
    """A context manager `flags(name=value, ...)` over the module variables `names` of `namespace`."""

    @contextmanager
    def flags(**values: Any) -> Iterator[None]:
        unknown = sorted(set(values) - set(names))
        if unknown:
            raise TypeError(f"flags() got unexpected arguments {unknown}; it knows {sorted(names)}")
        before = {name: namespace[name] for name in values}
        namespace.update(values)
        try:
            yield
        finally:
            namespace.update(before)

    module = sys.modules[namespace["__name__"]]
    module.__class__ = _Backend
    module._flags = names    # type: ignore[attr-defined]
    return flags


def setter_of(namespace: dict[str, Any], *names: str) -> Callable[..., tuple]:
    """A function `set_flags(_name=value, ...)` that sets module variables of `namespace` for good and gives what all of them were."""

    def set_flags(*values: Any, **by_name: Any) -> tuple:
        before = tuple(namespace[name] for name in names)
        given = dict(zip(names, values), **{name.removeprefix("_"): value for name, value in by_name.items()})
        unknown = sorted(set(given) - set(names))
        if unknown:
            raise TypeError(f"set_flags() got unexpected arguments {unknown}; it knows {sorted(names)}")
        namespace.update({name: value for name, value in given.items() if value is not None})
        return before

    return set_flags
