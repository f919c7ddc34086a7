"""What runs when a compiled program is called: inputs gathered, results handed out, gradients attached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from flambeau import _C
from flambeau.aot.joint import Constant, FromArgument, FromAttribute, FromSize, Interface, OutputPlace, Result, SameInput, ViewOf
from flambeau.autograd.graph import SECOND_TIME, Node, Output, Saved, bare, edge_of, version_to_save
from flambeau.core import dispatch, watching
from flambeau.core.memory_format import channels_last, channels_last_3d, contiguous_format
from flambeau.core.size import is_contiguous
from flambeau.core.storage import Storage
from flambeau.core.symbolic import evaluate, hint_of, is_symbolic
from flambeau.core.tensor import AutogradMeta, Tensor, set_inference
from flambeau.fx import map_aggregate
from flambeau.ops.generators import take_state
from flambeau.ops.nn.steps import write_all
from flambeau.ops.registry import PRIMITIVES
from flambeau.ops.writing import assign

Compiled = Callable[[list], list]  # takes its inputs in a list, which it may empty, and returns its outputs in a list

NO_DOUBLE_BACKWARD = (
    "torch.compile with aot_autograd does not currently support double backward: the gradient of a compiled function was "
    "differentiated again. Leave this part uncompiled (torch.compiler.disable) to take second derivatives"
)

state = dispatch.state


@runtime_checkable
class LaysOut(Protocol):
    """A compiled forward graph that lays out as it likes what it saves for backward."""

    def layouts(self) -> list[tuple | None]:
        """For each result its strides; None where they are the graph's."""
        ...


class Part(NamedTuple):
    """A compiled graph. `outputs` says how to make its outputs of what is compiled, where they differ: for each the number
    of a computed value (or -1), else that of an input (or -1), else a constant."""

    compiled: Compiled
    outputs: list[tuple[int, int, Any]] | None = None

    def function(self) -> Compiled:
        """From the graph's inputs to all its outputs."""
        compiled, outputs = self.compiled, self.outputs
        if outputs is None:
            return compiled

        passed = {j for i, j, _ in outputs if i < 0 and j >= 0}

        def fill_in(inputs: list) -> list:
            kept = {j: _seen(inputs[j]) for j in passed}    # and no others: the graph frees each input after its last use
            made = compiled(inputs)
            return [made[i] if i >= 0 else kept[j] if j >= 0 else constant for i, j, constant in outputs]

        return fill_in


# -- backward ----------------------------------------------------------------------------------------------------------


def _seen(value: Any) -> Any:
    """What a graph saved for another one, as users see it."""
    return value.tensor() if isinstance(value, _C.SavedArray) else value


CHANNELS_LAST = {4: channels_last, 5: channels_last_3d}


class CompiledBackward(Node):
    """The tape's node of one call of a compiled program.

    `saved` are the backward graph's first inputs. Tensors that users can reach, inputs and results, are kept with the
    version that they had, and a write to them in the meantime is an error, as in eager.
    """

    __slots__ = ("block", "code", "last", "released", "saved", "versions")
    knows_last = True

    def __init__(self, edges: list, code: TrainingCode, outs: Sequence[Any], inputs: Sequence[Any]) -> None:
        super().__init__(edges)
        self.code = code
        self.last = self.released = False
        self.block = watching.block() if state.watchers else None
        self.saved: list[Any] = [inputs[i] for i in code.saved_inputs]
        self.saved += [bare(outs[i]) if isinstance(outs[i], Tensor) else outs[i] for i in code.saved_results]
        self.saved += outs[code.results :]
        self.versions = [(i, version_to_save(self.saved[i])) for i in code.reachable if isinstance(self.saved[i], Tensor)]
        if dispatch.state.saved_hooks is not None:
            self.versions = []
            self.saved = [Saved(value) if isinstance(value, Tensor) else value for value in map(_seen, self.saved)]

    def name(self) -> str:
        """As torch spells it."""
        return "CompiledFunctionBackward"

    def apply(self, gs: list) -> list:
        """The backward graph, on what was saved and the gradients of the results."""
        saved = self.saved
        if self.released:
            raise RuntimeError(SECOND_TIME)
        for i, version in self.versions:
            if saved[i]._store is not None and saved[i]._store.version != version:
                Saved.get(_as_saved(saved[i], version), self)  # raises
        given = [value.get(self) if type(value) is Saved else value for value in saved]
        sources = [*given, *gs] if state.grad_enabled else None
        given += [self._tangent(i, g) for i, g in enumerate(gs)]
        reached = self.code.reached if any(g is None for g in gs) else None
        asked = sum(1 << i for i, g in enumerate(gs) if g is not None) if reached is not None else 0
        if self.last and sources is None:   # the graph frees each value after its last use
            self.release()
            del saved
            if not self.post_hooks:
                gs.clear()
        if state.watchers:
            with watching.within(self.block):
                gradients = self.code.run_backward(given)
        else:
            gradients = self.code.run_backward(given)
        if reached is not None:
            gradients = [g if bits & asked else None for g, bits in zip(gradients, reached)]
        if sources is not None:
            _refuse_double_backward(gradients, sources)
        return gradients

    def _tangent(self, i: int, g: Tensor | None) -> Tensor:
        """The gradient of a result as the backward graph takes it: there, in its memory order, without history."""
        if g is None:
            spec = self.output_specs[i]
            return PRIMITIVES["full"](tuple(spec.shape), 0, spec.dtype, spec.device)
        if g._grad is not None:
            g = bare(g)
        order = self.code.orders.get(i, contiguous_format)
        if not g.is_contiguous(memory_format=order):
            with dispatch.grad_enabled(False):
                g = g.contiguous(memory_format=order)
        return g

    def release(self) -> None:
        """Let go of what was saved."""
        self.released = True
        self.saved = []


def _as_saved(tensor: Tensor, version: int) -> Saved:
    """The record of a tensor that was saved at an earlier version."""
    record = Saved(tensor)
    record.version = version
    return record


class _SecondDerivative(Node):
    """History of the gradients of a compiled program: it can be asked for, but not be followed."""

    __slots__ = ()

    def name(self) -> str:
        return "CompiledFunctionBackwardBackward"

    def apply(self, gs: list) -> list:
        raise RuntimeError(NO_DOUBLE_BACKWARD)


def _refuse_double_backward(gradients: list, sources: list) -> None:
    edges = [edge_of(t) for t in sources if isinstance(t, Tensor)]
    if not any(edge is not None for edge in edges):
        return
    node = _SecondDerivative(edges)
    made = [g for g in gradients if g is not None]
    node.output_specs = tuple(Output(g.shape, g.dtype, g.device) for g in made)
    for nr, g in enumerate(made):
        g._grad = AutogradMeta(False, node, nr)


class FailedBackward(Node):
    """The tape's node of a program whose gradient could not be traced: backward raises what tracing it raised."""

    __slots__ = ("error",)

    def __init__(self, edges: list, error: RuntimeError) -> None:
        super().__init__(edges)
        self.error = error

    def name(self) -> str:
        """As torch spells it."""
        return "CompiledFunctionBackward"

    def apply(self, gs: list) -> list:
        raise self.error.with_traceback(None)


def without_backward(interface: Interface, run: Compiled) -> Compiled:
    """`run`, its results attached to a tape that ends here."""
    assert interface.no_backward is not None
    error = interface.no_backward

    def call(inputs: list) -> list:
        outs = run(inputs)
        node = FailedBackward([edge_of(inputs[i]) for i in interface.gradient_inputs], error)
        made = _differentiable(outs, interface)
        node.output_specs = tuple(map(_spec, made))
        for nr, out in enumerate(made):
            out._grad = AutogradMeta(False, node, nr)
        return outs

    return call


def _differentiable(outs: list, interface: Interface) -> list:
    """The results that get a history. What is written to an input may be another input, or written to two: it gets one of its own."""
    for i in interface.differentiable:
        if i >= len(interface.written):
            break
        outs[i] = bare(outs[i])
    return [outs[i] for i in interface.differentiable]


class Saving(NamedTuple):
    """What backward is given first: which inputs and which results of the forward graph (the rest of these follows)."""

    inputs: list[int]
    results: list[int]


class TrainingCode:
    """The two compiled graphs of a program with gradients, and how values pass between them."""

    def __init__(self, interface: Interface, saved: Saving, forward: Compiled, backward: Compiled) -> None:
        self.forward = forward
        self.backward = backward
        self.interface = interface
        self.results = interface.results
        self.gradient_inputs = interface.gradient_inputs
        self.reached, self.told = interface.reached, interface.told
        self.saved_inputs = saved.inputs
        self.saved_results = saved.results
        self.reachable = range(len(self.saved_inputs) + len(self.saved_results))
        self.orders = {i: CHANNELS_LAST[rank] for i, rank in interface.channels_last.items()}
        self.static_specs = None if interface.specs is None else tuple(Output(*spec) for spec in interface.specs)

    def run_forward(self, inputs: list) -> list:
        """The results, differentiable ones with their history."""
        if state.watchers:
            return watching.watched("CompiledFunction", self._run_forward, (inputs,), None, watching.REGION, -1, ())
        return self._run_forward(inputs)

    def _run_forward(self, inputs: list) -> list:
        edges = [edge_of(inputs[i]) for i in self.gradient_inputs]
        before, state.grad_enabled = state.grad_enabled, False
        try:
            outs = self.forward(inputs[:])
        finally:
            state.grad_enabled = before
        node = CompiledBackward(edges, self, outs, inputs)
        made = _differentiable(outs, self.interface)
        node.output_specs = self.static_specs or tuple(map(_spec, made))
        for nr, out in enumerate(made):
            out._grad = AutogradMeta(False, node, nr)
        del outs[self.results :]
        return outs

    def run_backward(self, inputs: list) -> list:
        """The gradients for `gradient_inputs`."""
        with dispatch.grad_enabled(False):
            gradients = self.backward(inputs)
        if self.told:
            del gradients[-self.told :]
        return gradients


def _spec(t: Tensor) -> Output:
    return Output(t.shape, t.dtype, t.device)


# -- around the call ---------------------------------------------------------------------------------------------------


def gatherer(interface: Interface, attributes: Sequence[Tensor]) -> Callable[[tuple], list] | None:
    """A function from the caller's arguments to the graph's inputs; None if they are the same.

    `attributes` are the captured module's parameters and buffers.
    """
    sources, names = interface.sources, interface.names
    if all(isinstance(source, FromArgument) and source.index == i for i, source in enumerate(sources)):
        return None
    picks = [source.index for source in sources if isinstance(source, FromArgument)]
    in_order = all(isinstance(source, FromArgument) for source in sources[: len(picks)])
    if in_order and all(isinstance(source, FromAttribute) for source in sources[len(picks) :]):
        kept = [attributes[source.index] for source in sources[len(picks) :] if isinstance(source, FromAttribute)]
        return lambda args: [args[i] for i in picks] + kept

    def gather(args: tuple) -> list:
        inputs: list[Any] = []
        for source in sources:
            if isinstance(source, FromArgument):
                inputs.append(args[source.index])
            elif isinstance(source, FromAttribute):
                inputs.append(attributes[source.index])
            elif isinstance(source, FromSize):
                inputs.append(args[source.index].shape[source.dim])
            else:
                sizes = dict(zip(names, inputs, strict=False))
                blocks = source.blocks
                count = evaluate(blocks.expr, sizes) if is_symbolic(blocks) else blocks
                inputs.append(take_state(count, None, source.device))
        return inputs

    return gather


def deliverer(interface: Interface) -> Callable[[list, list], Any] | None:
    """A function from the graph's inputs and results to what the caller gets; None if it is the tuple of the results."""
    outputs, structure, written = interface.outputs, interface.structure, interface.written
    plain = [output.index for output in outputs if isinstance(output, Result)]
    flat = isinstance(structure, tuple) and all(isinstance(leaf, OutputPlace) for leaf in structure)
    if flat and not written and not interface.other_mode and plain == list(range(len(outputs))) == [leaf.index for leaf in structure]:
        return None

    # A write that autograd saw in the function is one here too; one behind its back (no_grad, detach) stays so.
    assigned = [(i, place) for i, place in enumerate(written) if i in interface.differentiable]
    bare = [(i, place) for i, place in enumerate(written) if i not in interface.differentiable]

    def deliver(inputs: list, results: list) -> Any:
        if bare:
            targets = [inputs[place].data if place in interface.uncounted else inputs[place] for _, place in bare]
            write_all(targets, [results[i] for i, _ in bare])
        for i, place in assigned:
            assign(inputs[place], results[i])
        for i in interface.other_mode:
            set_inference(results[i], not state.inference)
        values = [_make_output(output, inputs, results) for output in outputs]
        if flat:
            return tuple([values[leaf.index] for leaf in structure])
        return _writable(map_aggregate(structure, lambda leaf: values[leaf.index]))

    return deliver


def _make_output(output: Any, inputs: list, results: list) -> Any:
    if type(output) is Result:
        return results[output.index]
    if type(output) is SameInput:
        return inputs[output.index]
    if type(output) is Constant:
        return output.value
    assert isinstance(output, ViewOf)
    base = _make_output(output.base, inputs, results)
    with dispatch.grad_enabled(output.tracked):
        for prim, attrs in output.chain:
            base = prim(base, *_plain(attrs, results))
    if output.detached:
        base._view = None
    if output.history is not None:
        base._view, base._grad = None, results[output.history.index]._grad
    return base


def _plain(attrs: tuple, results: list) -> tuple:
    return _writable(map_aggregate(attrs, lambda a: _number(results[a.index]) if type(a) is Result else a))


def _number(a: Any) -> Any:
    return int(a) if isinstance(a, Tensor) else a


def _writable(a: Any) -> Any:
    """Containers as users know them."""
    if isinstance(a, tuple):
        items = [_writable(item) for item in a]
        return type(a)(*items) if hasattr(a, "_fields") else tuple(items)
    if isinstance(a, list):
        return [_writable(item) for item in a]
    return {key: _writable(item) for key, item in a.items()} if isinstance(a, dict) else a


def overlaps(t: Any) -> bool:
    """Whether several elements of a tensor may lie in one place, as where it was expanded; where it varies, as it is in the example."""
    if not isinstance(t, Tensor):
        return False
    shape, strides = (tuple(map(hint_of, part)) for part in t._layout[:2])
    if None in (*shape, *strides) or 0 in shape:
        return False
    end = 0
    for stride, size in sorted((s, n) for s, n in zip(strides, shape) if n > 1):
        if stride <= end:
            return True
        end += stride * (size - 1)
    return False


def has_gaps_that_vary(t: Any) -> bool:
    """Whether another call's tensor may overlap itself, though the example doesn't."""
    if not isinstance(t, Tensor) or all(type(n) is int for part in t._layout[:2] for n in part):
        return False
    return not is_contiguous(*(tuple(map(hint_of, part)) for part in t._layout[:2]))


def share_memory(inputs: list, written: list[int]) -> bool:
    """Whether an input that the program writes to shares memory with another input."""
    places = {i: t._store.memory for i, t in enumerate(inputs) if isinstance(t, Tensor) and isinstance(t._store, Storage)}
    users = Counter(places.values())
    return len(users) < len(places) and any(users[places[place]] > 1 for place in written if place in places)
