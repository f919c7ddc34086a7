"""Looking at programs on several processes: a breakpoint in one of them, names of communication in profiles."""

from __future__ import annotations

import itertools
import pdb
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from ..profiler import profile, record_function
from ..profiler.distributed import Rank, rank_of_events
from .collectives import barrier
from .groups import default_group, get_rank
from .objects import all_gather_object

_passed = itertools.count()


def breakpoint(rank: int = 0, skip: int = 0, timeout_s: float = 3600) -> None:
    """Stop one process in the debugger, while the others wait for it, as long as their group waits for anything (`timeout_s` cannot be
    more than that); the first `skip` calls go on."""
    if skip > 0 and next(_passed) < skip:
        return
    group = default_group()
    if not 0 <= rank < group.size():
        raise ValueError(f"breakpoint(rank={rank}): there are processes 0 to {group.size() - 1}")
    if get_rank() == rank:
        print(f"rank {rank} is in the debugger; continue within {timedelta(seconds=timeout_s)}, the others wait", file=sys.stderr)
        pdb.Pdb().set_trace(sys._getframe(1))
    barrier()


@contextmanager
def record_comm(name: str) -> Iterator[None]:
    """The block's communication is `name` in a profile."""
    with record_function(name):
        yield


def profile_ranks(taken: profile) -> list[Rank]:
    """Each process's times of computation and communication, to all of them, each of which calls it with its profile."""
    mine = rank_of_events(get_rank(), taken.events())
    ranks: list[Any] = [None] * default_group().size()
    all_gather_object(ranks, mine)
    return ranks
