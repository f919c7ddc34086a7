"""A program as a user writes it, with mistakes of types: a line that ends in `# error` has one."""

from __future__ import annotations

from collections.abc import Iterator

import flambeau as torch
import flambeau.nn as nn
import flambeau.nn.functional as F
from flambeau import Tensor, optim
from flambeau.utils.data import DataLoader, Dataset, TensorDataset


class Block(nn.Module):
    def __init__(self, width: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width, bias=False)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(self.up(self.norm(x)))
        return x + self.drop(self.down(hidden))


class Model(nn.Module):
    def __init__(self, tokens: int, width: int, depth: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, tokens)
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, ids: Tensor) -> Tensor:
        x: Tensor = self.embed(ids) * self.scale
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    def count(self) -> int:
        return sum(p.numel() for p in self.parameters())


def batches(n: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    ids = torch.randint(0, 16, (n, 8))
    for start in range(0, n, size):
        chunk = ids[start:start + size]
        yield chunk[:, :-1], chunk[:, 1:]


def train(model: Model, steps: int) -> list[float]:
    optimizer = optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    losses: list[float] = []
    for ids, target in batches(64, 16):
        logits = model(ids)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def statistics(x: Tensor) -> tuple[float, float, Tensor]:
    mean, spread = x.mean(), x.std(dim=0, keepdim=True)
    top = torch.topk(x.flatten(), 3)
    values, indices = top.values, top.indices
    best = torch.max(x, dim=1)
    order = best.values.sort(descending=True).indices
    picked = torch.where(x > 0, x, torch.zeros_like(x))
    stacked = torch.stack([picked, x], dim=0).permute(1, 0, 2)
    joined = torch.cat((values, order.float(), indices.to(torch.float32)))
    return mean.item(), float(spread.sum()), torch.softmax(joined, dim=-1) + stacked.sum()


def shapes(x: Tensor) -> None:
    n, c = x.shape
    y = x.reshape(n, c, 1).expand(-1, -1, 4).contiguous().view(n, -1)
    z = (y @ y.t() - 1.0) / 2
    z[0, :] = 0.5
    mask = (z > 0) & ~(z == 1)
    w = -z.masked_fill(mask, float("-inf")).abs() ** 2
    if bool(mask.any()) and w.dim() == 2 and w.size(0) == n:
        print(w.tolist(), w.shape, w.dtype, w.device.type, w.requires_grad, w.numpy().shape)
    with torch.no_grad():
        w.add_(z).mul_(2).clamp_(min=0.0)
    torch.save({"w": w}, "w.pt")
    parts: tuple[Tensor, ...] = w.split(2, dim=0)
    print(parts[0], torch.einsum("ij,jk->ik", z, z), w.T, torch.linalg.norm(w), torch.fft.fft(w).real)


class Pairs(Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.ones(2), index


def loaders() -> None:
    data = TensorDataset(torch.ones(4, 2), torch.zeros(4))
    for batch in DataLoader(data, batch_size=2, shuffle=True):
        print(batch)
    print(len(Pairs()), torch.device("cpu"), torch.float32.is_floating_point, torch.finfo(torch.float32).eps)


def mistakes(x: Tensor, model: Model) -> None:
    nn.Linear(3)  # error
    nn.Linear("3", 2)  # error
    nn.Linear(3, 2, biass=True)  # error
    nn.Conv2d(3, 8)  # error
    nn.Conv2D(3, 8, 3)  # error
    nn.Dropout(p="half")  # error
    nn.Embedding(10, 4, padding_idx="0")  # error
    nn.LSTM(8, 16, layers=2)  # error
    optim.SGD(model.parameters(), lr="fast")  # error
    optim.Adamw(model.parameters())  # error
    torch.matmull(x, x)  # error
    torch.softmax(x)  # error
    torch.zeros(2, 3, dtype="float32")  # error
    torch.cat(x, x)  # error
    torch.relu(1.0)  # error
    x.unsqueze(0)  # error
    x.view("a")  # error
    x.reshape([1.5, 2])  # error
    x.permute("0")  # error
    n: str = x.dim()  # error
    size: str = x.numel()  # error
    y: int = torch.ones(2)  # error
    z: int = x + 1  # error
    z2: str = x.sum()  # error
    torch.add(x)  # error
    torch.full((2,), 1.0, devise="cpu")  # error
    F.relu(x, inplce=True)  # error
    F.cross_entropy(x)  # error
    F.dropout(x, p="0.5")  # error
    F.max_pool2d(x)  # error
    torch.manual_seed("a")  # error
    torch.randn(2, requires_gradd=True)  # error
    torch.arange(3).to(dtype=5)  # error
    x.backward(retain_grph=True)  # error
    torch.no_grad(3)  # error
    torch.compile(model, mode=3)  # error
    nn.Module.forwardd  # error
    torch.optim.lr_scheduler.StepLR(3, 1)  # error
    torch.device(x)  # error
    torch.linalg.nrom(x)  # error
    DataLoader(Pairs(), batchsize=2)  # error
    x.sum(dims=1)  # error
    torch.topk(x, 3).value  # error
    x.max(dim=1).valuess  # error
    str.upper(x.shape)  # error
    x.requires_grad = "yes"  # error
    x.item(3)  # error
    x.clamp(minn=0)  # error
    torch.stack(x, 0, 1, 2)  # error
