"""torch._dynamo.utils: counters, compile times, comparisons, and other functions that libraries ask for."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

from .._subclasses.fake_tensor import detect_fake_mode
from ..core.device import device
from ..core.tensor import Tensor
from ..core.warned import warn_once
from ..dynamo import config
from ..dynamo.counts import counters, seconds


def is_compile_supported(device_type: Any) -> bool:
    """Whether torch.compile serves a device type."""
    return device(device_type).type in ("cpu", "cuda")


@contextlib.contextmanager
def disable_cache_limit() -> Iterator[None]:
    """A block in which functions are compiled anew however often guards fail."""
    with config.patch(recompile_limit=sys.maxsize, accumulated_recompile_limit=sys.maxsize):    # type: ignore[attr-defined]
        yield


def compile_times(repr: str = "str", aggregate: bool = False) -> Any:
    """The seconds of all compilations so far, by stage: as text ("str"), or as names and rows ("csv")."""
    shown = {name: f"{sum(times):.4f}" if aggregate else ", ".join(f"{t:.4f}" for t in times) for name, times in seconds.items()}
    if repr == "csv":
        return list(shown), list(shown.values())
    if repr != "str":
        raise ValueError(f"compile_times: repr is 'str' or 'csv', got {repr!r}")
    width = max(map(len, shown), default=8)
    return "\n".join(["TorchDynamo compilation metrics:", f"{'Function':<{width}}  Runtimes (s)",
                      *(f"{name:<{width}}  {times}" for name, times in shown.items())])


def same(ref: Any, res: Any, fp64_ref: Any = None, cos_similarity: bool = False, tol: float = 1e-4, equal_nan: bool = False,
         exact_dtype: bool = True, ignore_non_fp: bool = False) -> bool:
    """Whether two results are equal, tensors up to rounding; with `fp64_ref`, whether `res` is about as near to that as `ref` is."""
    if isinstance(ref, (list, tuple)):
        exact: Sequence[Any] = fp64_ref if fp64_ref else [None] * len(ref)
        return type(ref) is type(res) and len(ref) == len(res) and all(
            same(a, b, c, cos_similarity, tol, equal_nan, exact_dtype, ignore_non_fp=ignore_non_fp) for a, b, c in zip(ref, res, exact))
    if isinstance(ref, dict):
        return ref.keys() == res.keys() and all(
            same(ref[k], res[k], fp64_ref[k] if fp64_ref else None, cos_similarity, tol, equal_nan, exact_dtype,
                 ignore_non_fp=ignore_non_fp) for k in ref)
    if not isinstance(ref, Tensor):
        return bool(ref == res) or (isinstance(ref, float) and abs(ref - res) <= tol * max(1.0, abs(ref)))
    if not isinstance(res, Tensor) or ref.shape != res.shape or (exact_dtype and ref.dtype is not res.dtype):
        return False
    if not ref.dtype.is_floating_point and not ref.dtype.is_complex:
        return ignore_non_fp or bool((ref == res).all())
    if ref.isclose(res, rtol=tol, atol=tol, equal_nan=equal_nan).all():
        return True
    if fp64_ref is not None:
        return rmse(fp64_ref, res.double()) <= 3 * rmse(fp64_ref, ref.double()) + tol / 10
    if cos_similarity:
        a, b = ref.double().flatten(), res.double().flatten()
        return bool((a @ b) / (a.norm() * b.norm()) >= 0.99)
    return False


def rmse(ref: Tensor, res: Tensor) -> float:
    """The root of the mean of squared differences."""
    return float((ref - res).abs().square().mean().sqrt()) if ref.numel() else 0.0


def clone_input(x: Tensor, *, dtype: Any = None) -> Tensor:
    """A copy with the same layout that is a leaf if `x` needs a gradient."""
    made = x.detach().clone()
    made = made if dtype is None else made.to(dtype)
    return made.requires_grad_(x.requires_grad)


def clone_inputs(example_inputs: Any) -> Any:
    """Copies of the tensors in a list or dict."""
    if isinstance(example_inputs, dict):
        return {key: clone_inputs(value) if isinstance(value, (list, tuple, dict)) else clone_input(value)
                for key, value in example_inputs.items()}
    return [clone_input(x) if isinstance(x, Tensor) else x for x in example_inputs]


def istype(obj: Any, allowed_types: Any) -> bool:
    """Whether the type of `obj` is one of these, and no subclass."""
    return type(obj) in allowed_types if isinstance(allowed_types, (tuple, list, set, frozenset)) else type(obj) is allowed_types


def is_namedtuple(obj: Any) -> bool:
    """Whether `obj` is of a class of collections.namedtuple."""
    return isinstance(obj, tuple) and hasattr(obj, "_fields")


def import_submodule(mod: types.ModuleType) -> None:
    """Import all modules of a package."""
    for found in pkgutil.iter_modules(mod.__path__):
        importlib.import_module(f"{mod.__name__}.{found.name}")


def reset_frame_count() -> None:
    """Count anew."""
    counters.clear()


__all__ = ["clone_input", "clone_inputs", "compile_times", "counters", "detect_fake_mode", "import_submodule", "is_compile_supported",
           "is_namedtuple", "istype", "reset_frame_count", "rmse", "same", "warn_once"]
