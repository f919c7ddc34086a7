"""A spiral learned by an ordinary differential equation: Runge-Kutta steps, gradients by the adjoint equation."""

import math

import torch
from torch import nn


class Field(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 2))
        for m in self.net.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, mean=0, std=0.1)
                nn.init.constant_(m.bias, val=0)

    def forward(self, t, y):
        return self.net(y**3)


def rk4(f, t, dt, y):
    k1 = f(t, y)
    k2 = f(t + dt / 2, y + dt / 2 * k1)
    k3 = f(t + dt / 2, y + dt / 2 * k2)
    k4 = f(t + dt, y + dt * k3)
    return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


class Adjoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, f, y0, times, *params):
        ctx.f = f
        with torch.no_grad():
            ys = [y0]
            for a, b in zip(times[:-1], times[1:]):
                ys.append(rk4(f, a, b - a, ys[-1]))
        out = torch.stack(ys)
        ctx.save_for_backward(out, times, *params)
        return out

    @staticmethod
    def backward(ctx, grad):
        out, times, *params = ctx.saved_tensors
        a, gp = grad[-1], [torch.zeros_like(p) for p in params]
        for i in range(len(times) - 1, 0, -1):
            with torch.enable_grad():
                y = out[i - 1].detach().requires_grad_()
                after = rk4(ctx.f, times[i - 1], times[i] - times[i - 1], y)
                gy, *g = torch.autograd.grad(after, (y, *params), a, allow_unused=True)
            a = gy + grad[i - 1]
            gp = [q if r is None else q + r for q, r in zip(gp, g)]
        return (None, a, None, *gp)


def main():
    torch.manual_seed(3)
    exact = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
    times = torch.linspace(0.0, 6.0, 60)
    with torch.no_grad():
        path = [torch.tensor([[2.0, 0.0]])]
        for a, b in zip(times[:-1], times[1:]):
            path.append(rk4(lambda t, y: (y**3) @ exact, a, b - a, path[-1]))
        path = torch.cat(path)
    print(f"path ends at {path[-1, 0].item():.4f} {path[-1, 1].item():.4f}")

    field = Field()
    optimizer = torch.optim.RMSprop(field.parameters(), lr=3e-3)
    params = tuple(field.parameters())
    for step in range(12):
        starts = torch.randperm(50)[:10]
        target = torch.stack([path[starts + i] for i in range(8)])
        optimizer.zero_grad()
        found = Adjoint.apply(field, path[starts], times[:8], *params)
        loss = (found - target).abs().mean()
        loss.backward()
        optimizer.step()
        norm = math.sqrt(sum(p.grad.pow(2).sum().item() for p in field.parameters()))
        print(f"step {step:2d} | loss {loss.item():.5f} | gradient {norm:.5f}")


if __name__ == "__main__":
    main()
