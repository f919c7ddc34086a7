"""Compiled code checks the indices that a program computes, whatever they point into."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau.nn import functional as F

READS = {
    "subscript": lambda x, i: x[i],
    "subscript of columns": lambda x, i: x.t()[:, i],
    "select": lambda x, i: x[i[-1]],
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i[:, None].expand(-1, 2)),
    "take": lambda x, i: x[:, 0].take(i),
    "take_along_dim": lambda x, i: x.take_along_dim(i[:, None], 0),
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding_bag": lambda x, i: F.embedding_bag(i[None], x, mode="sum"),
    "nll_loss": lambda x, i: F.nll_loss(x.t()[:1].expand(2, -1), i),
    "cross_entropy": lambda x, i: F.cross_entropy(x.t(), i),
    "read twice": lambda x, i: x[i] + x[i].exp(),
    "under a mask": lambda x, i: torch.where(i[:, None] >= 0, x[i], 0.0),
}
SOURCES = {
    "ones": lambda n, i: torch.ones(n, 2),
    "zeros": lambda n, i: torch.zeros(n, 2),
    "numbers of the graph": lambda n, i: torch.full((n, 2), 0.5) * i.shape[0],
    "expanded": lambda n, i: (i[:1] * 1.0).expand(n, 2),
    "positions": lambda n, i: torch.arange(2.0 * n).view(n, 2),
    "values": lambda n, i: (i.sum() * torch.arange(2.0 * n)).view(n, 2),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", READS)
def test_an_index_is_checked_whatever_it_points_into(name, source):
    torch._dynamo.reset()
    compiled = torch.compile(lambda i: READS[name](SOURCES[source](3, i), i))
    for good in ([0, 2], [1, 1]):
        index = torch.tensor(good)
        torch.testing.assert_close(compiled(index), READS[name](SOURCES[source](3, index), index))
    for bad in ([0, 3], [1, 70]):
        index = torch.tensor(bad)
        with pytest.raises((IndexError, RuntimeError)) as expected:
            READS[name](SOURCES[source](3, index), index)
        with pytest.raises(expected.type):
            compiled(index)


@pytest.mark.parametrize("name", READS)
def test_the_only_element_is_no_exception(name):
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, i: READS[name](x, i))
    x = torch.randn(1, 2)
    torch.testing.assert_close(compiled(x, torch.tensor([0, 0])), READS[name](x, torch.tensor([0, 0])))
    with pytest.raises((IndexError, RuntimeError)):
        compiled(x, torch.tensor([0, 1]))


WRITES = {
    "setitem": lambda y, i: y.__setitem__(i, 1.0), "index_fill_": lambda y, i: y.index_fill_(0, i, 1.0),
    "index_add_": lambda y, i: y.index_add_(0, i, torch.ones(2, 2)), "index_copy_": lambda y, i: y.index_copy_(0, i, torch.ones(2, 2)),
    "scatter_": lambda y, i: y.scatter_(0, i[:, None], 1.0), "scatter_add_": lambda y, i: y.scatter_add_(0, i[:, None], torch.ones(2, 1)),
    "put_": lambda y, i: y[:, 0].put_(i, torch.ones(2)),
    "of a view": lambda y, i: y.t().index_fill_(1, i, 2.0),
    "truth values": lambda y, i: y.__setitem__((i, 0), True), "read by what nobody reads": lambda y, i: y.index_fill_(0, i, 1.0).exp_(),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_nobody_reads_is_checked(name, backend, grad):
    torch._dynamo.reset()

    def program(x, i):
        y = x.detach() * 2
        WRITES[name](y, i)
        return x + 1

    compiled, x = torch.compile(program, backend=backend), torch.randn(3, 2, requires_grad=grad)
    for good in ([0, 2], [1, 1]):
        torch.testing.assert_close(compiled(x, torch.tensor(good)), x + 1)
    with pytest.raises((IndexError, RuntimeError)) as expected:
        program(x, torch.tensor([0, 70]))
    with pytest.raises(expected.type):
        compiled(x, torch.tensor([0, 70]))
