"""NNAPI models: each operation on the host beside eager, sizes that vary, networks, bytes that are damaged, and what cannot be."""

from __future__ import annotations

import importlib
import importlib.util
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau import nn
from flambeau.nn import functional as F
from flambeau.nnapi import NnapiError, NnapiModule, Operation, convert_model_to_nnapi, from_bytes, to_bytes
from flambeau.nnapi.interpreter import run
from flambeau.nnapi.kernels import KERNELS

IMAGE, ROWS = (2, 4, 8, 6), (3, 5)
CALLS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "CONV_2D": (lambda w: nn.Conv2d(4, 6, 3, 2, 1, 2), IMAGE), "CONV_2D same": (lambda w: nn.Conv2d(4, 6, (3, 4), 1, "same"), IMAGE),
    "DEPTHWISE_CONV_2D": (lambda w: nn.Conv2d(4, 8, 3, 1, 1, 2, groups=4), IMAGE),
    "GROUPED_CONV_2D": (lambda w: nn.Conv2d(4, 6, 3, 1, (0, 1), groups=2, bias=False), IMAGE),
    "TRANSPOSE_CONV_2D": (lambda w: nn.ConvTranspose2d(4, 3, 3, 2, 1, 1), IMAGE),
    "MAX_POOL_2D": (lambda w: nn.MaxPool2d(3, 2, 1), IMAGE), "AVERAGE_POOL_2D": (lambda w: nn.AvgPool2d(2), IMAGE),
    "AVERAGE_POOL_2D padded": (lambda w: nn.AvgPool2d(3, 2, 1, count_include_pad=False), IMAGE),
    "MEAN": (lambda w: nn.AdaptiveAvgPool2d(1), IMAGE), "MEAN of rows": (lambda w: lambda x: x.mean(1), ROWS),
    "FULLY_CONNECTED": (lambda w: nn.Linear(5, 7), ROWS), "FULLY_CONNECTED wide": (lambda w: nn.Linear(6, 7), IMAGE),
    "RELU": (lambda w: nn.ReLU(), ROWS), "RELU6": (lambda w: lambda x: F.relu6((x * 4).neg()), ROWS),
    "RELU1": (lambda w: nn.Hardtanh(), ROWS),
    "LOGISTIC": (lambda w: nn.Sigmoid(), ROWS), "TANH": (lambda w: nn.Tanh(), ROWS), "SOFTMAX": (lambda w: nn.Softmax(1), IMAGE),
    "LOG_SOFTMAX": (lambda w: nn.LogSoftmax(-1), ROWS), "HARD_SWISH": (lambda w: nn.Hardswish(), ROWS),
    "ELU": (lambda w: nn.ELU(0.5), ROWS),
    "PRELU": (lambda w: nn.PReLU(4), IMAGE), "PRELU of a number": (lambda w: nn.LeakyReLU(0.2), ROWS),
    "INSTANCE_NORMALIZATION": (lambda w: nn.InstanceNorm2d(4), IMAGE), "MUL ADD": (lambda w: nn.BatchNorm2d(4), IMAGE),
    "CHANNEL_SHUFFLE": (lambda w: nn.ChannelShuffle(2), IMAGE), "hardsigmoid": (lambda w: nn.Hardsigmoid(), ROWS),
    "silu": (lambda w: nn.SiLU(), ROWS), "RESIZE_BILINEAR": (lambda w: nn.Upsample(scale_factor=2, mode="bilinear"), IMAGE),
    "RESIZE_BILINEAR corners": (lambda w: nn.Upsample(size=(5, 9), mode="bilinear", align_corners=True), IMAGE),
    "RESIZE_NEAREST_NEIGHBOR": (lambda w: nn.Upsample(scale_factor=3), IMAGE), "PAD": (lambda w: nn.ZeroPad2d((1, 2, 0, 1)), IMAGE),
    "PAD_V2": (lambda w: nn.ConstantPad2d((1, 2, 0, 1), 0.5), IMAGE), "QUANTIZE DEQUANTIZE": (
        lambda w: lambda x: fl.fake_quantize_per_tensor_affine(x, 0.05, 100, 0, 255), ROWS),
    **{name: (lambda w, f=f: f, ROWS) for name, f in {
        "ADD": lambda x: x + x.neg(), "SUB": lambda x: x - 2, "MUL": lambda x: x * x.exp(), "DIV": lambda x: x / 3,
    "ABS": lambda x: x.abs(),
        "EXP": lambda x: x.exp(), "LOG": lambda x: (x.abs() + 1).log(), "SQRT": lambda x: x.abs().sqrt(), "SIN": lambda x: x.sin(),
        "RSQRT": lambda x: (x.abs() + 1).rsqrt(), "FLOOR": lambda x: x.floor(), "NEG": lambda x: -x, "POW": lambda x: x.abs() ** 1.5,
        "MAXIMUM": lambda x: fl.maximum(x, -x), "MINIMUM": lambda x: fl.minimum(x, -x), "GREATER": lambda x: x > 0,
        "EQUAL": lambda x: x == x.floor(), "LOGICAL_AND": lambda x: fl.logical_and(x > 0, x < 1),
        "LOGICAL_NOT": lambda x: fl.logical_not(x >= 0), "SELECT": lambda x: fl.where(x > 0, x, -x), "RESHAPE": lambda x: x.reshape(-1, 3),
        "TRANSPOSE": lambda x: x.t(), "EXPAND_DIMS": lambda x: x.unsqueeze(1), "SQUEEZE": lambda x: x[:, :1].squeeze(1),
        "CONCATENATION": lambda x: fl.cat([x, x + 1], 1), "STRIDED_SLICE": lambda x: x[:, 1:4:2], "STRIDED_SLICE place": lambda x: x[1],
        "STRIDED_SLICE end": lambda x: x[-2:, :-1], "SPLIT": lambda x: fl.chunk(x[:, :4], 2, 1)[1] * 2, "TILE": lambda x: x.repeat(2, 3),
        "REDUCE_SUM": lambda x: x.sum(1, keepdim=True), "REDUCE_MAX": lambda x: x.amax(0), "REDUCE_MIN": lambda x: x.amin((0, 1)),
        "ARGMAX": lambda x: x.argmax(1), "ARGMIN": lambda x: x.argmin(0), "TOPK_V2": lambda x: fl.topk(x, 2), "CAST": lambda x: x.int(),
        "clamp": lambda x: x.clamp(0, 6), "adaptive": lambda x: F.adaptive_avg_pool2d(x.reshape(1, 1, 3, 5), (3, 1)),
    }.items()},
}


class Calls(nn.Module):
    """A function or a module as a module."""

    def __init__(self, f: Any) -> None:
        super().__init__()
        self.f = f

    def forward(self, x: Any) -> Any:
        return self.f(x)


def near(got: Any, want: Any) -> None:
    for mine, theirs in zip(got if isinstance(got, list) else [got], want if isinstance(want, tuple) else [want], strict=True):
        assert list(mine.shape) == list(theirs.shape)
        np.testing.assert_allclose(mine.detach().double().numpy(), theirs.detach().double().numpy(), rtol=1e-4, atol=1e-5)


def shaken(module: nn.Module) -> nn.Module:
    """With statistics that are not the first ones."""
    for m in module.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.uniform_(-0.5, 0.5)
            m.running_var.uniform_(0.5, 2)
    return module.eval()


@pytest.mark.parametrize("name", list(CALLS))
def test_operations(name: str) -> None:
    fl.manual_seed(0)
    make, shape = CALLS[name]
    module, x = shaken(Calls(make(None))), fl.randn(*shape)
    made = convert_model_to_nnapi(module, x)
    codes = [step.code.name for step in made.model().steps]
    assert all(word in codes for word in name.split() if word in Operation.__members__), codes
    near(made(x), module(x))


def test_the_operations_that_the_host_has_are_tried() -> None:
    tried = {word for name in CALLS for word in name.split()}
    left = {code.name for code in KERNELS} - tried
    assert left <= {"NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER_EQUAL", "LOGICAL_OR", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL", "GATHER",
                    "DEPTH_TO_SPACE"}


def test_sizes_that_vary() -> None:
    net = shaken(nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU6(), nn.Upsample(scale_factor=2),
        nn.AdaptiveAvgPool2d(1),
                               nn.Flatten(), nn.Linear(4, 2)))
    made = convert_model_to_nnapi(net, fl.zeros(1, 3, 0, 0))
    model = made.model()
    assert model.operands[model.inputs[0]].shape == (1, 3, 0, 0)
    assert [s.code.name for s in model.steps] == ["CONV_2D", "RESIZE_NEAREST_NEIGHBOR", "MEAN", "RESHAPE", "FULLY_CONNECTED"]
    for size in ((8, 12), (31, 7)):
        x = fl.randn(1, 3, *size)
        near(made(x), net(x))
        made.init([x])
    with pytest.raises(NnapiError, match=r"input 0 is to be TENSOR_FLOAT32 of shape \[1, 3, 0, 0\]"):
        made(fl.zeros(2, 3, 8, 8))
    batch = convert_model_to_nnapi(nn.Linear(4, 2).eval(), [fl.zeros(0, 4)])
    assert batch(fl.ones(5, 4)).shape == (5, 2)


class Bottleneck(nn.Module):
    """MobileNetV2's: wider, each channel by itself, narrower, and the input again."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        wide = inputs * 6
        self.same = stride == 1 and inputs == outputs
        self.body = nn.Sequential(nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
                                  nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
                                  nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Any) -> Any:
        return x + self.body(x) if self.same else self.body(x)


def test_a_mobile_network() -> None:
    fl.manual_seed(0)
    net = shaken(nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU6(), Bottleneck(8, 8, 1), Bottleneck(8, 16, 2),
                               nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)))
    x = fl.randn(1, 3, 32, 32)
    for given in (net, fl.jit.trace(net, x), fl.export.export(net, (x,))):
        made = convert_model_to_nnapi(given, x)
        codes = {s.code.name for s in made.model().steps}
        assert codes == {"CONV_2D", "DEPTHWISE_CONV_2D", "ADD", "MEAN", "RESHAPE", "FULLY_CONNECTED"}     # norms and activations moved in
        near(made(x), net(x))
    other = NnapiModule(*to_bytes(made.model()), 0, True)
    other.load_state_dict(made.state_dict())
    near(other(x), net(x))


@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet18", "mobilenet_v3_small"])
def test_torchvisions(name: str) -> None:
    """In a process of its own, for torchvision imports torch."""
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("needs torchvision")
    code = f"""
import flambeau.as_torch, torch, torchvision
from torch.backends._nnapi.prepare import convert_model_to_nnapi
torch.manual_seed(0)
net = torchvision.models.get_model("{name}", weights=None, num_classes=10).eval()
made, x = convert_model_to_nnapi(net, torch.zeros(1, 3, 0, 0)), torch.randn(1, 3, 64, 96)
with torch.no_grad():
    assert torch.allclose(made(x), net(x), rtol=1e-4, atol=1e-6)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_activations_that_others_read_stay() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.bn = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)

        def forward(self, x: Any) -> Any:
            h = self.conv(x)
            return self.bn(h), h.relu(), h

    net, x = shaken(Net()), fl.randn(1, 3, 4, 4)
    made = convert_model_to_nnapi(net, x)
    near(made(x), net(x))


# -- errors ----------------------------------------------------------------------------------------------------------------------------
def test_all_that_nnapi_has_not_is_told() -> None:
    def f(x: Any) -> Any:
        a = x.erf()
        b = a.permute(0, 1, 3, 2)[None].transpose(0, 1)
        return b, fl.linalg.inv(x)

    with pytest.raises(NnapiError) as caught:
        convert_model_to_nnapi(Calls(f), fl.randn(1, 2, 3, 3))
    text = str(caught.value)
    assert "a = x.erf()" in text and "at most four dimensions" in text and "fl.linalg.inv(x)" in text


class Detector(nn.Module):
    """Two levels of a pyramid, and what a detector says of each place: classes and boxes, over both levels."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.PReLU(16))
        self.second = nn.Sequential(nn.Conv2d(16, 16, 3, 2, 1, groups=4), nn.ReLU6())
        self.classes = nn.ModuleList([nn.Conv2d(16, 6 * 4, 3, padding=1) for _ in range(2)])
        self.boxes = nn.ModuleList([nn.Conv2d(16, 6 * 4, 3, padding=1) for _ in range(2)])

    def forward(self, x: fl.Tensor) -> tuple[fl.Tensor, fl.Tensor]:
        fine = self.first(x)
        coarse = self.second(fine)
        levels = fine + fl.nn.functional.interpolate(coarse, size=(16, 16), mode="nearest"), coarse
        said = [[head(level).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4) for head, level in zip(heads, levels)]
                for heads in (self.classes, self.boxes)]
        return fl.cat(said[0], 1).softmax(-1), fl.cat(said[1], 1)


def test_a_detectors_head() -> None:
    fl.manual_seed(0)
    net, x = shaken(Detector()), fl.randn(1, 3, 32, 32)
    for model in (net, fl.jit.trace(net, x)):
        near(convert_model_to_nnapi(model, x)(x), net(x))


class Quantised(nn.Module):
    """As training for eight bits leaves a convolution: its weights by channel, what goes in and comes out by tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.register_buffer("scales", fl.linspace(0.004, 0.009, 8))
        self.register_buffer("zeros", fl.zeros(8, dtype=fl.int32))

    def forward(self, x: fl.Tensor) -> fl.Tensor:
        x = fl.fake_quantize_per_tensor_affine(x, 0.02, 128, 0, 255)
        weight = fl.fake_quantize_per_channel_affine(self.conv.weight, self.scales, self.zeros, 0, -128, 127)
        y = fl.nn.functional.conv2d(x, weight, self.conv.bias, padding=1).relu()
        return fl.fake_quantize_per_tensor_affine(y, 0.02, 0, 0, 255)


def test_what_constants_alone_decide_is_computed_now() -> None:
    fl.manual_seed(0)
    net, x = Quantised().eval(), fl.randn(1, 3, 8, 8)
    model = convert_model_to_nnapi(net, x)
    assert [step.code.name for step in model.model().steps] == ["QUANTIZE", "CONV_2D", "DEQUANTIZE"]
    assert (model(x) - net(x)).abs().max() < 0.0201      # a step, where a number lies between two


@pytest.mark.parametrize(("call", "error", "match"), [
    (lambda: convert_model_to_nnapi(3, fl.ones(1)), TypeError, "got int"),
    (lambda: convert_model_to_nnapi(nn.ReLU(), (3,)), TypeError, "tensors"),
    (lambda: convert_model_to_nnapi(nn.ReLU(), fl.ones(1), serializer=print), NotImplementedError, "serializer"),
    (lambda: convert_model_to_nnapi(nn.ReLU(), fl.ones(1), return_shapes=[1, 2]), NnapiError, "2 entries"),
    (lambda: convert_model_to_nnapi(nn.ReLU(), fl.ones(1).double()), NnapiError, "float64"),
    (lambda: convert_model_to_nnapi(nn.ReLU(), fl.ones(1))(), NnapiError, "takes 1 inputs, got 0"),
    (lambda: convert_model_to_nnapi(nn.ReLU(), fl.ones(1))(3), TypeError, "got int"),
])
def test_bad_calls(call: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()


def test_damaged_bytes() -> None:
    """Whatever the bytes say, there is an NnapiError or a result."""
    net, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2)).eval(), fl.randn(1, 3, 8, 8)
    words, weights = to_bytes(convert_model_to_nnapi(net, x).model())
    rng, told = random.Random(0), 0
    for turn in range(3000):
        broken = bytearray(words)
        if turn % 3 == 0:
            broken = broken[:rng.randrange(len(words))]
        else:
            for _ in range(rng.randint(1, 3)):
                broken[rng.randrange(len(words))] ^= 1 << rng.randrange(8)
        try:
            with np.errstate(all="ignore"):
                run(from_bytes(bytes(broken), weights), [x.numpy()])
        except NnapiError:
            told += 1
    assert told > 2000
    for text, match in ((b"PK\3\4" + words[4:], "not the words"), (words[:4] + b"\x09\0\0\0" + words[8:], "version 9"),
                        (words + b"\0\0\0\0", "after its end"), (words[:40], "ends within")):
        with pytest.raises(NnapiError, match=match):
            from_bytes(text, weights)
    with pytest.raises(NnapiError, match="bytes of weights"):
        from_bytes(words, weights[:-1])


def test_optimize_for_mobile() -> None:
    mobile = importlib.import_module("flambeau.utils.mobile_optimizer")
    net, x = shaken(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout())), fl.randn(1, 3, 8, 8)
    made = mobile.optimize_for_mobile(net)
    near(made(x), net(x))
    assert not any(isinstance(m, (nn.BatchNorm2d, nn.Dropout)) for m in made.modules())
    near(mobile.optimize_for_mobile(fl.jit.trace(net, x))(x), net(x))
    kept = mobile.optimize_for_mobile(net, {mobile.MobileOptimizerType.CONV_BN_FUSION, mobile.MobileOptimizerType.REMOVE_DROPOUT})
    near(kept(x), net(x))
    with pytest.raises(NotImplementedError, match="NNAPI"):
        mobile.optimize_for_mobile(net, backend="vulkan")
    with pytest.raises(TypeError, match="ScriptModule"):
        mobile.optimize_for_mobile(3)


def test_the_example_of_the_documentation(capsys: pytest.CaptureFixture) -> None:
    code, = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs" / "mobile.md").read_text(), re.S)
    exec(compile(code, "mobile.md", "exec"), {"__name__": "example"})
    assert "['CONV_2D', 'MEAN', 'RESHAPE', 'FULLY_CONNECTED']" in capsys.readouterr().out
