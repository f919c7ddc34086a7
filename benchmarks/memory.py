"""Peak memory of GPT-2 small, BERT base and ResNet-18 beside torch's, in MiB: inference and training, eager and compiled.

    python -m benchmarks.memory [MODEL ...] [--libraries LIBRARY ...]

Each cell is a process of its own that imports the library, makes the model with random weights and runs a few steps; the figure is
the most memory it had at any time (ru_maxrss), of which the parameters are 475 MiB (GPT-2, 124M), 418 MiB (BERT, 110M) and 45 MiB
(ResNet-18). `after`
is what it still had with the model alive, the results gone and the garbage collected. The compiler's processes (g++) are not counted,
on either side.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

STEPS = 4
WORKS = ("inference", "training")
Run = Callable[[Any, Any], Any]     # (model, data) -> the loss, or the results


def _language(model_class: str, config_class: str, vocabulary: int, torch: Any, training: bool) -> tuple[Any, Any, Run]:
    """A model of transformers with random weights, tokens for it, and its call."""
    for module in ("torchvision", "torchaudio"):  # not needed, and built for one release of torch each
        sys.modules[module] = None  # type: ignore[assignment]
    transformers = importlib.import_module("transformers")
    model = getattr(transformers, model_class)(getattr(transformers, config_class)())
    tokens = torch.randint(0, vocabulary, (4, 128) if training else (2, 128))
    return model, tokens, lambda m, ids: m(input_ids=ids, labels=ids).loss if training else m(input_ids=ids)


def _resnet(torch: Any, training: bool) -> tuple[Any, Any, Run]:
    """ResNet-18, images and labels."""
    model = importlib.import_module("benchmarks.models").ResNet18()
    images, labels = torch.randn(16 if training else 4, 3, 224, 224), torch.arange(16)
    loss = torch.nn.functional.cross_entropy
    return model, images, lambda m, x: loss(m(x), labels) if training else m(x)


MODELS: dict[str, Callable[[Any, bool], tuple[Any, Any, Run]]] = {
    "gpt2": partial(_language, "GPT2LMHeadModel", "GPT2Config", 50257),
    "bert": partial(_language, "BertForMaskedLM", "BertConfig", 30522),
    "resnet18": _resnet,
}


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _step(torch: Any, run: Run, model: Any, data: Any, optimizer: Any) -> None:
    if optimizer is None:
        with torch.no_grad():
            run(model, data)
        return
    optimizer.zero_grad()
    run(model, data).backward()
    optimizer.step()


def measure(library: str, name: str, work: str, compiled: bool) -> dict[str, float]:
    """One cell of the table, in this process."""
    if library == "flambeau":
        importlib.import_module("flambeau.as_torch")
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    imported = _resident()
    original, data, run = MODELS[name](torch, work == "training")
    made = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    original.train(work == "training")
    model = torch.compile(original) if compiled else original
    optimizer = torch.optim.AdamW(original.parameters()) if work == "training" else None
    for _ in range(STEPS):
        _step(torch, run, model, data, optimizer)
    gc.collect()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {name: round(n / 2**20) for name, n in (("imported", imported), ("made", made), ("peak", peak), ("after", _resident()))}


def cell(library: str, name: str, work: str, compiled: bool) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.memory", "--cell", json.dumps([library, name, work, compiled])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{library} {name} {work} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--libraries", nargs="*", default=["flambeau", "torch"])
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        print(json.dumps(measure(*json.loads(options.cell))))
        return
    print("| work | library | imported | model made | peak | after | peak, ratio |\n|---|---|---|---|---|---|---|", flush=True)
    for name in options.models:
        for work in WORKS:
            for compiled in (False, True):
                found = {library: cell(library, name, work, compiled) for library in options.libraries}
                for library, sizes in found.items():
                    ratio = f"{sizes['peak'] / found['torch']['peak']:.2f}" if library != "torch" and "torch" in found else ""
                    print(f"| {name} {work}, {'compiled' if compiled else 'eager'} | {library} | {sizes['imported']} | {sizes['made']} | "
                          f"{sizes['peak']} | {sizes['after']} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
