"""torch.signal.windows: symmetric windows (`sym=True`, for filters) and periodic ones (for spectra) of M points."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from ..core.dtypes import float32, float64
from ..core.memory_format import strided
from ..core.tensor import Tensor
from ..ops import signal
from ..ops.counting import arange
from ..ops.creation import ones
from ..ops.promotion import default_dtype


def _window(name: str, formula: Callable[[Tensor, int], Tensor], M: int, sym: bool = True, dtype: Any = None, layout: Any = strided,
            device: Any = None, requires_grad: bool = False, flat_point: bool = True) -> Tensor:
    """`formula(n, length)` at positions n of a symmetric window of that length; a `flat_point` is 1 whatever the formula."""
    kind = dtype or default_dtype()
    if type(M) is not int:
        raise TypeError(f"{name}(): the window length M must be int, not {type(M).__name__}")
    if M >= 1 << 63:
        raise ValueError(f"Overflow when unpacking long long: {name} of M={M}")
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    if layout is not strided:
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    if kind not in (float32, float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {kind}")
    if M == 0 or (M == 1 and flat_point):
        made = ones(M, dtype=kind, device=device)
    else:
        made = formula(arange(M, dtype=float64, device=device), M if sym or M == 1 else M + 1).to(kind)
    return made.requires_grad_(requires_grad)


def _positive(value: float, what: str) -> None:
    if value <= 0:
        raise ValueError(f"{what} must be positive, got: {value} instead.")


def bartlett(M: int, **options: Any) -> Tensor:
    """A triangle from 0 to 1 and back."""
    return _window("bartlett", signal.bartlett, M, **options)


def kaiser(M: int, *, beta: float = 12.0, **options: Any) -> Tensor:
    """The Kaiser window of shape `beta`, which must not be negative."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    return _window("kaiser", lambda n, length: signal.kaiser(n, length, beta), M, **options)


def cosine(M: int, **options: Any) -> Tensor:
    """Half a turn of a sine."""
    return _window("cosine", lambda n, length: ((n + 0.5) * (math.pi / length)).sin(), M, **options)


def exponential(M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, **options: Any) -> Tensor:
    """Decays by e in `tau` points on both sides of `center` (None: the middle; symmetric windows have no other)."""
    _positive(tau, "Tau")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")

    def formula(n: Tensor, length: int) -> Tensor:
        return ((n - ((length - 1) / 2 if center is None else center)).abs() / -tau).exp()

    return _window("exponential", formula, M, sym, flat_point=False, **options)


def gaussian(M: int, *, std: float = 1.0, **options: Any) -> Tensor:
    """A bell curve with standard deviation `std`, in points."""
    _positive(std, "Standard deviation")
    return _window("gaussian", lambda n, length: (((n - (length - 1) / 2) / std).square() * -0.5).exp(), M, **options)


def general_cosine(M: int, *, a: Iterable, **options: Any) -> Tensor:
    """a[0] - a[1] cos(x) + a[2] cos(2 x) - ..., where x turns once over the window."""
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    coefficients = tuple(a)
    if not coefficients:
        raise ValueError("Coefficients cannot be empty")
    return _window("general_cosine", lambda n, length: signal.cosines(n, length, *coefficients), M, **options)


def general_hamming(M: int, *, alpha: float = 0.54, **options: Any) -> Tensor:
    """alpha - (1 - alpha) cos(x)."""
    return general_cosine(M, a=(alpha, 1 - alpha), **options)


def hamming(M: int, **options: Any) -> Tensor:
    """0.54 - 0.46 cos(x)."""
    return general_hamming(M, **options)


def hann(M: int, **options: Any) -> Tensor:
    """0.5 - 0.5 cos(x): zero at both ends."""
    return general_hamming(M, alpha=0.5, **options)


def blackman(M: int, **options: Any) -> Tensor:
    """The Blackman window, of three cosines."""
    return general_cosine(M, a=(0.42, 0.5, 0.08), **options)


def nuttall(M: int, **options: Any) -> Tensor:
    """The minimum 4-term Blackman-Harris window of Nuttall (1981)."""
    return general_cosine(M, a=(0.3635819, 0.4891775, 0.1365995, 0.0106411), **options)


__all__ = ["bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann", "kaiser",
           "nuttall"]
