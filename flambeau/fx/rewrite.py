"""`replace_pattern`: find a subgraph by example and put another in its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule, take_attributes
from flambeau.fx.node import Argument, Node
from flambeau.fx.tracer import symbolic_trace


class Match(NamedTuple):
    """`anchor`: the node that stands for the pattern's output; `nodes_map`: pattern node -> node (or constant)."""

    anchor: Node
    nodes_map: dict[Node, Any]


class ReplacedPatterns(NamedTuple):
    """A match and the nodes that were put in its place."""

    anchor: Node
    nodes_map: dict[Node, Any]
    replacements: list[Node]


Filter = Callable[[Match, Graph, Graph], bool]


def replace_pattern(gm: GraphModule, pattern: Callable | GraphModule | Graph,
                    replacement: Callable | GraphModule | Graph, match_filters: tuple[Filter, ...] = ()) -> list[Match]:
    """Replace each non-overlapping occurrence of `pattern` in `gm` by `replacement`, and return the matches.

    Both are functions, traced here, or graphs. The pattern's placeholders match any argument; every inner node of a
    match must be used inside the match only. `match_filters` are called with `(match, graph, pattern)`; all must agree.
    """
    return [Match(*found[:2]) for found in replace_pattern_with_filters(gm, pattern, replacement, match_filters)]


def replace_pattern_with_filters(
        gm: GraphModule, pattern: Callable | GraphModule | Graph, replacement: Callable | GraphModule | Graph | None = None,
        match_filters: Sequence[Filter] | None = None, ignore_literals: bool = False, *,
        replacement_callback: Callable[[Match, Graph, Graph], Graph] | None = None) -> list[ReplacedPatterns]:
    """As `replace_pattern`, telling which nodes are new. With `ignore_literals` numbers of the pattern match any; `replacement_callback`
    gives the replacement of each match."""
    if (replacement is None) == (replacement_callback is None):
        raise AssertionError("give either a replacement or a replacement_callback")
    pattern_graph = _as_graph(pattern)
    given, fixed = (None, None) if replacement is None else _checked(pattern_graph, replacement)
    equal = (lambda p, a: True) if ignore_literals else equal_constants
    matches = find_matches(gm.graph, pattern_graph, tuple(match_filters or ()), equal)
    rewritten: dict[Node, Argument] = {}
    replaced = []
    for match in matches:
        root, new = (given, fixed) if replacement_callback is None else _checked(
            pattern_graph, replacement_callback(match, gm.graph, pattern_graph))
        assert new is not None
        take_attributes(gm, root, new)
        replaced.append(ReplacedPatterns(*match, rewrite_match(gm.graph, match, pattern_graph, new, rewritten)))
    if matches:
        gm.graph.lint()
        gm.delete_all_unused_submodules()
        gm.recompile()
    return replaced


def _checked(pattern: Graph, replacement: Callable | GraphModule | Graph) -> tuple[Any, Graph]:
    """The module whose attributes a replacement uses, if it has one, and its graph, which takes what the pattern does."""
    new_graph = _as_graph(replacement)
    inputs = [n for n in pattern.nodes if n.op == "placeholder"]
    new_inputs = [n for n in new_graph.nodes if n.op == "placeholder"]
    if len(inputs) != len(new_inputs):
        raise ValueError(f"replace_pattern: the pattern takes {len(inputs)} arguments and the replacement "
                         f"{len(new_inputs)}; they must take the same")
    return new_graph.owning_module, new_graph


def _as_graph(source: Callable | GraphModule | Graph) -> Graph:
    if isinstance(source, Graph):
        return source
    return (source if isinstance(source, GraphModule) else symbolic_trace(source)).graph


def equal_constants(p: Any, a: Any) -> bool:
    """Whether two arguments that are no nodes are the same."""
    return type(p) is type(a) and bool(p == a)


def find_matches(graph: Graph, pattern: Graph, filters: tuple[Filter, ...] = (),
                 equal: Callable[[Any, Any], bool] = equal_constants, apart: bool = True) -> list[Match]:
    """Occurrences of `pattern` in `graph`, none overlapping another if they are to be `apart`, in the graph's order. `equal` compares
    constants."""
    anchor = pattern.output_node().args[0]
    if not isinstance(anchor, Node) or anchor.op == "placeholder":
        raise NotImplementedError(f"replace_pattern: the pattern must return the result of one step, not {anchor!r}; match each part alone")
    taken: set[Node] = set()
    matches: list[Match] = []
    for node in graph.nodes:
        match = Match(node, {})
        if not _same(anchor, node, match.nodes_map, equal):
            continue
        inner = _inner(match, pattern)
        closed = all(user in inner for n in inner if n is not node for user in n.users)
        if closed and not (apart and inner & taken) and all(accept(match, graph, pattern) for accept in filters):
            taken |= inner
            matches.append(match)
    return matches


def _inner(match: Match, pattern: Graph) -> set[Node]:
    return {match.nodes_map[p] for p in pattern.nodes if p.op not in ("placeholder", "output") and p in match.nodes_map}


def _same(p: Argument, a: Argument, found: dict[Node, Any], equal: Callable[[Any, Any], bool]) -> bool:
    """Whether argument `a` of the graph matches `p` of the pattern, given what pattern nodes are found so far."""
    if isinstance(p, Node):
        if p in found:
            return found[p] is a or (not isinstance(a, Node) and found[p] == a)
        if p.op == "placeholder":
            found[p] = a
            return True
        if not isinstance(a, Node) or a.op != p.op or a.target != p.target or len(a.args) != len(p.args):
            return False
        if a.kwargs.keys() != p.kwargs.keys():
            return False
        found[p] = a
        return _same(p.args, a.args, found, equal) and all(_same(p.kwargs[k], a.kwargs[k], found, equal) for k in p.kwargs)
    if isinstance(p, (tuple, list)):
        if not isinstance(a, (tuple, list)) or len(a) != len(p):
            return False
        return all(_same(x, y, found, equal) for x, y in zip(p, a, strict=True))
    if isinstance(p, dict):
        return isinstance(a, dict) and a.keys() == p.keys() and all(_same(p[k], a[k], found, equal) for k in p)
    if isinstance(p, slice):
        return isinstance(a, slice) and _same((p.start, p.stop, p.step), (a.start, a.stop, a.step), found, equal)
    return not isinstance(a, Node) and equal(p, a)


def rewrite_match(graph: Graph, match: Match, pattern: Graph, new: Graph, rewritten: dict[Node, Argument]) -> list[Node]:
    """Copy the replacement before the anchor, hand it the anchor's users, and erase the match; the nodes that are new."""
    placeholders = (n for n in pattern.nodes if n.op == "placeholder")
    resolve = lambda a: rewritten.get(a, a) if isinstance(a, Node) else a  # noqa: E731
    val_map: dict[Node, Any] = {
        fresh: resolve(match.nodes_map.get(old))
        for old, fresh in zip(placeholders, (n for n in new.nodes if n.op == "placeholder"), strict=True)
    }
    with graph.inserting_before(match.anchor):
        before = match.anchor.prev
        value = graph.graph_copy(new, val_map)
    node, made = before.next, []
    while node is not match.anchor:
        made.append(node)
        node.meta = {**{k: v for k, v in match.anchor.meta.items() if k != "val"}, **node.meta}
        node = node.next
    if not isinstance(value, Node):
        raise NotImplementedError(f"replace_pattern: the replacement must return one value, not {value!r}")
    if "val" in match.anchor.meta:
        value.meta.setdefault("val", match.anchor.meta["val"])
    match.anchor.replace_all_uses_with(value)
    rewritten[match.anchor] = value
    for node in reversed([match.nodes_map[p] for p in pattern.nodes if p.op not in ("placeholder", "output")]):
        graph.erase_node(node)
    return made
