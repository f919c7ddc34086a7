"""torch.cuda.make_graphed_callables: functions and modules whose forward and backward are recorded once and replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import autograd
from ..core.tensor import Tensor
from ..ops.creation import empty_like
from .library import cupy
from .streams import CUDAGraph, Stream, current_stream, graph, graph_pool_handle, stream


def make_graphed_callables(callables: Any, sample_args: Any, num_warmup_iters: int = 3, allow_unused_input: bool = False,
                           pool: Any = None) -> Any:
    """Functions (or modules) of tensors that replay recordings of their forward and backward made on `sample_args`.

    `callables` is one, with a tuple of tensors, or a tuple of them, with a tuple of such tuples. Calls must have the sample's
    shapes and dtypes. The results and gradients lie in the recordings' memory: the next call overwrites them. A module is changed
    in place, and runs as before in the other of training and evaluation. RuntimeError for a module with hooks or with buffers that
    need gradients, TypeError for arguments that are no tensors.
    """
    cupy("make_graphed_callables")
    if not isinstance(callables, tuple):
        return make_graphed_callables((callables,), (sample_args,), num_warmup_iters, allow_unused_input, pool)[0]
    if len(callables) != len(sample_args):
        raise ValueError(f"make_graphed_callables: {len(callables)} callables, but {len(sample_args)} tuples of sample arguments")
    pool = graph_pool_handle() if pool is None else pool
    return tuple([_graphed(fn, tuple(args), num_warmup_iters, allow_unused_input, pool) for fn, args in zip(callables, sample_args)])


def _graphed(fn: Any, args: tuple, warmups: int, allow_unused: bool, pool: Any) -> Any:
    for position, a in enumerate(args):
        if not isinstance(a, Tensor):
            raise TypeError("In the beta API, sample_args for each callable must contain only Tensors. Other types are not allowed: "
                            f"argument {position} is {type(a).__name__}")
    parameters: tuple = ()
    is_module = hasattr(fn, "parameters") and hasattr(fn, "forward")
    if is_module:
        if fn._forward_hooks or fn._forward_pre_hooks or fn._backward_hooks:
            raise RuntimeError("Modules must not have hooks registered at the time they are passed. However, registering hooks on modules "
                               "after passing them through make_graphed_callables is allowed.")
        if any(b.requires_grad for b in fn.buffers()):
            raise RuntimeError("In any Module passed to make_graphed_callables, only parameters may be trainable: all buffers must have "
                               "requires_grad=False.")
        parameters = tuple(fn.parameters())
    recorded = _Recorded(fn, args, parameters, warmups, allow_unused, pool)

    def replayed(*given: Any) -> Any:
        found = recorded.function.apply(*recorded.checked(given), *parameters)
        return recorded.rebuild(found if isinstance(found, tuple) else (found,))

    if not is_module:
        return replayed
    plain, mode = fn.forward, fn.training
    fn.forward = lambda *given, **named: replayed(*given) if fn.training == mode and not named else plain(*given, **named)
    return fn


class _Recorded:
    """Recordings of a function's forward and backward, as one autograd function."""

    def __init__(self, fn: Callable, args: tuple, parameters: tuple, warmups: int, allow_unused: bool, pool: Any):
        self.args, self.inputs, self.allow_unused = args, (*args, *parameters), allow_unused
        side = Stream()
        side.wait_stream(current_stream())
        with stream(side):
            for _ in range(max(warmups, 1)):
                self._backward(*self._forward(fn), None)
        current_stream().wait_stream(side)
        self.forward_graph, self.backward_graph = CUDAGraph(), CUDAGraph()
        with graph(self.forward_graph, pool):
            self.outputs, self.rebuild = self._forward(fn)
        self.gradients = tuple([empty_like(o) if o.requires_grad else None for o in self.outputs])
        self.results: tuple = (None,) * len(self.inputs)
        if any(g is not None for g in self.gradients):
            with graph(self.backward_graph, pool):
                self.results = self._backward(self.outputs, self.rebuild, self.gradients)
        self.function = self._function()

    def _forward(self, fn: Callable) -> tuple[tuple, Callable[[Sequence], Any]]:
        """(the results, how to make of such a tuple what the function returns)."""
        out = fn(*self.args)
        if isinstance(out, Tensor):
            return (out,), lambda outs: outs[0]
        if isinstance(out, (tuple, list)) and all(isinstance(o, Tensor) for o in out):
            kind = type(out)
            return tuple(out), lambda outs: kind(outs)
        raise TypeError(f"make_graphed_callables takes functions that return a tensor or a tuple of them, not {type(out).__name__}")

    def _backward(self, outputs: tuple, rebuild: Any, gradients: tuple | None) -> tuple:
        """Gradients of the inputs; None for those that need none."""
        wanted = [k for k, t in enumerate(self.inputs) if t.requires_grad]
        roots = [k for k, o in enumerate(outputs) if o.requires_grad]
        found: list[Any] = [None] * len(self.inputs)
        if wanted and roots:
            given = [empty_like(outputs[k]) if gradients is None else gradients[k] for k in roots]
            made = autograd.grad([outputs[k] for k in roots], [self.inputs[k] for k in wanted], given, allow_unused=self.allow_unused)
            for k, g in zip(wanted, made):
                found[k] = g
        return tuple(found)

    def checked(self, given: tuple) -> tuple:
        """The arguments of a call, which must look like the sample's."""
        if len(given) != len(self.args):
            raise TypeError(f"the graphed callable was recorded with {len(self.args)} arguments, got {len(given)}")
        for position, (a, b) in enumerate(zip(given, self.args)):
            if not isinstance(a, Tensor) or a.shape != b.shape or a.dtype is not b.dtype:
                seen = f"{list(a.shape)} of {a.dtype}" if isinstance(a, Tensor) else type(a).__name__
                raise RuntimeError(f"the graphed callable was recorded with argument {position} of {list(b.shape)} of {b.dtype}, "
                                   f"got {seen}")
        return given

    def _function(self) -> Any:
        recorded = self

        class Graphed(autograd.Function):
            """Replays the recordings."""

            @staticmethod
            def forward(ctx: Any, *inputs: Tensor) -> tuple:
                for mine, given in zip(recorded.args, inputs):
                    if mine.data_ptr() != given.data_ptr():
                        mine.detach().copy_(given)
                recorded.forward_graph.replay()
                outs = tuple([o.detach() for o in recorded.outputs])
                ctx.mark_non_differentiable(*[o for o, like in zip(outs, recorded.outputs) if not like.requires_grad])
                return outs

            @staticmethod
            def backward(ctx: Any, *grads: Tensor) -> tuple:
                for mine, given in zip(recorded.gradients, grads):
                    if mine is not None and mine.data_ptr() != given.data_ptr():
                        mine.copy_(given)
                recorded.backward_graph.replay()
                return tuple([g if g is None else g.detach() for g in recorded.results])

        return Graphed
