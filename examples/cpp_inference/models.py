"""Two models as ahead-of-time packages: ResNet-18, and one step of a GPT's decoding.

    python -m flambeau run examples/cpp_inference/models.py --out out/cpp_inference          (--smoke: small ones)

`resnet18.pt2` takes images of any batch up to 8. `gpt.pt2` takes a token, its position and what was remembered of the tokens before it; it
gives the scores of the next token, and the keys and values to be remembered. Weights are random: what is shown is the way, and its speed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """For images of three channels; `width` channels in the first stage, doubled at each later one."""

    def __init__(self, width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                                  nn.MaxPool2d(3, stride=2, padding=1))
        blocks, inputs = list[nn.Module](), width
        for stage in range(4):
            for k in range(2):
                blocks.append(ResidualBlock(inputs, width << stage, stride=2 if stage and not k else 1))
                inputs = width << stage
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


class Layer(nn.Module):
    """A layer of a GPT, for one token: attention over what is remembered and itself, and two linear layers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`x` (width), `keys` and `values` (heads, length, width of a head), `hidden` (length): what is not remembered yet."""
        q, k, v = self.qkv(self.norm1(x)).view(3, self.heads, -1).unbind(0)
        scale = q.shape[-1] ** -0.5
        before = (keys @ q.unsqueeze(-1)).squeeze(-1).masked_fill(hidden, -torch.inf)
        scores = torch.cat([before, (q * k).sum(-1, keepdim=True)], -1).mul(scale).softmax(-1)
        mixed = (scores[:, None, :-1] @ values).squeeze(1) + scores[:, -1:] * v
        x = x + self.out(mixed.reshape(-1))
        return x + self.down(F.gelu(self.up(self.norm2(x)))), k, v


class Step(nn.Module):
    """One step of decoding. `keys` and `values` are (layers, heads, length, width of a head), of which the first `position` rows count."""

    def __init__(self, vocabulary: int = 8192, width: int = 384, heads: int = 6, layers: int = 8, length: int = 256) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, token: Tensor, position: Tensor, keys: Tensor, values: Tensor) -> dict[str, Tensor]:
        x = self.tokens(token) + self.positions(position)
        hidden = torch.arange(keys.shape[2]) >= position
        made = []
        for layer, k, v in zip(self.layers, keys, values):
            x, *remembered = layer(x, k, v, hidden)
            made.append(remembered)
        return {"logits": self.head(self.norm(x)), "key": torch.stack([k for k, _ in made]), "value": torch.stack([v for _, v in made])}

    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """A token in the middle of a text."""
        length, width = self.positions.weight.shape
        heads = self.layers[0].heads
        memory = torch.randn(2, len(self.layers), heads, length, width // heads)
        return torch.tensor(3), torch.tensor(length // 2), memory[0].clone(), memory[1].clone()


def models(smoke: bool) -> tuple[ResNet18, Step, int]:
    """Both, with weights by a fixed seed, and the side of an image."""
    torch.manual_seed(0)
    image = 32 if smoke else 224
    resnet = ResNet18(8, 10) if smoke else ResNet18()
    step = Step(64, 32, 2, 2, 16) if smoke else Step()
    return resnet.eval(), step.eval(), image


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/cpp_inference"))
    parser.add_argument("--smoke", action="store_true", help="small models")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    resnet, step, image = models(args.smoke)
    batch = torch.export.Dim("batch", min=1, max=8)
    program = torch.export.export(resnet, (torch.randn(2, 3, image, image),), dynamic_shapes=({0: batch},))
    print(torch._inductor.aoti_compile_and_package(program, package_path=str(args.out / "resnet18.pt2")))
    program = torch.export.export(step, step.inputs())
    print(torch._inductor.aoti_compile_and_package(program, package_path=str(args.out / "gpt.pt2")))


if __name__ == "__main__":
    main()
