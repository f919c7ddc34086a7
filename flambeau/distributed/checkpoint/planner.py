"""Who saves and loads what: plans, and the classes that make them."""

from __future__ import annotations

import abc
import enum
import io
import math
from dataclasses import dataclass
from typing import Any

from ...core.size import Size
from ...core.tensor import Tensor
from .metadata import ChunkStorageMetadata, Metadata, MetadataIndex, StorageMeta, TensorProperties


class WriteItemType(enum.Enum):
    """What is written: a tensor, a part of one, or anything else."""

    TENSOR, SHARD, BYTE_IO = range(1, 4)


class LoadItemType(enum.Enum):
    """What is read."""

    TENSOR, BYTE_IO = range(1, 3)


@dataclass(frozen=True)
class BytesIOWriteData:
    """How many bytes it will be."""

    nbytes: int


@dataclass(frozen=True)
class TensorWriteData:
    """The part of a tensor that is written, and what tensor it is."""

    chunk: ChunkStorageMetadata
    properties: TensorProperties
    size: Size


@dataclass(frozen=True)
class WriteItem:
    """One thing to be written."""

    index: MetadataIndex
    type: WriteItemType
    bytes_io_data: BytesIOWriteData | None = None
    tensor_data: TensorWriteData | None = None

    def tensor_storage_size(self) -> int | None:
        """The tensor's bytes; None for what is no tensor."""
        data = self.tensor_data
        return None if data is None else math.prod(data.size) * data.properties.dtype.itemsize


@dataclass(frozen=True)
class ReadItem:
    """One piece to be read: of size `lengths`, from `storage_offsets` of a saved part to `dest_offsets` of a tensor here."""

    type: LoadItemType
    dest_index: MetadataIndex
    dest_offsets: Size
    storage_index: MetadataIndex
    storage_offsets: Size
    lengths: Size


@dataclass(frozen=True)
class SavePlan:
    """What one process writes."""

    items: list[WriteItem]
    storage_data: Any = None
    planner_data: Any = None
    usable: bool = True


@dataclass
class LoadPlan:
    """What one process reads."""

    items: list[ReadItem]
    storage_data: Any = None
    planner_data: Any = None


class SavePlanner(abc.ABC):
    """Plans saving: each process makes a local plan, the coordinator a global one of all of them."""

    @abc.abstractmethod
    def set_up_planner(self, state_dict: dict, storage_meta: StorageMeta | None = None, is_coordinator: bool = False) -> None:
        """This state dict is to be saved."""

    @abc.abstractmethod
    def create_local_plan(self) -> SavePlan:
        """What this process has to write."""

    @abc.abstractmethod
    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """On the coordinator: what each writes, and the checkpoint's description."""

    @abc.abstractmethod
    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """This process's part of the global plan, which may still change here."""

    @abc.abstractmethod
    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        """The data of one item."""


class LoadPlanner:
    """Plans loading, as SavePlanner saving."""

    @abc.abstractmethod
    def set_up_planner(self, state_dict: dict, metadata: Metadata | None = None, is_coordinator: bool = False) -> None:
        """This state dict is to be loaded into."""

    @abc.abstractmethod
    def create_local_plan(self) -> LoadPlan:
        """What this process has to read."""

    @abc.abstractmethod
    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """On the coordinator: what each reads."""

    @abc.abstractmethod
    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """This process's part of the global plan."""

    @abc.abstractmethod
    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Take what is no tensor."""

    def resolve_bytes(self, read_item: ReadItem) -> io.BytesIO:
        """Where to read to, for storages that ask."""
        raise NotImplementedError(f"LoadPlanner.resolve_bytes({read_item.dest_index.fqn!r}); load_bytes() takes what was read")

    @abc.abstractmethod
    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        """The part of a tensor that a piece is to be copied to."""

    @abc.abstractmethod
    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        """The piece has been copied to what `resolve_tensor` gave."""


__all__ = ["BytesIOWriteData", "LoadItemType", "LoadPlan", "LoadPlanner", "ReadItem", "SavePlan", "SavePlanner", "TensorWriteData",
           "WriteItem", "WriteItemType"]
