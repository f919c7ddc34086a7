"""torch.onnx: export is not implemented. What libraries register for it at import is kept, and `export` says what to do instead."""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable

from .._absent import absent, absent_type
from .._lazy import submodules
from ..nn.modules.module import Module
from . import errors, symbolic_helper, symbolic_opset9, symbolic_opset11, symbolic_opset12

_INSTEAD = "save the weights with torch.save and run torch.onnx in PyTorch"
export = absent("torch.onnx.export", _INSTEAD)
dynamo_export = absent("torch.onnx.dynamo_export", _INSTEAD)
ONNXProgram = absent_type("torch.onnx.ONNXProgram", _INSTEAD)
InputObserver = absent_type("torch.onnx.InputObserver", "torch.export.AdditionalInputs finds which sizes vary")
OnnxExporterError = errors.OnnxExporterError
__getattr__ = submodules(__name__)


class ExportableModule(Module, abc.ABC):
    """A model that says by itself how it is exported: its example arguments, and what else is told."""

    @abc.abstractmethod
    def example_arguments(self) -> tuple[tuple, dict[str, object] | None]:
        """(args, kwargs) to export with."""

    def dynamic_shapes(self) -> object:
        """Which sizes vary; None: none do."""
        return None

    def input_names(self) -> list[str] | None:
        """Names of the inputs."""
        return None

    def output_names(self) -> list[str] | None:
        """Names of the outputs."""
        return None

# (operator, opset) -> symbolic function
SYMBOLICS: dict[tuple[str, int], Callable] = {}


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Callable, opset_version: int) -> None:
    """Note how an operator would be exported."""
    SYMBOLICS[symbolic_name, opset_version] = symbolic_fn


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Forget it."""
    SYMBOLICS.pop((symbolic_name, opset_version), None)


def is_in_onnx_export() -> bool:
    """False."""
    return False


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
