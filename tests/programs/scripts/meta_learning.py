"""Meta-learning and neural equations: MAML by functional gradients, a physics-informed network, Jacobians, an autograd.Function."""

import torch
from torch import nn
from torch.autograd import Function
from torch.func import functional_call, grad, hessian, jacrev, vmap

torch.manual_seed(3)
net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
params = {k: v.detach().clone().requires_grad_() for k, v in net.named_parameters()}
outer = torch.optim.Adam(list(params.values()), lr=1e-2)


def loss_of(p, x, y):
    return ((functional_call(net, p, (x,)) - y) ** 2).mean()


def adapted(p, x1, y1, x2, y2):
    g = grad(loss_of)(p, x1, y1)
    return loss_of({k: p[k] - 0.05 * g[k] for k in p}, x2, y2)


for step in range(6):
    amplitude, phase = torch.rand(5, 1, 1) * 4 + 0.1, torch.rand(5, 1, 1) * 3
    x1, x2 = torch.rand(5, 8, 1) * 10 - 5, torch.rand(5, 8, 1) * 10 - 5
    y1, y2 = amplitude * torch.sin(x1 + phase), amplitude * torch.sin(x2 + phase)
    loss = vmap(adapted, in_dims=(None, 0, 0, 0, 0))(params, x1, y1, x2, y2).mean()
    outer.zero_grad()
    loss.backward()
    outer.step()
    print("maml", loss.item())

u = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 1)).double()
optimizer = torch.optim.Rprop(u.parameters(), lr=1e-3)
points = torch.rand(20, 2, dtype=torch.float64, requires_grad=True)
for step in range(6):
    out = u(points)
    (first,) = torch.autograd.grad(out.sum(), points, create_graph=True)
    (second,) = torch.autograd.grad(first[:, 1].sum(), points, create_graph=True)
    residual = (first[:, 0] - 0.1 * second[:, 1]).square().mean() + (out - torch.sin(points[:, 1:])).square().mean()
    optimizer.zero_grad()
    residual.backward()
    optimizer.step()
    print("heat", residual.item())
one = points[0].detach()
print(jacrev(u)(one), hessian(lambda p: u(p).squeeze())(one))


class StraightThrough(Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return torch.round(x * scale) / scale

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (x.abs() <= 1).to(grad_output), None


w = torch.linspace(-1.5, 1.5, 7, requires_grad=True)
(StraightThrough.apply(w, 4) ** 2).sum().backward()
print(w.grad, torch.autograd.gradcheck(lambda t: (t.sin() * t).sum(), torch.rand(3, dtype=torch.float64, requires_grad=True)))
p = nn.Parameter(torch.randn(4))
opt = torch.optim.SGD([p], lr=0.1, momentum=0.9)


def step_at_once(parameter):
    opt.step()
    opt.zero_grad()


p.register_post_accumulate_grad_hook(step_at_once)
for _ in range(3):
    loss = torch.logsumexp(p * torch.arange(4.0), 0)
    loss.backward()
    print("hook", loss.item(), p.grad)
