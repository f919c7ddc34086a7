"""Loading the CUDA backend when a tensor first meets a GPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from ...core.device import enter_gpu
from ...core.lazy import LazyModule

_arrays, _attention, _blas, _blaslt = [LazyModule(f"flambeau.backends.cuda.{name}") for name in ("arrays", "attention", "blas", "blaslt")]
_dnn, _kernels, _steps, _subnormals = [LazyModule(f"flambeau.backends.cuda.{name}") for name in ("dnn", "kernels", "steps", "subnormals")]
INSTALL_HINT = "NVIDIA GPUs need CuPy: pip install 'flambeau[cuda]' (or cupy-cuda13x for CUDA 13)"


def loader(primitives: dict[str, Any], composites: dict[str, Any], movers: dict, steps: dict, generated: Callable) -> Any:
    """A function that fills in the "cuda" column of the table, once; RuntimeError with what to install if it cannot.

    `generated(record, arrays)` is asked for a generated kernel's results first; it answers NotImplemented where there is none.
    """
    done = False

    def load() -> None:
        nonlocal done
        if done:
            return
        try:
            import cupy  # noqa: F401
        except ImportError as error:
            raise RuntimeError(f"Torch not compiled with CUDA enabled: {INSTALL_HINT} ({error})") from None
        _subnormals.keep()
        enter_gpu[:] = [_arrays.elsewhere]
        _kernels.install(primitives, movers, _arrays)
        _dnn.install(primitives)
        _blaslt.install(composites)
        composites["_wide_product"].has_kernel("cuda", _blas.wide_bmm, stays_whole=lambda args: True)
        if importlib.util.find_spec("triton") is not None:
            steps["cuda"] = _steps.STEPS
            _kernels.prefer_generated(primitives, composites, generated)
            _attention.install(composites)
        done = True

    return load
