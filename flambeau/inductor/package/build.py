"""From a captured graph to what a package holds: trace, freeze, print, and g++ once more, around the call that was written down."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flambeau.aot.compile import compile_parts
from flambeau.aot.joint import Constant, FromArgument, FromAttribute, FromGenerator, FromSize, Interface, OutputPlace, Result, TracedProgram
from flambeau.core.dtypes import int64
from flambeau.core.size import extent
from flambeau.core.tensor import Tensor
from flambeau.core.unresolved import resolved
from flambeau.fx import Graph, GraphModule, Node
from flambeau.inductor.call import Look
from flambeau.inductor.cpu.compile import Build, have_compiler
from flambeau.inductor.graph import CompiledGraph, print_graph
from flambeau.inductor.loop.boxes import index_of
from flambeau.inductor.loop.ir import Extern
from flambeau.inductor.package.freeze import freeze
from flambeau.inductor.package.gpu import GpuWriter, print_gpu_graph, source_of, without_kernel
from flambeau.inductor.package.written import Input, PackagePlan, Port, Requirement, Size, State, Weights, Writer, Written
from flambeau.ops.custom import MEANINGS
from flambeau.ops.registry import OPERATORS

ARCHIVE = Path(__file__).parents[2] / "lib" / "libflambeau_package.a"


class Built(NamedTuple):
    """A package's library and weights, how many buffers it writes to, and of each of the program's outputs what it is: ("tensor" or "int",
    the number of the library's output) or ("constant", the value)."""

    library: bytes
    weights: bytes
    states: int
    outputs: list[tuple[str, Any]]


def build(gm: GraphModule, examples: Sequence[Any], names: Sequence[str], outputs: Sequence[str],
          requirements: Sequence[Requirement], capability: int = 0) -> Built:
    """Compile a graph that gives a flat tuple for a package.

    `examples` stand for its inputs: fake tensors, whose sizes may be symbolic, and constants; `names` are of the tensors among them.
    `capability`: the compute capability of the GPUs that run it; 0: a CPU does.
    NotImplementedError that lists every operator which needs Python, with the user's line; RuntimeError without a C++ compiler.
    """
    if not have_compiler():
        raise RuntimeError("aoti_compile_and_package: there is no C++ compiler; install one (g++), or set CXX to its path")
    if not ARCHIVE.exists():
        raise RuntimeError(f"aoti_compile_and_package: {ARCHIVE} is missing, which the build of the native module makes; install it anew")
    gm, frozen = _meant(gm), _Frozen()
    parts = compile_parts(gm, examples, print_gpu_graph if capability else print_graph, frozen)
    if any(not isinstance(out, (Result, Constant)) for out in parts.interface.outputs):    # what looks into other memory is copied
        gm, frozen = _copying(gm), _Frozen()
        parts = compile_parts(gm, examples, print_gpu_graph if capability else print_graph, frozen)
    (part,) = parts.graphs
    graph: CompiledGraph = part.compiled  # type: ignore[assignment]
    _refuse_python(graph)
    return _Planner(parts.interface, part.outputs, graph, examples, frozen.attributes).built(names, outputs, requirements, capability)


class _Frozen:
    """Freezes a program, and keeps the tensors that it was given."""

    attributes: Sequence[Tensor] = ()

    def __call__(self, program: TracedProgram, attributes: Sequence[Tensor]) -> None:
        self.attributes = attributes
        freeze(program, attributes)


def _meant(gm: GraphModule) -> GraphModule:
    """A program that calls what libraries' operators in Python mean, in their places."""
    graph = Graph()
    nodes: dict[Node, Node] = {}
    for node in gm.graph.nodes:
        made = nodes[node] = graph.node_copy(node, nodes.__getitem__)
        made.target = MEANINGS.get(getattr(node.target, "qualname", ""), node.target)
    return GraphModule(gm, graph)


def _copying(gm: GraphModule) -> GraphModule:
    """A program whose outputs are tensors of their own."""
    graph = Graph()
    nodes: dict[Node, Node] = {}
    for node in gm.graph.nodes:
        if node.op != "output":
            nodes[node] = graph.node_copy(node, nodes.__getitem__)
            continue
        outs = [nodes[out] if isinstance(out, Node) else out for out in node.args[0]]
        tensors = {out for out in outs if isinstance(out, Node) and isinstance(out.meta.get("val"), Tensor)}
        graph.output(tuple([graph.call_function(OPERATORS["clone"], (out,)) if out in tensors else out for out in outs]))
    return GraphModule(gm, graph)


def _refuse_python(graph: CompiledGraph) -> None:
    externs = without_kernel(graph) if graph.unit is None else [
        step for step in (segment.run for segment in graph.unit.segments) if isinstance(step, Extern)]
    found = dict.fromkeys((str(getattr(step.target, "name", step.op)), _line(step)) for step in externs)
    if found:
        told, where = "\n".join(f"  {name}: {line}" for name, line in found), " for GPUs" if graph.unit is None else ""
        raise NotImplementedError(f"aoti_compile_and_package: {len(found)} operators have no native code{where}, and a package runs without "
                                  f"Python; compute what they do outside of the program, or by other operators:\n{told}")


def _line(step: Extern) -> str:
    return next((origin.line for origin in step.origins if origin.line), "a line that is not known")


class _Planner:
    """Fits the ends of a compiled graph to a package's."""

    def __init__(self, interface: Interface, filled: list[tuple[int, int, Any]] | None, graph: CompiledGraph, examples: Sequence[Any],
                 attributes: Sequence[Tensor]):
        self.interface, self.graph, self.attributes = interface, graph, attributes
        self.call = graph.code.call
        self.examples = list(examples)
        self.numbers = {i: n for n, i in enumerate(i for i, e in enumerate(examples) if isinstance(e, Tensor))}
        self.sizes = [n.meta["val"] for n in graph.gm.graph.nodes if n.op == "placeholder"]
        self.filled = filled if filled is not None else [(k, -1, None) for k in range(len(self.call.results))]

    def built(self, names: Sequence[str], outputs: Sequence[str], requirements: Sequence[Requirement], capability: int = 0) -> Built:
        weights, states = Weights(), list[str]()
        for name, tensor in sorted(self.graph.code.constants.items(), key=lambda item: item[1].nbytes):
            weights.add(name, *_bytes(tensor))      # small ones side by side: what oneDNN has packed of the others leaves memory
        sources = [self._source(source, states, weights) for source in self.interface.sources]
        written = [self._written(k, sources[place]) for k, place in enumerate(self.interface.written)]
        inputs = [_port(name, self.examples[i]) for name, i in zip(names, self.numbers, strict=True)]
        results, ports, given = list[int](), list[Port](), list[tuple[str, Any]]()
        leaves: list[OutputPlace] = list(self.interface.structure)
        for name, leaf in zip(outputs, leaves, strict=True):
            out = self.interface.outputs[leaf.index]
            number, value = (-1, out.value) if isinstance(out, Constant) else self._result(out.index)  # type: ignore[union-attr]
            if number < 0:
                given.append(("constant", value))
                continue
            given.append(("tensor" if isinstance(self.call.results[number], Look) else "int", len(results)))
            results.append(number)
            ports.append(self._output(name, number))
        plan = PackagePlan(self.call, inputs, ports, sources, results, written, list(requirements), states)
        if self.graph.unit is None:
            text = source_of(GpuWriter(plan, weights, self.graph, capability))
        else:
            text = f'{self.graph.unit.source}\n#include "package.h"\n{Writer(plan, weights).text()}'
        library = Build(f"{text}// linked with {_archive_sum()}\n", (str(ARCHIVE), "-Wl,--exclude-libs,ALL", "-ldl", "-lpthread")).content()
        return Built(library, weights.content(), len(states), given)

    def _source(self, source: Any, states: list[str], weights: Weights) -> Input | State | Size:
        if isinstance(source, FromArgument) and source.index in self.numbers:
            return Input(self.numbers[source.index])
        if isinstance(source, FromSize):
            return Size(self.numbers[source.index], source.dim)
        if isinstance(source, FromAttribute):
            states.append(f"state_{source.index}")
            weights.add(states[-1], _bytes(self.attributes[source.index])[0], states[-1])   # its own, whatever it shares
            return State(len(states) - 1)
        what = "draws random numbers: call eval() on the module first, or give them to it as an input" \
            if isinstance(source, FromGenerator) else "takes a number that varies: make it a tensor"
        raise NotImplementedError(f"aoti_compile_and_package: the program {what}")

    def _written(self, k: int, to: Input | State | Size) -> Written:
        number, _ = self._result(k)
        assert not isinstance(to, Size)
        if number < 0:
            raise NotImplementedError("aoti_compile_and_package: an input is written to another one; use .clone() in the program")
        if isinstance(to, Input):
            return Written(number, to, self.call.results[number].shape, ())
        attribute = self.attributes[next(s.index for s in self.interface.sources if isinstance(s, FromAttribute) and self._is(s, to))]
        return Written(number, to, tuple(attribute.shape), tuple(attribute.stride()))

    def _is(self, source: FromAttribute, state: State) -> bool:
        return [s for s in self.interface.sources if isinstance(s, FromAttribute)].index(source) == state.number

    def _result(self, k: int) -> tuple[int, Any]:
        """The call's result that the graph's output k is; or -1, and the constant."""
        computed, given, constant = self.filled[k]
        if computed < 0 and given >= 0 and not isinstance(size := self.sizes[given], Tensor):     # a size, as it came
            self.call.results.append(index_of(size))
            return len(self.call.results) - 1, None
        return computed, constant

    def _output(self, name: str, number: int) -> Port:
        result = self.call.results[number]
        return Port(name, result.dtype, result.shape) if isinstance(result, Look) else Port(name, int64, ())


def _port(name: str, like: Tensor) -> Port:
    return Port(name, like.dtype, tuple(index_of(tuple(like._layout.shape))))


def _bytes(tensor: Tensor) -> tuple[bytes, Any]:
    """The memory of a tensor from its first element to its last, and what tells whether two are the same."""
    host = np.asarray(resolved(tensor.detach()._data))
    strides = tuple(s // host.itemsize for s in host.strides)
    count = extent(host.shape, strides)
    flat = np.lib.stride_tricks.as_strided(host, (count,), (host.itemsize,))
    return flat.tobytes(), (host.__array_interface__["data"][0], count, host.dtype.str) if count else object()


@cache
def _archive_sum() -> str:
    return hashlib.sha256(ARCHIVE.read_bytes()).hexdigest()
