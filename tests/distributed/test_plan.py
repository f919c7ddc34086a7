"""The plan of a step of many processes: what the fake group tells is what real ones do, and what the model makes of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import plan
from flambeau import distributed as dist
from tests.distributed.processes import needs_mpi, run

SMALL = {"ddp": plan.Plan("small", (2, 8, 8, 16, 10, False, True), "ddp", 64),
         "fsdp": plan.Plan("small", (2, 8, 4, 12, 10, True, False), "fsdp", 64)}


def real(torch: Any, rank: int, world: int, kind: str) -> list:
    dist.init_process_group("gloo")
    return plan.collectives(SMALL[kind], "cpu").calls


@needs_mpi
@pytest.mark.parametrize("kind", list(SMALL))
def test_the_fake_groups_sequence_is_the_real_one(kind: str) -> None:
    for rank, calls in enumerate(run(real, 2, kind)):
        told = plan.sequence(SMALL[kind], 2, rank).calls
        assert calls and [(c.name, c.nbytes, c.shape, str(c.dtype)) for c in told] == [
            (c.name, c.nbytes, c.shape, str(c.dtype)) for c in calls]


def call(name: str, nbytes: int, *ranks: int) -> Any:
    return SimpleNamespace(name=name, nbytes=nbytes, ranks=ranks)


def test_what_a_collective_takes() -> None:
    """A latency for each message, a time for each byte that is sent; the slowest link; a tree's messages where they are fewer."""
    inside, between = plan.Link(1.0, 0.01), plan.Link(5.0, 0.1)
    two = plan.Machines(inside, between, each=2)
    assert plan.seconds(call("all_reduce", 100, 0), two) == 0
    assert plan.seconds(call("all_reduce", 100, 0, 1), two) == pytest.approx(2 * 1 + 100 * 0.01)
    assert plan.seconds(call("all_gather_into_tensor", 100, 0, 1), two) == pytest.approx(1 + 100 * 0.01)
    assert plan.seconds(call("all_reduce", 100, 0, 1, 2, 3), two) == pytest.approx(4 * 5 + 1.5 * 100 * 0.1)
    assert plan.seconds(call("reduce_scatter_tensor", 100, 0, 2), two) == pytest.approx(5 + 100 * 0.1)
    assert plan.seconds(call("all_reduce", 0, *range(1024)), two) == pytest.approx(20 * 5)


def test_what_a_step_takes() -> None:
    """What computing hides costs nothing; a spread model takes less memory on more GPUs."""
    fast = plan.Machines(plan.Link(0, 0), plan.Link(0, 0), flops=1.0)
    few, many = (plan.sequence(SMALL["fsdp"], n) for n in (2, 64))
    free = plan.predicted(SMALL["fsdp"], few, 2, fast)
    assert free.exposed == free.communicating == 0 and free.computing == 6 * few.parameters * 64
    slow = plan.Machines(plan.Link(1, 0), plan.Link(1, 0), flops=1e30)
    bound = plan.predicted(SMALL["fsdp"], few, 2, slow)
    assert bound.exposed == pytest.approx(bound.communicating) == pytest.approx(len(few.calls))
    assert plan.predicted(SMALL["fsdp"], many, 64, fast).memory < free.memory
