"""Models for Android's NNAPI, as bytes of its published enumerations, and a host that runs them (docs/mobile.md)."""

from __future__ import annotations

from .codes import Fuse, NnapiError, Operation, Type
from .model import Model, from_bytes, to_bytes
from .prepare import (
    ANEURALNETWORKS_PREFER_FAST_SINGLE_ANSWER,
    ANEURALNETWORKS_PREFER_LOW_POWER,
    ANEURALNETWORKS_PREFER_SUSTAINED_SPEED,
    NnapiModule,
    convert_model_to_nnapi,
    process_for_nnapi,
)

__all__ = ["ANEURALNETWORKS_PREFER_FAST_SINGLE_ANSWER", "ANEURALNETWORKS_PREFER_LOW_POWER", "ANEURALNETWORKS_PREFER_SUSTAINED_SPEED",
           "Fuse", "Model", "NnapiError", "NnapiModule", "Operation", "Type", "convert_model_to_nnapi", "from_bytes", "process_for_nnapi",
           "to_bytes"]
