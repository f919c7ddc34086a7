"""Checkpoints in a folder: files of tensors as `torch.save` writes them, one after another, and `.metadata`, which says where they lie.

A file gets its name when all of it is on disk, `.metadata` last. A checkpoint that replaces another has files of other names until then,
so that a process that is killed at any time leaves the finished one as it was.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import secrets
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

from ... import serialization
from ...core.tensor import Tensor
from ...futures import Future, settled
from ...serialization.archive import replacing
from ...serialization.pickler import Pickler
from ...serialization.unpickler import restricted_load
from . import metadata as _metadata
from .metadata import Metadata, MetadataIndex, StorageMeta
from .planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner, WriteItem
from .storage import StorageReader, StorageWriter, WriteResult

_METADATA, _SUFFIX, _VERSION = ".metadata", ".distcp", "1.0.0"


@dataclass
class _StorageInfo:
    """Where one thing lies."""

    relative_path: str
    offset: int
    length: int
    transform_descriptors: Sequence[str] | None = None


@dataclass
class _StoragePrefix:
    """How the names of one process's files begin."""

    prefix: str


# What the description of a checkpoint may name: these, with torch's names, and what any file of tensors may.
_RECORDS: dict[tuple[str, str], Any] = {
    **{("torch.distributed.checkpoint.metadata", kind.__name__): kind for kind in (
        _metadata._MEM_FORMAT_ENCODING, _metadata.TensorProperties, _metadata.ChunkStorageMetadata, _metadata.TensorStorageMetadata,
        _metadata.BytesStorageMetadata, MetadataIndex, StorageMeta, Metadata)},
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"): _StorageInfo,
    **{("pathlib", name): os.path.join for name in ("PosixPath", "WindowsPath", "PurePosixPath")},
}


class _Window(io.RawIOBase):
    """A file from where it is now on: what is written to it counts its places from 0."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.begin = file, file.tell()

    def write(self, data: Any) -> int:
        return self.file.write(data)

    def tell(self) -> int:
        return self.file.tell() - self.begin

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self.file.seek(offset + (self.begin if whence == os.SEEK_SET else 0), whence) - self.begin

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True


def _write_item(file: BinaryIO, item: WriteItem, planner: SavePlanner, name: str) -> WriteResult:
    begin, data = file.tell(), planner.resolve_data(item)
    if isinstance(data, Tensor):
        whole = data.numel() * data.element_size() == data._storage.nbytes and data.is_contiguous()
        serialization.save(data if whole else data.clone().contiguous(), cast(BinaryIO, _Window(file)))
        file.seek(0, os.SEEK_END)
    else:
        file.write(data.getbuffer())
    length = file.tell() - begin
    return WriteResult(item.index, length, _StorageInfo(name, begin, length))


class _InAFolder:
    """What the writer and the reader have in common: the folder."""

    path: Path

    @property
    def checkpoint_id(self) -> str | os.PathLike:
        """The folder."""
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        """Whether it names a folder that is there or could be made."""
        return _is_folder(checkpoint_id)


class FileSystemWriter(_InAFolder, StorageWriter):
    """Writes to the folder `path`: a file for each process and each of `thread_count` threads, or for each tensor.

    Without `overwrite` a folder that holds a checkpoint is refused.
    """

    def __init__(self, path: str | os.PathLike, single_file_per_rank: bool = True, sync_files: bool = True, thread_count: int = 1,
                 per_thread_copy_ahead: int = 10_000_000, cache_staged_state_dict: bool = False, overwrite: bool = True,
                 _extensions: Any = None, serialization_format: Any = None) -> None:
        if _extensions or getattr(serialization_format, "value", "torch_save") != "torch_save":
            raise NotImplementedError("FileSystemWriter(_extensions=, serialization_format=) is not implemented; leave them out: tensors "
                                      "are written as torch.save does")
        del sync_files, per_thread_copy_ahead, cache_staged_state_dict    # files are always on disk; nothing comes from a GPU
        self.single_file_per_rank, self.thread_count, self.overwrite = single_file_per_rank, max(1, thread_count), overwrite
        self.path, self.save_id, self.leads = Path(path), str(uuid.uuid4()), False

    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        """A checkpoint begins, in `checkpoint_id` if one is given."""
        if checkpoint_id is not None:
            self.path = Path(checkpoint_id)
        self.save_id = str(uuid.uuid4())

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Whether this process coordinates."""
        self.leads = is_coordinator

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """The plan; the folder is there."""
        self.path.mkdir(parents=True, exist_ok=True)
        if (self.path / _METADATA).exists() and not self.overwrite:
            raise RuntimeError(f"Checkpoint already exists and self.overwrite=False: {self.path}")
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """The plans with names of files that no finished checkpoint has."""
        new = f"_{secrets.token_hex(4)}" if any(self.path.glob(f"__*{_SUFFIX}")) else ""
        return [replace(plan, storage_data=_StoragePrefix(f"__{rank}{new}_")) for rank, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write the plan's items."""
        return settled(lambda: self._write(plan, planner))

    def _write(self, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        items = sorted(plan.items, key=lambda i: i.tensor_storage_size() or 0, reverse=True)
        count = self.thread_count if self.single_file_per_rank else len(items)
        files = [part for n in range(count) if (part := items[n::count])]

        def write(number: int) -> list[WriteResult]:
            name = f"{plan.storage_data.prefix}{number}{_SUFFIX}"
            with replacing(self.path / name) as file:
                return [_write_item(cast(BinaryIO, file), item, planner, name) for item in files[number]]

        with ThreadPoolExecutor(self.thread_count) as pool:
            return [result for results in pool.map(write, range(len(files))) for result in results]

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write `.metadata`, and remove the files that it does not name."""
        metadata.storage_data = {result.index: result.storage_data for part in results for result in part}
        metadata.storage_meta, metadata.version = self.storage_meta(), _VERSION
        data = io.BytesIO()
        Pickler(data).dump(metadata)
        with replacing(self.path / _METADATA) as file:
            file.write(data.getbuffer())
        used = {info.relative_path for info in metadata.storage_data.values()}
        for old in self.path.glob(f"__*{_SUFFIX}"):
            if old.name not in used:
                with contextlib.suppress(OSError):
                    old.unlink()

    def storage_meta(self) -> StorageMeta:
        """The folder, and the number of this saving."""
        return StorageMeta(checkpoint_id=str(self.path), save_id=self.save_id)


def _is_folder(name: str | os.PathLike) -> bool:
    if "://" in str(name):
        return False
    path = Path(name).absolute()
    return any(parent.exists() and os.access(parent, os.W_OK) for parent in (path, *path.parents))


def _check_places(places: Any) -> None:
    """ValueError unless it says of each part in which file of the folder it lies, and where there."""
    if not isinstance(places, dict):
        raise ValueError(f"its storage_data is {type(places).__name__}, not dict")
    for index, info in places.items():
        if not isinstance(index, MetadataIndex) or not isinstance(info, _StorageInfo) or not isinstance(index.fqn, str):
            raise ValueError(f"the place of a {type(index).__name__} is a {type(info).__name__}")
        name, *where = (vars(info).get(field) for field in ("relative_path", "offset", "length"))
        if not all(type(n) is int and 0 <= n < 1 << 63 for n in where) or not isinstance(name, str):
            raise ValueError(f"the place of {index.fqn!r:.80} is {name!r:.80}, {where}")
        if name in ("", "..") or Path(name).name != name or "\0" in name:
            raise ValueError(f"it names a file outside of its folder: {name!r}")


class FileSystemReader(_InAFolder, StorageReader):
    """Reads the checkpoint in the folder `path`: written here or by torch. Nothing but data is read."""

    def __init__(self, path: str | os.PathLike, _extension_registry: Any = None) -> None:
        if _extension_registry is not None:
            raise NotImplementedError("FileSystemReader(_extension_registry=) is not implemented; leave it out")
        self.path, self.load_id = Path(path), str(uuid.uuid4())
        self.storage_data: dict[MetadataIndex, Any] = {}

    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        """Another checkpoint is to be read, in `checkpoint_id` if one is given."""
        self.storage_data = {}
        if checkpoint_id is not None:
            self.path = Path(checkpoint_id)
        self.load_id = str(uuid.uuid4())

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """The description; FileNotFoundError where there is none, so that no checkpoint was finished."""
        file = self.path / _METADATA
        if not file.exists():
            raise FileNotFoundError(f"{self.path} holds no checkpoint: there is no {file}, which is written when all else has been")

        def refuse(reference: Any) -> Any:
            raise pickle.UnpicklingError(f"{file} refers to {reference!r}")

        found = restricted_load(file.read_bytes(), refuse, _RECORDS)
        if not isinstance(found, Metadata):
            raise pickle.UnpicklingError(f"{file} holds a {type(found).__name__}, not a checkpoint's description")
        try:
            _metadata.check_read(found)
            _check_places(found.storage_data)
        except ValueError as error:
            raise ValueError(f"{file} is no checkpoint's description, or a damaged one: {error}") from None
        if found.storage_meta is None:
            found.storage_meta = StorageMeta()
        found.storage_meta.load_id = self.load_id
        return found

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Where everything lies."""
        self.storage_data = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """As it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """As they are."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read the plan's items, each file once."""
        return settled(lambda: self._read(plan, planner))

    def _read(self, plan: LoadPlan, planner: LoadPlanner) -> None:
        files: dict[str, dict[int, list[ReadItem]]] = {}
        for item in plan.items:
            info = self._info(item.storage_index)
            files.setdefault(info.relative_path, {}).setdefault(info.offset, []).append(item)
        for name, places in files.items():
            with open(self.path / name, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                for offset, items in sorted(places.items()):
                    length = self._info(items[0].storage_index).length
                    if offset + length > size:
                        raise ValueError(f"{self.path / name} is too short: {items[0].storage_index.fqn} lies in its bytes {offset} to "
                                         f"{offset + length}, and there are {size}")
                    file.seek(offset)
                    self._take(io.BytesIO(file.read(length)), items, planner)

    def _info(self, index: MetadataIndex) -> _StorageInfo:
        info = self.storage_data.get(index)
        if not isinstance(info, _StorageInfo):
            raise ValueError(f"{self.path / _METADATA} does not say where {index} lies")
        if info.transform_descriptors:
            raise NotImplementedError(f"{index.fqn} is saved with transforms {info.transform_descriptors}; save it without _extensions")
        return info

    @staticmethod
    def _take(data: io.BytesIO, items: list[ReadItem], planner: LoadPlanner) -> None:
        tensors = [item for item in items if item.type is LoadItemType.TENSOR]
        for item in items:
            if item.type is LoadItemType.BYTE_IO:
                data.seek(0)
                planner.load_bytes(item, data)
        if not tensors:
            return
        saved = serialization.load(data)
        if not isinstance(saved, Tensor):
            raise ValueError(f"{tensors[0].storage_index} is a {type(saved).__name__}, where a tensor was saved")
        place(saved, tensors, planner)


def place(saved: Tensor, items: list[ReadItem], planner: LoadPlanner) -> None:
    """Copy what the items want of a saved part of a tensor. ValueError where it has no such piece, or the planner no such room."""
    for item in items:
        piece = saved.detach()
        if piece.ndim != len(item.lengths) or any(o + n > m for o, n, m in zip(item.storage_offsets, item.lengths, piece.shape)):
            raise ValueError(f"{item.storage_index} is a tensor of shape {tuple(piece.shape)}, of which {tuple(item.lengths)} from "
                             f"{tuple(item.storage_offsets)} on cannot be read")
        for dim, (begin, size) in enumerate(zip(item.storage_offsets, item.lengths)):
            piece = piece.narrow(dim, begin, size)
        target = planner.resolve_tensor(item).detach()
        if target.shape != piece.shape:
            raise ValueError(f"{item.storage_index} gives {tuple(piece.shape)} for {tuple(target.shape)}")
        target.copy_(piece)
        planner.commit_tensor(item, target)


__all__ = ["FileSystemReader", "FileSystemWriter", "place"]
