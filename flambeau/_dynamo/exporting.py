"""`torch._dynamo.export`: a function, for arguments like the ones given, as one graph with its signature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .._functorch.make_fx import make_fx
from ..core.symbolic import SymInt
from ..core.tensor import Tensor
from ..dynamo import compile
from ..dynamo.compiler import entries_of
from ..fx import Graph, GraphModule, Node
from ..fx.node import resolve_attr
from ..nn import Module
from ..utils._pytree import tree_flatten, tree_unflatten


class ExportResult(NamedTuple):
    """The graph, and the guards under which it is right."""

    graph_module: GraphModule
    guards: list[str]


class ExportedGraphModule(GraphModule):
    """A graph over the tensors among the arguments, called as the function was."""

    def __init__(self, root: Any, graph: Graph, given: Any, result: Any) -> None:
        super().__init__(root, graph, "GraphModule")
        self._given, self._result = given, result

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, spec = tree_flatten((args, kwargs))
        if spec != self._given:
            raise ValueError(f"the exported graph was made for arguments of the structure {self._given}, got {spec}")
        outs = super().__call__(*[leaf for leaf in leaves if isinstance(leaf, Tensor)])
        return tree_unflatten(list(outs), self._result)


class _Recorder:
    """A backend that runs the graph as it is, once, and keeps what went in and came out."""

    def __init__(self) -> None:
        self.gm: GraphModule | None = None
        self.inputs: Sequence[Any] = ()
        self.outputs: Sequence[Any] = ()

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.gm = gm

        def run(*args: Any) -> Any:
            self.inputs, self.outputs = args, gm.forward(*args)
            return self.outputs

        return run


def export(f: Callable, *extra_args: Any, aten_graph: bool = False, tracing_mode: str = "symbolic", same_signature: bool = True,
           assume_static_by_default: bool = True, **extra_kwargs: Any) -> Any:
    """`export(f)(*args)`: the graph of `f` for arguments like these, which takes and gives what `f` does, and its guards. A graph break is
    an error; sizes, numbers and whatever else is no tensor are fixed. Parameters and closures are attributes of the graph. With
    `aten_graph` it holds overloads of ATen's."""
    if not (same_signature and assume_static_by_default) or tracing_mode not in ("symbolic", "real", "fake"):
        raise NotImplementedError("export(same_signature=False), export(assume_static_by_default=False): sizes are fixed")

    def inner(*args: Any, **kwargs: Any) -> ExportResult:
        recorder = _Recorder()
        result = compile(f, backend=recorder, fullgraph=True, dynamic=False)(*args, **kwargs)
        function = type(f).forward if isinstance(f, Module) else getattr(f, "__wrapped__", f)
        entries = entries_of(function.__code__) if hasattr(function, "__code__") else []
        guards = entries[0].guard_source.splitlines() if entries else []
        made = _assembled(recorder, (args, kwargs), result)
        if aten_graph:
            traced = make_fx(made.forward)(*[leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, Tensor)])
            made = ExportedGraphModule(traced, traced.graph, made._given, made._result)
        return ExportResult(made, guards)

    return inner(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else inner


def _assembled(recorder: _Recorder, given: tuple, result: Any) -> ExportedGraphModule:
    leaves, given_spec = tree_flatten(given)
    outs, result_spec = tree_flatten(result)
    graph, root = Graph(), dict[str, Any]()
    places: dict[int, Node] = {}
    for i, leaf in enumerate(leaf for leaf in leaves if isinstance(leaf, Tensor)):
        places[id(leaf)] = graph.placeholder(f"arg{i}")
        places[id(leaf)].meta["val"] = leaf
    values: dict[Node, Any] = {}
    gm = recorder.gm
    if gm is not None:
        _inline(gm, graph, root, recorder, places, values)
        flat = gm.graph.output_node().args[0]
        places |= {id(value): values[node] for value, node in zip(recorder.outputs, flat) if isinstance(node, Node)}
    unknown = [out for out in outs if isinstance(out, Tensor) and id(out) not in places]
    if unknown:
        raise NotImplementedError("export: a result is a tensor that the graph neither takes nor gives (a closure, say)")
    graph.output(tuple([places[id(out)] if isinstance(out, Tensor) else out for out in outs]))
    made = ExportedGraphModule(root, graph, given_spec, result_spec)
    made.graph.lint()
    return made


def _inline(gm: GraphModule, graph: Graph, root: dict[str, Any], recorder: _Recorder, places: dict[int, Node],
            values: dict[Node, Any]) -> None:
    """The captured graph's steps, on arguments, or attributes where it takes what is no argument."""
    inputs = iter(recorder.inputs)
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            value = next(inputs)
            if isinstance(node.meta.get("val"), SymInt) or not isinstance(value, Tensor):
                raise NotImplementedError(f"export: the graph takes the number {node.name}, which varies; give it as a tensor")
            if id(value) not in places:
                root[node.name] = value
                places[id(value)] = graph.get_attr(node.name)
            values[node] = places[id(value)]
        elif node.op == "get_attr":
            root[str(node.target)] = resolve_attr(gm, str(node.target))
            values[node] = graph.node_copy(node, values.__getitem__)
        elif node.op != "output":
            values[node] = graph.node_copy(node, values.__getitem__)
