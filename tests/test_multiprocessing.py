"""torch.multiprocessing: processes that work, fail and die."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path
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
    def join(self, timeout: float | None = None) -> None: ...


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


# -- tensors as handles of shared memory --------------------------------------------------------------------------------
METHODS = ["fork", "spawn"]


def files() -> int:
    gc.collect()
    links = (f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd"))
    return sum("memfd:flambeau" in os.readlink(link) for link in links if os.path.islink(link))


def left() -> list[str]:
    return [name for name in os.listdir("/dev/shm") if name.startswith("flambeau-")]


def clear(inbox: Any, outbox: Any) -> None:
    for received in iter(inbox.get, None):
        for t in received:
            with fl.no_grad():
                t.zero_()
        outbox.put(received)
        del received, t
    inbox.get()  # until the answers were received


@pytest.mark.parametrize("method", METHODS)
def test_both_ends_of_a_queue_see_what_is_written(method: str) -> None:
    """In one process with its sender's memory, views and all; what comes twice is one storage."""
    context = mp.get_context(method)
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=clear, args=(inbox, outbox))
    process.start()
    base = fl.arange(6.0).reshape(2, 3)
    for sent in ([base], [base.t()[1:]], [fl.nn.Parameter(fl.ones(2)), fl.ones(2, requires_grad=True)], [fl.ones(0, 3)],
                 [fl.arange(3).to(fl.bfloat16), fl.tensor([True]), fl.tensor(5, dtype=fl.int8)]):
        inbox.put(sent)
        received = outbox.get(timeout=60)
        for t, r in zip(sent, received, strict=True):
            assert t.tolist() == r.tolist() == fl.zeros_like(t).tolist()
            assert (type(r), r.dtype, r.stride(), r.requires_grad) == (type(t), t.dtype, t.stride(), t.requires_grad)
            assert t.is_shared() and r.is_shared() and r.untyped_storage() == t.untyped_storage()
    inbox.put(None)
    inbox.put(None)
    process.join()
    assert base.tolist() == [[0, 0, 0], [0, 0, 0]]


def keep_adding(connection: Any, module: Any, storage: Any) -> None:
    with fl.no_grad():
        module.weight.add_(1)
    storage.zero_() if isinstance(storage, fl.Tensor) else None
    connection.send((module.weight, storage, [module.weight, module.weight]))
    connection.recv()


@pytest.mark.parametrize("method", [*METHODS, "forkserver"])
def test_arguments_modules_and_storages(method: str) -> None:
    context = mp.get_context(method)
    module, held = fl.nn.Linear(2, 2), fl.arange(4, dtype=fl.uint8)
    module.tied = module.weight
    module.share_memory()
    with fl.no_grad():
        module.weight.fill_(2)
    here, there = context.Pipe()
    process = context.Process(target=keep_adding, args=(there, module, held.untyped_storage()))
    process.start()
    weight, storage, (a, b) = here.recv()
    assert module.weight.tolist() == [[3, 3], [3, 3]] == weight.tolist()
    assert a is b and isinstance(a, fl.nn.Parameter) and storage.tolist() == [0, 1, 2, 3] and storage.is_shared()
    here.send(None)
    process.join()


def test_the_tape_stays_here() -> None:
    with pytest.raises(RuntimeError, match="non-leaf tensor"):
        mp.reductions.reduce_tensor(fl.ones(2, requires_grad=True) * 2)


def send_and_die(connection: Any, by_force: bool) -> None:
    held = fl.ones(1000)
    connection.send((held, held[:5]))
    connection.send(fl.zeros(3))
    if by_force:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("method", METHODS)
def test_a_sender_that_has_ended(method: str) -> None:
    """What it sent can still be received, and nothing is left of what nobody received."""
    mp.reductions._leave()
    context, before = mp.get_context(method), left()
    here, there = context.Pipe()
    process = context.Process(target=send_and_die, args=(there, False))
    process.start()
    process.join()
    assert process.exitcode == 0 and len(left()) > len(before)
    whole, part = here.recv()
    whole[0] = 7
    assert part.tolist() == [7, 1, 1, 1, 1] and whole.is_shared()
    mp.reductions._leave()  # as this process does at its end
    assert left() == before


@pytest.mark.parametrize("method", METHODS)
def test_a_sender_that_was_killed(method: str) -> None:
    context, before = mp.get_context(method), left()
    here, there = context.Pipe()
    process = context.Process(target=send_and_die, args=(there, True))
    process.start()
    process.join()
    with pytest.raises(RuntimeError, match="killed before"):
        here.recv()
    assert left() == before


def test_what_was_left_for_a_dead_process_is_swept() -> None:
    stale = Path("/dev/shm", mp.reductions._prefix(4_000_000_000) + "1-0")
    stale.write_bytes(b"x")
    mp.reductions._sweep()
    assert not stale.exists()


def test_descriptors_are_released() -> None:
    context = mp.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=clear, args=(inbox := context.SimpleQueue(), outbox := context.SimpleQueue()))
    process.start()
    inbox.put([fl.ones(10)])
    outbox.get()
    before = files()
    for _ in range(30):
        inbox.put([fl.ones(1000)])
        assert outbox.get()[0].sum() == 0
    assert files() <= before + 1
    inbox.put(None)
    inbox.put(None)
    process.join()
    here.close()
    there.close()


def train(model: Any, seed: int) -> None:
    fl.set_num_threads(1)
    fl.manual_seed(seed)
    optimizer = fl.optim.SGD(model.parameters(), lr=0.02)
    true = fl.tensor([[1.0, -2.0, 3.0]])
    for _ in range(150):
        x = fl.randn(16, 3)
        optimizer.zero_grad()
        (model(x) - x @ true.t() - 0.5).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("method", METHODS)
def test_hogwild(method: str) -> None:
    """Processes that train one model without locks."""
    model = fl.nn.Linear(3, 1).share_memory()
    context = mp.get_context(method)
    processes = [context.Process(target=train, args=(model, i)) for i in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert (model.weight - fl.tensor([[1.0, -2.0, 3.0]])).abs().max() < 0.05 and abs(model.bias.item() - 0.5) < 0.05


def scale(t: fl.Tensor) -> fl.Tensor:
    return t * 10


def test_a_pool() -> None:
    with mp.get_context("fork").Pool(2) as pool:
        assert [t.tolist() for t in pool.map(scale, [fl.ones(2), fl.zeros(1)])] == [[10, 10], [0]]


def test_sharing_strategies() -> None:
    mp.set_sharing_strategy("file_system")
    assert mp.get_sharing_strategy() == "file_system"
    with pytest.raises(AssertionError):
        mp.set_sharing_strategy("telepathy")
    mp.set_sharing_strategy("file_descriptor")
