"""ZeroRedundancyOptimizer and collectives with gradients, in real processes, beside torch's and beside one process."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau import distributed as dist
from flambeau.distributed.algorithms import Join
from flambeau.distributed.algorithms.ddp_comm_hooks import ddp_zero_hook, default_hooks
from flambeau.distributed.optim import ZeroRedundancyOptimizer
from flambeau.nn.parallel import DistributedDataParallel
from tests.distributed.processes import needs_mpi, run


def net(torch: Any) -> Any:
    """A net whose numbers do not depend on a library's random ones."""
    rng = np.random.default_rng(0)
    module = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3))
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype(np.float32)))
    return module


def data(torch: Any, step: int, rank: int) -> Any:
    return torch.from_numpy(np.random.default_rng([step, rank]).standard_normal((4, 5)).astype(np.float32))


def train(torch: Any, rank: int, world: int) -> dict:
    """Steps of DDP with ZeRO, its state in one piece, taken over by another, and uneven inputs."""
    d = torch.distributed
    d.init_process_group("gloo")
    DDP = importlib.import_module(f"{torch.__name__}.nn.parallel").DistributedDataParallel
    optim = importlib.import_module(f"{torch.__name__}.distributed.optim")
    Zero = optim.ZeroRedundancyOptimizer
    found: dict[str, Any] = {}
    for views in (False, True):
        model = DDP(net(torch))
        zero = Zero([{"params": list(model.module[0].parameters()), "lr": 0.05}, {"params": list(model.module[2].parameters())}],
                    torch.optim.AdamW, lr=0.01, parameters_as_bucket_view=views)
        schedule = torch.optim.lr_scheduler.StepLR(zero, 2, 0.5)
        for step in range(4):
            zero.zero_grad()
            model(data(torch, step, rank)).square().mean().backward()
            zero.step()
            schedule.step()
        zero.consolidate_state_dict(to=1)
        if rank == 1:
            state = zero.state_dict()
            found["state", views] = [(i, {k: v.tolist() for k, v in s.items()}) for i, s in state["state"].items()]
            found["groups", views] = [(g["lr"], g["params"]) for g in state["param_groups"]]
        box = [zero.state_dict() if rank == 1 else None]
        d.broadcast_object_list(box, 1)
        again = Zero([{"params": list(layer.parameters())} for layer in (model.module[0], model.module[2])], torch.optim.AdamW, lr=1.0)
        again.load_state_dict(box[0])
        model(data(torch, 9, rank)).square().mean().backward()
        again.step()
        found["end", views] = [p.tolist() for p in model.parameters()]
        found["shares", views] = sum(p.numel() for g in zero.optim.param_groups for p in g["params"])
    model = DDP(net(torch), gradient_as_bucket_view=True)
    zero = Zero(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    join = importlib.import_module(f"{torch.__name__}.distributed.algorithms.join").Join
    with join([model, zero]):
        for step in range(2 + rank):
            model(data(torch, step, rank)).square().mean().backward()
            zero.step()
            zero.zero_grad(set_to_none=False)
    found["joined"] = [p.tolist() for p in model.module.parameters()]
    d.barrier()
    return found


def close(a: Any, b: Any) -> None:
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            close(x, y)
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            close(a[key], b[key])
    elif isinstance(a, float):
        assert abs(a - b) <= 2e-5 * (1 + abs(b)), (a, b)
    else:
        assert a == b, (a, b)


@needs_mpi
def test_as_torch() -> None:
    pytest.importorskip("torch")
    ours, theirs = run(train, 2, timeout=100), run(train, 2, library="torch", timeout=100)
    for mine, other in zip(ours, theirs):
        close({k: v for k, v in mine.items() if k != "joined"}, {k: v for k, v in other.items() if k != "joined"})
    close(ours[0]["joined"], ours[1]["joined"])
    model = net(fl)
    sgd = fl.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):  # one process with the inputs of both, divided by the number of both
        sgd.zero_grad()
        loss = sum(model(data(fl, step, rank)).square().mean() for rank in range(2) if step < 2 + rank)
        (loss / 2).backward()
        sgd.step()
    close([p.tolist() for p in model.parameters()], ours[0]["joined"])


def overlapped(torch: Any, rank: int, world: int) -> dict:
    """Steps that DDP's hooks take, beside steps after backward: parameters, what each process keeps, one state, uneven inputs."""
    dist.init_process_group("gloo")
    hooks = (ddp_zero_hook.hook_with_zero_step, ddp_zero_hook.hook_with_zero_step_interleaved)
    found: dict[str, Any] = {}
    for case in [None, *((hook, split, inner) for hook in hooks for split in (False, True)
                         for inner in (default_hooks.allreduce_hook, default_hooks.bf16_compress_hook))]:
        model = net(fl)
        ddp = DistributedDataParallel(fl.compile(model) if case == (hooks[1], True, default_hooks.allreduce_hook) else model,
                                      bucket_cap_mb=1e-4, gradient_as_bucket_view=bool(case and case[1]))
        groups = [{"params": list(model[0].parameters()), "lr": 0.05}, {"params": list(model[2].parameters())}]
        zero = ZeroRedundancyOptimizer(groups, fl.optim.AdamW, lr=0.01, overlap_with_ddp=case is not None)
        if case is not None:
            ddp.register_comm_hook(None, case[0](case[2], ddp, zero, case[1]))
        with Join([ddp, zero]):
            for step in range(3 + rank):
                zero.zero_grad()
                ddp(data(fl, step, rank)).square().mean().backward()
                zero.step()
                zero.param_groups[0]["lr"] *= 0.9
        zero.consolidate_state_dict()
        name = case and (case[0].__name__, case[1], case[2].__name__)
        found[name] = ([p.tolist() for p in model.parameters()], [p.grad.tolist() for p in model.parameters()])
        found["kept", name] = sum(p.numel() for g in zero.optim.param_groups for p in g["params"])
        if rank == 0:
            found["state", name] = [{k: v.tolist() for k, v in s.items()} for s in zero.state_dict()["state"].values()]
    return found


@needs_mpi
def test_steps_within_backward() -> None:
    found = run(overlapped, 2)
    for mine in found:
        for name in [key for key in mine if key and key[0].startswith("hook")]:
            rounded = 4e-2 if name[2].startswith("bf16") else 2e-5
            for got, expected in zip(*(np.concatenate([np.ravel(a) for part in mine[key] for a in part]) for key in (name, None))):
                assert abs(got - expected) <= rounded
            close(found[0][name][0], found[1][name][0])
    assert len(found[0]["state", None]) == 4
    for name in [key for key in found[0] if key and key[0].startswith("hook")]:
        assert found[0]["kept", name] + found[1]["kept", name] == 66 and found[0]["kept", name] not in (0, 66)
        if not name[2].startswith("bf16"):
            close(found[0]["state", name], found[0]["state", None])


def in_need(torch: Any, rank: int, world: int) -> str:
    """A weight that backward reads after its bucket was updated."""
    dist.init_process_group("gloo")
    model = fl.nn.ModuleList([fl.nn.Linear(3, 3), fl.nn.Linear(3, 3), fl.nn.Linear(3, 3)])

    class Late(fl.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = model

        def forward(self, x: Any) -> Any:
            x = self.layers[0](x) @ self.layers[2].weight.detach()
            return self.layers[2](self.layers[1](x))

    ddp = DistributedDataParallel(Late(), bucket_cap_mb=1e-5)
    zero = ZeroRedundancyOptimizer(ddp.parameters(), fl.optim.SGD, lr=0.1, overlap_with_ddp=True)
    ddp.register_comm_hook(None, ddp_zero_hook.hook_with_zero_step_interleaved(default_hooks.allreduce_hook, ddp, zero))
    try:
        ddp(fl.ones(2, 3)).sum().backward()
    except RuntimeError as error:
        return str(error)
    return "no error"


@needs_mpi
def test_a_weight_that_is_updated_too_early() -> None:
    text = "modified by an inplace operation"
    assert all(text in found for found in run(in_need, 2))


def gradients(torch: Any, rank: int, world: int) -> dict:
    """Results of the collectives and gradients through them."""
    d = torch.distributed
    d.init_process_group("gloo")
    F = importlib.import_module(f"{torch.__name__}.distributed.nn.functional")
    x = lambda n=3: (torch.arange(n * 1.0) + rank + 1).requires_grad_()
    w = torch.arange(3.0) + 2 * rank + 1
    found: dict[str, Any] = {}

    def note(name: str, inputs: list, out: Any, loss: Any) -> None:
        loss.backward()
        found[name] = ([o.tolist() for o in out] if isinstance(out, (tuple, list)) else out.tolist(),
                       [None if t.grad is None else t.grad.tolist() for t in inputs])
    a = x()
    out = F.all_reduce(a)
    note("all_reduce", [a], out, (out * w).sum())
    a = x()
    out = F.broadcast(a, 1)
    note("broadcast", [a], out, (out * w).sum())
    a = x()
    outs = F.all_gather(a)
    note("all_gather", [a], outs, sum((o * w * (i + 1)).sum() for i, o in enumerate(outs)))
    a = x()
    outs = F.gather(a, 1)
    note("gather", [a], outs if rank == 1 else (), sum((o * w * (i + 1)).sum() for i, o in enumerate(outs)))
    many = [x() for _ in range(world)]
    out = F.scatter(many, 0)
    note("scatter", many if rank == 0 else [], out, (out * w).sum())
    a = x()
    out = F.reduce(a, 0)
    note("reduce", [a], out if rank == 0 else out[:0], (out * w).sum())
    many = [x() for _ in range(world)]
    outs = F.all_to_all([torch.empty(3) for _ in range(world)], many)
    note("all_to_all", many, outs, sum((o * w * (i + 1)).sum() for i, o in enumerate(outs)))
    a = x(world)
    out = F.all_to_all_single(torch.empty(world), a)
    note("all_to_all_single", [a], out, (out * w[:world]).sum())
    return found


def beyond(torch: Any, rank: int, world: int) -> dict:
    """What torch's gloo lacks, functional collectives, and gradients of gradients."""
    found = gradients(torch, rank, world)
    F, fc = dist.nn.functional, dist._functional_collectives
    many = [(fl.arange(2.0) + rank).requires_grad_() for _ in range(world)]
    out = F.reduce_scatter(fl.empty(2), many)
    (out * (rank + 1.0)).sum().backward()
    found["reduce_scatter"] = out.tolist(), [t.grad.tolist() for t in many]
    a = fl.tensor([rank + 1.0], requires_grad=True)
    out = F.all_reduce(a, dist._make_nccl_premul_sum(0.5))
    out.backward()
    found["scaled"], a.grad = (out.tolist(), a.grad.tolist()), None
    g, = fl.autograd.grad(F.all_reduce(a * a).sum(), a, create_graph=True)
    g.sum().backward()
    found["twice"] = g.tolist(), a.grad.tolist()
    mesh = dist.init_device_mesh("cpu", (world,))
    x = (fl.arange(4.0).reshape(2, 2) + rank).requires_grad_()
    out = fc.all_gather_tensor_autograd(x, 1, mesh)
    (out * (rank + 1.0)).sum().backward()
    found["columns"] = out.tolist(), x.grad.tolist(), fc.all_gather_tensor(x.detach(), 1, (mesh, 0)).tolist() == out.tolist()
    found["permuted"] = fc.permute_tensor(fl.tensor([rank]), [1, 0], list(range(world))).tolist()
    parts = fc.reduce_scatter_tensor_autograd(x, "sum", 1, mesh)
    found["parts"] = parts.tolist(), fc.wait_tensor(fc.all_reduce(x.detach(), "max", mesh)).tolist()
    return found


@needs_mpi
def test_gradients_through_collectives() -> None:
    pytest.importorskip("torch")
    ours, theirs = run(beyond, 2), run(gradients, 2, library="torch", timeout=100)
    for rank, (mine, other) in enumerate(zip(ours, theirs)):
        for name, (out, grads) in other.items():
            close(mine[name], (out, grads))
        assert mine["reduce_scatter"] == ([1, 3], [[1, 1], [2, 2]])
        assert mine["scaled"] == ([1.5], [1.0])
        assert mine["twice"] == ([4 * (rank + 1)], [4])
        assert mine["columns"] == ([[0, 1, 1, 2], [2, 3, 3, 4]], [[3, 3], [3, 3]], True)
        assert mine["permuted"] == [1 - rank]
        assert mine["parts"] == ([[1 + 2 * rank], [5 + 2 * rank]], [[1, 2], [3, 4]])


def test_what_is_refused() -> None:
    dist.init_process_group("fake", rank=0, world_size=2)
    try:
        p = fl.nn.Parameter(fl.ones(2))
        ddp = DistributedDataParallel(fl.nn.Linear(2, 1))
        overlapping = ZeroRedundancyOptimizer([p], fl.optim.SGD, lr=1.0, overlap_with_ddp=True)
        with pytest.raises(ValueError, match="1 parameters, of which DistributedDataParallel reduces 0"):
            ddp_zero_hook.hook_with_zero_step(default_hooks.allreduce_hook, ddp, overlapping)
        with pytest.raises(RuntimeError, match="add_param_group"):
            overlapping.add_param_group({"params": [fl.nn.Parameter(fl.ones(1))]})
        with pytest.raises(ValueError, match="overlap_with_ddp=True"):
            ddp_zero_hook.hook_with_zero_step(default_hooks.allreduce_hook, ddp, ZeroRedundancyOptimizer([p], fl.optim.SGD, lr=1.0))
        with pytest.raises(RuntimeError, match="consolidate_state_dict"):
            ZeroRedundancyOptimizer([p], fl.optim.SGD, lr=1.0).state_dict()
        with pytest.raises(ValueError, match="a name"):
            dist._functional_collectives.all_reduce(p.detach(), "sum", 3)
    finally:
        dist.destroy_process_group()
