"""torch.utils.cpp_extension: extensions in C++ are built against PyTorch's C++ library, which is not here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from typing import Any

from .._absent import absent_names
from ..core.settings import told
from ..torch_version import TorchVersion

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
    """Whether the build tool Ninja can be run."""
    return shutil.which("ninja") is not None


def verify_ninja_availability() -> None:
    """RuntimeError unless Ninja can be run."""
    if not is_ninja_available():
        raise RuntimeError("Ninja is required to load C++ extensions (pip install ninja to get it)")


def get_cxx_compiler() -> str:
    """The C++ compiler: what CXX says, or c++."""
    return told("CXX", "c++")


def _says(compiler: str, *flags: str) -> str | None:
    """What a compiler prints; None where it cannot be run."""
    try:
        done = subprocess.run([compiler, *flags], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout + done.stderr if done.returncode == 0 else None


def check_compiler_is_gcc(compiler: str) -> bool:
    """Whether it is GCC's C++ compiler, under whatever name."""
    about = _says(compiler, "-v") or ""
    return "gcc version" in about and "clang" not in about


def check_compiler_ok_for_platform(compiler: str) -> bool:
    """Whether it can be run and is GCC on Linux, Clang on macOS; elsewhere any is."""
    if sys.platform == "darwin":
        return "clang" in (_says(compiler, "--version") or "")
    return check_compiler_is_gcc(compiler) if sys.platform == "linux" else True


_LEAST_GCC = (5, 0, 0)


def get_compiler_abi_compatibility_and_version(compiler: str) -> tuple[bool, TorchVersion]:
    """(whether what it builds fits today's C++ ABI, its version); (False, "0.0.0") for one that cannot be run or is not the platform's."""
    if not check_compiler_ok_for_platform(compiler):
        warnings.warn(f"the compiler {compiler!r} is not the one of this platform, or cannot be run", UserWarning, stacklevel=2)
        return False, TorchVersion("0.0.0")
    version = (_says(compiler, "-dumpfullversion", "-dumpversion") or "0.0.0").strip()
    numbers = tuple(int(part) for part in version.split(".") if part.isdigit())
    return sys.platform != "linux" or numbers >= _LEAST_GCC, TorchVersion(version)


def check_compiler_abi_compatibility(compiler: str) -> bool:
    """Whether what a compiler builds fits today's C++ ABI."""
    return get_compiler_abi_compatibility_and_version(compiler)[0]


def get_default_build_root() -> str:
    """The folder in which extensions would be built, one folder each."""
    return os.path.realpath(os.path.join(os.path.expanduser("~"), ".cache", "torch_extensions"))


def remove_extension_h_precompiler_headers() -> None:
    """Nothing to remove: no headers are compiled ahead."""


__getattr__: Any = absent_names(
    __name__, ("load", "load_inline", "CppExtension", "CUDAExtension", "SyclExtension", "BuildExtension"), _INSTEAD)
