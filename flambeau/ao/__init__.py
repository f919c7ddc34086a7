"""torch.ao: quantisation is not implemented; the names are there for libraries that import them."""

from __future__ import annotations

from . import quantization
