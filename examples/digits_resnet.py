"""Train a ResNet-18-shaped network on scikit-learn's scanned digits, with checkpoints that resume to the last bit.

    python -m flambeau run examples/digits_resnet.py              on Flambeau; `python examples/...` on PyTorch
    ... --compile                                                 through torch.compile
    ... --resume out/digits_resnet/epoch-3.pt                     continue as though nothing had happened

Every epoch leaves `epoch-N.pt` in `--out`: model, optimizer, schedule, random state and the losses so far.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from show import Progress, write_loss_plot
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

PIXELS = 24
SHIFT = 2


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with a way around them: the input itself, or a 1x1 convolution where shapes differ."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """Four stages of two residual blocks. `width` channels in the first stage, doubled at each later one.

    The stem fits small greyscale images: one 3x3 convolution instead of ImageNet's 7x7 and pooling.
    """

    def __init__(self, classes: int = 10, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        stages: list[nn.Module] = []
        inputs = width
        for stage in range(4):
            outputs = width << stage
            stages.append(ResidualBlock(inputs, outputs, stride=1 if stage == 0 else 2))
            stages.append(ResidualBlock(outputs, outputs, stride=1))
            inputs = outputs
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        features = self.stages(self.stem(images))
        return self.head(features.mean(dim=(2, 3)))


class ShiftedDigits(Dataset):
    """The training images, each moved by up to `SHIFT` pixels in both directions whenever it is read."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images = F.pad(images, (SHIFT, SHIFT, SHIFT, SHIFT))
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        down, right = torch.randint(2 * SHIFT + 1, (2,)).tolist()
        return self.images[i, :, down : down + PIXELS, right : right + PIXELS], self.labels[i]


def digits(limit: int | None) -> tuple[Dataset, TensorDataset]:
    """Training and test sets: 8x8 scans enlarged to 24x24, every fifth held out."""
    scans = load_digits()
    images = torch.from_numpy(scans.images).float()[:limit, None] / 16 - 0.5
    images = images.repeat_interleave(3, dim=2).repeat_interleave(3, dim=3)
    labels = torch.from_numpy(scans.target)[:limit]
    held_out = torch.arange(len(labels)) % 5 == 0
    return ShiftedDigits(images[~held_out], labels[~held_out]), TensorDataset(images[held_out], labels[held_out])


@torch.no_grad()
def accuracy(model: nn.Module, data: TensorDataset) -> float:
    """The fraction of `data` that `model` classifies rightly."""
    model.eval()
    right = sum(int((model(images).argmax(1) == labels).sum()) for images, labels in DataLoader(data, batch_size=128))
    return right / len(data)


class Trainer:
    """Everything that a training run has to remember, and how to write it down and read it back."""

    def __init__(self, args: argparse.Namespace, data: Dataset) -> None:
        torch.manual_seed(args.seed)
        self.model = ResNet18(width=args.width)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=args.lr, momentum=0.9, nesterov=True, weight_decay=5e-4
        )
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=args.epochs)
        self.random = torch.Generator().manual_seed(args.seed)
        self.loader = DataLoader(
            data, args.batch, shuffle=True, drop_last=True, num_workers=args.workers, generator=self.random
        )
        self.step_model = torch.compile(self.model) if args.compile else self.model
        self.epoch = 0
        self.losses: list[float] = []

    def train_epoch(self) -> None:
        self.model.train()
        batches = iter(self.loader)
        progress = Progress(len(self.loader), f"epoch {self.epoch + 1}")
        for _ in progress:
            images, labels = next(batches)
            loss = F.cross_entropy(self.step_model(images), labels, label_smoothing=0.05)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.item())
            progress.note = f"loss {self.losses[-1]:.4f}"
        self.schedule.step()
        self.epoch += 1

    def save(self, path: Path) -> None:
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "random": self.random.get_state(),
            "epoch": self.epoch,
            "losses": self.losses,
        }
        torch.save(state, path)

    def resume(self, path: Path) -> None:
        state = torch.load(path)  # weights_only: nothing in the file can run
        for name in ("model", "optimizer", "schedule"):
            getattr(self, name).load_state_dict(state[name])
        self.random.set_state(state["random"])
        self.epoch, self.losses = state["epoch"], state["losses"]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--width", type=int, default=16, help="channels of the first stage (ResNet-18 has 64)")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--workers", type=int, default=1, help="processes that prepare the batches")
    parser.add_argument("--compile", action="store_true", help="train through torch.compile")
    parser.add_argument("--resume", type=Path, help="a checkpoint to continue from")
    parser.add_argument("--out", type=Path, default=Path("out/digits_resnet"))
    parser.add_argument("--smoke", action="store_true", help="a tiny network on few images: does it run at all?")
    args = parser.parse_args()
    if args.smoke:
        vars(args).update(epochs=2, width=4)
    return args


def main() -> None:
    args = parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    train_data, test_data = digits(limit=160 if args.smoke else None)
    trainer = Trainer(args, train_data)
    if args.resume:
        trainer.resume(args.resume)
        print(f"resumed {args.resume}: {trainer.epoch} epochs done, last loss {trainer.losses[-1]!r}")
    start = time.perf_counter()
    while trainer.epoch < args.epochs:
        trainer.train_epoch()
        trainer.save(args.out / f"epoch-{trainer.epoch}.pt")
        right = accuracy(trainer.model, test_data)
        print(f"epoch {trainer.epoch}: loss {trainer.losses[-1]!r}, test accuracy {right:.2%}")
    print(f"{args.epochs} epochs, {time.perf_counter() - start:.1f} s; final loss {trainer.losses[-1]!r}")
    write_loss_plot(args.out / "loss.svg", {"training": trainer.losses}, "ResNet on digits: loss")
    print(f"wrote {args.out / 'loss.svg'} and a checkpoint of each epoch")


if __name__ == "__main__":
    main()
