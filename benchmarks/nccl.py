"""Collectives and training on several GPUs, Flambeau beside PyTorch: python -m benchmarks.nccl [--works collectives ddp fsdp]

`--world 2`, `--libraries flambeau`, `--only "ddp 2 compile" "4 KB"` choose rows; `--seconds 140` bounds the call.
Collectives of both libraries run in the same processes, in turns; training runs in processes of its own, one library after the other.
Times are medians, in milliseconds, of the slowest process.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import multiprocessing
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .distributed import free_ports
from .gpu import _gpt2, _same_weights

SIZES = {"4 KB": 1 << 10, "1 MB": 1 << 18, "64 MB": 1 << 24, "256 MB": 1 << 26}   # float32 numbers
IN_A_ROW = 20


def begin(library: str, rank: int, world: int, port: int) -> Any:
    """The library, with its group of all."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    torch = importlib.import_module(library)
    torch.cuda.set_device(rank)
    if world > 1:
        torch.distributed.init_process_group("nccl")
    return torch


def milliseconds(torch: Any, step: Callable[[], Any], count: int = 1) -> float:
    """`count` steps, until the GPU has done them, for each."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3 / count


# -- collectives -----------------------------------------------------------------------------------------------------------------
def collectives(libraries: list[str], rank: int, world: int, ports: tuple[int, ...], only: list[str]) -> dict[str, dict[str, float]]:
    """{what: {library: ms}}: one at a time, and several in a row."""
    loaded = {library: begin(library, rank, world, port) for library, port in zip(libraries, ports)}
    rows: dict[str, dict[str, float]] = {}
    for size, count in SIZES.items():
        for kind in ("all_reduce", "all_gather", "reduce_scatter"):
            steps = {library: _step(torch, kind, count, world) for library, torch in loaded.items()}
            for name, several in (("", 1), (f", {IN_A_ROW} in a row", IN_A_ROW)):
                if not _wanted(f"{kind} {size}{name}", only):
                    continue
                taken: dict[str, list[float]] = {library: [] for library in loaded}
                for turn in range(25):
                    for library, torch in loaded.items():
                        once = milliseconds(torch, steps[library], several)
                        if turn >= 5:
                            taken[library].append(once)
                rows[f"{kind} {size}{name}"] = {library: statistics.median(times) for library, times in taken.items()}
    return rows


def _step(torch: Any, kind: str, count: int, world: int) -> Callable[[], Any]:
    d, whole, part = torch.distributed, torch.zeros(count, device="cuda"), torch.zeros(count // world, device="cuda")
    return {"all_reduce": lambda: d.all_reduce(whole), "all_gather": lambda: d.all_gather_into_tensor(whole, part),
            "reduce_scatter": lambda: d.reduce_scatter_tensor(part, whole)}[kind]


# -- training --------------------------------------------------------------------------------------------------------------------
def ddp(library: str, rank: int, world: int, port: int, mode: str) -> dict[str, Any]:
    """A step of GPT-2 small, batch 8 of 1024 a GPU, bf16 autocast, AdamW; on one GPU without DDP."""
    torch = begin(library, rank, world, port)
    model: Any = _same_weights(torch, _gpt2(torch))
    if world > 1:
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    if mode == "compile":
        model = torch.compile(model)
    return _train(torch, model, rank, torch.autocast("cuda", dtype=torch.bfloat16))


def fsdp(library: str, rank: int, world: int, port: int, mode: str) -> dict[str, Any]:
    """The same with fully_shard around each block and the whole, parameters gathered in bf16, gradients reduced in float32."""
    torch = begin(library, rank, world, port)
    rooms = importlib.import_module(f"{library}.distributed.fsdp")
    model: Any = _same_weights(torch, _gpt2(torch))
    policy = rooms.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        rooms.fully_shard(block, mp_policy=policy)
    rooms.fully_shard(model, mp_policy=policy)
    if mode == "compile":
        model = torch.compile(model)
    return _train(torch, model, rank, torch.autocast("cuda", enabled=False))


def _train(torch: Any, model: Any, rank: int, cast: Any) -> dict[str, Any]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    torch.manual_seed(rank)
    batches = [[torch.randint(50257, (8, 1024)).cuda() for _ in range(2)] for _ in range(4)]

    def step(k: int = 0) -> Any:
        optimizer.zero_grad()
        with cast:
            loss = model(*batches[k % 4])
        loss.backward()
        optimizer.step()
        return loss.detach()

    started = time.perf_counter()
    losses = [float(step())]
    first = time.perf_counter() - started
    losses += [float(step(k)) for k in range(1, 12)]
    taken = [milliseconds(torch, step, 5) for _ in range(6)]
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return {"step ms": statistics.median(taken), "peak GiB": torch.cuda.max_memory_allocated() / 2**30, "first step s": first,
            "losses": [losses[0], losses[-1]]}


# -- processes -------------------------------------------------------------------------------------------------------------------
def _main(work: Callable, args: tuple, rank: int, world: int, ports: Any, out: str, timeout: float) -> None:
    with Path(f"{out}.stacks").open("w") as stacks:
        faulthandler.dump_traceback_later(max(timeout - 2, 1), file=stacks)   # what it does when its time is over
        _said(work, args, rank, world, ports, out)


def _said(work: Callable, args: tuple, rank: int, world: int, ports: Any, out: str) -> None:
    try:
        result: Any = work(args[0], rank, world, ports, *args[1:])
    except BaseException:
        result = {"failed": traceback.format_exc()[-1500:]}
    Path(out).write_text(json.dumps(result))
    sys.stdout.flush()
    os._exit(0)     # a peer may have gone: nothing is waited for


def run(work: Callable, world: int, *args: Any, ports: Any, timeout: float = 240) -> Any:
    """What rank 0 of `world` processes found, or who failed."""
    folder = Path(f"/tmp/flambeau-nccl-{os.getpid()}")
    folder.mkdir(exist_ok=True)
    context = multiprocessing.get_context("spawn")
    outs = [folder / str(rank) for rank in range(world)]
    for out in outs:
        out.unlink(missing_ok=True)
    processes = [context.Process(target=_main, args=(work, args, rank, world, ports, str(out), timeout)) for rank, out in enumerate(outs)]
    for process in processes:
        process.start()
    deadline = time.monotonic() + timeout
    for process in processes:
        process.join(max(deadline - time.monotonic(), 0.1))
    for process in processes:
        process.kill()
    found = [json.loads(out.read_text()) if out.exists() else {"failed": f"not done in {timeout:.0f} s:\n{_stacks(out)}"}
             for out in outs]
    return next((f for f in found if "failed" in f), found[0])


def _stacks(out: Path) -> str:
    stacks = Path(f"{out}.stacks")
    return stacks.read_text()[-3000:] if stacks.exists() else ""


TRAININGS = {"ddp": ddp, "fsdp": fsdp}


def _plan(options: argparse.Namespace) -> list[tuple[str, int, str, str]]:
    """(training, GPUs, mode, library) of each row that is asked for; the libraries in turns."""
    rows = [(name, world, mode, library) for name in TRAININGS if name in options.works
            for world in ((1, options.gpus) if name == "ddp" else (options.gpus,))
            for mode in options.modes for library in options.libraries]
    return [row for row in rows if (not options.world or row[1] in options.world) and _wanted(" ".join(map(str, row)), options.only)]


def _wanted(row: str, only: list[str]) -> bool:
    words = row.replace(",", " ").split()
    return not only or any(all(word in words for word in text.split()) for text in only)


def _collectives(options: argparse.Namespace, left: Callable[[], float]) -> None:
    rows = run(collectives, options.gpus, options.libraries, options.only, ports=free_ports(len(options.libraries)), timeout=left())
    if "failed" in rows:
        print(rows["failed"], flush=True)
        return
    print(f"| {options.gpus} GPUs, ms | {' | '.join(options.libraries)} | ratio |\n{'|---' * (len(options.libraries) + 2)}|")
    for name, times in rows.items():
        first, last = times[options.libraries[0]], times[options.libraries[-1]]
        print(f"| {name} | {' | '.join(f'{t:.4f}' for t in times.values())} | {first / last:.2f} |", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--works", nargs="*", default=["collectives", *TRAININGS])
    parser.add_argument("--libraries", nargs="*", default=["flambeau", "torch"])
    parser.add_argument("--modes", nargs="*", default=["eager", "compile"])
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--world", nargs="*", type=int, help="training on so many GPUs alone, of 1 and --gpus")
    parser.add_argument("--only", nargs="*", default=[], help="rows that have all words of one of these: '4 KB', 'ddp 2 compile'")
    parser.add_argument("--seconds", type=float, default=3600, help="after which nothing more begins, and what runs is ended")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds

    def left() -> float:
        return deadline - time.monotonic()

    if "collectives" in options.works:
        _collectives(options, left)
    plan = _plan(options)
    if plan:
        print("\n| training | GPUs | library | mode | step ms | peak GiB | first step s | losses |\n|---|---|---|---|---|---|---|---|")
    for name, world, mode, library in plan:
        if left() < 0:
            found = {"failed": "no time left"}
        else:
            found = run(TRAININGS[name], world, library, mode, ports=free_ports(1)[0], timeout=min(left(), 240))
        cells = f"failed: {found['failed']}" if "failed" in found else (
            f"{found['step ms']:.2f} | {found['peak GiB']:.2f} | {found['first step s']:.1f} | "
            f"{' '.join(f'{x:.4f}' for x in found['losses'])}")
        print(f"| {name} | {world} | {library} | {mode} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
