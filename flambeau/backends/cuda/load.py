"""Loading the CUDA backend when a tensor first meets a GPU."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

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
            importlib.import_module("cupy")
        except ImportError as error:
            raise RuntimeError(f"Torch not compiled with CUDA enabled: {INSTALL_HINT} ({error})") from None
        kernels = importlib.import_module(__package__ + ".kernels")
        kernels.install(primitives, movers, importlib.import_module(__package__ + ".arrays"))
        importlib.import_module(__package__ + ".dnn").install(primitives)
        importlib.import_module(__package__ + ".blaslt").install(composites)
        if importlib.util.find_spec("triton") is not None:
            steps["cuda"] = importlib.import_module(__package__ + ".steps").STEPS
            kernels.prefer_generated(primitives, composites, generated)
            importlib.import_module(__package__ + ".attention").install(composites)
        done = True

    return load
