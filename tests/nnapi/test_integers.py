"""NNAPI models of eight bits: what lies between DEQUANTIZE and QUANTIZE is computed in integers, beside eager's floats on the same grid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau import nn
from flambeau.nn import functional as F
from flambeau.nnapi import NnapiError, Operation, convert_model_to_nnapi, from_bytes, to_bytes
from flambeau.nnapi.codes import STEPPED, Type
from flambeau.nnapi.integers import INTEGERS, rescaled
from flambeau.nnapi.interpreter import run
from flambeau.nnapi.model import Model, Operand, Step

IMAGE = (2, 4, 8, 6)
UNSIGNED, SIGNED = (0, 255, 0), (-128, 127, -128)      # the least, the greatest, and what is added to an unsigned zero point


class Grid(nn.Module):
    """To eight bits and back."""

    def __init__(self, scale: float, zero: int, kind: tuple[int, int, int] = UNSIGNED) -> None:
        super().__init__()
        self.scale, self.zero, self.ends = scale, zero + kind[2], kind[:2]

    def forward(self, x: Any) -> Any:
        return fl.fake_quantize_per_tensor_affine(x, self.scale, self.zero, *self.ends)


def by_channel(w: Any, dim: int = 0) -> Any:
    """A filter of eight bits with a scale for each output channel."""
    scales = w.detach().abs().amax([d for d in range(w.ndim) if d != dim]) / 127
    return fl.fake_quantize_per_channel_affine(w, scales, fl.zeros(scales.shape[0], dtype=fl.int32), dim, -127, 127)


def whole(w: Any) -> Any:
    """A filter of eight bits with one scale."""
    return fl.fake_quantize_per_tensor_affine(w, 0.004, 0, -128, 127)


class Conv(nn.Conv2d):
    def forward(self, x: Any) -> Any:
        return F.conv2d(x, by_channel(self.weight), self.bias, self.stride, self.padding, self.dilation, self.groups)


class WholeConv(nn.Conv2d):
    def forward(self, x: Any) -> Any:
        return F.conv2d(x, whole(self.weight), self.bias, self.stride, self.padding, self.dilation, self.groups)


class Transposed(nn.ConvTranspose2d):
    def forward(self, x: Any, output_size: Any = None) -> Any:
        return F.conv_transpose2d(x, by_channel(self.weight, 1), self.bias, self.stride, self.padding)


class Linear(nn.Linear):
    def forward(self, x: Any) -> Any:
        return F.linear(x, whole(self.weight), self.bias)


class Between(nn.Module):
    """A function of what is on a grid, on a grid."""

    def __init__(self, f: Any, before: Grid, after: Grid) -> None:
        super().__init__()
        self.f, self.before, self.after = f, before, after

    def forward(self, x: Any) -> Any:
        return self.after(self.f(self.before(x)))


ANY, SAME, UNIT, TWICE = (0.03, 120), None, (1 / 256, 0), (1 / 128, 128)
CALLS: dict[str, tuple[Any, Any]] = {       # the operations that come of it: what is called, and the grid afterwards
    "CONV_2D": (lambda: nn.Sequential(Conv(4, 6, 3, 2, 1), nn.ReLU6()), ANY), "CONV_2D whole": (lambda: WholeConv(4, 6, 3, 1, (0, 1)), ANY),
    "DEPTHWISE_CONV_2D": (lambda: Conv(4, 8, 3, 1, 1, groups=4), ANY),
    "GROUPED_CONV_2D": (lambda: nn.Sequential(Conv(4, 6, 3, groups=2), nn.ReLU()), ANY),
    "TRANSPOSE_CONV_2D": (lambda: Transposed(4, 3, 3, 2, 1), ANY), "FULLY_CONNECTED RESHAPE": (lambda: Linear(6, 7), ANY),
    "ADD": (lambda: lambda x: x + x, ANY), "ADD RELU": (lambda: lambda x: x.relu() + x, ANY), "SUB": (lambda: lambda x: x - x.relu(), ANY),
    "MUL": (lambda: lambda x: F.relu6(x * x), ANY), "CONCATENATION": (lambda: lambda x: fl.cat([x, x.relu()], 1), ANY),
    "MEAN": (lambda: nn.AdaptiveAvgPool2d(1), SAME), "AVERAGE_POOL_2D": (lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), SAME),
    "RELU6": (lambda: nn.ReLU6(), SAME), "RELU1": (lambda: nn.Hardtanh(), SAME), "RESIZE_BILINEAR": (lambda: nn.Upsample(
        scale_factor=2, mode="bilinear"), SAME), "LOGISTIC": (lambda: nn.Sigmoid(), UNIT), "SOFTMAX": (lambda: nn.Softmax(1), UNIT),
    "TANH": (lambda: nn.Tanh(), TWICE), "HARD_SWISH": (lambda: nn.Hardswish(), ANY), "ELU": (lambda: nn.ELU(), ANY),
    "RELU": (lambda: nn.ReLU(), SAME), "MAX_POOL_2D": (lambda: nn.MaxPool2d(3, 2, 1), SAME), "PAD": (lambda: nn.ZeroPad2d((1, 2, 0, 1)), SAME),
    "RESHAPE": (lambda: lambda x: x.reshape(2, -1), SAME), "TRANSPOSE": (lambda: lambda x: x.permute(0, 2, 3, 1), SAME),
    "SQUEEZE": (lambda: lambda x: x[:, :1].squeeze(1), SAME), "EXPAND_DIMS": (lambda: lambda x: x.reshape(16, 24).unsqueeze(1), SAME),
    "STRIDED_SLICE": (lambda: lambda x: x[:, :, 1:7:2], SAME), "SPLIT": (lambda: lambda x: fl.chunk(x, 2, 1)[1], SAME),
    "TILE": (lambda: lambda x: x.repeat(2, 1, 1, 3), SAME), "CHANNEL_SHUFFLE": (lambda: nn.ChannelShuffle(2), SAME),
    "RESIZE_NEAREST_NEIGHBOR": (lambda: nn.Upsample(scale_factor=2), SAME)}


@pytest.mark.parametrize("kind", [UNSIGNED, SIGNED], ids=["unsigned", "signed"])
@pytest.mark.parametrize("name", list(CALLS))
def test_operations_in_integers(name: str, kind: tuple[int, int, int]) -> None:
    fl.manual_seed(0)
    make, grid = CALLS[name]
    grid = (0.05, 110) if grid is SAME else grid
    net, x = Between(make(), Grid(0.05, 110, kind), Grid(*grid, kind)).eval(), fl.randn(*IMAGE) * 3
    made = convert_model_to_nnapi(net, x)
    steps = made.model().steps
    assert {word for word in name.split() if word.isupper()} <= {s.code.name for s in steps}
    assert [s.code.name for s in steps].count("QUANTIZE") == [s.code.name for s in steps].count("DEQUANTIZE") == 1
    assert all(op.type in (*STEPPED, Type.TENSOR_INT32, Type.TENSOR_QUANT8_SYMM_PER_CHANNEL) or not op.shape for s in steps[1:-1]
               for op in [made.model().operands[i] for i in s.inputs])
    steps_apart = ((made(x) - net(x)).detach() / grid[0]).abs().numpy()
    assert steps_apart.max() < 1.01 and (steps_apart > 0.5).mean() < 0.04     # where a number lies between two


def test_every_operation_in_integers_is_tried() -> None:
    assert {code.name for code in INTEGERS} == {word for name in CALLS for word in name.split() if word.isupper()}


class Block(nn.Module):
    """MobileNetV2's, trained for eight bits, its norms within its filters."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        wide = inputs * 6
        self.same = stride == 1 and inputs == outputs
        self.body = nn.Sequential(Conv(inputs, wide, 1), nn.ReLU6(), Grid(6 / 255, 0), Conv(wide, wide, 3, stride, 1, groups=wide), nn.ReLU6(),
                                  Grid(6 / 255, 0), Conv(wide, outputs, 1), Grid(0.03, 120))
        self.sum = Grid(0.04, 125)

    def forward(self, x: Any) -> Any:
        return self.sum(x + self.body(x)) if self.same else self.body(x)


def test_a_mobile_network_of_eight_bits() -> None:
    fl.manual_seed(0)
    net = nn.Sequential(Grid(0.03, 128), Conv(3, 8, 3, 2, 1), nn.ReLU6(), Grid(0.02, 0), Block(8, 8, 1), Block(8, 16, 2), Block(16, 16, 1),
                        nn.AdaptiveAvgPool2d(1), Grid(0.04, 125), nn.Flatten(), Linear(16, 10), Grid(0.01, 128)).eval()
    x = fl.randn(4, 3, 32, 32)
    made = convert_model_to_nnapi(net, x)
    assert {s.code.name for s in made.model().steps[1:-1]} == {"CONV_2D", "DEPTHWISE_CONV_2D", "ADD", "MEAN", "RESHAPE", "FULLY_CONNECTED"}
    assert len(made.weights) < 1.5 * sum(p.numel() for p in net.parameters())       # a byte an element, and biases
    assert (made(x) - net(x)).abs().max() < 0.035      # some steps, of fourteen roundings


def test_what_nnapi_has_not_in_eight_bits_stays_in_floats() -> None:
    fl.manual_seed(0)
    x, on = fl.randn(*IMAGE), Grid(0.05, 110)
    for f, floats in ((lambda v: v.exp(), "EXP"), (lambda v: v * 2, "MUL"), (nn.Conv2d(4, 2, 1), "CONV_2D"), (nn.Sigmoid(), "LOGISTIC")):
        net = Between(f, on, Grid(0.03, 120)).eval()
        made = convert_model_to_nnapi(net, x)
        assert [s.code.name for s in made.model().steps] == ["QUANTIZE", "DEQUANTIZE", floats, "QUANTIZE", "DEQUANTIZE"]
        assert ((made(x) - net(x)).abs() > 1e-5).float().mean() < 0.01
    with pytest.raises(NnapiError, match=r"to 0 .. 255 or -128 .. 127 with one scale, not to 0 .. 127"):
        convert_model_to_nnapi(Between(nn.ReLU(), Grid(0.05, 60, (0, 127, 0)), on), x)


def test_sums_come_to_another_scale_by_integers() -> None:
    sums = np.random.default_rng(0).integers(-2**31, 2**31, 1000)
    for factor in (0.3, 1.0, 0.5, 2**-20, 0.999999, 3.7, 1e-9):
        exact = [int(np.floor(int(n) * factor + 0.5)) for n in sums]
        assert np.abs(rescaled(sums, factor) - exact).max() <= max(1, 2**31 * factor * 2**-31)
    assert rescaled(np.array([-3, -1, 1, 3]), 0.5).tolist() == [-1, 0, 1, 2]


def test_scales_by_channel_travel() -> None:
    net, x = Between(Conv(4, 6, 3), Grid(0.05, 110), Grid(*ANY)), fl.randn(*IMAGE)
    model = convert_model_to_nnapi(net, x).model()
    words, weights = to_bytes(model)
    filters = [op for op in from_bytes(words, weights).operands if op.scales]
    assert [(op.type, op.channel, len(op.scales)) for op in filters] == [(Type.TENSOR_QUANT8_SYMM_PER_CHANNEL, 0, 6)]
    bad = model._replace(operands=[op._replace(scales=op.scales[1:]) if op.scales else op for op in model.operands])
    with pytest.raises(NnapiError, match="5 scales along dimension 0"):
        from_bytes(*to_bytes(bad))


@pytest.mark.parametrize(("code", "scale", "match"), [(Operation.ARGMAX, 1.0, "has no ARGMAX of TENSOR_QUANT8_ASYMM"),
                                                      (Operation.RELU, 0.0, "to be positive")])
def test_models_that_cannot_be(code: Operation, scale: float, match: str) -> None:
    operand = Operand(Type.TENSOR_QUANT8_ASYMM, (2,), scale, 3)
    with pytest.raises(NnapiError, match=match):
        run(Model([operand, operand], [Step(code, (0,), (1,))], (0,), (1,)), [np.zeros(2, np.uint8)])
