"""`python -m torch.utils.collect_env`: what a report of a fault should say of the machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from typing import NamedTuple

from .. import cuda
from ..version import __version__ as torch_version


class SystemEnv(NamedTuple):
    """What is told."""

    torch_version: str
    is_debug_build: str
    os: str
    python_version: str
    python_platform: str
    is_cuda_available: str
    nvidia_gpu_models: str
    cpu_info: str
    pip_packages: str


_RELEVANT = ("numpy", "ml_dtypes", "onednn-cpu-gomp", "safetensors", "scipy", "cupy", "triton", "mpi4py", "flambeau")


def _installed() -> str:
    found = []
    for name in _RELEVANT:
        try:
            found.append(f"{name}=={importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def get_env_info() -> SystemEnv:
    """The facts of this machine."""
    available = cuda.is_available()
    models = ", ".join(cuda.get_device_name(i) for i in range(cuda.device_count())) if available else "none"
    return SystemEnv(str(torch_version), "False", platform.platform(), f"{sys.version} ({sys.maxsize.bit_length() + 1}-bit runtime)",
                     platform.platform(), str(available), models, f"{platform.machine()}, {os.cpu_count()} processors", _installed())


def pretty_str(envinfo: SystemEnv) -> str:
    """The facts as text."""
    return "\n".join(f"{name.replace('_', ' ')}: {value}" for name, value in envinfo._asdict().items())


def get_pretty_env_info() -> str:
    """The facts of this machine as text."""
    return pretty_str(get_env_info())


def main() -> None:
    """Print them."""
    print("Collecting environment information...")
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
