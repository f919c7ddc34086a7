"""Modules whose activations are recomputed, or kept on the host."""

from __future__ import annotations

from ...._lazy import submodules

__getattr__ = submodules(__name__, "checkpoint_wrapper")
