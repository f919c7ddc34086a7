"""`@record` in front of a program's main function: what it fails with is written for whoever started it."""

from __future__ import annotations

import functools
import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from ...._absent import absent_names
from ....core.settings import told

__getattr__ = absent_names(__name__, ("ChildFailedError", "ProcessFailure"), "torchrun says which process failed, and ends with its code")
P = ParamSpec("P")
R = TypeVar("R")


class ErrorHandler:
    """Writes exceptions into the file TORCHELASTIC_ERROR_FILE, if a launcher names one."""

    def record_exception(self, e: BaseException) -> None:
        """Write an exception, with its traceback and the time: {"message": {"message": ..., "extraInfo": ...}}."""
        if name := told("TORCHELASTIC_ERROR_FILE"):
            text = "".join(traceback.format_exception(e))
            said = {"message": f"{type(e).__name__}: {e}", "extraInfo": {"py_callstack": text, "timestamp": str(int(time.time()))}}
            Path(name).write_text(json.dumps({"message": said}), encoding="utf-8")


def record(fn: Callable[P, R], error_handler: ErrorHandler | None = None) -> Callable[P, R | None]:
    """`fn`, whose exceptions are written before they go on. Whoever leaves with code 0 has not failed."""
    handler = error_handler or ErrorHandler()

    @functools.wraps(fn)
    def main(*args: Any, **kwargs: Any) -> R | None:
        try:
            return fn(*args, **kwargs)
        except SystemExit as error:
            if error.code:
                handler.record_exception(error)
            raise
        except Exception as error:
            handler.record_exception(error)
            raise
    return main


__all__ = ["ErrorHandler", "record"]
