"""Train a character-level GPT on the English that every Python carries, eagerly and then through `torch.compile`.

    python -m flambeau run examples/char_gpt.py          on Flambeau
    python examples/char_gpt.py                          on PyTorch: the same file, unchanged

Both trainings start from the same weights and see the same batches, so their loss curves lie on one another and only
the step times differ. Leaves `loss.svg` (and, on Flambeau, the compiler's `report.html`) in `--out`.
"""

from __future__ import annotations

import argparse
import atexit
import math
import os
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

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
    """Characters in, logits of the next character out; with targets also their mean cross entropy."""

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


class Corpus:
    """The text, its alphabet, and random batches of (characters, next characters)."""

    def __init__(self, text: str) -> None:
        self.alphabet = sorted(set(text))
        self.number = {char: i for i, char in enumerate(self.alphabet)}
        self.ids = torch.tensor(self.encode(text))

    def encode(self, text: str) -> list[int]:
        return [self.number[char] for char in text]

    def decode(self, ids: list[int]) -> str:
        return "".join(self.alphabet[i] for i in ids)

    def batch(self, size: int, context: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(self.ids) - context, (size,), generator=generator).tolist()
        rows = torch.stack([self.ids[start : start + context + 1] for start in starts])
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def python_manual() -> str:
    """The reference manual's topics, as `help()` prints them, plain ASCII."""
    return "\n\n".join(topics.values()).encode("ascii", "ignore").decode()


def make_optimizer(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """AdamW that decays matrices only: biases, norms' gains and the like are left alone."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))


def learning_rate(step: int, steps: int, peak: float, warmup: int = 20) -> float:
    """Linear warmup to `peak`, then a cosine down to a tenth of it."""
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, progress))))


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


def train(title: str, corpus: Corpus, args: argparse.Namespace, steps: int, minutes: float, compiled: bool
          ) -> tuple[GPT, History]:  # fmt: skip
    """Train a fresh GPT for `steps` steps of a schedule that is `args.steps` long, or until `minutes` have passed."""
    torch.manual_seed(args.seed)
    model = GPT(Config(len(corpus.alphabet), args.layers, args.heads, args.width, args.context))
    optimizer = make_optimizer(model, args.lr)
    batches = torch.Generator().manual_seed(args.seed)
    step_model = torch.compile(model) if compiled else model
    history = History([], [])
    progress = Progress(steps, title)
    for step in progress:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args.steps, args.lr)
        ids, targets = corpus.batch(args.batch, args.context, batches)
        start = time.perf_counter()
        history.losses.append(train_step(step_model, optimizer, ids, targets))
        history.seconds.append(time.perf_counter() - start)
        progress.note = f"loss {history.losses[-1]:.3f}  {1000 * history.step_seconds:.0f} ms a step"
        if sum(history.seconds) > 60 * minutes:
            progress.stop = True
    return model, history


@torch.no_grad()
def generate(model: GPT, corpus: Corpus, prompt: str, length: int, seed: int, temperature: float = 0.8) -> str:
    """`prompt` continued by `length` sampled characters."""
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
    folder = tempfile.mkdtemp(prefix="char-gpt-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for variable in ("FLAMBEAU_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        os.environ[variable] = folder


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1000, help="steps of the compiled training")
    parser.add_argument("--eager-steps", type=int, default=60, help="steps of the eager training before it")
    parser.add_argument("--minutes", type=float, default=4.0, help="stop training after this long in all")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--characters", type=int, default=300, help="length of the text to generate")
    parser.add_argument("--out", type=Path, default=Path("out/char_gpt"))
    parser.add_argument("--smoke", action="store_true", help="a tiny model for a few steps: does it run at all?")
    args = parser.parse_args()
    if args.smoke:
        tiny = {"layers": 2, "heads": 2, "width": 32, "context": 32, "batch": 4, "steps": 8, "eager_steps": 6}
        vars(args).update(tiny, characters=40)
    return args


def main() -> None:
    args = parse_args()
    corpus = Corpus(python_manual())
    print(f"torch is {torch.__name__} {torch.__version__}; {torch.get_num_threads()} threads; "
          f"{len(corpus.ids):,} characters, {len(corpus.alphabet)} different")  # fmt: skip

    use_empty_cache()
    report = args.out / "report.html"
    os.environ["FLAMBEAU_REPORT"] = str(report)  # Flambeau's compiler writes there what it made; PyTorch's knows no such thing
    os.environ["FLAMBEAU_REPORT"] = str(args.out / "report.html")  # where Flambeau's compiler leaves its account
    model, eager = train("eager", corpus, args, args.eager_steps, args.minutes / 4, compiled=False)
    parameters = sum(p.numel() for p in model.parameters())
    model, compiled = train("compiled", corpus, args, args.steps, 3 * args.minutes / 4, compiled=True)

    shared = min(len(eager.losses), len(compiled.losses))
    apart = max(abs(a - b) for a, b in zip(eager.losses[:shared], compiled.losses[:shared], strict=True))
    print(f"\nmodel      {args.layers} layers, width {args.width}, context {args.context}: {parameters:,} parameters")
    print(f"eager      {1000 * eager.step_seconds:8.1f} ms a step   loss {eager.losses[-1]:.3f} after {len(eager.losses)}")
    done = len(compiled.losses)
    print(f"compiled   {1000 * compiled.step_seconds:8.1f} ms a step   loss {compiled.losses[-1]:.3f} after {done}")
    print(f"speedup    {eager.step_seconds / compiled.step_seconds:8.2f} x")
    cold = compiled.seconds[0] - compiled.step_seconds
    print(f"compiling  {cold:8.1f} s   (cold: what the first step took above an ordinary one)")
    print(f"the two loss curves differ by at most {apart:.1e} over their first {shared} steps")

    print(f"\n{generate(model, corpus, 'The ', args.characters, args.seed)}\n")
    write_loss_plot(args.out / "loss.svg", {"eager": eager.losses, "compiled": compiled.losses}, "Character GPT: loss")
    print(f"wrote {args.out / 'loss.svg'}" + (f" and {report}" if report.exists() else ""))


if __name__ == "__main__":
    main()
