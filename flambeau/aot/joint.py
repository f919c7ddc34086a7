"""From a dynamo-level graph to one functional graph of primitives: forward alone, or forward and backward jointly.

`trace` runs the graph on fake inputs and finds out what the runtime has to do around the functional graph: where the
inputs come from, which inputs were written to, and which outputs are aliases of inputs or of each other.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flambeau.aot.early import Group, Receiver
from flambeau.aot.passes import ancestors, copy_of, eliminate_dead_code, has_effect, root_of
from flambeau.aot.trace import Entry, GraphRunner, TraceMode, stripped, tracing
from flambeau.autograd.engine import run_backward
from flambeau.autograd.graph import Node as TapeNode
from flambeau.autograd.graph import edge_of
from flambeau.core import dispatch
from flambeau.core.symbolic import DataDependentFloat, SymFloat, SymInt, is_symbolic, is_var
from flambeau.core.tensor import AutogradMeta, Tensor, fake
from flambeau.fx import Graph, GraphModule, Node, map_aggregate
from flambeau.fx.node import walk_nodes
from flambeau.ops.primitives import channels_last_like
from flambeau.ops.registry import PRIMITIVES

# -- what the runtime must know ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Numbered:
    index: int


class FromArgument(_Numbered):
    """A graph input that is the caller's argument `index`."""


class FromAttribute(_Numbered):
    """A graph input that is a tensor of the module: the one numbered `index` of its parameters and buffers."""


@dataclass(frozen=True, slots=True)
class FromSize:
    """A graph input that is a size of the caller's argument `index`."""

    index: int
    dim: int


@dataclass(frozen=True, slots=True)
class FromGenerator:
    """A graph input that is the state of the default generator, as a tensor on `device`; it moves on by `blocks`."""

    blocks: Any
    device: Any


@dataclass(frozen=True, slots=True)
class Constant:
    """An output known when the graph was traced."""

    value: Any


class Result(_Numbered):
    """An output that is the functional graph's output `index`."""


class SameInput(_Numbered):
    """An output that is the graph's input `index` itself."""


@dataclass(frozen=True, slots=True)
class ViewOf:
    """An output to be taken as a view of another: `chain` of (primitive, attributes), sizes as `Result`s."""

    base: Result | SameInput
    chain: tuple
    tracked: bool  # whether gradients flow through the view, or would
    detached: bool = False  # whether it knows of no base
    history: Result | None = None  # whose history the view has, if it was written to where its base's history does not see


class Early(NamedTuple):
    """Groups of arguments whose gradients somebody wants early."""

    receiver: Receiver
    groups: tuple[Group, ...]


Source = FromArgument | FromAttribute | FromSize | FromGenerator
Output = Constant | Result | SameInput | ViewOf


@dataclass
class Interface:
    """What the runtime must know of a traced program.

    The graph takes the inputs (`sources` says where each comes from) and, if there are gradients, tangents for the
    results `differentiable`; it returns results, then gradients for the inputs `gradient_inputs`. The first results are
    the new values of the inputs `written`; `outputs` and `structure` say how to make of the rest what the caller gets.
    """

    sources: list[Source]
    written: list[int]
    outputs: list[Output]
    structure: Any
    results: int
    uncounted: frozenset[int] = frozenset()  # of the written, those that were written to through `.data` alone
    differentiable: list[int] = field(default_factory=list)
    gradient_inputs: list[int] = field(default_factory=list)
    no_backward: RuntimeError | None = None  # why there are no gradients, although results need them
    names: list[str] = field(default_factory=list)  # of the inputs; those of sizes are their symbols
    other_mode: list[int] = field(default_factory=list)  # results that are inference tensors where the call's are not, or the reverse
    channels_last: dict[int, int] = field(default_factory=dict)  # number of dimensions of gradients that are taken in that order
    reached: list[int] | None = None  # for each gradient the results that it comes from, as bits; None: from all of them
    told: int = 0  # outputs behind the gradients: results of calls that hand these over, or that nobody reads
    specs: list[tuple] | None = None  # shape, dtype and device of the differentiable results, where sizes are known


@dataclass
class TracedProgram:
    """A traced program: the graph, and what is around it."""

    graph: Graph
    constants: dict[str, Tensor]
    interface: Interface
    tangents: list[Node] = field(default_factory=list)

    @property
    def inputs(self) -> list[Node]:
        """The placeholders of the graph's inputs, without the tangents."""
        return [n for n in self.graph.nodes if n.op == "placeholder"][: len(self.interface.sources)]

    def module(self, graph: Graph | None = None, name: str = "joint") -> GraphModule:
        """A graph of this program with its constants."""
        graph = self.graph if graph is None else graph
        used = {str(n.target) for n in graph.nodes if n.op == "get_attr"}
        return GraphModule({k: v for k, v in self.constants.items() if k in used}, graph, name)


@dataclass(frozen=True, slots=True)
class OutputPlace:
    """The place of an output in `TracedProgram.structure`."""

    index: int


LEAF, NON_LEAF, INFERENCE = 1, 2, 4  # how an input needs a gradient; a tensor that backward must not keep


# -- inputs ------------------------------------------------------------------------------------------------------------


class _Recomputed(TapeNode):
    """The history of an input that is no leaf, so that writes to it are allowed and its gradient is found."""

    __slots__ = ()

    def apply(self, gs: list) -> list:
        """The identity."""
        return gs


def give_history(made: Tensor) -> Tensor:
    """Let a fake tensor be no leaf: the leaf that its gradient goes to."""
    leaf = stripped(made)
    leaf.requires_grad = True
    edge = edge_of(leaf)
    assert edge is not None
    made._grad = AutogradMeta(False, history := _Recomputed([edge]), 0)
    history.output_specs = edge.node.output_specs
    return leaf


class _Inputs:
    """The fake inputs of one trace, in the order of the graph's placeholders."""

    def __init__(self, mode: TraceMode, needs: Sequence[int]) -> None:
        self.mode = mode
        self.needs = iter(needs)
        self.sources: list[Source] = []
        self.entries: list[Entry | None] = []  # per source; None for sizes
        self.leaves: dict[int, Tensor] = {}  # source -> what to ask the gradient of
        self.histories: dict[int, TapeNode | None] = {}  # source -> its grad_fn before anything was done to it

    def add(self, source: Source, like: Tensor, name: str) -> Tensor:
        """A fake input with the layout of `like`; `needs` says whether it is to have a gradient."""
        made, need = stripped(like), next(self.needs)
        made._storage.inference = need == INFERENCE
        if need in (LEAF, NON_LEAF):
            self._require_grad(made, need == LEAF)
        self.entries.append(self.mode.input(name, made, len(self.sources)))
        self.sources.append(source)
        return made

    def _require_grad(self, made: Tensor, is_leaf: bool) -> None:
        if is_leaf:
            made.requires_grad = True
        self.leaves[len(self.sources)] = made if is_leaf else give_history(made)
        self.histories[len(self.sources)] = _history(made)

    def add_size(self, source: Source, value: SymInt | SymFloat) -> None:
        """A symbol as an input."""
        if str(value) not in self.mode.symbols:
            self.mode.size_input(str(value), value)
            self.sources.append(source)
            self.entries.append(None)

    def add_arguments(self, examples: Sequence[Any]) -> list[Any]:
        """An input for each tensor and each symbol among the caller's arguments; the arguments to trace with."""
        traced: list[Any] = []
        for i, example in enumerate(examples):
            if isinstance(example, Tensor):
                traced.append(self.add(FromArgument(i), example, f"primals_{len(self.sources) + 1}"))
            else:
                next(self.needs)
                if (isinstance(example, SymInt) and is_var(example.expr)) or isinstance(example, SymFloat):
                    self.add_size(FromArgument(i), example)
                traced.append(example)
        for i, example in enumerate(examples):
            if isinstance(example, Tensor):
                for dim, size in enumerate(example.shape):
                    if isinstance(size, SymInt) and is_var(size.expr):
                        self.add_size(FromSize(i, dim), size)
        return traced

    def add_attributes(self, attributes: Sequence[Tensor]) -> dict[int, Tensor]:
        """An input for each parameter and buffer of the module that the graph was captured with."""
        twins: dict[int, Tensor] = {}
        for i, tensor in enumerate(attributes):
            twins[id(tensor)] = self.add(FromAttribute(i), tensor, f"primals_{len(self.sources) + 1}")
            self.mode.adopt(tensor, twins[id(tensor)])
        return twins


@contextmanager
def _swapped(gm: GraphModule, twins: dict[int, Tensor]) -> Iterator[None]:
    """Let the module's parameters and buffers be their stand-ins."""
    saved = [(home, dict(home)) for m in gm.modules() for home in (m._parameters, m._buffers)]
    try:
        for home, values in saved:
            home.update({name: twins.get(id(value), value) for name, value in values.items()})
        yield
    finally:
        for home, values in saved:
            home.clear()
            home.update(values)


# -- tracing -----------------------------------------------------------------------------------------------------------


def trace(gm: GraphModule, examples: Sequence[Any], attributes: Sequence[Tensor], needs: Sequence[int] | None,
          decompositions: Mapping[Any, Callable] | None = None, early: Early | None = None, kernels: bool = True,
          aten: bool = False) -> TracedProgram:
    """The functional program of `gm` on inputs like `examples`.

    `attributes` are the module's parameters and buffers, which become inputs too. `needs` holds for each example and each
    attribute whether it is to have a gradient (0, LEAF or NON_LEAF) or is an INFERENCE tensor; without it only the forward pass is traced.
    The gradients of the groups `early` are handed over when they are there. `kernels` and `aten`: as in `TraceMode`.
    """
    mode = TraceMode(kernels, aten)
    inputs = _Inputs(mode, needs or [0] * (len(examples) + len(attributes)))
    with tracing(mode):
        arguments = inputs.add_arguments(examples)
        twins = inputs.add_attributes(attributes)
        with _swapped(gm, twins):
            answer = GraphRunner(gm, mode, decompositions).run(*arguments)
        mode.enter_line(())
        return _Finish(mode, inputs, needs is not None, early).program(answer)


class _Finish:
    """Turns what a traced function returned and did into a `TracedProgram`."""

    def __init__(self, mode: TraceMode, inputs: _Inputs, with_gradients: bool, early: Early | None = None) -> None:
        self.mode, self.early = mode, early
        self.inputs = inputs
        self.with_gradients = with_gradients
        self.results: list[Any] = []  # the functional graph's results, as nodes
        self.other_mode: list[int] = []
        self.tensors: list[Tensor | None] = []  # the fake tensor that each result is the value of

    def program(self, answer: Any) -> TracedProgram:
        """All of it."""
        written = self._written()
        leaves: list[Any] = []
        map_aggregate(answer, leaves.append)
        bases = self._shared_bases(leaves)
        outputs: list[Output] = []
        slots: dict[int, OutputPlace] = {}

        def slot(leaf: Any) -> OutputPlace:
            if id(leaf) not in slots:
                slots[id(leaf)] = OutputPlace(len(outputs))
                outputs.append(self._output(leaf, bases))
            return slots[id(leaf)]

        structure = map_aggregate(answer, slot)
        for done in self._unread_effects(self.results):
            self._add(done, None)
        uncounted = frozenset(place for place in written if (entry := self.inputs.entries[place]) and not entry.cell.base._storage.version)
        interface = Interface(self.inputs.sources, written, outputs, structure, len(self.results), uncounted)
        interface.other_mode = self.other_mode
        program = TracedProgram(self.mode.graph, self.mode.constants, interface)
        gradients = self._backward(program) if self.with_gradients else ()
        if self.mode.random is not None:
            interface.sources.append(FromGenerator(self.mode.drawn, self.mode.random.device))
        self.mode.graph.output((*self.results, *gradients))
        interface.names = [str(n.meta["val"]) if isinstance(n.meta["val"], (SymInt, SymFloat)) else n.name for n in program.inputs]
        if interface.no_backward is not None:
            eliminate_dead_code(self.mode.graph)
            for tangent in program.tangents:
                self.mode.graph.erase_node(tangent)
        return program

    # -- forward -----------------------------------------------------------------------------------------------------

    def _written(self) -> list[int]:
        """The inputs whose memory has a new value; it becomes a result."""
        entries = {place: entry for place, entry in enumerate(self.inputs.entries) if entry is not None}
        for entry in entries.values():
            _check_metadata(entry)
        written = [place for place, entry in entries.items() if entry.cell.node is not entry.cell.first]
        overwritten = {entries[place].cell.first for place in written}
        for place in written:
            node = entries[place].cell.node
            if root_of(node) in overwritten:  # the old value of an input, which is gone by the time it is written back
                node = copy_of(self.mode.graph, node)
            tensor = entries[place].tensor
            self._add(node, tensor if _history(tensor) is not self.inputs.histories.get(place) else None)
        return written

    def _shared_bases(self, leaves: list[Any]) -> dict[Any, Result]:
        """Where outputs look into the memory of an intermediate, that is a result and they are its views."""
        entries = [self.mode.entry(leaf) for leaf in leaves if isinstance(leaf, Tensor) and self.mode.knows(leaf)]
        cells = {entry.cell: None for entry in entries if entry.chain and entry.cell.place is None}
        return {cell: self._value(cell.base) for cell in cells}

    def _output(self, leaf: Any, bases: dict[Any, Result]) -> Output:
        if is_symbolic(leaf):
            return self._add(self.mode.sizes.of(leaf), None)
        if not isinstance(leaf, Tensor) or not self.mode.knows(leaf):
            return Constant(leaf)
        entry = self.mode.entry(leaf)
        cell = entry.cell
        if cell.place is not None:
            return self._alias(entry, leaf, SameInput(cell.place), cell.base)
        if cell in bases:
            return self._alias(entry, leaf, bases[cell], cell.base)
        return self._value(leaf)

    def _alias(self, entry: Entry, leaf: Tensor, base: Result | SameInput, base_tensor: Tensor) -> Output:
        """An output that shares memory with an input or with another output."""
        root = leaf if leaf._view is None else leaf._view.base
        apart = bool(entry.chain) and leaf.requires_grad and root is not base_tensor    # detached, then written to with a gradient
        if apart and leaf._view is not None:
            raise NotImplementedError("a view of a detached tensor that is written to with a gradient; clone() what is detached")
        tracked = leaf.requires_grad == base_tensor.requires_grad and not apart
        if not entry.chain and tracked:
            return base
        history = self._value(leaf) if leaf.requires_grad and not tracked else None
        chain = entry.chain or ((PRIMITIVES["alias"], ()),)
        steps = tuple((prim, map_aggregate(attrs, self._attribute)) for prim, attrs in chain)
        with_grad = leaf.requires_grad or (leaf._view is not None and leaf._view.origin is None)
        return ViewOf(base, steps, tracked and with_grad, leaf._view is None, history)

    def _attribute(self, a: Any) -> Any:
        if isinstance(a, Tensor):
            return self._value(a)
        return self._add(self.mode.sizes.of(a), None) if is_symbolic(a) else a

    def _value(self, tensor: Tensor) -> Result:
        if tensor.is_inference() != dispatch.state.inference:
            self.other_mode.append(len(self.results))
        return self._add(self.mode.node_of(tensor), tensor)

    def _add(self, node: Any, tensor: Tensor | None) -> Result:
        self.results.append(node)
        self.tensors.append(tensor)
        return Result(len(self.results) - 1)

    def _unread_effects(self, results: Sequence[Any]) -> list[Node]:
        """A truth value for each step that does more than to compute and that no result comes from: what raises in eager raises, and the
        processes that take part in a collective are the same."""
        read = ancestors(walk_nodes(results))
        done = []
        for node in list(self.mode.graph.nodes):
            if node not in read and has_effect(node) and node.meta["val"] != ():
                done.append(self._truth_of(node))
                read |= ancestors(done[-1:], read)
        return done

    def _truth_of(self, node: Node) -> Node:
        value = node.meta["val"]
        if isinstance(value, tuple):
            part = self.mode.graph.call_function(operator.getitem, (node, 0))
            part.meta = {**node.meta, "val": value[0]}
            return self._truth_of(part)
        some = self.mode.also("ne", node, 0)
        return self.mode.also("any", some, tuple(range(some.meta["val"].ndim)))

    # -- backward ----------------------------------------------------------------------------------------------------

    def _backward(self, program: TracedProgram) -> list[Node | None]:
        """Record the gradients of the inputs, given those of the results."""
        places = [i for i, t in enumerate(self.tensors) if t is not None and t.requires_grad]
        roots = [t for t in self.tensors if t is not None and t.requires_grad]
        interface = program.interface
        interface.differentiable = places
        if all(type(size) is int for root in roots for size in root._layout.shape):
            interface.specs = [(root.shape, root.dtype, root.device) for root in roots]
        interface.channels_last = {i: root.ndim for i, root in enumerate(roots) if _channels_last(root) is not None}
        if not roots:
            return []
        tangents = [self._tangent(i, root) for i, root in enumerate(roots)]
        program.tangents = [entry.node for entry in tangents]
        leaves = self.inputs.leaves
        self.mode.follow_backward(root.grad_fn for root in roots)
        reached = _reached([root.grad_fn for root in roots])
        try:
            gradients = run_backward(
                roots, [entry.tensor for entry in tangents], inputs=list(leaves.values()), retain_graph=False, create_graph=False,
                accumulate=False,
            )
        except DataDependentFloat:  # whoever captured the graph fixes the number
            raise
        except RuntimeError as error:  # as in eager, it is the caller's only if backward is ever called
            interface.no_backward, interface.gradient_inputs = error.with_traceback(None), list(leaves)
            return []
        interface.gradient_inputs = [place for place, g in zip(leaves, gradients, strict=True) if g is not None]
        of = [reached.get(edge.node, 0) if (edge := edge_of(leaves[place])) else 0 for place in interface.gradient_inputs]
        interface.reached = of if any(bits != (1 << len(roots)) - 1 for bits in of) else None
        told = self._hand_over(dict(zip(leaves, gradients))) if self.early is not None and interface.reached is None else []
        made = [self.mode.node_of(g) for g in (*gradients, *told) if g is not None]
        done = self._unread_effects((*self.results, *made))
        interface.told = len(told) + len(done)
        return [*made, *done]

    def _hand_over(self, gradients: dict[int, Tensor | None]) -> list[Tensor]:
        """Calls that give the gradients of each group to who wants them; their results."""
        assert self.early is not None
        places = {s.index: i for i, s in enumerate(self.inputs.sources) if isinstance(s, FromArgument)}
        told = []
        for group in self.early.groups:
            found = [gradients.get(places[index]) for index in group.places]
            if all(g is not None for g in found):
                told.append(self.early.receiver.tell(group, [g for g in found if g is not None]))
        return told

    def _tangent(self, i: int, root: Tensor) -> Entry:
        """The input for the gradient of a result; the runtime hands it over channels-last as the result is, or contiguous."""
        tangent = fake(root._layout.shape, root.dtype, root.device, _channels_last(root))
        return self.mode.input(f"tangents_{i + 1}", tangent)


def _channels_last(t: Tensor) -> tuple | None:
    """The strides of a tensor in that order, if its sizes are known."""
    shape = t._layout.shape
    return channels_last_like(t, shape) if all(type(n) is int for n in shape) else None


def _reached(roots: Sequence[TapeNode | None]) -> dict[TapeNode, int]:
    """For each node of the tape the numbers of the roots that it is behind of, as bits."""
    bits: dict[TapeNode, int] = {}
    for number, root in enumerate(roots):
        if root is not None:
            bits[root] = bits.get(root, 0) | 1 << number
    nodes, stack = set(bits), list(bits)
    while stack:
        for edge in stack.pop().edges:
            if edge is not None and edge.node not in nodes:
                nodes.add(edge.node)
                stack.append(edge.node)
    for node in sorted(nodes, key=lambda node: -node.sequence):     # from later to earlier
        for edge in node.edges:
            if edge is not None:
                bits[edge.node] = bits.get(edge.node, 0) | bits.get(node, 0)
    return bits


def _history(tensor: Tensor) -> TapeNode | None:
    return tensor.grad_fn


def _check_metadata(entry: Entry) -> None:
    """Refuse changes of an input that are not writes to its elements."""
    tensor = entry.tensor
    if (tensor._lay is not entry.layout and tensor._layout != entry.layout) or tensor._store is not entry.storage:
        raise NotImplementedError(
            f"the graph changes the shape, strides or storage of an input in place (now {list(tensor.shape)}), "
            "by resize_, set_, t_ or .data = ...; do so outside of the compiled function"
        )
