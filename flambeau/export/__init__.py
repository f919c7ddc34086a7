"""torch.export: programs as graphs of ATen's operators, which run without the Python that made them. docs/export.md tells of it."""

from __future__ import annotations

from .._absent import absent_names
from .._lazy import submodules
from .dims import Dim, ShapesCollection, dims
from .graph_signature import ExportGraphSignature
from .program import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from .serialize import load, save
from .tracing import export

_INSTEAD = "torch.export.export gives the graph with its inputs flat"
__getattr__ = submodules(__name__, otherwise=absent_names("torch.export", (
    "export_for_training", "FlatArgsAdapter", "draft_export"), _INSTEAD))

__all__ = ["Dim", "ExportGraphSignature", "ExportedProgram", "ModuleCallEntry", "ModuleCallSignature", "ShapesCollection", "dims", "export",
           "load", "save"]
