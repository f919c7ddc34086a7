"""Draw digits from noise: a denoising diffusion model (Ho, Jain and Abbeel 2020) of scikit-learn's scanned digits, 8 by 8 pixels.

    python -m flambeau run examples/digits_diffusion.py          on Flambeau; `python examples/digits_diffusion.py` on PyTorch
    ... --compile                                                the training step through torch.compile

The network is told which digit it is to draw. Leaves `loss.svg`, and `digits.png`: a row of drawings of each digit, in `--out`.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from show import Progress, write_loss_plot, write_picture
from sklearn.datasets import load_digits
from torch import Tensor, nn

SIDE, DIGITS = 8, 10


class Schedule:
    """How much of an image is left after each of `steps` steps of noise (the cosine of Nichol and Dhariwal 2021)."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        angle = (torch.arange(steps + 1) / steps + 0.008) / 1.008 * math.pi / 2
        left = angle.cos().square() / angle[0].cos().square()
        self.beta = (1 - left[1:] / left[:-1]).clamp(max=0.999)
        self.left = torch.cumprod(1 - self.beta, 0)

    def noisy(self, images: Tensor, noise: Tensor, times: Tensor) -> Tensor:
        """Images (batch, pixels) as they are after so many steps (batch)."""
        left = self.left[times][:, None]
        return left.sqrt() * images + (1 - left).sqrt() * noise


class Block(nn.Module):
    """x + mlp(norm(x)), where time and digit (`condition`) scale and shift the norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.modulate = nn.Linear(width, 2 * width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        scale, shift = self.modulate(condition).chunk(2, dim=-1)
        return x + self.mlp(self.norm(x) * (1 + scale) + shift)


class Denoiser(nn.Module):
    """The noise in images (batch, pixels), from them, the step (batch) and the digit (batch)."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.exp(-math.log(1000) * torch.arange(width // 2) / (width // 2)))
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.digit = nn.Embedding(DIGITS, width)
        self.enter = nn.Linear(SIDE * SIDE, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.leave = nn.Linear(width, SIDE * SIDE)

    def forward(self, images: Tensor, times: Tensor, digits: Tensor) -> Tensor:
        angles = times[:, None] * self.frequencies
        condition = F.silu(self.time(torch.cat([angles.sin(), angles.cos()], -1)) + self.digit(digits))
        x = self.enter(images)
        for block in self.blocks:
            x = block(x, condition)
        return self.leave(x)


@torch.no_grad()
def draw(model: nn.Module, schedule: Schedule, digits: Tensor, random: torch.Generator) -> Tensor:
    """An image (pixels from -1 to 1) of each of `digits`, from noise backwards through all steps."""
    x = torch.randn(len(digits), SIDE * SIDE, generator=random)
    for step in reversed(range(schedule.steps)):
        noise = model(x, torch.full((len(digits),), step), digits)
        beta, left = schedule.beta[step], schedule.left[step]
        clean = ((x - (1 - left).sqrt() * noise) / left.sqrt()).clamp(-1, 1)
        if step == 0:
            return clean
        before = schedule.left[step - 1]
        mean = (before.sqrt() * beta * clean + (1 - beta).sqrt() * (1 - before) * x) / (1 - left)
        x = mean + (beta * (1 - before) / (1 - left)).sqrt() * torch.randn(x.shape, generator=random)
    raise ValueError("a schedule without steps")


def sheet(images: Tensor, columns: int) -> list[list[float]]:
    """Images (rows * columns, pixels) beside and below each other, with a dark line between them, as rows of pixels from 0 to 1."""
    framed = F.pad((images.clamp(-1, 1) + 1).reshape(-1, SIDE, SIDE) / 2, (1, 1, 1, 1))
    return framed.reshape(-1, columns, SIDE + 2, SIDE + 2).transpose(1, 2).flatten(2, 3).flatten(0, 1).tolist()


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3000, help="of training")
    parser.add_argument("--noise-steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--compile", action="store_true", help="the training step through torch.compile")
    parser.add_argument("--out", type=Path, default=Path("out/digits_diffusion"))
    parser.add_argument("--smoke", action="store_true", help="a tiny network for a few steps: does it run at all?")
    args = parser.parse_args()
    if args.smoke:
        vars(args).update(steps=20, noise_steps=10, batch=16, width=16, blocks=1)
    return args


def main() -> None:
    args = parse_args()
    torch.manual_seed(args.seed)
    random = torch.Generator().manual_seed(args.seed)
    scans = load_digits()
    images, labels = torch.from_numpy(scans.data).float() / 8 - 1, torch.from_numpy(scans.target)
    schedule, model = Schedule(args.noise_steps), Denoiser(args.width, args.blocks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.steps)
    denoise = torch.compile(model) if args.compile else model
    losses: list[float] = []
    progress = Progress(args.steps, "steps")
    for _ in progress:
        rows = torch.randint(len(images), (args.batch,), generator=random)
        times = torch.randint(args.noise_steps, (args.batch,), generator=random)
        noise = torch.randn(args.batch, SIDE * SIDE, generator=random)
        loss = F.mse_loss(denoise(schedule.noisy(images[rows], noise, times), times, labels[rows]), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rates.step()
        losses.append(loss.item())
        progress.note = f"loss {sum(losses[-50:]) / len(losses[-50:]):.4f}"
    columns = 12
    drawn = draw(model, schedule, torch.arange(DIGITS).repeat_interleave(columns), random)
    write_picture(args.out / "digits.png", sheet(drawn, columns), enlarge=4)
    write_loss_plot(args.out / "loss.svg", {"training": losses}, "Diffusion of digits: error of the predicted noise")
    print(f"{torch.__package__}: loss {losses[0]:.4f} at first, final loss {losses[-1]:.4f}; wrote {args.out / 'digits.png'} and loss.svg")


if __name__ == "__main__":
    main()
