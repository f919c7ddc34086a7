"""Subnormal numbers: CuPy has its float32 kernels take them for 0; PyTorch's kernels, and Flambeau's own, keep them."""

from __future__ import annotations

from typing import Any

from cupy.cuda import compiler

_FLUSHING = "-ftz=true"


def keep() -> None:
    """Have CuPy compile its kernels without flushing in this process; in its cache on disk they lie under keys of their own."""
    name = "_compile_using_nvrtc_no_warning" if hasattr(compiler, "_compile_using_nvrtc_no_warning") else "compile_using_nvrtc"
    compiling, key = getattr(compiler, name), compiler._get_cupy_cache_key

    def keeping(source: str, options: tuple[str, ...] = (), *rest: Any, **named: Any) -> Any:
        return compiling(source, tuple(o for o in options if o != _FLUSHING), *rest, **named)

    setattr(compiler, name, keeping)
    compiler._get_cupy_cache_key = lambda: f"{key()} with subnormals"
