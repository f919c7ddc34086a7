"""torch.cuda: NVIDIA GPUs, through CuPy. Without one, questions are answered truly and work raises a clear error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from .._lazy import submodules
from ..ops.creation import CUDA_TENSORS
from ..ops.storages import CUDA_STORAGES
from . import library, memory, random, streams

# isort: off
from .allocators import (
    CUDAPluggableAllocator, MemPool, caching_allocator_disabled, caching_allocator_enable, change_current_allocator,
    host_memory_stats, reset_accumulated_host_memory_stats, reset_peak_host_memory_stats, use_mem_pool,
)
from .devices import (
    DeviceProperties, can_device_access_peer, current_device, device, device_count, device_of, get_arch_list, get_device_capability,
    get_device_name, get_device_properties, init, is_available, is_bf16_supported, is_initialized, is_tf32_supported, set_device,
    synchronize, _lazy_call, _lazy_init,
)
from .graphed import make_graphed_callables
from .library import NOT_ENABLED
from .memory import (
    device_memory_used, empty_cache, get_allocator_backend, get_per_process_memory_fraction, host_memory_stats_as_nested_dict,
    max_memory_allocated, max_memory_cached, max_memory_reserved, mem_get_info, memory_allocated, memory_cached, memory_reserved,
    memory_snapshot, memory_stats, memory_stats_as_nested_dict, memory_summary, reset_accumulated_memory_stats, reset_max_memory_allocated,
    reset_max_memory_cached, reset_peak_memory_stats, set_per_process_memory_fraction,
)
from .random import (
    get_rng_state, get_rng_state_all, initial_seed, manual_seed, manual_seed_all, seed, seed_all, set_rng_state, set_rng_state_all,
)
from .streams import (
    CUDAGraph, Event, ExternalStream, GreenContext, Stream, StreamContext, current_stream, default_stream, get_stream_from_external,
    graph, graph_pool_handle, is_current_stream_capturing, set_stream, stream,
)
# isort: on


class OutOfMemoryError(RuntimeError):
    """A GPU's memory is full."""


class CudaError(RuntimeError):
    """The CUDA runtime reported an error."""


class DeferredCudaCallError(Exception):
    """A call that waited for CUDA to start failed."""


class cudaStatus:
    """What calls of the CUDA runtime answer."""

    SUCCESS = 0
    ERROR_NOT_READY = 34


def check_error(res: int) -> None:
    """CudaError, with the runtime's words, unless a call of it answered success."""
    if res == cudaStatus.SUCCESS:
        return
    told = library.cupy("check_error").cuda.runtime.CUDARuntimeError(res) if device_count() else f"CUDA error {res}"
    raise CudaError(f"{told} ({res})")


def current_solver_handle() -> int:
    """The handle of cuSOLVER that the current GPU's decompositions use."""
    return int(library.cupy("current_solver_handle").cuda.device.get_cusolver_handle())


def current_blas_handle() -> int:
    """The handle of cuBLAS that the current GPU's products use."""
    return int(library.cupy("current_blas_handle").cuda.device.get_cublas_handle())


AcceleratorError = CudaError
default_generators: tuple = ()
has_half = has_magma = False
globals().update(CUDA_TENSORS)
globals().update(CUDA_STORAGES)


def get_gencode_flags() -> str:
    """nvcc's flags for the GPUs that kernels are built for; empty: they are built for the GPU that is there."""
    return ""


_SYNC_MODES = ("default", "warn", "error")


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Whether to tell of operations that wait for a GPU. "default" (0) is not to; the others are not there."""
    mode = _SYNC_MODES.index(debug_mode) if debug_mode in _SYNC_MODES else debug_mode
    if mode not in (0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode, expected one of {', '.join(map(repr, _SYNC_MODES))}, got {debug_mode!r}")
    if mode:
        raise NotImplementedError(f"set_sync_debug_mode({debug_mode!r}) is not implemented; torch.profiler shows what waits")


def get_sync_debug_mode() -> int:
    """0: nothing is told of operations that wait."""
    return 0


def ipc_collect() -> None:
    """Nothing is shared between processes."""


# Asked of the driver's management library, which is not bound.
_MANAGEMENT = frozenset(("utilization", "temperature", "power_draw", "clock_rate", "memory_usage", "list_gpu_processes"))
_INTERNAL = frozenset(("caching_allocator_alloc", "caching_allocator_delete", "cudart"))


def _missing(name: str) -> Callable[..., NoReturn]:
    def raises(*args: Any, **kwargs: Any) -> NoReturn:
        library.cupy(name)
        instead = "ask nvidia-smi" if name in _MANAGEMENT else "call CuPy (cupy.cuda) instead"
        raise NotImplementedError(f"torch.cuda.{name}() is not part of Flambeau; {instead}")

    raises.__name__ = raises.__qualname__ = name
    raises.__doc__ = "NotImplementedError: it says what to use instead."
    return raises


globals().update({name: _missing(name) for name in _MANAGEMENT | _INTERNAL})
_submodule = submodules(__name__, "jiterator", "amp", "nvtx")


def __getattr__(name: str) -> Any:
    if name == "_initialized":
        return is_initialized()
    return _submodule(name)
