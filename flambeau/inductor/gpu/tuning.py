"""Mode max-autotune on a GPU: products by cuBLAS and a kernel after them, or by Triton in one? Measured, and the choice kept."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from flambeau.backends.cuda import cubins
from flambeau.backends.cuda.layouts import layout
from flambeau.core.cache import cache_directory, read, write_file
from flambeau.core.lazy import LazyModule
from flambeau.inductor.gpu import cuda
from flambeau.inductor.gpu.products import Product, Tile, find_products, tiles_for
from flambeau.inductor.gpu.triton import TritonKernel
from flambeau.inductor.loop.ir import Extern, Program, View
from flambeau.inductor.loop.scheduler import Kernel, Node

LIBRARY = -1        # the choice of cuBLAS
BATCH, BATCHES = 20, 3
_blas = LazyModule("flambeau.backends.cuda.blas")


def tune_products(program: Program, nodes: Sequence[Node]) -> list[Node | Product]:
    """The nodes with products in place of calls and kernels where that is faster on the current device."""
    chosen: list[Node | Product] = list(nodes)
    for call, kernel, product in find_products(program, nodes):
        tiles = tiles_for(*map(int, (*call.outputs[0].shape, call.inputs[0].shape[1])))      # type: ignore[arg-type]
        choice = _choice(program, nodes, call, kernel, product, tiles)
        if choice != LIBRARY:
            chosen[chosen.index(kernel)] = replace(product, tile=tiles[choice])
            chosen.remove(call)
    return chosen


def _choice(program: Program, nodes: Sequence[Node], call: Extern, kernel: Kernel, product: Product, tiles: Sequence[Tile]) -> int:
    """The number of the fastest tile, or LIBRARY; from the cache, or measured."""
    cupy = importlib.import_module("cupy")
    others = [n for n in nodes if n is not kernel]
    printed = [cuda.print_node(program, others, replace(product, tile=tile)) for tile in tiles]
    after = cuda.print_node(program, others, kernel)
    for position, candidate in enumerate((after, *printed)):
        candidate.name = f"candidate{position}"
    device = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())["name"]
    facts = [str(device), cubins.triton().__version__, cupy.cuda.runtime.runtimeGetVersion(), after.text, after.options,
             *[(k.text, k.options, k.constants) for k in printed], [(v.shape, v.strides, v.offset) for v in (*call.inputs, *call.outputs)]]
    key = hashlib.sha256(repr(facts).encode()).hexdigest()[:32]
    path = cache_directory() / "tuned" / f"{key}.json"
    try:
        return int(json.loads(read(path) or b"")["choice"])
    except (ValueError, KeyError):
        times = _measure(cupy, program, call, printed, after)
        best = min(range(len(times)), key=lambda k: times[k])
        found = best - 1        # the first is cuBLAS
        write_file(path, json.dumps({"choice": found, "milliseconds": times, "tiles": [list(t) for t in tiles]}).encode())
        return found


def _measure(cupy: Any, program: Program, call: Extern, printed: Sequence[TritonKernel], after: TritonKernel) -> list[float]:
    """Milliseconds of cuBLAS and the kernel after it, then of each product."""
    capability = int(cupy.cuda.Device().compute_capability)
    kernels = [after, *printed]
    compiled = cuda.compile_all(kernels, capability, [cuda.aligned_parameters(program, k) for k in kernels])
    names = {v.buffer for v in (*call.inputs, *call.outputs)} | {name for k in kernels for name, _ in k.pointers}
    room = {name: _random(cupy, program.buffers[name]) for name in sorted(names)}
    product, finish = _library(call, room), _launch(program, after, cubins.load(compiled[0]), room)

    def by_library() -> None:
        product()
        finish()
    times = [_time(cupy, by_library)]
    for kernel, cubin in zip(printed, compiled[1:]):
        try:
            times.append(_time(cupy, _launch(program, kernel, cubins.load(cubin), room)))
        except RuntimeError:    # more shared memory than there is
            times.append(float("inf"))
    return times


def _random(cupy: Any, buffer: Any) -> Any:
    """Memory for a buffer: floats without order, for zeros would be faster than what is real; other types zero."""
    count = int(buffer.numel)
    if buffer.dtype.is_floating_point:
        return cupy.sin(cupy.arange(count, dtype=cupy.float32) * 7).astype(buffer.dtype.numpy)
    return cupy.zeros(count, buffer.dtype.numpy)


def _launch(program: Program, kernel: TritonKernel, loaded: Callable[..., None], room: dict[str, Any]) -> Callable[[], None]:
    stream, grid = cubins.stream_pointer(), -(-int(kernel.rows) // kernel.tile)     # type: ignore[arg-type]
    places = [room[name].data.ptr + int(offset) * program.buffers[name].dtype.itemsize       # type: ignore[arg-type]
              for name, offset in kernel.pointers]
    return lambda: loaded(stream(), grid, *places)


def _library(call: Extern, room: dict[str, Any]) -> Callable[[], None]:
    views: tuple[View, ...] = (*call.inputs, *call.outputs)
    layouts = [layout(v.shape, v.strides) for v in views]       # type: ignore[arg-type]
    run = _blas.by_address(views[0].dtype.numpy, views[2].shape, views[0].shape[1], *layouts)
    places = [room[v.buffer].data.ptr + int(v.offset) * v.dtype.itemsize for v in views]      # type: ignore[arg-type]
    if run is None:
        raise RuntimeError(f"cuBLAS has no product of {views}")
    return lambda: run(*places)


def _time(cupy: Any, run: Callable[[], None]) -> float:
    """Milliseconds of a run, from a recording of several, so that launching costs nothing."""
    stream = cupy.cuda.Stream(non_blocking=True)
    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    cupy.cuda.Device().synchronize()
    with stream:
        run()
        stream.synchronize()
        stream.begin_capture(cupy.cuda.runtime.streamCaptureModeRelaxed)
        try:
            for _ in range(BATCH):
                run()
        finally:
            graph = stream.end_capture()
        graph.launch(stream)
        start.record(stream)
        for _ in range(BATCHES):
            graph.launch(stream)
        end.record(stream)
        end.synchronize()
    return float(cupy.cuda.get_elapsed_time(start, end)) / (BATCH * BATCHES)
