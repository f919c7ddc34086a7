"""The older ways to compile, `optimize` and its kin."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

from .. import _C
from ..dynamo import OptimizedModule, compile, explain
from .exporting import ExportResult, export


def optimize(backend: Any = "inductor", *, nopython: bool = False, guard_export_fn: Any = None, guard_fail_fn: Any = None,
             disable: bool = False, dynamic: bool | None = None, **settings: Any) -> Callable[[Any], Any]:  # fmt: skip
    """The older spelling of `torch.compile`: `optimize("eager")(function)`."""
    for name, value in {"guard_export_fn": guard_export_fn, "guard_fail_fn": guard_fail_fn, **settings}.items():
        if value is not None:
            raise NotImplementedError(f"optimize({name}=...) is not implemented; torch._dynamo.explain shows guards, TORCH_LOGS=recompiles "
                                      "those that fail")
    return lambda target: compile(target, backend=backend, fullgraph=nopython, dynamic=dynamic, disable=disable)


def optimize_assert(backend: Any, *, dynamic: bool | None = None, **settings: Any) -> Callable[[Any], Any]:
    """`optimize` with `nopython=True`: a graph break is an error."""
    return optimize(backend, nopython=True, dynamic=dynamic, **settings)


def is_dynamo_supported() -> bool:
    """Whether graph capture works on this Python: always, where Flambeau runs at all."""
    return True


def skip_code(code: CodeType) -> None:
    """Never capture frames of this code."""
    _C.skip_code(code)


def innermost_fn(fn: Callable) -> Callable:
    """The function that was compiled, below all that was put around it."""
    while (inner := getattr(fn, "_torchdynamo_orig_callable", None)) is not None:
        fn = inner
    return fn


__all__ = ["ExportResult", "OptimizedModule", "explain", "export", "innermost_fn", "is_dynamo_supported", "optimize", "optimize_assert",
           "skip_code"]
