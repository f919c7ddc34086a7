"""DDP's communication hooks that send less: what they leave is the mean of the gradients, or comes near it in time."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fl
from flambeau import distributed as dist
from flambeau.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook, powerSGD_hook, quantization_hooks
from flambeau.nn.parallel import DistributedDataParallel
from tests.distributed.processes import needs_mpi, run

PowerSGDState = powerSGD_hook.PowerSGDState


def net() -> fl.nn.Module:
    fl.manual_seed(5)
    return fl.nn.Sequential(fl.nn.Linear(40, 30), fl.nn.Tanh(), fl.nn.Linear(30, 7))


def gradients(module: Any, rank: int) -> fl.Tensor:
    """Of a process's own batch, always the same."""
    for p in module.parameters():
        p.grad = None
    x = fl.randn(8, 40, generator=fl.Generator().manual_seed(rank))
    module(x).square().sum().backward()
    return fl.cat([p.grad.reshape(-1) for p in module.parameters()])


def hooks(torch: Any, rank: int, world: int) -> dict[str, Any]:
    dist.init_process_group("gloo")
    mean = sum(gradients(net(), r) for r in range(world)) / world
    found: dict[str, Any] = {}

    def gap(name: str, state: Any, hook: Any, steps: int) -> None:
        """How far the mean of some steps is from the truth, and whether all processes have the same."""
        ddp = DistributedDataParallel(net(), bucket_cap_mb=0.002)
        ddp.register_comm_hook(state, hook)
        total, alike = fl.zeros_like(mean), True
        for _ in range(steps):
            grad = gradients(ddp, rank)
            every = [fl.empty_like(grad) for _ in range(world)]
            dist.all_gather(every, grad)
            alike = alike and all(fl.equal(e, grad) for e in every)
            total += grad
        found[name] = ((total / steps - mean).norm() / mean.norm()).item(), alike

    exact = {"matrix_approximation_rank": 40, "min_compression_rate": 0, "start_powerSGD_iter": 2}
    gap("exact", PowerSGDState(None, **exact), powerSGD_hook.powerSGD_hook, 4)  # type: ignore[arg-type]
    gap("before", PowerSGDState(None, start_powerSGD_iter=10), powerSGD_hook.powerSGD_hook, 2)
    for name, hook in (("power", powerSGD_hook.powerSGD_hook), ("batched", powerSGD_hook.batched_powerSGD_hook)):
        for steps in (3, 40):
            gap(f"{name} {steps}", PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2), hook, steps)
        gap(f"{name} forgetful", PowerSGDState(None, 2, 0, use_error_feedback=False, warm_start=False), hook, 20)
    gap("bytes", None, quantization_hooks.quantization_pertensor_hook, 1)
    gap("rows of bytes", None, quantization_hooks.quantization_perchannel_hook, 1)
    alone, _ = dist.new_subgroups(1)
    late = post_localSGD_hook.PostLocalSGDState(None, alone, 1)
    gap("post-local, first", post_localSGD_hook.PostLocalSGDState(None, alone, 5), post_localSGD_hook.post_localSGD_hook, 3)
    ddp = DistributedDataParallel(net())
    ddp.register_comm_hook(late, post_localSGD_hook.post_localSGD_hook)
    gradients(ddp, rank)
    found["post-local"] = fl.allclose(gradients(ddp, rank), gradients(net(), rank), atol=1e-5)
    return found


@needs_mpi
def test_hooks() -> None:
    for found in run(hooks, 2, timeout=110):
        assert found.pop("post-local")
        assert all(alike for _, alike in found.values()), found
        gaps = {name: gap for name, (gap, _) in found.items()}
        assert all(gaps[name] < 1e-5 for name in ("exact", "before", "post-local, first")), gaps
        assert gaps["bytes"] < 0.02 and gaps["rows of bytes"] < gaps["bytes"], gaps
        for name in ("power", "batched"):    # what is left out of one step comes with the next ones
            assert gaps[f"{name} 40"] < gaps[f"{name} 3"] / 1.8 and gaps[f"{name} 40"] < gaps[f"{name} forgetful"] / 1.5, gaps


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="start_powerSGD_iter"):
        PowerSGDState(None, start_powerSGD_iter=1)


def test_subgroup_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of this machine's processes, where none is given."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    dist.init_process_group("fake", rank=3, world_size=4)
    try:
        assert dist.get_process_group_ranks(post_localSGD_hook.PostLocalSGDState(None, None, 3).subgroup) == [2, 3]
        assert post_localSGD_hook.PostLocalSGDState(None, None, 3, post_local_gradient_allreduce=False).subgroup is None
    finally:
        dist.destroy_process_group()
