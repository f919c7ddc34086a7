"""torch.fx.passes and torch.fx.experimental: graphs cut, joined and drawn; what comes out computes the same."""

from __future__ import annotations

import copy
import operator
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.fx import GraphModule, Node, replace_pattern, symbolic_trace
from flambeau.fx.graph import CodeGen
from flambeau.fx.passes.fake_tensor_prop import FakeTensorProp
from flambeau.fx.passes.graph_drawer import FxGraphDrawer
from flambeau.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from flambeau.fx.passes.infra.pass_base import PassBase, PassResult
from flambeau.fx.passes.infra.pass_manager import PassManager
from flambeau.fx.passes.operator_support import OperatorSupport, OpSupports, any_chain, chain, create_op_support
from flambeau.fx.passes.split_module import split_module
from flambeau.fx.passes.split_utils import split_by_tags
from flambeau.fx.passes.tools_common import legalize_graph
from flambeau.fx.passes.utils.fuser_utils import fuse_by_partitions, validate_partition
from flambeau.fx.passes.utils.matcher_utils import SubgraphMatcher
from flambeau.fx.subgraph_rewriter import replace_pattern_with_filters
from flambeau.nn.utils.fx_passes import extract_subgraph, fuse, remove_dropout


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.full((4,), 2.0))

    def forward(self, x: Any, y: Any) -> Any:
        h = torch.relu(self.a(x)) + self.scale
        k = torch.sin(y) * h
        return self.b(k) + h, k


def check(gm: GraphModule, net: nn.Module) -> None:
    gm.graph.lint()
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    for got, expected in zip(gm(x, y), net(x, y)):
        torch.testing.assert_close(got, expected)


def test_split_module() -> None:
    net = Net()
    gm = symbolic_trace(net)
    body = [n for n in gm.graph.nodes if n.op in ("call_module", "call_function", "call_method")]
    for cut in range(1, len(body)):
        names: dict[str, str] = {}
        split = split_module(gm, net, lambda node, cut=cut: int(body.index(node) >= cut), names)  # type: ignore[misc]
        assert [n.target for n in split.graph.nodes if n.op == "call_module"] == ["submod_0", "submod_1"]
        assert set(names.values()) == {"a", "b", "scale"}
        check(split, net)
    with pytest.raises(RuntimeError, match="cycle"):
        split_module(gm, net, lambda node: body.index(node) % 2)


def test_split_by_tags() -> None:
    gm = symbolic_trace(Net())
    for i, node in enumerate(n for n in gm.graph.nodes if n.op not in ("placeholder", "output", "get_attr")):
        node.tag = "first" if i < 3 else "second"
    split = split_by_tags(gm, ["first", "second"])
    assert {n for n, _ in split.named_children()} == {"first", "second"}
    check(split, gm)


class Supported(OperatorSupport):
    def is_node_supported(self, submodules: Any, node: Node) -> bool:
        return node.target in (torch.sin, torch.relu) or getattr(node.target, "__name__", "") in ("add", "mul")


def test_partitions_by_what_is_supported() -> None:
    net = Net()
    gm = symbolic_trace(net)
    partitioner = CapabilityBasedPartitioner(gm, Supported(), allows_single_node_partition=True)
    parts = partitioner.propose_partitions()
    assert all(validate_partition(part.nodes) for part in parts)
    assert sorted(part.size() for part in parts) == [1, 4]
    fused = partitioner.fuse_partitions(parts)
    assert {n.target for n in fused.graph.nodes if n.op == "call_module"} == {"a", "b", "fused_0", "fused_1"}
    check(fused, net)
    assert [p.size() for p in CapabilityBasedPartitioner(symbolic_trace(net), Supported()).propose_partitions()] == [4]


def test_support_of_operators() -> None:
    gm = symbolic_trace(Net())
    nodes = {n.name: n for n in gm.graph.nodes}
    yes, no = create_op_support(lambda modules, node: True), create_op_support(lambda modules, node: False)
    modules = dict(gm.named_modules())
    assert not chain(yes, no).is_node_supported(modules, nodes["sin"]) and any_chain(no, yes).is_node_supported(modules, nodes["sin"])
    assert not OpSupports.decline_if_node_in_names({"sin"}).is_node_supported(modules, nodes["sin"])
    FakeTensorProp(gm).propagate(torch.randn(3, 4), torch.randn(3, 4))
    assert not OpSupports.decline_if_input_dtype(torch.float32).is_node_supported(modules, nodes["sin"])
    linear = "flambeau.nn.modules.linear.Linear"
    assert OperatorSupport({linear: None}).is_node_supported(modules, nodes["a"])
    assert not OperatorSupport({linear: ([[torch.int64]], {})}).is_node_supported(modules, nodes["a"])


def test_cyclic_partitions_are_refused() -> None:
    gm = symbolic_trace(lambda x: x.sin().cos().tan())
    nodes = [n for n in gm.graph.nodes if n.op == "call_method"]
    with pytest.raises(RuntimeError, match="cyclic"):
        fuse_by_partitions(gm, [[nodes[0], nodes[2]]])


def test_passes_as_objects() -> None:
    class Swap(PassBase):
        def call(self, graph_module: GraphModule) -> PassResult:
            found = [n for n in graph_module.graph.nodes if n.target is torch.sin]
            for node in found:
                node.target = torch.cos
            return PassResult(graph_module, bool(found))

    gm = symbolic_trace(lambda x: torch.sin(x))
    result = PassManager([Swap()], steps=5)(gm)
    assert result.modified and not Swap()(gm).modified
    torch.testing.assert_close(result.graph_module(torch.ones(2)), torch.ones(2).cos())
    first, second = (lambda gm: None), (lambda gm: None)
    with pytest.raises(RuntimeError, match="constraint"):
        PassManager([second, first], [lambda a, b: a is not second])(gm)


def test_drawing(tmp_path: Any) -> None:
    gm = symbolic_trace(Net())
    dot = FxGraphDrawer(gm, "net").get_dot_graph()
    text = dot.to_string()
    assert text.startswith('digraph "net"') and text.count("->") == sum(len(n.all_input_nodes) for n in gm.graph.nodes)
    dot.write(f"{tmp_path}/net.dot")
    assert (tmp_path / "net.dot").read_text() == text


def test_order() -> None:
    gm = symbolic_trace(lambda x: x.sin().cos())
    sin, cos = (n for n in gm.graph.nodes if n.op == "call_method")
    cos.append(sin)
    legalize_graph(gm).graph.lint()
    torch.testing.assert_close(gm(torch.ones(2)), torch.ones(2).sin().cos())


def test_batch_norms_are_folded_and_dropout_left_out() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Conv2d(4, 2, 1)).eval()
    net[1].running_mean.copy_(torch.randn(4))
    x = torch.randn(2, 3, 8, 8)
    expected = net(x)
    fused = fuse(copy.deepcopy(net))
    torch.testing.assert_close(fused(x), expected, rtol=1e-4, atol=1e-5)
    assert not any(isinstance(m, nn.BatchNorm2d) and n in {str(k.target) for k in fused.graph.nodes} for n, m in fused.named_modules())
    assert not any(isinstance(m, nn.Dropout) for m in remove_dropout(net).modules())


def test_parts_of_a_graph() -> None:
    gm = symbolic_trace(lambda x: x.sin().cos().tan())
    _, sin, cos, _, _ = gm.graph.nodes
    part = extract_subgraph(gm, [cos], [sin], [cos])
    torch.testing.assert_close(part(torch.ones(2))[0], torch.ones(2).cos())


def test_a_split_keeps_the_modules_of_its_graph() -> None:
    net, other = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2)), nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    gm = symbolic_trace(net)
    split = split_module(gm, other, lambda node: int(node.target == "1"))
    x = torch.ones(1, 2)
    assert split(x).tolist() == net(x).tolist()


def test_subgraphs_are_matched() -> None:
    graph = symbolic_trace(lambda x, y: torch.relu(torch.relu(x + 1).sum() * 2 + y).sum() * 3).graph
    pattern = symbolic_trace(lambda a: torch.relu(a).sum()).graph
    found = SubgraphMatcher(pattern).match(graph)
    assert [match.returning_nodes[0].name for match in found] == ["sum_1", "sum_2"]
    assert [match.placeholder_nodes[0].name for match in found] == ["add", "add_1"]
    assert not SubgraphMatcher(pattern, match_placeholder=True).match(graph)
    tripled = symbolic_trace(lambda a: a * 3).graph
    assert len(SubgraphMatcher(tripled).match(graph)) == 1 and len(SubgraphMatcher(tripled, ignore_literals=True).match(graph)) == 2
    assert len(SubgraphMatcher(tripled, match_output=True, ignore_literals=True).match(graph)) == 1
    doubled = symbolic_trace(lambda a: torch.relu(torch.relu(a))).graph
    thrice = symbolic_trace(lambda x: torch.relu(torch.relu(torch.relu(x)))).graph
    assert [len(SubgraphMatcher(doubled, remove_overlapping_matches=apart).match(thrice)) for apart in (True, False)] == [1, 2]


def test_replacements_with_filters_literals_and_modules():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.act = nn.Linear(2, 2), nn.ReLU()

        def forward(self, x):
            return self.act(self.linear(x)) + 3

    class Old(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x):
            return self.act(x)

    class New(nn.Module):
        def __init__(self):
            super().__init__()
            self.gelu = nn.GELU()

        def forward(self, x):
            return self.gelu(x)

    gm = symbolic_trace(Block())
    match, = replace_pattern(gm, Old(), New())
    assert match._fields == ("anchor", "nodes_map")
    assert sorted(name for name, _ in gm.named_children()) == ["gelu", "linear"]     # what the graph lacks goes, what it needs comes
    assert not replace_pattern_with_filters(gm, lambda x: x + 1, lambda x: x - 1)
    assert not replace_pattern_with_filters(gm, lambda x: x + 1, lambda x: x - 1, [lambda *found: False], ignore_literals=True)
    found, = replace_pattern_with_filters(
        gm, lambda x: x + 1, match_filters=[lambda *found: True], ignore_literals=True,
        replacement_callback=lambda match, graph, pattern: symbolic_trace(lambda x: x * 5).graph)
    assert [node.target for node in found.replacements] == [operator.mul]
    x = torch.ones(1, 2)
    assert gm(x).equal(gm.gelu(gm.linear(x)) * 5)


def test_code_generators_change_the_lines():
    class Typed(CodeGen):
        def gen_fn_def(self, free_vars, maybe_return_annotation):
            return super().gen_fn_def(free_vars, " -> float")

        def additional_globals(self):
            return [("unit", 5)]

    graph = symbolic_trace(lambda x: x + 1).graph
    graph.set_codegen(Typed())
    with graph.on_generate_code(lambda former: lambda lines: ["# seen\n", *lines]):
        seen = graph.python_code("self")
    assert seen.src.splitlines()[:2] == ["def forward(self, x) -> float:", "    # seen"] and seen.globals["unit"] == 5
    assert "# seen" not in graph.python_code("self").src


def test_nodes_know_their_modules():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.ReLU())

        def forward(self, x, n=2):
            return self.inner(x) * n

    Outer.forward.__annotations__["n"] = int
    gm = symbolic_trace(Outer())
    assert [list(n.meta.get("nn_module_stack", ())) for n in gm.graph.nodes] == [[], [], ["inner", "inner.0"], [], []]
    assert "n : int = 2" in gm.code
