"""Operations in place on memory that elements share: what an operation leaves alone undoes nothing that it writes elsewhere."""

from __future__ import annotations

import pytest

import flambeau as torch

VIEWS = {
    "rows": lambda b: b.as_strided((3, 4), (2, 1)),
    "windows": lambda b: b.unfold(0, 4, 2),
    "apart": lambda b: b.as_strided((3, 4), (4, 1)),
}
ROW, ENDS = torch.tensor([1]), torch.tensor([[0], [0], [3]])
WRITES = {
    "index_fill_": lambda x: x.index_fill_(0, ROW, 4.0),
    "index_add_": lambda x: x.index_add_(0, ROW, torch.ones(1, 4)),
    "index_copy_": lambda x: x.index_copy_(0, ROW, torch.full((1, 4), 30.0)),
    "index_reduce_": lambda x: x.index_reduce_(0, ROW, torch.full((1, 4), 3.0), "prod"),
    "scatter_": lambda x: x.scatter_(1, ENDS, 70.0),
    "scatter_add_": lambda x: x.scatter_add_(1, ENDS, torch.ones(3, 1)),
    "scatter_reduce_": lambda x: x.scatter_reduce_(1, ENDS, torch.full((3, 1), 50.0), "amax"),
    "masked_fill_": lambda x: x.masked_fill_(torch.tensor([True, False, False, False]), 9.5),
    "masked_scatter_": lambda x: x.masked_scatter_(torch.tensor([True, False, False, False]), torch.arange(20.0) + 50),
    "tril_": lambda x: x.tril_(),
    "clamp_": lambda x: x.clamp_(max=3),
    "put_": lambda x: x.put_(torch.tensor([5]), torch.tensor([33.0])),
    "index_put_": lambda x: x.index_put_((ROW,), torch.tensor(33.0)),
    "a row": lambda x: x.__setitem__(1, 5.5),
    "by a mask": lambda x: x.__setitem__(x > 6, 0.0),
}


def _expected(view, op):
    """The memory after an operation, element by element: each one that it changes is written."""
    old, memory = view(torch.arange(12.0)).clone(), torch.arange(12.0)
    new = old.clone()
    op(new)
    places = view(torch.arange(12))
    for i in range(old.shape[0]):
        for j in range(old.shape[1]):
            if new[i, j] != old[i, j]:
                memory[int(places[i, j])] = new[i, j]
    return memory


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_not_undone_by_what_shares_its_place(name, view):
    torch._dynamo.reset()
    expected = _expected(VIEWS[view], WRITES[name])

    def program(memory):
        WRITES[name](VIEWS[view](memory))
        return memory

    assert torch.equal(program(torch.arange(12.0)), expected)
    assert torch.equal(torch.compile(program, backend="aot_eager")(torch.arange(12.0)), expected)


def test_nan_that_stays_is_no_change():
    memory = torch.tensor([float("nan")] * 6)
    memory.as_strided((2, 4), (2, 1)).masked_fill_(torch.tensor([[True] * 4, [False] * 4]), 1.0)
    assert memory.tolist()[:4] == [1.0] * 4


# What is written several times at once is refused, however it came about that elements share a place; but for one number for all.
SHARED = {
    "expanded": lambda x: x.expand(4, 4), "detached": lambda x: x.expand(4, 4).detach(), "its data": lambda x: x.expand(4, 4).data,
    "a part of it": lambda x: x.expand(5, 4).detach()[1:], "turned": lambda x: x.expand(4, 4).detach().t(),
}
OPERANDS = {"lerp_": (2.0, 0.5), "addcmul_": (2.0, 2.0), "addcdiv_": (2.0, 2.0), "clamp_": (0.0, 1.0), "masked_fill_": (True, 2.0),
            "masked_scatter_": (True, 2.0)}


def _operands(name):
    """What a method of a 4 x 4 tensor may be given, from little to much."""
    full = torch.full((4, 4), 2.0)
    fitting = tuple(torch.full((4, 4), n).to(torch.bool if n is True else torch.float32) for n in OPERANDS.get(name, ()))
    return (), (full,), (0, full), (0,), (2.0,), fitting


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", SHARED)
def test_what_shares_a_place_is_not_written_as_if_it_did_not(how):
    """Every method that changes a 4 x 4 tensor in place, with operands that fit it."""
    walked = 0
    for name in sorted(name for name in dir(torch.Tensor) if name.endswith("_") and not name.startswith("_")):
        if name in ("fill_", "zero_", "fill_diagonal_"):
            continue
        for args in _operands(name):
            plain = torch.full((4, 4), -0.5)
            try:
                getattr(plain, name)(*args)
            except Exception:
                continue
            if plain._version == 0 or plain.shape != (4, 4) or torch.equal(plain, torch.full((4, 4), -0.5)):
                continue
            walked += 1
            memory = torch.full((1, 1), -0.5)
            with pytest.raises((RuntimeError, NotImplementedError, TypeError)):
                getattr(SHARED[how](memory), name)(*args)
            assert memory.item() == -0.5, name
            break
    assert walked > 60


EXPANDED = {
    "a row": lambda: torch.arange(4.0).expand(3, 4),
    "a column": lambda: torch.arange(3.0)[:, None].expand(3, 4),
    "a number": lambda: torch.tensor(5.0).expand(3, 4),
    "none": lambda: torch.zeros(1, 4).expand(0, 4),
}
FILLS = {"fill_": (2.0,), "zero_": ()}


@pytest.mark.parametrize("backend", [None, "aot_eager"])
@pytest.mark.parametrize("view", EXPANDED)
@pytest.mark.parametrize("name", FILLS)
def test_what_is_expanded_may_be_filled(name, view, backend):
    """All of its elements get one number; other writes to it are refused."""
    def program(x):
        return getattr(x, name)(*FILLS[name]) * 1

    torch._dynamo.reset()
    x = EXPANDED[view]()
    made = program(x) if backend is None else torch.compile(program, backend=backend)(x)
    wanted = torch.full(x.shape, 2.0 if FILLS[name] else 0.0)
    assert torch.equal(made, wanted) and torch.equal(x, wanted)
    if x.numel():
        with pytest.raises(RuntimeError, match="more than one element"):
            x.add_(1)


def test_the_gradient_of_what_was_filled_where_it_is_expanded():
    x = torch.ones(1, 4, requires_grad=True)
    y = x * 3
    y.expand(3, 4)[:2].fill_(2)
    (y.sum() + (x * 5).sum()).backward()
    assert y.tolist() == [[2] * 4] and x.grad.tolist() == [[5] * 4]


WITH_ITSELF = {
    "forwards": lambda x: x[1:].copy_(x[:-1]),
    "backwards": lambda x: x[:-1].copy_(x[1:]),
    "transposed": lambda x: x.view(3, 4).t().copy_(x.view(4, 3)),
    "repeated": lambda x: x.copy_(x[:1]),
    "added": lambda x: x[1:].add_(x[:-1]),
    "assigned": lambda x: x.__setitem__(slice(1, None), x[:-1]),
    "out": lambda x: torch.exp(x[:-1], out=x[1:]),
    "accumulated": lambda x: torch.cumsum(x[1:], 0, out=x[:-1]),
    "lerp": lambda x: x[1:].lerp_(x[:-1], 0.5),
    "foreach": lambda x: torch._foreach_add_([x[2:]], [x[:-2]]),
}


@pytest.mark.parametrize("backend", [None, "aot_eager", "inductor"])
@pytest.mark.parametrize("n", [12, 60000])
@pytest.mark.parametrize("name", WITH_ITSELF)
def test_a_source_that_overlaps_is_read_before_it_is_written(name, n, backend):
    """PyTorch refuses such writes; here they are what they would be of a copy of the source, at any size, eager and compiled."""
    def program(x):
        WITH_ITSELF[name](x)
        return x * 1

    start = torch.linspace(-1, 1, n)
    if name == "transposed":
        start = start[:12]
    wanted, source = start.clone(), start.clone()
    with_copy = {
        "forwards": lambda: wanted[1:].copy_(source[:-1]), "backwards": lambda: wanted[:-1].copy_(source[1:]),
        "transposed": lambda: wanted.view(3, 4).t().copy_(source.view(4, 3)), "repeated": lambda: wanted.copy_(source[:1]),
        "added": lambda: wanted[1:].add_(source[:-1]), "assigned": lambda: wanted[1:].copy_(source[:-1]),
        "out": lambda: wanted[1:].copy_(source[:-1].exp()), "accumulated": lambda: wanted[:-1].copy_(source[1:].cumsum(0)),
        "lerp": lambda: wanted[1:].lerp_(source[:-1], 0.5), "foreach": lambda: wanted[2:].add_(source[:-2]),
    }
    with_copy[name]()
    x = start.clone()
    torch._dynamo.reset()
    made = program(x) if backend is None else torch.compile(program, backend=backend)(x)
    torch.testing.assert_close(x, wanted)
    torch.testing.assert_close(made, wanted)
