"""run_decompositions: functional graphs that do what the program did, mutations as outputs, and tables of the user's."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import flambeau as fl
from flambeau.export import Dim, default_decompositions, export
from flambeau.export.forms import Apart

X = fl.arange(12, dtype=fl.float32).reshape(3, 4)


def network(torch: Any = fl) -> Any:
    """A module of either library, whose buffers change."""

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin, self.bn = torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8)
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: Any) -> Any:
            self.count.add_(1)
            h = self.bn(self.lin(x)).relu() + torch.ones(8)
            return h[:, 1:5].reshape(x.shape[0] * 2, -1).softmax(0)

    return Network()


def test_the_graph_is_torchs():
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = torch.export.export(network(torch), (torch.randn(3, 4),), dynamic_shapes=({0: torch.export.Dim("b", max=99)},))
        theirs = theirs.run_decompositions()
    ours = export(network(), (X,), dynamic_shapes=({0: Dim("b", max=99)},)).run_decompositions()
    assert [str(n.target) for n in ours.graph.nodes] == [str(n.target) for n in theirs.graph.nodes]
    assert [(s.kind.name, s.target) for s in ours.graph_signature.output_specs] == [
        (s.kind.name, s.target) for s in theirs.graph_signature.output_specs]
    assert list(ours.graph_signature.buffers_to_mutate.values()) == list(theirs.graph_signature.buffers_to_mutate.values())


def test_mutations_come_back():
    eager, program = network(), export(network(), (X,), dynamic_shapes=({0: Dim("b")},))
    module = program.run_decompositions().module()
    eager.load_state_dict(program.state_dict)
    for size in (3, 5):
        x = fl.randn(size, 4)
        assert fl.allclose(module(x), eager(x), atol=1e-6)
        for name, value in eager.state_dict().items():
            assert fl.allclose(module.state_dict()[name], value), name


def _writes(x):
    x.add_(1)
    y = x[0]
    y.mul_(2)
    z = x.view(-1)
    z[3:5] = 7
    x.t()[1].sub_(3)
    x.unsqueeze(0).transpose(0, 1)[1:, 0, ::2] = 9
    x.diagonal().zero_()
    return x.sum(), y + 1, z, x.permute(1, 0)


def test_writes_through_views():
    program = export(_module(_writes), (X,)).run_decompositions()
    assert not any(str(n.target).partition(".")[2].partition(".")[0].endswith("_") for n in program.graph.nodes)
    assert program.graph_signature.user_inputs_to_mutate
    a, b = X.clone(), X.clone()
    for got, want in zip(program.module()(a), _writes(b), strict=True):
        assert fl.equal(got, want)
    assert fl.equal(a, b)


def _module(f):
    class Program(fl.nn.Module):
        def forward(self, x):
            return f(x)

    return Program()


def test_tables():
    aten = fl.ops.aten
    program = export(_module(lambda x: fl.nn.functional.linear(x, x).relu()), (X,))
    none = program.run_decompositions({})
    assert [str(n.target) for n in none.graph.nodes][1:3] == ["aten.linear.default", "aten.relu.default"]
    own = program.run_decompositions({aten.relu.default: lambda x: aten.where.self(x > 0, x, x * 0)})
    assert [str(n.target) for n in own.graph.nodes][1:5] == ["aten.linear.default", "aten.gt.Scalar", "aten.mul.Tensor", "aten.where.self"]
    table = default_decompositions()
    del table[aten.linear.default]
    assert "aten.linear.default" in [str(n.target) for n in program.run_decompositions(table).graph.nodes]
    for each in (none, own, program.run_decompositions()):
        assert fl.allclose(each.module()(X), program.module()(X))


@fl.library.custom_op("decompositions::doubled", mutates_args=("x", "rest"))
def doubled(x: fl.Tensor, factor: float, rest: list[fl.Tensor]) -> fl.Tensor:
    """Writes to all that it is given, and gives something new."""
    for one in (x, *rest):
        one.mul_(factor)
    return x.sum()


@doubled.register_fake
def _(x, factor, rest):
    return x.new_empty(())


def test_operators_of_the_users_that_write():
    def program(x):
        y, z = x.clone(), fl.ones(4)
        total = doubled(y[1], 2.0, [z, x])
        doubled(z, factor=3.0, rest=[])
        return y, z * 2, total

    exported = export(_module(program), (X.clone(),))
    apart = exported.run_decompositions()
    assert list(apart.graph_signature.user_inputs_to_mutate.values()) == ["x"]
    a, b = X.clone(), X.clone()
    for got, want in zip(apart.module()(a), program(b), strict=True):
        assert fl.equal(got, want)
    assert fl.equal(a, b) and fl.equal(b, 2 * X)


def test_what_cannot_be():
    program = export(_module(lambda x: x.unfold(0, 2, 1).add_(1)), (X,))
    with pytest.raises(NotImplementedError, match="a write through aten"):
        program.run_decompositions()


def test_what_nothing_computes_is_not_taken_apart():
    """Names of ATen's that are only names here, by operator and by overload."""
    size = fl.ops.aten.size
    apart = Apart(lambda target, args, kwargs: False)
    assert apart[size](fl.ones(2)) is NotImplemented and apart[size.int](fl.ones(2), 0) is NotImplemented


def test_an_operator_within_its_own_form_is_taken_apart_with_all_of_its_numbers():
    x, elu = fl.linspace(-3, 3, 7), fl.ops.aten.elu.default
    apart = Apart(lambda target, args, kwargs: False)
    apart.running.append(elu)
    fl.testing.assert_close(apart[elu](x, 1.5, 1.0, 1 / 1.5), fl.nn.functional.celu(x, 1.5))
