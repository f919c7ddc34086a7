"""Passes of authors of backends: splitting by support, writing in place, one product for many, what a pass changed."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau import fx, nn
from flambeau.func import functionalize
from flambeau.fx.experimental.merge_matmul import are_nodes_independent, may_depend_on, merge_matmul, split_result_tensors
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.fx.passes import splitter_base
from flambeau.fx.passes.graph_transform_observer import GraphTransformObserver
from flambeau.fx.passes.operator_support import OperatorSupportBase
from flambeau.fx.passes.reinplace import reinplace


class Supports(OperatorSupportBase):
    def is_node_supported(self, submodules: Any, node: fx.Node) -> bool:
        return any(word in str(node.target) for word in ("relu", "add", "size"))


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w, self.layer = nn.Parameter(torch.ones(2)), nn.ReLU()

    def forward(self, x: Any, y: Any) -> Any:
        a = torch.relu(x)
        b = torch.add(a, self.w)
        d = torch.relu(torch.sin(b))
        f = torch.add(d, torch.cos(y))
        return f, torch.relu(f), self.layer(x)


class Sized(nn.Module):
    """A number goes from a node of the backend's to one of the rest."""

    def forward(self, x: Any, y: Any) -> Any:
        rows = torch.relu(x).size(0)
        return torch.mul(torch.relu(y), rows), torch.add(x, rows)


def _splitter(model: nn.Module, **settings: Any) -> Any:
    given = torch.randn(2), torch.randn(2)
    return splitter_base._SplitterBase(fx.symbolic_trace(model), given, Supports(), splitter_base._SplitterSettingBase(**settings))


@pytest.mark.parametrize(("model", "settings", "names"), [
    (Mixed, {}, ["cpu_0", "acc_1", "cpu_2", "acc_3"]),
    (Mixed, {"min_acc_module_size": 3}, ["cpu_0", "acc_1"]),
    (Mixed, {"min_acc_module_size": 9}, ["cpu_0"]),
    (Sized, {}, ["acc_0", "cpu_1"]),
    (Sized, {"allow_non_tensor": True}, ["acc_0", "cpu_1"]),
])  # fmt: skip
def test_parts_are_what_a_backend_supports(model: Any, settings: dict[str, Any], names: list[str]) -> None:
    found = _splitter(model(), **settings).generate_split_results()
    assert [name for name, _ in found.split_module.named_children() if name.startswith("_run")] == [f"_run_on_{name}" for name in names]
    given = torch.randn(2), torch.randn(2)
    torch.testing.assert_close(found.split_module(*given), model()(*given))
    for name, inputs in found.submodule_inputs.items():
        getattr(found.split_module, name)(*inputs)


def test_numbers_stay_on_one_side() -> None:
    names = {n.name for n in _splitter(Sized()).acc_nodes}
    assert "size" not in names and "relu_1" in names
    assert "size" in {n.name for n in _splitter(Sized(), allow_non_tensor=True).acc_nodes}


def test_previews_and_limits(capsys: pytest.CaptureFixture) -> None:
    splitter = _splitter(Mixed())
    supported, _, unsupported = splitter.node_support_preview().partition("Unsupported")
    assert "relu" in supported and "cos" in unsupported and "ReLU" in unsupported
    assert splitter.split_preview().startswith("Got 2 acc subgraphs and 2 non-acc subgraphs")
    assert "Got 2 acc" in capsys.readouterr().out
    with pytest.raises(ValueError, match="max_acc_splits"):
        _splitter(Mixed(), max_acc_splits=1)()
    assert _splitter(Mixed(), max_acc_splits=2)() is not None


def _views(a: Any) -> Any:
    return a.clone().add(1).view(-1).mul(2).view(2, 2).sin()


def _read_later(a: Any) -> Any:
    b = a * 2
    c = b.mul(3)
    d = c.exp()
    return (c + d).double().sin(), d


def _view_read_later(a: Any) -> Any:
    b = a + 1
    v = b.view(-1)
    return b * 2, v


def _its_own(a: Any) -> Any:
    b = a + 1
    return torch.addmm(b, b, b), b.T.clone().add(b.T)


def _broadcast(a: Any) -> Any:
    return (a[0] + 1).mul(a), (a + 1).expand(3, 2, 2).mul(2)


def _given(a: Any) -> Any:
    return a.add(1), a[0].sin()


def _transposed(a: Any) -> Any:
    return (a + 1).t().unsqueeze(0)


@pytest.mark.parametrize(("function", "writes"), [
    (_views, ["add_", "mul_", "sin_"]), (_read_later, ["mul_", "add_", "sin_"]), (_view_read_later, []), (_its_own, ["add_"]),
    (_broadcast, []), (_given, []), (_transposed, []),
])  # fmt: skip
def test_calls_write_to_what_nobody_needs(function: Any, writes: list[str]) -> None:
    x = torch.arange(4.0).view(2, 2)
    gm = reinplace(make_fx(functionalize(function))(x), x)
    assert [n.target.__name__ for n in gm.graph.nodes if n.op == "call_function" and n.target.__name__.endswith("_")] == writes
    torch.testing.assert_close(gm(x), function(x))
    assert x.tolist() == [[0.0, 1.0], [2.0, 3.0]]


class Products(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 3))

    def forward(self, a: Any, b: Any) -> Any:
        first = torch.matmul(a, self.w)
        return first + 1, torch.matmul(b, self.w), torch.matmul(a, b)


class Chained(nn.Module):
    def forward(self, a: Any, w: Any) -> Any:
        return torch.matmul(torch.matmul(a, w), w)


@pytest.mark.parametrize(("model", "products"), [(Products, 2), (Chained, 2)])
def test_products_with_one_operand_are_one(model: Any, products: int) -> None:
    module, given = model(), (torch.randn(3, 3), torch.randn(3, 3))
    merged = merge_matmul(module)
    assert [n.target for n in merged.graph.nodes].count(torch.matmul) == products
    torch.testing.assert_close(merged(*given), module(*given))


def test_what_depends_on_what() -> None:
    nodes = {n.name: n for n in fx.symbolic_trace(Products()).graph.nodes}
    assert may_depend_on(nodes["add"], nodes["a"]) and not may_depend_on(nodes["add"], nodes["b"])
    assert may_depend_on(nodes["add"], nodes["b"], search_depth=1)      # not looked into: perhaps
    assert are_nodes_independent([nodes["a"], nodes["b"]]) and not are_nodes_independent([nodes["matmul"], nodes["add"]])
    parts = split_result_tensors(torch.arange(6.0).view(3, 2), [torch.ones(1, 5), torch.ones(2, 5)])
    assert [part.shape for part in parts] == [(1, 2), (2, 2)]


@pytest.mark.parametrize("by", ["graph", "gm"])
def test_a_pass_is_observed(by: str, tmp_path: Any) -> None:
    def sigmoid_for_relu(owner: Any) -> int:
        graph = owner if by == "graph" else owner.graph
        (node,) = [n for n in graph.nodes if n.target == "relu"]
        with graph.inserting_after(node):
            node.replace_all_uses_with(graph.call_function(torch.sigmoid, node.args))
        graph.erase_node(node)
        return 3

    gm = fx.symbolic_trace(lambda x: x.relu() + 1)
    observer, before = GraphTransformObserver(gm, "swap", "tests", log_url=str(tmp_path)), GraphTransformObserver.get_current_pass_count()
    assert getattr(observer, f"apply_{by}_pass")(sigmoid_for_relu) == 3
    assert observer.created_nodes == {"sigmoid"} and observer.erased_nodes == {"relu"}
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert {name.removeprefix(f"pass_{before}_tests_swap_"): "sigmoid" in text for name, text in drawn.items()} == {
        "input_graph.dot": False, "output_graph.dot": True}
    assert "swap" in gm.graph.provenance[-1]
    with GraphTransformObserver(gm, "quiet"):
        pass
    assert GraphTransformObserver.get_current_pass_count() == before
