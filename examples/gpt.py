"""Train a small GPT on "Alice's Adventures in Wonderland" (Lewis Carroll, 1865), eagerly and then through `torch.compile`.

    python -m flambeau run examples/gpt.py          on Flambeau
    python examples/gpt.py                          on PyTorch: the same file, unchanged

The model's size and the schedule follow from the time that there is (`--seconds`) and from how fast the first steps are. Both
trainings start from the same weights and see the same batches, so their loss curves lie on one another and only the step times
differ. Leaves `loss.svg` (and, on Flambeau, the compiler's `report.html`) in `--out`.
"""

from __future__ import annotations

import argparse
import atexit
import math
import os
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from show import Progress, write_loss_plot
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """The shape of the model. `context` is the longest sequence that it can see."""

    vocabulary: int
    layers: int = 6
    heads: int = 6
    width: int = 384
    context: int = 256


class Attention(nn.Module):
    """Causal self-attention of several heads."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        if config.width % config.heads:
            raise ValueError(f"width {config.width} is not a multiple of {config.heads} heads")
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Pre-norm transformer block: x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.norm2 = nn.LayerNorm(config.width)
        self.mlp = nn.Sequential(
            nn.Linear(config.width, 4 * config.width), nn.GELU(), nn.Linear(4 * config.width, config.width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Pieces of text in, logits of the next piece out; with targets also their mean cross entropy."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.token = nn.Embedding(config.vocabulary, config.width)
        self.position = nn.Embedding(config.context, config.width)
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.apply(self._init)
        for block in self.blocks:  # keeps the residual stream's variance independent of depth (GPT-2)
            for layer in (block.attention.out, block.mlp[2]):
                nn.init.normal_(layer.weight, std=0.02 / math.sqrt(2 * config.layers))

    @staticmethod
    def _init(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, ids: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        x = self.token(ids) + self.position.weight[: ids.shape[1]]
        logits = self.head(self.norm(self.blocks(x)))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def words(text: str) -> list[str]:
    """The words of a text, each with the space before it, its marks and its ends of paragraphs."""
    return re.findall(r" ?[A-Za-z]+(?:['-][A-Za-z]+)*|\n| ?[^A-Za-z\s]+", text)


class Corpus:
    """A text in pieces (words, or with `split=list` characters), and random batches of (pieces, next pieces)."""

    def __init__(self, text: str, split: Callable[[str], Sequence[str]] = words) -> None:
        self.split = split
        pieces = split(text)
        self.alphabet = sorted(set(pieces))
        self.number = {piece: i for i, piece in enumerate(self.alphabet)}
        self.ids = torch.tensor([self.number[piece] for piece in pieces])

    def encode(self, text: str) -> list[int]:
        return [self.number[piece] for piece in self.split(text)]

    def decode(self, ids: list[int]) -> str:
        return "".join(self.alphabet[i] for i in ids)

    def batch(self, size: int, context: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(self.ids) - context, (size,), generator=generator).tolist()
        rows = torch.stack([self.ids[start : start + context + 1] for start in starts])
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def make_optimizer(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """AdamW that decays matrices only: biases, norms' gains and the like are left alone."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))


def learning_rate(step: int, done: float, peak: float, warmup: int = 20) -> float:
    """Linear warmup to `peak`; from two fifths of the training on (`done` of it) a cosine down to a twentieth."""
    if step < warmup:
        return peak * (step + 1) / warmup
    late = max(0.0, (done - 0.4) / 0.6)
    return peak * (0.05 + 0.475 * (1 + math.cos(math.pi * min(1.0, late))))


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, ids: Tensor, targets: Tensor) -> float:
    """One step of training; gives the loss before it."""
    _, loss = model(ids, targets)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


@dataclass
class History:
    """What a training run measured: the loss and the seconds of each step."""

    losses: list[float]
    seconds: list[float]

    @property
    def step_seconds(self) -> float:
        """The median, the first steps (compilation, warm-up) left out."""
        return statistics.median(self.seconds[min(3, len(self.seconds) - 1) :])


SIZES = ({"layers": 4, "heads": 4, "width": 256}, {"layers": 3, "heads": 4, "width": 192}, {"layers": 2, "heads": 4, "width": 128})
ENOUGH = 600    # steps after which the text reads well; a size that is too slow for them gives way to the next


def new_training(corpus: Corpus, args: argparse.Namespace) -> tuple[GPT, torch.optim.Optimizer]:
    """A model and its optimizer, the same at each call."""
    torch.manual_seed(args.seed)
    model = GPT(Config(len(corpus.alphabet), args.layers, args.heads, args.width, args.context))
    return model, make_optimizer(model, args.lr)


def fit_size(corpus: Corpus, args: argparse.Namespace) -> None:
    """Choose the largest model that this machine trains for `ENOUGH` steps in four fifths of the time, by two eager steps of each."""
    for size in SIZES:
        vars(args).update(size)
        model, optimizer = new_training(corpus, args)
        for _ in range(2):
            batch = corpus.batch(args.batch, args.context, torch.Generator().manual_seed(0))
            start = time.perf_counter()
            train_step(model, optimizer, *batch)
        if ENOUGH * (time.perf_counter() - start) < 0.8 * args.seconds:
            return


def train(title: str, corpus: Corpus, args: argparse.Namespace, steps: int, seconds: float, compiled: bool) -> tuple[GPT, History]:
    """Train a fresh GPT for at most so many steps and seconds; the schedule ends with whichever ends first."""
    model, optimizer = new_training(corpus, args)
    batches = torch.Generator().manual_seed(args.seed)
    step_model = torch.compile(model) if compiled else model
    history = History([], [])
    progress, begin = Progress(steps, title), time.perf_counter()
    for step in progress:
        elapsed = time.perf_counter() - begin
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, max(elapsed / seconds, step / steps) if compiled else 0.0, args.lr)
        ids, targets = corpus.batch(args.batch, args.context, batches)
        start = time.perf_counter()
        history.losses.append(train_step(step_model, optimizer, ids, targets))
        history.seconds.append(time.perf_counter() - start)
        progress.note = f"loss {history.losses[-1]:.3f}  {1000 * history.step_seconds:.0f} ms a step"
        left = seconds - (time.perf_counter() - begin)
        if step >= 5:
            progress.total = min(steps, step + 1 + max(0, int(left / history.step_seconds)))
        progress.stop = left <= 0
    return model, history


@torch.no_grad()
def generate(model: GPT, corpus: Corpus, prompt: str, length: int, seed: int, temperature: float = 0.8) -> str:
    """`prompt` continued by `length` sampled pieces."""
    model.eval()
    generator = torch.Generator().manual_seed(seed)
    ids = torch.tensor([corpus.encode(prompt)])
    for _ in range(length):
        logits, _ = model(ids[:, -model.config.context :])
        chances = F.softmax(logits[:, -1] / temperature, dim=-1)
        ids = torch.cat([ids, torch.multinomial(chances, 1, generator=generator)], dim=1)
    return corpus.decode(ids[0].tolist())


def use_empty_cache() -> None:
    """Have the compiler start from nothing, so that the seconds it takes are those of a first run."""
    folder = tempfile.mkdtemp(prefix="gpt-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for variable in ("FLAMBEAU_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        os.environ[variable] = folder


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=90, help="for both trainings together; the model's size follows from it")
    parser.add_argument("--layers", type=int, help="with --heads and --width: the model's size, whatever the time")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=4000, help="at most so many steps of the compiled training")
    parser.add_argument("--eager-steps", type=int, default=60, help="steps of the eager training before it")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--text", type=Path, default=Path(__file__).with_name("alice.txt"), help="another text to learn")
    parser.add_argument("--prompt", default="Alice")
    parser.add_argument("--words", type=int, default=120, help="length of the text to generate")
    parser.add_argument("--out", type=Path, default=Path("out/gpt"))
    parser.add_argument("--smoke", action="store_true", help="a tiny model for a few steps: does it run at all?")
    args = parser.parse_args()
    if args.smoke:
        tiny = {"layers": 2, "heads": 2, "width": 32, "context": 32, "batch": 4, "steps": 8, "eager_steps": 6}
        vars(args).update(tiny, words=20)
    return args


NEXT = """Three things to try next:
    python -m flambeau run examples/gpt.py --seconds 300 --text ANY.txt    longer, or on a text of your own
    python -m flambeau explain examples/gpt.py --smoke                     what was captured and compiled, and why not
    ./dev bench                                                            beside PyTorch on this machine"""


def main() -> None:
    args, begin = parse_args(), time.perf_counter()
    corpus = Corpus(args.text.read_text(encoding="utf-8"))
    print(f"torch is {torch.__package__} {torch.__version__}; {torch.get_num_threads()} threads; "
          f"{len(corpus.ids):,} words and marks, {len(corpus.alphabet):,} different")  # fmt: skip

    use_empty_cache()
    report = args.out / "report.html"
    os.environ["FLAMBEAU_REPORT"] = str(report)  # Flambeau's compiler writes there what it made; PyTorch's knows no such thing
    if args.layers is None:
        fit_size(corpus, args)
    model, eager = train("eager", corpus, args, args.eager_steps, args.seconds / 5, compiled=False)
    parameters = sum(p.numel() for p in model.parameters())
    left = max(args.seconds - (time.perf_counter() - begin), args.seconds / 2)
    model, compiled = train("compiled", corpus, args, args.steps, left, compiled=True)

    shared = min(len(eager.losses), len(compiled.losses))
    apart = max(abs(a - b) for a, b in zip(eager.losses[:shared], compiled.losses[:shared], strict=True))
    print(f"\nmodel      {args.layers} layers, width {args.width}, context {args.context}: {parameters:,} parameters")
    print(f"eager      {1000 * eager.step_seconds:8.1f} ms a step   loss {eager.losses[-1]:.3f} after {len(eager.losses)}")
    done = len(compiled.losses)
    print(f"compiled   {1000 * compiled.step_seconds:8.1f} ms a step   loss {compiled.losses[-1]:.3f} after {done}")
    print(f"speedup    {eager.step_seconds / compiled.step_seconds:8.2f} x")
    cold = compiled.seconds[0] - compiled.step_seconds
    print(f"first step {eager.seconds[0]:8.1f} s eager, {compiled.seconds[0]:.1f} s compiled, of which {cold:.1f} s are the compiler's")
    print(f"the two loss curves differ by at most {apart:.1e} over their first {shared} steps")

    print(f"\n{generate(model, corpus, args.prompt, args.words, args.seed).strip()}\n")
    write_loss_plot(args.out / "loss.svg", {"eager": eager.losses, "compiled": compiled.losses}, "A small GPT: loss")
    print(f"wrote {args.out / 'loss.svg'}" + (f" and {report}" if report.exists() else "") + f"\n\n{NEXT}")


if __name__ == "__main__":
    main()
