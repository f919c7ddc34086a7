"""Folding of constants, arguments by name, passes as functions, sizes of nodes, equal calls."""

from __future__ import annotations

import operator
from typing import Any

import pytest

import flambeau as torch
from flambeau import fx, nn
from flambeau._functorch.cse import CSEPass
from flambeau.fx.experimental.const_fold import split_const_subgraphs
from flambeau.fx.experimental.normalize import NormalizeArgs, NormalizeOperators
from flambeau.fx.operator_schemas import normalize_function
from flambeau.fx.passes import pass_manager as pm
from flambeau.fx.passes.graph_manipulation import get_size_of_all_nodes, replace_target_nodes_with
from flambeau.nn import functional as F


class Folds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w, self.b = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.full((2,), 3.0))
        self.layer = nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        scale = (self.w + self.b) * 2
        return self.layer(x * scale) + self.b.exp() + x


@pytest.mark.parametrize("skip", [None, lambda node: node.target is operator.mul])
def test_what_needs_no_input_is_computed_once(skip: Any) -> None:
    module, x = Folds(), torch.randn(2, 2)
    folded = split_const_subgraphs(module, skip)
    assert len([n for n in folded.const_subgraph_module.graph.nodes if n.op.startswith("call")]) == (3 if skip is None else 2)
    calls = [n.target for n in folded.graph.nodes if n.op.startswith("call") and n.target is not operator.getitem]
    assert calls.count(operator.mul) == (1 if skip is None else 2)
    assert not folded.has_folding_been_run
    torch.testing.assert_close(folded(x), module(x))
    assert folded.has_folding_been_run
    with torch.no_grad():
        module.w.add_(5)
        folded.const_subgraph_module.w.copy_(module.w)
    folded.run_folding()
    torch.testing.assert_close(folded(x), module(x))


def test_a_module_without_constants_stays_whole() -> None:
    folded = split_const_subgraphs(fx.symbolic_trace(nn.Linear(2, 2)))
    assert folded.const_subgraph_module is None and folded(torch.ones(1, 2)).shape == (1, 2)


class Calls(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        y = F.dropout(F.relu(torch.add(self.layer(x), x)), 0.5, training=False)
        return torch.mul(y, torch.sub(y, 2, alpha=3)).sum(0)


def test_arguments_by_name() -> None:
    gm, x = fx.symbolic_trace(Calls()), torch.randn(3, 2)
    named = NormalizeArgs(gm).transform()
    by_target = {str(getattr(n.target, "__name__", n.target)): n for n in named.graph.nodes}
    assert set(by_target["relu"].kwargs) == {"input", "inplace"} and set(by_target["layer"].kwargs) == {"input"}
    assert by_target["dropout"].kwargs["p"] == 0.5 and not by_target["dropout"].args
    torch.testing.assert_close(named(x), gm(x))
    node = next(n for n in gm.graph.nodes if n.target is F.relu)
    assert node.normalized_arguments(gm).args == node.args
    assert node.normalized_arguments(gm, normalize_to_only_use_kwargs=True).kwargs == {"input": node.args[0], "inplace": False}
    found = normalize_function(torch.ops.aten.add.Tensor, (1, 2), {"alpha": 3}, normalize_to_only_use_kwargs=True)
    assert found == ((), {"self": 1, "other": 2, "alpha": 3})
    assert normalize_function(F.relu, (1, 2, 3), {}) is None


def test_operators_of_python() -> None:
    gm, x = fx.symbolic_trace(Calls()), torch.randn(3, 2)
    plain = NormalizeOperators(gm).transform()
    targets = [n.target for n in plain.graph.nodes]
    assert operator.add in targets and operator.mul in targets and torch.sub in targets
    torch.testing.assert_close(plain(x), gm(x))


def test_passes_as_functions() -> None:
    def first(x: int) -> int:
        return x + 1

    def second(x: int) -> int:
        return x * 2

    assert pm.PassManager([first, second])(3) == 8
    order = pm.this_before_that_pass_constraint(first, second)
    assert pm.PassManager([first, second], [order])(3) == 8
    with pytest.raises(RuntimeError, match="constraint violated"):
        pm.PassManager([second, first], [order])(3)
    looped = pm.loop_pass(first, n_iter=3)
    with pytest.raises(RuntimeError, match="constraint violated"):
        pm.PassManager([pm.log_hook(second), looped], [pm.these_before_those_pass_constraint(first, second)]).validate()
    assert looped(0) == 3 and pm.loop_pass(first, predicate=lambda x: x < 5)(0) == 5
    assert pm.inplace_wrapper(lambda values: values.append(1))([]) == [1]
    manager = pm.PassManager.build_from_passlist([first, second])
    manager.replace_pass(second, looped)
    manager.remove_pass(["second"])
    assert manager(0) == 4
    with pytest.raises(AssertionError, match="exactly one"):
        pm.loop_pass(first)


def test_sizes_and_other_targets() -> None:
    gm = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
    get_size_of_all_nodes(gm, [torch.ones(4, 2)])
    assert [n.size_bytes for n in gm.graph.nodes if n.op != "output"] == [(32, 32), (48, 84), (48, 48)]
    gm = fx.symbolic_trace(lambda x: torch.sin(x) + torch.sin(x))
    replace_target_nodes_with(gm, "call_function", torch.sin, "call_function", torch.cos)
    assert torch.equal(gm(torch.ones(2)), 2 * torch.ones(2).cos())


def test_equal_calls_are_one_but_draws_and_writes_are_not() -> None:
    aten = torch.ops.aten
    graph = fx.Graph()
    x = graph.placeholder("x")
    made = [graph.call_function(target, args) for target, args in (
        (aten.sin.default, (x,)), (aten.sin.default, (x,)), (aten.rand.default, ([2],)), (aten.rand.default, ([2],)),
        (aten.add_.Tensor, (x, 1)), (aten.add_.Tensor, (x, 1)))]
    graph.output(tuple(made))
    gm = fx.GraphModule({}, graph)
    result = CSEPass()(gm)
    targets = [n.target for n in result.graph_module.graph.nodes if n.op == "call_function"]
    assert result.modified and targets.count(aten.sin.default) == 1
    assert targets.count(aten.rand.default) == 2 and targets.count(aten.add_.Tensor) == 2
    assert not CSEPass()(gm).modified


LAYERS: dict[str, tuple] = {"relu": (), "softmax": (-1,), "log_softmax": (-1,), "softmin": (-1,), "rrelu": (), "dropout2d": (),
                            "gumbel_softmax": (),
                            "elu": (), "gelu": (), "dropout": (), "normalize": (), "max_pool2d": (2,), "embedding_bag": (torch.ones(3, 2),)}


@pytest.mark.parametrize("name", LAYERS)
def test_functions_of_layers_are_seen_whole(name: str) -> None:
    function = getattr(F, name)
    graph = fx.symbolic_trace(lambda x: getattr(F, name)(x, *LAYERS[name])).graph
    assert [node.target for node in graph.nodes if node.op == "call_function"] == [function]
