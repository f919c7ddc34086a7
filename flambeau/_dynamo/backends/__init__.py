"""Backends, and what they are made with."""

from ..._lazy import submodules

__getattr__ = submodules(__name__, "common", "cudagraphs", "debugging", "inductor", "registry")
