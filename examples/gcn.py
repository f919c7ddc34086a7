"""A graph convolutional network of two layers (Kipf and Welling 2017) on a graph with planted groups. Needs nothing but Flambeau:
`python -m flambeau run examples/gcn.py` (or with PyTorch: `python examples/gcn.py`). Leaves `loss.svg` in `--out`."""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import torch
from show import Progress, write_loss_plot
from torch import Tensor, nn


def planted(nodes: int, groups: int, seed: int) -> tuple[list[list[int]], list[int]]:
    """Edges, more within groups than between them, and the group of each node."""
    draw = random.Random(seed)
    labels = [node % groups for node in range(nodes)]
    edges = []
    for a in range(nodes):
        for _ in range(3):
            b = draw.randrange(nodes)
            if draw.random() < 0.85:
                b = (b - b % groups + labels[a]) % nodes
            if labels[b] == labels[a] or draw.random() < 0.6:
                edges += [(a, b), (b, a)]
    return [list(ends) for ends in zip(*edges)], labels


def normalised(edges: list[list[int]], nodes: int) -> Tensor:
    """D^-1/2 (A + I) D^-1/2, as a sparse matrix."""
    itself = torch.arange(nodes)
    index = torch.cat([torch.tensor(edges), torch.stack([itself, itself])], 1)
    matrix = torch.sparse_coo_tensor(index, torch.ones(index.shape[1]), (nodes, nodes)).coalesce()
    scale = torch.sparse.sum(matrix, 1).to_dense().rsqrt()
    row, column = matrix.indices()
    return torch.sparse_coo_tensor(matrix.indices(), matrix.values() * scale[row] * scale[column], (nodes, nodes), is_coalesced=True)


class Layer(nn.Module):
    """Each node's features become a linear map of its neighbours' mean."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, inputs * outputs).sin().reshape(inputs, outputs) / inputs**0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, graph: Tensor, x: Tensor) -> Tensor:
        return torch.sparse.mm(graph, x @ self.weight) + self.bias


class GCN(nn.Module):
    """Two layers, over features that are a sparse embedding of the nodes."""

    def __init__(self, nodes: int, groups: int, width: int = 16) -> None:
        super().__init__()
        self.features = nn.Embedding(nodes, width, sparse=True)
        with torch.no_grad():
            self.features.weight.copy_((torch.arange(nodes * width) * 0.7).cos().reshape(nodes, width))
        self.first, self.second = Layer(width, width), Layer(width, groups)

    def forward(self, graph: Tensor) -> Tensor:
        x = self.features(torch.arange(graph.shape[0]))
        return self.second(graph, torch.relu(self.first(graph, x)))


def train(nodes: int, steps: int, groups: int = 4) -> tuple[list[float], float]:
    """The losses, and how many of the nodes that were not trained on are told right."""
    edges, groups_of = planted(nodes, groups, seed=7)
    graph, labels = normalised(edges, nodes), torch.tensor(groups_of)
    model, known = GCN(nodes, groups), torch.arange(nodes) % 5 < 2
    dense = torch.optim.Adam([*model.first.parameters(), *model.second.parameters()], lr=0.02)
    rows = torch.optim.SparseAdam(model.features.parameters(), lr=0.02)
    losses = []
    progress = Progress(steps, "training")
    for _ in progress:
        dense.zero_grad()
        rows.zero_grad()
        loss = nn.functional.cross_entropy(model(graph)[known], labels[known])
        loss.backward()
        dense.step()
        rows.step()
        losses.append(loss.item())
        progress.note = f"loss {losses[-1]:.4f}"
    with torch.no_grad():
        right = model(graph).argmax(1)[~known] == labels[~known]
    return losses, right.float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=600)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--smoke", action="store_true", help="a small graph for a few steps: is all there?")
    parser.add_argument("--out", type=Path, default=Path("out/gcn"))
    given = parser.parse_args()
    nodes, steps = (100, 5) if given.smoke else (given.nodes, given.steps)
    losses, accuracy = train(nodes, steps)
    given.out.mkdir(parents=True, exist_ok=True)
    write_loss_plot(given.out / "loss.svg", {"training": losses}, "Groups of a graph: loss")
    print(f"{getattr(torch, '__package__', 'torch')}: {nodes} nodes, {steps} steps: loss {losses[-1]:.4f}, right {accuracy:.3f}; "
          f"wrote {given.out / 'loss.svg'}")


if __name__ == "__main__":
    main()
