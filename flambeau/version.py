"""What was built, as torch.version tells it: no CUDA, no ROCm, no XPU."""

from __future__ import annotations

__version__ = "2.13.0+flambeau"
"""The PyTorch release whose behaviour is followed."""

debug = False
cuda: str | None = None
hip: str | None = None
xpu: str | None = None
rocm: str | None = None
git_version = "unknown"
