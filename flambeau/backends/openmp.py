"""torch.backends.openmp: whether OpenMP serves the CPU kernels."""

from __future__ import annotations


def is_available() -> bool:
    """True: compiled kernels run in OpenMP threads."""
    return True
