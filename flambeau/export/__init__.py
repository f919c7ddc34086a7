"""torch.export: not implemented; `torch.compile(fullgraph=True)` captures whole programs."""

from __future__ import annotations

from typing import Any

from .._absent import absent

_INSTEAD = "torch.compile(model, fullgraph=True) captures a whole program, and torch.fx.symbolic_trace gives its graph"
export = absent("torch.export.export", _INSTEAD)
export_for_training = absent("torch.export.export_for_training", _INSTEAD)
save = absent("torch.export.save", _INSTEAD)
load = absent("torch.export.load", _INSTEAD)
unflatten = absent("torch.export.unflatten", _INSTEAD)
Dim = absent("torch.export.Dim", _INSTEAD)
dims = absent("torch.export.dims", _INSTEAD)
register_dataclass = absent("torch.export.register_dataclass", _INSTEAD)


class ExportedProgram:
    """What torch.export.export gives in torch; here a name for annotations and isinstance."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"torch.export.ExportedProgram is not implemented; {_INSTEAD}")
