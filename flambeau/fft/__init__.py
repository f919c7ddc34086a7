"""torch.fft: discrete Fourier transforms."""

from __future__ import annotations

from ..core.tensor import Tensor
from ..ops import OPERATORS as _OPERATORS

_NAMED = {name.removeprefix("fft_"): fn for name, fn in _OPERATORS.items() if name.startswith("fft_")}
globals().update(_NAMED)
__all__ = ["Tensor", *sorted(_NAMED)]
