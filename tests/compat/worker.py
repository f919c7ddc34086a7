"""Run one case and write what came out, with PyTorch or with Flambeau in its place.

    python worker.py torch|flambeau CASE WEIGHTS OUT [--compile] [--size N]

Under torch the weights are drawn and written to WEIGHTS (torch.save); under flambeau they are read. OUT gets an .npz: outputs in
eval mode, loss, gradients, buffers, and the parameters after one AdamW step.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))


def arrays_of(name: str, value: Any, found: dict[str, np.ndarray], torch: Any) -> None:
    """Every tensor in an output, by its path."""
    if isinstance(value, torch.Tensor):
        found[name] = value.detach().numpy()
    elif isinstance(value, dict):
        for key, item in value.items():
            arrays_of(f"{name}.{key}", item, found, torch)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            arrays_of(f"{name}.{i}", item, found, torch)


def declare_torchvision_operators(torch: Any) -> None:
    """torchvision's compiled part fits one release and build of PyTorch; without it, its Python part only needs these names."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    globals()["_keep_alive"] = library


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=("torch", "flambeau"))
    parser.add_argument("case")
    parser.add_argument("weights")
    parser.add_argument("out")
    parser.add_argument("--compile", nargs="?", const="inductor")
    parser.add_argument("--steps", type=int, default=1)
    options = parser.parse_args()
    if options.library == "flambeau":
        import flambeau.as_torch  # noqa: F401
    import torch

    if options.library == "torch":
        declare_torchvision_operators(torch)
    from cases import CASES

    torch.manual_seed(0)
    torch.set_num_threads(2)
    case = CASES[options.case]
    model = case.build()
    if options.library == "torch":
        torch.save(model.state_dict(), options.weights)
    else:
        model.load_state_dict(torch.load(options.weights))
    arrays = case.inputs(np.random.default_rng(0))
    inputs = {name: torch.from_numpy(a) for name, a in arrays.items()}
    found: dict[str, np.ndarray] = {}
    times: dict[str, float] = {}

    model.eval()
    run = torch.compile(model, backend=options.compile) if options.compile else model
    start = time.perf_counter()
    with torch.no_grad():
        arrays_of("eval", run(**inputs), found, torch)
    times["eval"] = time.perf_counter() - start

    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    start = time.perf_counter()
    for step in range(options.steps):
        optimizer.zero_grad()
        out = run(**inputs)
        loss = case.loss(out)
        loss.backward()
        if step == 0:
            found["loss"] = loss.detach().numpy().copy()
            for name, p in model.named_parameters():
                if p.grad is not None:
                    found[f"grad.{name}"] = p.grad.numpy().copy()
        optimizer.step()
    times["train"] = time.perf_counter() - start
    for name, p in model.named_parameters():
        found[f"stepped.{name}"] = p.detach().numpy()
    for name, b in model.named_buffers():
        found[f"buffer.{name}"] = b.numpy()
    np.savez(options.out, **found)
    print({k: round(v, 3) for k, v in times.items()})


if __name__ == "__main__":
    main()
