"""RPC, distributed autograd and its optimizer in real processes, beside torch's and beside one process; workers that die, hang or lie."""

from __future__ import annotations

import importlib
import multiprocessing.connection
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau import distributed as dist
from flambeau.distributed import rpc
from flambeau.distributed.rpc import functions, rref, wire
from flambeau.distributed.rpc import gradients as contexts
from flambeau.distributed.rpc.agent import Agent, complete
from flambeau.distributed.rpc.calls import Here
from tests.distributed.processes import Ranks, free_port, run

library: Any = None  # this process's


def begin(torch: Any, rank: int, world: int, **options: Any) -> Any:
    global library
    library = torch
    module = importlib.import_module(f"{torch.__name__}.distributed.rpc")
    if options:
        options = {"rpc_backend_options": module.TensorPipeRpcBackendOptions(**options)}
    module.init_rpc(f"worker{rank}", rank=rank, world_size=world, **options)
    return module


def power(x: Any, n: int = 2) -> Any:
    return x ** n


def fail(kind: type[Exception]) -> None:
    raise kind("it can't be")


class Odd(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(one, two)


def fail_oddly() -> None:
    raise Odd(1, 2)


def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def outcome(fn: Any) -> Any:
    """What `fn()` returns, or the type of its exception and where it came from."""
    try:
        return fn()
    except Exception as error:
        return type(error).__name__, "worker1" in str(error), "it can't be" in str(error)


class Counter:
    """Something that has a state."""

    def __init__(self, start: int = 0) -> None:
        self.n = start

    def add(self, k: int = 1) -> int:
        self.n += k
        return self.n

    def later(self, seconds: float) -> Any:
        time.sleep(seconds)
        return self.n


def add_to(counter: Any, k: int) -> int:
    """By a reference that came from elsewhere."""
    return counter.rpc_sync().add(k)


def calls(torch: Any, module: Any) -> dict:
    """Calls of all kinds from rank 0."""
    found: dict[str, Any] = {}
    x = torch.arange(3.0)
    found["sync"] = module.rpc_sync("worker1", power, (x,), {"n": 3}).tolist()
    found["operator"] = module.rpc_sync(1, torch.add, args=(x, 1)).tolist()
    found["info"] = module.rpc_sync(module.get_worker_info("worker2"), module.get_worker_info).id
    found["myself"] = module.rpc_sync("worker0", power, (x,)).tolist()
    waiting = [module.rpc_async(f"worker{i}", power, (x + i,)) for i in (1, 2)]
    found["async"] = [f.wait().tolist() for f in waiting]
    twice = module.rpc_async("worker1", power, (x,)).then(lambda f: f.wait() + module.rpc_sync("worker1", power, (x,)))
    found["then"] = twice.wait().tolist()
    found["error"] = [outcome(lambda kind=kind: module.rpc_sync("worker1", fail, (kind,))) for kind in (ValueError, RuntimeError)]
    found["odd"] = outcome(lambda: module.rpc_sync("worker1", fail_oddly))[:2]
    found["late"] = outcome(lambda: module.rpc_sync("worker1", nap, (0.6,), timeout=0.2))[0]
    found["nobody"] = outcome(lambda: module.rpc_sync("worker9", nap, (1,)))[0]
    found["lambda"] = outcome(lambda: module.rpc_sync("worker1", lambda: 1))[0]
    counter = module.remote("worker1", Counter, (5,))
    found["rref"] = [counter.rpc_sync().add(2), counter.rpc_async().add().wait(), counter.remote().add(k=10).to_here(), counter.to_here().n]
    found["owner"] = counter.is_owner(), counter.owner().id, counter.owner_name()
    found["not here"] = outcome(counter.local_value)[0]
    found["passed on"] = module.rpc_sync("worker2", add_to, (counter, 100)), module.rpc_sync("worker1", add_to, (counter, 1000))
    found["given"] = module.rpc_sync("worker2", type, ([counter],)).__name__
    mine = module.RRef(Counter(1))
    found["mine"] = [module.rpc_sync("worker1", add_to, (mine, 4)), mine.local_value().n, mine.to_here() is mine.local_value()]
    found["bad value"] = outcome(lambda: module.remote("worker1", fail, (ValueError,)).to_here())
    found["pickle"] = outcome(lambda: pickle.dumps(counter))[0]
    found["grads"] = [module.rpc_sync("worker1", flags, (t,)) for t in (x, x.clone().requires_grad_(), torch.nn.Parameter(x))]
    return found


def flags(x: Any) -> tuple:
    return x.requires_grad, x.is_leaf, type(x).__name__


# -- gradients ---------------------------------------------------------------------------------------------------------
def layer(seed: int, torch: Any) -> Any:
    made = torch.nn.Linear(4, 4)
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for p in made.parameters():
            p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype(np.float32) / 2))
    return made


class Stage:
    """A layer in a worker of its own."""

    def __init__(self, seed: int) -> None:
        self.layer = layer(seed, library)

    def forward(self, x: Any) -> Any:
        return library.tanh(self.layer(x))

    def parameters(self) -> list:
        RRef = importlib.import_module(f"{library.__name__}.distributed.rpc").RRef
        return [RRef(p) for p in self.layer.parameters()]

    def values(self) -> list:
        return [p.tolist() for p in self.layer.parameters()]

    def plain(self) -> list:
        return [p.grad for p in self.layer.parameters()]


def inputs(torch: Any, step: int) -> Any:
    return torch.from_numpy(np.random.default_rng([7, step]).standard_normal((5, 4)).astype(np.float32))


def training(torch: Any, module: Any) -> dict:
    """A model whose layers lie in two workers and here, trained by distributed autograd."""
    found: dict[str, Any] = {}
    autograd = importlib.import_module(f"{torch.__name__}.distributed.autograd")
    optim = importlib.import_module(f"{torch.__name__}.distributed.optim")
    remote_module = importlib.import_module(f"{torch.__name__}.distributed.nn").RemoteModule
    first, second = module.remote("worker1", Stage, (1,)), module.remote("worker2", Stage, (2,))
    last, end = layer(3, torch), remote_module("worker1/cpu", torch.nn.Linear, (4, 2))
    module.rpc_sync("worker1", fill, (end.get_module_rref(), 4))
    params = [*first.rpc_sync().parameters(), *second.rpc_sync().parameters(), *map(module.RRef, last.parameters()),
              *end.remote_parameters()]
    optimizer = optim.DistributedOptimizer(torch.optim.SGD, params, lr=0.1, momentum=0.9)
    losses = []
    for step in range(3):
        with autograd.context() as number:
            x = inputs(torch, step)
            y = second.rpc_sync().forward(first.rpc_sync().forward(x))
            loss = end(last(y)).square().mean()
            autograd.backward(number, [loss])
            if not step:
                found["here"] = [g.tolist() for _, g in sorted(autograd.get_gradients(number).items(), key=lambda p: -p[0].dim())]
            optimizer.step(number)
        losses.append(loss.item())
    found["losses"], found["last"] = losses, [p.tolist() for p in last.parameters()]
    found["first"], found["second"] = first.rpc_sync().values(), second.rpc_sync().values()
    found["no .grad"] = outcome(lambda: module.rpc_sync("worker1", untouched, (first,)))
    found["rref"] = by_reference(module, autograd, torch)
    return found


def fill(rref: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with library.no_grad():
        for p in rref.local_value().parameters():
            p.copy_(library.from_numpy(rng.standard_normal(tuple(p.shape)).astype(np.float32) / 2))


def untouched(stage: Any) -> bool:
    return all(isinstance(g, type(None)) or g.shape for g in stage.local_value().plain())


def by_reference(module: Any, autograd: Any, torch: Any) -> list:
    """A loss that lies elsewhere."""
    w = torch.ones(3, requires_grad=True)
    with autograd.context() as number:
        loss = module.remote("worker1", weigh, (w,))
        loss.backward(number)
        return autograd.get_gradients(number)[w].tolist()


def weigh(w: Any) -> Any:
    return (w * library.arange(3.0)).sum()


def everything(torch: Any, rank: int, world: int) -> tuple | None:
    """What rank 0 finds with the help of the others."""
    module = begin(torch, rank, world)
    found = None if rank else (calls(torch, module), training(torch, module))
    module.shutdown()
    assert outcome(lambda: module.rpc_sync("worker1", nap, (0,)))[0] == "RuntimeError"
    return found


def test_as_torch_and_training_as_one_process() -> None:
    pytest.importorskip("torch")
    (our_calls, ours), (their_calls, theirs) = run(everything, 3)[0], run(everything, 3, library="torch", timeout=100)[0]
    assert our_calls == their_calls
    global library
    library = fl
    stages, last, end = [Stage(1), Stage(2)], layer(3, fl), fl.nn.Linear(4, 2)
    rng = np.random.default_rng(4)
    with fl.no_grad():
        for p in end.parameters():
            p.copy_(fl.from_numpy(rng.standard_normal(tuple(p.shape)).astype(np.float32) / 2))
    sgd = fl.optim.SGD([p for m in (stages[0].layer, stages[1].layer, last, end) for p in m.parameters()], lr=0.1, momentum=0.9)
    losses = []
    for step in range(3):
        sgd.zero_grad()
        loss = end(last(stages[1].forward(stages[0].forward(inputs(fl, step))))).square().mean()
        loss.backward()
        sgd.step()
        losses.append(loss.item())
    alone = {"losses": losses, "last": [p.tolist() for p in last.parameters()], "first": stages[0].values(), "second": stages[1].values()}
    for name, value in alone.items():
        for mine, other in zip(value, ours[name]):
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6, err_msg=name)
    for name in ours:
        for mine, other in zip(*[x[name] if isinstance(x[name], list) else [x[name]] for x in (ours, theirs)]):
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6, err_msg=name)


def there_and_back(x: Any, depth: int, to: int) -> Any:
    """x through `depth` more workers, a product in each."""
    return x * 2 if not depth else x.sin() * rpc.rpc_sync(to, there_and_back, (x * x, depth - 1, 1 - to))


class NoGradient(fl.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1

    @staticmethod
    def backward(ctx: Any, g: Any) -> None:
        return None


def half_of(x: Any, y: Any) -> tuple:
    """Results of which one has no gradient for what it was made of."""
    return NoGradient.apply(x) + y, x * y


def graphs(torch: Any, rank: int, world: int) -> dict:
    """Graphs that wander between the processes, and reach parts of what was sent."""
    module = begin(torch, rank, world)
    autograd = torch.distributed.autograd
    found: dict[str, Any] = {}
    if rank == 0:
        a, b = torch.tensor([0.5, 0.7], requires_grad=True), torch.nn.Parameter(torch.tensor([1.5, 2.0]))
        with autograd.context() as number:
            deep = there_and_back(a * b, 5, 1)
            unused = module.rpc_sync(1, power, (a,))
            autograd.backward(number, [deep.sum()], retain_graph=True)
            found["deep"] = [autograd.get_gradients(number)[t].tolist() for t in (a, b)]
            autograd.backward(number, [deep.sum(), unused.sum()])
            found["twice"] = [autograd.get_gradients(number)[t].tolist() for t in (a, b)]
        with autograd.context() as number:
            first, second = module.rpc_sync(1, half_of, (a * 3, b))
            autograd.backward(number, [first.sum() + 0 * second.sum()])
            found["half"] = [autograd.get_gradients(number)[t].tolist() for t in (a, b)]
        with autograd.context() as number:
            found["myself"] = module.rpc_sync(0, power, (a,))
            autograd.backward(number, [found["myself"].sum()])
            found["myself"] = autograd.get_gradients(number)[a].tolist()
        with autograd.context() as number:
            autograd.backward(number, [module.rpc_sync(1, total, (a, [b], {"k": a * b}))])
            found["nested"] = [autograd.get_gradients(number)[t].tolist() for t in (a, b)]
        found["grad"] = a.grad, b.grad
    module.shutdown()
    found["left"] = len(contexts._Contexts.open), len(rref._Values.held)
    return found


def total(a: Any, more: list, named: dict) -> Any:
    return (a * more[0]).sum() + named["k"].sum()


def test_gradients_of_wandering_graphs() -> None:
    found = run(graphs, 2)[0]

    def alone(x: Any, depth: int) -> Any:
        return x * 2 if not depth else x.sin() * alone(x * x, depth - 1)

    a, b = fl.tensor([0.5, 0.7], requires_grad=True), fl.tensor([1.5, 2.0], requires_grad=True)
    deep = fl.autograd.grad(alone(a * b, 5).sum(), (a, b))
    np.testing.assert_allclose(found["deep"], [g.tolist() for g in deep], rtol=1e-5)
    np.testing.assert_allclose(found["twice"], [(2 * deep[0] + 2 * a).tolist(), (2 * deep[1]).tolist()], rtol=1e-5)
    assert found["half"] == [[0, 0], [1, 1]]
    assert found["myself"] == [1, pytest.approx(1.4)]
    np.testing.assert_allclose(found["nested"], [(2 * b).tolist(), (2 * a).tolist()])
    assert found["grad"] == (None, None)
    assert found["left"] == (0, 0)


# -- references --------------------------------------------------------------------------------------------------------
def give(counter: Any) -> Any:
    return [counter]  # a new reference on its way back


kept: list = []


def keep(counter: Any) -> None:
    kept.append(counter)


def let_go() -> None:
    kept.clear()


def values_here() -> int:
    return len(rref._Values.held)


@functions.async_execution
def later(to: int, x: int) -> fl.futures.Future:
    return rpc.rpc_async(to, power, (x,)).then(lambda f: f.wait() + 1)


@functions.async_execution
def not_later() -> int:
    return 1


def eventually(fn: Any, expected: Any) -> Any:
    deadline = time.monotonic() + 5
    while fn() != expected and time.monotonic() < deadline:
        time.sleep(0.01)
    return fn()


def references(torch: Any, rank: int, world: int) -> dict:
    """Values are there as long as somebody refers to them; threads are few."""
    begin(torch, rank, world, num_worker_threads=2)
    found: dict[str, Any] = {}
    if rank == 0:
        counter = rpc.remote(1, Counter)
        copies = [rpc.rpc_sync(to, give, (counter,))[0] for to in (1, 2, 0)]
        rpc.rpc_sync(2, keep, (copies.pop(),))
        found["two forks"] = counter.rpc_sync().add(), [c.rpc_sync().add() for c in copies]
        there = lambda: rpc.rpc_sync(1, values_here)
        del counter
        found["copies"] = eventually(there, 1)
        copies.clear()
        time.sleep(0.1)
        found["kept elsewhere"] = there()
        rpc.rpc_sync(2, let_go)
        found["nobody"] = eventually(there, 0)
        for _ in range(20):
            rpc.remote(1, Counter)
        found["dropped at once"] = eventually(there, 0)
        # two threads serve, and each of these calls needs one here while it waits for one there
        found["async"] = [f.wait() for f in [rpc.rpc_async(1, later, (0, i)) for i in range(10)]]
        found["not async"] = outcome(lambda: rpc.rpc_sync(1, not_later))[0]
        for dtype in ("bfloat16", "bool", "int8", "complex64", "float8_e4m3fn"):
            sent = torch.ones(2, 3).t().to(getattr(torch, dtype))
            back = rpc.rpc_sync(2, give, (sent,))[0]
            assert back.dtype is sent.dtype and back.shape == sent.shape and bool((back == sent).all()), dtype
    rpc.shutdown()
    found["left"] = values_here()
    return found


def test_references_and_futures() -> None:
    results = run(references, 3)
    assert results[0] == {"two forks": (1, [2, 3]), "copies": 1, "kept elsewhere": 1, "nobody": 0, "dropped at once": 0,
                          "async": [i * i + 1 for i in range(10)], "not async": "TypeError", "left": 0}
    assert [r["left"] for r in results] == [0, 0, 0]


# -- faults ------------------------------------------------------------------------------------------------------------
def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def survivors(torch: Any, rank: int, world: int) -> dict:
    """Worker 1 is killed in a call; the others hear of it in calls and at the end, by its name."""
    begin(torch, rank, world, rpc_timeout=30.0)
    found: dict[str, Any] = {}
    if rank == 0:
        counter, begun = rpc.remote(1, Counter), time.monotonic()
        counter.rpc_sync().add()
        waiting = rpc.rpc_async(1, nap, (100,))
        asks = {"in a call": lambda: rpc.rpc_sync(1, die), "which waited": waiting.wait,
                "afterwards": lambda: rpc.rpc_sync(1, nap, (0,)), "value": counter.to_here}
        found |= {name: outcome(ask)[:2] for name, ask in asks.items()}
        found["quick"] = time.monotonic() - begun < 20
    found["end"] = outcome(rpc.shutdown)[:2]
    return found


def test_a_dead_worker_is_named() -> None:
    with Ranks(survivors, 3) as ranks:
        for rank in (0, 2):
            ranks.processes[rank].join(40)
        found = [ranks.result(rank) for rank in (0, 2)]
    named = ("RuntimeError", True)
    assert found == [("ok", {"in a call": named, "which waited": named, "afterwards": named, "value": named, "quick": True, "end": named}),
                     ("ok", {"end": named})]


class Bomb:
    """A pickle that does harm."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (Path(self.path),)


def strangers(torch: Any, rank: int, world: int, path: str) -> dict:
    begin(torch, rank, world)
    found: dict[str, Any] = {}
    if rank == 0:
        _, host, port = Here.agent.everyone[1]
        bomb = pickle.dumps(Bomb(path))
        for bytes_ in (bomb, b"\x00" * 1000, len(bomb).to_bytes(4, "big") + bomb, b"\x7f\xff\xff\xff"):
            with socket.create_connection((host, port)) as stranger:
                stranger.sendall(bytes_)
        silent = socket.create_connection((host, port))
        try:
            multiprocessing.connection.Client((host, port), authkey=b"guessed").send(Bomb(path))
        except (OSError, EOFError, multiprocessing.AuthenticationError) as error:
            found["guess"] = type(error).__name__
        found["served"] = rpc.rpc_sync(1, power, (3,))
        silent.close()
    place = Here.agent.everyone[rank][1:]
    rpc.shutdown()
    found["port"] = outcome(lambda: socket.create_connection(place))[0]
    eventually(lambda: [t.name for t in threading.enumerate() if t.name.startswith("flambeau-rpc")], [])
    found["threads"] = [t.name for t in threading.enumerate() if t.name.startswith("flambeau-rpc") and "greeting" not in t.name]
    return found


def test_a_stranger_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "harm"
    found = run(strangers, 2, str(path))
    assert not path.exists()
    assert found[0] == {"guess": "AuthenticationError", "served": 9, "port": "ConnectionRefusedError", "threads": []}
    assert found[1] == {"port": "ConnectionRefusedError", "threads": []}


def beginnings(torch: Any, rank: int, world: int, port: int) -> dict:
    """Names that are there twice, several beginnings, beside a process group at the same address."""
    found: dict[str, Any] = {}
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{port}")
    found["twice"] = outcome(lambda: rpc.init_rpc("same", rank=rank, world_size=world, rpc_backend_options=options))
    for i in range(2):
        begin(torch, rank, world, init_method=f"tcp://127.0.0.1:{port}", rpc_timeout=20)
        found[i] = rpc.rpc_sync(1 - rank, power, (rank + i,)), rpc.get_rpc_timeout()
        rpc.shutdown()
    return found


def test_beginnings() -> None:
    assert run(beginnings, 2, free_port()) == [
        {"twice": ("RuntimeError", False, False), 0: (rank ** 2, 20), 1: ((rank + 1) ** 2, 20)} for rank in range(2)]


def test_what_is_refused() -> None:
    with pytest.raises(RuntimeError, match="has not been initialized"):
        rpc.rpc_sync("worker1", power, (1,))
    for name in ("", "white space", "x" * 128):
        with pytest.raises(RuntimeError, match="Worker name"):
            rpc.init_rpc(name, rank=0, world_size=1)
    for options in ({"device_maps": {"a": {0: 1}}}, {"devices": ["cuda:0"]}, {"_transports": ["shm"]}):
        with pytest.raises(NotImplementedError):
            rpc.TensorPipeRpcBackendOptions(**options)
    with pytest.raises(TypeError, match="rpc_backend_options"):
        rpc.init_rpc("a", rank=0, world_size=1, rpc_backend_options={"rpc_timeout": 1})


def test_one_worker_and_a_group_at_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of this process alone; what was kept goes with the end, and errors of the wire reach the caller."""
    for name, value in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    store = next(dist.rendezvous("env://"))[0]
    rpc.init_rpc("alone")
    try:
        assert rpc.rpc_sync("alone", power, (3,)) == 9
        with pytest.raises(RuntimeError, match="set timeout"):
            rpc.rpc_sync("alone", nap, (0.5,), timeout=0.05)
        with pytest.raises(TypeError, match="pickle"):
            rpc.rpc_sync("alone", threading.Lock)
        with pytest.raises(ValueError, match="seconds"):
            rpc.rpc_sync("alone", nap, (0,), timeout=-3)
        assert isinstance(Here.agent, Agent)
        same = fl.ones(2)
        first, second = wire.unpack(wire.pack([same, same], Here.agent.me, None), Here.agent.me)
        assert first is second
        late = fl.futures.Future()
        complete(late, 1)
        complete(late, 2)
        assert late.wait() == 1
    finally:
        rpc.shutdown()
    assert not rpc._is_current_rpc_agent_set()
    store.set("still", "here")  # who shares the address keeps its store
    assert store.get("still") == b"here"


def test_the_example(tmp_path: Path) -> None:
    """The parameter server's trainers come to the loss of one process."""
    example, losses = Path(__file__).resolve().parents[2] / "examples/rpc_parameter_server.py", []
    for launch in (["flambeau", "run"], ["flambeau.distributed.run", "--standalone", "--nproc-per-node=3"]):
        command = [sys.executable, "-W", "error", "-m", *launch, example, "--smoke"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True,
                              timeout=100, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert done.returncode == 0, done.stdout + done.stderr
        losses.append(float(re.search(r"final loss (\S+)", done.stdout).group(1)))  # type: ignore[union-attr]
    assert abs(losses[0] - losses[1]) < 2e-5
