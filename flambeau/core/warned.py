"""Warnings that operators give, at each call or once in a process."""

from __future__ import annotations

import functools
import warnings

from . import dispatch


def warn(msg: str, category: type[Warning] = UserWarning, stacklevel: int = 1) -> None:
    """warnings.warn, of which the innermost mode is told that has a say (`warns`): a body that warns is run at every call. `stacklevel`
    counts from the caller of this function."""
    if (told := dispatch.asked_mode("warns")) is not None:
        told(msg)
    warnings.warn(msg, category, stacklevel=stacklevel + 1)


@functools.cache
def warn_once(msg: str, stacklevel: int = 1, category: type[Warning] = UserWarning) -> None:
    """Give a warning at the first call with this text. `stacklevel` counts from the caller of this function."""
    warn(msg, category, stacklevel + 1)
