"""What is timed: each work, built once in a worker process, then told to make one step after the other.

Weights and batches come from NumPy's seeded generator, never from a library's own, so that every side of a comparison
computes the same thing.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import torch
from torch import nn

from .models import ResNet18

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import gpt as example

ADDS = 200
GPT = {"layers": 6, "heads": 6, "width": 384, "context": 256}
BATCH = 8

Step = Callable[[], float | None]


def set_weights(model: nn.Module, seed: int = 0) -> None:
    """Overwrite matrices and kernels with numbers of the size that is usual, biases with zero; norms' gains are one."""
    random = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
            elif parameter.dim() >= 2:
                fan_in = int(np.prod(tuple(parameter.shape)[1:]))
                scale = (2 / fan_in) ** 0.5 if parameter.dim() == 4 else 0.02
                values = random.standard_normal(tuple(parameter.shape), dtype=np.float32) * np.float32(scale)
                parameter.copy_(torch.from_numpy(values))


def maybe_compiled(thing: Any, compiled: bool) -> Any:
    return torch.compile(thing) if compiled else thing


def gpt(corpus: Any) -> Any:
    model = example.GPT(example.Config(len(corpus.alphabet), **GPT))
    set_weights(model)
    return model


def gpt_batch(corpus: Any, random: np.random.Generator) -> tuple[Any, Any]:
    starts = random.integers(0, len(corpus.ids) - GPT["context"] - 1, BATCH).tolist()
    rows = torch.stack([corpus.ids[start : start + GPT["context"] + 1] for start in starts])
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def characters() -> Any:
    """The reference manual's topics, as `help()` prints them, by character."""
    return example.Corpus("\n\n".join(topics.values()).encode("ascii", "ignore").decode(), split=list)


def gpt_train(compiled: bool) -> Step:
    corpus = characters()
    model = gpt(corpus)
    optimizer = example.make_optimizer(model, 1e-3)
    step_model = maybe_compiled(model, compiled)
    random = np.random.default_rng(1)
    steps = itertools.count()

    def step() -> float:
        step = next(steps)
        rate = example.learning_rate(step, step / 200, 1e-3)
        for group in optimizer.param_groups:
            group["lr"] = rate
        return example.train_step(step_model, optimizer, *gpt_batch(corpus, random))

    return step


def gpt_infer(compiled: bool) -> Step:
    corpus = characters()
    model = maybe_compiled(gpt(corpus).eval(), compiled)
    ids, _ = gpt_batch(corpus, np.random.default_rng(1))

    def step() -> float:
        with torch.no_grad():
            logits, _ = model(ids)
        return float(logits[0, 0, 0])

    return step


def _images() -> Any:
    return torch.from_numpy(np.random.default_rng(1).standard_normal((4, 3, 224, 224), dtype=np.float32))


def resnet_train(compiled: bool) -> Step:
    model = ResNet18()
    set_weights(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4)
    step_model = maybe_compiled(model, compiled)
    images, labels = _images(), torch.tensor([1, 20, 300, 999])

    def step() -> float:
        loss = nn.functional.cross_entropy(step_model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def resnet_infer(compiled: bool) -> Step:
    model = ResNet18()
    set_weights(model)
    model = maybe_compiled(model.eval(), compiled)
    images = _images()

    def step() -> float:
        with torch.no_grad():
            return float(model(images)[0, 0])

    return step


def add(compiled: bool) -> Step:
    """`ADDS` calls of a + b on four elements: what a call itself costs."""
    a, b = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([5.0, 6.0, 7.0, 8.0])
    add_them = maybe_compiled(lambda x, y: x + y, compiled)

    def step() -> None:
        for _ in range(ADDS):
            add_them(a, b)

    return step


WORKS: dict[str, Callable[[bool], Step]] = {
    "gpt_train": gpt_train,
    "gpt_infer": gpt_infer,
    "resnet_train": resnet_train,
    "resnet_infer": resnet_infer,
    "add": add,
}
