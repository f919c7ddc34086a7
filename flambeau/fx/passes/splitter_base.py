"""Splitting a graph into parts that a backend ("acc") runs, and the rest: parts of nodes that an `OperatorSupport` takes, as large as the
order of the graph allows, in turn with parts of the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy as deep_copy
from dataclasses import dataclass
from typing import Any, NamedTuple

from flambeau.fx.graph_module import GraphModule
from flambeau.fx.interpreter import Interpreter
from flambeau.fx.node import Node, map_arg
from flambeau.fx.passes.operator_support import OperatorSupportBase
from flambeau.fx.passes.shape_prop import ShapeProp
from flambeau.fx.passes.split_utils import split_by_tags
from flambeau.fx.passes.tools_common import CALLABLE_NODE_OPS, get_node_target, is_node_output_tensor

ACC = "_run_on_acc_"

log = logging.getLogger("flambeau.fx")


class FxNetSplitterInternalError(Exception):
    """The graph can't be split."""


@dataclass
class _SplitterSettingBase:
    """`min_acc_module_size`: smaller parts are left to the rest; `max_acc_splits`: more parts are an error (-1: any number);
    `allow_non_tensor`: numbers and the like may go from a part to another; with `skip_fusion` also between two of the backend's."""

    min_acc_module_size: int = 1
    skip_fusion: bool = False
    allow_non_tensor: bool = False
    max_acc_splits: int = -1
    move_non_tensor_nodes_on_boundary: bool = False


@dataclass
class Subgraph:
    """A part: whether the backend runs it, and its nodes in order."""

    is_acc: bool
    nodes: list[Node]
    device_ordinal: int | None = None


class SplitResult(NamedTuple):
    """The split module, what each submodule was given for the sample, and what names of parts of the rest begin with."""

    split_module: GraphModule
    submodule_inputs: dict[str, Any]
    non_acc_submodule_prefix: str


class FxNetAccNodesFinder:
    """The nodes for the backend. Without `allow_non_tensor`, none that takes from or gives to the rest anything but tensors."""

    def __init__(self, module: GraphModule, operator_support: OperatorSupportBase, allow_non_tensor: bool) -> None:
        self.module, self.operator_support, self.allow_non_tensor = module, operator_support, allow_non_tensor

    def __call__(self) -> set[Node]:
        modules = dict(self.module.named_modules())
        nodes = [n for n in self.module.graph.nodes if n.op in CALLABLE_NODE_OPS]
        found = {n for n in nodes if self.operator_support.is_node_supported(modules, n)}
        return found if self.allow_non_tensor else found - _handing_on(nodes, found, lambda a, b: (a in found) != (b in found))


def _handing_on(nodes: Iterable[Node], acc: set[Node], apart: Callable[[Node, Node], bool]) -> set[Node]:
    """The backend's nodes that give to, or take from, a node on another side what is no tensor; shrinks `acc` until there is none."""
    dropped: set[Node] = set()
    while wrong := {end for n in nodes if not is_node_output_tensor(n) for user in n.users if user.op != "output" and apart(n, user)
                    for end in (n, user) if end in acc}:
        dropped |= wrong
        acc -= wrong
    return dropped


class _SplitterBase:
    """`splitter()` gives the module with submodules `_run_on_acc_N` and `_run_on_cpu_N` in the places of its nodes."""

    def __init__(self, module: GraphModule, sample_input: Sequence[Any], operator_support: OperatorSupportBase,
                 settings: _SplitterSettingBase, non_acc_submodule_name: str = "_run_on_cpu_", return_tuple: bool = False,
                 nodes_finder: FxNetAccNodesFinder | None = None) -> None:  # fmt: skip
        if settings.move_non_tensor_nodes_on_boundary or return_tuple:
            raise NotImplementedError("splitter_base: move_non_tensor_nodes_on_boundary and return_tuple are not implemented; leave them out")
        self.module, self.sample_input, self.operator_support = module, tuple(sample_input), operator_support
        self.settings, self.non_acc_submodule_name = settings, non_acc_submodule_name
        ShapeProp(module).propagate(*self.sample_input)
        self.acc_nodes = (nodes_finder or FxNetAccNodesFinder(module, operator_support, settings.allow_non_tensor))()
        self.tags: list[str] = []

    def __call__(self) -> GraphModule:
        """The split module. ValueError for more parts of the backend's than the settings allow."""
        parts = self._parts()
        count = sum(part.is_acc for part in parts)
        log.info("Got %d acc subgraphs and %d non-acc subgraphs", count, len(parts) - count)
        if 0 <= self.settings.max_acc_splits < count:
            raise ValueError(f"Cannot fulfill max_acc_splits limit: there are {count} parts for the backend, {self.settings.max_acc_splits} "
                             "are allowed. Raise min_acc_module_size, or support more operators")
        self.tags = [f"{ACC if part.is_acc else self.non_acc_submodule_name}{i}" for i, part in enumerate(parts)]
        for tag, part in zip(self.tags, parts, strict=True):
            for node in part.nodes:
                node.tag = tag  # type: ignore[attr-defined]
        return split_by_tags(self.module, self.tags)

    def generate_split_results(self) -> SplitResult:
        """The split module, and what its parts are given for the sample."""
        split = self()
        return SplitResult(split, generate_inputs_for_submodules(split, self.sample_input, self.tags), self.non_acc_submodule_name)

    def node_support_preview(self, dump_graph: bool = False) -> str:
        """Which targets are supported and which are not, with the dtypes of what they take; as text, which is also printed."""
        self._draw_nothing(dump_graph)
        modules = dict(self.module.named_modules())
        kinds: dict[bool, dict[str, None]] = {True: {}, False: {}}
        for node in self._calls():
            dtypes = tuple(getattr(n.meta.get("tensor_meta"), "dtype", None) for n in node.all_input_nodes)
            kinds[node in self.acc_nodes][f"{get_node_target(modules, node)}: ({dtypes}, {{}})"] = None
        text = "".join(f"\n{word} node types in the model:\n{''.join(f'{line}{chr(10)}' for line in kinds[supported])}"
                       for word, supported in (("Supported", True), ("Unsupported", False)))
        print(text)
        return text

    def split_preview(self, dump_graph: bool = False) -> str:
        """How many parts there would be, and what is in them; as text, which is also printed."""
        self._draw_nothing(dump_graph)
        parts = self._parts()
        count = sum(part.is_acc for part in parts)
        lines = [f"Got {count} acc subgraphs and {len(parts) - count} non-acc subgraphs:"]
        lines += [f"{'acc' if part.is_acc else 'non-acc'} {i}: {', '.join(n.name for n in part.nodes)}" for i, part in enumerate(parts)]
        text = "\n".join(lines)
        print(text)
        return text

    def _draw_nothing(self, dump_graph: bool) -> None:
        if dump_graph:
            raise NotImplementedError("splitter_base: dump_graph=True is not implemented; draw the module with FxGraphDrawer")

    def _calls(self) -> list[Node]:
        return [n for n in self.module.graph.nodes if n.op in CALLABLE_NODE_OPS]

    def _parts(self) -> list[Subgraph]:
        """The parts, once those that are too small, or that hand on what is no tensor, have gone to the rest."""
        while True:
            parts = self.put_nodes_into_subgraphs()
            of = {node: i for i, part in enumerate(parts) for node in part.nodes}
            wrong = {n for part in self.remove_small_acc_subgraphs(parts, dropped=True) for n in part.nodes}
            if not (self.settings.skip_fusion or self.settings.allow_non_tensor):
                wrong |= _handing_on(self._calls(), set(self.acc_nodes), lambda a, b: of[a] != of[b])   # noqa: B023
            if not wrong:
                return parts
            self.acc_nodes -= wrong

    def put_nodes_into_subgraphs(self) -> list[Subgraph]:
        """All nodes that can run, of one side as long as there are some, then of the other."""
        left, done, parts = self._calls(), set[Node](), list[Subgraph]()
        while left:
            is_acc = (parts and not parts[-1].is_acc) or not any(self._ready(n, done) for n in left if n not in self.acc_nodes)
            part = Subgraph(bool(is_acc), [])
            for node in left:
                if (node in self.acc_nodes) == part.is_acc and self._ready(node, done):
                    part.nodes.append(node)
                    done.add(node)
            if not part.nodes:
                raise FxNetSplitterInternalError(f"no node can run of {', '.join(n.name for n in left)}")
            left = [n for n in left if n not in done]
            parts.append(part)
        return parts

    def _ready(self, node: Node, done: set[Node]) -> bool:
        return all(n in done or n.op not in CALLABLE_NODE_OPS for n in node.all_input_nodes)

    def remove_small_acc_subgraphs(self, subgraphs: list[Subgraph], dropped: bool = False) -> list[Subgraph]:
        """The parts without the backend's that are below `min_acc_module_size`; with `dropped` these."""
        return [part for part in subgraphs if (part.is_acc and len(part.nodes) < self.settings.min_acc_module_size) == dropped]


class _Calls(Interpreter):
    """Runs a module and notes what some submodules are given."""

    def __init__(self, module: GraphModule, names: Iterable[str], deepcopy: bool) -> None:
        super().__init__(module)
        self.found: dict[str, Any] = {}
        self.names, self.deepcopy = set(names), deepcopy

    def run_node(self, n: Node) -> Any:
        if n.op == "call_module" and n.target in self.names:
            given = map_arg(n.args, lambda node: self.env[node])
            self.found[str(n.target)] = deep_copy(given) if self.deepcopy else given
        return super().run_node(n)


def generate_inputs_for_submodules(model: GraphModule, inputs: Sequence[Any], target_submodules: Iterable[str],
                                   deepcopy: bool = False) -> dict[str, Any]:
    """What these submodules of a graph are given when it runs on `inputs`, by name; copies, if wanted."""
    calls = _Calls(model, target_submodules, deepcopy)
    calls.run(*inputs)
    return calls.found


__all__ = ["FxNetAccNodesFinder", "FxNetSplitterInternalError", "SplitResult", "Subgraph", "generate_inputs_for_submodules"]
