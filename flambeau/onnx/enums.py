"""How a model is exported, and ONNX's numbers for dtypes."""

from __future__ import annotations

import enum


class OperatorExportTypes(enum.Enum):
    """How operators without ONNX form are exported."""

    ONNX, ONNX_ATEN, ONNX_ATEN_FALLBACK, ONNX_FALLTHROUGH = range(4)


class TrainingMode(enum.Enum):
    """In which mode a model is exported."""

    EVAL, PRESERVE, TRAINING = range(3)


class TensorProtoDataType(enum.IntEnum):
    """ONNX's numbers for dtypes."""

    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    INT32 = 6
    INT64 = 7
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11
    BFLOAT16 = 16
