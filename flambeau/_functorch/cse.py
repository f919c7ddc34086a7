"""torch.fx.passes.dialect.common.cse_pass: one of several equal calls."""

from __future__ import annotations

from ..aot.passes import merge_common_subexpressions
from ..fx import GraphModule, Node
from ..fx.passes.infra.pass_base import PassBase, PassResult
from ..ops.aten import AtenOperator
from ..ops.aten_schemas import behind


def _is_a_function(node: Node) -> bool:
    """Does a call give the same whenever it is made: is it none that writes, draws or has other effects?"""
    target = node.target
    if isinstance(target, AtenOperator):
        info = getattr(behind(target.__name__), "_operator", None)
        if target.__name__.endswith("_") or (info is not None and info.tags & {"random", "inplace"}):
            return False
    return not node.is_impure()


class CSEPass(PassBase):
    """Keeps one of several calls of one function with the same arguments."""

    def call(self, graph_module: GraphModule) -> PassResult:
        """The module, changed in place."""
        before = len(graph_module.graph.nodes)
        merge_common_subexpressions(graph_module.graph, _is_a_function)
        graph_module.recompile()
        return PassResult(graph_module, len(graph_module.graph.nodes) != before)
