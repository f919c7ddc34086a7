"""torch.testing: `assert_close`, and tensors of random numbers for tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core.device import device as _device
from ..core.dtypes import bfloat16, complex64, complex128, dtype, float16, float32, float64, promote_types
from ..core.tensor import Tensor
from ..ops.registry import OPERATORS

# (rtol, atol) by dtype; exact for all others.
TOLERANCES: dict[dtype, tuple[float, float]] = {
    float16: (1e-3, 1e-5),
    bfloat16: (1.6e-2, 1e-5),
    float32: (1.3e-6, 1e-5),
    float64: (1e-7, 1e-7),
    complex64: (1.3e-6, 1e-5),
    complex128: (1e-7, 1e-7),
}


def default_tolerances(*inputs: Tensor | dtype) -> tuple[float, float]:
    """(rtol, atol): the widest among the dtypes."""
    kinds = [x.dtype if isinstance(x, Tensor) else x for x in inputs]
    pairs = [TOLERANCES.get(kind, (0.0, 0.0)) for kind in kinds]
    return max(r for r, _ in pairs), max(a for _, a in pairs)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raise AssertionError unless |actual - expected| <= atol + rtol * |expected| everywhere.

    Tensors, numbers, and sequences and mappings of them. Default tolerances follow the dtype (float32: rtol 1.3e-6, atol 1e-5;
    float64: 1e-7 both; float16: 1e-3, 1e-5; bfloat16: 1.6e-2, 1e-5; exact for integers). `msg` replaces the message, or makes one
    of it.
    """
    if (rtol is None) != (atol is None):
        raise ValueError(f"rtol and atol must both be specified or both be left out, got rtol={rtol} and atol={atol}")
    options = _Options(rtol, atol, equal_nan, check_device, check_dtype, check_stride, allow_subclasses)
    problem = _difference(actual, expected, "", options)
    if problem is not None:
        raise AssertionError(problem if msg is None else msg(problem) if callable(msg) else msg)


class _Options:
    def __init__(
        self, rtol: float | None, atol: float | None, equal_nan: bool, device: bool, dtype: bool, stride: bool, subclasses: bool
    ) -> None:
        self.rtol, self.atol, self.equal_nan = rtol, atol, equal_nan
        self.device, self.dtype, self.stride, self.subclasses = device, dtype, stride, subclasses


def _difference(actual: Any, expected: Any, where: str, options: _Options) -> str | None:
    """What is different, as a message; None when all is close."""
    place = f"\n\nThe failure occurred for item {where}" if where else ""
    if isinstance(actual, (str, bytes)) or isinstance(expected, (str, bytes)):
        return None if actual == expected else f"Expected {expected!r} but got {actual!r}.{place}"
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if set(actual) != set(expected):
            return f"The keys of the mappings do not match: got {sorted(map(str, actual))}, expected {sorted(map(str, expected))}{place}"
        return _first(_difference(actual[k], expected[k], f"{where}[{k!r}]", options) for k in expected)
    if isinstance(actual, Sequence) and isinstance(expected, Sequence):
        if len(actual) != len(expected):
            return f"The length of the sequences mismatch: {len(actual)} != {len(expected)}{place}"
        return _first(_difference(a, e, f"{where}[{i}]", options) for i, (a, e) in enumerate(zip(actual, expected)))
    if actual is None or expected is None:
        return None if actual is expected else f"None mismatch: {actual!r} is not {expected!r}{place}"
    if not options.subclasses and type(actual) is not type(expected):
        raise TypeError(f"types differ: {type(actual).__name__} and {type(expected).__name__}")
    problem = _tensor_difference(_as_tensor(actual), _as_tensor(expected), isinstance(actual, Tensor), options)
    return None if problem is None else problem + place


def _first(problems: Any) -> str | None:
    return next((p for p in problems if p is not None), None)


def _as_tensor(x: Any) -> Tensor:
    if isinstance(x, Tensor):
        return x.detach()
    try:
        return OPERATORS["as_tensor"](x, dtype=float64 if isinstance(x, float) else None)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"No comparison pair was able to handle inputs of type {type(x)}: {error}") from None


def _tensor_difference(actual: Tensor, expected: Tensor, tensors: bool, options: _Options) -> str | None:
    if actual.shape != expected.shape:
        return f"The values for attribute 'shape' do not match: {actual.shape} != {expected.shape}."
    facts = [("device", options.device), ("dtype", options.dtype and tensors)]
    for name, wanted in facts:
        if wanted and getattr(actual, name) != getattr(expected, name):
            return f"The values for attribute '{name}' do not match: {getattr(actual, name)} != {getattr(expected, name)}."
    if options.stride and actual.stride() != expected.stride():
        return f"The values for attribute 'stride()' do not match: {actual.stride()} != {expected.stride()}."
    if options.rtol is None or options.atol is None:
        rtol, atol = default_tolerances(actual, expected)
    else:
        rtol, atol = options.rtol, options.atol
    kind = promote_types(actual.dtype, expected.dtype)
    kind = complex128 if kind.is_complex else float64 if kind.is_floating_point else kind
    same = OPERATORS["isclose"](actual.to(kind), expected.to(kind), rtol=rtol, atol=atol, equal_nan=options.equal_nan)
    if bool(same.all()):
        return None
    return _mismatch(actual, expected, same, rtol, atol)


def _mismatch(actual: Tensor, expected: Tensor, same: Tensor, rtol: float, atol: float) -> str:
    """torch's report: how many elements, and the greatest differences."""
    wide = complex128 if actual.dtype.is_complex else float64
    got, want = actual.to(wide).reshape(-1), expected.to(wide).reshape(-1)
    wrong = [i for i, ok in enumerate(same.reshape(-1).tolist()) if not ok]
    absolute = {i: abs(got[i].item() - want[i].item()) for i in wrong}
    relative = {i: absolute[i] / abs(want[i].item()) if want[i].item() != 0 else math.inf for i in wrong}
    exact = rtol == atol == 0
    head = "Tensor-likes are not equal!" if exact else "Tensor-likes are not close!"
    if actual.ndim == 0:
        head = f"Scalars are not {'equal' if exact else 'close'}!\n\nExpected {expected.item()} but got {actual.item()}."
        return (
            f"{head}\nAbsolute difference: {absolute[0]}{_allowed(atol, exact)}\nRelative difference: {relative[0]}{_allowed(rtol, exact)}"
        )
    by_abs, by_rel = max(absolute, key=lambda i: _rank(absolute[i])), max(relative, key=lambda i: _rank(relative[i]))
    return (
        f"{head}\n\nMismatched elements: {len(wrong)} / {got.numel()} ({len(wrong) / got.numel():.1%})"
        f"\nGreatest absolute difference: {absolute[by_abs]} at index {_unravel(by_abs, actual.shape)}{_allowed(atol, exact)}"
        f"\nGreatest relative difference: {relative[by_rel]} at index {_unravel(by_rel, actual.shape)}{_allowed(rtol, exact)}"
    )


def _rank(x: float) -> float:
    return math.inf if math.isnan(x) else x


def _allowed(tolerance: float, exact: bool) -> str:
    return "" if exact else f" (up to {tolerance} allowed)"


def _unravel(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    index: list[int] = []
    for size in reversed(shape):
        flat, rest = divmod(flat, size)
        index.append(rest)
    return tuple(reversed(index))


def assert_allclose(
    actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None, equal_nan: bool = True, msg: str = ""
) -> None:
    """The old form of `assert_close`: dtypes and devices may differ."""
    assert_close(
        actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=False, check_dtype=False, msg=msg or None
    )


def make_tensor(
    *shape: Any,
    dtype: dtype,
    device: _device | str = "cpu",
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """A tensor of numbers drawn evenly from [low, high); by default [-9, 9), for bool and unsigned dtypes from 0."""
    sizes = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    unsigned = dtype.category == 0 or not dtype.is_signed
    first = (0 if unsigned else -9) if low is None else low
    last = (
        ((2 if dtype.category == 0 else 10) if not dtype.is_floating_point and not dtype.is_complex else 9)
        if high is None
        else high
    )
    stretched = (*sizes[:-1], sizes[-1] * 2) if noncontiguous and sizes else sizes
    if dtype.category < 2:
        made = OPERATORS["randint"](int(first), int(last), stretched, device=device).to(dtype)
    else:
        real = float64 if dtype.to_real() is float64 else float32
        made = OPERATORS["rand"](stretched, dtype=real, device=device) * (last - first) + first
        if dtype.is_complex:
            imaginary = OPERATORS["rand"](stretched, dtype=real, device=device) * (last - first) + first
            made = OPERATORS["complex"](made, imaginary)
        made = made.to(dtype)
    if noncontiguous and sizes:
        made = made[..., ::2]
    if exclude_zero:
        made = OPERATORS["where"](made == 0, OPERATORS["ones_like"](made), made)
    if memory_format is not None:
        made = made.contiguous(memory_format=memory_format)
    made = made.detach()
    made.requires_grad = requires_grad
    return made


__all__ = ["assert_close", "assert_allclose", "make_tensor"]
