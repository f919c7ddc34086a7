"""Which GPUs there are, what they are, and which is the current one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..backends.cuda import strays
from ..core.device import current_cuda
from .library import cupy, device_count, index_of


def is_available() -> bool:
    """Whether a GPU can be used."""
    return device_count() > 0


def is_initialized() -> bool:
    """Whether there is something that can be used: it starts by itself."""
    return is_available()


def init() -> None:
    """Nothing to do where there is a GPU; AssertionError where there is none."""
    cupy("init")


_lazy_init = init


def _lazy_call(callable: Callable[[], Any], **kwargs: Any) -> None:
    """Call it where there is a GPU: CUDA starts by itself, so nothing has to wait for it. Without one it would never be called."""
    if is_available():
        callable()


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the current GPU computes with bfloat16."""
    return is_available() and (including_emulation or get_device_capability()[0] >= 8)


def is_tf32_supported() -> bool:
    """Whether the current GPU has TF32 products."""
    return is_available() and get_device_capability()[0] >= 8


def get_arch_list() -> list[str]:
    """What kernels are made for: they are compiled when they are needed, for the GPUs at hand."""
    return sorted({"sm_{}{}".format(*get_device_capability(k)) for k in range(device_count())})


def current_device() -> int:
    """The number of the current GPU."""
    cupy("current_device")
    return current_cuda[0]


def set_device(device: Any) -> None:
    """Make a GPU the current one; a negative number changes nothing."""
    library, index = cupy("set_device"), index_of(device)
    if index >= device_count():
        raise RuntimeError(f"CUDA error: invalid device ordinal {index}: there are {device_count()} devices")
    if index >= 0:
        library.cuda.Device(index).use()
        current_cuda[0] = index


@contextmanager
def device(device: Any) -> Iterator[None]:
    """Make a GPU the current one for the block; -1 and None mean no change."""
    if device is None or (isinstance(device, int) and device < 0):
        yield
        return
    before = current_cuda[0]
    set_device(device)
    try:
        yield
    finally:
        set_device(before)


@contextmanager
def device_of(obj: Any) -> Iterator[None]:
    """Make the GPU of tensor `obj` the current one for the block; nothing for a CPU tensor."""
    with device(obj.device if obj.is_cuda else None):
        yield


def synchronize(device: Any = None) -> None:
    """Wait for all work of a GPU."""
    cupy("synchronize").cuda.Device(index_of(device)).synchronize()
    strays.check()


@dataclass(frozen=True)
class DeviceProperties:
    """What the driver says of a GPU; sizes in bytes."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int
    max_threads_per_multi_processor: int
    regs_per_multiprocessor: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    L2_cache_size: int
    is_integrated: bool
    is_multi_gpu_board: bool


_FIELDS = {
    "major": "major", "minor": "minor", "total_memory": "totalGlobalMem", "multi_processor_count": "multiProcessorCount",
    "warp_size": "warpSize", "max_threads_per_multi_processor": "maxThreadsPerMultiProcessor",
    "regs_per_multiprocessor": "regsPerMultiprocessor", "shared_memory_per_block": "sharedMemPerBlock",
    "shared_memory_per_block_optin": "sharedMemPerBlockOptin", "shared_memory_per_multiprocessor": "sharedMemPerMultiprocessor",
    "L2_cache_size": "l2CacheSize", "is_integrated": "integrated", "is_multi_gpu_board": "isMultiGpuBoard",
}


def get_device_properties(device: Any = None) -> DeviceProperties:
    """What the driver says of a GPU."""
    said = cupy("get_device_properties").cuda.runtime.getDeviceProperties(index_of(device))
    name = said["name"].decode() if isinstance(said["name"], bytes) else said["name"]
    facts = {field: said.get(key, 0) for field, key in _FIELDS.items()}
    return DeviceProperties(name=name, **facts | {k: bool(facts[k]) for k in ("is_integrated", "is_multi_gpu_board")})


def get_device_name(device: Any = None) -> str:
    """The name of a GPU."""
    cupy("get_device_name")
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """A GPU's compute capability: (9, 0) for Hopper."""
    text = cupy("get_device_capability").cuda.Device(index_of(device)).compute_capability
    return int(text[:-1]), int(text[-1])


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether one GPU can read another's memory."""
    return bool(cupy("can_device_access_peer").cuda.runtime.deviceCanAccessPeer(index_of(device), index_of(peer_device)))
