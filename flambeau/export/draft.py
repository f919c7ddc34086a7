"""torch.export.draft_export: a program though the sizes cannot vary as was said, and a report on that."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..dynamo.exceptions import UserError
from ..nn.modules.module import Module
from ..utils._pytree import tree_map
from .dims import Dim, DimHint, ShapesCollection
from .inputs import AdditionalInputs
from .program import ExportedProgram
from .tracing import export


@dataclass
class DraftExportReport:
    """What was not as it was said: the errors of the ways that were tried."""

    failures: list[str] = field(default_factory=list)

    def successful(self) -> bool:
        """Whether the program is what `export` gives."""
        return not self.failures

    def __str__(self) -> str:
        if self.successful():
            return "export found nothing to say of this program."
        return "\n\n".join([f"{len(self.failures)} attempts failed; the program's sizes vary less than was said:", *self.failures])


def draft_export(mod: Module, args: tuple, kwargs: Mapping[str, Any] | None = None, *, dynamic_shapes: Any = None,
                 preserve_module_call_signature: tuple[str, ...] = (), strict: bool = False,
                 prefer_deferred_runtime_asserts_over_guards: bool = False) -> ExportedProgram:
    """`export`; where sizes cannot vary as was said, with those that the code leaves free, and else with fixed ones. `_report` of the
    program (and a warning) tells why. What cannot be captured at all raises as in `export`."""
    given = dict(kwargs or {})
    if isinstance(dynamic_shapes, (ShapesCollection, AdditionalInputs)):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(mod, args, given)
    lenient = tree_map(lambda said: Dim.AUTO if isinstance(said, (Dim, DimHint)) and said is not Dim.STATIC else said, dynamic_shapes)
    report = DraftExportReport()
    for shapes in (dynamic_shapes, lenient, None):
        try:
            program = export(mod, args, given, dynamic_shapes=shapes, strict=strict,
                             preserve_module_call_signature=preserve_module_call_signature,
                             prefer_deferred_runtime_asserts_over_guards=prefer_deferred_runtime_asserts_over_guards)
        except UserError as error:
            if shapes is None:
                raise
            report.failures.append(str(error))
        else:
            break
    program._report = report  # type: ignore[attr-defined]
    if report.failures:
        warnings.warn(str(report), UserWarning, stacklevel=2)
    return program
