"""From checkpoints in folders to files of torch.save, and back: python -m flambeau.distributed.checkpoint.format_utils MODE FROM TO"""

from __future__ import annotations

import argparse
import os
from typing import Any

from ... import serialization
from ...core.size import Size
from ...core.tensor import Tensor
from ...futures import Future, settled
from ...ops.creation import empty
from ..collectives import broadcast
from ..groups import get_rank, is_initialized
from ..objects import broadcast_object_list
from .default_planner import DefaultLoadPlanner, flatten_state_dict, set_element
from .filesystem import FileSystemReader, FileSystemWriter, place
from .metadata import BytesStorageMetadata, ChunkStorageMetadata, Metadata, TensorProperties, TensorStorageMetadata
from .planner import LoadItemType, LoadPlan, LoadPlanner
from .state_dict_loader import load
from .state_dict_saver import save
from .storage import StorageReader


class _Everything(DefaultLoadPlanner):
    """Loads all that a checkpoint has, into a state dict that is empty."""

    def set_up_planner(self, state_dict: dict, metadata: Metadata | None = None, is_coordinator: bool = False) -> None:
        """Make room for everything."""
        if metadata is None:
            raise AssertionError("set_up_planner() has been given no metadata")
        for name, saved in metadata.state_dict_metadata.items():
            room = empty(tuple(saved.size), dtype=saved.properties.dtype) if isinstance(saved, TensorStorageMetadata) else None
            set_element(state_dict, (metadata.planner_data or {}).get(name, (name,)), room)
        super().set_up_planner(state_dict, metadata, is_coordinator)


class DynamicMetaLoadPlanner(DefaultLoadPlanner):
    """Loads all that a state dict names, each tensor from a whole one: for storages without a description, which is made of the state dict."""

    def set_up_planner(self, state_dict: dict, metadata: Metadata | None = None, is_coordinator: bool = False) -> None:
        """This state dict is to be loaded into."""
        super().set_up_planner(state_dict, metadata, is_coordinator)
        self.metadata = Metadata({name: _whole(value) if isinstance(value, Tensor) else BytesStorageMetadata()
                                  for name, value in self.state_dict.items()})


def _whole(tensor: Tensor) -> TensorStorageMetadata:
    size = Size(tensor.shape)
    return TensorStorageMetadata(TensorProperties.create_from_tensor(tensor), size, [ChunkStorageMetadata(Size([0] * len(size)), size)])


class BroadcastingTorchSaveReader(StorageReader):
    """Reads a file of `torch.save`, with a DynamicMetaLoadPlanner: process `coordinator_rank` reads it and sends each tensor to all, so that
    it is whole in a process but for a moment. RuntimeError for what is no tensor."""

    def __init__(self, checkpoint_id: str | os.PathLike | None = None, coordinator_rank: int = 0) -> None:
        self.checkpoint_id, self.coordinator_rank = checkpoint_id, coordinator_rank

    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        """Another file is to be read."""
        self.checkpoint_id = checkpoint_id if checkpoint_id is not None else self.checkpoint_id

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Nothing: the planner knows."""
        return Metadata({})

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """ValueError if it is not told what to read."""
        if self.checkpoint_id is None:
            raise ValueError("BroadcastingTorchSaveReader needs a file: checkpoint_id=")

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """As it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """As they are."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Send everything, and take the plan's items. All processes call it, with the same names."""
        return settled(lambda: self._read(plan, planner))

    def _read(self, plan: LoadPlan, planner: LoadPlanner) -> None:
        if not isinstance(planner, DynamicMetaLoadPlanner):
            raise TypeError(f"BroadcastingTorchSaveReader needs a DynamicMetaLoadPlanner, not {type(planner).__name__}")
        if others := [item.dest_index.fqn for item in plan.items if item.type is LoadItemType.BYTE_IO]:
            raise RuntimeError(f"BroadcastingTorchSaveReader loads tensors alone, and {', '.join(others)} is none")
        alone = not is_initialized()
        reads = alone or get_rank() == self.coordinator_rank
        saved = flatten_state_dict(serialization.load(os.fspath(self.checkpoint_id or "")))[0] if reads else {}
        for name, like in planner.state_dict.items():
            found = saved.get(name)
            said = "" if not reads or (isinstance(found, Tensor) and found.shape == like.shape) else (
                f"{self.checkpoint_id} has no tensor {name} of shape {list(like.shape)}")
            told = [said]
            if not alone:
                broadcast_object_list(told, self.coordinator_rank)
            if told[0]:
                raise RuntimeError(told[0])
            whole = found.to(like.dtype).contiguous() if found is not None else empty(tuple(like.shape), dtype=like.dtype)
            if not alone:
                broadcast(whole, self.coordinator_rank)
            place(whole, [item for item in plan.items if item.dest_index.fqn == name], planner)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        """Whether it is a file."""
        return os.path.isfile(checkpoint_id)


def dcp_to_torch_save(dcp_checkpoint_dir: str | os.PathLike, torch_save_path: str | os.PathLike) -> None:
    """Write the checkpoint in a folder into one file, which `torch.load` reads. One process does it."""
    state: dict[str, Any] = {}
    load(state, storage_reader=FileSystemReader(dcp_checkpoint_dir), planner=_Everything(), no_dist=True)
    serialization.save(state, torch_save_path)


def torch_save_to_dcp(torch_save_path: str | os.PathLike, dcp_checkpoint_dir: str | os.PathLike) -> None:
    """Write what `torch.save` has saved into a folder. One process does it."""
    save(serialization.load(torch_save_path), storage_writer=FileSystemWriter(dcp_checkpoint_dir), no_dist=True)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    modes = {"torch_to_dcp": torch_save_to_dcp, "dcp_to_torch": dcp_to_torch_save}
    parser.add_argument("mode", choices=sorted(modes))
    parser.add_argument("src")
    parser.add_argument("dst")
    given = parser.parse_args()
    modes[given.mode](given.src, given.dst)


if __name__ == "__main__":
    _main()

__all__ = ["BroadcastingTorchSaveReader", "DynamicMetaLoadPlanner", "dcp_to_torch_save", "torch_save_to_dcp"]
