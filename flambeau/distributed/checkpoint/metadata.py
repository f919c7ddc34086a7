"""What a checkpoint says of itself. The classes have torch's names and fields: its `.metadata` file is a pickle of them."""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
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


__all__ = ["BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta", "TensorProperties",
           "TensorStorageMetadata"]
