"""`@record` in front of a program's main function: what it fails with is written for whoever started it."""

from __future__ import annotations

import functools
import json
import signal
import socket
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from ....core.settings import told

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


def get_error_handler() -> ErrorHandler:
    """What writes exceptions."""
    return ErrorHandler()


@dataclass
class ProcessFailure:
    """A process that failed: its number, how it ended, and what it wrote of its exception (`record`)."""

    local_rank: int
    pid: int
    exitcode: int
    error_file: str
    error_file_data: Any = field(init=False, repr=False)
    message: Any = field(init=False)
    timestamp: int = field(init=False)

    def __post_init__(self) -> None:
        self.error_file_data, self.timestamp = {}, int(time.time())
        self.message = f"Signal {-self.exitcode} ({self.signal_name()}) received by PID {self.pid}" if self.exitcode < 0 else (
            "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html")
        if self.error_file and Path(self.error_file).is_file():
            self.error_file_data = json.loads(Path(self.error_file).read_text(encoding="utf-8"))
            self.message = self.error_file_data.get("message", self.error_file_data)
            if isinstance(self.message, dict):
                self.timestamp = int(self.message.get("extraInfo", {}).get("timestamp", self.timestamp))
        else:
            self.error_file = "<N/A>"

    def signal_name(self) -> str:
        """The signal that ended it; "<N/A>" if none did."""
        return signal.Signals(-self.exitcode).name if self.exitcode < 0 else "<N/A>"

    def timestamp_isoformat(self) -> str:
        """When, as a date."""
        return datetime.fromtimestamp(self.timestamp).isoformat(sep="_")

    def __str__(self) -> str:
        message = self.message.get("message", "") if isinstance(self.message, dict) else self.message
        how = f"signal {self.signal_name()}" if self.exitcode < 0 else f"exit code {self.exitcode}"
        said = f": {message}" if isinstance(self.message, dict) else ""
        return f"(pid {self.pid} on {socket.gethostname()}) ended with {how}{said}"


class ChildFailedError(Exception):
    """Processes of a launcher failed: `failures`, by global rank. None of them, where those of another machine did."""

    def __init__(self, name: str, failures: dict[int, ProcessFailure], why: str = "") -> None:
        self.name, self.failures, self._why = name, failures, why
        super().__init__(self.format_msg())

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        """The rank that failed first, and how."""
        rank = min(self.failures, key=lambda r: self.failures[r].timestamp)
        return rank, self.failures[rank]

    def format_msg(self) -> str:
        """What happened, a line for each process that failed, the first one first."""
        ranks = sorted(self.failures, key=lambda r: self.failures[r].timestamp)
        lines = [f"rank {r} {self.failures[r]}" for r in ranks]
        return "\n".join([f"{self.name} FAILED", *(lines or [self._why])])


__all__ = ["ChildFailedError", "ErrorHandler", "ProcessFailure", "get_error_handler", "record"]
