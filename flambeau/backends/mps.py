"""torch.backends.mps: Apple's GPUs are not supported."""

from __future__ import annotations


def is_built() -> bool:
    """False: no support for Apple's GPUs in this build."""
    return False


def is_available() -> bool:
    """False: no support for Apple's GPUs."""
    return False


def is_macos_or_newer(major: int, minor: int) -> bool:
    """False: not a machine with Metal support."""
    return False


def is_macos13_or_newer(minor: int = 0) -> bool:
    """False: not a machine with Metal support."""
    return False
