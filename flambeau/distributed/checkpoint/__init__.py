"""torch.distributed.checkpoint: state dicts in a folder, each process its parts. `docs/distributed.md` tells how."""

from __future__ import annotations

from ..._absent import absent_names
from ..._lazy import submodules
from .api import CheckpointException
from .default_planner import DefaultLoadPlanner, DefaultSavePlanner
from .filesystem import FileSystemReader, FileSystemWriter
from .hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from .metadata import BytesStorageMetadata, ChunkStorageMetadata, Metadata, TensorStorageMetadata
from .planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner, WriteItem
from .state_dict_loader import load, load_state_dict
from .state_dict_saver import async_save, save, save_state_dict
from .storage import StorageReader, StorageWriter

_absent = absent_names(
    "torch.distributed.checkpoint",
    ("QuantizedHuggingFaceStorageReader", "load_sharded_optimizer_state_dict"),
    "use torch.distributed.checkpoint.save and load",
)
__getattr__ = submodules(__name__, "state_dict", "format_utils", "stateful", "staging", otherwise=_absent)

__all__ = ["BytesStorageMetadata", "CheckpointException", "ChunkStorageMetadata", "DefaultLoadPlanner", "DefaultSavePlanner",
           "FileSystemReader", "FileSystemWriter", "HuggingFaceStorageReader", "HuggingFaceStorageWriter", "LoadPlan", "LoadPlanner",
           "Metadata", "ReadItem", "SavePlan", "SavePlanner", "StorageReader", "StorageWriter", "TensorStorageMetadata", "WriteItem",
           "async_save", "load", "load_state_dict", "save", "save_state_dict"]
