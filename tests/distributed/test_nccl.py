"""NCCL: what is queued in which order, by libraries that write it down; and between real GPUs, beside torch, where there are two."""

from __future__ import annotations

import importlib
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import flambeau
from flambeau.backends.cuda import strays
from flambeau.distributed.engines import nccl
from flambeau.distributed.errors import DistBackendError
from flambeau.distributed.process_group import ProcessGroup
from flambeau.distributed.reduce_op import RedOpType
from flambeau.distributed.stores import HashStore

from .processes import Ranks, run

GPUS = flambeau.cuda.device_count()
_lacking = pytest.mark.skipif(GPUS < 2 or not flambeau.distributed.is_nccl_available(), reason="needs two GPUs and NCCL")


def needs_gpus(test: Callable) -> Callable:
    """Skipped without two GPUs; its processes compile kernels, which takes time where no cache has them yet."""
    return _lacking(pytest.mark.timeout(600)(test))



# -- libraries that write down what they are asked for -----------------------------------------------------------------------------
class Script:
    """What was queued, in order, and which marks have been reached."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.reached: set[int] = set()
        self.error: Exception | None = None
        self.current = FakeStream(self, "main", 1)
        self.devices: list[int] = [0]
        self.streams = self.events = 0

    def cuda(self) -> Any:
        return SimpleNamespace(Stream=self._stream, Event=self._event, get_current_stream=lambda: self.current,
                               Device=lambda index: FakeDevice(self, index),
                               runtime=SimpleNamespace(getDevice=lambda: self.devices[-1]))

    def _stream(self, non_blocking: bool, priority: int) -> FakeStream:
        assert non_blocking and priority < 0
        self.streams += 1
        return FakeStream(self, f"side{self.streams}", 100 + self.streams)

    def _event(self, disable_timing: bool) -> FakeEvent:
        assert disable_timing
        self.events += 1
        return FakeEvent(self, self.events)

    def nccl(self) -> Any:
        return SimpleNamespace(
            available=True, get_unique_id=lambda: b"id" * 64, NcclCommunicator=partial(FakeCommunicator, self),
            groupStart=lambda: self.lines.append("group("), groupEnd=lambda: self.lines.append(")"))


class FakeDevice:
    def __init__(self, script: Script, index: int) -> None:
        self.script, self.index = script, index

    def __enter__(self) -> None:
        self.script.devices.append(self.index)

    def __exit__(self, *error: object) -> None:
        self.script.devices.pop()


class FakeStream:
    def __init__(self, script: Script, name: str, ptr: int) -> None:
        self.script, self.name, self.ptr = script, name, ptr

    def wait_event(self, event: FakeEvent) -> None:
        self.script.lines.append(f"{self.name} waits {event.at}")

    def __enter__(self) -> None:
        self.before, self.script.current = self.script.current, self

    def __exit__(self, *error: object) -> None:
        self.script.current = self.before


class FakeEvent:
    def __init__(self, script: Script, number: int) -> None:
        self.script, self.number, self.at = script, number, ""

    def record(self, stream: FakeStream) -> None:
        self.at = f"{stream.name}@{sum(line.startswith(stream.name) for line in self.script.lines)}"
        self.script.lines.append(f"{stream.name} marks {self.at}")

    @property
    def done(self) -> bool:
        return self.number in self.script.reached


class FakeCommunicator:
    comm = 0

    def __init__(self, script: Script, size: int, name: bytes, rank: int) -> None:
        self.script = script
        script.lines.append(f"communicator of {size}, rank {rank}, on {script.devices[-1]}")
        assert name == b"id" * 64

    def __getattr__(self, name: str) -> Callable:
        def call(*args: Any) -> None:
            stream = f"side{args[-1] - 100}"
            self.script.lines.append(f"{stream} {name}{args[:-1]}")
        return call

    def check_async_error(self) -> None:
        if self.script.error is not None:
            raise self.script.error

    def abort(self) -> None:
        self.script.lines.append("abort")

    destroy = abort


class OnGPU(np.ndarray):
    """An array that says where it lies."""

    place = 0


def on_gpu(array: Any, place: int = 0) -> OnGPU:
    made = np.asarray(array).view(OnGPU)
    made.place = place
    return made


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    made = Script()
    monkeypatch.setattr(nccl.Libraries, "cuda", staticmethod(made.cuda))
    monkeypatch.setattr(nccl.Libraries, "nccl", staticmethod(made.nccl))
    monkeypatch.setattr(nccl, "device_count", lambda: 2)
    monkeypatch.setattr(nccl._WATCH, "add", lambda channel: nccl._WATCH.channels.append(channel))
    monkeypatch.setattr(nccl._WATCH, "channels", [])
    monkeypatch.setattr(nccl, "_pointer", lambda array: getattr(array, "place", 0))
    monkeypatch.setattr(nccl, "_gpu_of", lambda array: 0)
    monkeypatch.setattr(strays, "_failed", [])
    yield made


def engine(rank: int = 0, size: int = 2) -> nccl.NCCLEngine:
    store = HashStore()
    for name in ("all", "0-1", "1-0", "1-2", "0-2"):
        store.set(f"nccl/{name}/0", b"id" * 64)
    return nccl.NCCLEngine(rank, size, store, 5.0)


def begun(e: nccl.NCCLEngine, posted: Any, **kwargs: Any) -> nccl.StreamWork:
    return e.work(posted.request, "a collective", ["result"], kwargs.pop("timeout", 5.0), posted.finish, **kwargs)


def test_a_collective_runs_beside_the_current_stream(script: Script) -> None:
    e = engine()
    work = begun(e, e.all_reduce(on_gpu(np.zeros(6, np.float32), 64), RedOpType.SUM))
    assert script.lines == ["communicator of 2, rank 0, on 0", "main marks main@0", "side1 waits main@0",
                            "side1 allReduce(64, 64, 6, 7, 0)", "side1 marks side1@2"]
    assert not work.is_completed() and work._queued.kept is not None
    script.lines.append("main computes")
    work.wait()
    assert script.lines[-2:] == ["main computes", "main waits side1@2"]     # the stream waits, the host goes on
    assert not work.is_completed() and work._queued.kept is None            # what follows on the stream may use the memory again
    script.reached.add(work._queued.event.number)
    assert work.is_completed() and work.is_success()


def test_memory_is_kept_until_it_is_over_if_another_stream_waits(script: Script) -> None:
    e = engine()
    work = begun(e, e.broadcast(on_gpu(np.zeros(2, np.int16)), 1))
    assert script.lines[3] == "side1 broadcast(0, 0, 4, 1, 1)"
    with FakeStream(script, "other", 2):
        work.wait()
    assert script.lines[-1] == "other waits side1@2" and work._queued.kept is not None
    script.reached.add(work._queued.event.number)
    nccl._WATCH.channels[0].look(False)
    assert work._queued.kept is None and not nccl._WATCH.channels[0].flying


NUMBERS = [("int8", 0, 5), ("uint8", 1, 5), ("int32", 2, 5), ("uint32", 3, 5), ("int64", 4, 5), ("uint64", 5, 5), ("float16", 6, 5),
           ("float32", 7, 5), ("float64", 8, 5), (ml_dtypes.bfloat16, 9, 5), (ml_dtypes.float8_e4m3fn, 10, 5),
           (ml_dtypes.float8_e5m2, 11, 5), ("complex64", 7, 10), ("complex128", 8, 10), ("int16", 2, 5), ("uint16", 3, 5)]


@pytest.mark.parametrize(("dtype", "code", "count"), NUMBERS)
def test_dtypes(script: Script, dtype: Any, code: int, count: int) -> None:
    e = engine()
    e.all_reduce(on_gpu(np.zeros(5, dtype)), RedOpType.SUM)
    assert script.lines[-1] == f"side1 allReduce(0, 0, {count}, {code}, 0)"


def test_reductions(script: Script) -> None:
    e, x = engine(1, 3), on_gpu(np.zeros(4, np.float32))
    for op, code in ((RedOpType.SUM, 0), (RedOpType.PRODUCT, 1), (RedOpType.MAX, 2), (RedOpType.MIN, 3), (RedOpType.AVG, 4)):
        e.reduce(x, 2, op)
        assert script.lines[-1] == f"side1 reduce(0, 0, 4, 7, {code}, 2)"
        e.reduce_scatter(on_gpu(np.zeros(2, np.float32), 8), on_gpu(np.zeros(6, np.float32), 32), op)
        assert script.lines[-1] == f"side1 reduceScatter(32, 8, 2, 7, {code})"
    for op, code in ((RedOpType.SUM, 2), (RedOpType.MAX, 2), (RedOpType.PRODUCT, 3), (RedOpType.MIN, 3)):
        e.all_reduce(on_gpu(np.zeros(4, bool)), op)
        assert script.lines[-1] == f"side1 allReduce(0, 0, 4, 1, {code})"   # "or" is the largest of 0 and 1
    for op in (RedOpType.BAND, RedOpType.BOR, RedOpType.BXOR):
        with pytest.raises(ValueError, match=f"ReduceOp.{op.name} with NCCL"):
            e.all_reduce(on_gpu(np.zeros(4, np.int32)), op)


def test_narrow_integers_are_widened(script: Script) -> None:
    e, x = engine(), on_gpu(np.array([7, -8], np.int16), 5)
    posted = e.all_reduce(x, RedOpType.SUM)
    wide = posted.request.kept[0]
    assert wide.dtype == np.int32
    wide[...] = [100, -200]                 # what NCCL left there
    begun(e, posted)
    assert x.tolist() == [100, -200]


def test_what_is_sent_around(script: Script) -> None:
    e = engine(1, 3)
    one, three = on_gpu(np.zeros(2, np.int16), 100), on_gpu(np.zeros(6, np.int16), 1000)

    def asked(posted: Any) -> list[str]:
        del posted
        start = max(i for i, line in enumerate(script.lines) if line == "side1 waits " + script.lines[i - 1].split()[-1])
        return script.lines[start + 1:]

    assert asked(e.all_gather(three, one)) == ["side1 allGather(100, 1000, 4, 1)"]
    assert asked(e.gather(None, one, 2)) == ["group(", "side1 send(100, 4, 1, 2)", ")"]
    assert asked(e.gather(three, one, 1)) == [
        "group(", "side1 recv(1000, 4, 1, 0)", "side1 send(100, 4, 1, 1)", "side1 recv(1004, 4, 1, 1)", "side1 recv(1008, 4, 1, 2)", ")"]
    assert asked(e.scatter(one, None, 0)) == ["group(", "side1 recv(100, 4, 1, 0)", ")"]
    assert asked(e.scatter(one, three, 1)) == [
        "group(", "side1 send(1000, 4, 1, 0)", "side1 send(1004, 4, 1, 1)", "side1 recv(100, 4, 1, 1)", "side1 send(1008, 4, 1, 2)", ")"]
    out = on_gpu(np.zeros(4, np.int16), 2000)
    assert asked(e.all_to_all(out, three, [1, 0, 3], [3, 3, 0])) == [
        "group(", "side1 send(1000, 6, 1, 0)", "side1 recv(2000, 2, 1, 0)", "side1 send(1006, 6, 1, 1)", "side1 recv(2002, 6, 1, 2)", ")"]


def test_each_pair_and_direction_has_a_communicator(script: Script) -> None:
    e, x = engine(1, 3), on_gpu(np.zeros(3, np.float32))
    e.send(x, 2, 0)
    came: list[int] = []
    e.recv(x, 0, 0, came.append)
    e.send(x, 2, 5)
    assert came == [0]
    assert [line for line in script.lines if " waits " not in line and " marks " not in line] == [
        "communicator of 2, rank 0, on 0", "side1 send(0, 12, 1, 1)", "communicator of 2, rank 1, on 0", "side2 recv(0, 12, 1, 0)",
        "side1 send(0, 12, 1, 1)"]
    with pytest.raises(NotImplementedError, match="say src="):
        e.recv(x, None, 0, came.append)


def test_several_are_one_group(script: Script) -> None:
    e, x = engine(), on_gpu(np.zeros(3, np.float32))
    with e.together():
        works = [begun(e, e.all_reduce(x, RedOpType.SUM)) for _ in range(2)]
        works[0].wait()
        assert all(w._queued.event is None for w in works) and not works[0].is_completed()
    lines = [line for line in script.lines if "main marks" not in line and "side1 waits" not in line]
    assert lines == ["communicator of 2, rank 0, on 0", "group(", "side1 allReduce(0, 0, 3, 7, 0)", "side1 allReduce(0, 0, 3, 7, 0)", ")",
                     "side1 marks side1@4", "main waits side1@4", "side1 marks side1@5"]
    assert works[-1].joined(works).result() == ["result", "result"]
    with e.together():
        pass
    assert script.lines.count("group(") == 1    # NCCL hears nothing of an empty one


def test_a_part_in_its_place_is_not_copied(script: Script) -> None:
    e = engine(1, 2)
    whole = on_gpu(np.zeros(4, np.float32), 0)
    part = whole[2:]
    part.place = 8
    assert e.beside(part, whole) is part and e.beside(whole, part) is whole
    part.place = 4
    assert e.beside(part, whole) is not part
    apart = on_gpu(np.zeros(2, np.float32))
    assert e.beside(apart, whole) is apart


def test_what_follows_a_future_is_queued_behind(script: Script) -> None:
    e = engine()
    work = begun(e, e.all_reduce(on_gpu(np.zeros(3, np.float32)), RedOpType.SUM))
    future = work.get_future()
    assert future.done()

    def halve(done: Any) -> str:
        assert done.value() == ["result"]
        script.lines.append(f"{script.current.name} halves")
        return "half"

    following = future.then(halve)
    assert script.lines[-3:] == ["side1 waits main@1", "side1 halves", "side1 marks side1@5"] and script.current.name == "main"
    assert following.wait() == "half" and script.lines[-1] == "main waits side1@5"

    def fail(done: Any) -> None:
        raise KeyError("no")

    with pytest.raises(KeyError):
        future.then(fail).wait()
    assert flambeau.futures.collect_all([future, following]).wait() == [future, following]


def test_marks_are_used_again(script: Script) -> None:
    e, x = engine(), on_gpu(np.zeros(3, np.float32))
    first = begun(e, e.all_reduce(x, RedOpType.SUM))
    mark, made = first._queued.event, script.events
    second = begun(e, e.all_reduce(x, RedOpType.SUM))
    assert script.events == made + 1            # the first is not over
    script.reached.add(mark.number)
    nccl._WATCH.channels[0].look(False)
    script.reached.clear()
    third = begun(e, e.all_reduce(x, RedOpType.SUM))
    assert third._queued.event is mark and script.events == made + 1 and not third.is_completed() and not second.is_completed()
    queued = len(script.lines)
    assert first.wait() and first.is_completed() and len(script.lines) == queued    # what is over is not waited for by another's mark


def test_another_gpu_is_the_current_one(script: Script) -> None:
    e = engine()
    work = begun(e, e.all_reduce(on_gpu(np.zeros(3, np.float32)), RedOpType.SUM))
    with FakeDevice(script, 1):
        channel = nccl._WATCH.channels[0]
        with channel.here():
            assert script.devices[-1] == 0
        begun(e, e.all_reduce(on_gpu(np.zeros(3, np.float32)), RedOpType.SUM)).wait()
        assert script.devices == [0, 1] and work.wait()


def test_what_takes_too_long_ends_the_communicator(script: Script) -> None:
    e, told = engine(), list[str]()

    def late(what: str, seconds: float) -> Exception:
        told.append(what)
        return DistBackendError(f"{what} timed out after {seconds:g} s; not waiting in it: rank(s) 1")

    x = on_gpu(np.zeros(3, np.float32))
    ended = begun(e, e.all_reduce(x, RedOpType.SUM), timeout=0.0, late=late)
    script.reached.add(ended._queued.event.number)
    hung = begun(e, e.all_reduce(x, RedOpType.SUM), timeout=0.01, late=late)
    behind = begun(e, e.all_reduce(x, RedOpType.SUM), timeout=100.0, late=late)
    hung.wait()                 # the stream's, not the host's
    time.sleep(0.02)
    nccl._WATCH.channels[0].look(False)
    assert script.lines[-1] == "abort" and told == ["a collective"] and ended.is_success()
    for work in (hung, behind):
        assert work.is_completed() and not work.is_success()
        with pytest.raises(DistBackendError, match=r"rank\(s\) 1"):
            work.wait()
    with pytest.raises(DistBackendError, match="timed out"):
        strays.check()          # who waits for the GPU hears of it, too
    strays.check()
    nccl._WATCH.channels[0].look(True)
    assert script.lines.count("abort") == 1


def test_the_host_waits_where_it_is_asked_to(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    e, x = engine(), on_gpu(np.zeros(3, np.float32))
    work = begun(e, e.all_reduce(x, RedOpType.SUM))
    with pytest.raises(DistBackendError, match=r"timed out after 0.01 s"):
        work.wait(timedelta(seconds=0.01))
    assert script.lines[-1] == "abort"
    monkeypatch.setenv("TORCH_NCCL_BLOCKING_WAIT", "1")
    e = engine()
    work = begun(e, e.all_reduce(x, RedOpType.SUM))
    script.reached.add(work._queued.event.number)
    assert work.wait() and work._done


def test_an_error_that_nccl_finds(script: Script) -> None:
    e = engine()
    work = begun(e, e.all_reduce(on_gpu(np.zeros(3, np.float32)), RedOpType.SUM))
    script.error = RuntimeError("NCCL_ERROR_REMOTE_ERROR")
    channel = nccl._WATCH.channels[0]
    channel.look(False)
    assert not work.is_completed()
    channel.look(True)
    with pytest.raises(DistBackendError, match="a collective failed: NCCL_ERROR_REMOTE_ERROR"):
        work.wait()


def test_communicators_end(script: Script) -> None:
    e, x = engine(), on_gpu(np.zeros(3, np.float32))
    work = begun(e, e.all_reduce(x, RedOpType.SUM))
    script.reached.add(work._queued.event.number)
    e.close()
    assert script.lines[-1] == "abort" and not nccl._WATCH.channels
    with pytest.raises(DistBackendError, match="failed: no peer"):
        nccl._within(5.0, "making a communicator", lambda: (_ for _ in ()).throw(RuntimeError("no peer")))
    with pytest.raises(DistBackendError, match=r"did not end within 0\.01 s"):
        nccl._within(0.01, "making a communicator", lambda: time.sleep(0.5))


def test_which_gpu(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert str(engine(3, 4).device()) == "cuda:1"           # two GPUs on a machine
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert str(engine(3, 4).device()) == "cuda:0"
    assert str(nccl.NCCLEngine(0, 2, HashStore(), 5.0, 1).device()) == "cuda:1"


def test_a_group_of_gpus(script: Script) -> None:
    """Each of its methods, down to NCCL, on tensors of the host in a GPU's place; gaps are closed before."""
    ranks, made = range(3), flambeau.zeros
    group = ProcessGroup({"cpu": engine(1, 3)}, ranks, "0", {"cpu": "nccl"}, timedelta(seconds=5), HashStore())

    assert group.device().type == "cuda" and group.name() == "nccl" and group.rank() == 1 and group.size() == 3
    works = [
        group.broadcast([made(2)], 1), group.allreduce([made(2)]), group.reduce([made(2)], 1), group._allgather_base(made(6), made(2)),
        group.allgather([[made(2) for _ in ranks]], [made(2)]), group.gather([[made(2) for _ in ranks]], [made(2)], 1),
        group.scatter([made(2)], [[made(2) for _ in ranks]], 1), group.reduce_scatter([made(2)], [[made(2) for _ in ranks]]),
        group._reduce_scatter_base(made(2), made(6)), group.alltoall([made(r) for r in ranks], [made(2) for _ in ranks]),
        group.alltoall_base(made(3), made(6), [0, 1, 2], [3, 2, 1]), group.send([made(2)], 2), group.recv([made(2)], 0)]
    assert works[-1].source_rank() == 0
    for work in works:
        assert work.wait() and not work.is_completed()
    work = group.allreduce([made(4, 2)[:, 1]])
    packed = work._queued.kept
    assert packed[0].flags.c_contiguous and packed[0].shape == (4,)
    with group.together():
        group.allreduce([made(2)])
    group.meet([(1, 0), (0, 1)])
    group.shutdown()
    with pytest.raises(DistBackendError, match="destroyed"):
        group.allreduce([made(2)])


@pytest.mark.skipif(GPUS > 0, reason="about machines without a GPU")
def test_without_a_gpu() -> None:
    assert not flambeau.distributed.is_nccl_available() and not flambeau.distributed.is_backend_available("nccl")
    with pytest.raises(RuntimeError, match="pip install"):
        nccl.require()


# -- between two GPUs ------------------------------------------------------------------------------------------------------------
def _began(torch: Any, rank: int, **kwargs: Any) -> Any:
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", **kwargs)
    return torch.distributed


def several(torch: Any, rank: int, world: int, programs: list[tuple]) -> list:
    """("ok", what a program returned) or ("error", the end of its traceback), of each, in one group."""
    _began(torch, rank, timeout=timedelta(seconds=40))
    found: list[tuple[str, Any]] = []
    for program, *args in programs:
        try:
            found.append(("ok", program(torch, rank, world, *args)))
        except Exception:
            found.append(("error", traceback.format_exc()[-700:]))
    torch.distributed.destroy_process_group()
    return found


MOVED = ("uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "bool")


def collectives(torch: Any, rank: int, world: int) -> dict:
    """Every collective, for every dtype; or that it is refused."""
    d, R, found = torch.distributed, torch.distributed.ReduceOp, dict[str, Any]()

    def noted(name: str, *tensors: Any) -> None:
        found[name] = [t.cpu().to(torch.complex64 if t.is_complex() else torch.float64).tolist() for t in tensors]

    def asked(name: str, call: Callable, *tensors: Any) -> None:
        try:
            call()
        except Exception as error:
            found[name] = f"refused: {type(error).__name__}: {str(error)[:100]}"
        else:
            noted(name, *tensors)

    for name in MOVED:
        def made(*values: int, name: str = name) -> Any:
            return torch.tensor(values).to(getattr(torch, name)).cuda()

        ops = ["SUM"] + ["PRODUCT", "MIN", "MAX"] * (not made(0).is_complex()) + ["AVG"] * made(0).is_floating_point()
        for op in ops:
            x = made(rank + 1, 1, 2, 3 - rank)
            asked(f"{name} {op}", partial(d.all_reduce, x, getattr(R, op)), x)
        asked(f"{name} broadcast", partial(d.broadcast, x := made(rank, 5), 1), x)
        outs = [made(0, 0) for _ in range(world)]
        asked(f"{name} all_gather", partial(d.all_gather, outs, made(rank, 7)), *outs)
        out = made(*[0] * 2 * world)
        asked(f"{name} all_gather_into_tensor", partial(d.all_gather_into_tensor, out, made(rank, 3)), out)
        out = made(0, 0)
        asked(f"{name} reduce_scatter_tensor", partial(d.reduce_scatter_tensor, out, made(*range(2 * world))), out)
        asked(f"{name} reduce_scatter", partial(d.reduce_scatter, out, [made(rank + r, 1) for r in range(world)]), out)
        asked(f"{name} scatter", partial(d.scatter, out, [made(r, 9) for r in range(world)] if rank == 0 else None, 0), out)
        asked(f"{name} gather", partial(d.gather, made(rank, 4), outs if rank == 1 else None, 1), *(outs if rank == 1 else []))
        asked(f"{name} reduce", partial(d.reduce, x := made(rank + 1, 2), 1), *([x] if rank == 1 else []))
        out = made(*[0] * (1 + 2 * rank) * world)
        asked(f"{name} all_to_all_single", partial(d.all_to_all_single, out, made(*range(world + sum(2 * r for r in range(world)))),
                                                   [1 + 2 * rank] * world, [1 + 2 * r for r in range(world)]), out)
        outs = [made(*[0] * (r + rank + 1)) for r in range(world)]
        asked(f"{name} all_to_all", partial(d.all_to_all, outs, [made(*[10 * rank + r] * (r + rank + 1)) for r in range(world)]), *outs)
    x = torch.full((3,), rank + 1.0, device="cuda")
    asked("premul_sum", partial(d.all_reduce, x, d._make_nccl_premul_sum(0.5)), x)
    return found


def sent_and_begun(torch: Any, rank: int, world: int) -> dict:
    """From one to another, several at once, objects, and what is not waited for at once."""
    d, other, found = torch.distributed, 1 - rank, dict[str, Any]()

    def noted(name: str, *tensors: Any) -> None:
        found[name] = [t.tolist() for t in tensors]

    mine, theirs = torch.full((4,), float(rank), device="cuda"), torch.empty(4, device="cuda")
    for work in d.batch_isend_irecv([d.P2POp(d.isend, mine, other), d.P2POp(d.irecv, theirs, other)]):
        work.wait()
    noted("batch", theirs)
    if rank == 0:
        d.send(mine + 5, 1)
    else:
        d.recv(theirs, 0)
    noted("send", theirs)
    many = [torch.full((n,), rank + 1.0, device="cuda") for n in range(1, 4)]
    d.all_reduce_coalesced(many)
    noted("coalesced", *many)
    with d._coalescing_manager(async_ops=True) as several:
        for x in many:
            d.all_reduce(x)
    several.wait()
    noted("manager", *many)
    objects: list = [None] * world
    d.all_gather_object(objects, {"rank": rank})
    found["objects"] = objects[:]
    said = ["word" * 100, 7] if rank == 0 else [None, None]
    d.broadcast_object_list(said, 0)
    found["said"] = said
    x = torch.ones(1 << 22, device="cuda")
    works = []
    for k in range(8):      # what is computed meanwhile, what is reduced, and again
        x = x * 2 if k % 2 else x / 2
        works.append(d.all_reduce(y := x.clone(), async_op=True))
    half = works[-1].get_future().then(lambda done: done.value()[0] / 2)
    for work in works:
        work.wait()
    noted("begun", y[:3], half.wait()[:3])
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        z = torch.full((1 << 20,), rank + 1.0, device="cuda")
        d.all_reduce(z)
        z = z + 1
    side.synchronize()
    noted("stream", z[-2:])
    d.barrier()
    return found


def beyond_torch(torch: Any, rank: int, world: int) -> list:
    """What torch's NCCL refuses: narrow integers, gaps in the memory."""
    d, found = torch.distributed, []
    for name in ("int16", "uint16"):
        x = torch.tensor([rank, 300]).to(getattr(torch, name)).cuda()
        d.all_reduce(x)
        found.append(x.int().tolist())
    x = torch.zeros(4, 2, device="cuda")[:, 1]
    x += rank + 1
    d.all_reduce(x)
    found.append(x.tolist())
    rows = torch.zeros(3, 2, world, device="cuda", dtype=torch.bfloat16)
    d.all_gather([rows[:, 0, r] for r in range(world)], torch.full((3,), rank + 1.0, device="cuda", dtype=torch.bfloat16))
    found.append(rows.float().sum(0).tolist())
    return found


def trained(torch: Any, rank: int, world: int, how: str) -> list[float]:
    """Losses of a small net, of which each process sees its part of the batch."""
    d, where = torch.distributed, f"cuda:{rank}"
    torch.manual_seed(0)
    nn = torch.nn
    net = nn.Sequential(nn.Embedding(50, 64), *[nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True) for _ in range(3)],
                        nn.Linear(64, 50)).to(where)
    if how == "fully_shard":
        shard = importlib.import_module(f"{torch.__name__}.distributed.fsdp").fully_shard
        for layer in net:
            shard(layer)
        model: Any = shard(net)
    elif how != "alone":
        model = nn.parallel.DistributedDataParallel(net, device_ids=[rank], find_unused_parameters=how == "unused",
                                                    gradient_as_bucket_view=how == "views", bucket_cap_mb=0.05)
        if how == "hook":
            default_hooks = importlib.import_module(f"{torch.__name__}.distributed.algorithms.ddp_comm_hooks.default_hooks")
            model.register_comm_hook(None, default_hooks.allreduce_hook)
        if how == "compiled":
            model = torch.compile(model)
    else:
        model = net
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    ids = torch.randint(50, (8, 16), generator=torch.Generator().manual_seed(1)).to(where)
    part = ids if how == "alone" else ids.chunk(world)[rank]
    losses = []
    for _ in range(5):
        loss = nn.functional.cross_entropy(model(part).flatten(0, 1), part.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach().clone()
        if how != "alone":
            d.all_reduce(total, d.ReduceOp.AVG)
        losses.append(float(total))
    return losses


HOWS = ("plain", "unused", "views", "hook", "compiled", "fully_shard")
BESIDE_TORCH = [(collectives,), (sent_and_begun,)]


def _results(library: str, programs: list[tuple]) -> dict[tuple, list]:
    """{program: what each rank found}: all in the same two processes, which take long to begin."""
    ranks = run(several, 2, programs, library=library, timeout=240)
    return dict(zip(programs, (list(each) for each in zip(*ranks))))


@pytest.fixture(scope="module")
def ours() -> dict[tuple, list]:
    return _results("flambeau", [*BESIDE_TORCH, (beyond_torch,), *((trained, how) for how in ("alone", *HOWS))])


@pytest.fixture(scope="module")
def theirs() -> dict[tuple, list]:
    return _results("torch", BESIDE_TORCH)


def _ok(found: list[tuple[str, Any]]) -> list:
    for rank, (kind, value) in enumerate(found):
        assert kind == "ok", f"rank {rank}: {value}"
    return [value for _, value in found]


@needs_gpus
@pytest.mark.parametrize("program", BESIDE_TORCH, ids=lambda program: program[0].__name__)
def test_as_torch(program: tuple, ours: dict, theirs: dict) -> None:
    for rank, (mine, other) in enumerate(zip(_ok(ours[program]), _ok(theirs[program]))):
        refused = [key for key, value in other.items() if str(value).startswith("refused")]
        assert all(key.startswith("complex64") for key in refused), refused     # torch's lacks some collectives of complex numbers
        differing = [f"{key}: {mine.get(key)}, torch {value}" for key, value in other.items()
                     if key not in refused and mine.get(key) != value]
        differing += [f"{key}: {mine[key]}" for key in refused if str(mine[key]).startswith("refused")]
        assert not differing, f"rank {rank}: {len(differing)} differ: " + "\n".join(differing)[:1000]


@needs_gpus
def test_beyond_torch(ours: dict) -> None:
    for found in _ok(ours[beyond_torch,]):
        assert found == [[1, 600], [1, 600], [3.0] * 4, [[3.0, 6.0], [0.0, 0.0]]]


@needs_gpus
@pytest.mark.parametrize("how", HOWS)
def test_training_as_one_process(how: str, ours: dict) -> None:
    alone = _ok(ours[trained, "alone"])[0]
    for losses in _ok(ours[trained, how]):
        np.testing.assert_allclose(losses, alone, rtol=2e-4)


def hangs(torch: Any, rank: int, world: int) -> str:
    """The second process does not come."""
    d = _began(torch, rank, timeout=timedelta(seconds=4), device_id=torch.device("cuda", rank))
    x = torch.ones(8, device="cuda")
    d.all_reduce(x)
    torch.cuda.synchronize()
    if rank == 1:
        time.sleep(12)
        return ""
    d.all_reduce(x)
    try:
        x.cpu()
    except DistBackendError as error:
        return str(error)
    return "nothing was said"


@needs_gpus
def test_a_process_that_hangs() -> None:
    said = run(hangs, 2, timeout=60)[0]
    assert "all_reduce" in said and "timed out after 4 s" in said and "rank(s) 1" in said


def dies(torch: Any, rank: int, world: int) -> str:
    """The second process is killed in the middle."""
    d = _began(torch, rank, timeout=timedelta(seconds=5))
    x = torch.ones(1 << 20, device="cuda")
    d.all_reduce(x)
    torch.cuda.synchronize()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        for _ in range(100):
            d.all_reduce(x)
            x.sum().item()
    except DistBackendError as error:
        return str(error)
    return "nothing was said"


@needs_gpus
def test_a_process_that_is_killed() -> None:
    with Ranks(dies, 2) as ranks:
        deadline = time.monotonic() + 60
        while ranks.result(0) is None and time.monotonic() < deadline:
            time.sleep(0.1)
        kind, said = ranks.result(0) or ("", "nothing within a minute")
    assert kind == "ok" and "all_reduce" in said, said
