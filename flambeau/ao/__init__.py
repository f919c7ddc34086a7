"""torch.ao: quantisation is not implemented; the names are there for libraries that import them."""

from __future__ import annotations

from .._lazy import submodules
from . import quantization

__getattr__ = submodules(__name__)
