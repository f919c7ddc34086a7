"""Train the GPT of `gpt.py`, letter by letter, in several processes: each has its part of every batch, gradients are averaged.

    python -m flambeau.distributed.run --standalone --nproc-per-node=2 examples/ddp_char_gpt.py      on Flambeau
    torchrun --standalone --nproc-per-node=2 examples/ddp_char_gpt.py                                on PyTorch: the same file
    python -m flambeau run examples/ddp_char_gpt.py                                                  one process

The batch is the same however many processes share it, and so, but for rounding, is the loss. Leaves `loss.svg` in `--out`.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from gpt import GPT, Config, Corpus, make_optimizer
from show import Progress, write_loss_plot
from torch.nn.parallel import DistributedDataParallel


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=16, help="sequences in a step, of all processes together")
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--compile", action="store_true", help="compile the module inside of DistributedDataParallel")
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--out", type=Path, default=Path("out/ddp_char_gpt"))
    parser.add_argument("--smoke", action="store_true", help="a tiny model for a few steps: does it run at all?")
    args = parser.parse_args()
    if args.smoke:
        vars(args).update(steps=5, batch=4, context=16, layers=1, width=32)
    return args


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    together = "RANK" in os.environ
    if together:
        dist.init_process_group("gloo")
    rank, world = (dist.get_rank(), dist.get_world_size()) if together else (0, 1)
    if args.batch % world:
        raise SystemExit(f"--batch={args.batch} can't be divided by {world} processes")
    corpus = Corpus((Path(__file__).parent / "alice.txt").read_text(encoding="utf-8"), split=list)
    torch.manual_seed(0)
    module = GPT(Config(len(corpus.alphabet), args.layers, 4, args.width, args.context))
    optimizer = make_optimizer(module, 1e-3)
    model: torch.nn.Module = torch.compile(module) if args.compile else module
    if together:
        model = DistributedDataParallel(model)
    part = slice(rank * args.batch // world, (rank + 1) * args.batch // world)
    draw = torch.Generator().manual_seed(1)
    progress = Progress(args.steps, "steps")
    seconds, losses = [], []
    for _ in progress if rank == 0 else range(args.steps):
        ids, targets = corpus.batch(args.batch, args.context, draw)
        start = time.perf_counter()
        _, loss = model(ids[part], targets[part])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
        mean = loss.detach().clone()
        if together:
            dist.all_reduce(mean)
            mean /= world
        losses.append(mean.item())
        progress.note = f"loss {losses[-1]:.3f}"
    if rank == 0:
        median = sorted(seconds)[len(seconds) // 2]
        print(f"{torch.__package__}: {world} processes, {median * 1e3:.1f} ms a step, final loss {losses[-1]:.6f}")
        write_loss_plot(args.out / "loss.svg", {f"{world} processes": losses}, "A GPT of letters in several processes: loss")
    if together:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
