"""Profiles of real processes: collectives are events, and each process knows everyone's times."""

from __future__ import annotations

from typing import Any

from flambeau.profiler.distributed import stragglers
from tests.distributed.processes import needs_mpi, run


def profiled(torch: Any, rank: int, world: int) -> dict:
    dist = torch.distributed
    dist.init_process_group("gloo")
    x, total = torch.ones(64, 64), torch.ones(1000)
    dist.barrier()
    with torch.profiler.profile() as taken:
        for _ in range(3):
            work = dist.all_reduce(total, async_op=True)
            x.exp()
            work.wait()
    counts = {e.key: e.count for e in taken.key_averages()}
    ranks = dist.tools.profile_ranks(taken)
    lanes = {e.lane for e in taken.events() if e.name == "c10d::all_reduce"}
    dist.destroy_process_group()
    return {"counts": counts, "ranks": ranks, "lanes": lanes}


@needs_mpi
def test_collectives_are_events_beside_what_ran() -> None:
    for told in run(profiled, 2):
        assert told["counts"]["c10d::all_reduce"] == told["counts"]["aten::exp"] == 3 and told["lanes"] == {"communication"}
        assert [r.rank for r in told["ranks"]] == [0, 1] and stragglers(told["ranks"]) in ([], [0], [1])
        for rank in told["ranks"]:
            assert 0 <= rank.overlap <= min(rank.computation, rank.communication) and rank.wall >= rank.communication > 0
