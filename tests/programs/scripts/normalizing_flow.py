"""Two moons by a normalizing flow: masked affine couplings and a learned permutation, densities by the change of variables."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Independent, MultivariateNormal, Normal, TransformedDistribution
from torch.distributions.transforms import SigmoidTransform


def moons(n, seed):
    rng = np.random.RandomState(seed)
    angle = rng.rand(n) * np.pi
    upper = rng.rand(n) < 0.5
    x = np.where(upper, np.cos(angle), 1 - np.cos(angle))
    y = np.where(upper, np.sin(angle), 0.5 - np.sin(angle))
    return torch.from_numpy(np.stack([x, y], 1) + 0.05 * rng.randn(n, 2)).float()


class Coupling(nn.Module):
    def __init__(self, mask, hidden=32):
        super().__init__()
        self.register_buffer("mask", mask)
        self.scale = nn.Sequential(nn.Linear(2, hidden), nn.LeakyReLU(), nn.Linear(hidden, 2), nn.Tanh())
        self.shift = nn.Sequential(nn.Linear(2, hidden), nn.LeakyReLU(), nn.Linear(hidden, 2))

    def forward(self, x):
        kept = x * self.mask
        s, t = self.scale(kept) * (1 - self.mask), self.shift(kept) * (1 - self.mask)
        return kept + (1 - self.mask) * (x * s.exp() + t), s.sum(-1)

    def inverse(self, z):
        kept = z * self.mask
        s, t = self.scale(kept) * (1 - self.mask), self.shift(kept) * (1 - self.mask)
        return kept + (1 - self.mask) * ((z - t) * (-s).exp())


class Mixing(nn.Module):
    """x W with W = P L U, so that its determinant is a product."""

    def __init__(self, n=2):
        super().__init__()
        q, _ = torch.linalg.qr(torch.randn(n, n))
        p, lower, upper = torch.linalg.lu(q)
        self.register_buffer("p", p)
        self.lower, self.upper = nn.Parameter(lower), nn.Parameter(torch.triu(upper, 1))
        self.log_s = nn.Parameter(upper.diagonal().abs().log())
        self.register_buffer("sign", upper.diagonal().sign())

    def weight(self):
        lower = torch.tril(self.lower, -1) + torch.eye(2)
        return self.p @ lower @ (torch.triu(self.upper, 1) + torch.diag(self.sign * self.log_s.exp()))

    def forward(self, x):
        return x @ self.weight(), self.log_s.sum().expand(x.shape[0])

    def inverse(self, z):
        return z @ torch.linalg.inv(self.weight())


class Flow(nn.Module):
    def __init__(self, n=4):
        super().__init__()
        masks = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
        self.layers = nn.ModuleList([m for i in range(n) for m in (Coupling(masks[i % 2]), Mixing())])
        self.prior = MultivariateNormal(torch.zeros(2), torch.eye(2))

    def log_prob(self, x):
        total = x.new_zeros(x.shape[0])
        for layer in self.layers:
            x, logdet = layer(x)
            total = total + logdet
        return self.prior.log_prob(x) + total

    @torch.no_grad()
    def sample(self, n):
        z = self.prior.sample((n,))
        for layer in reversed(self.layers):
            z = layer.inverse(z)
        return z


torch.manual_seed(7)
flow = Flow()
optimizer = torch.optim.AdamW(flow.parameters(), lr=5e-3, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=25)
for epoch in range(25):
    loss = -flow.log_prob(moons(128, epoch)).mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(flow.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    if epoch % 3 == 0:
        print(f"epoch {epoch:2d} loss {loss.item():.4f} norm {norm.item():.4f} lr {schedule.get_last_lr()[0]:.6f}")

x = moons(6, 99)
z = x
for layer in flow.layers:
    z, _ = layer(z)
for layer in reversed(flow.layers):
    z = layer.inverse(z)
print("inverse", bool((z - x).abs().max() < 1e-3))
sample = flow.sample(500)
print("sample", *(round(v, 2) for v in (*sample.mean(0).tolist(), *sample.std(0).tolist())))
squashed = TransformedDistribution(Independent(Normal(torch.zeros(2), torch.ones(2)), 1), [SigmoidTransform()])
print("squashed", squashed.log_prob(torch.tensor([0.3, 0.8])).item(), F.softplus(squashed.rsample()).sum().item())
