"""Windows of images as columns, and back."""

from __future__ import annotations

from .. import functional as F
from .applied import FunctionModule


class Fold(FunctionModule, function=F.fold):
    """Columns of windows added up into images: the transpose of Unfold."""


class Unfold(FunctionModule, function=F.unfold):
    """Sliding windows of images as columns."""
