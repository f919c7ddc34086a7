"""Registration of handlers: `@handler(TABLE, "LOAD_FAST")` puts a function into a family's table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.tables import enters as handler

Handler = Callable[[Any, Any], None]
"""Takes the frame and the instruction."""


def pushes(count: int, make: Callable[..., Any]) -> Handler:
    """Pop `count` operands and push `make(tx, *operands)`."""

    def handle(f: Any, i: Any) -> None:
        f.push(make(f.tx, *f.pop_many(count)))

    return handle


def does(count: int, act: Callable[..., None]) -> Handler:
    """Pop `count` operands for `act(tx, *operands)`."""

    def handle(f: Any, i: Any) -> None:
        act(f.tx, *f.pop_many(count))

    return handle


__all__ = ["Handler", "does", "handler", "pushes"]
