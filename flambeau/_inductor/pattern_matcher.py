"""`torch._inductor.pattern_matcher`: replacing what one function computes by another in the graphs that inductor compiles.

    patterns = PatternMatcherPass()
    register_replacement(search, replacement, example_inputs, fwd_only, patterns)
    torch._inductor.config.post_grad_custom_post_pass = patterns.apply

Both functions are traced to primitives, as the graph was. A pattern is first sought with any numbers (sizes of the examples stand in it),
then traced anew on what was found, and has to be there exactly; the replacement is traced on the same. So examples need to have the
dtypes and the number of dimensions of what is sought, not the sizes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._absent import absent_names
from ..aot import make_fx
from ..aot.passes import CLEAN_UP, merge_common_subexpressions
from ..core.symbolic import is_symbolic
from ..core.tensor import Tensor, fake
from ..fx import Graph, GraphModule, Node, rewrite
from ..ops.primitives import ViewPrimitive

_INSTEAD = "use register_replacement with two functions, or a pass over the graph's nodes (config.post_grad_custom_post_pass)"


@dataclass
class Match:
    """An occurrence: its nodes, and what the search function's parameters stand for, as `extra_check` sees them."""

    graph: Graph
    nodes: list[Node]
    kwargs: dict[str, Any]
    args: list[Any] = field(default_factory=list)

    def output_node(self) -> Node:
        """The node that computes the result."""
        return self.nodes[-1]


@dataclass
class _Replacement:
    search: Callable[..., Any]
    replace: Callable[..., Any]
    trace: Callable[..., GraphModule]
    loose: Graph
    check: Callable[[Match], bool]
    names: list[str]


class PatternMatcherPass:
    """Replacements, applied in the order in which they were registered."""

    def __init__(self, pass_name: str | None = None, subsystem: str | None = None) -> None:
        self.pass_name, self.subsystem = pass_name, subsystem
        self.replacements: list[_Replacement] = []

    def apply(self, gm: GraphModule | Graph) -> int:
        """Replace what is found; how often something was."""
        graph = gm.graph if isinstance(gm, GraphModule) else gm
        _give_each_user_its_view(graph)
        count = sum(_applied(graph, one) for one in self.replacements)
        merge_common_subexpressions(graph)
        if count and isinstance(gm, GraphModule):
            gm.recompile()
        return count

    __call__ = apply

    def uuid(self) -> Any:
        """None: what is compiled by these passes is not kept on disk."""


def fwd_only(fn: Callable[..., Any], args: Sequence[Any], *, run_functional_passes: bool = True) -> GraphModule:
    """The graph of primitives of `fn`, without gradients."""
    gm: GraphModule = make_fx(fn)(*args)
    if run_functional_passes:
        for one in CLEAN_UP:
            one(gm.graph)
    return gm


def register_replacement(search_fn: Callable[..., Any], replace_fn: Callable[..., Any], example_inputs: Sequence[Any],
                         trace_fn: Callable[..., GraphModule], pass_dicts: Any, extra_check: Callable[[Match], bool] = lambda match: True,
                         scalar_workaround: dict[str, Any] | None = None, exclusive_arg_names: Sequence[str] = (),
                         search_fn_pattern: Any = None, skip_duplicates: bool = False) -> bool:
    """Let a pass (or several) put `replace_fn` in the place of `search_fn`, where `extra_check` agrees. True: it was registered."""
    if scalar_workaround or exclusive_arg_names or search_fn_pattern is not None:
        raise NotImplementedError("register_replacement(): scalar_workaround, exclusive_arg_names and search_fn_pattern are not "
                                  "implemented; write numbers into the function that is sought")
    passes = pass_dicts if isinstance(pass_dicts, (list, tuple)) else [pass_dicts]
    if skip_duplicates and any(one.search is search_fn for each in passes for one in each.replacements):
        return False
    loose = trace_fn(search_fn, [_stand_in(value) for value in example_inputs]).graph
    names = list(inspect.signature(search_fn).parameters)
    for each in passes:
        each.replacements.append(_Replacement(search_fn, replace_fn, trace_fn, loose, extra_check, names))
    return True


def _stand_in(value: Any) -> Any:
    """A fake tensor like a graph's value, or the value itself."""
    if not isinstance(value, Tensor):
        return value
    return fake(tuple(value.shape), value.dtype, value.device, value.stride())


def _give_each_user_its_view(graph: Graph) -> None:
    """Views that were equal are one node, which would tie one occurrence of a pattern to another."""
    for node in list(graph.nodes):
        if isinstance(node.target, ViewPrimitive):
            for user in list(node.users)[1:]:
                with graph.inserting_before(user):
                    user.replace_input_with(node, graph.node_copy(node))


def _alike(p: Any, a: Any) -> bool:
    return (type(p) is int and type(a) is int) or rewrite.equal_constants(p, a)


def _parameters(graph: Graph, match: rewrite.Match) -> list[Any]:
    return [match.nodes_map.get(node) for node in graph.nodes if node.op == "placeholder"]


def _applied(graph: Graph, one: _Replacement) -> int:
    """One pattern: each place where it is found."""
    count = 0
    for candidate in rewrite.find_matches(graph, one.loose, equal=_alike):
        given = _parameters(one.loose, candidate)
        values = [value.meta.get("val") if isinstance(value, Node) else value for value in given]
        if any(isinstance(value, Tensor) and any(map(is_symbolic, value.shape)) for value in values):
            continue    # a pattern on sizes that vary would have to be traced with them
        exact = one.trace(one.search, [_stand_in(value) for value in values]).graph
        found = [match for match in rewrite.find_matches(graph, exact) if match.anchor is candidate.anchor]
        if not found or any(a is not b for a, b in zip(_parameters(exact, found[0]), given, strict=True)):
            continue
        nodes = [node for node in graph.nodes if node in found[0].nodes_map.values() and node not in given]
        if one.check(Match(graph, nodes, dict(zip(one.names, given, strict=False)), given)):
            new = one.trace(one.replace, [_stand_in(value) for value in values]).graph
            rewrite.rewrite_match(graph, found[0], exact, new, {})
            count += 1
    return count


__getattr__ = absent_names(__name__, (
    "Arg", "CallFunction", "CallFunctionVarArgs", "CallMethod", "Ignored", "KeywordArg", "ListOf", "MultiOutputPattern", "joint_fwd_bwd",
    "register_graph_pattern", "register_lowering_pattern", "gen_pattern", "gen_register_replacement"), _INSTEAD)

__all__ = ["Match", "PatternMatcherPass", "fwd_only", "register_replacement"]
