"""torch.accelerator: the device beside the CPU, whichever it is. It is torch.cuda's GPU, or there is none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from . import cpu, cuda, mps, xpu
from .core.device import device

_MODULES = {"cpu": cpu, "cuda": cuda, "mps": mps, "xpu": xpu}


def is_available() -> bool:
    """Whether there is an accelerator."""
    return cuda.is_available()


def device_count() -> int:
    """How many there are."""
    return cuda.device_count()


def current_accelerator(check_available: bool = False) -> device | None:
    """The accelerator's device, without an index; None if there is none."""
    return device("cuda") if is_available() else None


def _need() -> None:
    if not is_available():
        raise RuntimeError("Cannot access accelerator device when none is available.")


class Graph:
    """`with Graph() as g:` records the block's work on the accelerator, `g.replay()` repeats it (torch.cuda.CUDAGraph). `pool`: where its
    memory is from, another's `pool()`. RuntimeError where there is no accelerator."""

    def __init__(self, keep_graph: bool = False, *, pool: Any = None, capture_error_mode: str = "default") -> None:
        _need()
        self._graph, self._scope = cuda.CUDAGraph(keep_graph), contextlib.ExitStack()
        self._memory, self._mode = pool, "global" if capture_error_mode == "default" else capture_error_mode

    def __enter__(self) -> Graph:
        self._scope.enter_context(cuda.graph(self._graph, self._memory, None, self._mode))
        return self

    def __exit__(self, *error: Any) -> None:
        self._scope.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        if name not in ("capture_begin", "capture_end", "pool", "replay", "reset"):
            raise AttributeError(f"a Graph has no attribute {name!r}")
        return getattr(self._graph, name)


def set_stream(stream: Any) -> None:
    """torch.cuda.set_stream where there is a GPU; RuntimeError elsewhere."""
    _need()
    cuda.set_stream(stream)


def _of_cuda(name: str, original: str) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        _need()
        return getattr(cuda, original)(*args)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"torch.cuda.{original} where there is a GPU; RuntimeError elsewhere."
    return call


# What torch.cuda has under another name, and what has the same.
_ORIGINALS = {"current_device_index": "current_device", "set_device_index": "set_device", "get_memory_info": "mem_get_info"} | {
    name: name for name in (
        "synchronize", "current_stream", "empty_cache", "memory_allocated", "max_memory_allocated", "memory_reserved",
        "max_memory_reserved", "memory_stats", "reset_peak_memory_stats", "reset_accumulated_memory_stats")}
globals().update({name: _of_cuda(name, original) for name, original in _ORIGINALS.items()})
current_device_idx, set_device_idx = globals()["current_device_index"], globals()["set_device_index"]


def empty_host_cache() -> None:
    """No pinned host memory is kept back; RuntimeError where there is no accelerator."""
    _need()


def get_device_capability(device: Any = None, /) -> dict[str, Any]:
    """Refused, as no table says what each GPU computes with; RuntimeError where there is no accelerator."""
    _need()
    raise NotImplementedError("torch.accelerator.get_device_capability is not implemented; use torch.cuda.get_device_capability and "
                              "torch.cuda.is_bf16_supported")


class device_index:
    """`with device_index(1):` makes that accelerator the current one; None changes nothing."""

    def __init__(self, device: int | None, /) -> None:
        self.index = device

    def __enter__(self) -> None:
        if self.index is not None:
            self.before = globals()["current_device_index"]()
            globals()["set_device_index"](self.index)

    def __exit__(self, *error: Any) -> None:
        if self.index is not None:
            globals()["set_device_index"](self.before)


def get_device_module(device: Any = None) -> Any:
    """The module that serves a device type: `torch.cpu`, `torch.cuda`."""
    name = "cpu" if device is None else str(getattr(device, "type", device)).partition(":")[0]
    if name not in _MODULES:
        raise RuntimeError(f"Invalid device_type {name!r}; there are modules for {sorted(_MODULES)}")
    return _MODULES[name]
