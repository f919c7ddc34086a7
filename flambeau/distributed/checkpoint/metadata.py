"""What a checkpoint says of itself. The classes have torch's names and fields: its `.metadata` file is a pickle of them."""

from __future__ import annotations

import enum
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core.dtypes import dtype as Dtype
from ...core.dtypes import float32
from ...core.memory_format import channels_last, contiguous_format, preserve_format, strided
from ...core.memory_format import layout as Layout
from ...core.size import Size
from ...core.tensor import Tensor


class _MEM_FORMAT_ENCODING(enum.Enum):
    """Memory formats, as they are written."""

    TORCH_CONTIGUOUS_FORMAT, TORCH_CHANNELS_LAST, TORCH_PRESERVE_FORMAT = range(3)


_FORMATS = dict(zip((contiguous_format, channels_last, preserve_format), _MEM_FORMAT_ENCODING, strict=True))


@dataclass
class TensorProperties:
    """What a tensor is, but for its size."""

    dtype: Dtype = float32
    layout: Layout = strided
    requires_grad: bool = False
    memory_format: Any = contiguous_format
    pin_memory: bool = False

    @staticmethod
    def create_from_tensor(tensor: Tensor) -> TensorProperties:
        """Those of a tensor."""
        return TensorProperties(tensor.dtype, tensor.layout, tensor.requires_grad)

    def __getstate__(self) -> tuple:
        return self.dtype, self.layout, self.requires_grad, _FORMATS[self.memory_format], self.pin_memory

    def __setstate__(self, state: tuple) -> None:
        kind, lay, requires_grad, encoded, pin_memory = state
        if not isinstance(kind, Dtype):
            raise TypeError(f"a tensor's dtype is {type(kind).__name__}")
        formats = {code: form for form, code in _FORMATS.items()}
        self.__dict__.update(dtype=kind, layout=lay, requires_grad=bool(requires_grad), memory_format=formats[encoded],
                             pin_memory=bool(pin_memory))


@dataclass
class ChunkStorageMetadata:
    """A part of a tensor: where in the whole it begins, and its size."""

    offsets: Size
    sizes: Size


@dataclass
class TensorStorageMetadata:
    """A tensor, and the parts of which it is saved."""

    properties: TensorProperties
    size: Size
    chunks: list[ChunkStorageMetadata]


@dataclass
class BytesStorageMetadata:
    """Anything else."""


@dataclass(frozen=True)
class MetadataIndex:
    """One thing that is saved: a name and, of a tensor, where the part begins. `index`, a hint of its number, is not compared."""

    fqn: str
    offset: Size | None = None
    index: int | None = field(default=None, compare=False)

    def __init__(self, fqn: str, offset: Sequence[int] | None = None, index: int | None = None) -> None:
        self.__dict__.update(fqn=fqn, offset=None if offset is None else Size(offset), index=index)


@dataclass
class StorageMeta:
    """Of which saving (or loading) it is."""

    checkpoint_id: str | os.PathLike | None = None
    save_id: str | None = None
    load_id: str | None = None
    modules: list[str] = field(default_factory=list)


@dataclass
class Metadata:
    """A whole checkpoint. `planner_data`: where in the state dict each name lies; `storage_data`: where in the files each part."""

    state_dict_metadata: dict[str, TensorStorageMetadata | BytesStorageMetadata]
    planner_data: Any = None
    storage_data: Any = None
    storage_meta: StorageMeta | None = None
    version: str | None = None


def check_parts(found: Mapping[str, Any]) -> None:
    """ValueError where the parts of a tensor are not the whole of it."""
    for name, data in found.items():
        if isinstance(data, TensorStorageMetadata):
            outside = [c for c in data.chunks if any(o + n > whole for o, n, whole in zip(c.offsets, c.sizes, data.size))]
            filled = sum(math.prod(c.sizes) for c in data.chunks)
            if outside or filled != math.prod(data.size):
                raise ValueError(f"Failed to validate global plan: the parts of {name}, a tensor of {tuple(data.size)}, are "
                                 f"{[(tuple(c.offsets), tuple(c.sizes)) for c in data.chunks]}")


def check_read(found: Metadata) -> None:
    """ValueError where a description that was read from a file holds what no saving writes."""
    def counts(sizes: Any, ndim: int | None = None) -> bool:
        return isinstance(sizes, (tuple, list)) and len(sizes) == (len(sizes) if ndim is None else ndim) and all(
            type(n) is int and 0 <= n < 1 << 63 for n in sizes)

    if not isinstance(vars(found).get("state_dict_metadata"), dict):
        raise ValueError(f"its state_dict_metadata is {type(vars(found).get('state_dict_metadata')).__name__}, not dict")
    for name, data in found.state_dict_metadata.items():
        if not isinstance(name, str) or not isinstance(data, (TensorStorageMetadata, BytesStorageMetadata)):
            raise ValueError(f"{name!r:.80} is said to be {type(data).__name__}")
        if isinstance(data, TensorStorageMetadata):
            fields = vars(data)
            size: Any = fields.get("size")
            chunks = fields.get("chunks")
            if not counts(size) or not isinstance(fields.get("properties"), TensorProperties) or not isinstance(chunks, list) or not all(
                    isinstance(c, ChunkStorageMetadata) and counts(vars(c).get("offsets"), len(size)) and counts(
                        vars(c).get("sizes"), len(size)) for c in chunks):
                raise ValueError(f"{name!r:.80} is a tensor of size {size!r:.80}, whose parts or properties are none")
    check_parts(found.state_dict_metadata)
    if found.storage_meta is not None and not isinstance(found.storage_meta, StorageMeta):
        raise ValueError(f"its storage_meta is {type(found.storage_meta).__name__}")
    _check_paths(found.planner_data, len(found.state_dict_metadata))


def _check_paths(paths: Any, most: int) -> None:
    """ValueError unless it leads each name to its place; places in lists are not beyond what there is at all."""
    if not isinstance(paths, (dict, type(None))):
        raise ValueError(f"its planner_data is {type(paths).__name__}")
    for name, path in (paths or {}).items():
        if not isinstance(name, str) or not isinstance(path, tuple) or not path or not all(
                isinstance(key, str) or (type(key) is int and 0 <= key <= 1000 + 1000 * most) for key in path):
            raise ValueError(f"the place of {name!r:.80} is {path!r:.80}")


__all__ = ["BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta", "TensorProperties",
           "TensorStorageMetadata", "check_parts", "check_read"]
