"""A sparse mixture of experts: noisy top-k gates, a dispatcher by nonzero and index_add, a loss of balance; and stacked experts by vmap."""

import copy

import torch
import torch.nn as nn
from torch.distributions.normal import Normal
from torch.func import functional_call, stack_module_state

torch.manual_seed(5)


class SparseDispatcher(object):
    def __init__(self, num_experts, gates):
        self._gates, self._num_experts = gates, num_experts
        sorted_experts, index_sorted_experts = torch.nonzero(gates).sort(0)
        _, self._expert_index = sorted_experts.split(1, dim=1)
        self._batch_index = torch.nonzero(gates)[index_sorted_experts[:, 1], 0]
        self._part_sizes = (gates > 0).sum(0).tolist()
        self._nonzero_gates = torch.gather(gates[self._batch_index.flatten()], 1, self._expert_index)

    def dispatch(self, inp):
        return torch.split(inp[self._batch_index].squeeze(1), self._part_sizes, dim=0)

    def combine(self, expert_out):
        stitched = torch.cat(expert_out, 0).mul(self._nonzero_gates)
        zeros = torch.zeros(self._gates.size(0), expert_out[-1].size(1), requires_grad=True)
        return zeros.index_add(0, self._batch_index, stitched.float())


class MoE(nn.Module):
    def __init__(self, input_size, output_size, num_experts, hidden_size, noisy_gating=True, k=2):
        super().__init__()
        self.noisy_gating, self.num_experts, self.k = noisy_gating, num_experts, k
        expert = lambda: nn.Sequential(nn.Linear(input_size, hidden_size), nn.SiLU(), nn.Linear(hidden_size, output_size))
        self.experts = nn.ModuleList([expert() for _ in range(num_experts)])
        self.w_gate = nn.Parameter(torch.zeros(input_size, num_experts), requires_grad=True)
        self.w_noise = nn.Parameter(torch.zeros(input_size, num_experts), requires_grad=True)
        self.softplus, self.softmax = nn.Softplus(), nn.Softmax(1)
        self.register_buffer("mean", torch.tensor([0.0]))
        self.register_buffer("std", torch.tensor([1.0]))

    def cv_squared(self, x):
        return x.float().var() / (x.float().mean() ** 2 + 1e-10)

    def _prob_in_top_k(self, clean, noisy, stddev, top):
        batch, m = clean.size(0), top.size(1)
        flat = top.flatten()
        at = torch.arange(batch) * m + self.k
        in_ = torch.unsqueeze(torch.gather(flat, 0, at), 1)
        out = torch.unsqueeze(torch.gather(flat, 0, at - 1), 1)
        normal = Normal(self.mean, self.std)
        return torch.where(torch.gt(noisy, in_), normal.cdf((clean - in_) / stddev), normal.cdf((clean - out) / stddev))

    def forward(self, x, loss_coef=1e-2):
        clean = x @ self.w_gate
        stddev = self.softplus(x @ self.w_noise) + 1e-2
        noisy = clean + torch.randn_like(clean) * stddev if self.training else clean
        top_logits, top_indices = noisy.topk(min(self.k + 1, self.num_experts), dim=1)
        top_k_gates = self.softmax(top_logits[:, : self.k])
        gates = torch.zeros_like(noisy, requires_grad=True).scatter(1, top_indices[:, : self.k], top_k_gates)
        load = self._prob_in_top_k(clean, noisy, stddev, top_logits).sum(0) if self.training else (gates > 0).sum(0)
        loss = (self.cv_squared(gates.sum(0)) + self.cv_squared(load)) * loss_coef
        dispatcher = SparseDispatcher(self.num_experts, gates)
        outputs = [self.experts[i](part) for i, part in enumerate(dispatcher.dispatch(x))]
        return dispatcher.combine(outputs), loss


x, y = torch.rand(24, 6), torch.randint(5, (24,))
net = MoE(6, 5, num_experts=4, hidden_size=10)
optim = torch.optim.Adam(net.parameters(), lr=1e-2)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
for epoch in range(10):
    net.train()
    y_hat, aux_loss = net(x)
    total_loss = criterion(y_hat, y) + aux_loss
    optim.zero_grad()
    total_loss.backward()
    optim.step()
    print("Training Results - loss: {:.4f}, aux_loss: {:.5f}".format(criterion(y_hat, y).item(), aux_loss.item()))
net.eval()
print(net(x)[0].detach().sum(1)[:4], [name for name, _ in net.named_buffers()])

params, buffers = stack_module_state(list(net.experts))
base = copy.deepcopy(net.experts[0]).to("meta")
every = torch.vmap(lambda p, b, t: functional_call(base, (p, b), (t,)), in_dims=(0, 0, None))(params, buffers, x)
print(every.shape, torch.allclose(every[1], net.experts[1](x), atol=1e-6), every.detach().mean(dim=(1, 2)))
