"""`Tensor.data`: the same memory with a version of its own, as torch has it."""

from __future__ import annotations

import copy
import io

import pytest

import flambeau as fl
from flambeau.amp import autocast

torch_itself = pytest.importorskip("torch", reason="torch is the oracle")
LIBRARIES = pytest.mark.parametrize("torch", [torch_itself, fl], ids=["torch", "flambeau"])


@LIBRARIES
def test_writes_are_not_counted(torch):
    x = torch.zeros(4, requires_grad=True)
    kept = x.data
    for write in (lambda d: d.add_(1), lambda d: d[1:].mul_(2), lambda d: d.data.zero_(), lambda d: d.copy_(torch.ones(4)),
                  lambda d: d.view(2, 2)[0].fill_(3), lambda d: d.__setitem__(0, 5.0)):
        write(kept)
    assert x._version == 0
    assert kept._version == 5
    assert x.tolist() == [5, 3, 1, 1]


@LIBRARIES
def test_what_backward_saved_may_be_written_to(torch):
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = (x * x).sum()
    x.data.mul_(2)
    loss.backward()
    assert x.grad.tolist() == [4, 8]
    loss = (x * x).sum()
    with torch.no_grad():
        x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@LIBRARIES
def test_a_function_may_write_past_the_counter(torch):
    """As solvers of differential equations fill their stages."""
    class Put(torch.autograd.Function):
        @staticmethod
        def forward(ctx, into, value, i):
            ctx.i = i
            into.data[..., i] = value
            return into

        @staticmethod
        def backward(ctx, g):
            return g, g[..., ctx.i], None

    w = torch.tensor([1.0, 2.0], requires_grad=True)
    k = Put.apply(torch.zeros(2, 2), w, 0)
    first = (k * w.unsqueeze(-1)).sum()
    k = Put.apply(k, w * 3, 1)
    (first + (k * w.unsqueeze(-1)).sum()).backward()
    assert w.grad.tolist() == [13, 26]


@LIBRARIES
def test_it_is_the_same_memory(torch):
    x = torch.ones(10000)
    assert x.data.data_ptr() == x.data_ptr()
    assert x.data.untyped_storage()._cdata == x.untyped_storage()._cdata
    assert x.data.is_set_to(x)
    file = io.BytesIO()
    torch.save([x, x.data], file)
    assert len(file.getvalue()) < 50000
    a, b = copy.deepcopy([x, x.data])
    b.zero_()
    assert a.sum() == 0
    x.data.share_memory_()
    x.data[0] = 7
    assert x[0] == 7
    assert x.is_shared()


def test_what_caches_by_the_counter_sees_the_writes():
    w, x = fl.ones(3, 3, requires_grad=True), fl.ones(2, 3)
    with autocast("cpu", dtype=fl.bfloat16):
        before = x @ w
        w.data.mul_(2)
        assert (x @ w).tolist() == (before * 2).tolist()
