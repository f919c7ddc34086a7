"""`torch.autograd.Function` inside of captured code.

Where no gradient is recorded, `apply` is the user's `forward`, captured like any function. Where one is, the call becomes one
node of the graph, provided that capturing `forward` and `backward` on trial shows them to be made of tensor operations alone: then it
does no harm to run them on fake tensors, and nothing is lost when they don't run at each call.
"""

from __future__ import annotations

from typing import Any

from .. import fx
from ..autograd import grad
from ..autograd.function import Function
from ..autograd.grad_mode import no_grad
from ..core import dispatch
from ..core.tensor import Tensor
from ..func.tape import depends, derived, is_freed, leaf
from ..ops.creation import empty_like
from .break_kinds import describe, graph_break
from .exceptions import RunEagerly
from .variables.base import NONE, Args, ConstantVariable, Kwargs, Variable, is_none
from .variables.builtins import HANDLERS
from .variables.contexts import recording_in
from .variables.floats import NumberVariable
from .variables.objects import ObjectVariable
from .variables.sequences import ListVariable, TupleVariable
from .variables.tensor import SymVariable, TensorVariable


class Context:
    """`ctx` while `forward` is captured."""

    needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        pass

    def mark_dirty(self, *tensors: Any) -> None:
        self.dirty = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self.non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        self.materialize = value


def apply_function(tx: Any, cls: type, args: Args, kwargs: Kwargs) -> Variable:
    """`cls.apply(*args)` for a subclass of Function."""
    recorded = dispatch.state.grad_enabled and any(
        isinstance(arg, TensorVariable) and arg.fake.requires_grad for arg in args
    )
    if kwargs:
        graph_break("autograd inside a compiled function", f"{cls.__name__}.apply() with keyword arguments")
    if not recorded:
        return _forward(tx, cls, args, kwargs)[0]
    args = [_in_graph(arg.realize(tx)) for arg in args]
    _check_pure(tx, cls, args)
    return tx.emit(cls.apply, args, {})  # type: ignore[attr-defined]


def _in_graph(arg: Variable) -> Variable:
    """A number that changes as an input of the graph at once, so that what is computed of it is no further input."""
    return SymVariable(arg.value) if isinstance(arg, NumberVariable) else arg


def _forward(tx: Any, cls: type, args: Args, kwargs: Kwargs) -> tuple[Variable, ObjectVariable]:
    """What `forward` gives, and the `ctx` that it has filled."""
    ctx = ObjectVariable(Context)
    needs: list[Variable] = [
        ConstantVariable(isinstance(arg, TensorVariable) and bool(arg.fake.requires_grad)) for arg in args
    ]
    ctx.written["needs_input_grad"] = TupleVariable(needs)
    mode = dispatch.state.recording
    tx.set_grad_mode(recording_in(no_grad, False))
    forward = tx.trusted(cls.forward)  # type: ignore[attr-defined]
    if cls.setup_context is not Function.setup_context:  # type: ignore[attr-defined]
        result: Variable = tx.call(forward, args, kwargs)
        setup = tx.trusted(cls.setup_context)  # type: ignore[attr-defined]
        tx.call(setup, [ctx, TupleVariable(args), result], {})
    else:
        result = tx.call(forward, [ctx, *args], kwargs)
    tx.set_grad_mode(mode)
    return result, ctx


def _backward(tx: Any, cls: Any, result: Variable, ctx: ObjectVariable) -> None:
    """Capture it for some gradients."""
    outputs = result.items if isinstance(result, TupleVariable) else [result]
    gradients = [tx.emit(empty_like, [each], {}) if isinstance(each, TensorVariable) else NONE for each in outputs]
    mode = dispatch.state.recording
    tx.set_grad_mode(recording_in(no_grad, False))
    tx.call(tx.trusted(cls._gradient()), [ctx, *gradients], {})
    tx.set_grad_mode(mode)


def _only_writes(node: fx.Node, dirty: list[Any]) -> bool:
    """Has a node of `forward` no effects, but on the tensors that were marked?"""
    if "set_grad_mode" in str(node.target) or not node.is_impure():
        return True
    written = node.meta.get("writes")
    return written is not None and all(any(tensor is each for each in dirty) for tensor in written)


def _check_pure(tx: Any, cls: Any, args: Args) -> None:
    """Capture forward and backward on trial and take it back; a graph break if they do anything but compute."""
    nodes, known = set(tx.graph.nodes), (tx.effects.snapshot(), len(tx.inputs))

    def check(name: str) -> None:
        if (tx.effects.snapshot(), len(tx.inputs)) != known:
            graph_break("autograd inside a compiled function", f"{cls.__name__}.{name} uses more than its arguments")

    result, ctx = _forward(tx, cls, args, {})
    check("forward")
    dirty = [each.fake for each in getattr(ctx.written.get("dirty"), "items", ()) if isinstance(each, TensorVariable)]
    if any(not _only_writes(node, dirty) for node in tx.graph.nodes if node not in nodes):
        graph_break("autograd inside a compiled function", f"{cls.__name__}.forward writes to a tensor in place")
    if cls._gradient() is not Function.backward:
        _backward(tx, cls, result, ctx)
        check("backward")
    for node in reversed(list(tx.graph.nodes)):
        if node not in nodes:
            tx.graph.erase_node(node)


def _grad(tx: Any, outputs: Variable, inputs: Variable, grad_outputs: Variable = NONE, retain_graph: Variable = NONE,
          create_graph: Variable = NONE, only_inputs: Variable = ConstantVariable(True), allow_unused: Variable = NONE,
          is_grads_batched: Variable = NONE, materialize_grads: Variable = NONE) -> Variable:
    """`torch.autograd.grad`: one node, where all history of what is differentiated is in the graph."""
    if tx.truth(is_grads_batched) or not tx.truth(only_inputs) or not _begins_here(tx):
        graph_break("autograd inside a compiled function", "grad()")
    outs, wanted = _several(tx, outputs), _several(tx, inputs)
    seeds: list[Variable] = [NONE] * len(outs) if is_none(grad_outputs.realize(tx)) else _several(tx, grad_outputs)
    lists = [ListVariable(outs), ListVariable(seeds), ListVariable(wanted)]
    further = tx.truth(create_graph)
    retain = further if is_none(retain_graph.realize(tx)) else tx.truth(retain_graph)
    given = list(tx.iterate(tx.emit(derived, [*lists, ConstantVariable(retain), ConstantVariable(further)], {})))
    zeros = tx.truth(materialize_grads)
    if any(map(is_none, given)) and not zeros and not tx.truth(allow_unused):
        graph_break("autograd inside a compiled function", "grad() by a tensor that was not used, which is an error")
    return TupleVariable([tx.emit_method("new_zeros", [x, tx.attr(x, "shape")], {}) if zeros and is_none(g) else g
                          for g, x in zip(given, wanted, strict=True)])


def leaves_escape(tx: Any, outputs: list[fx.Node]) -> bool:
    """Does a graph give a leaf that was made in it, a view of one, or what needs a gradient for one's sake alone?"""
    leaves = [node.meta["val"] for node in tx.graph.nodes if node.target is leaf]
    given = [known.fake for known in tx._by_fake.values() if known.source is not None and known.fake.requires_grad]
    found = [val for node in outputs if isinstance(val := node.meta.get("val"), Tensor) and leaves and depends(val, leaves)]
    return any(val.grad_fn is None or any(val._base is each for each in leaves) or not depends(val, given) for val in found)


def keep_freed(graph: fx.Graph, outputs: list[fx.Node]) -> None:
    """Where a graph gives what `autograd.grad` has freed the history of, this call is an effect: a backward pass outside is an error. As a
    backward graph is for all results or an error for all, results with and without a history can't come out of one graph."""
    calls = [node for node in graph.nodes if node.target is derived and not node.args[3]]
    recorded = [val for node in outputs if isinstance(val := node.meta.get("val"), Tensor) and val.requires_grad] if calls else []
    freed = [val for val in recorded if is_freed(val)]
    if 0 < len(freed) < len(recorded):
        raise RunEagerly(describe("autograd inside a compiled function", "grad() freed the history of some results"))
    for node in calls if freed else ():
        node.meta["writes"] = tuple(freed)


def _several(tx: Any, tensors: Variable) -> list[Variable]:
    tensors = tensors.realize(tx)
    found = [tensors] if isinstance(tensors, TensorVariable) else [item.realize(tx) for item in tx.iterate(tensors)]
    if not all(isinstance(item, TensorVariable) or is_none(item) for item in found):
        graph_break("autograd inside a compiled function", "grad() of something else than tensors")
    return found


def _begins_here(tx: Any) -> bool:
    """Have the graph's inputs no history, and no hooks? Then no way leads from one to another outside of the graph."""
    for variable in list(tx._by_fake.values()):
        if variable.source is None or not variable.fake.requires_grad:
            continue
        if variable.real is None or variable.real.grad_fn is not None or (variable.real._grad is not None and variable.real._grad.hooks):
            return False
        tx.guard("{0}.grad_fn is None and ({0}._grad is None or not {0}._grad.hooks)", variable.source, reason="a leaf without hooks",
                 about="any")
    return True


HANDLERS[grad] = _grad
