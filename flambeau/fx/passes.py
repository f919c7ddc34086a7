"""Passes over graphs: a list of functions run in order, each timed and checked, and shape propagation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flambeau.fx.graph_module import GraphModule
from flambeau.fx.interpreter import Interpreter
from flambeau.fx.node import Node, map_aggregate

Pass = Callable[..., Any]


class PassRecord(NamedTuple):
    """What one run of a pass did."""

    name: str
    milliseconds: float
    nodes_before: int
    nodes_after: int

    def __str__(self) -> str:
        nodes = f"{self.nodes_before} -> {self.nodes_after} nodes"
        return f"made by pass {self.name} in {self.milliseconds:.1f} ms ({nodes})"


@dataclass
class PassManager:
    """Runs passes over a GraphModule, in order.

    A pass is a function of a `Graph` (or, with `on_modules`, of a GraphModule) that changes it in place. After each one
    the graph is verified if `check` is set, and a line goes to `graph.provenance`; a pass that leaves a graph that is
    not well formed is named in the error.
    """

    passes: Sequence[Pass]
    check: bool = False
    on_modules: bool = False
    records: list[PassRecord] = field(default_factory=list)

    def __call__(self, gm: GraphModule) -> GraphModule:
        """Run all passes; the code is printed anew when it is next needed."""
        for one in self.passes:
            before, start = len(gm.graph.nodes), time.perf_counter()
            name = getattr(one, "__name__", type(one).__name__)
            try:
                one(gm if self.on_modules else gm.graph)
                if self.check:
                    gm.graph.lint()
            except Exception as error:
                error.add_note(f"in pass {name}, after {', '.join(r.name for r in self.records) or 'no other pass'}")
                raise
            record = PassRecord(name, (time.perf_counter() - start) * 1e3, before, len(gm.graph.nodes))
            self.records.append(record)
            gm.graph.provenance.append(str(record))
        gm.graph = gm.graph
        return gm


class TensorMetadata(NamedTuple):
    """Facts about a tensor that a node produced."""

    shape: tuple
    dtype: Any
    requires_grad: bool
    stride: tuple


def tensor_metadata(value: Any) -> TensorMetadata:
    """The facts of one tensor."""
    requires_grad = bool(getattr(value, "requires_grad", False))
    return TensorMetadata(tuple(value.shape), value.dtype, requires_grad, tuple(value.stride()))


class ShapeProp(Interpreter):
    """Runs a graph on example inputs and notes each node's value facts: `meta["tensor_meta"]` and `meta["type"]`, and,
    for fake tensors, the value itself as `meta["val"]`."""

    def run_node(self, n: Node) -> Any:
        """As the interpreter, noting what came out."""
        value = super().run_node(n)
        found = False

        def look(leaf: Any) -> Any:
            nonlocal found
            if hasattr(leaf, "dtype") and hasattr(leaf, "stride"):
                found = True
                return tensor_metadata(leaf)
            return leaf

        described = map_aggregate(value, look)
        if found:
            n.meta["tensor_meta"] = described
            leaves = value if isinstance(value, (tuple, list)) else [value]
            if all(getattr(leaf, "is_fake", False) for leaf in leaves):
                n.meta["val"] = value
        n.meta["type"] = type(value)
        return value

    def propagate(self, *args: Any) -> Any:
        """Run on `args`."""
        return self.run(*args)
