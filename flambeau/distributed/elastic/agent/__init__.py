"""Launchers, one on each machine of a job."""

from __future__ import annotations

from ...._lazy import submodules

__getattr__ = submodules(__name__, "server")
