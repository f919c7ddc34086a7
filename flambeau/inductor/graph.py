"""`compile_graph`: a functional graph of primitives becomes one callable.

lower -> schedule -> print -> build; around the library stands a call (call.py), whose steps allocate outputs and pass pointers.
Where g++ is missing or fails, the loop IR itself runs, through NumPy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flambeau.aot.interpret import interpret
from flambeau.core import dispatch
from flambeau.core.device import at, device
from flambeau.core.expr import Expr, evaluate
from flambeau.core.locks import lock
from flambeau.core.settings import Verification
from flambeau.core.tensor import Tensor, from_array
from flambeau.inductor import config
from flambeau.inductor.call import listening
from flambeau.inductor.cpu.compile import Build, CompilerError, have_compiler, warn_failed
from flambeau.inductor.cpu.epilogues import fuse_epilogues
from flambeau.inductor.cpu.native import NativeCode, Stopwatch, call_of, call_primitive, kernels_of, run_eager
from flambeau.inductor.cpu.unit import Unit, print_unit
from flambeau.inductor.gpu import cuda
from flambeau.inductor.gpu.product_ends import end_products
from flambeau.inductor.gpu.tuning import tune_products
from flambeau.inductor.loop import reference
from flambeau.inductor.loop.ir import Assumed, Extern, Program, View
from flambeau.inductor.loop.ranges import split_loops, split_ranges
from flambeau.inductor.loop.scheduler import GPU, Node, schedule
from flambeau.inductor.targets import lower
from flambeau.inductor.verify import results_of, verify, verify_call, verify_memory


@dataclass
class CompiledGraph:
    """A compiled graph: call it with the list of inputs. The stages are kept for looking at."""

    gm: Any
    program: Program
    fallbacks: list[str]
    nodes: list[Any] = field(default_factory=list)
    unit: Unit | None = None
    cuda: Any = None
    seconds: dict[str, float] = field(default_factory=dict)
    code: Any = None  # what is kept in the cache: NativeCode or cuda.CudaCode
    call: Callable[[list], list] | None = None

    def __call__(self, inputs: list) -> list:
        assert self.call is not None
        return self.call(inputs)

    @property
    def wrapper(self) -> str:
        """The function around kernels and library calls, to be read."""
        return self.code.text() if self.code is not None else ""

    def layouts(self) -> list[tuple | None]:
        """The strides in which results lie that are for the backward graph alone, which may be others than the graph's; None for
        the other results."""
        return [out.strides if k >= self.program.exact and isinstance(out, View) else None for k, out in enumerate(self.program.outputs)]

    def times(self, inputs: Sequence[Any], calls: int = 1) -> list[tuple[float, Node]]:
        """Seconds that each kernel or library call takes, in all of these calls, most first."""
        stopwatch = Stopwatch(len(self.nodes))
        for _ in range(calls):
            given, watchers = list(inputs), dispatch.state.watchers
            dispatch.state.watchers = (stopwatch,)
            try:
                self(given)
            finally:
                dispatch.state.watchers = watchers
        return sorted(zip(stopwatch.seconds.tolist(), self.nodes, strict=True), key=lambda item: -item[0])


def compile_graph(gm: Any, example_inputs: Sequence[Any] = (), *, arrays: bool = False, assumed: Assumed = Assumed()) -> CompiledGraph:
    """Compile `gm`, a graph of primitives whose nodes carry fake tensors in meta["val"], sizes static or symbolic.

    Returns a callable from the list of inputs (tensors, ints) to the list of outputs; `arrays`: arrays instead of
    tensors (and in one native call, for sizes of all kinds); `assumed`: what calls will keep to.
    """
    started = time.perf_counter()
    for custom in filter(None, (config.post_grad_custom_pre_pass, config.post_grad_custom_post_pass)):
        custom(gm.graph)
    program, fallbacks = lower(gm)
    program.assumed = assumed
    graph = CompiledGraph(gm, program, fallbacks)
    kinds, gpus = _devices(gm)
    if "meta" in kinds or len(gpus) > 1:  # hardly anything to compute, or nothing that one GPU could
        graph.call = interpret(gm, example_inputs)
        return graph
    if Verification.on:
        verify(program, "lower", wanted=results_of(gm))
    if gpus:
        with at(device("cuda", gpu := gpus.pop())):
            return _compile_cuda(graph, arrays, gpu)
    _run_passes(program, CPU_PASSES)
    graph.seconds["lower"] = time.perf_counter() - started
    if config.native and have_compiler():
        _print(graph, arrays)
        graph.call = _native(graph)
    if graph.call is None:
        graph.call = _interpreted(program, arrays)
    for listener in listening:
        listener(graph)
    return graph


def print_graph(gm: Any, example_inputs: Sequence[Any] = ()) -> CompiledGraph:
    """`compile_graph` up to the C++ of its unit, on a CPU, for who builds and calls it otherwise; constants keep their contents."""
    program, fallbacks = lower(gm)
    program.assumed = Assumed(frozen=True)
    if Verification.on:
        verify(program, "lower", wanted=results_of(gm))
    _run_passes(program, CPU_PASSES)
    graph = CompiledGraph(gm, program, fallbacks)
    _print(graph, False)
    return graph


def _print(graph: CompiledGraph, arrays: bool) -> None:
    """Schedule the lowered program, and print it: `graph` gets its nodes, unit and code."""
    program, now = graph.program, time.perf_counter()
    graph.nodes = schedule(program)
    if Verification.on:
        verify(program, "schedule", graph.nodes, wanted=results_of(graph.gm))
    graph.seconds["schedule"] = -now + (now := time.perf_counter())
    unit = graph.unit = print_unit(program, graph.nodes, stages=not arrays)
    if Verification.on:
        verify_memory(program, unit, "plan_memory")
    graph.seconds["print"] = time.perf_counter() - now
    graph.code = NativeCode(call_of(program, unit, arrays), dict(program.constants), *kernels_of(unit))
    if Verification.on:
        verify_call(graph.code.call, "call_of")


GPU_PASSES: tuple[Callable[[Program], None], ...] = (split_ranges,)
CPU_PASSES = (split_ranges, split_loops, fuse_epilogues)


def _run_passes(program: Program, passes: Sequence[Callable[[Program], None]]) -> None:
    for step in program.steps:
        if isinstance(step, Extern) and step.body is not None:
            _run_passes(step.body.program, passes)
    for one in passes:
        one(program)
        if Verification.on:
            verify(program, one.__name__)


def _devices(gm: Any) -> tuple[set[str], set[int]]:
    """The types of devices that the graph's tensors are on, and the numbers of its GPUs."""
    vals = (n.meta.get("val") for n in gm.graph.nodes)
    found = {v.device for v in vals if isinstance(v, Tensor)}
    return {d.type for d in found}, {d.index or 0 for d in found if d.type == "cuda"}


def _compile_cuda(graph: CompiledGraph, arrays: bool, gpu: int) -> CompiledGraph:
    _run_passes(graph.program, GPU_PASSES)
    graph.nodes = schedule(graph.program, GPU)
    if Verification.on:
        verify(graph.program, "schedule", graph.nodes, wanted=results_of(graph.gm))
    finish = tune_products if config.max_autotune else end_products
    graph.nodes = finish(graph.program, graph.nodes)
    if Verification.on:
        verify(graph.program, finish.__name__, graph.nodes, rewritten=True)
    decides = any("decides" in getattr(node.target, "tags", ()) for node in graph.gm.graph.nodes)  # the host, by what is in a tensor
    replayed = config.cuda_graphs and not graph.program.symbols and not decides
    graph.cuda, graph.call = cuda.build(graph.program, graph.nodes, call_primitive, arrays, replayed, gpu)
    graph.code = graph.cuda.code
    for call in graph.code.calls() if Verification.on else ():
        verify_call(call, "print_program")
    for listener in listening:
        listener(graph)
    return graph


# --- running ---


def _native(graph: CompiledGraph) -> Callable[[list], list]:
    """Start the compiler; what is returned waits for it when it is first called, and steps aside."""
    unit, code = graph.unit, graph.code
    assert unit is not None
    building = Build(unit.source) if code.functions else None

    def ready() -> Callable[[list], list]:
        started = time.perf_counter()
        try:
            runs = building.load(code.functions) if building else []
        except CompilerError as error:
            warn_failed(error)
            return _interpreted(graph.program, code.call.takes_arrays)
        made = code.link(runs)
        graph.seconds["build"] = time.perf_counter() - started
        return made

    def first(inputs: list) -> list:
        with _finishing:
            if graph.call is first:
                graph.call = ready()
        return graph(inputs)
    return first


_finishing = lock()


def _interpreted(program: Program, plain: bool = False) -> Callable[[list], list]:
    """The program run by the loop IR's NumPy reading."""
    def eager(step: Extern, views: list[np.ndarray], sizes: Any) -> list[np.ndarray]:
        return run_eager(step, views, dict(sizes))

    externs = {step.op: eager for step in program.steps if isinstance(step, Extern)}

    def call(inputs: list) -> list:
        sizes = {s: inputs[at] if dim < 0 else inputs[at].shape[dim] for s, (at, dim) in program.symbols.items()}
        arrays = {}
        for name, value in [*zip(program.inputs, inputs, strict=True), *program.constants.items()]:
            if name is not None:
                buffer = program.buffers[name]
                flat = np.empty(evaluate(buffer.numel, sizes), buffer.dtype.numpy)
                arrays[name] = flat
                whole = View(name, buffer.dtype, buffer.shape, buffer.strides)
                reference.view_array(whole, arrays, sizes)[...] = value if plain else value._data
        if not plain:
            inputs.clear()
        storage = reference.run(program, arrays, sizes, externs)
        results: list[Any] = []
        for out in program.outputs:
            if isinstance(out, View):
                result = reference.view_array(out, storage, sizes)
                results.append(result if plain else from_array(result, out.dtype))
            else:
                results.append(evaluate(out, sizes) if isinstance(out, Expr) else out)
        return results
    return call
