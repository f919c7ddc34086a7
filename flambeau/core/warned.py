"""Warnings that operators give, at each call or once in a process, of the line outside of this package that called."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from . import dispatch

_PACKAGE = str(Path(__file__).resolve().parent.parent) + "/"
_given: set[str] = set()


class Repeated:
    """Is what is given once given at each call (`set_warn_always`)?"""

    always = False


def warn(msg: str, category: type[Warning] = UserWarning) -> None:
    """warnings.warn of the caller's line, the innermost that is none of the package's. The innermost mode that has a say (`warns`) is told: a
    body that warns is run at every call."""
    if (told := dispatch.asked_mode("warns")) is not None:
        told(msg)
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(msg, category, stacklevel=level)


def warn_once(msg: str, category: type[Warning] = UserWarning) -> None:
    """Give a warning at the first call with this text."""
    if Repeated.always or msg not in _given:
        _given.add(msg)
        warn(msg, category)


def deprecated(name: str, instead: str) -> None:
    """Say once of a function of torch's that another is to be called in its place."""
    warn_once(f"torch.{name} is deprecated in favor of torch.{instead} and will be removed in a future release.")
