"""torch.fx.experimental.optimization: batch norm folded into convolutions, dropout left out, parts of a graph as modules."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from ...fx.graph_module import GraphModule
from ...fx.node import Node
from ...fx.passes.split_module import extract_graph
from ...fx.tracer import symbolic_trace
from .. import modules as layers
from .fusion import fuse_conv_bn_eval

_PAIRS = ((layers.Conv1d, layers.BatchNorm1d), (layers.Conv2d, layers.BatchNorm2d), (layers.Conv3d, layers.BatchNorm3d))


def fuse(model: Any, inplace: bool = False, no_trace: bool = False) -> Any:
    """`model`, in eval mode, with each batch norm that follows a convolution folded into it."""
    model = model if inplace else copy.deepcopy(model)
    gm = model if no_trace and isinstance(model, GraphModule) else symbolic_trace(model)
    modules = dict(gm.named_modules())
    for node in list(gm.graph.nodes):
        before = node.args[0] if node.op == "call_module" and node.args else None
        if not isinstance(before, Node) or before.op != "call_module" or len(before.users) > 1:
            continue
        conv, norm = modules[str(before.target)], modules[str(node.target)]
        if (type(conv), type(norm)) not in _PAIRS or not norm.track_running_stats:
            continue
        _set(gm, str(before.target), fuse_conv_bn_eval(conv, norm))
        modules[str(before.target)] = dict(gm.named_modules())[str(before.target)]
        _set(gm, str(node.target), layers.Identity())
        node.replace_all_uses_with(before)
        gm.graph.erase_node(node)
    gm.recompile()
    return gm


def remove_dropout(model: Any) -> Any:
    """`model` without dropout."""
    gm = symbolic_trace(model)
    modules = dict(gm.named_modules())
    for node in gm.graph.nodes:
        if node.op == "call_module" and isinstance(modules[str(node.target)], layers.Dropout):
            _set(gm, str(node.target), layers.Identity())
    gm.recompile()
    return gm


def extract_subgraph(orig_module: Any, nodes: Sequence[Node], inputs: Sequence[Node], outputs: Sequence[Node]) -> GraphModule:
    """Some nodes as a module of their own; it gives a tuple."""
    graph = extract_graph(list(nodes), list(inputs), list(outputs))
    output = graph.output_node()
    if len(outputs) == 1:
        output.args = ((output.args[0],),)
    return GraphModule(orig_module, graph)


def _set(gm: Any, path: str, module: Any) -> None:
    *parents, name = path.split(".")
    for parent in parents:
        gm = getattr(gm, parent)
    setattr(gm, name, module)
