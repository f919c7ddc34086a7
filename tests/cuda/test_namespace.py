"""torch.cuda on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fl


def test_device_facts():
    assert fl.cuda.is_available() and fl.cuda.device_count() >= 1 and fl.cuda.current_device() == 0
    facts = fl.cuda.get_device_properties(0)
    assert facts.name == fl.cuda.get_device_name() and facts.multi_processor_count > 0
    assert (facts.major, facts.minor) == fl.cuda.get_device_capability() and facts.total_memory > 1 << 30
    free, total = fl.cuda.mem_get_info()
    assert 0 < free <= total


def test_memory_is_counted():
    fl.cuda.empty_cache()
    fl.cuda.reset_peak_memory_stats()
    before = fl.cuda.memory_allocated()
    x = fl.empty(1 << 20, device="cuda")
    assert fl.cuda.memory_allocated() - before == 4 << 20
    del x
    assert fl.cuda.memory_allocated() == before
    assert fl.cuda.max_memory_allocated() >= before + (4 << 20)
    assert fl.cuda.memory_reserved() >= before
    fl.cuda.empty_cache()


def test_memory_that_a_stream_still_reads_is_not_used_again():
    side, out = fl.cuda.Stream(), fl.zeros(1 << 22, device="cuda")
    slow = fl.randn(4096, 4096, device="cuda")
    for _ in range(5):
        x = fl.ones(1 << 22, device="cuda")
        side.wait_stream(fl.cuda.current_stream())
        with fl.cuda.stream(side):
            for _ in range(20):
                slow @ slow
            out.copy_(x)
        x.record_stream(side)
        del x
        fl.full((1 << 22,), 7.0, device="cuda")     # of the size that was freed
        fl.cuda.synchronize()
        assert bool((out == 1).all())
    with pytest.raises(RuntimeError, match="expects a torch"):
        out.record_stream(3)


def test_streams_and_events():
    side, done = fl.cuda.Stream(), fl.cuda.Event(enable_timing=True)
    start = fl.cuda.Event(enable_timing=True)
    x = fl.ones(1000, 1000, device="cuda")
    side.wait_stream(fl.cuda.current_stream())
    with fl.cuda.stream(side):
        assert fl.cuda.current_stream() == side
        start.record()
        y = x @ x
        done.record()
    fl.cuda.current_stream().wait_event(done)
    done.synchronize()
    assert start.elapsed_time(done) > 0 and side.query()
    assert (y == 1000).all()


def test_graphs_replay():
    x = fl.ones(100, device="cuda")
    (x * 2 + 1).sum()  # kernels are compiled outside of the recording
    g = fl.cuda.CUDAGraph()
    with fl.cuda.graph(g):
        y = x * 2 + 1
    x.fill_(5)
    g.replay()
    fl.cuda.synchronize()
    np.testing.assert_array_equal(y.cpu().numpy(), np.full(100, 11, "f4"))
    with pytest.raises(RuntimeError, match="capture"):
        fl.cuda.CUDAGraph().replay()


def test_tf32_switch():
    assert not fl.backends.cuda.matmul.allow_tf32
    x = fl.randn(512, 512, device="cuda")
    exact = (x.double() @ x.double()).float()
    plain = (x @ x - exact).abs().max().item()
    fl.set_float32_matmul_precision("high")
    try:
        assert (x @ x - exact).abs().max().item() > 4 * plain
    finally:
        fl.set_float32_matmul_precision("highest")


def test_seeds():
    fl.cuda.manual_seed(7)
    a = fl.rand(5, device="cuda")
    fl.cuda.manual_seed_all(7)
    assert fl.equal(a, fl.rand(5, device="cuda"))


def test_graphed_callables_train_the_same():
    def train(wrap):
        fl.manual_seed(0)
        model = fl.nn.Sequential(fl.nn.Linear(64, 128), fl.nn.GELU(), fl.nn.LayerNorm(128), fl.nn.Linear(128, 8)).cuda()
        run = wrap(model)
        optimizer = fl.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for step in range(5):
            x, y = fl.randn(256, 64, device="cuda", generator=fl.Generator("cuda").manual_seed(step)), fl.arange(256, device="cuda") % 8
            optimizer.zero_grad()
            loss = fl.nn.functional.cross_entropy(run(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        model(x)    # as before
        return losses

    sample = (fl.randn(256, 64, device="cuda"),)
    graphed = train(lambda m: fl.cuda.make_graphed_callables(m, sample))
    np.testing.assert_allclose(graphed, train(lambda m: m), rtol=1e-4)


def test_graphed_functions():
    x, w = fl.randn(100, 100, device="cuda", requires_grad=True), fl.randn(100, 100, device="cuda", requires_grad=True)
    ones = fl.ones(100, 100, device="cuda")
    f, g = fl.cuda.make_graphed_callables((lambda x, w: (x @ w).relu(), lambda y: (y * 2, y.sum())), ((x, w), (ones,)))
    a, b = (fl.randn(100, 100, device="cuda", requires_grad=True) for _ in range(2))
    out = f(a, b)
    np.testing.assert_allclose(out.detach().cpu().numpy(), (a @ b).relu().detach().cpu().numpy(), rtol=1e-5, atol=1e-5)
    out.sum().backward()
    got = a.grad.cpu().numpy()
    want = fl.autograd.grad((a @ b).relu().sum(), a)[0]
    np.testing.assert_allclose(got, want.cpu().numpy(), rtol=1e-5, atol=1e-5)
    double, _ = g(a.detach())
    np.testing.assert_allclose(double.cpu().numpy(), 2 * a.detach().cpu().numpy())
    with pytest.raises(RuntimeError, match="recorded with argument 0"):
        f(a[:50], b)
    with pytest.raises(TypeError, match="only Tensors"):
        fl.cuda.make_graphed_callables(lambda x: x, (3,))


def test_pinned_memory_and_queued_copies():
    x = fl.arange(1 << 20, dtype=fl.float32)
    pinned = x.view(1024, 1024).t().pin_memory()
    assert pinned.is_pinned() and pinned.pin_memory() is pinned and not x.is_pinned() and not x.cuda().is_pinned()
    assert fl.equal(pinned, x.view(1024, 1024).t())
    there = pinned.to("cuda", non_blocking=True) * 2
    back = there.to("cpu", non_blocking=True)
    fl.cuda.synchronize()
    assert back.is_pinned() and fl.equal(back, pinned * 2)
    assert fl.equal(pinned.cuda(non_blocking=True).cpu(), pinned)
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        there.pin_memory()
    assert there.data_ptr() == there.t().data_ptr() != 0
    assert fl.zeros(0, 3).pin_memory().shape == (0, 3)
