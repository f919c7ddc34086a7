"""torch.utils.cpp_extension: extensions in C++ are built against PyTorch's C++ library, which is not here."""

from __future__ import annotations

from typing import Any

from .._absent import absent_names

_INSTEAD = "Flambeau has no libtorch: write the operator in Python (torch.library.custom_op) and compile it with torch.compile"

CUDA_HOME: str | None = None
ROCM_HOME: str | None = None
IS_HIP_EXTENSION = False


def include_paths(device_type: str = "cpu", torch_include_dirs: bool = True) -> list[str]:
    """Folders of headers: none, as there is no C++ interface."""
    return []


def library_paths(device_type: str = "cpu", torch_include_dirs: bool = True, cross_target_platform: str | None = None) -> list[str]:
    """Folders of libraries: none, as there is no C++ interface."""
    return []


def is_ninja_available() -> bool:
    """False: nothing is built."""
    return False


__getattr__: Any = absent_names(__name__, (
    "load", "load_inline", "CppExtension", "CUDAExtension", "SyclExtension", "BuildExtension", "check_compiler_abi_compatibility",
    "verify_ninja_availability", "get_default_build_root", "get_compiler_abi_compatibility_and_version"), _INSTEAD)
