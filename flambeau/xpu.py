"""torch.xpu: Intel's GPUs are not supported. Questions are answered truly; work raises."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from ._absent import absent_names
from ._lazy import submodules
from .mps import device_count, empty_cache, is_available, manual_seed, manual_seed_all, memory_allocated

default_generators: tuple = ()


def _answer(name: str, value: Callable[[], Any], doc: str) -> Callable[..., Any]:
    def ask(*_: Any) -> Any:
        return value()

    ask.__name__ = ask.__qualname__ = name
    ask.__doc__ = doc
    return ask


_ANSWERS: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "False: there is no such device.": (
        lambda: False, ("is_bf16_supported", "is_current_stream_capturing", "is_initialized", "is_tf32_supported")),
    "0: no memory of such a device is in use.": (lambda: 0, ("max_memory_allocated", "max_memory_reserved", "memory_reserved")),
    "Empty: there is no such device.": (dict, ("memory_stats", "memory_stats_as_nested_dict")),
    "An empty list: there is no such device.": (list, ("get_arch_list", "get_rng_state_all", "memory_snapshot")),
    "Empty text: nothing is built for such devices.": (str, ("get_gencode_flags",)),
    "Nothing to do: there is no such device.": (
        lambda: None, ("reset_accumulated_memory_stats", "reset_peak_memory_stats", "seed", "seed_all", "set_rng_state_all")),
}
for _doc, (_value, _names) in _ANSWERS.items():
    for _name in _names:
        globals()[_name] = _answer(_name, _value, _doc)


@contextlib.contextmanager
def stream(stream: Any) -> Iterator[None]:
    """No change for None; others cannot be made."""
    if stream is not None:
        raise NotImplementedError(f"torch.xpu.stream({stream!r}) is not implemented; there is no such device")
    yield


_WORK = (
    "Event", "MemPool", "Stream", "StreamContext", "XPUGraph", "XPUPluggableAllocator", "can_device_access_peer",
    "change_current_allocator", "clock_rate", "current_device", "current_stream", "device", "device_memory_used", "device_of",
    "get_device_capability", "get_device_name", "get_device_properties", "get_per_process_memory_fraction", "get_rng_state",
    "get_stream_from_external", "graph", "graph_pool_handle", "init", "initial_seed", "make_graphed_callables", "mem_get_info",
    "memory_usage", "power_draw", "set_device", "set_per_process_memory_fraction", "set_rng_state", "set_stream", "synchronize",
    "temperature", "use_mem_pool", "utilization")
__getattr__ = submodules(__name__, otherwise=absent_names("torch.xpu", _WORK, "there is no such device; use the CPU or an NVIDIA GPU"))

__all__ = [name for names in _ANSWERS.values() for name in names[1]] + [
    "default_generators", "device_count", "empty_cache", "is_available", "manual_seed", "manual_seed_all", "memory_allocated", "stream"]
__path__: list[str] = []  # torch's is a package; what it keeps there is in `_homes`
