"""Tensor parallel in real processes: a plan's losses and gradients are those of one process."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fl
from flambeau import distributed as dist
from flambeau import nn
from flambeau.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh
from flambeau.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from tests.distributed.processes import needs_mpi, run


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(6), nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x: fl.Tensor) -> fl.Tensor:
        return self.down(nn.functional.gelu(self.up(self.norm(x))))


def model() -> nn.Module:
    fl.manual_seed(1)
    return nn.Sequential(nn.Embedding(9, 6), Layer(), Layer(), nn.Linear(6, 9))


PLANS: dict[str, dict] = {
    "columns and rows": {"0": ColwiseParallel(output_layouts=Replicate()), "*.up": ColwiseParallel(), "*.down": RowwiseParallel(),
                         "3": ColwiseParallel(output_layouts=Replicate())},
    "rows first": {"0": RowwiseParallel(input_layouts=Replicate()), "3": RowwiseParallel(input_layouts=Replicate())},
    "sequence": {"0": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)), "*.norm": SequenceParallel(),
                 "*.up": ColwiseParallel(input_layouts=Shard(1)), "*.down": RowwiseParallel(output_layouts=Shard(1)),
                 "3": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())},
    "prepared": {"1": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1), use_local_output=True),
                 "2": PrepareModuleOutput(output_layouts=Shard(1), desired_output_layouts=Replicate())},
    "prepared at once": {"1": PrepareModuleInputOutput(
        input_layouts=Replicate(), desired_input_layouts=Shard(1), use_local_input=False, output_layouts=Shard(1),
        desired_output_layouts=Replicate())},
}


def plans(torch: Any, rank: int, world: int) -> dict:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (world,))
    x, found = fl.randint(0, 9, (3, 4), generator=fl.Generator().manual_seed(2)), {}
    plain = model()
    want = plain(x).square().mean()
    want.backward()
    for name, plan in PLANS.items():
        net = parallelize_module(model(), mesh, plan)
        loss = net(x).square().mean()
        loss.backward()
        gaps = [(p.grad.full_tensor() - q.grad).abs().max().item() for p, q in zip(net.parameters(), plain.parameters())
                if isinstance(p, DTensor)]
        found[name] = abs(loss.item() - want.item()), max(gaps, default=0.0), len(gaps)
    found["losses"] = losses(world)
    return found


OPTIONS: list[dict] = [{}, {"reduction": "sum"}, {"reduction": "none"}, {"weight": fl.arange(5.0) + 1, "ignore_index": 2},
                       {"label_smoothing": 0.2, "weight": fl.arange(5.0), "reduction": "none"}, {"label_smoothing": 0.1}]


def losses(world: int) -> float:
    """By how much, at most, losses and their gradients with spread classes differ from those of one process."""
    gap = 0.0
    draw = fl.Generator().manual_seed(0)
    for shape in ((6, 5), (4, 5, 3), (5,)):
        x = fl.randn(shape, generator=draw) * 5
        target = fl.randint(0, 5, (*shape[:1], *shape[2:]) if len(shape) > 1 else (), generator=draw)
        g = fl.rand(target.shape, generator=draw)
        dim = min(1, len(shape) - 1)
        places: list = [((world,), [Shard(dim)])]
        places += [(sizes, [Shard(0), Shard(1)]) for sizes in ((world, 1), (1, world))] if dim else []
        places += [((world, 1), [Shard(2), Shard(1)])] if len(shape) > 2 else []
        for sizes, placements in places:
            mesh = init_device_mesh("cpu", sizes)
            for options in OPTIONS:
                if len(shape) > 1:
                    target.view(-1)[0] = options.get("ignore_index", -100)
                plain, spread = x.clone().requires_grad_(), distribute_tensor(x, mesh, placements).requires_grad_()
                want = nn.functional.cross_entropy(plain, target, **options)
                with loss_parallel():
                    got = nn.CrossEntropyLoss(**options)(spread, target)
                want.backward(g if want.ndim else None)
                got.backward(distribute_tensor(g, mesh, got.placements) if got.ndim else None)
                assert got.ndim or all(isinstance(p, Replicate) for p in got.placements)
                pairs = (got.full_tensor(), want), (spread.grad.full_tensor(), plain.grad)
                gap = max(gap, *((a - b).abs().max().item() for a, b in pairs))
    return gap


@needs_mpi
def test_plans() -> None:
    for found in run(plans, 2):
        for name, count in (("columns and rows", 11), ("rows first", 3), ("sequence", 15), ("prepared", 0)):
            loss, gap, spread = found[name]
            assert loss < 1e-5 and gap < 1e-5 and spread == count, (name, found[name])
        assert found["losses"] < 2e-5


def test_logits_do_not_travel() -> None:
    """Of the losses of 100 rows of 5000 classes each process gets a number a row, three times, and the loss."""
    dist.init_process_group("fake", rank=1, world_size=4)
    try:
        mesh = init_device_mesh("cpu", (4,))
        x = DTensor.from_local(fl.randn(100, 1250), mesh, [Shard(1)]).requires_grad_()
        before = len(mesh.get_group().calls)
        with loss_parallel():
            nn.functional.cross_entropy(x, fl.arange(100)).backward()
        sizes = [call.shape for call in mesh.get_group().calls[before:]]
        assert sizes == [(100,)] * 3, sizes
        assert x.grad.placements == (Shard(1),)
        whole = distribute_tensor(fl.ones(3, 4), mesh, [Replicate()])
        for value, target, error, match in ((whole, fl.zeros(3).long(), ValueError, "exactly one"),
                                            (x, fl.full((100,), 5000), IndexError, "5000 classes"),
                                            (x, fl.ones(100, 5000), NotImplementedError, "indices")):
            with loss_parallel(), pytest.raises(error, match=match):
                nn.functional.cross_entropy(value, target)
        with loss_parallel():
            assert type(nn.functional.cross_entropy(fl.ones(2, 3), fl.zeros(2).long())) is fl.Tensor
    finally:
        dist.destroy_process_group()


def test_what_is_refused() -> None:
    dist.init_process_group("fake", rank=0, world_size=4)
    try:
        with pytest.raises(ValueError, match="one dimension"):
            parallelize_module(nn.Linear(2, 2), init_device_mesh("cpu", (2, 2)), ColwiseParallel())
        with pytest.raises(NotImplementedError, match=r"nn\.Linear and nn\.Embedding"):
            parallelize_module(nn.LayerNorm(2), init_device_mesh("cpu", (4,)), ColwiseParallel())
    finally:
        dist.destroy_process_group()


def test_plans_that_fit_nothing() -> None:
    fl.distributed.init_process_group("fake", rank=0, world_size=2)
    try:
        net, mesh = nn.Sequential(nn.Linear(2, 2)), init_device_mesh("cpu", (2,))
        with pytest.warns(UserWarning, match="key '0.x' could not be resolved"):
            parallelize_module(net, mesh, {"0.x": ColwiseParallel()})
        with pytest.warns(UserWarning, match="does nothing"):
            assert parallelize_module(net, mesh) is net
    finally:
        fl.distributed.destroy_process_group()
