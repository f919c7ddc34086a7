"""Run cases and write what came out, with PyTorch or with Flambeau in its place.

    python worker.py torch|flambeau FOLDER CASE... [--compile BACKEND [--breaks]] [--only eval|train] [--double]

Under torch the weights are drawn and written to FOLDER/CASE.pt (torch.save); under flambeau they are read from there.
FOLDER/CASE.LIBRARY[.BACKEND][.double].npz gets the outputs in eval mode, and of one training step the loss, the gradients, the
buffers and the parameters after AdamW. One line is printed for each case, "CASE ok SECONDS" or "CASE failed ERROR".
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
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


def without_dropout(module: Any) -> None:
    """The two libraries draw other random numbers."""
    for name in ("p", "drop_prob", "drop_rate"):
        if isinstance(getattr(module, name, None), float) and "Drop" in type(module).__name__:
            setattr(module, name, 0.0)


def run_case(torch: Any, case: Any, weights: Path, options: argparse.Namespace) -> dict[str, np.ndarray]:
    """Everything to compare."""
    torch.manual_seed(0)
    model = case.build()
    if options.library == "torch" and not options.compile:
        torch.save(model.state_dict(), weights)
    else:
        model.load_state_dict(torch.load(weights))
    model.apply(without_dropout)
    inputs = {name: torch.from_numpy(a) for name, a in case.inputs(np.random.default_rng(0)).items()}
    if options.double:
        model.double()
        inputs = {name: t.double() if t.is_floating_point() else t for name, t in inputs.items()}
    run = torch.compile(model, backend=options.compile, fullgraph=not options.breaks) if options.compile else model
    found: dict[str, np.ndarray] = {}
    if options.only != "train":
        model.eval()
        with torch.no_grad():
            arrays_of("eval", run(**inputs), found, torch)
        if case.generates and not options.compile:
            arrays_of("generate", generated(torch, model, inputs), found, torch)
    if options.only != "eval":
        train(torch, case, model, run, inputs, found)
    return found


def generated(torch: Any, model: Any, inputs: dict) -> Any:
    """Tokens by greedy search with a cache of keys and values; drawing with one seed twice must give one answer."""
    prompt = {name: t for name, t in inputs.items() if name != "labels"}
    settings = {"max_new_tokens": 8, "pad_token_id": 0, "eos_token_id": None}
    drawn = []
    for _ in range(2):
        torch.manual_seed(3)
        drawn.append(model.generate(**prompt, do_sample=True, top_k=20, **settings))
    assert torch.equal(*drawn), "the same seed drew other tokens"
    return model.generate(**prompt, do_sample=False, **settings)


def train(torch: Any, case: Any, model: Any, run: Any, inputs: dict, found: dict[str, np.ndarray]) -> None:
    """One step of AdamW."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss = case.loss(run(**inputs))
    loss.backward()
    found["loss"] = loss.detach().numpy()
    for name, p in model.named_parameters():
        if p.grad is not None:
            found[f"grad.{name}"] = p.grad.numpy().copy()
    optimizer.step()
    for name, p in model.named_parameters():
        found[f"stepped.{name}"] = p.detach().numpy()
    for name, b in model.named_buffers():
        found[f"buffer.{name}"] = (b.float() if b.dtype is torch.bfloat16 else b).numpy()


def modules_of_pytorch() -> list[str]:
    """What was imported from an installed PyTorch."""
    files = {name: getattr(module, "__file__", None) or "" for name, module in list(sys.modules.items())}
    return sorted(name for name, file in files.items() if f"{os.sep}site-packages{os.sep}torch{os.sep}" in file)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=("torch", "flambeau"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--compile", metavar="BACKEND")
    parser.add_argument("--breaks", action="store_true", help="compile what has graph breaks too")
    parser.add_argument("--only", choices=("eval", "train"))
    parser.add_argument("--double", action="store_true", help="in float64, where rounding does not flip a ReLU")
    options = parser.parse_args()
    if options.library == "flambeau":
        import flambeau.as_torch  # noqa: F401
    import torch
    if options.library == "torch":
        declare_torchvision_operators(torch)
    from cases import CASES

    torch.set_num_threads(2)
    for name in options.cases:
        start = time.perf_counter()
        try:
            found = run_case(torch, CASES[name], options.folder / f"{name}.pt", options)
            suffix = (f".{options.compile}" if options.compile else "") + (".double" if options.double else "")
            np.savez(options.folder / f"{name}.{options.library}{suffix}.npz", **found)
        except Exception as error:
            traceback.print_exc()
            print(name, "failed", f"{type(error).__name__}: {error}".splitlines()[0], flush=True)
        else:
            print(name, "ok", f"{time.perf_counter() - start:.2f}", flush=True)
    if options.library == "flambeau" and modules_of_pytorch():
        sys.exit(f"PyTorch itself was imported: {modules_of_pytorch()[:5]}")


if __name__ == "__main__":
    main()
