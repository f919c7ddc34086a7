"""What graphs print, refuse and warn of, beside torch.fx."""

import warnings
from typing import Dict, List, Optional  # noqa: UP035 - as programs annotate

import pytest

import flambeau as fl

torch = pytest.importorskip("torch")


def typed(lib):
    def f(x: lib.Tensor, y: int = 2) -> lib.Tensor:
        return x + y
    return lib.fx.symbolic_trace(f)


def nested(lib):
    def f(x: List[lib.Tensor], y: Optional[int] = None) -> Dict[str, lib.Tensor]:  # noqa: UP006, UP045
        return {"a": x[0]}
    return lib.fx.symbolic_trace(f)


def numbered(lib):
    return lib.fx.symbolic_trace(lib.nn.Sequential(lib.nn.ReLU(), lib.nn.ReLU()))


def built(lib):
    graph = lib.fx.Graph()
    x = graph.placeholder("x", type_expr=lib.Tensor)
    graph.output(graph.call_function(lib.sin, (x,), type_expr=lib.Tensor), type_expr=lib.Tensor)
    return lib.fx.GraphModule(lib.nn.Module(), graph)


@pytest.mark.parametrize("make", [typed, nested, numbered, built], ids=lambda make: make.__name__)
def test_annotations_and_paths_are_printed_alike(make):
    ours, theirs = make(fl), make(torch)
    assert ours.code.strip() == theirs.code.strip()
    assert str(ours.graph) == str(theirs.graph)


def test_nodes_are_ordered_as_the_graph_is():
    for lib in (torch, fl):
        nodes = list(lib.fx.symbolic_trace(lambda x: (x + 1) * 2).graph.nodes)
        assert sorted([nodes[i] for i in (2, 0, 3, 1)]) == nodes
        assert nodes[0] < nodes[1] <= nodes[1] and nodes[2] > nodes[0] and nodes[2] >= nodes[2]
        assert not nodes[1] < nodes[1]


# (the call on a traced module and its first node, the words of torch's message that both have)
WRONG = (
    (lambda l, gm, x: x.prepend(l.fx.Graph().placeholder("b")), "Attempting to move a Node into a different Graph"),
    (lambda l, gm, x: setattr(gm, "graph", 3), "Expected a Graph instance, but got <class 'int'>"),
    (lambda l, gm, x: l.fx.GraphModule(3, l.fx.Graph()), "Unsupported type 3 passed for root!"),
    (lambda l, gm, x: l.fx.Interpreter(gm).fetch_attr("nope"), "Node referenced nonexistent target nope"),
    (lambda l, gm, x: l.fx.immutable_collections.immutable_list([1]).append(2), "'immutable_list' object does not support mutation"),
)


def test_says_what_torch_says():
    for call, words in WRONG:
        refusals = []
        for lib in (torch, fl):
            gm = lib.fx.symbolic_trace(lambda x: x + 1)
            with pytest.raises((AssertionError, RuntimeError, TypeError)) as refused:
                call(lib, gm, next(iter(gm.graph.nodes)))
            refusals.append((type(refused.value), words in str(refused.value)))
        assert refusals[0] == refusals[1] == (refusals[0][0], True), (words, refusals, str(refused.value))


def test_a_node_erased_twice_is_warned_of():
    for lib in (torch, fl):
        graph = lib.fx.Graph()
        node = graph.placeholder("a")
        graph.erase_node(node)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            graph.erase_node(node)
        assert [str(w.message) for w in seen] == ["erase_node(a) on an already erased node"]


def test_printed_lines_are_changed_from_here_on():
    for lib in (torch, fl):
        gm = lib.fx.symbolic_trace(lambda x: x + 1)
        gm.graph.on_generate_code(lambda former: lambda lines: ["import math\n", *lines])
        gm.recompile()
        assert "import math" in gm.code
        assert gm.graph.process_inputs(1, 2) == (1, 2) and gm.graph.process_outputs(3) == 3
