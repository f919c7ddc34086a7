"""Classify scikit-learn's scanned digits with Lightning: module, data module, metrics, the best checkpoint kept, and read back.

    python -m flambeau run examples/lightning_digits.py          on Flambeau; `python examples/lightning_digits.py` on PyTorch
    ... --compile                                                the module through torch.compile

Leaves `loss.svg` and the checkpoint of the epoch that did best on the digits held out, in `--out`. Needs lightning.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import lightning
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint, TQDMProgressBar
from show import write_loss_plot
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import Accuracy

Batch = list[Tensor]


class Digits(lightning.LightningDataModule):
    """8x8 scans and their digits, every fifth held out."""

    def __init__(self, batch: int, limit: int | None) -> None:
        super().__init__()
        self.batch, self.limit = batch, limit

    def setup(self, stage: str) -> None:
        scans = load_digits()
        images = torch.from_numpy(scans.images).float()[: self.limit, None] / 8 - 1
        digits = torch.from_numpy(scans.target)[: self.limit]
        held_out = torch.arange(len(digits)) % 5 == 0
        self.known = TensorDataset(images[~held_out], digits[~held_out])
        self.unknown = TensorDataset(images[held_out], digits[held_out])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.known, self.batch, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.unknown, self.batch)


class Classifier(lightning.LightningModule):
    """Two convolutions and two linear layers, trained by AdamW with a one-cycle schedule."""

    def __init__(self, width: int, lr: float) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(32 * width, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10),
        )  # fmt: skip
        self.right = Accuracy(task="multiclass", num_classes=10)
        self.losses: list[float] = []

    def forward(self, images: Tensor) -> Tensor:
        return self.net(images)

    def training_step(self, batch: Batch, index: int) -> Tensor:
        images, digits = batch
        loss = F.cross_entropy(self(images), digits)
        self.log("loss", loss, prog_bar=True)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch: Batch, index: int) -> None:
        images, digits = batch
        logits = self(images)
        self.right(logits, digits)
        self.log_dict({"right": self.right, "error": F.cross_entropy(logits, digits)}, prog_bar=True)

    def configure_optimizers(self) -> dict[str, Any]:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        total = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.hparams.lr, total_steps=int(total))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--compile", action="store_true", help="the module through torch.compile")
    parser.add_argument("--out", type=Path, default=Path("out/lightning_digits"))
    parser.add_argument("--smoke", action="store_true", help="a tiny network on few images: does it run at all?")
    args = parser.parse_args()
    if args.smoke:
        vars(args).update(epochs=2, batch=16, width=2)
    return args


def main() -> None:
    args = parse_args()
    lightning.seed_everything(args.seed)
    data, model = Digits(args.batch, 120 if args.smoke else None), Classifier(args.width, args.lr)
    best = ModelCheckpoint(args.out, "best", monitor="right", mode="max", enable_version_counter=False)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_epochs=args.epochs, callbacks=[best, TQDMProgressBar()], logger=False, log_every_n_steps=1
    )
    trainer.fit(torch.compile(model) if args.compile else model, data)
    write_loss_plot(args.out / "loss.svg", {"training": model.losses}, "Lightning on digits: loss")
    again = Classifier.load_from_checkpoint(best.best_model_path)
    result = trainer.validate(again, data, verbose=False)[0]
    print(f"{torch.__package__}: final loss {model.losses[-1]:.4f}; {result['right']:.2%} of the digits held out right")
    print(f"wrote {args.out / 'loss.svg'} and {best.best_model_path}")


if __name__ == "__main__":
    main()
