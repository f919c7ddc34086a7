"""The planners that are used unless others are given: every name is saved once, and loading reads what overlaps."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ... import serialization
from ...core.memory_format import strided
from ...core.size import Size
from ...core.tensor import Tensor
from ..tensor.dtensor import DTensor
from ..tensor.redistribute import global_offset
from .metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
    check_parts,
)
from .planner import (
    BytesIOWriteData,
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)

Path = tuple[str | int, ...]   # keys of dictionaries as text, places in lists as numbers


# -- state dicts as names and values --------------------------------------------------------------------------------------
def _holds_more(value: Any) -> bool:
    """Whether a list is taken apart: somewhere in it is a dictionary or a tensor."""
    return isinstance(value, (Mapping, Tensor)) or (isinstance(value, list) and any(_holds_more(v) for v in value))


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)))
    elif isinstance(value, list) and _holds_more(value):
        for i, inner in enumerate(value):
            yield from _leaves(inner, (*path, i))
    else:
        yield path, value


def flatten_state_dict(state_dict: Mapping) -> tuple[dict[str, Any], dict[str, Path]]:
    """({name: value}, {name: path}) of a nested state dict; a name is its path, joined by dots."""
    flat: dict[str, Any] = {}
    paths: dict[str, Path] = {}
    for path, value in _leaves(state_dict, ()):
        name = ".".join(map(str, path))
        if name in flat:
            raise ValueError(f"duplicated flatten key {name}: {paths[name]} and {path}")
        flat[name], paths[name] = value, path
    return flat, paths


def set_element(root_dict: Any, path: Path, value: Any) -> None:
    """Put `value` where `path` leads, making dictionaries and (for numbers) lists on the way."""
    root: Any = root_dict
    key: Any
    for key, following in zip(path, (*path[1:], None)):
        if isinstance(root, list):
            root.extend([None] * (int(key) + 1 - len(root)))
            old = root[key]
        else:
            key = key if key in root else next((k for k in root if str(k) == key), key)
            old = root.get(key)
        if following is None:
            root[key] = value
        elif old is None:
            old = root[key] = [] if isinstance(following, int) else {}
        root = old


def _is_tensor(value: Any) -> bool:
    """Whether it is saved as a tensor; sparse ones are saved as values."""
    return isinstance(value, DTensor) or (isinstance(value, Tensor) and value.layout is strided)


def _part_of(value: Tensor) -> ChunkStorageMetadata | None:
    """The part of a tensor that this process has; None if it has none of it."""
    if not isinstance(value, DTensor):
        return ChunkStorageMetadata(Size([0] * value.ndim), Size(value.shape))
    if any(p.is_partial() for p in value.placements):
        raise RuntimeError(f"a DTensor that is a sum of parts, {value.placements}, can't be saved or loaded; redistribute() it")
    if value.device_mesh._coordinate is None or (value.numel() and not value._local_tensor.numel()):
        return None
    shape = tuple(value.shape)
    return ChunkStorageMetadata(Size(global_offset(shape, value.device_mesh, value.placements)), Size(value._local_tensor.shape))


def _local(value: Any) -> Any:
    return value._local_tensor.detach() if isinstance(value, DTensor) else value.detach() if _is_tensor(value) else value


# -- saving ------------------------------------------------------------------------------------------------------------------
def _item(name: str, value: Any) -> WriteItem | None:
    if not _is_tensor(value):
        return WriteItem(MetadataIndex(name), WriteItemType.BYTE_IO, BytesIOWriteData(0))
    part = _part_of(value)
    if part is None:
        return None
    kind = WriteItemType.SHARD if isinstance(value, DTensor) else WriteItemType.TENSOR
    data = TensorWriteData(part, TensorProperties(value.dtype, strided, value.requires_grad), Size(value.shape))
    return WriteItem(MetadataIndex(name, part.offsets), kind, tensor_data=data)


def create_default_local_save_plan(state_dict: dict[str, Any], is_coordinator: bool) -> SavePlan:
    """This process's parts of everything; what several have, the global plan gives to one of them."""
    del is_coordinator
    return SavePlan([item for name, value in state_dict.items() if (item := _item(name, value)) is not None])


def _size(item: WriteItem) -> int:
    data = item.tensor_data
    return 0 if data is None else math.prod(data.chunk.sizes) * data.properties.dtype.itemsize


def dedup_save_plans(all_plans: list[SavePlan], save_to_lowest_rank: bool = False) -> list[SavePlan]:
    """Plans in which each thing is written by one process: the first that has it, or the one with the fewest bytes to write."""
    has: dict[MetadataIndex, list[int]] = {}
    for rank, plan in enumerate(all_plans):
        for item in plan.items:
            has.setdefault(item.index, []).append(rank)
    sizes = {item.index: _size(item) for plan in all_plans for item in plan.items}
    load: Counter = Counter({ranks[0]: 0 for ranks in has.values()})
    for index, ranks in has.items():
        if len(ranks) == 1:
            load[ranks[0]] += sizes[index]
    chosen: dict[MetadataIndex, int] = {}
    for index, ranks in has.items():
        chosen[index] = ranks[0] if save_to_lowest_rank or len(ranks) == 1 else min(ranks, key=lambda r: load[r])
        load[chosen[index]] += sizes[index] if len(ranks) > 1 else 0
    return [replace(plan, items=[i for i in plan.items if chosen[i.index] == rank]) for rank, plan in enumerate(all_plans)]


def _numbered(item: WriteItem, number: int) -> WriteItem:
    return replace(item, index=MetadataIndex(item.index.fqn, item.index.offset, number))


def create_default_global_save_plan(all_plans: list[SavePlan], rewrite_index_hints: bool = True) -> tuple[list[SavePlan], Metadata]:
    """The plans, with the number of each part, and the description of all of them."""
    found: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
    plans = []
    for plan in all_plans:
        items = []
        for item in plan.items:
            data, name = item.tensor_data, item.index.fqn
            if data is None:
                found[name] = BytesStorageMetadata()
                items.append(item)
                continue
            known = found.setdefault(name, TensorStorageMetadata(data.properties, data.size, []))
            if not isinstance(known, TensorStorageMetadata) or known.size != data.size or known.properties.dtype != data.properties.dtype:
                raise ValueError(f"{name} is not the same tensor in all processes: {known} and {data}")
            items.append(_numbered(item, len(known.chunks)) if rewrite_index_hints else item)
            known.chunks.append(data.chunk)
        plans.append(replace(plan, items=items))
    check_parts(found)
    return plans, Metadata(found)


class DefaultSavePlanner(SavePlanner):
    """Saves nested state dicts by names; what several processes have, one of them writes.

    `lookup_object` and `transform_object` are there to be overridden.
    """

    def __init__(self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True,
                 dedup_replicated_tensors: bool | None = None, dedup_save_to_lowest_rank: bool = False,
                 enable_plan_caching: bool = False) -> None:
        del flatten_sharded_tensors, dedup_replicated_tensors, enable_plan_caching  # torch's, of kinds of tensors that don't exist here
        self.flatten_state_dict, self.dedup_save_to_lowest_rank = flatten_state_dict, dedup_save_to_lowest_rank
        self.state_dict: dict[str, Any] = {}
        self.mappings: dict[str, Path] = {}

    def set_up_planner(self, state_dict: dict, storage_meta: StorageMeta | None = None, is_coordinator: bool = False) -> None:
        """This state dict is to be saved."""
        del storage_meta
        self.is_coordinator = is_coordinator
        self.state_dict, self.mappings = flatten_state_dict(state_dict) if self.flatten_state_dict else (dict(state_dict), {})

    def create_local_plan(self) -> SavePlan:
        """What this process has."""
        plan = create_default_local_save_plan(self.state_dict, self.is_coordinator)
        return replace(plan, planner_data=self.mappings if self.flatten_state_dict else None)

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """What each writes, and the checkpoint's description."""
        plans, metadata = create_default_global_save_plan(dedup_save_plans(all_plans, self.dedup_save_to_lowest_rank))
        if self.flatten_state_dict:
            metadata.planner_data = {name: path for plan in plans for name, path in (plan.planner_data or {}).items()}
        return plans, metadata

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """As it is."""
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        """The tensor, or what else it is as `torch.save` writes it."""
        return self.transform_object(write_item, self.lookup_object(write_item.index))

    def lookup_object(self, index: MetadataIndex) -> Any:
        """What is saved under an index."""
        return _local(self.state_dict[index.fqn])

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:
        """What is written of it."""
        if write_item.type is not WriteItemType.BYTE_IO:
            return object
        data = io.BytesIO()
        serialization.save(object, data)
        return data


# -- loading -----------------------------------------------------------------------------------------------------------------
def _overlap(a: ChunkStorageMetadata, b: ChunkStorageMetadata) -> tuple[Size, Size] | None:
    """(where it begins, its size) of what two parts share."""
    begin = [max(x, y) for x, y in zip(a.offsets, b.offsets)]
    end = [min(x + n, y + m) for x, n, y, m in zip(a.offsets, a.sizes, b.offsets, b.sizes)]
    sizes = [e - s for s, e in zip(begin, end)]
    return (Size(begin), Size(sizes)) if all(n > 0 for n in sizes) else None


def _less(a: Sequence[int], b: Sequence[int]) -> Size:
    return Size([x - y for x, y in zip(a, b)])


def _reads(name: str, value: Any, saved: TensorStorageMetadata | BytesStorageMetadata) -> Iterator[ReadItem]:
    """What is to be read of `saved` for `value`."""
    if isinstance(saved, BytesStorageMetadata):
        none = Size([0])
        yield ReadItem(LoadItemType.BYTE_IO, MetadataIndex(name), none, MetadataIndex(name), none, none)
        return
    if not _is_tensor(value):
        raise ValueError(f"Invalid checkpoint metadata for {name}, expected {BytesStorageMetadata} but found {type(saved)}")
    if tuple(saved.size) != tuple(value.shape):
        raise ValueError(f"Size mismatch between saved {saved.size} and current: {value.shape} for {name}")
    mine = _part_of(value)
    for number, part in enumerate(saved.chunks if mine is not None else ()):
        shared = _overlap(mine, part)  # type: ignore[arg-type]
        if shared is not None:
            begin, sizes = shared
            yield ReadItem(LoadItemType.TENSOR, MetadataIndex(name, mine.offsets, 0), _less(begin, mine.offsets),  # type: ignore[union-attr]
                           MetadataIndex(name, part.offsets, number), _less(begin, part.offsets), sizes)


def create_default_local_load_plan(state_dict: dict[str, Any], metadata: Metadata, strict: bool = True) -> LoadPlan:
    """What this process has to read; with `strict` everything must be there."""
    items: list[ReadItem] = []
    for name, value in state_dict.items():
        if name in metadata.state_dict_metadata:
            items += _reads(name, value, metadata.state_dict_metadata[name])
        elif strict:
            raise RuntimeError(f"Missing key in checkpoint state_dict: {name}.")
    return LoadPlan(items)


def create_default_global_load_plan(all_plans: list[LoadPlan]) -> list[LoadPlan]:
    """The plans as they are: each process reads for itself."""
    return all_plans


class DefaultLoadPlanner(LoadPlanner):
    """Loads into the tensors of a nested state dict, however they were spread when they were saved; what is no tensor is replaced.

    Only plain data are loaded; let other classes in with `torch.serialization.add_safe_globals`. With `allow_partial_load` names that
    the checkpoint does not have stay as they are.
    """

    def __init__(self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True, allow_partial_load: bool = False) -> None:
        del flatten_sharded_tensors     # torch's, of a kind of tensors that doesn't exist here
        self.flatten_state_dict, self.allow_partial_load = flatten_state_dict, allow_partial_load
        self.state_dict: dict[str, Any] = {}
        self.mappings: dict[str, Path] = {}

    def set_up_planner(self, state_dict: dict, metadata: Metadata | None = None, is_coordinator: bool = False) -> None:
        """This state dict is to be loaded into."""
        self.original_state_dict, self.metadata, self.is_coordinator = state_dict, metadata, is_coordinator
        self.state_dict, self.mappings = flatten_state_dict(state_dict) if self.flatten_state_dict else (dict(state_dict), {})

    def create_local_plan(self) -> LoadPlan:
        """What this process has to read."""
        if self.metadata is None:
            raise AssertionError("set_up_planner() has been given no metadata")
        return create_default_local_load_plan(self.state_dict, self.metadata, not self.allow_partial_load)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """What each reads."""
        return create_default_global_load_plan(global_plan)

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """As it is."""
        return central_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Put what is no tensor into the state dict."""
        name, loaded = read_item.dest_index.fqn, serialization.load(value)
        self.state_dict[name] = loaded
        set_element(self.original_state_dict, self.mappings.get(name, (name,)), loaded)

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        """The piece of this process's tensor that is read."""
        return self.transform_tensor(read_item, self.lookup_tensor(read_item.dest_index))

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        """It is in its place."""

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """This process's part of a tensor."""
        return _local(self.state_dict[index.fqn])

    def transform_tensor(self, read_item: ReadItem, tensor: Tensor) -> Tensor:
        """The piece of it that is read."""
        for dim, (begin, size) in enumerate(zip(read_item.dest_offsets, read_item.lengths)):
            tensor = tensor.narrow(dim, begin, size)
        return tensor


__all__ = ["DefaultLoadPlanner", "DefaultSavePlanner", "create_default_global_load_plan", "create_default_global_save_plan",
           "create_default_local_load_plan", "create_default_local_save_plan", "dedup_save_plans", "flatten_state_dict", "set_element"]
