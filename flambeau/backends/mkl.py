"""torch.backends.mkl: whether MKL serves the CPU kernels."""

from __future__ import annotations


def is_available() -> bool:
    """False: BLAS and LAPACK come from NumPy and SciPy."""
    return False
