"""`split_module`: a graph as a graph of submodules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import getitem as _item
from typing import Any

from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node, resolve_attr


class Partition:
    """The nodes that become one submodule, `submod_NAME`; what it takes and gives, and which partitions it needs."""

    def __init__(self, name: str) -> None:
        self.name, self.submod_name = name, f"submod_{name}"
        self.node_names: list[str] = []
        self.nodes: list[Node] = []
        self.inputs: dict[Node, None] = {}
        self.outputs: dict[Node, None] = {}
        self.dependencies: dict[str, None] = {}


def extract_graph(nodes: Iterable[Node], inputs: Iterable[Node], outputs: Iterable[Node], always_tuple: bool = False) -> Graph:
    """A graph of its own of some nodes; it gives the one output, or a tuple."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    given = [copies[node] for node in outputs]
    graph.output(given[0] if len(given) == 1 and not always_tuple else tuple(given))
    return graph


def split_module(m: GraphModule, root_m: Any, split_callback: Callable[[Node], int], qualname_map: dict[str, str] | None = None,
                 keep_original_order: bool | None = False, keep_original_node_name: bool | None = False,
                 keep_original_input_name: bool = True) -> GraphModule:
    """`m` with each of its steps in the submodule `submod_N` of the number that `split_callback` gives for it. Parameters are read where
    they are used. RuntimeError if submodules would need each other."""
    nodes = list(m.graph.nodes)
    parts: dict[str, Partition] = {}
    home: dict[Node, Partition] = {}
    for node in nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        name = str(split_callback(node))
        home[node] = part = parts.setdefault(name, Partition(name))
        part.nodes.append(node)
        part.node_names.append(node.name)
    for node, part in home.items():
        for source in node._inputs:
            _connect(source, part, home)
    output = m.graph.output_node()
    for source in output._inputs:
        if source in home:
            home[source].outputs[source] = None
    return _assembled(m, nodes, parts, output, qualname_map)


def _connect(source: Node, part: Partition, home: dict[Node, Partition]) -> None:
    """A step of `part` reads `source`."""
    if source.op == "get_attr":
        if source not in part.nodes:
            part.nodes.insert(0, source)
        return
    owner = home.get(source)
    if owner is part:
        return
    part.inputs[source] = None
    if owner is not None:
        owner.outputs[source] = None
        part.dependencies[owner.name] = None


def _in_order(parts: dict[str, Partition]) -> list[Partition]:
    """Each after those that it needs."""
    ordered: list[Partition] = []
    done: set[str] = set()
    left = list(parts.values())
    while left:
        ready = next((p for p in left if done.issuperset(p.dependencies)), None)
        if ready is None:
            raise RuntimeError(f"cycle exists between partitions: {', '.join(p.submod_name for p in left)} need each other")
        left.remove(ready)
        done.add(ready.name)
        ordered.append(ready)
    return ordered


def _assembled(m: GraphModule, nodes: list[Node], parts: dict[str, Partition], output: Node,
               qualname_map: dict[str, str] | None) -> GraphModule:
    base = Graph()
    values: dict[Node, Node] = {}
    for node in nodes:
        if node.op == "placeholder" or (node.op == "get_attr" and node in output._inputs):
            values[node] = base.node_copy(node, values.__getitem__)
    submodules: dict[str, Any] = {}
    for part in _in_order(parts):
        inputs, outputs = list(part.inputs), list(part.outputs)
        submodules[part.submod_name] = GraphModule(m, extract_graph(part.nodes, inputs, outputs), part.submod_name)
        for node in part.nodes:
            if qualname_map is not None and node.op in ("call_module", "get_attr"):
                qualname_map[f"{part.submod_name}.{node.target}"] = str(node.target)
        call = base.call_module(part.submod_name, tuple([values[n] for n in inputs]))
        if len(outputs) == 1:
            values[outputs[0]] = call
            call.meta.update(outputs[0].meta)
            continue
        for i, node in enumerate(outputs):
            values[node] = base.call_function(_item, (call, i))
            values[node].meta = dict(node.meta)
    base.node_copy(output, values.__getitem__)
    kept = {str(n.target): resolve_attr(m, str(n.target)) for n in base.nodes if n.op == "get_attr"}
    return GraphModule({**submodules, **kept}, base, type(m).__name__)


__all__ = ["Partition", "split_module"]
