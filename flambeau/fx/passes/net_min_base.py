"""The minimizer of networks: which nodes make a graph give other results on one backend than on another. A subclass says how each runs a
module (`run_a`, `run_b`); the results of each part are compared on the inputs that the whole graph has there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.fx.passes.reinplace import Values
from flambeau.fx.passes.split_module import extract_graph

METHODS = ("sequential", "binary", "accumulate", "skip")

CompareFn = Callable[[Any, Any, Sequence[str]], tuple[Any, bool]]
"""(result of a, result of b, names of the nodes that give them) -> (a number that is reported, are they the same?)"""


class FxNetMinimizerRunFuncError(Exception):
    """`run_a` or `run_b` failed."""


class FxNetMinimizerResultMismatchError(Exception):
    """The results are not the same."""


class FxNetMinimizerBadModuleError(Exception):
    """The module can't be taken apart where it was asked."""


@dataclass
class _MinimizerSettingBase:
    """`traverse_method`: "sequential" (node by node), "binary" (halves), "accumulate" (a prefix that grows) or "skip" (all but some);
    `find_all`: go on after the first culprit; `return_intermediate`: compare every node of a part, not its results alone."""

    accumulate_error: bool = False
    traverse_method: str = "sequential"
    find_all: bool = False
    return_intermediate: bool = False
    all_outputs: bool = False


class _MinimizerBase:
    """Finds the nodes of `module` on which `run_a` and `run_b` differ, by `compare_fn`, for `sample_input`."""

    def __init__(self, module: GraphModule, sample_input: Sequence[Any], compare_fn: CompareFn, settings: _MinimizerSettingBase,
                 module_exporter: Callable[[GraphModule, str], None] | None = None, exclusive_nodes: Sequence[Node] = ()) -> None:
        if settings.traverse_method not in METHODS:
            raise RuntimeError(f"Unknown traverse method {settings.traverse_method}, expected one of {', '.join(METHODS)}")
        if settings.accumulate_error or settings.all_outputs:
            raise NotImplementedError("net_min: accumulate_error and all_outputs are not implemented; parts are compared on the inputs "
                                      "that run_a's whole graph gives them, return_intermediate compares all nodes of a part")
        self.module, self.sample_input, self.compare_fn, self.settings = module, tuple(sample_input), compare_fn, settings
        self.module_exporter, self.exclusive_nodes = module_exporter, set(exclusive_nodes)
        self.reports: list[list[str]] = []
        self.results: dict[tuple[str, ...], Any] = {}
        self._values: dict[Node, Any] = {}

    def run_a(self, mod: GraphModule, inputs: Sequence[Any], report_idx: int = -1) -> Any:
        """The reference."""
        raise RuntimeError("run_a() is not implemented: a subclass says how the reference runs")

    def run_b(self, mod: GraphModule, inputs: Sequence[Any], report_idx: int = -1) -> Any:
        """What is looked at."""
        raise RuntimeError("run_b() is not implemented: a subclass says how the other one runs")

    def minimize(self, start: str | None = None, end: str | None = None, skip_nodes: Sequence[str] | None = None,
                 find_last_node: bool | None = None) -> set[Node]:
        """The culprits among the nodes from `start` to `end` (names), without those skipped."""
        if find_last_node:
            raise NotImplementedError("net_min: find_last_node is not implemented; traverse_method='accumulate' gives the first prefix")
        record = Values(self.module)
        record.run(*self.sample_input)
        self._values = record.values
        nodes = [node for node in self._between(start, end) if node.name not in (skip_nodes or ()) and node not in self.exclusive_nodes]
        return set(getattr(self, f"_{self.settings.traverse_method}")(nodes))

    def run_nodes(self, start: str | None = None, end: str | None = None) -> None:
        """Compare the part from `start` to `end` as one."""
        record = Values(self.module)
        record.run(*self.sample_input)
        self._values = record.values
        if not self._agrees(self._between(start, end)):
            raise FxNetMinimizerResultMismatchError(f"the results of {start or 'the first node'} to {end or 'the last'} differ")

    def print_reports(self) -> None:
        """What was compared, in order."""
        for report in self.reports:
            print("\n".join(report))

    def _between(self, start: str | None, end: str | None) -> list[Node]:
        nodes = [node for node in self.module.graph.nodes if node.op in ("call_function", "call_method", "call_module")]
        names = [node.name for node in nodes]
        for name in (start, end):
            if name is not None and name not in names:
                raise FxNetMinimizerBadModuleError(f"the module has no node {name} to begin or end at; it has {', '.join(names)}")
        return nodes[0 if start is None else names.index(start):None if end is None else names.index(end) + 1]

    # -- ways through the nodes ---------------------------------------------------------------------------------------------
    def _sequential(self, nodes: list[Node]) -> list[Node]:
        culprits: list[Node] = []
        for node in nodes:
            if not self._agrees([node]):
                culprits.append(node)
                if not self.settings.find_all:
                    break
        return culprits

    def _binary(self, nodes: list[Node]) -> list[Node]:
        if not nodes or self._agrees(nodes):
            return []
        if len(nodes) == 1:
            return nodes
        half = len(nodes) // 2
        first = self._binary(nodes[:half])
        if first and not self.settings.find_all:
            return first
        found = first + self._binary(nodes[half:])
        return found or nodes       # only together they differ

    def _accumulate(self, nodes: list[Node]) -> list[Node]:
        culprits: list[Node] = []
        part: list[Node] = []
        for node in nodes:
            part.append(node)
            if not self._agrees(part):
                culprits.append(node)
                if not self.settings.find_all:
                    break
                part = []
        return culprits

    def _skip(self, nodes: list[Node]) -> list[Node]:
        return [] if not nodes or self._agrees(nodes) else nodes

    # -- one comparison -----------------------------------------------------------------------------------------------------
    def _agrees(self, nodes: list[Node]) -> bool:
        inside = set(nodes)
        inputs = list(dict.fromkeys(source for node in nodes for source in node.all_input_nodes if source not in inside))
        outputs = [node for node in nodes if self.settings.return_intermediate or any(user not in inside for user in node.users)]
        part = GraphModule(self.module, extract_graph(nodes, inputs, outputs or nodes[-1:]))
        names = tuple(node.name for node in outputs or nodes[-1:])
        index = len(self.reports)
        self.reports.append([f"compare {', '.join(node.name for node in nodes)}"])
        if self.module_exporter is not None:
            self.module_exporter(part, f"part_{index}")
        given = [self._values[node] for node in inputs]
        results = []
        for run in (self.run_a, self.run_b):
            try:
                results.append(run(part, given, index))
            except Exception as error:
                raise FxNetMinimizerRunFuncError(f"{run.__name__} failed on {', '.join(names)}: {error}") from error
        number, same = self.compare_fn(results[0], results[1], names)
        self.results[names] = number
        self.reports[-1].append(f"  {'the same' if same else 'different'} at {', '.join(names)}: {number}")
        return bool(same)


__all__ = ["FxNetMinimizerBadModuleError", "FxNetMinimizerResultMismatchError", "FxNetMinimizerRunFuncError"]
