"""torch.cuda: this build runs on CPUs. Questions are answered truly (no device, nothing allocated); work raises a clear error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from ..core.device import device as _device
from . import random
from .random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)

NOT_ENABLED = "Torch not compiled with CUDA enabled: this build of Flambeau runs on CPUs; use device='cpu'"


class OutOfMemoryError(RuntimeError):
    """A GPU's memory is full."""


class CudaError(RuntimeError):
    """The CUDA runtime reported an error."""


class DeferredCudaCallError(Exception):
    """A call that waited for CUDA to start failed."""


AcceleratorError = CudaError
default_generators: tuple = ()
has_half = has_magma = False


def is_available() -> bool:
    """False: no GPU can be used."""
    return False


def device_count() -> int:
    """0."""
    return 0


def is_initialized() -> bool:
    """False: CUDA is never started."""
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """False: there is no GPU."""
    return False


def is_tf32_supported() -> bool:
    """False: there is no GPU."""
    return False


def is_current_stream_capturing() -> bool:
    """False: there is no stream."""
    return False


def get_arch_list() -> list[str]:
    """No architecture was compiled for."""
    return []


def empty_cache() -> None:
    """Nothing is cached."""


def ipc_collect() -> None:
    """Nothing is shared."""


def _nothing(device: Any = None) -> int:
    """0: no memory of a GPU is in use."""
    return 0


memory_allocated = max_memory_allocated = memory_reserved = max_memory_reserved = memory_cached = max_memory_cached = _nothing


def _reset(device: Any = None) -> None:
    """Nothing to reset."""


reset_peak_memory_stats = reset_max_memory_allocated = reset_max_memory_cached = reset_accumulated_memory_stats = _reset


def memory_stats(device: Any = None) -> dict[str, int]:
    """No statistics."""
    return {}


def _needs_a_gpu(name: str) -> Callable[..., NoReturn]:
    def raises(*args: Any, **kwargs: Any) -> NoReturn:
        raise AssertionError(f"torch.cuda.{name}(): {NOT_ENABLED}")

    raises.__name__ = raises.__qualname__ = name
    return raises


def init() -> None:
    """Raise: there is nothing to start."""
    raise AssertionError(f"torch.cuda.init(): {NOT_ENABLED}")


class _NeedsGPU:
    """A class of torch.cuda for annotations and isinstance; making one raises."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise AssertionError(f"torch.cuda.{type(self).__name__}(): {NOT_ENABLED}")


class Stream(_NeedsGPU):
    """A queue of work on a GPU."""


class ExternalStream(Stream):
    """A stream that another library made."""


class Event(_NeedsGPU):
    """A mark in a stream."""


class CUDAGraph(_NeedsGPU):
    """A recorded sequence of kernel launches."""


class StreamContext(_NeedsGPU):
    """A block that queues its work on one stream."""


class graph(_NeedsGPU):
    """A block whose launches are recorded."""


@contextmanager
def device(device: Any) -> Iterator[None]:
    """Make a GPU the current one for the block; -1 and None mean no change."""
    index = _index(device)
    if index >= 0:
        raise AssertionError(f"torch.cuda.device({index}): {NOT_ENABLED}")
    yield


def _index(device: Any) -> int:
    if device is None:
        return -1
    if isinstance(device, int):
        return device
    return _device(device).index or 0


@contextmanager
def device_of(obj: Any) -> Iterator[None]:
    """Make the GPU of tensor `obj` the current one for the block; nothing for a CPU tensor."""
    with device(obj.device if obj.is_cuda else None):
        yield


@contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """Queue the block's work on `stream`; None means no change."""
    if stream is not None:
        raise AssertionError(f"torch.cuda.stream(): {NOT_ENABLED}")
    yield


_GPU_ONLY = frozenset(
    (
        "current_device",
        "set_device",
        "synchronize",
        "current_stream",
        "default_stream",
        "set_stream",
        "current_blas_handle",
        "get_device_name",
        "get_device_capability",
        "get_device_properties",
        "can_device_access_peer",
        "mem_get_info",
        "memory_snapshot",
        "memory_summary",
        "utilization",
        "temperature",
        "power_draw",
        "clock_rate",
        "list_gpu_processes",
        "caching_allocator_alloc",
        "caching_allocator_delete",
        "set_per_process_memory_fraction",
        "make_graphed_callables",
        "graph_pool_handle",
        "cudart",
    )
)


def __getattr__(name: str) -> Any:
    if name in _GPU_ONLY:
        return _needs_a_gpu(name)
    raise AttributeError(f"module 'torch.cuda' has no attribute '{name}'")
