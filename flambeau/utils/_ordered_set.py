"""A set that remembers the order in which its elements came (torch.utils._ordered_set)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSet
from typing import Any, TypeVar

T = TypeVar("T")


class OrderedSet(MutableSet[T]):
    """A set in order of insertion."""

    def __init__(self, iterable: Iterable[T] = ()) -> None:
        self._dict: dict[T, None] = dict.fromkeys(iterable)

    def __contains__(self, elem: object) -> bool:
        return elem in self._dict

    def __iter__(self) -> Iterator[T]:
        return iter(self._dict)

    def __len__(self) -> int:
        return len(self._dict)

    def add(self, elem: T) -> None:
        """Add an element."""
        self._dict[elem] = None

    def discard(self, elem: T) -> None:
        """Take it out, if it is in."""
        self._dict.pop(elem, None)

    def update(self, *others: Iterable[T]) -> None:
        """Add all of these."""
        for other in others:
            self._dict.update(dict.fromkeys(other))

    def union(self, *others: Iterable[T]) -> OrderedSet[T]:
        """A new set with the elements of these as well."""
        made = OrderedSet(self)
        made.update(*others)
        return made

    def copy(self) -> OrderedSet[T]:
        """Another set of the same."""
        return OrderedSet(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self._dict)!r})"

    def __reduce__(self) -> Any:
        return type(self), (list(self._dict),)


__all__ = ["OrderedSet"]
