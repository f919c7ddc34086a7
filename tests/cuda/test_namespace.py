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
