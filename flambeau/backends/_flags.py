"""Flags of a backend that is not there: they keep what is written to them, and `flags(...)` sets some for a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


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

    return flags
