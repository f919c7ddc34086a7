"""The OpenMP runtime of the native module, oneDNN and generated kernels: the system's or, where it has none, the copy that a wheel brings.

All ask for it by its name, so whichever is loaded first is everybody's: one set of threads in a process.
"""

from __future__ import annotations

from pathlib import Path

COPY = Path(__file__).parent / "lib" / "libgomp.so.1"

try:
    from . import _C  # noqa: F401  its loader finds the system's
except ImportError as error:
    if COPY.name not in str(error) or not COPY.exists():
        raise
    import ctypes
    ctypes.CDLL(str(COPY), ctypes.RTLD_GLOBAL)
