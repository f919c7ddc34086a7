"""Captured graphs, joint graphs and partitions are broken in many ways, and each is refused by name."""

from __future__ import annotations

import operator
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.aot import compile as aot
from flambeau.aot.joint import Interface
from flambeau.aot.partition import Partition
from flambeau.aot.passes import CLEAN_UP
from flambeau.aot.verify import check_functional, check_partition
from flambeau.core.tensor import fake
from flambeau.fx import Graph, GraphModule, Node, PassManager
from flambeau.fx.lint import GraphLintError, lint_graph
from flambeau.nn import functional as F
from flambeau.ops import prims


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = F.linear(x, w).tanh()
    return (y * y.softmax(-1)).sum(0), y


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> tuple[Graph, Partition, Interface, list[Node]]:
    """What aot makes of `program` with gradients."""
    seen: list[Any] = []
    monkeypatch.setattr(aot, "check_partition", lambda *args: seen.append(args[:4]))
    rng = np.random.default_rng(0)
    x, w = (torch.from_numpy(rng.standard_normal(shape).astype(np.float32)).requires_grad_() for shape in ((5, 4), (3, 4)))
    torch.compiler.reset()
    torch.compile(program, backend="aot_eager")(x, w)
    torch.compiler.reset()
    return seen[-1]


def call(graph: Graph, name: str) -> Node:
    return next(n for n in graph.nodes if n.op == "call_function" and n.target.name == name)


def given(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if n.op == "placeholder"]


def before_definition(g: Graph) -> Node:
    node = call(g, "tanh")
    first = given(g)[0]
    first.prepend(node)
    return node


def erased_input(g: Graph) -> Node:
    node = call(g, "tanh")
    source = node.args[0]
    source.users.clear()        # the pass believes that nobody uses it
    g.erase_node(source)
    return node


def one_name(g: Graph) -> Node:
    node = call(g, "tanh")
    node.name = given(g)[0].name
    return node


def unknown_op(g: Graph) -> Node:
    node = call(g, "tanh")
    node.op = "call_funktion"
    return node


def unknown_target(g: Graph) -> Node:
    node = call(g, "tanh")
    node.target = "tanh"
    return node


def foreign_target(g: Graph) -> Node:
    node = call(g, "tanh")
    node.target = print
    return node


def method(g: Graph) -> Node:
    node = call(g, "tanh")
    node.op, node.target = "call_method", "tanh"
    return node


def foreign_node(g: Graph) -> Node:
    node = call(g, "tanh")
    node.args = (Graph().placeholder("elsewhere"),)
    return node


def not_a_user(g: Graph) -> Node:
    node = call(g, "tanh")
    node.args[0].users.pop(node)
    return node


def false_user(g: Graph) -> Node:
    node = call(g, "tanh")
    given(g)[0].users[node] = None
    return given(g)[0]


def after_output(g: Graph) -> Node:
    with g.inserting_after(g.output_node()):
        return g.call_function(prims.exp, (call(g, "tanh"),))


def no_output(g: Graph) -> None:
    g.erase_node(g.output_node())


def no_value(g: Graph) -> Node:
    node = call(g, "tanh")
    del node.meta["val"]
    return node


def other_shape(g: Graph) -> Node:
    node = call(g, "tanh")
    node.meta["val"] = fake((7, 7), node.meta["val"].dtype)
    return node


def other_dtype(g: Graph) -> Node:
    node = call(g, "tanh")
    node.meta["val"] = fake(node.meta["val"].shape, torch.float64)
    return node


def operands_that_do_not_fit(g: Graph) -> Node:
    node = call(g, "mm")
    node.args = (node.args[0], node.args[0])
    return node


def part_of_no_tuple(g: Graph) -> Node:
    node = call(g, "tanh")
    node.target, node.args = operator.getitem, (node.args[0], 1)
    return node


def keywords(g: Graph) -> Node:
    node = call(g, "tanh")
    node.kwargs = {"out": None}
    return node


GRAPHS: list[Callable[[Graph], Node | None]] = [
    before_definition, erased_input, one_name, unknown_op, unknown_target, foreign_target, method, foreign_node, not_a_user, false_user,
    after_output, no_output, no_value, other_shape, other_dtype, operands_that_do_not_fit, part_of_no_tuple, keywords,
]


@pytest.mark.parametrize("broken", GRAPHS, ids=lambda f: f.__name__)
def test_a_broken_graph_is_refused(taken: Any, broken: Callable[[Graph], Node | None]) -> None:
    graph = taken[0]
    check_functional(graph, "nothing")
    node = broken(graph)
    with pytest.raises(GraphLintError, match=r"^after breaking: ") as refused:
        check_functional(graph, "breaking")
    assert node is None or node.name in str(refused.value).split("\n")[0]


# --- partitions ---


def fewer_saved(joint: Graph, split: Partition, interface: Interface, tangents: list[Node]) -> None:
    output = split.forward.output_node()
    output.args = (output.args[0][:-1],)


def more_saved(joint: Graph, split: Partition, interface: Interface, tangents: list[Node]) -> None:
    output = split.forward.output_node()
    output.args = ((*output.args[0], output.args[0][0]),)


def other_order(joint: Graph, split: Partition, interface: Interface, tangents: list[Node]) -> None:
    first, second = given(split.backward)[:2]
    second.append(first)


def other_shape_taken(joint: Graph, split: Partition, interface: Interface, tangents: list[Node]) -> None:
    given(split.backward)[0].meta["val"] = fake((2, 2), torch.float32)


def other_dtype_taken(joint: Graph, split: Partition, interface: Interface, tangents: list[Node]) -> None:
    val = given(split.backward)[0].meta["val"]
    given(split.backward)[0].meta["val"] = fake(val.shape, torch.float16)


def saved_primal_beyond(joint: Graph, split: Partition, interface: Interface, tangents: list[Node]) -> None:
    split.saved_primals[0] = 99


def other_primal_saved(joint: Graph, split: Partition, interface: Interface, tangents: list[Node]) -> None:
    split.saved_primals[0] = 1 - split.saved_primals[0]


def saved_result_forgotten(joint: Graph, split: Partition, interface: Interface, tangents: list[Node]) -> None:
    split.saved_results.clear()


def tangent_lost(joint: Graph, split: Partition, interface: Interface, tangents: list[Node]) -> None:
    tangents.pop()


def tangent_of_other_shape(joint: Graph, split: Partition, interface: Interface, tangents: list[Node]) -> None:
    tangents[0].meta["val"] = fake((9,), torch.float32)


def gradient_lost(joint: Graph, split: Partition, interface: Interface, tangents: list[Node]) -> None:
    output = split.backward.output_node()
    output.args = (output.args[0][:1],)


def gradients_swapped(joint: Graph, split: Partition, interface: Interface, tangents: list[Node]) -> None:
    output = split.backward.output_node()
    output.args = (output.args[0][::-1],)


def result_lost(joint: Graph, split: Partition, interface: Interface, tangents: list[Node]) -> None:
    output = split.forward.output_node()
    output.args = (output.args[0][1:],)


def primal_lost(joint: Graph, split: Partition, interface: Interface, tangents: list[Node]) -> None:
    with joint.inserting_before(given(joint)[0]):
        joint.placeholder("another").meta["val"] = fake((1,), torch.float32)


PARTITIONS: list[Callable[[Graph, Partition, Interface, list[Node]], None]] = [
    fewer_saved, more_saved, other_order, other_shape_taken, other_dtype_taken, saved_primal_beyond, other_primal_saved,
    saved_result_forgotten, tangent_lost, tangent_of_other_shape, gradient_lost, gradients_swapped, result_lost, primal_lost,
]


@pytest.mark.parametrize("broken", PARTITIONS, ids=lambda f: f.__name__)
def test_a_broken_partition_is_refused(taken: Any, broken: Callable[..., None]) -> None:
    joint, split, interface, tangents = taken
    check_partition(joint, split, interface, tangents, "nothing")
    broken(joint, split, interface, tangents)
    with pytest.raises(GraphLintError, match=r"^after breaking: node %"):
        check_partition(joint, split, interface, tangents, "breaking")


def test_the_pass_that_breaks_a_graph_is_named() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    x.meta["val"] = fake((3,), torch.float32)
    y = graph.call_function(prims.exp, (x,))
    y.meta["val"] = fake((3,), torch.float32)
    graph.output((y,))

    def forgets(g: Graph) -> None:
        y.meta["val"] = fake((4,), torch.float32)
    with pytest.raises(GraphLintError, match="after forgets: node %exp is float32\\[4\\], but exp gives float32\\[3\\]"):
        PassManager((*CLEAN_UP, forgets), check=check_functional)(GraphModule({}, graph))


def test_a_graph_under_construction_needs_no_output() -> None:
    graph = Graph()
    graph.placeholder("x")
    graph.lint()
    with pytest.raises(GraphLintError, match="after capture: the graph of 1 nodes has no output"):
        lint_graph(deepcopy(graph), "capture", whole=True)
