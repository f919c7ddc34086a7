"""The op table: primitives (`ops.prims`) and the operators above them, by family. Importing this fills the table."""

from __future__ import annotations

import importlib
import importlib.util

FAMILIES = ("pointwise", "views", "reductions", "sorting", "creation", "indexing", "linalg", "random", "math", "printing", "nn")

for _family in FAMILIES:
    if importlib.util.find_spec(f"{__name__}.{_family}") is not None:
        importlib.import_module(f"{__name__}.{_family}")
