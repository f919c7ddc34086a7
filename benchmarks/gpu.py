"""Figures on one NVIDIA GPU, Flambeau beside PyTorch: `python benchmarks/gpu.py`.

Each side runs in a process of its own, one after the other on the otherwise idle GPU (`python benchmarks/gpu.py worker SIDE`).
Times are medians of synchronised repetitions, in milliseconds.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SIDES = ("torch eager", "torch compile", "flambeau eager", "flambeau compile")


def _gpt2(lib: Any) -> Any:
    """GPT-2 small (Radford et al. 2019): 12 layers, width 768, 12 heads, context 1024, vocabulary 50257."""
    nn, functional = lib.nn, lib.nn.functional
    width, heads, layers, context, vocab = 768, 12, 12, 1024, 50257

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            b, t, c = x.shape
            q, k, v = (z.view(b, t, heads, c // heads).transpose(1, 2) for z in self.qkv(self.ln1(x)).split(c, dim=2))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
            return x + self.down(functional.gelu(self.up(self.ln2(x)), approximate="tanh"))

    class GPT2(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocab, width), nn.Embedding(context, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
            self.head.weight = self.tokens.weight

        def forward(self, ids: Any, targets: Any = None) -> Any:
            x = self.tokens(ids) + self.positions(lib.arange(ids.shape[1], device=ids.device))
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.norm(x))
            if targets is None:
                return logits
            return functional.cross_entropy(logits.view(-1, vocab), targets.view(-1))

    return GPT2()


def _resnet50(lib: Any) -> Any:
    """ResNet-50 (He et al. 2015) for 224 x 224 images and 1000 classes, strides in the 3 x 3 convolutions."""
    nn = lib.nn

    def conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> Any:
        return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)

    class Bottleneck(nn.Module):
        def __init__(self, inputs: int, width: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = conv(inputs, width, 1), nn.BatchNorm2d(width)
            self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
            self.conv3, self.bn3 = conv(width, 4 * width, 1), nn.BatchNorm2d(4 * width)
            self.relu, self.down = nn.ReLU(inplace=True), None
            if stride != 1 or inputs != 4 * width:
                self.down = nn.Sequential(conv(inputs, 4 * width, 1, stride), nn.BatchNorm2d(4 * width))

        def forward(self, x: Any) -> Any:
            y = self.relu(self.bn1(self.conv1(x)))
            y = self.relu(self.bn2(self.conv2(y)))
            y = self.bn3(self.conv3(y))
            return self.relu(y + (x if self.down is None else self.down(x)))

    blocks, inputs = [], 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for k in range(count):
            blocks.append(Bottleneck(inputs, width, stride if k == 0 else 1))
            inputs = 4 * width
    stem = [conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def _same_weights(lib: Any, model: Any) -> Any:
    """The model with weights that are the same on every side."""
    rng = np.random.default_rng(0)
    with lib.no_grad():
        for p in model.parameters():
            if p.ndim > 1:
                p.copy_(lib.tensor(rng.standard_normal(tuple(p.shape)).astype(np.float32) * (2 / p[0].numel()) ** 0.5))
    return model.cuda()


def _images(lib: Any) -> tuple[Any, Any]:
    """64 images and their classes, the same on every side."""
    rng = np.random.default_rng(1)
    images = rng.standard_normal((64, 3, 224, 224)).astype(np.float32)
    return lib.tensor(images).cuda(), lib.tensor(rng.integers(0, 1000, 64)).cuda()


def _median(step: Callable[[], Any], sync: Callable[[], None], repeats: int, warm: int = 3) -> float:
    for _ in range(warm):
        step()
    sync()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        step()
        sync()
        times.append(time.perf_counter() - started)
    return sorted(times)[len(times) // 2] * 1e3


LOSSES = "losses"       # of every step, compared with the first side's


def _training(lib: Any, sync: Callable, wrap: Callable, results: dict) -> None:
    """GPT-2 small, batch 8, context 1024, bf16 autocast: forward, backward and AdamW; 50 steps over four batches, then the clock."""
    model = _same_weights(lib, _gpt2(lib))
    run = wrap(model)
    optimizer = lib.optim.AdamW(model.parameters(), lr=1e-4)
    rng = np.random.default_rng(1)
    batches = [[lib.tensor(rng.integers(0, 50257, (8, 1024))).cuda() for _ in range(2)] for _ in range(4)]

    def step(k: int = 0) -> Any:
        optimizer.zero_grad()
        with lib.autocast("cuda", dtype=lib.bfloat16):
            loss = run(*batches[k % len(batches)])
        loss.backward()
        optimizer.step()
        return loss.detach()

    started = time.perf_counter()
    losses = [float(step())]
    sync()
    results["GPT-2 training: first step s"] = time.perf_counter() - started
    losses += [float(step(k)) for k in range(1, 50)]
    results["GPT-2 training step ms"] = _median(step, sync, 10)
    results["GPT-2 training: loss after 1, 10, 50 steps"] = " ".join(f"{losses[k]:.4f}" for k in (0, 9, 49))
    results[LOSSES] = losses
    lib.cuda.reset_peak_memory_stats()
    step()
    sync()
    results["GPT-2 training: peak GiB in tensors"] = lib.cuda.max_memory_allocated() / 2**30


def _inference(lib: Any, sync: Callable, wrap: Callable, results: dict, name: str = "GPT-2 inference (1, 128) ms") -> None:
    """GPT-2 small, batch 1, context 128, bf16."""
    model = _same_weights(lib, _gpt2(lib)).bfloat16().eval()
    run = wrap(model)
    ids = lib.randint(0, 50257, (1, 128), device="cuda")
    with lib.no_grad():
        results[name] = _median(lambda: run(ids), sync, 30)


def _autotuned(lib: Any, sync: Callable, wrap: Callable, results: dict) -> None:
    """The same in mode max-autotune (not among the works unless asked for: torch tunes for minutes)."""
    _inference(lib, sync, wrap, results, "GPT-2 inference (1, 128), max-autotune ms")


def _resnet_inference(lib: Any, sync: Callable, wrap: Callable, results: dict) -> None:
    """ResNet-50, batch 64, bf16."""
    model = _same_weights(lib, _resnet50(lib)).bfloat16().eval()
    run = wrap(model)
    images = _images(lib)[0].bfloat16()
    with lib.no_grad():
        started = time.perf_counter()
        run(images)
        sync()
        results["ResNet-50 inference: first call s"] = time.perf_counter() - started
        results["ResNet-50 inference (64) ms"] = _median(lambda: run(images), sync, 20)


def _resnet_training(lib: Any, sync: Callable, wrap: Callable, results: dict) -> None:
    """ResNet-50, batch 64, bf16 autocast: forward, backward and SGD with momentum."""
    model = _same_weights(lib, _resnet50(lib))
    run, loss_of = wrap(model), lib.nn.CrossEntropyLoss()
    optimizer = lib.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    images, classes = _images(lib)

    def step() -> Any:
        optimizer.zero_grad()
        with lib.autocast("cuda", dtype=lib.bfloat16):
            loss = loss_of(run(images), classes)
        loss.backward()
        optimizer.step()
        return loss

    started = time.perf_counter()
    losses = [float(step())]
    sync()
    results["ResNet-50 training: first step s"] = time.perf_counter() - started
    losses += [float(step()) for _ in range(9)]
    results["ResNet-50 training step (64) ms"] = _median(step, sync, 20)
    results["ResNet-50 training: losses"] = " ".join(f"{x:.3f}" for x in losses)
    _memory(lib, step, "ResNet-50 training", results)


def _memory(lib: Any, step: Callable[[], Any], name: str, results: dict) -> None:
    """GiB in use at the most during one more step, and what the side's allocator holds by then."""
    gibibyte = 2**30
    if lib.__name__ == "torch":
        lib.cuda.reset_peak_memory_stats()
        step()
        results[f"{name}: peak GiB in use"] = lib.cuda.max_memory_allocated() / gibibyte
        results[f"{name}: GiB held"] = lib.cuda.memory_reserved() / gibibyte
        return
    import cupy
    pool = cupy.get_default_memory_pool()

    class Watch(cupy.cuda.MemoryHook):
        name, most = "watch", 0

        def malloc_postprocess(self, **kwargs: Any) -> None:
            self.most = max(self.most, pool.used_bytes())

    with Watch() as watch:
        step()
    results[f"{name}: peak GiB in use"] = watch.most / gibibyte
    results[f"{name}: GiB held"] = pool.total_bytes() / gibibyte


def _kernels(lib: Any, sync: Callable, wrap: Callable, results: dict) -> None:
    """Fused kernels over about 1 GB of traffic: share of the copy bandwidth reached."""
    functional = lib.nn.functional
    x = lib.randn(32768, 4096, device="cuda")
    w = lib.randn(4096, device="cuda")
    nbytes = 2 * x.numel() * 4
    copy = nbytes / _median(lambda: x.clone(), sync, 20)
    works = {
        "softmax": lambda x: functional.softmax(x, -1),
        "layer_norm": lambda x: functional.layer_norm(x, (4096,), w, w),
        "gelu + bias": lambda x: functional.gelu(x + w),
    }
    results["copy TB/s"] = copy / 1e9
    for name, fn in works.items():
        run = wrap(fn)
        with lib.no_grad():
            results[f"{name} / copy"] = nbytes / _median(lambda run=run: run(x), sync, 20) / copy
    logits = lib.randn(16384, 16384, device="cuda")
    classes = lib.randint(0, 16384, (16384,), device="cuda")
    run = wrap(lambda logits, classes: functional.cross_entropy(logits, classes))
    with lib.no_grad():     # reads 1 GB, and writes next to nothing
        results["cross_entropy / copy"] = logits.numel() * 4 / _median(lambda: run(logits, classes), sync, 20) / copy


WORKS = {
    "kernels": _kernels, "inference": _inference, "autotuned": _autotuned, "training": _training,
    "resnet_inference": _resnet_inference, "resnet_training": _resnet_training,
}

MODES = {"inference": "reduce-overhead", "autotuned": "max-autotune"}     # of torch.compile; the others run in the default one


def worker(side: str, works: list[str]) -> None:
    """Run the works on one side and print the results as JSON."""
    library, mode = side.split()
    if library == "torch":
        import torch as lib
        sync = lib.cuda.synchronize
    else:
        import cupy

        import flambeau as lib
        sync = cupy.cuda.Device().synchronize
    results: dict[str, Any] = {}
    for name in works:
        mode_of = MODES.get(name)
        kwargs = {"mode": mode_of} if mode_of else {}
        wrap = (lambda m, kwargs=kwargs: lib.compile(m, **kwargs)) if mode == "compile" else (lambda m: m)
        try:
            WORKS[name](lib, sync, wrap, results)
        except Exception as error:
            results[f"{name} failed"] = f"{type(error).__name__}: {error}"[:1500]
    print("RESULT " + json.dumps(results))


def _cell(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.3f}" if abs(value) >= 0.01 else f"{value:.2g}"


def main() -> None:
    """All sides one after the other, then the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--works", nargs="*", default=[name for name in WORKS if name != "autotuned"])
    parser.add_argument("--sides", nargs="*", default=list(SIDES))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    table: dict[str, dict] = {}
    for side in options.sides:
        ran = subprocess.run([sys.executable, __file__, "worker", side, *options.works], capture_output=True, text=True, check=False)
        line = next((x for x in ran.stdout.splitlines() if x.startswith("RESULT ")), None)
        table[side] = json.loads(line[7:]) if line else {"failed": ran.stderr[-1500:]}
    wanted = next(iter(table.values())).get(LOSSES)
    for found in table.values():
        losses = found.pop(LOSSES, None)
        if losses and wanted:
            found["GPT-2 training: largest loss difference to the first side"] = max(abs(a / b - 1) for a, b in zip(losses, wanted))
    rows = list(dict.fromkeys(name for found in table.values() for name in found))
    lines = ["| work | " + " | ".join(table) + " |", "|---" * (len(table) + 1) + "|"]
    for row in rows:
        cells = [found.get(row, "") for found in table.values()]
        lines.append(f"| {row} | " + " | ".join(map(_cell, cells)) + " |")
    text = f"One GPU, {datetime.date.today()}\n\n" + "\n".join(lines) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "worker":
        worker(sys.argv[2], sys.argv[3:])
    else:
        main()
