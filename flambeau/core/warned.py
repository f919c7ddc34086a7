"""Warnings that are given once in a process."""

from __future__ import annotations

import functools
import warnings


@functools.cache
def warn_once(msg: str, stacklevel: int = 1, category: type[Warning] = UserWarning) -> None:
    """Give a warning at the first call with this text. `stacklevel` counts from the caller of this function."""
    warnings.warn(msg, category, stacklevel=stacklevel + 1)
