"""Calls of operators that run natively once they are written down: what they depend on, and where their launches go."""

import gc

import numpy as np
import pytest

import flambeau as fl
from flambeau.ops.registry import PRIMITIVES

cupy = pytest.importorskip("cupy", reason="CuPy is an optional extra (flambeau[cuda])")
functional = fl.nn.functional


def _programs(name):
    return PRIMITIVES[name].eager.gpu.programs


def test_numbers_are_parameters_of_one_program():
    x = fl.ones(40, 50, device="cuda")
    x * 2.5
    before = len(_programs("mul"))
    for number in (0.5, 1.5, 7.25):
        assert (x * number == number).all()
    assert len(_programs("mul")) == before


@pytest.mark.parametrize("n", [1, 3, 100, 5000])
def test_every_size_and_layout(n):
    host = fl.randn(n, 3, 5)
    x = host.cuda()
    for look in (lambda t: t, lambda t: t.transpose(0, 2), lambda t: t[:, 1:], lambda t: t[:, :1].expand(n, 4, 5), lambda t: t[..., ::2]):
        for _ in range(2):
            a, b = look(x), look(host)
            assert fl.equal((a * 2 + a.abs()).cpu(), b * 2 + b.abs())
            np.testing.assert_allclose(a.sum().item(), b.sum().item(), rtol=1e-4, atol=1e-4)


def test_in_place_writes_over_the_operand():
    x = fl.arange(24.0, device="cuda").reshape(4, 6)
    memory = x.data_ptr()
    x.mul_(0.5).add_(x).sub_(1)
    assert x.data_ptr() == memory and x._version == 3
    assert fl.equal(x.cpu(), fl.arange(24.0).reshape(4, 6) - 1)
    count = fl.zeros((), dtype=fl.int64, device="cuda")
    for _ in range(3):
        count.add_(1)
    assert count.item() == 3


def test_in_place_on_views_and_overlapping_operands():
    """An operand that is written to elsewhere counts as it was before."""
    x, host = fl.arange(100.0, device="cuda"), fl.arange(100.0)
    for t, before in ((x, lambda t: t), (host, lambda t: t.clone())):
        t[1:].add_(before(t[:-1]))
        t.view(10, 10)[:, 2:4].mul_(3.0)
        t[10:].add_(before(t[:-10]))
        t.view(10, 10).t().add_(before(t.view(10, 10)))
    assert fl.equal(x.cpu(), host)


def test_in_place_where_a_gradient_is_wanted():
    w = fl.ones(300, device="cuda", requires_grad=True)
    y = w * 3
    y.mul_(2.0)
    y.sum().backward()
    assert (w.grad == 6).all()
    with pytest.raises(RuntimeError, match="leaf Variable"):
        w.mul_(2.0)


def test_what_does_not_fit_is_refused_as_ever():
    x = fl.ones(30, 40, device="cuda")
    with pytest.raises(RuntimeError, match="size"):
        x + fl.ones(30, 41, device="cuda")
    with pytest.raises(RuntimeError, match="same device"):
        x + fl.ones(30, 40)
    with pytest.raises(RuntimeError):
        x @ fl.ones(41, 2, device="cuda")
    with pytest.raises(RuntimeError):
        functional.conv2d(fl.ones(1, 3, 8, 8, device="cuda"), fl.ones(4, 2, 3, 3, device="cuda"))
    with pytest.raises(RuntimeError):
        fl.ones(8, dtype=fl.int64, device="cuda").mul_(0.5)


def _work(x, w, b):
    y = functional.linear(x, w, b)
    y = functional.layer_norm(y, (64,)) + y.softmax(-1)
    return (y.view(4, 16, 64).transpose(0, 1) @ w).sum(-1)


def test_streams_are_followed():
    """What is queued on a stream runs there, in order: also products, whose handles are told of it."""
    x, w, b = (fl.randn(*s, device="cuda") for s in ((64, 64), (64, 64), (64,)))
    want = _work(x, w, b)
    for _ in range(3):
        side = fl.cuda.Stream()
        side.wait_stream(fl.cuda.current_stream())
        with fl.cuda.stream(side):
            got = _work(x, w, b)
            event = side.record_event()
        event.synchronize()
        assert fl.equal(got, want)
        assert fl.equal(_work(x, w, b), want)


def test_launches_can_be_recorded():
    x, w, b = (fl.randn(*s, device="cuda") for s in ((64, 64), (64, 64), (64,)))
    with fl.no_grad():
        for _ in range(2):
            _work(x, w, b)
        graphed = fl.cuda.make_graphed_callables(_work, (x, w, b))
        for _ in range(3):
            other = fl.randn(64, 64, device="cuda")
            np.testing.assert_allclose(graphed(other, w, b).cpu().numpy(), _work(other, w, b).cpu().numpy(), rtol=1e-5, atol=1e-4)


def test_memory_is_the_current_pools_and_is_given_back():
    x = fl.randn(512, 512, device="cuda")
    (x * 2).softmax(-1)
    gc.collect()
    pool = cupy.cuda.MemoryPool()
    with cupy.cuda.using_allocator(pool.malloc):
        y = (x * 2).softmax(-1)
        assert pool.used_bytes() == 512 * 512 * 4       # what came between is gone
        z = y.t()
        del y
        assert pool.used_bytes() == 512 * 512 * 4       # a view keeps it
        del z
        assert pool.used_bytes() == 0


def test_views_keep_histories_and_versions():
    x = fl.randn(6, 8, device="cuda", requires_grad=True)
    y = x * 1
    y.view(48)[3:9].mul_(2.0)
    y.t().sum().backward()
    want = np.ones(48)
    want[3:9] = 2
    assert (x.grad.cpu().numpy().reshape(-1) == want).all()
    z = fl.zeros(4, 4, device="cuda")
    part = z[1]
    part.add_(1.0)
    assert z._version == part._version == 1 and z.sum().item() == 4
