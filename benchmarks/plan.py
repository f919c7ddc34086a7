"""What a training step of many GPUs takes, told by one process: python -m benchmarks.plan [--measure]

A fake group (rank r of n) runs one step on tensors without elements, and holds which collectives the step comes to, how large and among whom.
An alpha-beta model gives each its time: a latency for each message of a ring (or a tree, if that is less) and a time for each byte that a
process sends. `--measure` fits the model to this machine's collectives of two processes and compares it with other sizes and a DDP step.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import flambeau as fl
from flambeau import distributed as dist
from flambeau import nn
from flambeau.distributed.fsdp import fully_shard
from flambeau.nn.parallel import DistributedDataParallel


class Link(NamedTuple):
    """Seconds for a message to begin, and for each byte."""

    alpha: float
    beta: float


@dataclass(frozen=True)
class Machines:
    """Machines of `each` GPUs: the link between two of one machine, and each GPU's own to other machines."""

    inside: Link
    between: Link
    each: int = 8
    flops: float = 2.9e14   # what a GPU does in a second of a step, with all that is around products: GPT-2, measured
    memory: float = 141e9

    def link(self, ranks: Sequence[int]) -> Link:
        """The slowest on a ring of these ranks."""
        return self.inside if ranks[0] // self.each == ranks[-1] // self.each else self.between


# What was measured of 2 H200 (results/nccl.md): 4 KB in 0.0415 ms, 256 MB in 1.011 ms; between machines what a 400 Gbit/s card gives each GPU.
H200 = Machines(Link(41.5e-6 / 2, (1.011e-3 - 41.5e-6) / (1 << 28)), Link(15e-6, 1 / 45e9))

_SENT = {"all_reduce": 2, "all_gather_into_tensor": 1, "reduce_scatter_tensor": 1, "all_gather": 1, "reduce_scatter": 1}
"""How often a ring goes round."""


def seconds(call: Any, machines: Machines) -> float:
    """One collective; `nbytes` is of a process's part where parts are gathered or scattered."""
    n = len(call.ranks)
    if n == 1:
        return 0.0
    rounds, link = _SENT[call.name], machines.link(call.ranks)
    whole = call.nbytes * (1 if call.name == "all_reduce" else n)
    hops = min(rounds * (n - 1), 2 * math.ceil(math.log2(n)))
    return hops * link.alpha + rounds * (n - 1) / n * whole * link.beta


class Block(nn.Module):
    """One of a transformer: products and norms of the right sizes."""

    def __init__(self, d: int, kv: int, hidden: int, gated: bool) -> None:
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.q, self.k, self.v, self.o = nn.Linear(d, d, bias=False), *(nn.Linear(d, kv, bias=False) for _ in "kv"), nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, hidden * (1 + gated), bias=False), nn.Linear(hidden, d, bias=False)
        self.hidden = hidden

    def forward(self, x: Any) -> Any:
        y = self.n1(x)
        k = self.k(y) + self.v(y)       # attention has no parameters, so it says nothing to anybody
        x = x + self.o(self.q(y) + k.sum(-1, keepdim=True))
        return x + self.down(self.up(self.n2(x))[..., :self.hidden])


class Net(nn.Module):
    """A decoder."""

    def __init__(self, layers: int, d: int, kv: int, hidden: int, words: int, gated: bool, tied: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, d)
        self.blocks = nn.ModuleList([Block(d, kv, hidden, gated) for _ in range(layers)])
        self.norm, self.head = nn.RMSNorm(d), nn.Linear(d, words, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, ids: Any) -> Any:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Plan(NamedTuple):
    """A model, how it is spread, and how many tokens each GPU has in a step."""

    name: str
    sizes: tuple
    kind: str
    tokens: int


GPT2 = Plan("GPT-2 small, DDP", (12, 768, 768, 3072, 50304, False, True), "ddp", 8 * 1024)
LLAMA = Plan("Llama 70B, FSDP", (80, 8192, 1024, 28672, 128256, True, False), "fsdp", 8192)


class Step(NamedTuple):
    """Of one step: its collectives, the parameters of the model, and those of its largest block."""

    calls: list[Any]
    parameters: int
    block: int


def collectives(plan: Plan, device: str) -> Step:
    """Those of a step in the default group, on tensors of a device: "meta" for ones without elements."""
    with fl.device(device):
        net: Any = Net(*plan.sizes)
        ids = fl.zeros(1, 4, dtype=fl.int64)
    count = sum(p.numel() for p in net.parameters())
    block = max(sum(p.numel() for p in part.parameters()) for part in (*net.blocks, net.head))
    if plan.kind == "fsdp":
        net = net.to(fl.bfloat16)
        mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
        for part in (*net.blocks, net.head):
            fully_shard(part, mesh=mesh)
        fully_shard(net, mesh=mesh)
    else:
        net = DistributedDataParallel(net)
    group = dist.group.WORLD
    before, group.calls = group.calls, []
    net(ids).sum().backward()
    calls, group.calls = group.calls, before
    return Step([c for c in calls if c.name in _SENT], count, block)


def sequence(plan: Plan, world: int, rank: int = 0) -> Step:
    """The collectives of a step on rank `rank` of `world`, of which no other is there."""
    dist.init_process_group("fake", rank=rank, world_size=world)
    try:
        return collectives(plan, "meta")
    finally:
        dist.destroy_process_group()


class Prediction(NamedTuple):
    """Seconds of computing, of communication, of it what nothing hides, and GiB of a GPU's memory for parameters, gradients and AdamW."""

    computing: float
    communicating: float
    exposed: float
    memory: float


def predicted(plan: Plan, step: Step, world: int, machines: Machines = H200) -> Prediction:
    """A step: DDP's reductions go on while the backward pass does (two thirds), and the last one begins when that ends; FSDP's go on beside
    all of it, but for the first gathering and the last reduction."""
    computing = 6 * step.parameters * plan.tokens / machines.flops
    times = [seconds(c, machines) for c in step.calls]
    total = sum(times)
    if plan.kind == "ddp":
        exposed, nbytes = max(times[-1], total - computing * 2 / 3), 16.0 * step.parameters
    else:
        exposed, nbytes = max(times[0] + times[-1], total - computing), 16.0 * step.parameters / world + 3 * 2 * step.block
    return Prediction(computing, total, exposed, nbytes / 2**30)


def report() -> None:
    """The table of docs/distributed.md."""
    print("| model | GPUs | collectives | sent by each | communication | not hidden | step | of one GPU's speed | GiB a GPU |")
    print("|---|---|---|---|---|---|---|---|---|")
    for plan in (GPT2, LLAMA):
        for world in (2, 8, 64, 512, 4096):
            step = sequence(plan, world)
            made = predicted(plan, step, world)
            sent = sum(_SENT[c.name] * (world - 1) / world * c.nbytes * (1 if c.name == "all_reduce" else world) for c in step.calls)
            whole = made.computing + made.exposed
            print(f"| {plan.name} | {world} | {len(step.calls)} | {sent / 1e9:.2f} GB | {made.communicating * 1e3:.1f} ms | "
                  f"{made.exposed * 1e3:.1f} ms | {whole * 1e3:.1f} ms | {made.computing / whole:.0%} | {made.memory:.1f} |")


# -- this machine ------------------------------------------------------------------------------------------------------------------


def _timed(step: Callable[[], Any], rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        dist.barrier()
        start = time.perf_counter()
        step()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def _measure(rank: int, world: int) -> None:
    dist.init_process_group("gloo")
    fl.set_num_threads(1)
    buffers = {count: fl.ones(count) for count in (1 << 10, 1 << 16, 1 << 18, 1 << 20, 1 << 22)}
    found = {count: _timed(lambda x=x: dist.all_reduce(x), 40) for count, x in buffers.items()}
    small, large = found[1 << 10], found[1 << 22]
    here = Machines(*[Link(small / 2, (large - small) / (4 << 22))] * 2)
    net = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(512, 512), nn.GELU())])
    ddp, x = DistributedDataParallel(net, bucket_cap_mb=2), fl.ones(1, 512)
    group = dist.group.WORLD
    ddp(x).sum().backward()
    group.calls = []
    ddp(x).sum().backward()
    calls, group.calls = [c for c in group.calls if c.name in _SENT], None
    flat = [fl.ones(c.nbytes // 4) for c in calls]
    alone = _timed(lambda: [dist.all_reduce(t) for t in flat], 20)
    if rank == 0:
        print(f"alpha {here.inside.alpha * 1e6:.0f} us, beta {1e-9 / here.inside.beta:.2f} GB/s (of 4 KB and 16 MB)")
        for count, taken in found.items():
            guess = 2 * here.inside.alpha + 4 * count * here.inside.beta
            print(f"all_reduce of {4 * count >> 10} KB: predicted {guess * 1e3:.3f} ms, measured {taken * 1e3:.3f} ms")
        print(f"reductions of a DDP step ({len(calls)}): predicted {sum(seconds(c, here) for c in calls) * 1e3:.2f} ms, "
              f"measured {alone * 1e3:.2f} ms")
    dist.destroy_process_group()


def main() -> None:
    """Print the plans, or what this machine measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", action="store_true")
    if not parser.parse_args().measure:
        report()
        return
    import os
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(probe.getsockname()[1]), WORLD_SIZE="2")
    fl.multiprocessing.spawn(_ranked, (2,), nprocs=2)


def _ranked(rank: int, world: int) -> None:
    import os

    os.environ["RANK"] = str(rank)
    _measure(rank, world)


if __name__ == "__main__":
    main()
