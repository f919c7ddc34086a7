"""torch.multiprocessing: processes that work, fail and die."""

from __future__ import annotations

import os
from typing import Any

import pytest

import flambeau as fl
from flambeau import multiprocessing as mp


def send(i: int, results: Any, x: fl.Tensor) -> None:
    results.put((i, x * i))


def fail_second(i: int) -> None:
    if i == 1:
        raise ValueError("the second one fails")


def die(i: int) -> None:
    os._exit(7)


def test_tensors_go_there_and_back() -> None:
    results = mp.get_context("spawn").SimpleQueue()
    mp.spawn(send, args=(results, fl.arange(3.0)), nprocs=2)
    got = dict(results.get() for _ in range(2))
    assert got[0].tolist() == [0.0, 0.0, 0.0] and got[1].tolist() == [0.0, 1.0, 2.0]


def test_an_exception_comes_back_with_its_traceback() -> None:
    with pytest.raises(mp.ProcessRaisedException, match=r"(?s)Process 1 terminated.*the second one fails") as caught:
        mp.spawn(fail_second, nprocs=2)
    assert caught.value.error_index == 1


class EndsWhenLookedAtTwice:
    """A process that has failed by the second look at it."""

    sentinel, pid, looks = -1, 0, 0

    def is_alive(self) -> bool:
        return self.exitcode is None

    @property
    def exitcode(self) -> int | None:
        self.looks += 1
        return None if self.looks < 3 else 1

    def terminate(self) -> None: ...
    def join(self) -> None: ...


def test_an_error_between_two_looks_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    receiver, sender = mp.get_context("spawn").Pipe(duplex=False)
    sender.send("it failed")
    monkeypatch.setattr(mp, "wait", lambda running, timeout: [])
    started = mp.ProcessContext([EndsWhenLookedAtTwice()], [receiver])
    assert not started.join()
    with pytest.raises(mp.ProcessRaisedException, match="it failed"):
        started.join()


def test_a_process_that_dies() -> None:
    with pytest.raises(mp.ProcessExitedException, match="exit code 7"):
        mp.start_processes(die, nprocs=1, start_method="fork")


def test_sharing_strategies() -> None:
    mp.set_sharing_strategy("file_system")
    assert mp.get_sharing_strategy() == "file_system"
    with pytest.raises(AssertionError):
        mp.set_sharing_strategy("telepathy")
    mp.set_sharing_strategy("file_descriptor")
