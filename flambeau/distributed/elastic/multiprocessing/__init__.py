"""The processes of a launcher: a command or a function, once for each local rank, watched and ended together."""

from __future__ import annotations

import abc
import contextlib
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from pathlib import Path
from typing import Any, Protocol

from ....multiprocessing import end_with_parent
from .errors import ProcessFailure, record


class SignalException(Exception):
    """This process was told by a signal to end; `sigval` is the signal."""

    def __init__(self, msg: str, sigval: signal.Signals) -> None:
        super().__init__(msg)
        self.sigval = sigval


@contextlib.contextmanager
def signals_raise(*numbers: signal.Signals) -> Iterator[None]:
    """In the block these signals raise a SignalException, once; then they are ignored. In other threads than the main one: nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        for other in numbers:
            signal.signal(other, signal.SIG_IGN)
        raise SignalException(f"Process {os.getpid()} got signal: {signal.Signals(number).name}", signal.Signals(number))

    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# -- where what they print goes -------------------------------------------------------------------------------------------------------
class Std(IntFlag):
    """Standard streams."""

    NONE, OUT, ERR, ALL = 0, 1, 2, 3

    @classmethod
    def from_str(cls, vm: str) -> Any:
        """Of "3", or of "0:3,1:1" by local rank; ValueError of other texts."""
        try:
            if ":" not in vm:
                return cls(int(vm))
            return {int(rank): cls(int(streams)) for rank, streams in (part.split(":") for part in vm.split(","))}
        except ValueError:
            raise ValueError(f"{vm!r} does not say which streams: it is 0, 1, 2 or 3, or RANK:0..3,...") from None


def to_map(val_or_map: Std | dict[int, Std], local_world_size: int) -> dict[int, Std]:
    """What each local rank has; none of those that are not named."""
    return {i: val_or_map.get(i, Std.NONE) if isinstance(val_or_map, dict) else val_or_map for i in range(local_world_size)}


@dataclass
class LogsDest:
    """Files by local rank: of the streams that go there, of those that are also shown, and for exceptions; "" for none."""

    stdouts: dict[int, str] = field(default_factory=dict)
    stderrs: dict[int, str] = field(default_factory=dict)
    tee_stdouts: dict[int, str] = field(default_factory=dict)
    tee_stderrs: dict[int, str] = field(default_factory=dict)
    error_files: dict[int, str] = field(default_factory=dict)
    filtered_stdout: str = ""
    filtered_stderr: str = ""


class LogsSpecs(abc.ABC):
    """Which streams go to files below `log_dir` (`redirects`), and which also do (`tee`); `local_ranks_filter`: who is shown at all."""

    def __init__(self, log_dir: str | None = None, redirects: Std | dict[int, Std] = Std.NONE, tee: Std | dict[int, Std] = Std.NONE,
                 local_ranks_filter: set[int] | None = None) -> None:
        self._root_log_dir, self._redirects, self._tee, self._local_ranks_filter = log_dir, redirects, tee, local_ranks_filter

    @abc.abstractmethod
    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """The files for processes with these environments."""

    @property
    @abc.abstractmethod
    def root_log_dir(self) -> str:
        """Below which all of them are."""


class DefaultLogsSpecs(LogsSpecs):
    """`log_dir/RUN_ID/attempt_N/LOCAL_RANK/{stdout.log,stderr.log,error.json}`; a folder that goes with this object without `log_dir`."""

    def __init__(self, log_dir: str | None = None, redirects: Std | dict[int, Std] = Std.NONE, tee: Std | dict[int, Std] = Std.NONE,
                 local_ranks_filter: set[int] | None = None) -> None:
        super().__init__(log_dir or _folder_of(self), redirects, tee, local_ranks_filter)
        Path(self.root_log_dir).mkdir(parents=True, exist_ok=True)

    @property
    def root_log_dir(self) -> str:
        return str(self._root_log_dir)

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        found, count = LogsDest(), len(envs)
        redirects, tee = to_map(self._redirects, count), to_map(self._tee, count)
        for i, env in envs.items():
            place = Path(self.root_log_dir, env.get("TORCHELASTIC_RUN_ID", "none"),
                         f"attempt_{env.get('TORCHELASTIC_RESTART_COUNT', '0')}", str(i))
            place.mkdir(parents=True, exist_ok=True)
            shown = self._local_ranks_filter is None or i in self._local_ranks_filter
            for stream, files, teed in ((Std.OUT, found.stdouts, found.tee_stdouts), (Std.ERR, found.stderrs, found.tee_stderrs)):
                path = str(place / f"std{stream.name.lower()}.log")  # type: ignore[union-attr]
                files[i] = path if stream in redirects[i] | tee[i] or not shown else ""
                teed[i] = path if stream in tee[i] and shown else ""
            found.error_files[i] = str(place / "error.json")
            Path(found.error_files[i]).unlink(missing_ok=True)
        return found


def _folder_of(owner: Any) -> str:
    """A folder that goes with `owner`."""
    folder = tempfile.mkdtemp(prefix="torchelastic_")
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return folder


class _Shown:
    """A file's lines, shown with a prefix as they come, by a thread."""

    def __init__(self, path: str, prefix: str, to: Any) -> None:
        self._path, self._prefix, self._to, self._ended = path, prefix, to, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with open(self._path, encoding="utf-8", errors="replace") as file:
            rest, last = "", False
            while not last:
                last = self._ended.wait(0.05)
                *lines, rest = (rest + file.read()).split("\n")
                for line in [*lines, *([rest] if last and rest else [])]:
                    print(f"{self._prefix}{line}", file=self._to, flush=True)

    def close(self) -> None:
        """Show what is left."""
        self._ended.set()
        self._thread.join()


# -- processes --------------------------------------------------------------------------------------------------------------------
@dataclass
class RunProcsResult:
    """How processes ended: what functions returned, or who failed, by local rank; and where their streams went."""

    return_values: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, ProcessFailure] = field(default_factory=dict)
    stdouts: dict[int, str] = field(default_factory=dict)
    stderrs: dict[int, str] = field(default_factory=dict)

    def is_failed(self) -> bool:
        """Whether some process failed."""
        return len(self.failures) > 0


class _Process(Protocol):
    pid: int

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""


class _Function:
    """A process of `multiprocessing` that runs a function and leaves its result in a file."""

    def __init__(self, start_method: str, what: tuple) -> None:
        self._process = multiprocessing.get_context(start_method).Process(target=_call, args=what)  # type: ignore[attr-defined]
        self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode


def _call(fn: Callable, args: tuple, env: dict[str, str], streams: tuple[str, str], result: str, parent: int) -> None:
    os.setsid()
    if parent:
        end_with_parent()
        if os.getppid() != parent:
            os._exit(1)  # it ended before
    os.environ.update(env)
    for number, path in enumerate(streams, 1):
        if path:
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    value = record(fn)(*args)
    Path(f"{result}.new").write_bytes(pickle.dumps(value))
    os.replace(f"{result}.new", result)


class PContext(abc.ABC):
    """Processes `name` that run `entrypoint` with `args` and environments by local rank: `start`, `wait`, `close`."""

    def __init__(self, name: str, entrypoint: Callable | str, args: dict[int, tuple], envs: dict[int, dict[str, str]], logs_specs: LogsSpecs,
                 log_line_prefixes: dict[int, str] | None = None) -> None:
        if (ranks := set(range(len(args)))) != set(args) or set(envs) != ranks:
            raise RuntimeError(f"args and envs must be given by local ranks 0 to {len(args) - 1}, not by {sorted(args)} and {sorted(envs)}")
        self.name, self.entrypoint, self.args, self.nprocs = name, entrypoint, args, len(args)
        self._dest = logs_specs.reify(envs)
        threads = {"OMP_NUM_THREADS": "1"} if len(args) > 1 and "OMP_NUM_THREADS" not in os.environ else {}
        self.envs = {i: {**threads, **env, "TORCHELASTIC_ERROR_FILE": self._dest.error_files.get(i, "")} for i, env in envs.items()}
        self._prefixes = log_line_prefixes or {i: f"[{name}{i}]:" for i in args}
        self._processes: dict[int, _Process] = {}
        self._shown: list[_Shown] = []

    @abc.abstractmethod
    def _begin(self, i: int) -> _Process:
        """Start one."""

    def _value(self, i: int) -> Any:
        """What one returned."""
        return None

    def start(self) -> None:
        """Start them all."""
        for teed, to in ((self._dest.tee_stdouts, sys.stdout), (self._dest.tee_stderrs, sys.stderr)):
            for i, path in teed.items():
                if path:
                    Path(path).write_bytes(b"")
                    self._shown.append(_Shown(path, self._prefixes.get(i, ""), to))
        for i in range(self.nprocs):
            self._processes[i] = self._begin(i)

    def pids(self) -> dict[int, int]:
        """Their process ids by local rank."""
        return {i: process.pid for i, process in self._processes.items()}

    def wait(self, timeout: float = -1, period: float = 1) -> RunProcsResult | None:
        """How they ended, once all have, or one has failed (the others are ended then); None after `timeout` seconds (0: at once, less: never).
        `period`: seconds between looks."""
        deadline = time.monotonic() + timeout
        while True:
            codes = {i: process.poll() for i, process in self._processes.items()}
            result = RunProcsResult({}, {}, self._dest.stdouts, self._dest.stderrs)
            if any(codes.values()):
                result.failures = {i: ProcessFailure(i, self._processes[i].pid, code, self._dest.error_files.get(i, ""))
                                   for i, code in codes.items() if code}
                self.close()
                return result
            if None not in codes.values():
                self.close()
                result.return_values = {i: self._value(i) for i in codes}
                return result
            if timeout >= 0 and time.monotonic() >= deadline:
                return None
            time.sleep(period if timeout < 0 else min(period, max(0.0, deadline - time.monotonic())))

    def close(self, death_sig: signal.Signals | None = None, timeout: float = 10) -> None:
        """End them, and what they started: told by `death_sig` (SIGTERM), killed after `timeout` seconds."""
        def tell(number: int) -> None:
            for process in self._processes.values():
                if number == signal.SIGKILL or process.poll() is None:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(process.pid, number)

        tell(death_sig or signal.SIGTERM)
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and any(process.poll() is None for process in self._processes.values()):
            time.sleep(0.02)
        tell(signal.SIGKILL)
        while any(process.poll() is None for process in self._processes.values()):
            time.sleep(0.01)
        while self._shown:
            self._shown.pop().close()


class SubprocessContext(PContext):
    """Commands: `entrypoint` is a program, `args` what follows it."""

    def _begin(self, i: int) -> subprocess.Popen:
        with contextlib.ExitStack() as files:
            out, err = (files.enter_context(open(path, "wb")) if path else None for path in (self._dest.stdouts[i], self._dest.stderrs[i]))
            return subprocess.Popen([str(self.entrypoint), *map(str, self.args[i])], env={**os.environ, **self.envs[i]}, stdout=out,
                                    stderr=err, start_new_session=True, preexec_fn=end_with_parent)


class MultiprocessContext(PContext):
    """Functions: `entrypoint(*args)` in processes that are started by `start_method` ("spawn", "fork", "forkserver")."""

    def __init__(self, name: str, entrypoint: Callable, args: dict[int, tuple], envs: dict[int, dict[str, str]], start_method: str,
                 logs_specs: LogsSpecs, log_line_prefixes: dict[int, str] | None = None) -> None:
        super().__init__(name, entrypoint, args, envs, logs_specs, log_line_prefixes)
        self.start_method, self._results = start_method, _folder_of(self)

    def _begin(self, i: int) -> _Process:
        streams = self._dest.stdouts.get(i, ""), self._dest.stderrs.get(i, "")
        parent = os.getpid() if self.start_method != "forkserver" else 0
        return _Function(self.start_method, (self.entrypoint, self.args[i], self.envs[i], streams, self._file(i), parent))

    def _file(self, i: int) -> str:
        return os.path.join(self._results, str(i))

    def _value(self, i: int) -> Any:
        return pickle.loads(Path(self._file(i)).read_bytes())


def start_processes(name: str, entrypoint: Callable | str, args: dict[int, tuple], envs: dict[int, dict[str, str]], logs_specs: LogsSpecs,
                    log_line_prefixes: Mapping[int, str] | None = None, start_method: str = "spawn") -> PContext:
    """Start `entrypoint`, a program or a function, once for each local rank in `args`."""
    prefixes = None if log_line_prefixes is None else dict(log_line_prefixes)
    made: PContext = SubprocessContext(name, entrypoint, args, envs, logs_specs, prefixes) if isinstance(entrypoint, str) else (
        MultiprocessContext(name, entrypoint, args, envs, start_method, logs_specs, prefixes))
    made.start()
    return made
