"""Who gives out a GPU's memory: pools for a block's tensors, allocators from a library of one's own, none that keeps memory back."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .library import cupy, device_count, index_of


class MemPool:
    """A pool of a GPU's memory apart from the others: `with use_mem_pool(pool):` has tensors made from it. `allocator`: where it gets
    memory from (a CUDAPluggableAllocator's `allocator()`). Its blocks stay its own (`use_on_oom=True` and `no_split=True` raise)."""

    def __init__(self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False) -> None:
        if use_on_oom or no_split:
            raise NotImplementedError(f"MemPool(use_on_oom={use_on_oom}, no_split={no_split}) is not implemented: a pool's blocks are "
                                      "split, and no other pool takes them; leave both out")
        library = cupy("MemPool")
        self.allocator = allocator
        self._pool = library.cuda.MemoryPool() if allocator is None else library.cuda.MemoryPool(allocator.malloc)

    @property
    def id(self) -> tuple[int, int]:
        """What tells it from other pools."""
        return (0, id(self._pool))

    def use_count(self) -> int:
        """How many hold it: 1 where it has memory in use or not."""
        return 1

    def snapshot(self) -> list[dict[str, int]]:
        """Bytes taken from the GPU, and bytes in use."""
        return [{"total_size": int(self._pool.total_bytes()), "allocated_size": int(self._pool.used_bytes())}]


@contextmanager
def use_mem_pool(pool: MemPool, device: Any = None) -> Iterator[None]:
    """The block's tensors of `device` (None: the current GPU) are made from `pool`."""
    library = cupy("use_mem_pool")
    with library.cuda.Device(index_of(device)), library.cuda.using_allocator(pool._pool.malloc):
        yield


class CUDAPluggableAllocator:
    """An allocator from a shared library: `void* alloc(size_t, int device, cudaStream_t)`, `void free(void*, size_t, int, cudaStream_t)`.
    OSError where there is no such file, AttributeError where it lacks the functions."""

    def __init__(self, path_to_so_file: str, alloc_fn_name: str, free_fn_name: str) -> None:
        library = ctypes.CDLL(path_to_so_file)
        self._alloc, self._free = getattr(library, alloc_fn_name), getattr(library, free_fn_name)
        self._alloc.restype, self._alloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
        self._free.restype, self._free.argtypes = None, [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
        self._sizes: dict[int, int] = {}
        self._made: Any = None

    def allocator(self) -> Any:
        """What `change_current_allocator` and `MemPool` take; AssertionError where there is no GPU."""
        if self._made is None:
            library = cupy("CUDAPluggableAllocator")

            def take(size: int, device: int) -> int:
                address = self._alloc(size, device, library.cuda.get_current_stream().ptr)
                self._sizes[address] = size
                return address

            def give_back(address: int, device: int) -> None:
                self._free(address, self._sizes.pop(address, 0), device, library.cuda.get_current_stream().ptr)

            self._made = library.cuda.PythonFunctionAllocator(take, give_back)
        return self._made


def change_current_allocator(allocator: Any) -> None:
    """Get all GPU memory from a CUDAPluggableAllocator from now on; RuntimeError where some is taken already."""
    library = cupy("change_current_allocator")
    if library.get_default_memory_pool().total_bytes():
        raise RuntimeError("Can't swap an already initialized allocator: call change_current_allocator before the first tensor on a GPU")
    made = allocator.allocator() if isinstance(allocator, CUDAPluggableAllocator) else allocator
    library.cuda.set_allocator(made.malloc)


def caching_allocator_enable(value: bool = True) -> None:
    """Whether freed GPU memory is kept for the next tensor, as at first, or given back at once."""
    if device_count():
        library = cupy("caching_allocator_enable")
        library.cuda.set_allocator(library.get_default_memory_pool().malloc if value else None)


@contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """In the block freed GPU memory is given back at once."""
    caching_allocator_enable(False)
    try:
        yield
    finally:
        caching_allocator_enable(True)


def host_memory_stats() -> dict[str, int]:
    """What is pinned of the host's memory and waits for its next use, in blocks; empty where there is no GPU."""
    if not device_count():
        return {}
    return {"segments.free": int(cupy("host_memory_stats").get_default_pinned_memory_pool().n_free_blocks())}


def reset_peak_host_memory_stats() -> None:
    """No peaks are kept."""


def reset_accumulated_host_memory_stats() -> None:
    """Nothing is accumulated."""
