"""The op table: primitives (`ops.prims`) and the operators above them, by family. Importing this fills the table."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from ..backends.cuda.load import loader
from .conversions import MOVERS
from .custom import NAMESPACES, Namespace, load_library
from .nn.steps import FUSED
from .primitives import BACKENDS, on_gpu
from .registry import COMPOSITES, OPERATORS, PRIMITIVES

FAMILIES = ("pointwise", "formulas", "views", "conversions", "reductions", "creation", "counting", "patterns", "joining", "indexing",
            "linalg.products", "linalg.decompositions", "linalg.inverses", "linalg.factors", "linalg.norms", "random", "random_fill",
            "sorting", "math", "implicit", "fft", "polynomials", "printing", "facts", "shapes", "nn.activations", "nn.attention",
            "nn.dropout", "nn.losses", "nn.norms", "nn.resize", "nn.steps", "nn.windows", "nn.layers", "nn.torch_forms",
            "nn.fractional", "foreach", "signal", "aliases", "wrappers", "asked", "quantize", "segments")
for _family in FAMILIES:
    importlib.import_module(f"{__name__}.{_family}")


def __getattr__(name: str) -> Any:
    """An operator of the table, a module of this room, or a namespace of custom operators (`torch.ops.NAMESPACE`)."""
    found = OPERATORS.get(name)
    if found is not None:
        return found
    if name.startswith("__"):
        raise AttributeError(f"module 'flambeau.ops' has no attribute '{name}'")
    if importlib.util.find_spec(f"{__name__}.{name}") is not None:
        return importlib.import_module(f"{__name__}.{name}")
    return NAMESPACES.setdefault(name, Namespace(name))    # a namespace may be named before its operators are defined


BACKENDS["cuda"] = loader(PRIMITIVES, COMPOSITES, MOVERS, FUSED, on_gpu)
