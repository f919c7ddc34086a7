"""Whole programs: the same training loop in eager and compiled, and against torch where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fl


def make_gpt(lib, vocab=31, width=32, layers=2, heads=2, context=16):
    """A small GPT over the API of `lib` (flambeau or torch)."""
    nn, functional = lib.nn, lib.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (z.view(b, t, heads, c // heads).transpose(1, 2) for z in self.qkv(self.ln1(x)).split(c, dim=2))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
            return x + self.down(functional.gelu(self.up(self.ln2(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocab, width), nn.Embedding(context, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

        def forward(self, ids, targets=None):
            x = self.tokens(ids) + self.positions(lib.arange(ids.shape[1]))
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.norm(x))
            if targets is None:
                return logits
            return functional.cross_entropy(logits.view(-1, vocab), targets.view(-1))

    return GPT()


def make_cnn(lib):
    """Convolutions, BatchNorm in training mode, a residual, pooling."""
    nn = lib.nn

    class CNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
            self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
            self.head = nn.Linear(8, 5)

        def forward(self, x, targets=None):
            x = lib.relu(self.bn1(self.conv1(x)))
            x = nn.functional.max_pool2d(x, 2)
            x = lib.relu(self.bn2(self.conv2(x)) + x)
            logits = self.head(x.mean((2, 3)))
            return logits if targets is None else nn.functional.cross_entropy(logits, targets)

    return CNN()


RNG = np.random.default_rng(0)
MAKERS = {
    "gpt": (make_gpt, [(RNG.integers(0, 31, (4, 16)), RNG.integers(0, 31, (4, 16))) for _ in range(6)]),
    "cnn": (make_cnn, [(RNG.standard_normal((4, 3, 8, 8)).astype("f4"), RNG.integers(0, 5, 4)) for _ in range(6)]),
}


def weights_of(name):
    fl.manual_seed(0)
    return {k: v.numpy(force=True).copy() for k, v in MAKERS[name][0](fl).state_dict().items()}


def train(lib, name, weights, transform=lambda m: m):
    """Losses of a few AdamW steps from these weights, and the state afterwards."""
    maker, batches = MAKERS[name]
    model = maker(lib)
    model.load_state_dict({k: lib.tensor(v) for k, v in weights.items()})
    run = transform(model)
    optimizer = lib.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = run(lib.tensor(x), lib.tensor(y))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {k: v.detach().numpy() for k, v in model.state_dict().items()}


@pytest.mark.parametrize("name", MAKERS)
def test_eager_matches_torch(name):
    torch = pytest.importorskip("torch", reason="torch is the oracle")
    weights = weights_of(name)
    ours, ours_state = train(fl, name, weights)
    theirs, theirs_state = train(torch, name, weights)
    np.testing.assert_allclose(ours, theirs, rtol=2e-4)
    for k in theirs_state:
        np.testing.assert_allclose(ours_state[k], theirs_state[k], rtol=2e-2, atol=2e-3, err_msg=k)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", MAKERS)
def test_compiled_matches_eager(name, backend):
    weights = weights_of(name)
    eager, eager_state = train(fl, name, weights)
    compiled, compiled_state = train(fl, name, weights, lambda m: fl.compile(m, backend=backend, fullgraph=True))
    np.testing.assert_allclose(compiled, eager, rtol=2e-4)
    for k in eager_state:
        np.testing.assert_allclose(compiled_state[k], eager_state[k], rtol=2e-2, atol=2e-3, err_msg=k)


@pytest.mark.parametrize("name", MAKERS)
def test_compiled_inference_goes_dynamic_on_the_second_batch_size(name):
    maker, batches = MAKERS[name]
    fl.manual_seed(0)
    model = maker(fl).eval()
    compiled = fl.compile(model, backend="inductor")
    with fl.no_grad():
        for size in (4, 3, 2):
            x = fl.tensor(batches[0][0][:size])
            np.testing.assert_allclose(compiled(x).numpy(), model(x).numpy(), rtol=1e-4, atol=1e-5)
