"""`aot_compile`: a captured graph becomes one or two functional graphs, compiled, behind the graph's own signature."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from flambeau import _C
from flambeau.aot import early
from flambeau.aot.cache import Artefacts, Parts, Request, obtain
from flambeau.aot.early import Group
from flambeau.aot.joint import INFERENCE, LEAF, NON_LEAF, Early, FromArgument, FromAttribute, FromSize, Result, TracedProgram, trace
from flambeau.aot.partition import Partition, partition
from flambeau.aot.passes import CLEAN_UP, separate_results
from flambeau.aot.repeats import Call, compile_repeats
from flambeau.aot.runtime import (
    Compiled,
    LaysOut,
    Part,
    Saving,
    TrainingCode,
    deliverer,
    gatherer,
    has_gaps_that_vary,
    overlaps,
    share_memory,
    without_backward,
)
from flambeau.aot.trace import stripped
from flambeau.aot.verify import check_functional, check_partition
from flambeau.core import dispatch
from flambeau.core.settings import Verification
from flambeau.core.tensor import Tensor, fake
from flambeau.core.watching import unwatched
from flambeau.fx import Graph, GraphModule, Node, PassManager, map_aggregate, map_arg
from flambeau.ops.higher_order import HigherOrder, Scan

Compiler = Callable[[GraphModule, list[Any]], Compiled]
Observer = Callable[[str, GraphModule], None]

LEAST_SERVING = 8   # calls of a variant for each that it serves beside them: what that one computes in vain is little of all

log = logging.getLogger("flambeau.graph_breaks")
state = dispatch.state


class Observers:
    """Functions called with `(stage, gm)` for each graph made: "joint", "forward", "backward", "inference"."""

    listening: list[Observer] = []

    @classmethod
    def show(cls, stage: str, gm: GraphModule) -> None:
        """Tell them."""
        for observer in cls.listening:
            observer(stage, gm)


def aot_compile(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    forward_compiler: Compiler,
    backward_compiler: Compiler | None = None,
    inference_compiler: Compiler | None = None,
    artefacts: Artefacts | None = None,
    repeats: bool = False,
    partition_fn: Callable[..., Any] | None = None,
    decompositions: dict[Any, Callable] | None = None,
    aten: bool = False,
    rewrite: Callable[[TracedProgram], None] | None = None,
) -> Callable[..., Any]:
    """A function with the calling convention of `gm`, compiled for inputs like `example_inputs`.

    The examples are tensors (real or fake, sizes may be symbolic), symbolic sizes, or constants. Where gradients are
    wanted, forward and backward are traced jointly, partitioned and given to `forward_compiler` and `backward_compiler`;
    else the graph goes to `inference_compiler`. Compilers take `(gm, example_inputs)` and return a function from a list
    of inputs to a list of outputs. Calls whose inputs need gradients otherwise than the examples compile again. With
    `artefacts`, which say how to keep what the compilers make, programs are looked up in the disk cache first. With
    `repeats`, equal blocks of the graph are compiled once (`repeats.py`). `partition_fn` cuts joint graphs, by calling `cut_joint`;
    `decompositions` are functions that take the places of operators while the graph is traced. With `aten` compilers are given graphs of
    ATen's overloads (`dialect.py`). `rewrite` changes what was traced, before it is cleaned.
    """
    compilers = (forward_compiler, backward_compiler or forward_compiler, inference_compiler or forward_compiler)

    def compile_one(gm: GraphModule, calls: list[Call], whole: bool = False) -> Callable[..., Any]:
        function = AotFunction(gm, calls[0].inputs, compilers, artefacts, partition_fn, decompositions, whole, aten)
        function.rewrite = rewrite
        return function.specialised(calls)

    if repeats:
        with _C.HooksScope():
            whole = compile_repeats(gm, example_inputs, compile_one)
        if whole is not None:
            return whole
    return compile_one(gm, [Call(list(example_inputs))], True)


def compile_parts(gm: GraphModule, examples: Sequence[Any], compiler: Compiler,
                  rewrite: Callable[[TracedProgram, Sequence[Tensor]], None]) -> Parts:
    """A program without gradients in its parts, for who calls them otherwise than `aot_compile` would, and not through Python. `rewrite` is
    given what was traced, and the module's parameters and buffers, before `compiler` is."""
    with _C.HooksScope(), unwatched(), dispatch.grad_enabled(False):
        function = AotFunction(gm, list(examples), (compiler,) * 3, None)
        function.rewrite, function.kernels = lambda program: rewrite(program, function.attributes), False
        return function._build(None)


class AotFunction:
    """One captured graph and the variants compiled of it, by which inputs need gradients."""

    def __init__(
        self, gm: GraphModule, examples: list[Any], compilers: tuple[Compiler, Compiler, Compiler], artefacts: Artefacts | None,
        partition_fn: Callable[..., Any] | None = None, decompositions: dict[Any, Callable] | None = None, whole: bool = False,
        aten: bool = False,
    ) -> None:
        """`whole`: no piece, whose gradients come before the backward pass ends anyway."""
        self.gm, self.whole, self.aten = gm, whole, aten
        self.compilers = compilers
        self.artefacts, self.partition_fn, self.decompositions = artefacts, partition_fn, decompositions
        self.attributes = list({id(t): t for t in (*gm.parameters(), *gm.buffers())}.values())
        self.turns_on = any(n.meta.get("recording", 0) & 1 for n in gm.graph.nodes)  # gradients, after a start without
        self.needs = self._needs(examples)
        self.examples = [stripped(e) if isinstance(e, Tensor) else e for e in examples]  # no data is kept alive
        self.variants: dict[tuple[tuple | None, tuple[Group, ...]], Callable[[tuple], Any]] = {}
        self.rewrite: Callable[[TracedProgram], None] | None = None
        self.kernels = True     # of operators that are called whole, from Python

    def specialised(self, calls: Sequence[Call] = ()) -> Callable[..., Any]:
        """The function for calls like the examples; others go through `call`, and are compiled when they come, unless they
        are like one of `calls`."""
        needs = self.needs
        given = [n for n in self.gm.graph.nodes if n.op == "placeholder"]
        groups = self._groups([real() if callable(real := n.meta.get("parameter")) else None for n in given])
        served = self._served(calls)
        for wanted in dict.fromkeys((needs, *map(self._needs, (call.inputs for call in calls)))):
            variant = served.get(wanted, wanted), groups
            run = self.variants.get(variant)
            self.variants[wanted, groups] = self.variants[variant] = self._compile(*variant) if run is None else run
        run = self.variants[needs, groups]
        tensors = [i for i, example in enumerate(self.examples) if isinstance(example, Tensor)]
        if needs is not None or self.attributes or self.turns_on:
            return lambda *args: self.call(args)

        def compiled(*args: Any) -> Any:
            if state.word:
                return self.call(args)
            if state.grad_enabled:
                for i in tensors:
                    if args[i]._grad is not None or args[i]._view is not None:
                        return self.call(args)
            return run(args)

        return compiled

    def _served(self, calls: Sequence[Call]) -> dict[tuple | None, tuple]:
        """Which calls another's variant serves, so that it need not be compiled as well: one that differentiates by more, as the other
        layers do where the first is given the data. Few calls, for they compute gradients that nobody takes."""
        if any(n.meta.get("writes") or "recording" in n.meta for n in self.gm.graph.nodes):
            return {}
        kinds = Counter((self._needs(call.inputs), call.recorded) for call in calls)
        return {few: most for (few, recorded), count in kinds.items() for (most, likewise), many in kinds.items()
                if few and most and few != most and recorded == likewise and many >= LEAST_SERVING * count
                and all(a == b or (a, b) == (0, NON_LEAF) for a, b in zip(few, most, strict=True))}

    def _needs(self, args: Sequence[Any]) -> tuple | None:
        """How each tensor needs a gradient; None if none does."""
        if not (state.grad_enabled or self.turns_on):
            return None
        needs = tuple([_need(a) for a in (*args, *self.attributes)])
        return needs if LEAF in needs or NON_LEAF in needs else None

    def call(self, args: tuple) -> Any:
        """Run the variant for these arguments, compiled if it is not there yet."""
        if state.word:  # traced or transformed from outside: then every operation has to be seen
            return self.gm(*args)
        needs = self._needs(args)
        key = needs, self._groups(args) if early.here.receiver is not None and needs is not None else ()
        run = self.variants.get(key)
        if run is None:
            run = self.variants[key] = self._compile(*key)
        return run(args)

    def _groups(self, args: Sequence[Any]) -> tuple[Group, ...]:
        """Of whose gradients somebody wants to hear before backward ends."""
        receiver = early.here.receiver
        return receiver.groups(args) if receiver is not None and self.whole and state.grad_enabled else ()

    def _compile(self, needs: tuple | None, groups: tuple[Group, ...] = ()) -> Callable[[tuple], Any]:
        with _C.HooksScope(), unwatched():   # what is traced here is nothing to the caller's hooks of saved tensors
            try:
                return self._obtain(needs, groups)
            except NotImplementedError as error:    # what there are no values for, or no code, runs as it was captured
                log.debug("a captured graph runs as it is, uncompiled: %s", error)
                return lambda args: self.gm(*args)

    def _obtain(self, needs: tuple | None, groups: tuple[Group, ...]) -> Callable[[tuple], Any]:
        wanted = Early(early.here.receiver, groups) if groups and early.here.receiver is not None else None
        if self.artefacts is None:
            return self._around(self._build(needs, wanted))
        watched = bool(Observers.listening)
        request = Request(self.gm, self.examples, self.attributes, needs, self.artefacts, watched, groups)
        return self._around(obtain(request, lambda: self._build(needs, wanted)))

    def _build(self, needs: tuple | None, wanted: Early | None = None) -> Parts:
        """Trace, clean up, partition, compile."""
        started = time.perf_counter()
        program = trace(self.gm, self.examples, self.attributes, needs, self.decompositions, wanted, self.kernels, self.aten)
        if self.rewrite is not None:
            self.rewrite(program)
        self._compile_functions(program.graph)
        interface = program.interface
        program.graph.provenance.append(_made_by("tracing", started, program.graph))
        if Verification.on:
            check_functional(program.graph, "tracing")
        training = bool(interface.differentiable) and interface.no_backward is None
        joint = program.module(name="joint" if training else "inference")
        program.graph.meta["captured"] = self.gm   # the steps that kernels are of
        _clean(joint)
        Observers.show(joint._class_name, joint)
        if training:
            return self._training(program)
        self._mark_parameters(program)
        return Parts(interface, [_compile(self.compilers[2], program, joint.graph, interface.results)])

    def _mark_parameters(self, program: TracedProgram) -> None:
        """Tell the compiler which inputs are parameters: it may keep what it makes of them until one is written."""
        given = [n for n in self.gm.graph.nodes if n.op == "placeholder"]
        for node, source in zip(program.inputs, program.interface.sources):
            node.meta["parameter"] = isinstance(source, FromAttribute) or (
                isinstance(source, FromArgument) and bool(given[source.index].meta.get("parameter")))

    def _compile_functions(self, graph: Graph) -> None:
        """Compile what operators of this graph call."""
        for node in graph.nodes:
            if isinstance(node.target, HigherOrder):
                calls = node.target.calls(map_arg(node.args, lambda n: n.meta["val"]))
                if isinstance(node.target, Scan):
                    _trace_step(node.target, calls[0])
                node.target.compiled = tuple([self._when_called(*call, node.target.recording)
                                              for call in zip(node.target.functions, calls, strict=True)])

    def _when_called(self, function: Callable, args: Sequence[Any], recording: int) -> Callable:
        """The function, compiled when it is first called: a compiler may have it in another way."""
        @cache
        def compiled() -> Callable:
            with _C.HooksScope():
                return self._inner(function, args, recording)

        return lambda *given: compiled()(*given)

    def _inner(self, function: Callable, args: Sequence[Any], recording: int) -> Callable:
        saved, state.recording = state.recording, recording
        try:
            return AotFunction(as_module(function, len(args)), list(args), (self.compilers[2],) * 3, None).specialised()
        finally:
            state.recording = saved

    def _training(self, program: TracedProgram) -> Parts:
        """Compiled forward and backward."""
        interface = program.interface
        overwritten = [program.inputs[place] for place in interface.written]
        started = time.perf_counter()
        split = self._cut(program, lambda recompute: partition(program.graph, interface.results, program.tangents, overwritten,
                                                               recompute=recompute))
        for graph in (split.forward, split.backward):
            graph.provenance.append(_made_by("partition", started, graph))
        graphs = {"forward": split.forward, "backward": split.backward}
        if Verification.on:
            for graph in graphs.values():
                check_functional(graph, "partition")
            check_partition(program.graph, split, interface, program.tangents, "partition")
        for stage, graph in graphs.items():
            Observers.show(stage, program.module(graph, stage))
        forward = _compile(self.compilers[0], program, split.forward, interface.results)
        _adopt_layouts(split, forward.compiled)
        _mark_donated(split)
        backward = _compile(self.compilers[1], program, split.backward, 0)
        return Parts(interface, [forward, backward], Saving(split.saved_primals, split.saved_results))

    def _cut(self, program: TracedProgram, cut: Callable[[bool], Partition]) -> Partition:
        if self.partition_fn is None:
            return cut(True)
        joint = program.module()
        examples = [n.meta["val"] for n in program.graph.nodes if n.op == "placeholder"]
        cutting = joint.graph.meta["cutting"] = _Cutting(program, cut)
        made = self.partition_fn(joint, examples, num_fwd_outputs=program.interface.results)
        split = cutting.split
        if split is None or [gm.graph for gm in made] != [split.forward, split.backward]:
            raise RuntimeError("partition_fn has to return what default_partition or min_cut_rematerialization_partition returned for this "
                               "joint graph; graphs that it cut itself cannot be used here")
        return split

    def _around(self, parts: Parts) -> Callable[[tuple], Any]:
        """The caller's convention around the graphs', which the tape ties together."""
        interface, functions = parts.interface, [part.function() for part in parts.graphs]
        for part, stage in zip(parts.graphs, ("forward" if parts.saving else "inference", "backward")):
            if (code := getattr(part.compiled, "code", None)) is not None:
                code.captured, code.stage = self.gm, stage  # whose lines its kernels are of
        run: Compiled
        if parts.saving is not None:
            run = TrainingCode(interface, parts.saving, *functions).run_forward
        else:
            run = _without_grad(functions[0])
            if interface.no_backward is not None:
                run = without_backward(interface, run)
        gather, deliver = gatherer(interface, self.attributes), deliverer(interface)
        gm, written, n = self.gm, interface.written, len(interface.outputs)
        if gather is None and deliver is None and n == interface.results:
            return lambda args: tuple(run(list(args)))
        examples = {place: self._example(interface.sources[place]) for place in written}
        if any(map(overlaps, examples.values())):
            return lambda args: gm(*args)
        varying = [place for place, example in examples.items() if has_gaps_that_vary(example)]

        def call(args: tuple) -> Any:
            inputs = list(args) if gather is None else gather(args)
            if written and (share_memory(inputs, written) or any(overlaps(inputs[place]) for place in varying)):
                return gm(*args)
            results = run(inputs)
            return tuple(results[:n]) if deliver is None else deliver(inputs, results)

        return call


    def _example(self, source: Any) -> Any:
        return self.examples[source.index] if isinstance(source, FromArgument) else self.attributes[source.index]


def _trace_step(scan: Scan, args: Sequence[Any]) -> None:
    """Give the loop its step as a functional graph, if all that it does is to compute results."""
    program = trace(as_module(scan.functions[0], len(args)), args, [], None)
    if not all(isinstance(out, Result) for out in program.interface.outputs):   # what looks into other memory is copied
        program = trace(as_module(lambda *values: [t.clone() for t in scan.functions[0](*values)], len(args)), args, [], None)
    interface = program.interface
    given = [s for s in interface.sources if not isinstance(s, FromSize)]
    computed = all(isinstance(out, Result) for out in interface.outputs)
    if interface.written or not computed or given != [FromArgument(k) for k in range(len(args))]:
        return
    step = program.module(name="step")
    _clean(step)
    output = step.graph.output_node()
    order = {node: k for k, node in enumerate(dict.fromkeys(output.args[0]))}
    leaves: list[Any] = []
    map_aggregate(interface.structure, leaves.append)
    scan.places = tuple([order[output.args[0][interface.outputs[slot.index].index]] for slot in leaves])
    output.args = (tuple(order),)
    scan.body = step


@dataclass
class _Cutting:
    """What a joint graph that a function of the user's is to cut carries with it: how it is cut, and what came out."""

    program: TracedProgram
    cut: Callable[[bool], Partition]
    split: Partition | None = None


def cut_joint(joint: GraphModule, recompute: bool) -> tuple[GraphModule, GraphModule]:
    """For `partition_fn`: the forward and the backward graph of the joint graph that it was given; without `recompute` backward computes
    only views and sizes again."""
    cutting = joint.graph.meta.get("cutting")
    if cutting is None:
        raise RuntimeError("only the joint graph that a partition_fn was given can be cut, while it is compiled")
    split = cutting.split = cutting.cut(recompute)
    return cutting.program.module(split.forward, "forward"), cutting.program.module(split.backward, "backward")


def as_module(function: Callable, count: int) -> GraphModule:
    """A graph that calls the function, unless it is one."""
    if isinstance(function, GraphModule):
        return function
    graph = Graph()
    graph.output(graph.call_function(function, tuple(graph.placeholder(f"x{i}") for i in range(count))))
    return GraphModule({}, graph)


def _made_by(stage: str, started: float, graph: Graph) -> str:
    return f"made by {stage} in {(time.perf_counter() - started) * 1e3:.1f} ms ({len(graph.nodes)} nodes)"


def _need(a: Any) -> int:
    """0, LEAF, NON_LEAF or INFERENCE: called for every input of every call, so it looks at the record itself."""
    if not isinstance(a, Tensor):
        return 0
    if a._view is not None and not a.requires_grad:  # a view brings its record up to date when asked
        return 0
    record = a._grad
    if record is None:
        store = a._store
        return INFERENCE if store is not None and store.inference else 0
    if record.grad_fn is not None:
        return NON_LEAF
    return LEAF if record.requires_grad else 0


def _without_grad(compiled: Compiled) -> Compiled:
    def run(inputs: list) -> list:
        if not state.grad_enabled:
            return compiled(inputs[:])
        state.grad_enabled = False
        try:
            return compiled(inputs[:])
        finally:
            state.grad_enabled = True

    return run


def _adopt_layouts(split: Partition, forward: Compiled) -> None:
    """Tell the backward graph how the compiled forward graph lays out what it saves."""
    if not isinstance(forward, LaysOut):
        return
    results = dict(zip([n.name for n in split.forward.output_node().args[0]], forward.layouts(), strict=True))
    for node in split.backward.nodes:
        if node.op == "placeholder" and (strides := results.get(node.name)) is not None:
            val = node.meta["val"]
            node.meta["val"] = fake(val._layout.shape, val.dtype, val.device, strides)


def _mark_donated(split: Partition) -> None:
    """Tell the compiler which inputs of the backward graph only its caller has: what forward saved for it alone, and gradients."""
    placeholders = [n for n in split.backward.nodes if n.op == "placeholder"]
    for node in placeholders[len(split.saved_primals) + len(split.saved_results):]:
        node.meta["donated"] = True


# -- before and after the compilers --------------------------------------------------------------------------------------


def _clean(gm: GraphModule) -> None:
    PassManager(CLEAN_UP, check=Verification.on and check_functional)(gm)


def _compile(compiler: Compiler, program: TracedProgram, graph: Graph, results: int) -> Part:
    """Compile one graph. Compilers see outputs that are computed, each once; the others are filled in when it runs.

    The first `results` outputs, after those that are written back to inputs, are handed to the user: they must not share
    memory, with each other or with inputs.
    """
    separate_results(graph, len(program.interface.written), results)
    outputs = list(graph.output_node().args[0])
    placeholders = {n: i for i, n in enumerate(n for n in graph.nodes if n.op == "placeholder")}
    computed = {n: None for n in outputs if isinstance(n, Node) and n not in placeholders}
    index = {n: i for i, n in enumerate(computed)}
    graph.output_node().args = (tuple(computed),)
    # The compiler may lay out as it likes what only the backward graph sees, and says so (`LaysOut`).
    graph.meta["exact_outputs"] = len({n for n in outputs[:results] if n in computed}) if results else len(computed)
    gm = program.module(graph, graph.meta.get("name", "graph"))
    if Verification.on:
        check_functional(graph, "separate_results", relaid=not results)
    examples = [n.meta["val"] for n in placeholders]
    compiled = compiler(gm, examples)
    if outputs == list(computed):
        return Part(compiled)
    plan = [(index.get(n, -1), placeholders.get(n, -1), None) if isinstance(n, Node) else (-1, -1, n) for n in outputs]
    return Part(compiled, plan)
