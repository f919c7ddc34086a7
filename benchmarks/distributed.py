"""Collectives and DistributedDataParallel beside torch's gloo: python -m benchmarks.distributed [--ranks 2] [--quick]

Both libraries run in the same processes, one thread each, and take turns, so that what else the machine does falls on both.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import time
from collections.abc import Callable
from typing import Any

import flambeau
import flambeau.multiprocessing as mp

SIZES = {"4 KB": 1 << 10, "1 MB": 1 << 18, "64 MB": 1 << 24}  # float32 numbers, of the larger side
ROUNDS = {"4 KB": 300, "1 MB": 60, "64 MB": 9}
LIMITS = {"4 KB": 0.5, "1 MB": 0.5, "64 MB": 0.9}


def collectives(torch: Any, count: int, world: int) -> dict[str, Callable[[], Any]]:
    """What is measured, on tensors of one library."""
    d, part = torch.distributed, torch.ones(count // world)
    whole, into = torch.ones(count), torch.empty(count // world)
    return {
        "all_reduce": lambda: d.all_reduce(whole.fill_(1.0)),
        "all_gather": lambda: d.all_gather_into_tensor(whole, part),
        "reduce_scatter": lambda: d.reduce_scatter_tensor(into, whole),
    }


def seconds(step: Callable[[], Any], barrier: Callable[[], Any]) -> float:
    """One step, which all ranks begin together."""
    barrier()
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def training(torch: Any, rank: int) -> Callable[[], Any]:
    """A step of a small transformer in DistributedDataParallel."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(128, 4, 512, 0.0, "gelu", batch_first=True, norm_first=True)
    net = torch.nn.Sequential(torch.nn.Embedding(80, 128), torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False),
                              torch.nn.Linear(128, 80))
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(rank)
    ids = torch.randint(80, (8, 64))

    def step() -> None:
        loss = torch.nn.functional.cross_entropy(model(ids).view(-1, 80), ids.view(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def rank_main(rank: int, world: int, ports: tuple[int, int], quick: bool) -> None:
    """One process of the measurement; rank 0 prints."""
    import torch

    libraries = {"flambeau": flambeau, "torch": torch}
    for library, port in zip(libraries.values(), ports):
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
        library.set_num_threads(1)
        library.distributed.init_process_group("gloo")
    barrier = flambeau.distributed.barrier

    def table_row(name: str, steps: dict[str, Callable], rounds: int, limit: float | None) -> None:
        taken: dict[str, list[float]] = {library: [] for library in steps}
        for i in range(rounds + 3):
            for library, step in steps.items():
                once = seconds(step, barrier)
                if i >= 3:
                    taken[library].append(once)
        ours, theirs = (statistics.median(taken[library]) * 1e3 for library in libraries)
        if rank == 0:
            aim = "" if limit is None else f"{limit:g}"
            print(f"| {name} | {ours:.3f} ms | {theirs:.3f} ms | {ours / theirs:.2f} | {aim} |", flush=True)

    if rank == 0:
        print(f"| {world} processes | Flambeau | torch, gloo | ratio | aim |\n|---|---|---|---|---|", flush=True)
    for size, count in SIZES.items():
        steps = {name: collectives(library, count, world) for name, library in libraries.items()}
        for kind in ("all_reduce", "all_gather", "reduce_scatter"):
            table_row(f"{kind}, {size}", {name: steps[name][kind] for name in libraries}, ROUNDS[size] // (5 if quick else 1), LIMITS[size])
    table_row("DDP step of a small transformer, eager", {name: training(library, rank) for name, library in libraries.items()},
              8 if quick else 40, 0.75)
    for library in libraries.values():
        library.distributed.destroy_process_group()


def free_ports(count: int) -> tuple[int, ...]:
    """Ports that nobody uses now."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = tuple(probe.getsockname()[1] for probe in probes)
    for probe in probes:
        probe.close()
    return ports


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a fifth of the rounds")
    args = parser.parse_args()
    mp.spawn(rank_main, args=(args.ranks, free_ports(2), args.quick), nprocs=args.ranks)


if __name__ == "__main__":
    main()
