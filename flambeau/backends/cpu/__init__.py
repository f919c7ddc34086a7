"""CPU kernels."""

from __future__ import annotations

import functools
from pathlib import Path

# The widest vector instructions first, as Linux and torch name them.
_CAPABILITIES = (("avx512f", "AVX512"), ("avx2", "AVX2"))


@functools.cache
def get_cpu_capability() -> str:
    """The vector instructions of this processor: "AVX512", "AVX2" or "DEFAULT"."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    except OSError:
        return "DEFAULT"
    return next((name for flag, name in _CAPABILITIES if flag in flags), "DEFAULT")
