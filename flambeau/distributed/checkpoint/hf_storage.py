"""torch.distributed.checkpoint.hf_storage: names to import."""

from __future__ import annotations

from ..._absent import absent_names

__getattr__ = absent_names(
    "torch.distributed.checkpoint.hf_storage", ("HuggingFaceStorageReader", "HuggingFaceStorageWriter"),
    "save the state dict of rank 0 with torch.save",
)
