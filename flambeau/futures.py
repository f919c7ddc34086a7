"""torch.futures: results that come later, from other threads or at once (`torch.jit.fork`)."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from .core import locks

T = TypeVar("T")


class Future(Generic[T]):
    """A result to come: `set_result` or `set_exception` completes it, `wait` has it, `then` goes on with it."""

    def __init__(self, *, devices: Any = None) -> None:
        if devices:
            raise NotImplementedError("Future(devices=...) is not implemented: it does not wait for GPUs; leave devices out, and call "
                                      "torch.cuda.synchronize() before set_result()")
        self._state: concurrent.futures.Future = concurrent.futures.Future()

    def done(self) -> bool:
        """Whether it is complete, with a value or an exception."""
        return self._state.done()

    def wait(self) -> T:
        """The value, once it is there; or its exception is raised."""
        return self._state.result()

    def value(self) -> T:
        """The value of a complete future; RuntimeError for others."""
        if not self.done():
            raise RuntimeError("value() must only be called after the future is completed; call wait()")
        return self._state.result()

    def then(self, callback: Callable[[Future[T]], Any]) -> Future[Any]:
        """A future of `callback(this)`, which runs once this is complete (at once, if it is)."""
        following: Future[Any] = Future()
        self._state.add_done_callback(lambda _: following._settle(lambda: callback(self)))
        return following

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Call `callback(this)` once this is complete (at once, if it is); its exceptions are logged."""
        self._state.add_done_callback(lambda _: callback(self))

    def set_result(self, result: T) -> None:
        """Complete it with a value; RuntimeError if it is complete."""
        self._complete(self._state.set_result, result)

    def set_exception(self, result: BaseException) -> None:
        """Complete it with an exception."""
        if not isinstance(result, Exception):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._complete(self._state.set_exception, result)

    def _settle(self, task: Callable[[], Any]) -> None:
        try:
            self.set_result(task())
        except Exception as error:
            self.set_exception(error)

    def _complete(self, complete: Callable, with_what: Any) -> None:
        try:
            complete(with_what)
        except concurrent.futures.InvalidStateError:
            raise RuntimeError("Future can only be marked completed once") from None


def settled(task: Callable[[], Any]) -> Future:
    """The result of `task`, which runs at once, as a complete future."""
    future: Future = Future()
    future._settle(task)
    return future


def collect_all(futures: list[Future]) -> Future[list[Future]]:
    """A future of all these, complete when they are."""
    every: Future[list[Future]] = Future()
    futures = list(futures)
    missing, lock = [len(futures)], locks.lock()

    def one_less(_: Any) -> None:
        with lock:
            missing[0] -= 1
            last = missing[0] == 0
        if last:
            every.set_result(futures)

    for future in futures:
        future.add_done_callback(one_less)
    if not futures:
        every.set_result(futures)
    return every


def wait_all(futures: list[Future]) -> list:
    """The values of all; the first exception is raised when all are complete."""
    return [future.wait() for future in collect_all(futures).wait()]


__all__ = ["Future", "collect_all", "wait_all"]
