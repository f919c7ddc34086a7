"""Jobs whose processes are started again, and whose machines may come and go: what `torchrun` (`distributed/run.py`) is made of."""

from __future__ import annotations

from ..._lazy import submodules

__getattr__ = submodules(__name__, "agent", "events", "metrics", "multiprocessing", "rendezvous", "timer", "utils")
