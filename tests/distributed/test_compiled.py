"""Collectives in captured graphs, and compiled modules in DistributedDataParallel: values as eager ones, and what is captured."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import flambeau as fl
from flambeau import distributed as dist
from flambeau.distributed import _functional_collectives as fc
from flambeau.distributed import graph_operators
from flambeau.distributed.algorithms.ddp_comm_hooks import default_hooks
from flambeau.distributed.reducer import Reducer
from flambeau.inductor import graph as graphs
from flambeau.inductor.call import Await
from flambeau.inductor.verify.order import wrongs_of
from flambeau.library import CustomOpDef
from flambeau.nn.parallel import DistributedDataParallel
from tests.distributed.processes import needs_mpi, run

group: Any = None
mesh: Any = None


def reduced(x: fl.Tensor) -> fl.Tensor:
    y = fc.all_reduce((x * 2).sin(), "sum", group)
    y = y + fc.all_reduce(y * 3, "max", mesh) + fc.broadcast(y, 1, (mesh, 0))
    return y.cos() + fc.all_reduce(y, "avg")


def gathered(x: fl.Tensor) -> fl.Tensor:
    rows = fc.all_gather_tensor_autograd(x.sin(), 0, group)
    columns = fc.all_gather_tensor_autograd(x, 1)
    return fc.reduce_scatter_tensor_autograd(rows * 2, "sum", 0, mesh).square() + columns.sum() + fc.reduce_scatter_tensor_autograd(
        columns, "avg", 1, mesh)


def exchanged(x: fl.Tensor) -> fl.Tensor:
    y = fc.all_to_all_single_autograd(x.exp(), None, None, group) * x
    return y + fc.permute_tensor(y * 2, [1, 0], group)


def through(x: fl.Tensor) -> fl.Tensor:
    """Collectives that gradients flow through."""
    F = dist.nn.functional
    y = F.all_reduce(x * 2, group=group) + F.all_gather(x.sin())[1] + F.broadcast(x, 1)
    return y + F.reduce_scatter(fl.empty(x.shape), [x, y], dist.ReduceOp.AVG) + F.all_to_all([fl.empty(x.shape)] * 2, [x, y * x])[0]


def written(x: fl.Tensor) -> fl.Tensor:
    """Collectives that write to their arguments."""
    y = x.detach() * 2
    dist.all_reduce(y)
    dist.all_reduce(y[0], op=dist.ReduceOp.MAX, group=group)
    dist.broadcast(y, 1)
    dist.broadcast(y, group_src=0, group=group)
    rows, part = y.new_empty(4 * y.shape[0] // 2, *y.shape[1:]), y.new_empty(y.shape[0] // 2, *y.shape[1:])
    dist.all_gather_into_tensor(rows, y)
    dist.reduce_scatter_tensor(part, y * (y + 1), dist.ReduceOp.AVG)
    again = y.new_empty(y.shape)
    dist.all_to_all_single(again, y.sin())
    return again * rows[: y.shape[0]] + part.sum()


class _Asks(fl.autograd.Function):
    """What comes backward is combined, and then what forward was given, which hangs on no gradient."""

    @staticmethod
    def forward(ctx: Any, x: fl.Tensor) -> fl.Tensor:
        ctx.save_for_backward(x)
        return x * 1

    @staticmethod
    def backward(ctx: Any, g: fl.Tensor) -> fl.Tensor:
        x, = ctx.saved_tensors
        total = fc.all_reduce(g.sum(0), "sum", group)
        return total * fc.all_reduce(x.sum(1), "max", group).unsqueeze(1) * g


def asked(x: fl.Tensor) -> fl.Tensor:
    return _Asks.apply(x.sin() + fc.all_reduce(x.detach(), "sum", group))


def later(x: fl.Tensor) -> fl.Tensor:
    """Collectives that are waited for later, in another order."""
    y, z = x.detach() * 2, x.detach().sin()
    rows, part = y.new_empty(2 * y.shape[0], *y.shape[1:]), y.new_empty(y.shape[0] // 2, *y.shape[1:])
    works = [dist.all_reduce(y, async_op=True), dist.broadcast(z, 1, async_op=True)]
    works.append(dist.all_gather_into_tensor(rows, x.detach(), async_op=True))
    works.append(dist.reduce_scatter_tensor(part, x.detach() * 3, async_op=True))
    w = x.cos()
    assert all(isinstance(work, dist.Work) and work.wait() for work in reversed(works))
    return y + z + w + rows[: y.shape[0]] * part.sum() + works[0].result()[0]


def listed(x: fl.Tensor) -> fl.Tensor:
    """Those of lists, which are the operators of tensors in the graph."""
    y = x.detach() * 2
    rows, parts, part = [y.new_empty(y.shape) for _ in range(2)], [y.new_empty(y[:1].shape), y.new_empty(y[0].shape)], y.new_empty(y.shape)
    work = dist.all_gather(rows, y, async_op=True)
    dist.all_to_all(parts, [y[0], y[1, None]] if dist.get_rank() else [y[:1], y[1]])
    work.wait()
    dist.reduce_scatter(part, [rows[0], rows[1] + 1])
    return part + rows[1] + parts[0] * parts[1]


def joined(x: fl.Tensor) -> fl.Tensor:
    """Runs of one kind of collective, of several shapes; one that needs the one before; gradients through all."""
    F, half = dist.nn.functional, x[: x.shape[0] // 2].sin()
    y = F.all_reduce(x * 2, group=group) + F.all_reduce(x.cos(), group=group) + F.all_reduce(x.sum(1), group=group).sum()
    y = y + F.all_reduce(y * 0.1, group=group)
    rows = [fc.all_gather_tensor_autograd(t, dim, group) for t, dim in ((x, 0), (half, 1), (half * 2, 0))]
    parts = [fc.reduce_scatter_tensor_autograd(t, "avg", 0, group) for t in (rows[0], x * 3, x.exp())]
    sent = F.broadcast(x, 1) + F.broadcast(half.sum(0), 1)
    least = [dist._functional_collectives.all_reduce(t.detach(), "min", group) for t in (x, half)]
    return ((y + parts[0] + sent + least[0]).sum() + sum(t.square().sum() for t in (*rows, *parts)) + least[1].sum()) * 0.01


PROGRAMS: list[Callable] = [reduced, gathered, exchanged, through, written, asked, later, listed, joined]


def begin(rank: int, world: int, backend: str = "gloo") -> None:
    global group, mesh
    dist.init_process_group(backend, **({"rank": rank, "world_size": world} if backend == "fake" else {}))
    group, mesh = dist.group.WORLD, dist.init_device_mesh("cpu", (world,))


@pytest.fixture
def fake() -> Iterator[None]:
    fl._dynamo.reset()
    begin(1, 2, "fake")
    yield
    dist.destroy_process_group()


@pytest.fixture
def compiled_graphs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list:
    """Those that are compiled in a test."""
    found: list = []
    monkeypatch.setattr(graphs, "listening", [found.append])
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    return found


@pytest.mark.parametrize("program", PROGRAMS)
def test_one_graph_holds_them(program: Callable, fake: None) -> None:
    """The same collectives in the same order as in eager mode, forward and backward, in one graph."""
    assert fl._dynamo.explain(program)(fl.randn(4, 4)).graph_break_count == 0
    calls, sequences = group.calls, []
    for fn in (program, fl.compile(program, fullgraph=True, options={"join_collectives": False})):
        x = fl.randn(4, 4 if program is not asked else 6, requires_grad=True)
        del calls[:]
        out = fn(x)
        if out.requires_grad:
            out.sum().backward()
        sequences.append([c.nbytes if program is listed else (c.name, c.shape, c.dtype, c.group) for c in calls])
    assert sequences[0] == sequences[1] and len(sequences[0]) >= 2


def _calls(program: Callable, *given: Any, **options: Any) -> list:
    """The collectives of a compiled program, and of its backward pass."""
    del group.calls[:]
    out = fl.compile(program, fullgraph=True, options=options or None, dynamic=False)(*given)
    out.backward() if out.requires_grad else None
    return [(c.name, c.shape) for c in group.calls]


def test_small_collectives_become_one(fake: None) -> None:
    """Of each run of one kind one is left, forward and backward; what needs another's result, or is of another kind, is not joined."""
    x = fl.randn(4, 3, requires_grad=True)
    forward = [("all_reduce", (12 + 12 + 4,)), ("all_reduce", (4, 3)), ("all_gather_into_tensor", (12 + 6 + 6,)),
               ("reduce_scatter_tensor", (12 + 6 + 6,)), ("broadcast", (12 + 3,)), ("all_reduce", (12 + 6,))]
    found = _calls(joined, x)
    assert found[:len(forward)] == forward, found
    apart = _calls(joined, x, join_collectives=False)
    assert (len(apart), len(found)) == (26, 11) and sum(map(_numel, found)) == sum(map(_numel, apart)), found


def _numel(call: tuple) -> int:
    return int(np.prod(call[1]))


JOINING = [made for made in vars(graph_operators).values() if isinstance(made, CustomOpDef) and made._operator.together]


def test_which_kinds_are_joined() -> None:
    assert {made._operator.__name__ for made in JOINING} == {
        "all_reduce", "reduce", "broadcast", "all_gather_into_tensor", "reduce_scatter_tensor"}


@pytest.mark.parametrize("shape", [(4, 3), (2,), (2, 1, 5), (0, 3)])
@pytest.mark.parametrize("made", JOINING, ids=lambda made: made._operator.__name__)
def test_each_kind_alone_and_joined(made: Any, shape: tuple, fake: None) -> None:
    """What several calls give, and how it lies, is what they give as one."""
    known = {"reduce_op": "sum", "group_name": group.group_name, "group_size": 2, "dst": 1, "src": 0}
    rest = [known[name] for name in made._operator.names[1:]]
    inputs = [fl.randn(shape), fl.randn(2, 2), fl.randn(3, 4).T[:2]]
    for alone, part in zip([made(t, *rest) for t in inputs], made._operator.together(inputs, *rest), strict=True):
        assert part.shape == alone.shape and part.is_contiguous()
        np.testing.assert_array_equal(part.numpy(), alone.numpy())


@pytest.mark.parametrize("other", ["large", "dtype", "reduction", "group", "between", "unequal"])
def test_what_is_not_joined(other: str, fake: None) -> None:
    second = dist.new_group([0, 1])

    def program(x: fl.Tensor, y: fl.Tensor) -> fl.Tensor:
        a = fc.all_reduce(x, "sum", group)
        if other == "between":
            a = a + fc.broadcast(y, 0, group)[:1]
        b = fc.all_reduce(y, "max" if other == "reduction" else "sum", second if other == "group" else group)
        return a.sum() + b.sum()

    def exchanges(x: fl.Tensor, y: fl.Tensor) -> fl.Tensor:
        return fc.all_to_all_single(x, [1, 1], [1, 1], group) + fc.all_to_all_single(x * 2, [1, 1], [1, 1], group)

    y = fl.ones(2, 2 if other != "large" else 40_000, dtype=fl.float64 if other == "dtype" else fl.float32)
    calls = second.calls if other == "group" else []
    assert len(_calls(exchanges if other == "unequal" else program, fl.ones(2, 1), y)) + len(calls) == (3 if other == "between" else 2)


def test_works_of_graphs(fake: None) -> None:
    """What leaves a graph is a work that has ended; one that comes from outside is waited for between graphs."""
    def begun(x: fl.Tensor) -> tuple:
        return dist.all_reduce(x, async_op=True), x + 1

    x = fl.ones(3)
    work, y = fl.compile(begun, fullgraph=True)(x)
    assert isinstance(work, dist.Work) and work.is_completed() and work.is_success() and work.wait() and work.exception() is None
    assert work.result()[0] is x and work.get_future().wait()[0] is x and y.tolist() == [2] * 3

    def waited(x: fl.Tensor, work: Any) -> fl.Tensor:
        work.wait()
        return x * 2

    x = fl.ones(3)
    assert fl.compile(waited)(x, dist.all_reduce(x, async_op=True)).tolist() == [2] * 3


def test_the_graph_goes_on_beside_a_work(fake: None, compiled_graphs: list) -> None:
    """What comes between a collective with async_op=True and its `wait` runs beside it, and so does what comes after that and needs it not."""
    def program(x: fl.Tensor, w: fl.Tensor) -> fl.Tensor:
        a = x @ w
        work = dist.all_reduce(a, async_op=True)
        b = (x.sin() @ w).tanh() @ w
        work.wait()
        return a * 2 + b @ w

    fl.compile(program, fullgraph=True)(fl.randn(4, 4), fl.randn(4, 4))
    assert re.findall(r"\b(run|begin|end)(?=[_(])", compiled_graphs[0].wrapper) == ["run", "begin", "run", "end", "run"]


def test_who_asks_who_it_is(fake: None) -> None:
    """Ranks and sizes are numbers in the graph, of the group that there is."""
    def scaled(x: fl.Tensor) -> fl.Tensor:
        if not dist.is_initialized():
            return x
        return x * dist.get_rank() + dist.get_world_size(group)

    compiled = fl.compile(scaled, fullgraph=True)
    assert compiled(fl.ones(2)).tolist() == [3, 3]
    dist.destroy_process_group()
    assert compiled(fl.ones(2)).tolist() == [1, 1]
    begin(3, 5, "fake")
    assert compiled(fl.ones(2)).tolist() == [8, 8]


def test_a_parameter_that_is_written_to(fake: None) -> None:
    def into(p: fl.Tensor) -> None:
        with fl.no_grad():
            dist.broadcast(p, 0)

    p = fl.nn.Parameter(fl.ones(3))
    fl.compile(into, fullgraph=True)(p)
    assert p.is_leaf and p.requires_grad


def test_another_group_is_another_graph(fake: None) -> None:
    """What was captured of a group does not serve the next one."""
    def scaled(x: fl.Tensor) -> fl.Tensor:
        return fc.all_gather_tensor(x, 0) * 2

    compiled = fl.compile(scaled, fullgraph=True)
    assert compiled(fl.ones(3)).shape == (6,)
    dist.destroy_process_group()
    with pytest.raises(ValueError, match="not been initialized"):
        compiled(fl.ones(3))
    begin(2, 5, "fake")
    assert compiled(fl.ones(3)).shape == (15,)
    with pytest.raises(ValueError, match="unknown reduction"):
        fc.all_reduce(fl.ones(2), "most")
    with pytest.raises(RuntimeError, match="multiple of group_size 5"):
        fc.reduce_scatter_tensor(fl.ones(4, 4), "sum", 0)


def summed(x: fl.Tensor, w: fl.Tensor) -> fl.Tensor:
    """A product, summed over processes; another, which does not need that."""
    a = fc.all_reduce(x @ w, "sum", group)
    b = (x.sin() @ w).tanh() @ w
    return a * 2 + b


def chained(x: fl.Tensor, w: fl.Tensor) -> fl.Tensor:
    """The second one needs the first one's result; the third does not."""
    a = fc.all_reduce(x @ w, "sum", group) @ w
    b = fc.all_reduce(a.cos() @ w, "avg", group)
    c = fc.all_gather_tensor((x.exp() @ w)[:2], 0, group)
    return a + b + c


@pytest.mark.parametrize(("program", "order"), [
    (summed, ["run", "begin", "run", "end", "run"]),
    (chained, ["run", "begin", "run", "end", "run", "begin", "begin", "end", "end", "run"])])
def test_what_does_not_need_it_runs_between_beginning_and_end(program: Callable, order: list[str], fake: None,
                                                                   compiled_graphs: list) -> None:
    """In the written program a collective begins as soon as it can, and is waited for where its result is needed."""
    x, w = fl.randn(4, 4), fl.randn(4, 4)
    found = fl.compile(program, fullgraph=True)(x, w)
    (graph,) = compiled_graphs
    assert re.findall(r"\b(run|begin|end)(?=[_(])", graph.wrapper) == order, graph.wrapper
    np.testing.assert_allclose(found.numpy(), program(x, w).numpy(), rtol=1e-5, atol=1e-6)


def test_a_call_whose_collectives_nobody_waits_for_is_wrong(fake: None, compiled_graphs: list) -> None:
    fl.compile(summed, fullgraph=True)(fl.randn(4, 4), fl.randn(4, 4))
    call = compiled_graphs[0].code.call
    assert not list(wrongs_of(call))
    hasty = replace(call, steps=[s for s in call.steps if not isinstance(s, Await)])
    assert any("nobody has waited" in wrong for wrong in wrongs_of(hasty)) and any("nobody waits" in wrong for wrong in wrongs_of(hasty))


def both(torch: Any, rank: int, world: int) -> dict:
    """Programs and a step of DDP, eager and compiled, of several sizes."""
    begin(rank, world)
    found: dict[str, Any] = {}
    for program in PROGRAMS:
        compiled = fl.compile(program, fullgraph=True)
        for n in (2, 4, 6):
            pair = []
            for fn in (program, compiled):
                x = (fl.arange(2.0 * n).reshape(n, 2) / 5 + rank).requires_grad_()
                out = fn(x)
                (out * (rank + 1.0)).sum().backward() if out.requires_grad else None
                pair.append((out.detach().numpy(), None if x.grad is None else x.grad.numpy()))
            found[program.__name__, n] = [None if a is None else float(np.abs(a - b).max()) for a, b in zip(*pair)]
    wraps: dict[str, Callable] = {"eager": DistributedDataParallel, "inside": lambda m: DistributedDataParallel(fl.compile(m)),
                                  "outside": lambda m: fl.compile(DistributedDataParallel(m))}
    for name, wrap in wraps.items():
        fl.manual_seed(3)
        net = fl.nn.Sequential(fl.nn.Linear(5, 8), fl.nn.GELU(), fl.nn.Linear(8, 3))
        model, sgd = wrap(net), fl.optim.SGD(net.parameters(), lr=0.1)
        for step in range(3):
            sgd.zero_grad()
            model(fl.from_numpy(np.random.default_rng([step, rank]).standard_normal((4, 5)).astype(np.float32))).square().mean().backward()
            sgd.step()
        found[name] = [p.tolist() for p in net.parameters()]
    return found


@needs_mpi
def test_compiled_is_eager() -> None:
    ranks = run(both, 2, timeout=100)
    for found in ranks:
        for program in PROGRAMS:
            for n in (2, 4, 6):
                assert all(gap is None or gap < 1e-5 for gap in found[program.__name__, n]), found[program.__name__, n]
        for name in ("outside", "inside"):
            for ours, theirs in zip(found[name], found["eager"]):
                np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert ranks[0]["outside"] == ranks[1]["outside"]


# -- gradients that are reduced within a compiled backward ----------------------------------------------------------------------
def _net(broken: bool = False, tied: bool = False) -> fl.nn.Module:
    fl.manual_seed(3)
    between = Broken() if broken else fl.nn.GELU()
    middle = fl.nn.Linear(8, 8)
    return fl.nn.Sequential(fl.nn.Linear(5, 8), between, middle, fl.nn.GELU(), *([middle] if tied else []), fl.nn.Linear(8, 3))


class Broken(fl.nn.Module):
    def forward(self, x: fl.Tensor) -> fl.Tensor:
        fl._dynamo.graph_break()
        return x.sin()


class Extra(fl.nn.Module):
    """A part that few steps use."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.spare = _net(), fl.nn.Linear(5, 3)

    def forward(self, x: fl.Tensor, spare: bool = False) -> fl.Tensor:
        return self.net(x) + (self.spare(x) if spare else 0)


def _plain(model: Any, x: fl.Tensor, rank: int, step: int) -> None:
    model(x).square().mean().backward()


def _added_up(model: Any, x: fl.Tensor, rank: int, step: int) -> None:
    with model.no_sync():
        _plain(model, x, rank, step)
    _plain(model, x * 2, rank, step)


def _twice(model: Any, x: fl.Tensor, rank: int, step: int) -> None:
    loss = model(x).square().mean()
    loss.backward(retain_graph=True)
    loss.backward()


def _sooner(model: Any, x: fl.Tensor, rank: int, step: int) -> None:
    """Gradients asked for by hand, of this pass and of a part, before the next one is reduced."""
    fl.autograd.grad(model(x).sum(), list(model.parameters()))
    _plain(model, x, rank, step)


def _outside(model: Any, x: fl.Tensor, rank: int, step: int) -> None:
    (model(x).square().mean() + (rank + 1) * next(model.parameters()).square().sum()).backward()


def _one_outside(model: Any, x: fl.Tensor, rank: int, step: int) -> None:
    _outside(model, x, rank, step) if rank == step % 2 else _plain(model, x, rank, step)


def _kept(model: Any, x: fl.Tensor, rank: int, step: int) -> None:
    """There is a gradient already: in one process, and then in both."""
    for p in model.parameters():
        p.grad = fl.full_like(p, 1.0 + rank) if rank <= step else None
    _plain(model, x, rank, step)


def _spare(model: Any, x: fl.Tensor, rank: int, step: int) -> None:
    model(x, step == 1).square().mean().backward()


def _within(model: Any, x: fl.Tensor, rank: int, step: int) -> None:
    """A backward pass in another."""
    class Inner(fl.autograd.Function):
        @staticmethod
        def forward(ctx: Any, y: fl.Tensor) -> fl.Tensor:
            return y.clone()

        @staticmethod
        def backward(ctx: Any, g: fl.Tensor) -> fl.Tensor:
            with fl.enable_grad():
                model(x).square().mean().backward()
            return g

    Inner.apply(fl.ones(2, requires_grad=True)).sum().backward()


def _hooked(model: Any) -> None:
    next(model.parameters()).register_hook(lambda g: g * 2)


def _changed() -> fl.nn.Module:
    """Somebody else's hook comes before the reducer's."""
    def tripled(p: Any) -> None:
        p.grad.mul_(3)

    net = _net()
    next(net.parameters()).register_post_accumulate_grad_hook(tripled)
    return net


def _compressed(model: Any) -> None:
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)


class Case(NamedTuple):
    """A net, options, what is done before and in each step, and how many of its buckets come early in each of three steps: in rank 0,
    and where it differs in rank 1."""

    early: tuple[int, ...]
    step: Callable = _plain
    options: dict = {}
    before: Callable = lambda model: None
    net: Callable = _net
    other: tuple[int, ...] | None = None


ALL = (3, 3, 3)
CASES = {
    "plain": Case(ALL), "views": Case(ALL, options={"gradient_as_bucket_view": True}),
    "unused": Case(ALL, options={"find_unused_parameters": True}), "static": Case((0, 3, 3), options={"static_graph": True}),
    "added up": Case((0, 0, 0), _added_up), "twice": Case(ALL, _twice), "by hand": Case(ALL, _sooner),
    "outside": Case((2, 2, 2), _outside), "one outside": Case((2, 3, 2), _one_outside, other=(3, 2, 3)),
    "kept": Case((0, 0, 0), _kept, other=(3, 0, 0)),
    "within": Case((0, 0, 0), _within), "hooked": Case((2, 2, 2), before=_hooked), "changed": Case((2, 2, 2), net=_changed),
    "compressed": Case(ALL, before=_compressed), "broken": Case((0, 0, 0), net=lambda: _net(broken=True)),
    "tied": Case(ALL, net=lambda: _net(tied=True)),
    "spare": Case((0, 3, 0), _spare, {"find_unused_parameters": True}, net=Extra),
}


def early(torch: Any, rank: int, world: int, backend: str, names: list[str]) -> dict:
    """Of each case the gradients, eager and compiled, and the buckets that were taken early."""
    begin(rank, world)
    taken: list[int] = []
    bring = Reducer.bring

    def counted(self: Reducer, index: int, gradients: list) -> None:
        before = len(self._early)
        bring(self, index, gradients)
        taken.append(len(self._early) - before)

    Reducer.bring = counted  # type: ignore[method-assign]
    found = {}
    for name in names:
        case, gradients, counts = CASES[name], [], []
        for compiled in (False, True):
            fl._dynamo.reset()
            net = case.net()
            model = DistributedDataParallel(fl.compile(net, backend=backend) if compiled else net, bucket_cap_mb=3e-4, **case.options)
            case.before(model)
            each = []
            for step in range(3):
                model.zero_grad()
                del taken[:]
                case.step(model, fl.from_numpy(np.random.default_rng([step, rank]).standard_normal((4, 5)).astype(np.float32)), rank, step)
                each.append([None if p.grad is None else p.grad.numpy().copy() for p in net.parameters()])
                counts.append(sum(taken))
            gradients.append(each)
        found[name] = (gradients, counts)
    return found


def test_a_bucket_begins_where_its_gradients_are(fake: None, compiled_graphs: list) -> None:
    """In the written backward: the first bucket begins, the rest runs, others begin; nobody waits before the end."""
    net = _net()
    DistributedDataParallel(fl.compile(net), bucket_cap_mb=3e-4)(fl.randn(4, 5)).sum().backward()
    backward = compiled_graphs[-1].wrapper
    assert re.findall(r"\b(run|begin|end)(?=[_(])", backward) == ["run", "begin", "run", "begin", "begin", "end", "end", "end"], backward
    assert [c.shape for c in group.calls if c.name == "all_reduce"] == [(sum(p.numel() for p in b.parameters()),) for b in _buckets(net)]


def _buckets(net: fl.nn.Module) -> list:
    return Reducer(list(net.named_parameters()), group, (314,)).buckets


@needs_mpi
@pytest.mark.parametrize(("backend", "names"), [("aot_eager", list(CASES)), ("inductor", ["plain", "views", "outside"])])
def test_gradients_are_reduced_within_the_backward_graph(backend: str, names: list[str]) -> None:
    """As eager DDP's, whatever else comes to the parameters; a bucket waits where something may."""
    for rank, found in enumerate(run(early, 2, backend, names, timeout=200)):
        for name, ((eager, compiled), counts) in found.items():
            for step, (ours, theirs) in enumerate(zip(compiled, eager)):
                for a, b in zip(ours, theirs):
                    assert (a is None) == (b is None), (name, step)
                    if a is not None:
                        np.testing.assert_allclose(a, b, rtol=1e-3 if name == "compressed" else 1e-5, atol=1e-6, err_msg=f"{name} {step}")
            case = CASES[name]
            assert tuple(counts) == (0, 0, 0, *(case.other if rank and case.other else case.early)), f"rank {rank}, {name}"



class _SumsGradients(fl.autograd.Function):
    """Rank 0 takes the sum of everyone's gradients for its own; the others take part."""

    @staticmethod
    def forward(ctx: Any, x: fl.Tensor, rank: int) -> fl.Tensor:
        ctx.rank = rank
        return x * 1

    @staticmethod
    def backward(ctx: Any, g: fl.Tensor) -> Any:
        total = fc.all_reduce(g, "sum", group)
        return total if ctx.rank == 0 else g * 3, None


def unread(torch: Any, rank: int, world: int, backend: str) -> list:
    """Of programs in which one process needs the result of a collective and the other takes part: results, eager and compiled."""
    begin(rank, world)

    def functional(x: fl.Tensor) -> fl.Tensor:
        everyone = fc.all_reduce(x * (rank + 1), "sum", group)
        return everyone + 1 if rank == 0 else x * 2

    def writing(x: fl.Tensor) -> fl.Tensor:
        y, rows = x.detach() * (rank + 1), x.new_empty(2 * x.shape[0], *x.shape[1:])
        dist.all_reduce(y)
        dist.all_gather_into_tensor(rows, y + rank)
        return rows[3:] + y if rank == 0 else x * 2

    def alike(x: fl.Tensor) -> fl.Tensor:
        """In rank 0 the two are the same call."""
        return fc.all_reduce(x, "sum", group) * fc.all_reduce(x if rank == 0 else x * 5, "sum", group)

    def backwards(x: fl.Tensor) -> fl.Tensor:
        return _SumsGradients.apply(x.sin(), rank) * 2

    made = []
    for program in (functional, writing, alike, backwards):
        for fn in (program, fl.compile(program, backend=backend, fullgraph=True)):
            x = (fl.arange(6.0).reshape(3, 2) + rank).requires_grad_(program is backwards)
            out = fn(x)
            if out.requires_grad:
                out.sum().backward()
            made.append((out.detach().numpy(), None if x.grad is None else x.grad.numpy()))
    return made


@needs_mpi
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_process_takes_part_in_what_it_does_not_need(backend: str) -> None:
    for results in run(unread, 2, backend):
        for eager, compiled in zip(results[::2], results[1::2], strict=True):
            for a, b in zip(eager, compiled, strict=True):
                assert (a is None) == (b is None)
                if a is not None:
                    np.testing.assert_allclose(a, b, rtol=1e-6)
