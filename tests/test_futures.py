"""torch.futures, and torch.jit.fork."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

import flambeau as fl
from flambeau.futures import Future, collect_all, wait_all


def test_values_and_what_follows() -> None:
    future: Future[int] = Future()
    seen: list = []
    after = future.then(lambda f: f.wait() + 1).then(lambda f: seen.append(f.value()))
    future.add_done_callback(lambda f: seen.append(f.value()))
    assert not future.done() and not after.done()
    with pytest.raises(RuntimeError, match="completed"):
        future.value()
    future.set_result(1)
    assert future.done() and future.wait() == future.value() == 1 and after.wait() is None and seen == [2, 1]
    with pytest.raises(RuntimeError, match="completed once"):
        future.set_result(2)


def test_exceptions(caplog: pytest.LogCaptureFixture) -> None:
    future: Future[int] = Future()
    future.set_exception(ValueError("x"))
    for ask in (future.wait, future.value, future.then(lambda f: f.value()).wait, lambda: wait_all([future])):
        with pytest.raises(ValueError, match="x"):
            ask()
    with pytest.raises(AssertionError, match="not an Exception"):
        Future().set_exception(3)  # type: ignore[arg-type]
    with caplog.at_level(logging.ERROR):
        future.add_done_callback(lambda f: f.value())
    assert caplog.records


def test_several_from_another_thread() -> None:
    futures: list[Future] = [Future() for _ in range(3)]
    every = collect_all(futures)
    assert not every.done() and collect_all([]).wait() == []
    thread = threading.Thread(target=lambda: [f.set_result(i) for i, f in enumerate(futures)])
    thread.start()
    assert wait_all(futures) == [0, 1, 2] and every.wait() == futures
    thread.join()


def test_fork() -> None:
    def work(x: Any, by: int = 1) -> Any:
        return x / by if by else 1 / by

    assert fl.jit.wait(fl.jit.fork(work, fl.ones(1), by=2)).item() == 0.5
    failed = fl.jit.fork(work, 1, by=0)
    assert isinstance(failed, Future)
    with pytest.raises(ZeroDivisionError):
        fl.jit.wait(failed)
