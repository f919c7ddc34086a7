"""Chains of pointwise operators in a program as one kernel, once they have run on tensors of the same shapes before.

A region is a run of statements that give names to results of pointwise operators. The third time that it is given tensors of the same
shapes, strides, dtypes and devices, without gradients, its graph goes to the compiler; any other call is interpreted.
"""

from __future__ import annotations

import ast
import functools
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..core import dispatch
from ..core.tensor import Tensor, fake
from ..fx import Graph, GraphModule, Node
from ..inductor import compile_fx
from ..nn.modules.module import Module
from ..ops.registry import OPERATORS
from .types import dotted

LEAST_OPERATORS = 3
LEAST_ELEMENTS = 16384      # below, a call of the kernel takes as long as the operators do
RUNS_BEFORE = 2
MOST_KINDS = 8              # of shapes that one region is compiled for

Frame = dict[str, Any]


def pointwise(node: ast.AST | None) -> int:
    """How many operators an expression has, if all are pointwise ones of names and numbers; 0 otherwise."""
    if not isinstance(node, ast.Call) or node.keywords or not 1 <= len(node.args) <= 3:
        return 0
    root, _, name = dotted(node.func).partition(".")
    if root != "torch" or name not in OPERATORS:
        return 0
    count = 1
    given: list[int | float | None] = []
    for arg in node.args:
        inner = pointwise(arg)
        number = _number(arg)
        if not inner and not isinstance(arg, ast.Name) and number is None:
            return 0
        count += inner
        given.append(number)
    return count if _is_pointwise(name, tuple(given)) else 0


def _number(node: ast.AST) -> int | float | None:
    """A number that is written out, perhaps with a sign; None of anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return None if inner is None else -inner
    value: Any = node.value if isinstance(node, ast.Constant) else None
    return value if type(value) in (int, float) else None


@functools.cache
def _is_pointwise(name: str, given: tuple[int | float | None, ...]) -> bool:
    """Whether an operator of these numbers, and of tensors in the other places, comes to nothing but pointwise steps."""
    tags = OPERATORS[name]._operator.tags       # type: ignore[attr-defined]
    if name.endswith("_") or "random" in tags or all(value is not None for value in given):
        return False
    steps = _Steps()
    try:
        with dispatch.grad_enabled(False), dispatch.push_mode(steps):
            out = OPERATORS[name](*[OPERATORS["ones"]((2,)) if value is None else value for value in given])
    except (TypeError, RuntimeError, ValueError, AttributeError, IndexError):
        return False
    return isinstance(out, Tensor) and out.shape == (2,) and steps.found > 0 and steps.plain


class _Steps:
    """A mode that sees whether the steps of an operator are pointwise."""

    def __init__(self) -> None:
        self.found, self.plain = 0, True

    def handle(self, prim: Any, args: tuple) -> Any:
        if prim.kind == "operator":
            with dispatch.push_mode(self):
                return prim.fn(*args)
        self.found += prim.kind == "pointwise"
        self.plain &= "random" not in prim.tags and (prim.kind in ("pointwise", "view") or "factory" in prim.tags)
        return prim.run(args)


def _of_statement(node: ast.stmt) -> int:
    if isinstance(node, ast.Assign):
        return pointwise(node.value) if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) else 0
    return pointwise(node.value) if isinstance(node, ast.Return) else 0


def regions(nodes: Sequence[ast.stmt]) -> Iterator[tuple[int, int]]:
    """The first and the end of each run of statements that may be one kernel."""
    start = count = 0
    for at, node in enumerate([*nodes, ast.Pass()]):
        here = _of_statement(node)
        if here and not count:
            start = at
        if not here or isinstance(node, ast.Return):
            end = at + 1 if here else at
            if count + here >= LEAST_OPERATORS and end > start:
                yield start, end
            count = 0
            continue
        count += here


class Region:
    """A run of statements; `steps` interpret them, `reads` counts where the function reads each name."""

    def __init__(self, nodes: Sequence[ast.stmt], steps: Sequence[Callable[[Frame], Any]], reads: Counter[str]) -> None:
        self.nodes, self.steps = nodes, steps
        self.inputs: list[str] = []
        assigned: list[str] = []
        inside: Counter[str] = Counter()
        for node in nodes:
            for part in ast.walk(node.value):     # type: ignore[attr-defined]
                if isinstance(part, ast.Name) and part.id != "torch":
                    inside[part.id] += 1
                    if part.id not in assigned and part.id not in self.inputs:
                        self.inputs.append(part.id)
            if isinstance(node, ast.Assign):
                assigned.append(node.targets[0].id)     # type: ignore[attr-defined]
        self.outputs = [n for n in dict.fromkeys(assigned) if reads[n] > inside[n] or n in self.inputs]
        self.returns = isinstance(nodes[-1], ast.Return)
        self.seen: Counter[tuple] = Counter()
        self.kernels: dict[tuple, Callable[..., Any]] = {}
        self.off = not self.inputs

    def __call__(self, frame: Frame) -> tuple | None:
        if not self.off:
            kernel = self._kernel(frame)
            if kernel is not None:
                return self._fused(kernel, frame)
        for step in self.steps:
            done = step(frame)
            if done is not None:
                return done
        return None

    def _kernel(self, frame: Frame) -> Callable[..., Any] | None:
        """The kernel for what the names stand for now; None where the statements are to be interpreted."""
        values: list[Any] = [frame.get(name) for name in self.inputs]
        if not all(isinstance(v, Tensor) for v in values):
            self.off = any(v is not None for v in values)
            return None
        if max(v.numel() for v in values) < LEAST_ELEMENTS:
            return None
        if dispatch.state.word or dispatch.state.overrides or (dispatch.state.grad_enabled and any(v.requires_grad for v in values)):
            return None
        key = tuple((v.shape, v.stride(), v.dtype, v.device) for v in values)
        kernel = self.kernels.get(key)
        if kernel is None:
            self.seen[key] += 1
            if self.seen[key] > RUNS_BEFORE and len(self.kernels) < MOST_KINDS:
                kernel = self.kernels[key] = self._compiled(values)
        return kernel

    def _fused(self, kernel: Callable[..., Any], frame: Frame) -> tuple | None:
        made = kernel(*[frame[name] for name in self.inputs])
        frame.update(zip(self.outputs, made))
        return (made[-1],) if self.returns else None

    def _compiled(self, values: Sequence[Tensor]) -> Callable[..., Any]:
        graph = Graph()
        names: dict[str, Any] = {name: graph.placeholder(name) for name in self.inputs}

        def value(node: ast.AST) -> Any:
            if isinstance(node, ast.Call):
                return graph.call_function(OPERATORS[dotted(node.func).partition(".")[2]], tuple(map(value, node.args)))
            return names[node.id] if isinstance(node, ast.Name) else _number(node)

        returned: list[Node] = []
        for node in self.nodes:
            made = value(node.value)       # type: ignore[attr-defined]
            if isinstance(node, ast.Assign):
                names[node.targets[0].id] = made    # type: ignore[attr-defined]
            else:
                returned.append(made)
        graph.output((*(names[name] for name in self.outputs), *returned))
        examples = [fake(tuple(v.shape), v.dtype, v.device, tuple(v.stride())) for v in values]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return compile_fx(GraphModule(Module(), graph), examples)
