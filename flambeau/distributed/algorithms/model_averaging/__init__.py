"""Averages of models, now and then, in place of averages of gradients in each step."""

from __future__ import annotations

from ...._lazy import submodules

__getattr__ = submodules(__name__, "averagers", "hierarchical_model_averager")
