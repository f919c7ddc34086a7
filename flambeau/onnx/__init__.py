"""torch.onnx: models in ONNX, written from exported programs (docs/onnx.md). Importing it needs no other package; exporting needs onnx."""

from __future__ import annotations

import abc
from collections.abc import Callable

from .._absent import absent, absent_type
from .._lazy import submodules
from ..nn.modules.module import Module
from . import errors, symbolic_helper, symbolic_opset9, symbolic_opset11, symbolic_opset12  # type: ignore[attr-defined]    # homes of names
from .enums import OperatorExportTypes, TensorProtoDataType, TrainingMode
from .exporting import SYMBOLICS, export, is_in_onnx_export
from .program import ONNXProgram

dynamo_export = absent("torch.onnx.dynamo_export", "torch.onnx.export is what it has become")
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



def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Callable, opset_version: int) -> None:
    """Note how an operator ("namespace::name") is exported with `dynamo=False`, from an opset on: `symbolic_fn(g, *args)`."""
    SYMBOLICS[symbolic_name, opset_version] = symbolic_fn


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Forget it."""
    SYMBOLICS.pop((symbolic_name, opset_version), None)
