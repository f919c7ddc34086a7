"""torch._inductor.utils: generated code for reading, fresh caches, timing."""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from ..dynamo import reset
from ..inductor.graph import CompiledGraph, listening

GPU_TYPES = ["cuda"]


def get_gpu_type() -> str:
    """The type of device that generated code for GPUs is for."""
    return GPU_TYPES[0]


def is_gpu(device: str | None) -> bool:
    """Whether a type of device is a GPU."""
    return device in GPU_TYPES


def _codes(fn: Callable, args: tuple, kwargs: dict) -> tuple[Any, list[str]]:
    seen: list[CompiledGraph] = []
    listening.append(seen.append)
    reset()
    try:
        result = fn(*args, **kwargs)
    finally:
        listening.remove(seen.append)
    return result, [_source(graph) for graph in seen]


def _source(graph: CompiledGraph) -> str:
    source = graph.unit.source if graph.unit is not None else getattr(graph.cuda, "source", "")
    return f"{source}\n{graph.wrapper}"


def run_and_get_code(fn: Callable, *args: Any, **kwargs: Any) -> tuple[Any, list[str]]:
    """What a compiled function gives, compiled anew, and the text generated for each graph (C++ or Triton, and the call around it)."""
    return _codes(fn, args, kwargs)


def run_and_get_cpp_code(fn: Callable, *args: Any, **kwargs: Any) -> tuple[Any, str]:
    """The result, and all texts as one."""
    result, codes = _codes(fn, args, kwargs)
    return result, "\n".join(codes)


def run_fw_bw_and_get_code(fn: Callable[[], Any]) -> tuple[Any, list[str]]:
    """The same with backward, from the sum of the result."""

    def both() -> Any:
        result = fn()
        result.sum().backward()
        return result

    return _codes(both, (), {})


def get_code(fn: Callable, *args: Any, **kwargs: Any) -> list[str]:
    """The texts alone."""
    return _codes(fn, args, kwargs)[1]


@contextlib.contextmanager
def fresh_cache(*, dir: str | None = None, delete: bool = True) -> Iterator[None]:
    """In the block the disk cache is another, empty one, and nothing is compiled yet."""
    with tempfile.TemporaryDirectory(dir=dir) if delete else contextlib.nullcontext(tempfile.mkdtemp(dir=dir)) as folder:
        reset()
        with mock.patch.dict(os.environ, {"FLAMBEAU_CACHE_DIR": folder}):
            yield
        reset()


fresh_inductor_cache = fresh_cache


def clear_caches() -> None:
    """Forget what is compiled in this process."""
    reset()


def timed(model: Callable, example_inputs: Any, times: int = 1) -> float:
    """Seconds of so many calls."""
    start = time.perf_counter()
    for _ in range(times):
        model(*example_inputs)
    return time.perf_counter() - start


def print_performance(model: Callable, example_inputs: Any = (), times: int = 10, repeat: int = 10, baseline: float = 1.0) -> float:
    """The median seconds of a call, printed."""
    took = statistics.median(timed(model, example_inputs, times) / times for _ in range(repeat))
    print(f"{took / baseline:.6f}")
    return took


def do_bench(fn: Callable[[], Any], warmup: int = 25, rep: int = 100) -> float:
    """The median milliseconds of a call, for about `rep` milliseconds after `warmup`."""
    deadline = time.perf_counter() + warmup / 1e3
    while time.perf_counter() < deadline:
        fn()
    taken: list[float] = []
    while sum(taken) < rep:
        taken.append(1e3 * timed(fn, ()))
    return statistics.median(taken)


__all__ = ["clear_caches", "do_bench", "fresh_cache", "fresh_inductor_cache", "get_code", "print_performance", "run_and_get_code",
           "run_and_get_cpp_code", "run_fw_bw_and_get_code", "timed"]
