"""The tensor-level IR: graphs of calls that print as runnable Python, and the ways to make, walk and rewrite them."""

from flambeau.fx import immutable_collections, subgraph_rewriter  # type: ignore[attr-defined]    # homes of names
from flambeau.fx.codegen import CodeGen, PythonCode
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule, set_module_base
from flambeau.fx.interpreter import Interpreter, Transformer
from flambeau.fx.lint import GraphLintError
from flambeau.fx.node import Node, has_side_effect, immutable_dict, immutable_list, map_aggregate, map_arg, mark_impure
from flambeau.fx.passes import PassManager, ShapeProp
from flambeau.fx.proxy import Proxy, TraceError
from flambeau.fx.rewrite import Match, replace_pattern
from flambeau.fx.tracer import PH, Tracer, symbolic_trace, wrap

__all__ = [
    "PH", "CodeGen", "Graph", "GraphLintError", "GraphModule", "Interpreter", "Match", "Node", "PassManager", "Proxy",
    "PythonCode", "ShapeProp", "TraceError", "Tracer", "Transformer", "immutable_collections", "immutable_dict", "immutable_list",
    "has_side_effect", "map_aggregate", "map_arg", "mark_impure", "replace_pattern", "set_module_base",
    "subgraph_rewriter", "symbolic_trace", "wrap",
]  # fmt: skip
