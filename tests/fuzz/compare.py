"""Comparing what two libraries answered: values within what rounding explains, and everything else exactly."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

# how many units in the last place two ways of computing one operator may be apart, relative to the largest value there
TOLERANCE = {"float32": 3e-6, "float64": 1e-13, "float16": 2e-3, "bfloat16": 1.6e-2, "complex64": 3e-6, "complex128": 1e-13}
TINIEST = {"float32": 2.0**-149, "float64": 2.0**-1074, "float16": 2.0**-24, "bfloat16": 2.0**-133, "complex64": 2.0**-149,
           "complex128": 2.0**-1074}     # the distance of the numbers next to 0, whose last places are all that they have


class Difference(NamedTuple):
    """Where two runs part: the number of the step, the operator, the kind of difference and the particulars."""

    step: int
    op: str
    kind: str
    detail: str

    @property
    def signature(self) -> tuple[str, str]:
        return self.op, self.kind


def dtype_name(t: Any) -> str:
    return str(t.dtype).removeprefix("torch.").removeprefix("flambeau.")


_WIDENED = {"bfloat16": "float", "complex32": "cfloat"}


def array(t: Any) -> np.ndarray:
    """A tensor's values, widened where NumPy has no such dtype."""
    t = t.detach().clone().cpu()  # numpy() of a tensor of torch's makes its storage one that cannot be resized
    if dtype_name(t) in _WIDENED:
        t = getattr(t, _WIDENED[dtype_name(t)])()
    if hasattr(t, "resolve_conj"):
        t = t.resolve_conj().resolve_neg()
    return t.numpy()


def strides(t: Any) -> tuple[int, ...]:
    """The strides that say something: none for dimensions of one element, none where there is no element."""
    return tuple(s for s, n in zip(t.stride(), t.shape) if n > 1) if t.numel() else ()


def layout(ours: Any, theirs: Any) -> tuple[str, str] | None:
    """A difference of dtype, shape or strides."""
    for kind, of in (("dtype", dtype_name), ("shape", lambda t: tuple(t.shape)), ("strides", strides)):
        a, b = of(ours), of(theirs)
        if a != b:
            return kind, f"{kind} {a}, torch {b}"
    if ours.storage_offset() != theirs.storage_offset() and theirs.numel():
        return "offset", f"storage offset {ours.storage_offset()}, torch {theirs.storage_offset()}"
    return None


def closeness(dtype: str, theirs: np.ndarray) -> float:
    """The absolute difference that rounding explains in an array of this dtype."""
    finite = np.abs(theirs[np.isfinite(theirs)])
    return TOLERANCE.get(dtype, 0.0) * (float(finite.max()) if finite.size else 0.0)


def wrong(ours: np.ndarray, theirs: np.ndarray, dtype: str, allowed: Any = 0.0) -> Any:
    """A mask of the elements that differ by more than some last places; `allowed` is what a disturbance of the inputs comes to, an array
    or a number."""
    if ours.dtype.kind not in "fc":
        return (ours != theirs) & ~((allowed > 0) if np.ndim(allowed) else False)
    with np.errstate(all="ignore"):
        nearly = np.abs(ours - theirs) <= 4 * (TOLERANCE.get(dtype, 0.0) * np.abs(theirs) + TINIEST.get(dtype, 0.0)) + allowed
        nearly = (nearly & np.isfinite(theirs)) | np.isinf(allowed)     # nothing finite is near an infinity
    # which part of a complex number overflows first is nobody's promise
    lost = ~np.isfinite(ours) & ~np.isfinite(theirs) if ours.dtype.kind == "c" else np.isnan(ours) & np.isnan(theirs)
    return ~((ours == theirs) | lost | nearly)


def unlike(ours: np.ndarray, theirs: np.ndarray, dtype: str, allowed: Any = 0.0, excused: Any = False) -> str | None:
    """A difference of values, in words; `excused` is a mask."""
    found = wrong(ours, theirs, dtype, allowed) & ~np.asarray(excused)
    if not np.any(found):
        return None
    at = tuple(int(i) for i in np.argwhere(found)[0]) if found.ndim else ()
    return f"{int(np.sum(found))} of {found.size} values, at {at}: {ours[at]}, torch {theirs[at]}"
