"""run_decompositions: functional graphs that do what the program did, mutations as outputs, and tables of the user's."""

from __future__ import annotations

import itertools
import operator
import warnings
from typing import Any

import pytest

import flambeau as fl
from flambeau.export import Dim, default_decompositions, export
from flambeau.export.core_table import is_core
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


F = fl.nn.functional
IMAGE = X.reshape(1, 1, 3, 4) / 3
CORE: dict[str, Any] = {     # what is not core ATen's, and comes to it
    "sums": lambda x: (x.sum(), x.nansum(), x.sum(dtype=fl.float64), x.count_nonzero(), x.trace(), x.diff(), fl.trapezoid(x)),
    "spreads": lambda x: (x.var(), x.std(), x.std(1), x.var(1, unbiased=False), x.std(1, correction=2), fl.var_mean(x, 1), x.aminmax()),
    "truths": lambda x: (x.all(), x.all(1), (x > 3).all((0, 1)), x.isfinite(), fl.isclose(x, x + 1), x.logical_and(x)),
    "norms": lambda x: (x.norm(), x.norm(dim=1), fl.linalg.norm(x), F.normalize(x), F.cosine_similarity(x, x + 1), x.renorm(2, 0, 1.0)),
    "parts": lambda x: (x.chunk(2, 1), x.split(3, 1), x.unbind(0), x.hsplit(2), fl.tensor_split(x, 2), x.narrow(0, 0, 1), x.T, x.movedim(0, 1)),
    "joins": lambda x: (fl.stack([x, x], 1), fl.hstack([x, x]), fl.dstack([x, x]), x.tile(2), x.repeat_interleave(2, 0),
                        fl.cartesian_prod(x[0], x[1]), fl.meshgrid(x[0], x[1], indexing="ij"), fl.broadcast_to(x, (2, 3, 4))),
    "triangles": lambda x: (x.tril(), x.triu(1), x.diag_embed(), x.rot90(), x.roll(1, 0)),
    "makers": lambda x: (x.new_zeros(2), fl.zeros_like(x), x.new_full((2,), 1.0), fl.arange(3), fl.eye(2), fl.eye(2, 3)),
    "choices": lambda x: (fl.where(x > 3, x, 0.0), fl.where(x > 3, 1, x), x.masked_fill(x > 3, 2), x.clamp_min(2), x.clip(0), fl.nan_to_num(x)),
    "activations": lambda x: (F.silu(x), F.mish(x), F.hardswish(x), F.hardsigmoid(x), F.softplus(x), F.logsigmoid(x), F.glu(x), F.relu6(x),
                              F.selu(x), F.celu(x), F.threshold(x, 2.0, 1.0), F.tanhshrink(x)),
    "losses": lambda x: (F.mse_loss(x, x + 1), F.l1_loss(x, x + 1), F.huber_loss(x, x + 2), F.smooth_l1_loss(x, x + 2),
                         F.binary_cross_entropy_with_logits(x, x / 12), F.cross_entropy(x, x[:, 0].long() * 0),
                         F.kl_div(x, x, reduction="batchmean"), F.nll_loss(x, x[:, 0].long() * 0)),
    "products": lambda x: (fl.einsum("ij,kj->ik", x, x), fl.outer(x[0], x[0]), x[0].dot(x[0]), fl.mv(x, x[0]), fl.kron(x, x),
                           fl.baddbmm(x[None, :, :3], x[None], x.T[None]), fl.addcmul(x, x, x), fl.addcdiv(x, x, x + 1), x.lerp(x + 1, 0.5)),
    "layers": lambda x: (F.scaled_dot_product_attention(x[None], x[None], x[None]), F.rms_norm(x, (4,)),
                         F.group_norm(x.reshape(1, 4, 3), 2), F.pixel_shuffle(x.reshape(1, 4, 3, 1), 2),
                         F.conv_transpose1d(x[None], fl.ones(3, 2, 2)),
                         F.conv_transpose2d(IMAGE, fl.ones(1, 2, 2, 2), stride=2), F.pad(x, (1, 2)), F.bilinear(x, x, fl.ones(2, 4, 4))),
    "arithmetic": lambda x: (x // 2, 2 - x, x.frac(), x.square(), x.sinc(), (x / 12).logit(1e-3), fl.special.entr(x), x.deg2rad()),
}


def _close(got: Any, wanted: Any) -> bool:
    leaves = [fl.utils._pytree.tree_leaves(tree) for tree in (got, wanted)]
    return all(a.shape == b.shape and a.dtype is b.dtype and fl.allclose(a, b, rtol=1e-5, atol=1e-5, equal_nan=True)
               for a, b in zip(*leaves, strict=True))


@pytest.mark.filterwarnings("ignore:.*align_corners")
@pytest.mark.parametrize("name", CORE)
def test_all_comes_to_core_operators(name: str) -> None:
    program = export(_module(CORE[name]), (X,)).run_decompositions()
    steps = {n.target for n in program.graph.nodes if n.op == "call_function"} - {operator.getitem}
    assert not [str(step) for step in steps if not is_core(step)]
    for x in (X, X.flip(0) + 0.5):
        assert _close(program.module()(x), CORE[name](x))


@pytest.mark.parametrize("name", CORE)
def test_bodies_that_go_by_sizes_stay_whole(name: str) -> None:
    """What is right for one size alone is not recorded for all."""
    programs = [export(_module(f), (X,), dynamic_shapes=({0: Dim.AUTO, 1: Dim.AUTO},)) for f in (CORE[name], lambda x: CORE[name](x)[0])]
    for whole, (rows, columns) in itertools.product(programs, ((3, 4), (2, 4), (3, 6), (5, 2), (4, 4))):
        x = fl.arange(rows * float(columns)).reshape(rows, columns)
        try:
            wanted = whole.module()(x)
        except AssertionError:     # it takes other sizes alone
            continue
        assert _close(whole.run_decompositions().module()(x), wanted)


def test_products_and_attention_of_any_batch_and_length() -> None:
    def program(x):
        return x @ x.transpose(-1, -2), x @ fl.ones(4, 2), F.scaled_dot_product_attention(x, x, x + 1)

    whole = export(_module(program), (fl.randn(2, 3, 5, 4),), dynamic_shapes=({0: Dim("batch"), 2: Dim("length")},))
    apart = whole.run_decompositions()
    names = {str(n.target) for n in apart.graph.nodes if n.op == "call_function"}
    assert "aten.bmm.default" in names and not names & {"aten.matmul.default", "aten.scaled_dot_product_attention.default"}
    x = fl.randn(3, 3, 7, 4)
    assert _close(apart.module()(x), program(x))


def test_what_is_left_is_told_by_its_operator() -> None:
    """An operator whose body has steps that core ATen lacks is one node still, and nothing of its body is left beside it."""
    program = export(_module(lambda x: x.digamma() + x.median()), (X + 1,)).run_decompositions()
    assert [str(n.target) for n in program.graph.nodes][1:4] == ["aten.digamma.default", "aten.median.default", "aten.add.Tensor"]


def test_what_is_taken_apart_twice_writes_once():
    class Writing(fl.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = fl.nn.BatchNorm1d(3)
            self.register_buffer("count", fl.zeros(3))

        def forward(self, x):
            self.count.add_(1)
            x.mul_(2)
            return self.norm(x) + self.count

    found, kinds = [], []
    for times in range(3):
        program = fl.export.export(Writing(), (fl.arange(12.0).reshape(4, 3),))
        for _ in range(times):
            program = program.run_decompositions()
        kinds.append([s.kind for s in program.graph_signature.output_specs])
        module, x = program.module(), fl.arange(12.0).reshape(4, 3)
        found.append(fl.stack([module(x), module(x), x]))
    assert kinds[1] == kinds[2]
    for values in found[1:]:
        fl.testing.assert_close(values, found[0])
