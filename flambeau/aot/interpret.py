"""A compiler without code generation: graphs run step by step by eager kernels. The backend "aot_eager" uses it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau.aot.compile import aot_compile
from flambeau.aot.passes import same_sizes
from flambeau.aot.runtime import Compiled
from flambeau.aot.unknown import in_pieces
from flambeau.autograd.graph import bare
from flambeau.core.expr import free_variables
from flambeau.core.size import contiguous_strides
from flambeau.core.symbolic import SymInt, evaluate, is_symbolic
from flambeau.core.tensor import Tensor
from flambeau.fx import GraphModule, Interpreter, Node
from flambeau.ops.primitives import ViewPrimitive
from flambeau.ops.registry import PRIMITIVES
from flambeau.ops.writing import write


class _Exact(Interpreter):
    """Runs a functional graph, and lays every result out as its fake tensor says: NumPy's own choice may differ, and the
    views that follow in the graph were traced for what the shape rule said."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self._symbols = {n: str(n.meta["val"]) for n in self.graph.nodes if n.op == "placeholder" and isinstance(n.meta.get("val"), SymInt)}
        self._sizes = dict.fromkeys(self._symbols.values(), 0)
        self._fit = {n: fit for n in self.graph.nodes if n.op == "call_function" and (fit := _fitter(n, self._sizes)) is not None}

    def run_node(self, n: Node) -> Any:
        """As the interpreter, with the layout made right."""
        value = super().run_node(n)
        if n in self._symbols:
            self._sizes[self._symbols[n]] = value
        fit = self._fit.get(n)
        return value if fit is None else fit(value)


def _fitter(node: Node, sizes: dict[str, int]) -> Callable[[Tensor], Tensor] | None:
    """What to do with the node's value so that it has the strides it was traced with; `sizes` are the symbols' values of a call."""
    val = node.meta.get("val")
    if not isinstance(val, Tensor) or isinstance(node.target, ViewPrimitive):
        return None
    shape, strides, _ = val._layout
    if same_sizes(strides, contiguous_strides(shape)):
        return lambda value: value if value.is_contiguous() else value.contiguous()
    if any(map(is_symbolic, strides)):
        if not all(free_variables(s.expr) <= sizes.keys() for s in strides if is_symbolic(s)):
            return None     # of what backward computes: its graph has the sizes only that it computes with
        return lambda value: _laid_out(value, tuple([evaluate(s.expr, sizes) if is_symbolic(s) else s for s in strides]))
    return lambda value: _laid_out(value, tuple(strides))


def _laid_out(value: Tensor, strides: tuple) -> Tensor:
    if value.stride() == strides:
        return value
    made = PRIMITIVES["empty_strided"](tuple(value.shape), strides, value.dtype, value.device)
    write(made, value)
    return made


def interpret(gm: GraphModule, example_inputs: Sequence[Any]) -> Compiled:
    """A compiler that runs the graph step by step with eager kernels."""
    interpreter = _Exact(gm)

    def run(inputs: list) -> list:
        outs = interpreter.boxed_run(inputs)
        return [bare(out) if isinstance(out, Tensor) and out._view is not None else out for out in outs]

    return run


@in_pieces(draws_as_eager=lambda: True)
def aot_eager(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """A backend for torch.compile: functional graphs, forward and backward, run by eager kernels."""
    return aot_compile(gm, example_inputs, forward_compiler=interpret)
