"""Tensor parallel in real processes: a plan's losses and gradients are those of one process."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fl
from flambeau import distributed as dist
from flambeau import nn
from flambeau.distributed.tensor import DTensor, Replicate, Shard, init_device_mesh
from flambeau.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
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
    return found


@needs_mpi
def test_plans() -> None:
    for found in run(plans, 2):
        for name, count in (("columns and rows", 11), ("rows first", 3), ("sequence", 15), ("prepared", 0)):
            loss, gap, spread = found[name]
            assert loss < 1e-5 and gap < 1e-5 and spread == count, (name, found[name])


def test_what_is_refused() -> None:
    dist.init_process_group("fake", rank=0, world_size=4)
    try:
        with pytest.raises(ValueError, match="one dimension"):
            parallelize_module(nn.Linear(2, 2), init_device_mesh("cpu", (2, 2)), ColwiseParallel())
        with pytest.raises(NotImplementedError, match=r"nn\.Linear and nn\.Embedding"):
            parallelize_module(nn.LayerNorm(2), init_device_mesh("cpu", (4,)), ColwiseParallel())
    finally:
        dist.destroy_process_group()
