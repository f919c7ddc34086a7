"""The op table: primitives (`ops.prims`) and the operators above them, by family. Importing this fills the table."""

from __future__ import annotations

import importlib
from typing import Any

from ..backends.cuda.load import loader
from .custom import NAMESPACES, load_library
from .nn_steps import FUSED
from .registry import BACKENDS, COMPOSITES, OPERATORS, PRIMITIVES, on_gpu
from .views import MOVERS

FAMILIES = ("pointwise", "views", "reductions", "creation", "indexing", "linalg", "random", "math", "polynomials", "printing",
            "facts", "shapes", "nn", "nn_torch", "nn_fractional", "foreach", "signal", "aliases")
for _family in FAMILIES:
    importlib.import_module(f"{__name__}.{_family}")


def __getattr__(name: str) -> Any:
    """An operator of the table, or a namespace of custom operators (`torch.ops.NAMESPACE`)."""
    if name == "aten":
        return importlib.import_module(f"{__name__}.aten")
    found = OPERATORS.get(name) or NAMESPACES.get(name)
    if found is None:
        raise AttributeError(f"module 'flambeau.ops' has no attribute '{name}': no such operator, and no namespace of custom operators")
    return found

BACKENDS["cuda"] = loader(PRIMITIVES, COMPOSITES, MOVERS, FUSED, on_gpu)
