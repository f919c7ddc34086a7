"""What surrounds training: data loading, safetensors files, and other tools (`torch.utils`)."""

from pathlib import Path
from typing import Any

from .._lazy import submodules
from .swapping import swap_tensors

cmake_prefix_path = str(Path(__file__).parents[1] / "include")
"""Where CMake would look: headers of the native module; there is no libtorch to link to."""


def set_module(obj: Any, mod: str | None) -> None:
    """Let `obj` say that it comes from the module `mod`."""
    if not isinstance(mod, str):
        raise TypeError("The mod argument should be a string")
    obj.__module__ = mod


__getattr__ = submodules(
    __name__, "_contextlib", "_foreach_utils", "_ordered_set", "_python_dispatch", "_pytree", "_traceback", "_triton", "benchmark",
    "bottleneck", "checkpoint", "collect_env", "cpp_extension", "data", "deterministic", "dlpack", "flop_counter", "hooks", "model_zoo",
    "module_tracker", "safetensors", "tensorboard", "weak")
