"""From checkpoints in folders to files of torch.save, and back: python -m flambeau.distributed.checkpoint.format_utils MODE FROM TO"""

from __future__ import annotations

import argparse
import os
from typing import Any

from ... import serialization
from ...ops.creation import empty
from .default_planner import DefaultLoadPlanner, set_element
from .filesystem import FileSystemReader, FileSystemWriter
from .metadata import Metadata, TensorStorageMetadata
from .state_dict_loader import load
from .state_dict_saver import save


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

__all__ = ["dcp_to_torch_save", "torch_save_to_dcp"]
