"""DistributedDataParallel in real processes: gradients as those of one process that has the whole batch, and as torch's."""

from __future__ import annotations

import copy
import importlib
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau import distributed as dist
from flambeau.distributed.algorithms.ddp_comm_hooks import default_hooks
from flambeau.nn.parallel import DistributedDataParallel
from flambeau.nn.parallel.distributed import _MixedPrecision
from tests.distributed.processes import needs_mpi, run


def model(torch: Any, seed: int) -> Any:
    """A net whose numbers don't depend on the library's random numbers, with buffers and a part that is used now and then."""
    nn, rng = torch.nn, np.random.default_rng(seed)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm, self.last = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
            self.spare, self.never = nn.Linear(8, 3), nn.Linear(2, 2)

        def forward(self, x: Any, spare: bool = False) -> Any:
            x = torch.tanh(self.norm(self.first(x)))
            return self.last(x) + (self.spare(x) if spare else 0)

    net = Net()
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.tensor(rng.standard_normal(tuple(p.shape)), dtype=p.dtype))
    return net


def batch(torch: Any, step: int, rank: int) -> Any:
    return torch.tensor(np.random.default_rng([step, rank]).standard_normal((4, 6)), dtype=torch.float32)


def numbers(tensors: Any) -> list:
    return [None if t is None else t.detach().double().numpy() for t in tensors]


def trained(torch: Any, rank: int, ddp: Any, spare: Callable[[int], bool] = lambda step: True, steps: int = 3) -> list:
    """Gradients of the last step, and parameters and buffers after all."""
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        ddp(batch(torch, step, rank), spare(step)).square().mean().backward()
        optimizer.step()
    return numbers([p.grad for p in ddp.parameters()]) + numbers(ddp.state_dict().values())


WAYS: dict[str, dict] = {
    "unused": {"find_unused_parameters": True}, "static": {"static_graph": True},
    "views": {"find_unused_parameters": True, "gradient_as_bucket_view": True},
    "tiny": {"find_unused_parameters": True, "bucket_cap_mb": 1e-4},
}


def program(torch: Any, rank: int, world: int) -> dict:
    torch.distributed.init_process_group("gloo")
    DDP = torch.nn.parallel.DistributedDataParallel
    found: dict[str, Any] = {}
    for name, options in WAYS.items():
        found[name] = trained(torch, rank, DDP(model(torch, rank), **options))
    found["now and then"] = trained(torch, rank, DDP(model(torch, rank), find_unused_parameters=True), lambda step: step == 1)
    found["one uses it"] = trained(torch, rank, DDP(model(torch, rank), find_unused_parameters=True), lambda step: rank == 1)
    found["no buffers"] = trained(torch, rank, DDP(model(torch, rank), find_unused_parameters=True, forward_sync_buffers=False))

    net = model(torch, rank)
    del net.never
    ddp = DDP(net)
    with ddp.no_sync():
        ddp(batch(torch, 0, rank), True).square().mean().backward()
    found["alone"] = numbers(p.grad for p in ddp.parameters())
    ddp(batch(torch, 1, rank), True).square().mean().backward()
    found["added up"] = numbers(p.grad for p in ddp.parameters())
    ddp.zero_grad()
    ddp(batch(torch, 0, rank)).square().mean().backward()
    try:
        ddp(batch(torch, 0, rank))
        found["refused"] = "nothing"
    except RuntimeError as error:
        found["refused"] = str(error)[:81]

    hooks = importlib.import_module(f"{torch.__name__}.distributed.algorithms.ddp_comm_hooks.default_hooks")
    for name in ("allreduce_hook", "fp16_compress_hook", *(["bf16_compress_hook"] if torch is fl else [])):  # torch's needs a GPU
        net = model(torch, rank)
        del net.never
        ddp = DDP(net)
        ddp.register_comm_hook(None, getattr(hooks, name))
        found[name] = trained(torch, rank, ddp)
    seen = []

    def hook(state: Any, bucket: Any) -> Any:
        state.append((bucket.index(), bucket.is_last(), tuple(bucket.buffer().shape), len(bucket.parameters())))
        return torch.distributed.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0] * 2)

    hook.__annotations__ = {}
    net = model(torch, rank)
    del net.never
    ddp = DDP(net)
    ddp.register_comm_hook(seen, hook)
    found["own hook"] = trained(torch, rank, ddp, steps=1)
    found["seen"] = seen

    net = model(torch, rank)
    del net.never
    ddp = DDP(net, forward_sync_buffers=False)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    with ddp.join():
        for step in range(2 + 2 * rank):
            optimizer.zero_grad()
            ddp(batch(torch, step, rank), True).square().mean().backward()
            optimizer.step()
    found["uneven"] = numbers(ddp.parameters())
    return found


def close(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return len(a) == len(b) and all(map(close, a, b))
    return np.allclose(a, b, 1e-4, 1e-5) if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) else a == b


@needs_mpi
def test_as_torch() -> None:
    pytest.importorskip("torch")
    ours, theirs = run(program, 2), run(program, 2, library="torch", timeout=100)
    for rank in range(2):
        differing = [name for name in theirs[rank] if not close(ours[rank][name], theirs[rank][name])]
        assert not differing, f"rank {rank}: {[(name, ours[rank][name], theirs[rank][name]) for name in differing]}"
        for a, b in zip(ours[rank]["bf16_compress_hook"], ours[rank]["fp16_compress_hook"]):
            np.testing.assert_allclose(a, b, rtol=0.05, atol=0.1)
    for name in (*WAYS, "now and then", "one uses it", "uneven", "own hook", "fp16_compress_hook"):
        parameters = [found[name] if name == "uneven" else [x for x in found[name] if x is not None][:4] for found in ours]
        assert all(np.array_equal(a, b) for a, b in zip(*parameters)), f"ranks differ: {name}"


def whole_batch(torch: Any, rank: int, world: int) -> list:
    """Without batch norm, the mean over processes is that over the whole batch."""
    torch.distributed.init_process_group("gloo")
    torch.manual_seed(rank)
    net = torch.nn.Sequential(torch.nn.Linear(6, 50), torch.nn.GELU(), torch.nn.Linear(50, 3))
    ddp = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.0005)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01)
    start = copy.deepcopy(net)
    losses = []
    for step in range(8):
        optimizer.zero_grad()
        loss = ddp(batch(torch, step, rank)).square().mean()
        loss.backward()
        optimizer.step()
        torch.distributed.all_reduce(loss := loss.detach(), torch.distributed.ReduceOp.AVG)
        losses.append(loss.item())
    alone, expected = torch.optim.AdamW(start.parameters(), lr=0.01), []
    for step in range(8):
        alone.zero_grad()
        loss = start(torch.cat([batch(torch, step, r) for r in range(world)])).square().mean()
        loss.backward()
        alone.step()
        expected.append(loss.item())
    return [losses, expected]


@needs_mpi
def test_as_one_process() -> None:
    for losses, expected in run(whole_batch, 4):
        np.testing.assert_allclose(losses, expected, rtol=1e-5)


def differing_models(torch: Any, rank: int, world: int) -> str:
    torch.distributed.init_process_group("gloo")
    try:
        torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3 + rank, 2))
    except RuntimeError as error:
        return str(error)
    return ""


@needs_mpi
def test_models_that_differ_are_named() -> None:
    for said in run(differing_models, 2):
        assert "same model across all ranks, but rank 1 has ('weight', (2, 4)" in said


class Watched(fl.nn.Module):
    """Notes the dtypes in which it computes."""

    def __init__(self) -> None:
        super().__init__()
        fl.manual_seed(3)
        self.inner, self.norm, self.outer = fl.nn.Linear(6, 9), fl.nn.BatchNorm1d(9, affine=False), fl.nn.Linear(9, 2)
        self.idle = fl.nn.Parameter(fl.ones(3))
        self.seen: list = []

    def forward(self, x: Any, scale: Any) -> Any:
        self.seen = [str(t.dtype) for t in (x, scale, self.inner.weight, self.norm.running_mean)]
        scaled = (self.inner(x) * scale).to(self.norm.running_mean.dtype)
        return self.outer(self.norm(scaled).relu().to(self.outer.weight.dtype))


def mixed(torch: Any, rank: int, world: int) -> dict:
    """What _MixedPrecision computes and reduces in, beside the same done by hand."""
    dist.init_process_group("gloo")
    found: dict[str, Any] = {}
    kinds = (None, fl.bfloat16, fl.float64)
    mesh = dist.init_device_mesh("cpu", (world,))
    x, scale = batch(fl, 0, rank), fl.tensor(2)
    for compute, reduce, buffer in [(a, b, c) for a in kinds for b in kinds for c in (None, fl.float64)]:
        net, plain = Watched(), Watched()
        ddp = DistributedDataParallel(net, device_mesh=mesh, find_unused_parameters=True, bucket_cap_mb=1e-4,
                                      mixed_precision=_MixedPrecision(compute, reduce, buffer))
        ddp(x, scale).float().square().sum().backward()
        plain.norm.running_mean.data = plain.norm.running_mean.to(buffer or fl.float32)
        plain.norm.running_var.data = plain.norm.running_var.to(buffer or fl.float32)
        used = {n: p.to(compute or p.dtype) for n, p in plain.named_parameters()}
        fl.func.functional_call(plain, used, (x.to(compute or x.dtype), scale)).float().square().sum().backward()
        gradients, matches = [p.grad for p in net.parameters()], True
        for p, grad in zip(plain.parameters(), gradients):
            if p.grad is not None:
                mean = p.grad.to(reduce or compute or p.dtype) / world
                dist.all_reduce(mean)
                matches = matches and grad is not None and grad.dtype == p.dtype and bool(fl.allclose(grad, mean.to(p.dtype), 1e-6, 1e-6))
        expected = [str(compute or fl.float32), "torch.int64", str(compute or fl.float32), str(buffer or fl.float32)]
        found[str((compute, reduce, buffer))] = [matches, net.seen == expected, net.inner.weight.dtype == fl.float32]
    ddp.register_comm_hook(None, default_hooks.allreduce_hook)  # in the place of the one that rounds
    return found


@needs_mpi
def test_mixed_precision() -> None:
    for found in run(mixed, 2):
        assert len(found) == 18 and not {name: got for name, got in found.items() if not all(got)}


# -- one process, in a fake group --------------------------------------------------------------------------------------------------
@pytest.fixture
def fake() -> Any:
    dist.init_process_group("fake", rank=0, world_size=8)
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_buckets(fake: Any) -> None:
    net = fl.nn.Sequential(*(fl.nn.Linear(600, 600) for _ in range(5)), fl.nn.Linear(600, 2).double())
    ddp = DistributedDataParallel(net, bucket_cap_mb=3)
    sizes = [(b.buffer().dtype, b.buffer().numel()) for b in ddp.reducer.buckets]
    big = 600 * 600  # 1.4 MB: two in a bucket
    assert sizes == [(fl.float64, 1202), (fl.float32, 2 * big + 3 * 600), (fl.float32, 2 * big + 2 * 600), (fl.float32, big)]
    before = len(fake.calls)
    ddp.reducer.prepare([out := net[5](net[:5](fl.ones(2, 600)).double())])
    out.sum().backward()
    assert [c.name for c in fake.calls[before:]] == ["all_reduce"] * len(sizes)
    assert [c.shape[0] for c in fake.calls[before:]] == [n for _, n in sizes]


def test_it_is_a_module(fake: Any) -> None:
    ddp = DistributedDataParallel(fl.nn.Linear(2, 2))
    assert list(ddp.state_dict()) == ["module.weight", "module.bias"]
    again = pickle.loads(pickle.dumps(ddp))
    again(fl.ones(1, 2)).sum().backward()
    assert again.module.weight.grad is not None and again.reducer is not ddp.reducer


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: DistributedDataParallel(fl.nn.ReLU()), RuntimeError, "doesn't have any parameter that requires a gradient"),
    (lambda: DistributedDataParallel(fl.nn.Linear(2, 2), device_ids=[0]), ValueError, "device_ids"),
    (lambda: DistributedDataParallel(fl.nn.Linear(2, 2)).register_comm_hook(None, 3), TypeError, "callable"),
    (lambda: DistributedDataParallel(fl.nn.Linear(2, 2), device_mesh=dist.init_device_mesh("cpu", (2, 4))), RuntimeError, "1D"),
    (lambda: DistributedDataParallel(fl.nn.Linear(2, 2), delay_all_reduce_named_params=[]), NotImplementedError, "leave it out"),
])  # fmt: skip
def test_what_it_refuses(fake: Any, call: Callable, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
