"""A small network for digits, trained for a moment, exported to ONNX with a batch that varies, and run by ONNX Runtime.

    python examples/onnx_runtime.py [--smoke] [--out digits.onnx]

Runs unchanged on PyTorch. Needs onnx and onnxruntime.
"""

from __future__ import annotations

import argparse

import numpy as np
import onnxruntime
import torch


class Digits(torch.nn.Module):
    """Eight by eight pixels to ten digits."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 16, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(16)
        self.out = torch.nn.Linear(16 * 16, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        h = torch.nn.functional.max_pool2d(self.norm(self.conv(image)).relu(), 2)
        return self.out(h.flatten(1)).log_softmax(-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="digits.onnx")
    parser.add_argument("--smoke", action="store_true", help="a few steps: is all there?")
    given = parser.parse_args()
    torch.manual_seed(0)
    prototypes = torch.randn(10, 1, 8, 8)
    net = Digits()
    optimizer = torch.optim.AdamW(net.parameters(), 0.01)
    for _ in range(3 if given.smoke else 30):
        digits = torch.randint(10, (64,))
        loss = torch.nn.functional.nll_loss(net(prototypes[digits] + 0.3 * torch.randn(64, 1, 8, 8)), digits)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()

    batch = torch.export.Dim("batch")
    torch.onnx.export(net, (torch.randn(2, 1, 8, 8),), given.out, input_names=["image"], output_names=["logits"],
                      dynamic_shapes={"image": {0: batch}}, dynamo=True)

    session = onnxruntime.InferenceSession(given.out, providers=["CPUExecutionProvider"])
    images = prototypes + 0.3 * torch.randn(10, 1, 8, 8)
    logits, = session.run(["logits"], {"image": images.numpy()})
    apart = np.abs(logits - net(images).detach().numpy()).max()
    right = (logits.argmax(1) == np.arange(10)).sum()
    print(f"loss {loss.item():.3f}; {right} of 10 digits right in ONNX Runtime; logits within {1e-4 if apart < 1e-4 else apart} of eager")


if __name__ == "__main__":
    main()
