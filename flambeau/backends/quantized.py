"""torch.backends.quantized: there are no engines for quantised tensors."""

from __future__ import annotations

engine = "none"
supported_engines: list[str] = ["none"]
