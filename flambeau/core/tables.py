"""Tables that functions enter where they are defined."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def enters(table: MutableMapping[Any, Any], *keys: Any) -> Callable[[Function], Function]:
    """`@enters(TABLE, key, ...)` puts a function into a table under these keys; RuntimeError for one that the table has."""
    def enter(function: Function) -> Function:
        for key in keys:
            if key in table:
                raise RuntimeError(f"duplicate registrations for {key}")
            table[key] = function
        return function

    return enter
