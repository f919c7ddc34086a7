"""Passes over graphs: a list of functions run in order, each timed and checked; shape propagation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.lint import lint_graph
from flambeau.fx.passes.shape_prop import ShapeProp, TensorMetadata

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
    the graph is verified if `check` is set (by it, called with the graph and the pass's name, if it is a function), and a line
    goes to `graph.provenance`; a pass that leaves a graph that is not well formed is named in the error.
    """

    passes: Sequence[Pass]
    check: bool | Callable[[Graph, str], None] = False
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
                    (lint_graph if self.check is True else self.check)(gm.graph, name)
            except Exception as error:
                error.add_note(f"in pass {name}, after {', '.join(r.name for r in self.records) or 'no other pass'}")
                raise
            record = PassRecord(name, (time.perf_counter() - start) * 1e3, before, len(gm.graph.nodes))
            self.records.append(record)
            gm.graph.provenance.append(str(record))
        gm.graph = gm.graph
        return gm


__all__ = ["PassManager", "PassRecord", "ShapeProp", "TensorMetadata"]
