"""A parameter server: one process has the model, the others send it gradients of their parts of the batch and get its new weights.

    python -m flambeau.distributed.run --standalone --nproc-per-node=3 examples/rpc_parameter_server.py     on Flambeau: two trainers
    torchrun --standalone --nproc-per-node=3 examples/rpc_parameter_server.py                               on PyTorch: the same file
    python -m flambeau run examples/rpc_parameter_server.py                                                 one process

No trainer waits in a thread of the server: a call is answered when the gradients of all are there (`async_execution`). The batch is the
same however many trainers share it, and so, but for rounding, is the loss.
"""

from __future__ import annotations

import argparse
import os
import threading

import torch
import torch.distributed.rpc as rpc
from torch.futures import Future


def network() -> torch.nn.Module:
    """Of points in the plane: on which arm of two spirals do they lie?"""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2))


def points(step: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points and the arms on which they lie, the same in each process."""
    draw = torch.Generator().manual_seed(step)
    arm, turn = torch.arange(count) % 2, 1 + 2 * torch.rand(count, generator=draw)
    angle = 3 * turn + torch.pi * arm
    return torch.stack([turn * angle.cos(), turn * angle.sin()], 1) / 3, arm


def gradients(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[list[torch.Tensor], float]:
    """Those of the loss, and the loss."""
    loss = torch.nn.functional.cross_entropy(model(x), y)
    return list(torch.autograd.grad(loss, list(model.parameters()))), loss.item()


class Server:
    """The model and its optimizer."""

    def __init__(self, trainers: int) -> None:
        self.model, self.trainers, self.lock = network(), trainers, threading.Lock()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.answer: Future = Future()
        self.losses: list[float] = []
        self.came = 0

    def weights(self) -> list[torch.Tensor]:
        return [p.detach() for p in self.model.parameters()]

    def add(self, grads: list[torch.Tensor], loss: float) -> Future:
        """Gradients of one trainer; a future of the weights after the step by the mean of all trainers' ones."""
        with self.lock:
            answer, self.came = self.answer, self.came + 1
            self.losses.append(loss / self.trainers)
            for p, g in zip(self.model.parameters(), grads):
                p.grad = g / self.trainers if p.grad is None else p.grad + g / self.trainers
            if self.came == self.trainers:
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.came, self.answer = 0, Future()
                answer.set_result(self.weights())
        return answer

    @staticmethod
    @rpc.functions.async_execution
    def update(server: rpc.RRef, grads: list[torch.Tensor], loss: float) -> Future:
        return server.local_value().add(grads, loss)

    def last_loss(self) -> float:
        return sum(self.losses[-self.trainers:])


def train(server: rpc.RRef, number: int, trainers: int, steps: int, batch: int) -> None:
    """In a trainer: its part of each batch."""
    model, part = network(), slice(number * batch // trainers, (number + 1) * batch // trainers)
    for step in range(steps):
        x, y = points(step, batch)
        grads, loss = gradients(model, x[part], y[part])
        weights = rpc.rpc_sync(server.owner(), Server.update, (server, grads, loss))
        with torch.no_grad():
            for p, w in zip(model.parameters(), weights):
                p.copy_(w)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=240, help="points in a step, of all trainers together")
    parser.add_argument("--smoke", action="store_true", help="a few steps")
    args = parser.parse_args()
    steps = 20 if args.smoke else args.steps
    torch.set_num_threads(1)
    if "RANK" not in os.environ:
        server = Server(1)
        for step in range(steps):
            server.add(*gradients(server.model, *points(step, args.batch)))
        print(f"one process: final loss {server.last_loss():.5f}")
        return
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if world < 2 or args.batch % (world - 1):
        raise SystemExit(f"a server needs trainers, among which --batch={args.batch} can be divided; there are {world - 1}")
    rpc.init_rpc("server" if rank == 0 else f"trainer{rank}", rank=rank, world_size=world)
    if rank == 0:
        here = rpc.RRef(Server(world - 1))
        runs = [rpc.rpc_async(f"trainer{r}", train, (here, r - 1, world - 1, steps, args.batch), timeout=0) for r in range(1, world)]
        torch.futures.wait_all(runs)
        print(f"{world - 1} trainers: final loss {here.local_value().last_loss():.5f}")
    rpc.shutdown()


if __name__ == "__main__":
    main()
