"""`torch.autograd.Function` inside of captured code.

Where no gradient is recorded, `apply` is the user's `forward`, captured like any function. Where one is, the call becomes one
node of the graph, provided that capturing `forward` on trial shows it to be made of tensor operations alone: then it does no
harm to run it on fake tensors.
"""

from __future__ import annotations

from typing import Any

from ..autograd.function import Function
from ..autograd.grad_mode import no_grad
from ..core import dispatch
from .break_kinds import graph_break
from .variables.base import Args, ConstantVariable, Kwargs, Variable
from .variables.contexts import recording_in
from .variables.objects import ObjectVariable
from .variables.sequences import TupleVariable
from .variables.tensor import TensorVariable


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
    if not recorded:
        return _forward(tx, cls, args, kwargs)
    if kwargs:
        graph_break("autograd inside a compiled function", f"{cls.__name__}.apply() with keyword arguments")
    _check_pure(tx, cls, args)
    return tx.emit(cls.apply, args, {})  # type: ignore[attr-defined]


def _forward(tx: Any, cls: type, args: Args, kwargs: Kwargs) -> Variable:
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
    return result


def _check_pure(tx: Any, cls: type, args: Args) -> None:
    """Capture forward on trial and take it back; a graph break if it does anything but compute."""
    nodes = set(tx.graph.nodes)
    changes, inputs = len(tx.effects.touched()), len(tx.inputs)
    _forward(tx, cls, args, {})
    if len(tx.effects.touched()) != changes or len(tx.inputs) != inputs:
        graph_break("autograd inside a compiled function", f"{cls.__name__}.forward uses more than its arguments")
    for node in reversed(list(tx.graph.nodes)):
        if node not in nodes:
            if node.is_impure() and "set_grad_mode" not in str(node.target):
                graph_break("autograd inside a compiled function", f"{cls.__name__}.forward writes to a tensor in place")
            tx.graph.erase_node(node)
