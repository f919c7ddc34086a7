"""Equal blocks on a GPU: compiled once for training; whole where a call is recorded, or keeps what it makes of parameters."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.inductor import graph as graphs
from flambeau.inductor.graph import config

WIDTH = 64


def _block():
    return nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.0),
                         nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.LayerNorm(WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))


@pytest.fixture
def compiled(monkeypatch):
    found: list = []
    monkeypatch.setattr(graphs, "listening", [found.append])
    monkeypatch.setattr(config, "cache", False)
    torch._dynamo.reset()
    return found


def test_training_compiles_equal_blocks_once(compiled):
    counts = []
    for depth in (14, 20):
        torch.manual_seed(0)
        model, x = nn.Sequential(*[_block() for _ in range(depth)]).cuda(), torch.randn(64, WIDTH, device="cuda")
        model(x).square().mean().backward()
        expected = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        compiled.clear()
        program = torch.compile(model)
        program(x).square().mean().backward()
        counts.append(sum(len(graph.gm.graph.nodes) for graph in compiled))
        for p, g in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(p.grad, g, atol=1e-4, rtol=1e-2)
        torch._dynamo.reset()
    assert counts[1] < 1.2 * counts[0], counts


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_inference_stays_whole(mode, compiled):
    model, x = nn.Sequential(*[_block() for _ in range(14)]).cuda().eval(), torch.randn(64, WIDTH, device="cuda")
    with torch.no_grad():
        expected = model(x)
        compiled.clear()    # of what eager had compiled
        program = torch.compile(model, mode=mode)
        for _ in range(3):
            torch.testing.assert_close(program(x), expected, atol=1e-4, rtol=1e-3)
    assert len(compiled) == 1
