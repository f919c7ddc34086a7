"""Sections of a program that have to end in time: `with expires(after=60):` in a process that a TimerServer of its launcher watches.

A client says when a section begins until when it may last, and when it has ended; the server kills the process of one that is late.
"""

from __future__ import annotations

import abc
import contextlib
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_log = logging.getLogger(__name__)


@dataclass
class TimerRequest:
    """Worker `worker_id` may be in section `scope_id` until `expiration_time` (seconds since 1970); negative: it has left it."""

    worker_id: Any
    scope_id: str
    expiration_time: float


class TimerClient(abc.ABC):
    """How a process tells its server."""

    @abc.abstractmethod
    def acquire(self, scope_id: str, expiration_time: float) -> None:
        """A section begins."""

    @abc.abstractmethod
    def release(self, scope_id: str) -> None:
        """It has ended."""


class RequestQueue(abc.ABC):
    """What the clients said."""

    @abc.abstractmethod
    def size(self) -> int:
        """How many requests there are."""

    @abc.abstractmethod
    def get(self, size: int, timeout: float) -> list[TimerRequest]:
        """Up to `size` requests, those that come within `timeout` seconds."""


class TimerServer(abc.ABC):
    """Looks every `max_interval` seconds, or when something is said, which timers have run out, and ends their workers."""

    def __init__(self, request_queue: RequestQueue, max_interval: float, daemon: bool = True) -> None:
        self._request_queue, self._max_interval, self._daemon = request_queue, max_interval, daemon
        self._stopped, self._thread = threading.Event(), None

    @abc.abstractmethod
    def register_timers(self, timer_requests: list[TimerRequest]) -> None:
        """Note what was said."""

    @abc.abstractmethod
    def clear_timers(self, worker_ids: set) -> None:
        """Forget the timers of these workers."""

    @abc.abstractmethod
    def get_expired_timers(self, deadline: float) -> dict[Any, list[TimerRequest]]:
        """By worker: the timers that ran out before `deadline`."""

    @abc.abstractmethod
    def _reap_worker(self, worker_id: Any) -> bool:
        """End a worker; whether it has ended."""

    def _look(self) -> None:
        self.register_timers(self._request_queue.get(max(1, self._request_queue.size()), self._max_interval))
        ended = set()
        for worker, timers in self.get_expired_timers(time.time()).items():
            _log.info("worker %s is late in %s: it is ended", worker, ", ".join(sorted(t.scope_id for t in timers)))
            if self._reap_worker(worker):
                ended.add(worker)
        self.clear_timers(ended)

    def _watch(self) -> None:
        while not self._stopped.is_set():
            try:
                self._look()
            except Exception:
                _log.exception("a look at the timers failed")

    def start(self) -> None:
        """Begin to watch, in a thread."""
        self._stopped.clear()
        self._thread = threading.Thread(target=self._watch, daemon=self._daemon)  # type: ignore[assignment]
        self._thread.start()  # type: ignore[attr-defined]

    def stop(self) -> None:
        """Watch no more."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(self._max_interval + 1)
            self._thread = None


class LocalTimerClient(TimerClient):
    """Tells a LocalTimerServer by the queue that both have."""

    def __init__(self, mp_queue: Any) -> None:
        self._queue = mp_queue

    def acquire(self, scope_id: str, expiration_time: float) -> None:
        self._queue.put(TimerRequest(os.getpid(), scope_id, expiration_time))

    def release(self, scope_id: str) -> None:
        self._queue.put(TimerRequest(os.getpid(), scope_id, -1))


class MultiprocessingRequestQueue(RequestQueue):
    """A queue of `multiprocessing`."""

    def __init__(self, mp_queue: Any) -> None:
        self._queue = mp_queue

    def size(self) -> int:
        return self._queue.qsize()

    def get(self, size: int, timeout: float) -> list[TimerRequest]:
        found: list[TimerRequest] = []
        deadline = time.monotonic() + timeout
        with contextlib.suppress(queue.Empty):
            while len(found) < size:
                found.append(self._queue.get(timeout=max(0.0, deadline - time.monotonic())))
        return found


class LocalTimerServer(TimerServer):
    """Watches processes of this machine: a late one gets SIGKILL."""

    def __init__(self, mp_queue: Any, max_interval: float = 60, daemon: bool = True) -> None:
        super().__init__(MultiprocessingRequestQueue(mp_queue), max_interval, daemon)
        self._timers: dict[tuple[Any, str], TimerRequest] = {}

    def register_timers(self, timer_requests: list[TimerRequest]) -> None:
        for request in timer_requests:
            key = request.worker_id, request.scope_id
            if request.expiration_time < 0:
                self._timers.pop(key, None)
            else:
                self._timers[key] = request

    def clear_timers(self, worker_ids: set) -> None:
        for key in [key for key in self._timers if key[0] in worker_ids]:
            del self._timers[key]

    def get_expired_timers(self, deadline: float) -> dict[Any, list[TimerRequest]]:
        late: dict[Any, list[TimerRequest]] = {}
        for request in self._timers.values():
            if request.expiration_time <= deadline:
                late.setdefault(request.worker_id, []).append(request)
        return late

    def _reap_worker(self, worker_id: int) -> bool:
        try:
            os.kill(worker_id, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended by itself
        except OSError:
            _log.exception("worker %s can't be ended", worker_id)
            return False
        return True


_client: list[TimerClient] = []


def configure(timer_client: TimerClient) -> None:
    """Let `expires` of this process tell `timer_client`."""
    _client[:] = [timer_client]


@contextlib.contextmanager
def expires(after: float, scope: str | None = None, client: TimerClient | None = None) -> Iterator[None]:
    """The block has to end within `after` seconds, or the server ends the process. `scope` names it: the line where it stands without."""
    if client is None and not _client:
        raise RuntimeError("Configure timer client before using countdown timers: timer.configure(LocalTimerClient(queue))")
    teller = client or _client[0]
    if scope is None:
        caller = sys._getframe(2)  # beyond contextlib's
        scope = f"{caller.f_code.co_filename}#{caller.f_lineno}"
    teller.acquire(scope, time.time() + after)
    try:
        yield
    finally:
        teller.release(scope)
