"""Work: a collective under way.

An engine posts an operation and hands out a request that can be asked whether it is done. Whoever waits asks; for work that nobody
waits for yet, one thread of the process does, so that it goes on behind the program's back.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

from ..core import dispatch, locks
from ..core.watching import tell
from ..futures import Future
from .errors import DistBackendError


class Request(Protocol):
    """What an engine knows of an operation under way."""

    def Test(self) -> bool:
        """Whether it is done; it moves on meanwhile."""
        ...


LOST: list[Work] = []  # what did not end in time: its memory is still the engine's


class Work:
    """An operation of a group. `wait` comes back when its results are there; `get_future` is for what goes on with them."""

    _new_lock: Callable[[], Any] = staticmethod(locks.lock)

    def __init__(self, request: Request | None, what: object, results: list, timeout: float, finish: Callable[[], None] | None = None,
                 late: Callable[[Any, float], Exception] | None = None) -> None:
        """`what` says, as text, what it is; `late(what, seconds)` makes the error of one that takes too long."""
        self._request, self._what, self._results, self._timeout = request, what, results, timeout
        self._finish, self._late = finish, late
        self._error: Exception | None = None
        self._future: Future | None = None
        self._lock, self._done = self._new_lock(), False
        self._began, self._ended = time.perf_counter_ns(), 0
        self._sources: list[int] = []  # of whom a receive got what it got
        if request is None:
            self._end()

    # -- by whom it is moved on ---------------------------------------------------------------------------------------------------
    def poll(self) -> bool:
        """Move it on; whether it has ended, one way or the other."""
        if self._done:
            return True
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if not self._done and self._request is not None and self._request.Test():
                self._end()
        except Exception as error:
            self._fail(DistBackendError(f"{self._what} failed: {error}"))
        finally:
            self._lock.release()
        return self._done

    def _end(self) -> None:
        if self._finish is not None:
            self._finish()
            self._finish = None
        self._request, self._done, self._ended = None, True, time.perf_counter_ns()
        if self._future is not None:
            self._future.set_result(self._results)

    def _fail(self, error: Exception) -> None:
        self._error, self._done = error, True
        if self._future is not None:
            self._future.set_exception(error)

    # -- torch's ------------------------------------------------------------------------------------------------------------------
    def wait(self, timeout: timedelta | None = None) -> bool:
        """Until it is done (True); an exception if it fails or takes longer than `timeout` (or the group's)."""
        seconds = timeout.total_seconds() if timeout else self._timeout
        if not self._done and not _until(self.poll, seconds):
            error = DistBackendError(f"{self._what} timed out after {seconds:g} s") if self._late is None else (
                self._late(self._what, seconds))
            with self._lock:
                if not self._done:
                    self._fail(error)
                    LOST.append(self)
        if self._error is not None:
            raise self._error
        if dispatch.state.watchers and self._ended:
            tell(f"c10d::{str(self._what).partition(' ')[0]}", self._began, self._ended)
            self._ended = 0     # once
        return True

    def is_completed(self) -> bool:
        """Whether it has ended."""
        return self.poll()

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return self.poll() and self._error is None

    def exception(self) -> Exception | None:
        """What it ended with, if not well."""
        return self._error

    def result(self) -> list:
        """Its tensors."""
        return self._results

    def synchronize(self) -> None:
        """As `wait`."""
        self.wait()

    def source_rank(self) -> int:
        """From whom a `recv` from anyone was."""
        return self._sources[-1] if self._sources else -1

    _source_rank = source_rank

    def watch(self) -> None:
        """Let it go on, though nobody waits for it yet."""
        PROGRESS.add(self)

    def joined(self, works: Sequence[Work]) -> Work:
        """This and others, which were begun together, as one."""
        return Together(list(works))

    def get_future(self) -> Future:
        """A future of the tensors."""
        with self._lock:
            if self._future is None:
                self._future = Future()
                if self._error is not None:
                    self._future.set_exception(self._error)
                elif self._done:
                    self._future.set_result(self._results)
        self.watch()
        return self._future


class Together(Work):
    """Several works as one."""

    def __init__(self, works: list[Work]) -> None:
        self._works = works
        super().__init__(_All(works), "a coalesced operation", [t for w in works for t in w.result()],
                         max((w._timeout for w in works), default=0.0))

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Until all are done."""
        for work in self._works:
            work.wait(timeout)
        return super().wait(timeout)


def every(works: list[Work], what: object, results: list, timeout: float, finish: Callable[[], None]) -> Work:
    """A work that has ended when all these have, and `finish` after them."""
    return Work(_All(works), what, results, timeout, finish)


class _All:
    def __init__(self, works: list[Work]) -> None:
        self.works = works

    def Test(self) -> bool:
        """Whether all have ended; the exception of the first that failed."""
        if sum(w.poll() for w in self.works) < len(self.works):  # each is moved on
            return False
        for work in self.works:
            if work.exception() is not None:
                raise work.exception()  # type: ignore[misc]
        return True


# A peer comes within microseconds or, at its leisure, within milliseconds: wait busily first, giving the processor to whoever wants
# it, then sleep between looks, so that more ranks than cores get on. A look that took long moved data, and the next may too.
_BUSY, _MOVED, _SHORTEST, _LONGEST = 3e-4, 1e-5, 5e-5, 2e-3


def _until(done: Callable[[], bool], seconds: float) -> bool:
    """Ask `done` until it says so (True) or so many seconds have passed."""
    begun = moved = time.perf_counter()
    pause = _SHORTEST
    while True:
        before = time.perf_counter()
        if done():
            return True
        now = time.perf_counter()
        if now - before > _MOVED:
            moved, pause = now, _SHORTEST
        if now - begun > seconds:
            return False
        if now - moved < _BUSY:
            os.sched_yield()
        else:
            time.sleep(pause)
            pause = min(pause * 1.2, _LONGEST)


class _Progress:
    """The thread that moves on what nobody waits for."""

    def __init__(self) -> None:
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._works: list[Work] = []
        self._lock, self._awake = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, work: Work) -> None:
        """See to `work` until it has ended."""
        if work._done:
            return
        with self._lock:
            self._works.append(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="flambeau-collectives", daemon=True)
                self._thread.start()
        self._awake.set()

    def _run(self) -> None:
        while True:
            self._awake.wait()
            self._awake.clear()
            while self._works:
                _until(self._move, 1.0)

    def _move(self) -> bool:
        """Poll all; whether one has ended."""
        ended = [work for work in list(self._works) if work.poll()]
        with self._lock:
            for work in ended:
                if work in self._works:
                    self._works.remove(work)
        return bool(ended)


PROGRESS = _Progress()
