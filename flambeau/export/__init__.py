"""torch.export: programs as graphs of ATen's operators, which run without the Python that made them. docs/export.md tells of it."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

from .._absent import absent_names
from .._lazy import submodules
from ..utils import _pytree
from .decompose import CustomDecompTable, default_decompositions
from .dims import Dim, ShapesCollection, dims
from .draft import draft_export
from .dynamic_shapes import Constraint
from .graph_signature import ExportBackwardSignature, ExportGraphSignature
from .inputs import AdditionalInputs
from .program import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from .serialize import load, save
from .tracing import export
from .unflatten import UnflattenedModule, unflatten


def register_dataclass(cls: type, *, serialized_type_name: str | None = None) -> None:
    """Let a dataclass be an input or an output of exported programs, whose fields are tensors and the like."""
    if not dataclasses.is_dataclass(cls):
        raise AssertionError(f"Only dataclasses can be registered with this function: {cls}")
    name = f"{cls.__module__}.{cls.__qualname__}" if serialized_type_name is None else serialized_type_name
    _pytree.register_dataclass(cls, serialized_type_name=name)


class FlatArgsAdapter(abc.ABC):
    """How arguments of one structure are brought to another one: override `adapt`."""

    @abc.abstractmethod
    def adapt(self, target_spec: Any, input_spec: Any, input_args: list[Any], metadata: dict[str, Any] | None = None,
              obj: Any = None) -> list[Any]:
        """The arguments flat, as `target_spec` has them."""


_INSTEAD = "torch.export.export gives the graph with its inputs flat"
__getattr__ = submodules(__name__, otherwise=absent_names("torch.export", ("export_for_training",), _INSTEAD))

__all__ = [
    "AdditionalInputs", "Constraint", "CustomDecompTable", "Dim", "ExportBackwardSignature", "ExportGraphSignature", "ExportedProgram",
    "FlatArgsAdapter", "ModuleCallEntry", "ModuleCallSignature", "ShapesCollection", "UnflattenedModule", "default_decompositions", "dims",
    "draft_export", "export", "load", "register_dataclass", "save", "unflatten",
]
