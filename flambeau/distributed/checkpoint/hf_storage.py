"""Checkpoints as Hugging Face's libraries have them: safetensors files, and an index of which file each tensor lies in.

`model-00001-of-00002.safetensors` hold whole tensors. Processes that write parts (`save_distributed`) have files of their own,
`shard-00001-model-...`, which say in their header where in the whole each part begins; consolidation makes whole ones of them.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...core.size import Size
from ...core.tensor import Tensor
from ...futures import Future, settled
from ...ops.creation import empty
from ...serialization.archive import replacing
from ...utils.safetensors import safe_open, save_file
from .filesystem import FileSystemReader, FileSystemWriter, place
from .metadata import ChunkStorageMetadata, Metadata, MetadataIndex, StorageMeta, TensorProperties, TensorStorageMetadata, check_parts
from .planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner, WriteItem, WriteItemType
from .storage import WriteResult

_OFFSETS, _INDEX, _SHARDED = "DCP_SHARDING_INFO", "model.safetensors.index.json", "sharded"


class HuggingFaceStorageWriter(FileSystemWriter):
    """Writes to the folder `path`: tensors alone, those of `fqn_to_index_mapping` into files of these numbers (from 1; without, into one).

    The first process writes whole tensors. With `save_distributed` each writes its parts, and with `enable_consolidation` the first makes
    whole files of them, which lie beside the folder "sharded".
    """

    def __init__(self, path: str, fqn_to_index_mapping: dict[str, int] | None = None, thread_count: int = 1, save_distributed: bool = False,
                 enable_consolidation: bool = False, thread_count_consolidation: int = 1) -> None:
        del thread_count_consolidation      # files are made whole one after another
        super().__init__(path, thread_count=thread_count)
        self.numbers, self.distributed, self.consolidates = fqn_to_index_mapping, save_distributed, enable_consolidation

    def _folder(self) -> Path:
        return self.path / _SHARDED if self.consolidates and self.distributed else self.path

    def _name(self, fqn: str) -> str:
        if self.numbers is not None and fqn not in self.numbers:
            raise KeyError(f"fqn_to_index_mapping has no number for {fqn!r}")
        count = max(self.numbers.values(), default=1) if self.numbers else 1
        return f"model-{self.numbers[fqn] if self.numbers else 1:05d}-of-{count:05d}.safetensors"

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """The plan; the folders are there."""
        self._folder().mkdir(parents=True, exist_ok=True)
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Each process writes its parts, or the first one all. ValueError for parts without `save_distributed`."""
        if self.distributed:
            return [replace(plan, storage_data=f"shard-{rank:05d}-") for rank, plan in enumerate(plans, 1)]
        items = [item for plan in plans for item in plan.items]
        for item in items:
            data = item.tensor_data
            if data is not None and tuple(data.chunk.sizes) != tuple(data.size):
                raise ValueError(f"{item.index.fqn}, a tensor of {tuple(data.size)}, lies in parts; say save_distributed=True, or save "
                                 "its full_tensor()")
        return [replace(plans[0], items=items, storage_data=""), *(replace(plan, items=[], storage_data="") for plan in plans[1:])]

    def _write(self, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        files: dict[str, list[WriteItem]] = {}
        for item in plan.items:
            if item.type is WriteItemType.BYTE_IO:
                warnings.warn(f"{item.index.fqn} is no tensor: a safetensors file can't hold it, and it is not saved", stacklevel=2)
            else:
                files.setdefault(plan.storage_data + self._name(item.index.fqn), []).append(item)
        return [result for name, items in files.items() for result in self._write_file(name, items, planner)]

    def _write_file(self, name: str, items: list[WriteItem], planner: SavePlanner) -> list[WriteResult]:
        tensors: dict[str, Tensor] = {}
        for item in items:
            data = planner.resolve_data(item)
            assert isinstance(data, Tensor)
            tensors[item.index.fqn] = data.detach().clone().contiguous()    # some may share memory
        begins = {item.index.fqn: {"saved_offsets": list(item.tensor_data.chunk.offsets)} for item in items if item.tensor_data is not None}
        save_file(tensors, self._folder() / name, {"format": "pt", "DCP_VERSION": "1.0", _OFFSETS: json.dumps(begins)})
        return [WriteResult(item.index, tensors[item.index.fqn].nbytes, name) for item in items]

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Make whole files, if that is asked for, and write the index of those there are."""
        metadata.storage_meta = self.storage_meta()
        if self.distributed and not self.consolidates:
            return
        written = [result for part in results for result in part]
        names = {result.index.fqn: self._name(result.index.fqn) for result in written}
        if self.distributed:
            consolidate(self._folder(), self.path, names)
        total = sum(result.size_in_bytes for result in written)
        with replacing(self.path / _INDEX) as file:
            file.write(json.dumps({"metadata": {"total_size": total}, "weight_map": names}, indent=2).encode())


def consolidate(source: Path, target: Path, names: dict[str, str]) -> None:
    """Of the parts in the files of one folder whole tensors in another: `names` says in which file each is to lie."""
    parts = _Parts(source)
    for name in dict.fromkeys(names.values()):
        save_file({fqn: parts.whole(fqn) for fqn, file in names.items() if file == name}, target / name)


class _Parts:
    """What lies in the safetensors files of a folder: of each tensor its parts, where they begin and in which file they lie."""

    def __init__(self, folder: Path) -> None:
        self.found: dict[str, list[tuple[tuple[int, ...], Tensor, str]]] = {}
        for path in sorted(folder.glob("*.safetensors")):
            with safe_open(path) as file:
                begins = json.loads((file.metadata() or {}).get(_OFFSETS, "{}"))
                for fqn in file.keys():  # noqa: SIM118 - not a mapping
                    tensor = file.get_tensor(fqn)
                    begin = begins.get(fqn, {}).get("saved_offsets") or [0] * tensor.ndim
                    if len(begin) != tensor.ndim or not all(type(n) is int and 0 <= n < 1 << 63 for n in begin):
                        raise ValueError(f"{path} says that {fqn!r}, of shape {tuple(tensor.shape)}, begins at {begin!r:.80}")
                    self.found.setdefault(fqn, []).append((tuple(begin), tensor, path.name))
        if not self.found:
            raise FileNotFoundError(f"{folder} holds no safetensors file")

    def size(self, fqn: str) -> Size:
        """That of the whole."""
        ends = [[b + n for b, n in zip(begin, part.shape)] for begin, part, _ in self.found[fqn]]
        return Size([max(column) for column in zip(*ends)])

    def whole(self, fqn: str) -> Tensor:
        """The tensor."""
        made = empty(tuple(self.size(fqn)), dtype=self.found[fqn][0][1].dtype)
        for begin, part, _ in self.found[fqn]:
            here = made
            for dim, (start, size) in enumerate(zip(begin, part.shape)):
                here = here.narrow(dim, start, size)
            here.copy_(part)
        return made

    def described(self) -> dict[str, Any]:
        """As the description of a checkpoint says it. ValueError where the parts of a tensor are not the whole of it."""
        made: dict[str, Any] = {fqn: TensorStorageMetadata(
            TensorProperties.create_from_tensor(parts[0][1]), self.size(fqn),
            [ChunkStorageMetadata(Size(begin), Size(part.shape)) for begin, part, _ in parts]) for fqn, parts in self.found.items()}
        check_parts(made)
        return made


class HuggingFaceStorageReader(FileSystemReader):
    """Reads the safetensors files in the folder `path`, whoever wrote them: whole tensors, or parts that were written here or by torch."""

    def __init__(self, path: str, thread_count: int = 1) -> None:
        del thread_count    # files are mapped into memory
        super().__init__(path)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """The description, of the files' headers. FileNotFoundError where there is no file."""
        parts = _Parts(self.path)
        places = {MetadataIndex(fqn, begin): part for fqn, found in parts.found.items() for begin, part, _ in found}
        return Metadata(parts.described(), storage_data=places, storage_meta=StorageMeta(load_id=self.load_id))

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read the plan's items."""
        def read() -> None:
            for item in plan.items:
                place(self.storage_data[item.storage_index], [item], planner)

        return settled(read)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Whether it names a folder with safetensors files."""
        found: Iterable[Path] = Path(checkpoint_id).glob("*.safetensors")
        return any(True for _ in found)


__all__ = ["HuggingFaceStorageReader", "HuggingFaceStorageWriter", "consolidate"]
