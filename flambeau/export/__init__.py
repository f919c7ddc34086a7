"""torch.export: not implemented; `torch.compile(fullgraph=True)` captures whole programs."""

from __future__ import annotations

from typing import Any

from .._absent import absent_names
from .._lazy import submodules

_INSTEAD = "torch.compile(model, fullgraph=True) captures a whole program, and torch.fx.symbolic_trace gives its graph"
__getattr__ = submodules(__name__, otherwise=absent_names("torch.export", (
    "export", "export_for_training", "save", "load", "unflatten", "Dim", "dims", "register_dataclass", "ExportGraphSignature",
    "FlatArgsAdapter", "UnflattenedModule", "draft_export", "ShapesCollection"), _INSTEAD))


class ExportedProgram:
    """What torch.export.export gives in torch; here a name for annotations and isinstance."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"torch.export.ExportedProgram is not implemented; {_INSTEAD}")
