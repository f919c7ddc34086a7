"""`pipeline`: a module cut into stages.

The module's forward is traced symbolically through the modules that a cut lies in, and no others: what stands whole between two cuts
may do anything. A stage gets and returns all values that it or a later stage needs, so that each stage talks to its neighbours alone.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from ...fx import Graph, GraphModule, Node, Tracer
from ...fx.node import map_arg
from ...nn import Module, Parameter
from ..process_group import ProcessGroup
from .stage import PipelineStage


class SplitPoint(enum.Enum):
    """Where a cut lies: before or behind a module."""

    BEGINNING = 1
    END = 2


class _Tracing:
    """The trace in progress, for `pipe_split`."""

    tracer: Tracer | None = None


def pipe_split() -> None:
    """In a module's forward: a stage ends here. Does nothing but while `pipeline` traces."""
    if _Tracing.tracer is not None:
        _Tracing.tracer.create_node("call_function", pipe_split, (), {})


class _Tracer(Tracer):
    """Follows modules above those with a cut; all of the user's own if cuts are made by `pipe_split`."""

    def __init__(self, cuts: Mapping[str, SplitPoint] | None) -> None:
        super().__init__()
        self.cuts = cuts

    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        if self.cuts is None:
            return super().is_leaf_module(m, module_qualified_name)
        return not any(cut.startswith(f"{module_qualified_name}.") for cut in self.cuts)


class Pipe:
    """A module's stages: `get_stage_module(i)`, `build_stage(i, device)`; called, it computes what the module does."""

    def __init__(self, stages: list[GraphModule]) -> None:
        self._stages = stages
        self.num_stages = len(stages)

    def get_stage_module(self, stage_idx: int) -> GraphModule:
        """The module of stage `stage_idx`. Names of parameters are those of the whole module."""
        if not 0 <= stage_idx < self.num_stages:
            raise ValueError(f"Invalid stage index {stage_idx}!; there are {self.num_stages} stages")
        return self._stages[stage_idx]

    def build_stage(self, stage_index: int, device: Any, group: ProcessGroup | None = None) -> PipelineStage:
        """Stage `stage_index` as a PipelineStage of this process."""
        return PipelineStage(self.get_stage_module(stage_index).to(device), stage_index, self.num_stages, device, group=group)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """All stages, one after the other."""
        value = self._stages[0](*args, **kwargs)
        for stage in self._stages[1:]:
            value = stage(*value) if isinstance(value, tuple) else stage(value)
        return value

    def __repr__(self) -> str:
        return f"Pipe({self.num_stages} stages)\n" + "\n".join(f"stage {i}: {stage}" for i, stage in enumerate(self._stages))


def pipeline(module: Module, mb_args: tuple, mb_kwargs: dict[str, Any] | None = None, split_spec: dict[str, SplitPoint] | None = None,
             split_policy: Callable[[GraphModule], GraphModule] | None = None) -> Pipe:
    """`module` cut before or behind the modules that `split_spec` names, or where its forward (or what `split_policy` makes of its
    graph) calls `pipe_split()`. `mb_args` and `mb_kwargs` say which arguments it gets; others have their defaults.

    Raises NotImplementedError for parameters that two stages use: they lie in several processes.
    """
    if split_spec is not None and split_policy is not None:
        raise ValueError("Cannot specify both `split_spec` and `split_policy`. Please use only one of them.")
    names = {name for name, _ in module.named_modules()}
    if unknown := [name for name in split_spec or {} if name not in names]:
        raise ValueError(f"split_spec names {unknown}, which are no modules of {type(module).__name__}")
    traced = _trace(module, mb_args, mb_kwargs or {}, split_spec)
    if split_policy is not None:
        traced = split_policy(traced)
    stages = _stages_of(traced.graph, split_spec or {})
    _refuse_shared(traced, stages)
    return Pipe([_module(traced, nodes, stages, i) for i, nodes in enumerate(stages)])


def _trace(module: Module, args: tuple, kwargs: dict[str, Any], cuts: Mapping[str, SplitPoint] | None) -> GraphModule:
    signature = inspect.signature(module.forward)
    given = signature.bind(*args, **kwargs).arguments
    defaults = {name: p.default for name, p in signature.parameters.items() if name not in given and p.default is not p.empty}
    tracer = _Tracing.tracer = _Tracer(cuts)
    try:
        graph = tracer.trace(module, concrete_args=defaults or None)
    finally:
        _Tracing.tracer = None
    for node in graph.nodes:
        if node.op == "placeholder" and node.target in defaults:
            node.args = (defaults[node.target],)
    return GraphModule(tracer.root, graph)


def _stages_of(graph: Graph, cuts: Mapping[str, SplitPoint]) -> list[list[Node]]:
    """The steps of each stage. Attributes belong to none: each stage reads those that it uses."""
    stages: list[list[Node]] = [[]]
    met: set[str] = set()
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        if node.target is pipe_split:
            stages.append([])
            continue
        path = str(node.target)
        cut = cuts.get(path) if node.op == "call_module" else None
        if cut is not None and path in met:
            raise NotImplementedError(f"module {path}, at which split_spec cuts, is called twice; cut elsewhere")
        if cut is SplitPoint.BEGINNING:
            stages.append([])
        stages[-1].append(node)
        if cut is SplitPoint.END:
            stages.append([])
        if cut is not None:
            met.add(path)
    if missing := sorted(cuts.keys() - met):
        raise ValueError(f"split_spec cuts at {missing}, which forward does not call")
    if empty := [i for i, nodes in enumerate(stages) if not nodes]:
        raise ValueError(f"stages {empty} of {len(stages)} have nothing to do: a cut lies at the beginning, at the end or at another one")
    return stages


def _attributes(nodes: list[Node]) -> set[str]:
    """What of the module these steps use."""
    read = {i for n in nodes for i in n.all_input_nodes if i.op == "get_attr"}
    return {str(n.target) for n in (*nodes, *read) if n.op in ("call_module", "get_attr")}


def _refuse_shared(traced: GraphModule, stages: list[list[Node]]) -> None:
    owner: dict[int, tuple[int, str]] = {}
    for i, nodes in enumerate(stages):
        for path in _attributes(nodes):
            found = attrgetter(path)(traced)
            for name, p in found.named_parameters(path) if isinstance(found, Module) else [(path, found)]:
                first, known = owner.setdefault(id(p), (i, name))
                if first != i and isinstance(p, Parameter):
                    raise NotImplementedError(f"{name}, of stage {i}, is parameter {known} of stage {first}: stages lie in several "
                                              "processes and can't share parameters; cut elsewhere, or give each its own")


def _module(traced: GraphModule, nodes: list[Node], stages: list[list[Node]], number: int) -> GraphModule:
    """One stage: it gets what earlier stages made and it or later ones need, and returns what later ones need."""
    graph, made = Graph(), dict[Node, Node]()
    output = next(n for n in traced.graph.nodes if n.op == "output")
    for node in _crossing(traced.graph, stages, number):
        made[node] = graph.node_copy(node) if node.op == "placeholder" else graph.placeholder(node.name)

    def value(node: Node) -> Node:
        if node not in made:  # an attribute
            made[node] = graph.get_attr(str(node.target))
        return made[node]

    for node in nodes:
        map_arg((node.args, node.kwargs), value)
        made[node] = graph.node_copy(node, made.__getitem__)
    if number == len(stages) - 1:
        graph.output(map_arg(output.args[0], value))
    else:
        leaving = [made[node] for node in _crossing(traced.graph, stages, number + 1)]
        graph.output(leaving[0] if len(leaving) == 1 else tuple(leaving))
    return GraphModule(traced, graph)


def _crossing(graph: Graph, stages: list[list[Node]], number: int) -> list[Node]:
    """The values that stage `number` gets: the module's arguments for the first one, else what was made before and is used from there
    on."""
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    if number == 0:
        return placeholders
    before = [*placeholders, *(n for nodes in stages[:number] for n in nodes)]
    after = {n for nodes in stages[number:] for n in nodes} | {n for n in graph.nodes if n.op == "output"}
    return [n for n in before if any(user in after for user in n.users)]


def build_stage(stage_module: Module, stage_index: int, pipe_info: Any, device: Any, group: ProcessGroup | None = None) -> PipelineStage:
    """A PipelineStage of a module of a Pipe; `pipe_info` is the Pipe, or has its `num_stages`."""
    return PipelineStage(stage_module, stage_index, pipe_info.num_stages, device, group=group)
