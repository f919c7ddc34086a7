"""Saving: each process writes its parts, and the checkpoint exists when the first one has written what they are."""

from __future__ import annotations

import enum
import os
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ..groups import GroupMember, default_group, is_initialized, new_group
from ..process_group import ProcessGroup
from .api import Steps
from .default_planner import DefaultSavePlanner
from .filesystem import FileSystemWriter
from .metadata import Metadata
from .planner import SavePlan, SavePlanner
from .staging import AsyncStager, BlockingAsyncStager, asked
from .storage import StorageWriter


class AsyncCheckpointerType(enum.Enum):
    """What saves in the background."""

    THREAD, PROCESS = "thread", "process"


@dataclass
class AsyncSaveResponse:
    """When the copy is made, and when it is saved."""

    staging_completion: Future
    upload_completion: Future


def group_of(process_group: ProcessGroup | None, no_dist: bool) -> ProcessGroup | None:
    """The group that works together; None for one process alone."""
    if no_dist or not is_initialized():
        return None
    return default_group(process_group)


def storage_of(given: Any, checkpoint_id: str | os.PathLike | None, kind: type) -> Any:
    """The storage that is given, or that of the folder, with what comes next."""
    if given is None:
        if not checkpoint_id:
            raise RuntimeError("`checkpoint_id` must be specified if storage_reader/storage_writer is None.")
        given = kind(checkpoint_id)
    given.reset(checkpoint_id)
    return given


def save(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike | None = None, storage_writer: StorageWriter | None = None,
         planner: SavePlanner | None = None, process_group: ProcessGroup | None = None, no_dist: bool = False,
         use_collectives: bool = True) -> Metadata:
    """Save a state dict, of which each process of the group has its parts (DTensors) or all, in a folder (or by `storage_writer`).

    All processes call it. CheckpointException tells in all of them what failed in which.
    """
    _refuse_alone(use_collectives)
    if process_group is GroupMember.NON_GROUP_MEMBER:
        raise ValueError("this process is not in process_group")
    writer = storage_of(storage_writer, checkpoint_id, FileSystemWriter)
    return _save(asked(state_dict), writer, planner or DefaultSavePlanner(), group_of(process_group, no_dist))


def _refuse_alone(use_collectives: bool) -> None:
    if not use_collectives:
        raise NotImplementedError("save(use_collectives=False) is not implemented: the checkpoint has one description; leave it out")


def _save(state_dict: dict[str, Any], writer: StorageWriter, planner: SavePlanner, group: ProcessGroup | None) -> Metadata:
    steps = Steps(group)
    described: list[Metadata] = []

    def plan() -> SavePlan:
        planner.set_up_planner(state_dict, writer.storage_meta(), steps.leads)
        writer.set_up_storage_writer(steps.leads)
        return writer.prepare_local_plan(planner.create_local_plan())

    def together(plans: list[SavePlan]) -> list[SavePlan]:
        plans, metadata = planner.create_global_plan(plans)
        described.append(metadata)
        return writer.prepare_global_plan(plans)

    def finish(results: list) -> Metadata:
        writer.finish(described[0], results)
        return described[0]

    mine = steps.scattered("plan", plan, together)
    return steps.agreed("write", lambda: writer.write_data(planner.finish_plan(mine), planner).wait(), finish)


_pool = ThreadPoolExecutor(1, thread_name_prefix="async_save")
_own_groups: weakref.WeakKeyDictionary[ProcessGroup, ProcessGroup] = weakref.WeakKeyDictionary()


def _own(group: ProcessGroup | None) -> ProcessGroup | None:
    """A group of the same processes for the background, whose collectives do not mix with the program's."""
    if group is not None and group not in _own_groups:
        _own_groups[group] = new_group(list(group._ranks), use_local_synchronization=True, sort_ranks=False)
    return None if group is None else _own_groups[group]


def async_save(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike | None = None, storage_writer: StorageWriter | None = None,
               planner: SavePlanner | None = None, process_group: ProcessGroup | None = None,
               async_checkpointer_type: AsyncCheckpointerType = AsyncCheckpointerType.THREAD, async_stager: AsyncStager | None = None,
               no_dist: bool = False, use_collectives: bool = True) -> Future | AsyncSaveResponse:
    """Copy a state dict, and save the copy in a thread: a future of what `save` returns. Several are saved one after another.

    With an `async_stager` that copies in the background, an AsyncSaveResponse of both futures.
    """
    _refuse_alone(use_collectives)
    if async_checkpointer_type is not AsyncCheckpointerType.THREAD:
        raise NotImplementedError("async_save(async_checkpointer_type=PROCESS) is not implemented; leave it out: a thread saves, which "
                                  "computes next to nothing")
    writer = storage_of(storage_writer, checkpoint_id, FileSystemWriter)
    group = _own(group_of(process_group, no_dist))
    staged = (async_stager or BlockingAsyncStager()).stage(state_dict)

    def work() -> Metadata:
        return _save(staged.result() if isinstance(staged, Future) else staged, writer, planner or DefaultSavePlanner(), group)

    saved = _pool.submit(work)
    return AsyncSaveResponse(staged, saved) if isinstance(staged, Future) else saved


def save_state_dict(state_dict: dict[str, Any], storage_writer: StorageWriter, process_group: ProcessGroup | None = None,
                    coordinator_rank: int = 0, no_dist: bool = False, planner: SavePlanner | None = None) -> Metadata:
    """`save`, as it was called before."""
    if coordinator_rank:
        raise NotImplementedError(f"coordinator_rank={coordinator_rank} is not implemented: the first process coordinates")
    return save(state_dict, storage_writer=storage_writer, planner=planner, process_group=process_group, no_dist=no_dist)


__all__ = ["AsyncCheckpointerType", "AsyncSaveResponse", "async_save", "save", "save_state_dict"]
