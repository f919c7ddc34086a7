"""Loading: each process reads what its tensors need, however they were spread when they were saved."""

from __future__ import annotations

import os
from typing import Any

from ..process_group import ProcessGroup
from .api import Steps
from .default_planner import DefaultLoadPlanner
from .filesystem import FileSystemReader
from .planner import LoadPlan, LoadPlanner
from .staging import asked
from .state_dict_saver import group_of, storage_of
from .stateful import Stateful
from .storage import StorageReader


def load(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike | None = None, storage_reader: StorageReader | None = None,
         planner: LoadPlanner | None = None, process_group: ProcessGroup | None = None, no_dist: bool = False) -> None:
    """Load a checkpoint into the tensors of a state dict, which say how they are to be spread; other values are replaced.

    All processes call it. CheckpointException tells in all of them what failed in which.
    """
    reader = storage_of(storage_reader, checkpoint_id, FileSystemReader)
    found = asked(state_dict)
    _load(found, reader, planner or DefaultLoadPlanner(), group_of(process_group, no_dist))
    for key, value in state_dict.items():
        if isinstance(value, Stateful):
            value.load_state_dict(found[key])
    state_dict.update({key: value for key, value in found.items() if not isinstance(state_dict.get(key), Stateful)})


def _load(state_dict: dict[str, Any], reader: StorageReader, planner: LoadPlanner, group: ProcessGroup | None) -> None:
    steps = Steps(group)

    def plan() -> LoadPlan:
        metadata = reader.read_metadata()
        planner.set_up_planner(state_dict, metadata, steps.leads)
        reader.set_up_storage_reader(metadata, steps.leads)
        return reader.prepare_local_plan(planner.create_local_plan())

    def together(plans: list[LoadPlan]) -> list[LoadPlan]:
        return reader.prepare_global_plan(planner.create_global_plan(plans))

    mine = steps.scattered("plan", plan, together)
    steps.agreed("read", lambda: reader.read_data(planner.finish_plan(mine), planner).wait(), lambda results: None)


def load_state_dict(state_dict: dict[str, Any], storage_reader: StorageReader, process_group: ProcessGroup | None = None,
                    coordinator_rank: int = 0, no_dist: bool = False, planner: LoadPlanner | None = None) -> None:
    """`load`, as it was called before."""
    if coordinator_rank:
        raise NotImplementedError(f"coordinator_rank={coordinator_rank} is not implemented: the first process coordinates")
    load(state_dict, storage_reader=storage_reader, planner=planner, process_group=process_group, no_dist=no_dist)


__all__ = ["load", "load_state_dict"]
