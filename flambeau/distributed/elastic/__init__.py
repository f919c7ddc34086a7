"""Processes that are started again: `torchrun` (`distributed/run.py`)."""

from __future__ import annotations

from ..._lazy import submodules

__getattr__ = submodules(__name__, "multiprocessing")
