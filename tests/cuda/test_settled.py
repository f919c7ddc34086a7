"""What compiled graphs keep of parameters follows every way to change one."""

from __future__ import annotations

import pytest

import flambeau as fl


def _model():
    fl.manual_seed(0)
    return fl.nn.Sequential(fl.nn.Conv2d(8, 16, 3, padding=1), fl.nn.BatchNorm2d(16), fl.nn.ReLU(), fl.nn.Conv2d(16, 8, 3)).cuda().eval()


def _close(run, model, x):
    with fl.no_grad(), fl.autocast("cuda", dtype=fl.bfloat16):
        got, want = run(x), model(x)
    assert (got.float() - want.float()).abs().max().item() <= 3e-2 * want.float().abs().max().item()
    return want.float()


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_parameters_that_change_are_seen(mode):
    model, x = _model(), fl.randn(4, 8, 20, 20, device="cuda")
    run = fl.compile(model, mode=mode)
    seen = [_close(run, model, x) for _ in range(5)][-1]

    def in_place():
        with fl.no_grad():
            model[0].weight.mul_(-2)

    def by_data():
        model[3].weight.data.add_(0.5)

    def another_array():
        model[0].weight.data = model[0].weight.data * 3

    def optimizer():
        steps = fl.optim.AdamW(model.parameters(), lr=0.3)
        model(x).square().sum().backward()
        steps.step()

    def state():
        model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()})

    def replayed():
        graph = fl.cuda.CUDAGraph()
        weight = model[0].weight.data
        with fl.cuda.graph(graph):
            weight.mul_(2)
        _close(run, model, x)       # nothing happened yet
        graph.replay()
    for change in (in_place, by_data, another_array, optimizer, state, replayed):
        change()
        now = _close(run, model, x)
        assert (now - seen).abs().max().item() > 0, change.__name__
        seen = _close(run, model, x)
    with fl.cuda.stream(fl.cuda.Stream()):
        _close(run, model, x)
    fl.cuda.synchronize()


def test_a_users_recording_reads_the_parameters():
    model, x = _model(), fl.randn(4, 8, 20, 20, device="cuda")
    run = fl.compile(model)
    with fl.no_grad(), fl.autocast("cuda", dtype=fl.bfloat16):
        for _ in range(3):
            run(x)
        graph = fl.cuda.CUDAGraph()
        with fl.cuda.graph(graph):
            got = run(x)
        for factor in (1, -3):
            model[0].weight.mul_(factor)
            graph.replay()
            want = model(x)
            assert (got.float() - want.float()).abs().max().item() <= 3e-2 * want.float().abs().max().item()


def test_models_take_turns():
    first, second = _model(), _model()
    with fl.no_grad():
        second[0].weight.add_(1)
    x = fl.randn(4, 8, 20, 20, device="cuda")
    runs = [(fl.compile(model), model) for model in (first, second)]
    for _ in range(3):
        for run, model in runs:
            _close(run, model, x)
    with fl.cuda.stream(fl.cuda.Stream()):
        _close(*runs[0], x)
    fl.cuda.synchronize()
