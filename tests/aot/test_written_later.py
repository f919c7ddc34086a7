"""What backward needs may be written to after it was used: by the graph itself, or by whoever called it.

The compiled gradients are eager's. Where the caller writes to an input or a result that the graph chose to save, an error is as
right as the value; what the graph writes is its own business.
"""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau.inductor import config

N = 4

# Ways from the matrix that is written to, to the one that backward reads: by themselves all of them are copies.
COPIES = {
    "itself": lambda q: q,
    "view": lambda q: q.view(N, N),
    "transposed": lambda q: q.t(),
    "clone": lambda q: q.clone(),
    "contiguous": lambda q: q.t().contiguous(),
    "slice": lambda q: q[1:].clone(),
    "rows": lambda q: q[::2].contiguous(),
    "cat": lambda q: torch.cat([q, q]),
    "cat of one": lambda q: torch.cat([q]),
    "stack": lambda q: torch.stack([q, q]),
    "flip": lambda q: q.flip(0),
    "roll": lambda q: q.roll(1, 0),
    "where": lambda q: torch.where(q > 0, q, 1.0),
    "where true": lambda q: torch.where(torch.ones(N, N) > 0, q, 1.0),
    "copy_": lambda q: torch.empty(N, N).copy_(q),
    "setitem": lambda q: torch.zeros(N, N).index_put_((torch.tensor([0, 1]),), q[:2]),
    "index": lambda q: q[torch.tensor([1, 0, 2])],
    "expand": lambda q: q[0].expand(3, N).contiguous(),
    "repeat": lambda q: q.repeat(2, 1),
    "pad": lambda q: torch.nn.functional.pad(q, (0, 0, 1, 1)),
    "to": lambda q: q.to(torch.float32, copy=True),
    "add": lambda q: q + 0,
    "reshape": lambda q: q.t().reshape(2, 2 * N).reshape(N, N),
    "diagonal": lambda q: torch.diag_embed(q.diagonal()),
    "split": lambda q: torch.cat(q.split(2, 1), 0).reshape(N, N),
}  # fmt: skip

WRITES = {
    "add_": lambda q: q.add_(1),
    "zero_": lambda q: q.zero_(),
    "row": lambda q: q[0].mul_(3),
    "transposed": lambda q: q.t()[1].copy_(q[:, 2] * 5),
    "setitem": lambda q: q.__setitem__((slice(1, 3), 0), 7.0),
}


def used(x, w, q):
    """Backward of either operand needs the other: the product keeps it, and so does the multiplication."""
    return (x * w) @ q.transpose(-1, -2) + (x * w).sum() * q.square().sum()


def in_graph(copy, write):
    """The matrix is written to in the graph, after a copy of it was used."""
    def f(x, w, q):
        y = used(x, w, copy(q))
        write(q)
        return y
    return f


def first_in_graph(copy, write):
    """It is written to before that, and then once more."""
    def f(x, w, q):
        write(q)
        y = used(x, w, copy(q))
        write(q)
        return y * 2
    return f


def of_an_intermediate(copy, write):
    """The same of a matrix that the graph makes, and gives back."""
    def f(x, w, q):
        q = q * 2
        y = used(x, w, copy(q))
        write(q)
        return y, q
    return f


def plain(copy, write):
    """The copy is used; who calls writes."""
    return lambda x, w, q: used(x, w, copy(q))


def returned(copy, write):
    """The graph returns what it used."""
    def f(x, w, q):
        q = q + 1
        return used(x, w, copy(q)), q
    return f


class Module(torch.nn.Module):
    """The matrix as a buffer of a module."""

    def __init__(self, step, q):
        super().__init__()
        self.register_buffer("q", q)
        self.step = step

    def forward(self, x, w):
        return self.step(x, w, self.q)


def run(step, write, *, backend=None, dynamic=None, kind="input", later=()):
    """Gradients, results and the matrix afterwards; or the error of the backward pass."""
    torch.compiler.reset()
    torch.manual_seed(0)
    x, w, q = torch.randn(N, N), torch.randn(N, N, requires_grad=True), torch.randn(N, N)
    target = q
    if kind == "view":
        target = q = torch.randn(2, N, N)[1]
    elif kind == "history":
        base = torch.randn(N, N, requires_grad=True)
        target = q = base * 1
    f = Module(step, q) if kind == "buffer" else step
    if backend is not None:
        f = torch.compile(f, backend=backend, dynamic=dynamic, fullgraph=kind != "history")  # dynamo takes that for a leaf
    out = f(x, w) if kind == "buffer" else f(x, w, q)
    outs = out if isinstance(out, tuple) else (out,)
    values = [o.detach().clone() for o in outs]
    with torch.no_grad():
        if "input" in later:
            write(target)
        if "result" in later:
            write(outs[-1])
    try:
        (sum(o.sum() for o in outs) if not later else outs[0].sum()).backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
        return error
    return [*values, target.detach(), w.grad]


def compare(step, write, backend, **how):
    dynamic = how.pop("dynamic", None)
    want, got = run(step, write, **how), run(step, write, backend=backend, dynamic=dynamic, **how)
    if isinstance(got, RuntimeError):
        by_caller = how.get("later") or how.get("kind") == "history"    # which is two graphs with the write between them
        assert isinstance(want, RuntimeError) or by_caller, "an error where eager has none"
        return
    assert not isinstance(want, RuntimeError), "no error where eager has one"
    for a, b in zip(want, got, strict=True):
        torch.testing.assert_close(a, b)


@pytest.fixture(autouse=True)
def without_building(request):
    """The loop IR runs through NumPy: what is saved is decided before there is any code."""
    before, config.native = config.native, "natively" in request.node.name
    yield
    config.native = before


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("make", [in_graph, first_in_graph, of_an_intermediate], ids=lambda f: f.__name__)
def test_written_by_the_graph(make, copy, backend):
    for name, write in WRITES.items():
        if name in ("add_", "transposed") or copy in ("itself", "clone", "rows"):
            compare(make(COPIES[copy], write), write, backend)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("copy", COPIES)
def test_written_by_the_caller(copy, backend):
    write = WRITES["add_"]
    compare(plain(COPIES[copy], write), write, backend, later=("input",))
    compare(returned(COPIES[copy], write), write, backend, later=("result",))


@pytest.mark.parametrize("kind", ["view", "history", "buffer"])
@pytest.mark.parametrize("copy", ["itself", "transposed", "clone", "contiguous", "copy_", "slice", "cat of one", "where"])
def test_whatever_the_matrix_is(copy, kind):
    write = WRITES["add_"]
    compare(in_graph(COPIES[copy], write), write, "inductor", kind=kind)
    compare(plain(COPIES[copy], write), write, "inductor", kind=kind, later=("input",))


@pytest.mark.parametrize("copy", COPIES)
def test_with_dynamic_sizes(copy):
    write = WRITES["add_"]
    compare(in_graph(COPIES[copy], write), write, "inductor", dynamic=True)
    compare(plain(COPIES[copy], write), write, "inductor", dynamic=True, later=("input",))


def test_natively():
    compare(in_graph(COPIES["clone"], WRITES["add_"]), WRITES["add_"], "inductor")


def test_results_do_not_share_memory():
    """Folds that turn out to be the same, copies of results, results that are saved."""
    def f(x):
        return x.sum(-1), x.clone().sum(-1), x.t().contiguous(), x.t() * 1, x.amax(0), x.max(0)[0], x.max(0)[0].clone()

    x = torch.randn(3, 4)
    got, want = torch.compile(f, fullgraph=True)(x), f(x)
    for n, (a, b) in enumerate(zip(got, want, strict=True)):
        a.add_(n), b.add_(n)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)
