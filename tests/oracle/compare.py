"""Do two results agree? Structure, dtypes, shapes, strides and shared memory exactly; values within what their dtype explains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import flambeau

from .convert import array

# Relative to an element and to the largest one beside it, which is at least a thousandth: sums of some dozens of products in another
# order, and what is left where they cancel. Narrow floats are rounded
# once by one library and after each step by the other; both are then also held against the wide result.
TOLERANCE = {"float32": 2e-5, "complex64": 2e-5, "float64": 1e-9, "complex128": 1e-9, "float16": 2e-3, "bfloat16": 1.6e-2,
             "complex32": 4e-3}
AUTOCAST = TOLERANCE["bfloat16"]    # of what is computed in bfloat16 on the way, whatever the result's dtype


class Differs(Exception):
    """The two libraries differ; `kind` is the class of the difference."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


def is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor | flambeau.Tensor)


def leaves(value: Any) -> Iterator[Any]:
    """The tensors of a result, in order."""
    if is_tensor(value):
        yield value
    elif isinstance(value, list | tuple):
        for v in value:
            yield from leaves(v)
    elif isinstance(value, dict):
        for v in value.values():
            yield from leaves(v)


def dtype_name(t: Any) -> str:
    return str(t.dtype).rpartition(".")[2]


def _strides(t: Any) -> tuple[int, ...] | None:
    """Strides that say something: of dimensions with more than one element, in tensors that have any."""
    if str(t.layout).rpartition(".")[2] != "strided":
        return None
    return tuple(s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1) if t.numel() else ()


_FACTS = (("layout", lambda t: str(t.layout).rpartition(".")[2]), ("dtype", dtype_name), ("shape", lambda t: tuple(t.shape)),
          ("strides", _strides))


def same_structure(a: Any, b: Any) -> None:
    """Nested alike, with leaves of the same dtype, shape, layout and strides; `a` is ours."""
    if is_tensor(a) != is_tensor(b):
        raise Differs("structure", f"{type(a).__name__}, torch {type(b).__name__}")
    if is_tensor(b):
        for kind, fact in _FACTS:
            if fact(a) != fact(b):
                raise Differs(kind, f"{fact(a)}, torch {fact(b)}")
    elif isinstance(b, list | tuple):
        if not isinstance(a, list | tuple) or len(a) != len(b):
            raise Differs("structure", f"{type(a).__name__} {len(a) if hasattr(a, '__len__') else ''}, torch {type(b).__name__} {len(b)}")
        for x, y in zip(a, b, strict=True):
            same_structure(x, y)


def same_values(a: Any, b: Any, wide: Any = None, kind: str = "values", least: float = 0.0) -> None:
    """Alike within tolerance (`least` at least), or ours as near to `wide`, torch's result in a wider dtype, as torch's own."""
    if is_tensor(b):
        _same_array(array(a), array(b), array(wide) if is_tensor(wide) else None, dtype_name(b), kind, least)
    elif isinstance(b, list | tuple):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            same_values(x, y, wide[i] if isinstance(wide, list | tuple) else None, kind, least)
    elif isinstance(b, int | float | complex) and not np.allclose(a, b, rtol=2e-5, equal_nan=True):
        raise Differs(kind, f"{a}, torch {b}")


def _same_array(x: np.ndarray, y: np.ndarray, wide: np.ndarray | None, dtype: str, kind: str, least: float) -> None:
    if x.dtype.kind not in "fc" or x.shape != y.shape:
        if not np.array_equal(x, y):
            raise Differs(kind, f"{_first(x, y, x != y)}" if x.shape == y.shape else f"{x.shape}, torch {y.shape}")
        return
    with np.errstate(all="ignore"):
        bad = _beyond(x, y, max(least, TOLERANCE.get(dtype, 0.5)))
        if bad.any() and wide is not None and wide.shape == y.shape:
            error = np.abs(y - wide)
            bad &= ~(np.abs(x - wide) <= 4 * error + 4 * np.max(error[np.isfinite(error)], initial=0))
    if bad.any():
        raise Differs(kind, f"{dtype} {_first(x, y, bad)}")


def _beyond(x: np.ndarray, y: np.ndarray, tolerance: float) -> np.ndarray:
    finite = np.abs(y[np.isfinite(y)])
    scale = float(finite.max()) if finite.size else 0.0
    lost = ~np.isfinite(x) & ~np.isfinite(y) if x.dtype.kind == "c" else np.isnan(x) & np.isnan(y)
    return ~((x == y) | lost | (np.isfinite(y) & (np.abs(x - y) <= tolerance * (np.abs(y) + min(scale, 1e30) + 1e-3))))


def _first(x: np.ndarray, y: np.ndarray, bad: np.ndarray) -> str:
    i = tuple(np.argwhere(bad)[0]) if bad.ndim else ()
    return f"{x[i]}, torch {y[i]} at {tuple(map(int, i))} of {x.shape}, {int(bad.sum())} in all"


def _address(t: Any) -> Any:
    return t.untyped_storage().data_ptr() if str(t.layout).rpartition(".")[2] == "strided" and t.numel() else None


def shared(results: Any, inputs: Any) -> list[list[int]]:
    """Which inputs each result shares memory with."""
    places = [_address(t) for t in leaves(inputs)]
    return [[i for i, p in enumerate(places) if p is not None and p == _address(t)] for t in leaves(results)]
