"""CPU kernels."""

from __future__ import annotations

from ... import _C


def get_cpu_capability() -> str:
    """The vector instructions that are used on this processor, as torch names them: "AVX512", "AVX2" or "DEFAULT"."""
    found = _C.instruction_set().partition("_")[0]
    return found if found in ("AVX512", "AVX2") else "DEFAULT"
