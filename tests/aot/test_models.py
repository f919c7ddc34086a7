"""Whole models through torch.compile(backend="aot_eager"): training steps equal eager's."""

import copy

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.dropout = heads, dropout

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(x).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout))

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary=17, width=16, heads=2, context=8, layers=2, dropout=0.1):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        logits = self.head(self.ln(self.blocks(x)))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x, targets):
        y = F.max_pool2d(F.relu(self.bn1(self.conv1(x)), inplace=True), 2)
        y = F.relu(y + self.bn2(self.conv2(y)), inplace=True)
        return F.cross_entropy(self.fc(y.mean((2, 3))), targets)


def gpt_batch(rng):
    ids = torch.from_numpy(rng.integers(0, 17, (3, 9)))
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def image_batch(rng):
    images = torch.from_numpy(rng.standard_normal((4, 3, 8, 8)).astype(np.float32))
    return images, torch.from_numpy(rng.integers(0, 5, 4))


@pytest.mark.parametrize("make, batch", [(lambda: GPT(dropout=0.0), gpt_batch), (ConvNet, image_batch)], ids=["GPT", "ConvNet"])
def test_training(make, batch):
    torch.manual_seed(0)
    eager = make()
    twin = copy.deepcopy(eager)
    compiled = torch.compile(twin, backend="aot_eager", fullgraph=True)
    rng = np.random.default_rng(0)
    for step in range(3):
        inputs = batch(rng)
        losses = []
        for model in (eager, compiled):
            torch.manual_seed(step)
            loss = model(*inputs)
            loss.backward()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-6)
        with torch.no_grad():
            for (name, p), q in zip(eager.named_parameters(), twin.parameters(), strict=True):
                np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-4, atol=1e-6, err_msg=name)
                p.sub_(p.grad * 0.1)
                q.sub_(q.grad * 0.1)
                p.grad = q.grad = None
    for (name, p), q in zip(eager.named_buffers(), twin.buffers(), strict=True):
        np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-5, err_msg=name)
    eager.eval()
    compiled.eval()
    with torch.no_grad():
        assert eager(*inputs).item() == pytest.approx(compiled(*inputs).item(), rel=1e-6)
