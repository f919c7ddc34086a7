"""`GraphTransformObserver`: what a pass changes in a graph, drawn before and after."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.passes import PassRecord
from flambeau.fx.passes.graph_drawer import FxGraphDrawer

_T = TypeVar("_T")


class GraphTransformObserver:
    """Around a pass over `gm`: `with GraphTransformObserver(gm, "my pass", log_url=folder) as observer: ...`.

    Afterwards `created_nodes` and `erased_nodes` are the names of what has come and gone, the graph's provenance has a line, and with
    `log_url` the folder has a drawing of the graph before and after, in Graphviz's language, if anything has changed.
    """

    _passes = 0

    def __init__(self, gm: GraphModule, passname: str, subsystem: str | None = None, log_url: str | None = None) -> None:
        self.gm, self.passname, self.subsystem, self.log_url = gm, passname, subsystem, log_url
        self.active = log_url is not None
        self.created_nodes: set[str] = set()
        self.erased_nodes: set[str] = set()
        if self.active:
            GraphTransformObserver._passes += 1

    @classmethod
    def get_current_pass_count(cls) -> int:
        """How many passes have been drawn."""
        return cls._passes

    def apply_gm_pass(self, pass_fn: Callable[[GraphModule], _T]) -> _T | None:
        """Run a pass over modules, observed."""
        with self:
            return pass_fn(self.gm)

    def apply_graph_pass(self, pass_fn: Callable[[Graph], _T]) -> _T | None:
        """Run a pass over graphs, observed."""
        with self:
            return pass_fn(self.gm.graph)

    def __enter__(self) -> GraphTransformObserver:
        self._started, self._before = time.perf_counter(), list(self.gm.graph.nodes)
        self._drawn = self._drawing() if self.active else ""
        return self

    def __exit__(self, *raised: Any) -> None:
        after = list(self.gm.graph.nodes)
        self.created_nodes = {n.name for n in set(after).difference(self._before)}
        self.erased_nodes = {n.name for n in set(self._before).difference(after)}
        record = PassRecord(self.passname, (time.perf_counter() - self._started) * 1e3, len(self._before), len(after))
        self.gm.graph.provenance.append(str(record))
        if self.log_url is not None and (self.created_nodes or self.erased_nodes):
            name = f"pass_{self._passes}_{'_'.join(filter(None, [self.subsystem, self.passname]))}"
            for stage, text in (("input", self._drawn), ("output", self._drawing())):
                Path(self.log_url, f"{name}_{stage}_graph.dot").write_text(text)

    def _drawing(self) -> str:
        return FxGraphDrawer(self.gm, self.passname).get_dot_graph().to_string()


__all__ = ["GraphTransformObserver"]
