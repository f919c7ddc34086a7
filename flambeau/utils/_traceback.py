"""Where a call came from: gathered at once, read when somebody looks."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any


def gather_traceback(python: bool = True, script: bool = False, cpp: bool = False) -> traceback.StackSummary | None:
    """The frames of Python that led here, if `python`; there are none of TorchScript, and those of native code are not gathered."""
    if cpp:
        raise NotImplementedError("gather_traceback(cpp=True) is not implemented; frames of Python are gathered")
    return traceback.extract_stack(limit=None)[:-1] if python or script else None  # type: ignore[return-value]


def symbolize_tracebacks(tracebacks: Sequence[Any]) -> list[list[dict[str, Any]]]:
    """Each as a list of {name, filename, line}, innermost first."""
    return [[{"name": f.name, "filename": f.filename, "line": f.lineno} for f in reversed(frames or ())] for frames in tracebacks]


__all__: list[str] = []
