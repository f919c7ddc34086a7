"""Where libraries import `TransformGetItemToIndex` from."""

from __future__ import annotations


class TransformGetItemToIndex:
    """A scope in which `x[i]` with a 0-dim tensor `i` stays a tensor operation. Here it always does, so nothing changes."""

    def __enter__(self) -> TransformGetItemToIndex:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


__all__ = ["TransformGetItemToIndex"]
