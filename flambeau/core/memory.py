"""Host memory: the error where there is too little, and giving it back after a full garbage collection."""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import Any

import numpy as np

from flambeau import _C


def _describe(error: Any) -> str:
    shape, dtype = error.args
    free = _C.free_memory()
    return (f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {error._total_size} bytes for an array with shape {shape} "
            f"and data type {dtype}, and {free} bytes ({free / 2**30:.1f} GiB) are free")


def install() -> None:
    """Make NumPy's error for too little memory PyTorch's as well, and give freed memory back when the garbage collector has
    looked at everything.

    Arrays are made in many places, native and generated code among them, and where the allocator refuses, all of them raise
    NumPy's class. So that class becomes a RuntimeError too, and says what is free: as the allocator behind NumPy is replaced for
    all, so is what it says.
    """
    with suppress(AttributeError, TypeError):  # a NumPy to come: its MemoryError has to do
        kind = np._core._exceptions._ArrayMemoryError  # type: ignore[attr-defined]
        kind.__bases__ = (MemoryError, RuntimeError)
        kind.__str__ = _describe
    if _C.collected not in gc.callbacks:
        gc.callbacks.append(_C.collected)
