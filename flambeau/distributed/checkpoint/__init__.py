"""torch.distributed.checkpoint: names to import."""

from __future__ import annotations

from ..._absent import absent_names
from ..._lazy import submodules

_absent = absent_names(
    "torch.distributed.checkpoint",
    ("save", "load", "async_save", "FileSystemReader", "FileSystemWriter"),
    "save the state dict of rank 0 with torch.save",
)
__getattr__ = submodules(__name__, "state_dict", "hf_storage", "default_planner", otherwise=_absent)
