"""torch.multiprocessing: Python's own, with `spawn`. Tensors travel to other processes as handles of shared memory (`reductions`)."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any

from . import reductions


class ProcessException(Exception):
    """A process of `spawn` failed; `error_index` is its number, `error_pid` its process id."""

    def __init__(self, msg: str, error_index: int, pid: int | None) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.error_pid = msg, error_index, pid


class ProcessRaisedException(ProcessException):
    """It ended with an exception, whose traceback is the message."""


class ProcessExitedException(ProcessException):
    """It ended without one: by a signal, or with an exit code."""

    def __init__(self, msg: str, error_index: int, pid: int | None, exit_code: int, signal_name: str | None = None) -> None:
        super().__init__(msg, error_index, pid)
        self.exit_code, self.signal_name = exit_code, signal_name


class ProcessContext:
    """The processes that `spawn` started."""

    def __init__(self, processes: list, errors: list) -> None:
        self.processes, self.errors = processes, errors

    def pids(self) -> list[int]:
        """Their process ids."""
        return [process.pid for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float = 30.0) -> bool:
        """Wait until all have ended (True), or one has failed: the others are told to stop then, killed after `grace_period` seconds,
        and its exception is raised."""
        running = [process.sentinel for process in self.processes if process.is_alive()]
        ended = set(wait(running, timeout) if running else ())
        for process in self.processes:
            if process.sentinel in ended:
                process.join()  # its exit code comes a little after its end
        codes = [process.exitcode for process in self.processes]  # looked at once: a process may end in between
        failed = next((i for i, code in enumerate(codes) if code), None)
        if failed is None:
            return None not in codes
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        deadline = time.monotonic() + grace_period
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
        process, code = self.processes[failed], codes[failed]
        try:
            error = self.errors[failed].recv()
        except EOFError:  # it had no time to say anything
            raise ProcessExitedException(f"process {failed} terminated with exit code {code}", failed, process.pid, code) from None
        raise ProcessRaisedException(f"\n\n-- Process {failed} terminated with the following error:\n{error}", failed, process.pid)


SpawnContext = ProcessContext


def end_with_parent() -> None:
    """Have the system kill this process when the one that started it ends, however that ends (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _run(fn: Callable, i: int, args: tuple, error: Any, parent: int) -> None:
    if parent:
        end_with_parent()
        if os.getppid() != parent:
            raise SystemExit(1)  # it ended before
    try:
        fn(i, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        error.send(traceback.format_exc())
        raise SystemExit(1) from None


def start_processes(
    fn: Callable, args: tuple = (), nprocs: int = 1, join: bool = True, daemon: bool = False, start_method: str = "spawn"
) -> ProcessContext | None:
    """Run `fn(i, *args)` in `nprocs` processes, i from 0; wait for them unless `join` is False."""
    context = multiprocessing.get_context(start_method)
    processes, errors = [], []
    parent = os.getpid() if start_method != "forkserver" else 0
    for i in range(nprocs):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(  # type: ignore[attr-defined]
            target=_run, args=(fn, i, args, sender, parent), daemon=daemon
        )
        process.start()
        sender.close()
        processes.append(process)
        errors.append(receiver)
    started = ProcessContext(processes, errors)
    while join and not started.join():
        pass
    return None if join else started


def spawn(fn: Callable, args: tuple = (), nprocs: int = 1, join: bool = True, daemon: bool = False, start_method: str = "spawn") -> Any:
    """`start_processes` with fresh interpreters."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)


def get_all_sharing_strategies() -> set[str]:
    """Ways to share memory that may be asked for. Both are the same here: anonymous files, which travel by their descriptors and
    which no killed process leaves behind; as many as there are shared storages, up to the hard limit on open files."""
    return {"file_descriptor", "file_system"}


def get_sharing_strategy() -> str:
    """The strategy asked for."""
    return _strategy[0]


def set_sharing_strategy(new_strategy: str) -> None:
    """Ask for one of them."""
    if new_strategy not in get_all_sharing_strategies():
        raise AssertionError(f"{new_strategy!r} is none of {sorted(get_all_sharing_strategies())}")
    _strategy[0] = new_strategy


_strategy = ["file_descriptor"]

__all__ = [
    *multiprocessing.__all__, "ProcessContext", "ProcessException", "ProcessExitedException", "ProcessRaisedException", "SpawnContext",
    "get_all_sharing_strategies", "get_sharing_strategy", "reductions", "set_sharing_strategy", "spawn", "start_processes",
]


def __getattr__(name: str) -> Any:
    """What else Python's own package has."""
    if name.startswith("_") or not hasattr(multiprocessing, name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(multiprocessing, name)
