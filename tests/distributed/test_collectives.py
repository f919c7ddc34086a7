"""Collectives between real processes, beside torch's gloo; what a group refuses; what happens when a rank does not come."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
import types
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau import distributed as dist
from tests.distributed.processes import Ranks, needs_mpi, run

DTYPES = ("bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128")
OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")


def brought(torch: Any, rank: int, dtype: str, *shape: int) -> Any:
    """What a rank brings: small whole numbers, so that no order of adding matters."""
    values = np.random.default_rng(rank).integers(0, 4, shape)
    return torch.tensor(values).to(getattr(torch, dtype))


def listed(value: Any) -> Any:
    """Plain Python."""
    if isinstance(value, (list, tuple)):
        return [listed(v) for v in value]
    return value.tolist() if hasattr(value, "tolist") else value


def reductions(torch: Any, rank: int, world: int) -> dict:
    d, found = torch.distributed, {}
    for dtype in DTYPES:
        for op in OPS:
            x = brought(torch, rank, dtype, 2, 3)
            try:
                d.all_reduce(x, getattr(d.ReduceOp, op))
                found[dtype, op] = listed(x), str(x.dtype).rpartition(".")[2]
            except Exception as error:
                found[dtype, op] = type(error).__name__
    return found


def movements(torch: Any, rank: int, world: int) -> dict:
    """All that only moves elements, for dtypes of each width, of tensors with and without gaps."""
    d, found = torch.distributed, {}
    for dtype in DTYPES[:-2]:  # gloo gathers no complex numbers
        for gaps in (False, True) if torch.__name__ == "flambeau" else (False,):  # gloo moves what lies in the gaps
            def made(*shape: int, rank: int = rank, dtype: str = dtype, gaps: bool = gaps) -> Any:
                x = brought(torch, rank, dtype, *shape)
                return torch.stack([x, x], -1)[..., 0] if gaps else x

            def empty(*shape: int, dtype: str = dtype, gaps: bool = gaps) -> Any:
                x = torch.zeros(*shape, 2, dtype=getattr(torch, dtype))
                return x[..., 1] if gaps else x[..., 1].contiguous()

            steps: dict[str, Callable] = {}
            x = made(3)
            d.broadcast(x, src=world - 1)
            steps["broadcast"] = x
            outs = [empty(3) for _ in range(world)]
            d.all_gather(outs, made(3))
            steps["all_gather"] = outs
            out = empty(world * 3)
            d.all_gather_into_tensor(out, made(3))
            steps["into"] = out
            lists = [[empty(2), empty(4)] for _ in range(world)]
            d.all_gather_coalesced(lists, [made(2), made(4)])
            steps["all_gather_coalesced"] = lists
            outs = [empty(3) for _ in range(world)] if rank == 1 else None
            d.gather(made(3), outs, dst=1)
            steps["gather"] = outs
            x = empty(2)
            d.scatter(x, [made(2, rank=i) for i in range(world)] if rank == 0 else None, src=0)
            steps["scatter"] = x
            out = empty(world)
            d.all_to_all_single(out, made(world))
            steps["all_to_all_single"] = out
            sent = [rank + 1] * world
            out = empty(sum(range(1, world + 1)), 2)
            d.all_to_all_single(out, made(sum(sent), 2), list(range(1, world + 1)), sent)
            steps["splits"] = out
            found[dtype, gaps] = {name: listed(value) for name, value in steps.items()}
    return found


def groups_and_messages(torch: Any, rank: int, world: int) -> dict:
    d = torch.distributed
    found: dict[str, Any] = {"who": (d.get_rank(), d.get_world_size(), d.get_backend(), d.is_initialized(), d.is_available())}
    others = d.new_group([world - 1, 0])
    found["other"] = others == d.GroupMember.NON_GROUP_MEMBER
    if rank in (0, world - 1):
        x = torch.full((2,), float(rank))
        d.all_reduce(x, group=others)
        y = torch.full((1,), float(rank))
        d.broadcast(y, src=world - 1, group=others)
        found["pair"] = listed(x), listed(y), d.get_rank(others), d.get_group_rank(others, world - 1), d.get_process_group_ranks(others)
    mine, every = d.new_subgroups(2)
    x = torch.ones(1) * rank
    d.all_reduce(x, group=mine)
    found["subgroups"] = listed(x), len(every)
    right, left = (rank + 1) % world, (rank - 1) % world
    got = torch.zeros(3)
    works = d.batch_isend_irecv([d.P2POp(d.isend, torch.arange(3.0) + rank, right), d.P2POp(d.irecv, got, left)])
    for work in works:
        work.wait()
    found["ring"] = listed(got)
    if rank == 0:
        found["any"] = sorted((d.recv(got, tag=5), listed(got))[0] for _ in range(world - 1))
    else:
        d.send(torch.ones(3) * rank, 0, tag=5)
    objects: list = [None] * world
    d.all_gather_object(objects, {"rank": rank, "long": "x" * 10 * rank})
    found["objects"] = objects
    words = ["a", {"b": 1}] if rank == 1 else [None, None]
    d.broadcast_object_list(words, src=1)
    gathered: Any = [None] * world if rank == 0 else None
    d.gather_object((rank, "g"), gathered, dst=0)
    scattered: list = [None]
    d.scatter_object_list(scattered, [f"for {i}" for i in range(world)] if rank == 0 else None, src=0)
    found["words"] = words, gathered, scattered
    work = d.all_reduce(x := torch.ones(4) * rank, async_op=True)
    work.wait()
    found["async"] = listed(x), work.is_completed()
    future = d.all_reduce(y := torch.ones(2) * rank, async_op=True).get_future()
    found["future"] = listed(future.then(lambda f: f.value()[0] / world).wait()), listed(y)
    d.monitored_barrier()
    d.barrier()
    d.destroy_process_group()
    found["after"] = d.is_initialized()
    return found


def everything(torch: Any, rank: int, world: int) -> dict:
    torch.distributed.init_process_group("gloo")
    return {**reductions(torch, rank, world), **movements(torch, rank, world), **groups_and_messages(torch, rank, world)}


@needs_mpi
def test_as_gloo() -> None:
    pytest.importorskip("torch")
    world = 4
    ours, theirs = run(everything, world), run(everything, world, library="torch", timeout=100)
    for rank, (mine, other) in enumerate(zip(ours, theirs)):
        for dtype in DTYPES[:-2]:
            other[dtype, True] = other[dtype, False]
        assert mine.keys() == other.keys()
        differing = {key: (mine[key], other[key]) for key in mine if mine[key] != other[key]}
        assert not differing, f"rank {rank}: {differing}"


def beyond_gloo(torch: Any, rank: int, world: int) -> dict:
    """What gloo lacks."""
    d, R = torch.distributed, torch.distributed.ReduceOp
    d.init_process_group("cpu:gloo,cuda:nccl")
    found: dict[str, Any] = {}
    for dtype in ("int16", "uint16", "uint32", "uint64", "float8_e4m3fn"):
        x = torch.tensor([rank, 1, 2]).to(getattr(torch, dtype))
        d.all_reduce(x)
        found[dtype] = listed(x.float())
    x = torch.ones(2) * (rank + 1)
    d.all_reduce(x, d._make_nccl_premul_sum(0.5))
    found["premul"] = listed(x), listed(torch.ones(1))
    x = torch.ones(2) * (rank + 1)
    d.reduce(x, dst=1, op=R.MAX)
    found["reduce"] = listed(x)
    out = torch.empty(2)
    d.reduce_scatter(out, [torch.ones(2) * (rank + i) for i in range(world)])
    found["reduce_scatter"] = listed(out)
    whole = torch.arange(world * 2.0)
    d.reduce_scatter_tensor(whole[rank * 2 : rank * 2 + 2], whole, R.AVG)  # into a part of itself
    found["part"] = listed(whole[rank * 2 : rank * 2 + 2])
    d.all_gather_into_tensor(whole, whole[rank * 2 : rank * 2 + 2])
    found["whole"] = listed(whole)
    outs = [torch.empty(i + 1) for i in range(world)]
    d.all_to_all(outs, [torch.full((rank + 1,), float(i)) for i in range(world)])
    found["ragged"] = listed(outs)
    version = (p := torch.nn.Parameter(torch.ones(2)))._version
    with torch.no_grad():
        d.broadcast(p, 0) if rank else d.all_reduce(torch.ones(1), group=d.new_group([0], use_local_synchronization=True))
        if rank == 0:
            d.broadcast(p, 0)
    found["version"] = p._version - version
    xs = [torch.ones(2) * rank, torch.ones(3, dtype=torch.int64)]
    d.all_reduce_coalesced(xs)
    found["coalesced"] = listed(xs)
    d.destroy_process_group()
    for _ in range(2):  # again, from the store alone, with ranks changed
        store = d.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]) + 1 + _, world, rank == 0)
        d.init_process_group(backend="mpi", store=store, rank=world - 1 - rank, world_size=world, timeout=timedelta(seconds=30))
        objects: list = [None] * world
        d.all_gather_object(objects, rank)
        found["again"] = objects
        d.destroy_process_group()
        store.close() if rank else time.sleep(0.2)
    return found


@needs_mpi
def test_beyond_gloo() -> None:
    world = 2
    for rank, found in enumerate(run(beyond_gloo, world)):
        assert found["int16"] == found["uint16"] == found["uint32"] == found["uint64"] == found["float8_e4m3fn"] == [1, 2, 4]
        assert found["premul"][0] == [1.5, 1.5]
        assert found["reduce"] == [[1, 1], [2, 2]][rank]
        assert found["reduce_scatter"] == [1 + 2 * rank] * 2
        assert found["part"] == [2 * rank, 2 * rank + 1] and found["whole"] == [0, 1, 2, 3]
        assert found["ragged"] == [[rank] * (i + 1) for i in range(world)]
        assert found["version"] == (rank > 0)
        assert found["coalesced"] == [[1, 1], [2, 2, 2]]
        assert found["again"] == [1, 0]


# -- faults ------------------------------------------------------------------------------------------------------------
def said(call: Callable) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def faults_of_detail(torch: Any, rank: int, world: int) -> list:
    d = torch.distributed
    d.init_process_group("gloo", timeout=timedelta(seconds=20))
    found = [said(lambda: d.all_reduce(torch.ones(2 + (rank == 1)))), said(lambda: d.all_reduce(torch.ones(2)))]
    found.append(said(lambda: d.all_reduce(torch.ones(2, dtype=torch.float64 if rank == 2 else torch.float32))))
    found.append(said(lambda: d.barrier() if rank == 0 else d.broadcast(torch.ones(2), 0)))
    return found


@needs_mpi
def test_what_differs_between_ranks_is_named() -> None:
    for found in run(faults_of_detail, 3, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}):
        assert "ranks 0, 2: #1 all_reduce(shape=[2]" in found[0] and "rank 1: #1 all_reduce(shape=[3]" in found[0]
        assert found[0].startswith("RuntimeError") and found[1] == "nothing"
        assert "rank 2: #3 all_reduce(shape=[2], dtype=torch.float64" in found[2]
        assert "rank 0: #4 barrier" in found[3] and "ranks 1, 2: #4 broadcast(shape=[2], dtype=torch.float32, src=0)" in found[3]


def late(torch: Any, rank: int, world: int) -> list:
    d = torch.distributed
    d.init_process_group("gloo", timeout=timedelta(seconds=60))
    store, others = d.group.WORLD.get_group_store(), [f"has said {r}" for r in range(world) if r != 1]
    d.barrier()
    found = []
    if rank != 1:
        found.append(said(lambda: d.monitored_barrier(timeout=timedelta(seconds=2), wait_all_ranks=True)))
        d.group.WORLD.set_timeout(timedelta(seconds=2))
        found += [said(lambda: d.all_reduce(torch.ones(2))), said(lambda: d.all_reduce(torch.ones(2)))]
        store.set(f"has said {rank}", "")
    store.wait(others, timedelta(seconds=50))    # however long the others take: till then nobody leaves
    if rank == 0:                                # who serves the store leaves last
        store.wait([f"is gone {r}" for r in range(1, world)], timedelta(seconds=50))
    else:
        with contextlib.suppress(d.DistNetworkError):
            store.set(f"is gone {rank}", "")
    return found


@needs_mpi
def test_a_rank_that_does_not_come_is_named() -> None:
    first, _, last = run(late, 3)
    assert "Rank 1 failed to pass monitoredBarrier in 2000 ms" in first[0] and "rank 0" in last[0]
    for found in (first, last):
        assert found[1].startswith("DistBackendError: all_reduce (collective")
        assert "timed out after 2 s; not waiting in it: rank(s) 1" in found[1]
        assert "can't be used any more" in found[2]


def dies(torch: Any, rank: int, world: int) -> str:
    d = torch.distributed
    d.init_process_group("gloo", timeout=timedelta(seconds=2))
    d.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return said(lambda: [d.all_reduce(torch.ones(1 << 20)) for _ in range(3)])


def _shared() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if name.startswith("mpich")}


@needs_mpi
def test_a_killed_rank_is_noticed() -> None:
    before = _shared()
    with Ranks(dies, 2) as ranks:
        ranks.processes[1].join(60)
        assert ranks.processes[1].exitcode == -signal.SIGKILL
        ranks.processes[0].join(30)
        kind, text = ranks.result(0)  # type: ignore[misc]
        assert kind == "ok" and "DistBackendError" in text and "rank(s) 1" in text
    assert _shared() <= before      # what others left is theirs


def meets_wrongly(torch: Any, rank: int, world: int, how: str) -> str:
    d = torch.distributed
    given = {"size": (rank, world + rank), "twice": (0, world), "missing": (rank + 1, world + 1)}[how]
    store = d.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), None, rank == 0, timedelta(seconds=40), wait_for_workers=False)
    text = said(lambda: d.init_process_group("gloo", rank=given[0], world_size=given[1], timeout=timedelta(seconds=3), store=store))
    store.set(f"said {rank}", "")
    store.wait([f"said {r}" for r in range(world)], timedelta(seconds=20))
    time.sleep(0.5 * (rank == 0))  # the others need the store till here
    return text


@needs_mpi
@pytest.mark.parametrize(("how", "message"), [
    ("twice", "rank 0 of 2 is there twice"), ("missing", r"rank\(s\) 0 did not come"), ("size", "did not come|do not agree"),
])
def test_processes_that_do_not_fit(how: str, message: str) -> None:
    texts = " ".join(map(str, run(meets_wrongly, 2, how)))
    assert re.search(message, texts), texts


# -- one process: what is refused, and the fake group --------------------------------------------------------------------
@pytest.fixture
def fake() -> Any:
    dist.init_process_group("fake", rank=3, world_size=4096)
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_a_fake_group(fake: Any) -> None:
    assert (dist.get_rank(), dist.get_world_size(), dist.get_backend(), str(dist.get_backend_config())) == (
        3, 4096, "fake", "cpu:fake,cuda:fake")
    x = fl.ones(4, dtype=fl.bfloat16)
    dist.all_reduce(x)
    row = dist.new_group(range(0, 4096, 3))
    out = fl.empty(1366 * 4)
    dist.all_gather_into_tensor(out, fl.arange(4.0), group=row)
    assert out[-4:].tolist() == [0, 1, 2, 3]
    assert dist.all_reduce(x, async_op=True).get_future().wait()[0] is x
    dist.barrier()
    dist.broadcast(fl.empty(2, 3, device="meta"), src=5)
    assert [(c.name, c.shape, c.nbytes, len(c.ranks)) for c in fake.calls] == [
        ("all_reduce", (4,), 8, 4096), ("all_reduce", (4,), 8, 4096), ("barrier", (), 0, 4096), ("broadcast", (2, 3), 24, 4096)]
    assert [(c.name, len(c.ranks)) for c in row.calls] == [("all_gather_into_tensor", 1366)]


X = fl.ones(2, 2)
FEW = [X] * 3
REFUSED = [
    (lambda: dist.all_reduce(3), TypeError, "torch.Tensor"),
    (lambda: dist.all_reduce([X]), TypeError, "list"),
    (lambda: dist.all_reduce(X, "sum"), TypeError, "ReduceOp"),
    (lambda: dist.all_reduce(X, dist.ReduceOp.BAND), RuntimeError, "Cannot use ReduceOp.BAND with non-integral dtype"),
    (lambda: dist.all_reduce(X.int(), dist.ReduceOp.AVG), RuntimeError, "AVG"),
    (lambda: dist.all_reduce(X.to(fl.complex64), dist.ReduceOp.MAX), ValueError, "does not support RedOpType.MAX on complex"),
    (lambda: dist.all_gather(FEW, X), RuntimeError, "expected length 4096, got 3"),
    (lambda: dist.all_gather([fl.ones(3)] * 4096, X), RuntimeError, r"expected \(2, 2\), got \(3,\)"),
    (lambda: dist.all_gather([X.int()] * 4096, X), ValueError, "different dtypes"),
    (lambda: dist.all_gather_into_tensor(X, X), RuntimeError, "4096 times"),
    (lambda: dist.reduce_scatter_tensor(X, X), RuntimeError, "4096 times"),
    (lambda: dist.broadcast(X, 5000), RuntimeError, "invalid root rank: 5000"),
    (lambda: dist.broadcast(X), ValueError, "src"),
    (lambda: dist.broadcast(X, 1, group_src=1), ValueError, "both"),
    (lambda: dist.send(X, 3), ValueError, "should not be the same as the rank of the current process"),
    (lambda: dist.scatter(X, src=3), ValueError, "scatter_list"),
    (lambda: dist.scatter(X, [X], src=0), ValueError, "NOT"),
    (lambda: dist.gather(X, dst=3), ValueError, "gather_list"),
    (lambda: dist.all_to_all_single(X, X), RuntimeError, "divide equally"),
    (lambda: dist.all_to_all_single(X, X, [1], [2]), RuntimeError, "not equal to group size"),
    (lambda: dist.all_to_all([X], [X]), RuntimeError, "does not match world size"),
    (lambda: dist.P2POp(dist.all_reduce, X, 0), ValueError, "isend"),
    (lambda: dist.batch_isend_irecv([]), ValueError, "P2POp"),
    (lambda: dist.new_group([0, 0]), ValueError, "duplicate"),
    (lambda: dist.new_group([0, 9999]), ValueError, "within the world"),
    (lambda: dist.new_subgroups(5), ValueError, "divisible"),
    (lambda: dist.init_process_group("gloo"), ValueError, "twice"),
    (lambda: dist.barrier(device_ids="x"), TypeError, "List"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_what_a_group_refuses(fake: Any, call: Callable, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


NOT_BEGUN = [
    (lambda: dist.get_rank(), ValueError, "Default process group has not been initialized"),
    (lambda: dist.all_reduce(X), ValueError, "init_process_group"),
    (lambda: dist.destroy_process_group(), AssertionError, "None"),
    (lambda: dist.init_process_group("gloo"), ValueError, "environment variable RANK expected, but not set"),
    (lambda: dist.init_process_group("bogus"), AssertionError, "Unknown backend type bogus"),
    (lambda: dist.init_process_group("ucc"), RuntimeError, "UCC built in"),
    (lambda: dist.init_process_group("nccl"), RuntimeError, "NCCL built in"),
    (lambda: dist.init_process_group("gloo", store=dist.HashStore()), AssertionError, "if using store"),
    (lambda: dist.init_process_group("gloo", store=dist.HashStore(), init_method="env://"), AssertionError, "both"),
    (lambda: dist.init_process_group("gloo", init_method="bogus://x"), RuntimeError, "No rendezvous handler for bogus://"),
    (lambda: dist.init_process_group("gloo", init_method="tcp://h:1"), ValueError, "rank parameter missing"),
    (lambda: dist.init_process_group("gloo", rank=2, world_size=1, store=dist.HashStore()), ValueError, "rank 2 does not exist"),
    (lambda: dist.init_process_group("gloo", timeout=5), TypeError, "timedelta"),
    (lambda: dist.Backend.register_backend("x", None), NotImplementedError, "fake"),
]


@pytest.mark.parametrize(("call", "error", "message"), NOT_BEGUN)
def test_what_is_refused_before(call: Callable, error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(error, match=message):
        call()
    assert not dist.is_initialized()


def test_without_an_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    assert not dist.is_mpi_available() and not dist.is_backend_available("gloo") and dist.is_backend_available("fake")
    with pytest.raises(ImportError, match=r"pip install 'flambeau\[distributed\]'"):
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    assert not dist.is_initialized()


def test_mpi4py_without_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there, but finds no MPI to load, of which it tells by a RuntimeError."""
    bare = types.ModuleType("mpi4py")
    bare.rc = types.SimpleNamespace()  # type: ignore[attr-defined]

    def missing(name: str) -> Any:
        if name == "MPI":
            raise RuntimeError("cannot load MPI library")
        raise AttributeError(name)
    bare.__getattr__ = missing  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "mpi4py", bare)
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    assert not dist.is_mpi_available() and not dist.is_gloo_available() and not dist.is_backend_available("gloo")
    with pytest.raises(ImportError, match="cannot load MPI library"):
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())


@needs_mpi
def test_outside_of_a_group() -> None:
    """A collective of a group that this process is not in does nothing, and says so; tensors without elements are not exchanged."""
    for rank, said in enumerate(run(_outside, 2)):
        assert said == [f"Running {name} on global rank 1 which does not belong to the given group."
                        for name in ("all_reduce", "all_gather_object", "barrier") if rank]


def _outside(torch: Any, rank: int, world: int) -> list[str]:
    dist = torch.distributed
    dist.init_process_group("gloo")
    assert dist.group.WORLD.group_desc == "default_pg" and dist.all_reduce(torch.ones(2, device="meta")) is None
    first = dist.new_group([0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dist.all_reduce(torch.ones(1), group=first)
        dist.all_gather_object([None], 1, group=first)
        dist.barrier(first)
    return [str(w.message) for w in caught]
