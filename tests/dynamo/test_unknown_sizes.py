"""Sizes and numbers that only the values in tensors tell: one graph, right for every number of elements, compiled around the reading."""

from __future__ import annotations

import numpy as np
import pytest
from dynamo_harness import Counter, same

import flambeau as torch
from flambeau import dynamo
from flambeau._dynamo.backends.common import aot_autograd
from flambeau.dynamo.backends import lookup_backend
from flambeau.dynamo.compiler import observing

F = torch.nn.functional


def values(kept: int, n: int = 6, columns: int = 3) -> torch.Tensor:
    """Rows of which the first column is positive in `kept`."""
    made = torch.tensor(np.random.default_rng(kept).standard_normal((n, columns)).astype("float32")).abs() + 0.1
    made[kept:] *= -1
    return made


def rows(x):
    y = x[x[:, 0] > 0]
    return y * 2 + 1, y.shape[0], y.sum()


def elements(x):
    y = x[x > 0]
    return torch.cat([y, y * 2]), y.numel()


def both(x):
    mask = x[:, 0] > 0
    return torch.cat([x[mask], x[~mask]]), x[mask] * x[:, 1][mask].unsqueeze(1)


def places(x):
    i, j = torch.nonzero(x > 0, as_tuple=True)
    return x[i, j] * 2, torch.nonzero(x > 0).shape, torch.nonzero(x > 0).T + 1


def selected(x):
    return torch.masked_select(x, x > 0).relu(), torch.where(x > 0)[0], torch.argwhere(x > 0)


def written(x):
    y = x.clone()
    mask = y[:, 0] > 0
    y[mask] = y[mask] * 3 + 1
    return y


def matrix(x):
    y = x[x[:, 0] > 0]
    return (y @ x.T).softmax(1), y.reshape(-1), y.t()


def squeezed(x):
    y = x[x[:, 0] > 0]
    return y.squeeze(), y.unsqueeze(0).squeeze(), y.squeeze().ndim


def broadcast(x):
    return x[x[:, 0] > 0] + x[:1]


def branch(x):
    y = x[x[:, 0] > 0]
    if y.shape[0] == 0:
        return x.sum()
    if len(y) == 1:
        return y[0] * 5
    return y.mean(0) if y.shape[0] > 3 else y.amax(0)


def looped(x):
    total = x.sum()
    for row in x[x[:, 0] > 0]:
        total = total + row[0]
    return total


def repeated(x):
    counts = (x[:, 0] > 0).long() * 2
    return torch.repeat_interleave(x, counts, dim=0) * 2, torch.repeat_interleave(counts)


def distinct(x):
    found, inverse, counts = torch.unique((x > 0).long().sum(1), return_inverse=True, return_counts=True)
    return found * 2, inverse, counts + 1, torch.bincount(found)


def sliced(x):
    n = (x[:, 0] > 0).sum().item()
    torch._check(n >= 0)
    torch._check(n <= x.shape[0])
    return x[:n] * 2, x.narrow(0, 0, n).sum(0), n


def made(x):
    n = int((x[:, 0] > 0).sum())
    return torch.zeros(n, 3) + x[:1], torch.arange(n) * 2, n * 2 + 1


def scaled(x):
    n = (x[:, 0] > 0).sum().item() - 3
    return x * n + 1, n


def counted_from_the_end(x):
    n = (x[:, 0] > 0).sum().item() - 3
    return x[n:], x[:n].shape


def as_a_size(x):
    n = (x[:, 0] > 0).sum().sub(1).item()
    y = x[:1, :1].expand(n, 1)
    return y * 2, y.shape[0], n


def as_a_size_after_a_write(x):
    x.add_(1).sub_(1)
    return as_a_size(x)


def split(x):
    a, b = torch.stack([(x[:, 0] > 0).sum(), (x[:, 0] <= 0).sum()]).tolist()
    torch._check(a >= 0)
    torch._check(b >= 0)
    torch._check(a + b == x.shape[0])
    return x.split([a, b])


def experts(x):
    out = torch.zeros_like(x)
    chosen = (x > 0).sum(1)
    for expert in range(4):
        index = torch.where(chosen == expert)[0]
        out.index_add_(0, index, x[index] * (expert + 1))
    return out


def printed(x):
    y = x[x[:, 0] > 0]
    print(end="")
    return y + y.shape[0]


def loss(x):
    target = (x[:, 0] > 0).long() - (x[:, 1] < 0).long() * 5
    kept = target >= 0
    return F.cross_entropy(x[kept], target[kept])


WHOLE = [rows, elements, both, places, selected, written, matrix, repeated, distinct, sliced, made, scaled, split, experts, loss]
NOT_WHOLE = [squeezed, broadcast, branch, looped, counted_from_the_end, printed, as_a_size, as_a_size_after_a_write]


def outcome(f, x):
    try:
        return f(x)
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("order", [(3, 0, 1, 2, 6), (0, 4, 1), (1, 5, 0)])
@pytest.mark.parametrize("program", WHOLE + NOT_WHOLE, ids=lambda f: f.__name__)
@pytest.mark.filterwarnings("ignore:torch.compile")
def test_every_number_of_elements(program, order) -> None:
    compiled = dynamo.compile(program, backend="eager")
    for kept in order:
        assert same(outcome(program, values(kept)), outcome(compiled, values(kept))), kept


@pytest.mark.parametrize("program", WHOLE, ids=lambda f: f.__name__)
def test_one_graph(program) -> None:
    counter = Counter()
    compiled = dynamo.compile(program, backend=counter, fullgraph=True)
    for kept in (3, 2, 5):
        assert same(program(values(kept)), compiled(values(kept)))
    assert len(counter.graphs) == 1


@pytest.mark.parametrize("program", [rows, both, written, matrix, sliced, experts, loss], ids=lambda f: f.__name__)
def test_gradients(program) -> None:
    compiled = dynamo.compile(program, backend="inductor" if program is matrix else "aot_eager", fullgraph=True)
    for kept in (3, 0, 1, 5):
        found = []
        for f in (program, compiled):
            x = values(kept).requires_grad_()
            out = f(x)
            results = out if isinstance(out, tuple) else (out,)
            total = sum((t.sin() * t).sum() for t in results if isinstance(t, torch.Tensor) and t.requires_grad)
            total.backward()
            found.append([t.detach().numpy() if isinstance(t, torch.Tensor) else t for t in (*results, x.grad)])
        for want, got in zip(*found, strict=True):
            np.testing.assert_allclose(want, got, rtol=1e-5, atol=1e-6)


def test_it_is_compiled_around_the_reading() -> None:
    def f(x):
        y = (x.sin() * 2)[x > 0]
        return (y.cos() + 1).sum()

    compiled_graphs: list = []
    backend = aot_autograd(fw_compiler=lambda gm, inputs: compiled_graphs.append(gm) or gm.forward)
    explained = dynamo.api.Explanation()
    with observing(explained):
        assert same(f(values(3)), dynamo.compile(f, backend=backend)(values(3)))
    assert [sum(node.op.startswith("call") for node in gm.graph.nodes) for gm in compiled_graphs] == [3, 3]
    assert explained.graph_count == 1


@pytest.mark.parametrize("name", ["eager", "aot_eager", "inductor"])
def test_a_backend_of_the_programs_own_hands_the_graph_on(name) -> None:
    """It gets the graph whole, once; who makes functional graphs of it compiles it in pieces. Draws are those of eager code."""
    def f(x, total):
        n = total.item()
        torch._check(n > 1)
        torch._check(n <= 8)
        return x.new_ones(n, 2).sum(0) * n + x[x > 0].sum() + (torch.rand(2) if name == "aot_eager" else 0)

    graphs: list = []

    def backend(gm, inputs):
        graphs.append(gm)
        return lookup_backend(name)(gm, inputs)

    compiled = dynamo.compile(f, backend=backend, fullgraph=True)
    for n in (3, 5):
        torch.manual_seed(n)
        want = f(values(3), torch.tensor(n))
        torch.manual_seed(n)
        assert same(want, compiled(values(3), torch.tensor(n)))
    assert len(graphs) == 1


def test_a_checked_size_that_does_not_hold() -> None:
    def f(x):
        n = (x[:, 0] > 0).sum().item()
        torch._check(n >= 2, lambda: "too few rows")
        return torch.zeros(n)

    compiled = dynamo.compile(f, backend="eager", fullgraph=True)
    assert compiled(values(3)).shape == (3,)
    with pytest.raises(RuntimeError, match="too few rows"):
        compiled(values(1))


def test_a_float_that_is_read() -> None:
    def f(x):
        mean = x.mean().item()
        return x * mean + 1, mean

    compiled = dynamo.compile(f, backend="eager", fullgraph=True)
    for kept in (3, 2):
        assert same(f(values(kept)), compiled(values(kept)))


FACTS = {
    "is_same_size": lambda y, like: torch.is_same_size(y, like), "y.is_same_size": lambda y, like: y.is_same_size(like),
    "equal": lambda y, like: torch.equal(y, like), "y.equal": lambda y, like: y.equal(like),
    "shape": lambda y, like: y.shape == like.shape, "numel": lambda y, like: torch.numel(y) == 1, "count": lambda y, like: torch.numel(y),
    "is_contiguous": lambda y, like: y.is_contiguous(), "broadcast_shapes": lambda y, like: tuple(torch.broadcast_shapes(y.shape, (1,))),
    "broadcast_tensors": lambda y, like: [tuple(t.shape) for t in torch.broadcast_tensors(y, torch.ones(1))],
    "allclose": lambda y, like: torch.allclose(y, y), "squeezed": lambda y, like: y.squeeze().ndim,
}


@pytest.mark.parametrize("kept", [0, 1, 2, 5])
@pytest.mark.parametrize("name", FACTS)
def test_what_is_told_of_an_unknown_size(name, kept) -> None:
    """An answer that is no tensor is of the size that there is, none and one among them: no size stands for another."""
    def program(x, like):
        y = torch.masked_select(x, x > 0)
        return y * 2, FACTS[name](y, like)

    torch._dynamo.reset()
    call = torch.compile(program, backend="aot_eager")
    for size in (0, 1, 2):
        x, like = values(kept, columns=1), torch.ones(size)
        assert same(call(x, like), program(x, like))
