"""Small things around modes and classes that see every step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ..core import dispatch
from ._python_dispatch import _disable_current_modes


def all_same_mode(modes: Iterable[Any]) -> bool:
    """Whether it is one mode all along."""
    given = list(modes)
    return all(mode is given[0] for mode in given)


@contextmanager
def no_dispatch() -> Iterator[None]:
    """In the block neither modes nor classes with `__torch_dispatch__` are asked."""
    before = dispatch.wrapping
    with _disable_current_modes():
        dispatch.wrapping = False
        try:
            yield
        finally:
            dispatch.wrapping = before


__all__: list[str] = []
