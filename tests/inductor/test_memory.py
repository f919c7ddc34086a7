"""Programs in stages: what backward was given to keep goes while it runs, and nothing that anybody else can see changes by that."""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.inductor import graph as graphs
from flambeau.inductor.cpu import memory
from flambeau.inductor.cpu.compile import load
from flambeau.inductor.graph import CompiledGraph
from flambeau.nn import functional as F
from flambeau.utils.checkpoint import checkpoint
from tests.threads import in_threads

rng = np.random.default_rng(0)


def data(*shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))


@pytest.fixture
def compiled_graphs() -> Iterator[list[CompiledGraph]]:
    """The graphs that are compiled during a test."""
    torch.compiler.reset()
    found: list[CompiledGraph] = []
    graphs.listening.append(found.append)
    yield found
    graphs.listening.remove(found.append)
    torch.compiler.reset()


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch, compiled_graphs: list[CompiledGraph]) -> list[CompiledGraph]:
    """All backward graphs are cut after each node, however small."""
    for name, value in (("LARGE", 1), ("STAGE", 1), ("STAGES", 10**9), ("WORTHWHILE", 10)):
        monkeypatch.setattr(memory, name, value)
    return compiled_graphs


def stages(found: list[CompiledGraph]) -> int:
    return max(len(graph.unit.segments) for graph in found if graph.unit is not None)


# --- gradients ---


class Block(torch.nn.Module):
    """A bit of everything that backward saves: products, norms, dropout, indices, a result that is saved too."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(11, 16)
        self.norm = torch.nn.LayerNorm(16)
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

    def forward(self, ids: Any, x: Any) -> Any:
        hidden = self.table(ids) + x
        hidden = hidden + self.down(F.gelu(self.up(self.norm(hidden))))
        soft = hidden.softmax(-1)
        return soft, (soft @ hidden.transpose(-1, -2)).tanh()


def arguments() -> tuple:
    return torch.from_numpy(rng.integers(0, 11, (3, 5))), data(3, 5, 16).requires_grad_()


def both(staged: list[CompiledGraph], use: Callable[[Any, tuple], Any], dynamic: bool = False) -> None:
    """`use(model, arguments)` gives the same tensors eagerly and compiled, and leaves the same gradients."""
    model, given = Block(), arguments()
    other, theirs = copy.deepcopy(model), (given[0], given[1].detach().clone().requires_grad_())
    expected = use(model, given)
    found = use(torch.compile(other, dynamic=dynamic), theirs)
    assert stages(staged) > 3
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    for (name, p), q in zip([*other.named_parameters(), ("x", theirs[1])], [*model.parameters(), given[1]], strict=True):
        assert (p.grad is None) == (q.grad is None), name
        if q.grad is not None:
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


def once(model: Any, given: tuple) -> Any:
    a, b = model(*given)
    (a.square().sum() + b.sum()).backward()
    return a, b


def retained(model: Any, given: tuple) -> Any:
    a, b = model(*given)
    loss = a.square().sum() + b.sum()
    loss.backward(retain_graph=True)
    loss.backward(retain_graph=True)
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    return a, b


def part(model: Any, given: tuple) -> Any:
    """The gradient of one result, then of the other, kept and not."""
    a, b = model(*given)
    first, = torch.autograd.grad(a.square().sum(), given[1], retain_graph=True)
    second, = torch.autograd.grad(b.sum(), given[1])
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(a.square().sum(), given[1])
    return first, second


def several_calls(model: Any, given: tuple) -> Any:
    """Backward of the first call after the second has run."""
    a, b = model(*given)
    c, d = model(given[0], given[1] * 2)
    (a.square().sum() + b.sum()).backward()
    (c.square().sum() + d.sum()).backward()
    return a, b, c, d


def held(model: Any, given: tuple) -> Any:
    """A result that backward saved stays what it is, as do views of it."""
    a, b = model(*given)
    view, array, before = a[1:], a.detach().numpy(), a.detach().clone()
    (a.square().sum() + b.sum()).backward()
    for other in range(4):
        torch.full((3, 5, 16), float(other))
    assert torch.equal(a, before) and torch.equal(view, before[1:]) and (array == before.numpy()).all()
    return a, b


def hooks(model: Any, given: tuple) -> Any:
    a, b = model(*given)
    seen: list[Any] = []
    b.register_hook(lambda g: seen.append(g.clone()) or g * 2)
    b.grad_fn.register_hook(lambda grads, gs: seen.extend(g.clone() for g in gs if g is not None))
    (a.square().sum() + b.sum()).backward()
    return seen[0], a, b


def gradient_kept(model: Any, given: tuple) -> Any:
    """The gradient that comes in is the user's own tensor."""
    a, b = model(*given)
    g, h = torch.ones_like(a), torch.full(b.shape, 2.0)
    torch.autograd.backward((a, b), (g, h))
    assert torch.equal(g, torch.ones_like(a)) and torch.equal(h, torch.full(b.shape, 2.0))
    return g, h


def with_saved_hooks(model: Any, given: tuple) -> Any:
    kept: list[Any] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or len(kept) - 1, lambda i: kept[i]):
        a, b = model(*given)
        loss = a.square().sum() + b.sum()
    before = [t.clone() for t in kept]
    loss.backward()
    assert all(torch.equal(t, u) for t, u in zip(kept, before, strict=True))
    return a, b


def checkpointed(model: Any, given: tuple) -> Any:
    a, b = checkpoint(model, *given, use_reentrant=False)
    (a.square().sum() + b.sum()).backward()
    return a, b


def detected(model: Any, given: tuple) -> Any:
    with torch.autograd.set_detect_anomaly(True):
        return once(model, given)


USES = (once, retained, part, several_calls, held, hooks, gradient_kept, with_saved_hooks, checkpointed, detected)


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("use", [pytest.param(use, id=use.__name__) for use in USES])
def test_gradients_are_eagers(staged: list[CompiledGraph], use: Callable[[Any, tuple], Any]) -> None:
    both(staged, use)


def test_gradients_of_symbolic_sizes(staged: list[CompiledGraph]) -> None:
    both(staged, once, dynamic=True)


def test_second_derivatives_are_refused_and_nothing_is_let_go_of(staged: list[CompiledGraph]) -> None:
    model, given = torch.compile(Block()), arguments()
    a, b = model(*given)
    first, = torch.autograd.grad(a.square().sum() + b.sum(), given[1], create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        first.sum().backward(retain_graph=True)
    second, = torch.autograd.grad(a.square().sum() + b.sum(), given[1])
    torch.testing.assert_close(first, second)


def test_calls_through_python_between_stages(staged: list[CompiledGraph]) -> None:
    """A primitive without loops is a segment of its own, whose results come with it."""
    def function(x: Any) -> Any:
        order = x.sin().cummax(-1)
        return (order.values.exp() @ order.values.cumsum(-1).transpose(-1, -2)).logsumexp(0)

    x = data(6, 7)
    y = x.clone().requires_grad_()
    x.requires_grad_()
    function(x).sum().backward()
    torch.compile(function)(y).sum().backward()
    torch.testing.assert_close(y.grad, x.grad, rtol=1e-5, atol=1e-6)


def test_two_threads_at_one_backward(staged: list[CompiledGraph]) -> None:
    """One of them gets the gradients, the other the error; neither reads what is gone."""
    model = torch.compile(Block())
    for _ in range(20):
        a, b = model(*arguments())
        loss, said = a.square().sum() + b.sum(), []
        start = threading.Barrier(2)

        def run(loss: Any = loss, said: list = said, start: threading.Barrier = start) -> None:
            start.wait()
            try:
                loss.backward()
            except RuntimeError as error:
                said.append(str(error))

        in_threads(*[run] * 2)
        assert all("second time" in text for text in said)


def test_threads_with_graphs_of_their_own(staged: list[CompiledGraph]) -> None:
    model, found, given = torch.compile(Block()), [], arguments()
    model(*given)

    def run() -> None:
        for _ in range(5):
            x = given[1].detach().requires_grad_()
            a, b = model(given[0], x)
            found.append(torch.autograd.grad(a.square().sum() + b.sum(), x)[0])

    in_threads(*[run] * 3)
    assert len(found) == 15 and all(torch.equal(g, found[0]) for g in found)


# --- when memory goes ---


def deep(x: Any, *weights: Any) -> Any:
    for w in weights:
        x = (x @ w).tanh()
    return x


@pytest.mark.parametrize("retain_graph", [False, True])
def test_what_was_saved_goes_while_backward_runs(staged: list[CompiledGraph], retain_graph: bool) -> None:
    """The gradients of the last layers are made before the first layers' saved values go, and after the last layers' have gone."""
    weights = [data(16, 16).requires_grad_() for _ in range(5)]
    out = torch.compile(deep)(data(8, 16), *weights)
    node = out.grad_fn
    saved = [weakref.ref(t._data) for t in node.saved[len(node.code.reachable):] if isinstance(t, torch.Tensor)]
    assert len(saved) >= 4
    alive: list[int] = []
    backward = staged[-1]
    assert backward.unit is not None
    scope = backward.code.link(load(backward.unit.source, backward.code.functions)).__globals__
    for name in backward.code.functions:
        run = scope[name]

        def counted(*args: Any, run: Any = run) -> Any:
            alive.append(sum(r() is not None for r in saved))
            return run(*args)

        scope[name] = counted
    backward.call = scope["call"]
    out.sum().backward(retain_graph=retain_graph)
    assert alive[0] == len(saved)
    assert (alive[-1] <= 1 and sorted(alive, reverse=True) == alive) is not retain_graph


def test_small_programs_run_at_one_go(compiled_graphs: list[CompiledGraph]) -> None:
    weights = [data(16, 16).requires_grad_() for _ in range(5)]
    torch.compile(deep)(data(8, 16), *weights).sum().backward()
    assert stages(compiled_graphs) == 1


def test_stages_are_few_and_worth_it(compiled_graphs: list[CompiledGraph]) -> None:
    weights = [data(512, 512).requires_grad_() for _ in range(12)]
    torch.compile(deep)(data(1024, 512), *weights).sum().backward()
    assert len(compiled_graphs[0].unit.segments) == 1       # forward: all that it makes is needed
    assert 4 < stages(compiled_graphs) <= memory.STAGES


PEAK = """
import flambeau as torch
from flambeau import _C
def deep(x, *weights):
    for w in weights:
        x = (x @ w).tanh()
    return x
weights = [torch.randn(512, 512, requires_grad=True) for _ in range(16)]
x = torch.randn(1024, 512)
before = _C.memory_stats()["live"]
torch.compile(deep)(x, *weights).square().mean().backward()
print((_C.memory_stats()["peak"] - before) / 2**20)
"""


def test_gradients_take_the_place_of_what_was_saved() -> None:
    """16 saved values of 2 MiB, 16 gradients of 1 MiB, a few temporaries and what waits for the next stage."""
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True, timeout=120)
    assert float(done.stdout) <= 32 + 4 * 2 + memory.STAGE / 2**20 < 32 + 16


# --- one place ---
IN_PLACE: dict[str, tuple[int, Callable]] = {        # how many buffers lie where another does
    "an activation": (1, lambda x, w: torch.relu(x @ w)),
    "several": (2, lambda x, w: torch.relu(torch.relu(x @ w) @ w) @ w),
    "read again": (0, lambda x, w: (y := x @ w, torch.relu(y) @ y)[1]),
    "read elsewhere too": (0, lambda x, w: (y := x @ w, torch.relu(y + y.flip(0)))[1]),
    "of another dtype": (0, lambda x, w: torch.relu(x @ w).half()),
    "read in several passes": (0, lambda x, w: (x @ w).softmax(-1)),
    "read by two": (0, lambda x, w: (y := x @ w, torch.relu(y), y * 2)[1:]),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_what_is_made_element_by_element_lies_where_its_operand_did(name: str, compiled_graphs: list) -> None:
    most, program = IN_PLACE[name]
    for size in (64, 3, 130):
        torch.compiler.reset()
        x, w = data(size, size), data(size, size)
        x[0, 0] = float("nan")
        torch.testing.assert_close(torch.compile(program)(x, w), program(x, w), rtol=2e-3, atol=2e-3, equal_nan=True)
    assert max(len(graph.unit.within) for graph in compiled_graphs) == most
