"""torch.cpu: the device that is always there."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from . import _C
from .core.tensor import Tensor
from .ops.generators import default_generator, initial_seed, manual_seed, seed


def is_available() -> bool:
    """True."""
    return True


def is_initialized() -> bool:
    """True."""
    return True


def device_count() -> int:
    """1."""
    return 1


def current_device() -> str:
    """ "cpu"."""
    return "cpu"


def set_device(device: Any) -> None:
    """Nothing to choose among."""


def synchronize(device: Any = None) -> None:
    """Nothing to wait for: operators return when they are done."""


def empty_cache() -> None:
    """Give the memory of freed tensors, which is kept for the next ones, back to the system."""
    _C.empty_cache()


def _is_avx2_supported() -> bool:
    """Whether the processor has AVX2."""
    return bool(get_capabilities().get("avx2", False))


class Stream:
    """The one order in which work is done."""

    def __init__(self, priority: int = -1) -> None:
        self.priority = priority

    def wait_stream(self, stream: Any) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""


class Event:
    """A mark in the order of work: always reached."""

    def query(self) -> bool:
        """True."""
        return True

    def record(self, stream: Any = None) -> None:
        """Nothing to note."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def wait(self, stream: Any = None) -> None:
        """Nothing to wait for."""


_stream = Stream()


def current_stream(device: Any = None) -> Stream:
    """The one stream."""
    return _stream


class StreamContext:
    """`with StreamContext(stream):` changes nothing: there is one stream."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


def stream(stream: Any) -> StreamContext:
    """No change: there is one stream."""
    return StreamContext(stream)


_OTHER_NAMES = {
    "avx512f": "avx512_f", "avx512cd": "avx512_cd", "avx512dq": "avx512_dq", "avx512bw": "avx512_bw", "avx512vl": "avx512_vl",
    "avx512ifma": "avx512_ifma", "avx512vbmi": "avx512_vbmi", "pni": "sse3", "abm": "lzcnt", "bmi1": "bmi", "fma": "fma3", "sha_ni": "sha",
    "asimd": "neon", "asimdhp": "fp16_arith", "asimddp": "dot", "asimdrdm": "rdm", "asimdfhm": "fhm"}
_ASKED = {
    "x86_64": "sse sse2 sse3 ssse3 sse4_1 sse4_2 sse4a avx avx2 avx_vnni avx512_f avx512_cd avx512_dq avx512_bw avx512_vl avx512_ifma "
              "avx512_vbmi avx512_vbmi2 avx512_bitalg avx512_vpopcntdq avx512_vnni avx512_bf16 avx512_fp16 avx512_vp2intersect "
              "avx512_4vnniw avx512_4fmaps avx10_1 avx10_2 avx_vnni_int8 avx_vnni_int16 avx_ne_convert amx_bf16 amx_tile amx_int8 amx_fp16 "
              "fma3 fma4 f16c bmi bmi2 popcnt lzcnt aes sha clflush clflushopt clwb",
    "aarch64": "neon fp16_arith bf16 i8mm dot sve sve2 sve_bf16 sme sme2 atomics fhm rdm crc32 aes sha1 sha2 pmull"}
"""By architecture, what is told of; above, what Linux calls some of it."""


@functools.cache
def get_capabilities() -> Mapping[str, Any]:
    """What this processor can do: its architecture, whether it has each set of instructions (as Linux tells), and how many it has."""
    architecture = platform.machine()
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as facts:
        lines = [line.partition(":")[::2] for line in facts]
        told = {name.strip(): value.strip() for name, value in lines}
        flags = set(told.get("flags", told.get("Features", "")).split())
        has = {_OTHER_NAMES.get(flag, flag) for flag in flags}
        return MappingProxyType({
            "architecture": architecture, "cpu_name": told.get("model name", ""), "num_logical_cores": os.cpu_count() or 1,
            **{name: name in has for name in _ASKED.get(architecture, "").split()}})
    return MappingProxyType({"architecture": architecture, "num_logical_cores": os.cpu_count() or 1})


def manual_seed_all(seed: int) -> None:
    """torch.manual_seed."""
    manual_seed(seed)


def get_rng_state() -> Tensor:
    """The state of the default generator."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Set the state of the default generator."""
    default_generator.set_state(new_state)


__all__ = [
    "Event", "Stream", "StreamContext", "current_device", "current_stream", "device_count", "empty_cache", "get_capabilities",
    "get_rng_state", "initial_seed",
    "is_available", "is_initialized", "manual_seed", "manual_seed_all", "seed", "set_device", "set_rng_state", "stream",
    "synchronize",
]
