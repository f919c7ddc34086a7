"""What handlers and variables are given, under the names that annotations use: classes of modules that import theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .frame import Frame as Frame
    from .replacement import Writer as Writer
    from .trace import Trace as Trace
else:
    Frame = Trace = Writer = Any
