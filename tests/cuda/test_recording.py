"""CUDA graphs of whole training steps: optimizers count on, dropout draws anew at each replay."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fl

F = fl.nn.functional
CAPTURABLE = {
    "sgd": lambda p: fl.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: fl.optim.Adam(p, lr=0.01, capturable=True),
    "amsgrad": lambda p: fl.optim.Adam(p, lr=0.01, amsgrad=True, weight_decay=0.1, capturable=True),
    "adamw": lambda p: fl.optim.AdamW(p, lr=0.01, capturable=True),
    "adadelta": lambda p: fl.optim.Adadelta(p, capturable=True),
    "rmsprop": lambda p: fl.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.5, capturable=True),
    "adamax": lambda p: fl.optim.Adamax(p, lr=0.01, capturable=True),
    "nadam": lambda p: fl.optim.NAdam(p, lr=0.01, capturable=True),
    "radam": lambda p: fl.optim.RAdam(p, lr=0.01, capturable=True),
    "asgd": lambda p: fl.optim.ASGD(p, lr=0.01, capturable=True),
    "rprop": lambda p: fl.optim.Rprop(p, lr=0.01, capturable=True),
}


def _model():
    fl.manual_seed(0)
    return fl.nn.Sequential(fl.nn.Linear(16, 32), fl.nn.GELU(), fl.nn.Linear(32, 1)).cuda()


@pytest.mark.parametrize("name", CAPTURABLE)
def test_a_recorded_training_step_is_the_eager_one(name):
    batches = [fl.randn(8, 16, device="cuda") for _ in range(9)]

    def step(model, optimizer, x):
        optimizer.zero_grad(set_to_none=False)
        model(x).square().mean().backward()
        fl.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    plain, recorded = _model(), _model()
    optimizer = CAPTURABLE[name](plain.parameters())
    for x in batches:
        step(plain, optimizer, x)
    optimizer, given = CAPTURABLE[name](recorded.parameters()), batches[0].clone()
    side = fl.cuda.Stream()
    side.wait_stream(fl.cuda.current_stream())
    with fl.cuda.stream(side):
        for x in batches[:3]:
            given.copy_(x)
            step(recorded, optimizer, given)
    fl.cuda.current_stream().wait_stream(side)
    graph = fl.cuda.CUDAGraph()
    with fl.cuda.graph(graph):
        step(recorded, optimizer, given)
    for x in batches[3:]:
        given.copy_(x)
        graph.replay()
    for a, b in zip(plain.parameters(), recorded.parameters(), strict=True):
        np.testing.assert_allclose(b.detach().cpu().numpy(), a.detach().cpu().numpy(), rtol=1e-4, atol=1e-5)


def test_counters_on_the_host_are_refused():
    model = _model()
    optimizer = fl.optim.Adam(model.parameters())
    model(fl.randn(8, 16, device="cuda")).sum().backward()
    optimizer.step()
    graph = fl.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="capturable=True"), fl.cuda.graph(graph):
        optimizer.step()


@pytest.mark.parametrize("draw", [lambda x: F.dropout(x, 0.5), fl.rand_like, fl.randn_like, lambda x: x.clone().uniform_(),
                                  lambda x: fl.bernoulli(x * 0.5)], ids=["dropout", "rand_like", "randn_like", "uniform_", "bernoulli"])
def test_draws_are_new_at_each_replay_and_follow_the_generator(draw):
    x = fl.ones(1000, device="cuda")
    draw(x)
    graph = fl.cuda.CUDAGraph()
    with fl.cuda.graph(graph):
        one, two = draw(x), draw(x)
    fl.manual_seed(3)
    seen = []
    for _ in range(3):
        graph.replay()
        seen += [one.cpu(), two.cpu()]
    assert all(not fl.equal(a, b) for k, a in enumerate(seen) for b in seen[:k])
    fl.manual_seed(3)
    for made in seen:
        assert fl.equal(draw(x).cpu(), made)
