"""Every layer against torch's layer of the same name: output, gradients, buffers, repr and state_dict keys."""

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as TF

import flambeau.nn as nn
import flambeau.nn.functional as F
from flambeau.nn.modules.applied import FunctionModule
from tests.nn.oracle import compare_call, compare_module, randn

X = (2, 6, 7)
IMAGE = (2, 4, 9, 8)
VOLUME = (2, 2, 5, 6, 4)
INDEX = torch.tensor([[1, 4, 0], [2, 2, 5]])
LABELS = torch.tensor([1, 0, 3, -100, 2])
SIGNS = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0])

ACTIVATIONS = [
    ("ReLU", ()), ("ReLU6", ()), ("SiLU", ()), ("Mish", ()), ("SELU", ()), ("ELU", (1.3,)), ("CELU", (0.7,)), ("GELU", ()),
    ("GELU", ("tanh",)), ("LeakyReLU", (0.2,)), ("Hardtanh", (-0.5, 0.7)), ("Hardswish", ()), ("Hardsigmoid", ()), ("Sigmoid", ()),
    ("Tanh", ()), ("Softplus", ()), ("Softplus", (2.0, 1.0)), ("LogSigmoid", ()), ("Softsign", ()), ("Tanhshrink", ()),
    ("Hardshrink", ()), ("Softshrink", ()), ("Threshold", (0.1, 2.0)), ("PReLU", ()), ("PReLU", (6,)), ("Softmax", (1,)),
    ("LogSoftmax", (-1,)), ("Softmin", (0,)), ("GLU", (1,)), ("Identity", ()), ("RReLU", ()),
]


@pytest.mark.parametrize("name,args", ACTIVATIONS, ids=lambda v: str(v))
def test_activations(name, args):
    compare_module(name, args, {}, [randn(*X)], train=name != "RReLU")


LAYERS = [
    ("Linear", (7, 5), {}, X), ("Linear", (7, 5), {"bias": False}, (7,)), ("Linear", (7, 5), {}, (3, 7)),
    ("Conv1d", (6, 8, 3), {"padding": 1, "stride": 2}, X), ("Conv1d", (6, 4, 4), {"padding": "same"}, X),
    ("Conv2d", (4, 6, 3), {}, IMAGE), ("Conv2d", (4, 6, (3, 2)), {"padding": (1, 0), "stride": (2, 1), "dilation": (1, 2)}, IMAGE),
    ("Conv2d", (4, 8, 3), {"groups": 2, "bias": False}, IMAGE), ("Conv2d", (4, 4, 3), {"groups": 4, "padding": 1}, IMAGE),
    ("Conv2d", (4, 6, 3), {"padding": 2, "padding_mode": "reflect"}, IMAGE),
    ("Conv2d", (4, 6, 3), {"padding": 1, "padding_mode": "circular"}, IMAGE), ("Conv2d", (4, 6, 4), {"padding": "same"}, IMAGE),
    ("Conv2d", (4, 6, 3), {}, IMAGE[1:]), ("Conv3d", (2, 3, 2), {"padding": 1}, VOLUME),
    ("Conv1d", (6, 6, 4), {"padding": 3, "groups": 6}, X), ("Conv1d", (6, 12, 3), {"groups": 6, "dilation": 2, "bias": False}, X),
    ("ConvTranspose1d", (6, 4, 3), {"stride": 2, "padding": 1, "output_padding": 1}, X),
    ("ConvTranspose2d", (4, 6, 3), {"stride": 2, "groups": 2}, IMAGE), ("ConvTranspose3d", (2, 3, 2), {"dilation": 2}, VOLUME),
    ("BatchNorm1d", (6,), {}, X), ("BatchNorm1d", (6,), {"momentum": None}, (5, 6)), ("BatchNorm2d", (4,), {}, IMAGE),
    ("BatchNorm2d", (4,), {"affine": False}, IMAGE), ("BatchNorm2d", (4,), {"track_running_stats": False}, IMAGE),
    ("BatchNorm3d", (2,), {"eps": 1e-3, "momentum": 0.3}, VOLUME),
    ("InstanceNorm1d", (6,), {"affine": True}, X), ("InstanceNorm2d", (4,), {}, IMAGE),
    ("InstanceNorm2d", (4,), {"track_running_stats": True, "affine": True}, IMAGE), ("InstanceNorm3d", (2,), {}, VOLUME),
    ("LayerNorm", (7,), {}, X), ("LayerNorm", ((6, 7),), {"bias": False}, X), ("LayerNorm", (7,), {"elementwise_affine": False}, X),
    ("RMSNorm", (7,), {}, X), ("RMSNorm", ((6, 7),), {"eps": 1e-3}, X), ("RMSNorm", (7,), {"elementwise_affine": False}, X),
    ("GroupNorm", (2, 6), {}, X), ("GroupNorm", (2, 4), {"affine": False}, IMAGE), ("LocalResponseNorm", (3,), {}, IMAGE),
    ("MaxPool1d", (3,), {"stride": 2, "padding": 1}, X), ("MaxPool2d", (3,), {"stride": 2, "padding": 1}, IMAGE),
    ("MaxPool2d", (2,), {"ceil_mode": True}, IMAGE), ("MaxPool2d", ((3, 2),), {"dilation": (1, 2), "stride": 1}, IMAGE),
    ("MaxPool3d", (2,), {}, VOLUME), ("MaxPool2d", (3,), {"return_indices": True, "stride": 2}, IMAGE),
    ("AvgPool1d", (3,), {"stride": 2, "padding": 1}, X), ("AvgPool2d", (3,), {"stride": 2, "padding": 1}, IMAGE),
    ("AvgPool2d", (3,), {"padding": 1, "count_include_pad": False}, IMAGE),
    ("AvgPool2d", (3,), {"stride": 2, "ceil_mode": True, "padding": 1}, IMAGE), ("AvgPool2d", (2,), {"divisor_override": 3}, IMAGE),
    ("AvgPool3d", (2,), {}, VOLUME), ("LPPool1d", (2, 3), {}, X), ("LPPool2d", (2, 2), {}, IMAGE),
    ("AdaptiveAvgPool1d", (3,), {}, X), ("AdaptiveAvgPool2d", (1,), {}, IMAGE), ("AdaptiveAvgPool2d", ((3, 4),), {}, IMAGE),
    ("AdaptiveAvgPool2d", ((None, 3),), {}, IMAGE), ("AdaptiveAvgPool3d", (2,), {}, VOLUME),
    ("AdaptiveMaxPool1d", (3,), {}, X), ("AdaptiveMaxPool2d", ((3, 4),), {"return_indices": True}, IMAGE),
    ("AdaptiveMaxPool2d", ((4, 5),), {}, IMAGE), ("AdaptiveMaxPool3d", (2,), {}, VOLUME),
    ("Flatten", (), {}, IMAGE), ("Unflatten", (1, (2, 3)), {}, X), ("Unfold", (3,), {"padding": 1, "stride": 2}, IMAGE),
    ("Fold", ((4, 5), 2), {}, (2, 12, 12)), ("PixelShuffle", (2,), {}, IMAGE), ("PixelUnshuffle", (2,), {}, (2, 3, 4, 6)),
    ("ChannelShuffle", (2,), {}, IMAGE), ("Upsample", (), {"scale_factor": 2}, IMAGE),
    ("Upsample", (), {"size": (5, 11), "mode": "bilinear"}, IMAGE),
    ("Upsample", (), {"scale_factor": 1.7, "mode": "bilinear", "align_corners": True}, IMAGE),
    ("Upsample", (), {"scale_factor": 0.6, "mode": "bicubic"}, IMAGE), ("Upsample", (), {"size": 10, "mode": "linear"}, X),
    ("Upsample", (), {"scale_factor": 1.5, "mode": "trilinear"}, VOLUME), ("Upsample", (), {"size": (4, 3), "mode": "area"}, IMAGE),
    ("Upsample", (), {"scale_factor": 1.3, "mode": "nearest-exact"}, IMAGE),
    ("ZeroPad2d", ((1, 2, 0, 1),), {}, IMAGE), ("ConstantPad1d", (2, 0.7), {}, X), ("ConstantPad3d",
                                                                                    ((1, -1, 0, 2, 1, 1), -2.0), {}, VOLUME),
    ("ReflectionPad1d", (2,), {}, X), ("ReflectionPad2d", ((1, 2, 3, 0),), {}, IMAGE), ("ReplicationPad2d",
                                                                                        ((1, 2, 3, 4),), {}, IMAGE),
    ("ReplicationPad3d", (1,), {}, VOLUME), ("CircularPad2d", ((2, 1, 3, 0),), {}, IMAGE),
    ("Dropout", (0.4,), {}, X),
]


@pytest.mark.parametrize("name,args,kwargs,shape", LAYERS, ids=lambda v: str(v))
@pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")
def test_layers(name, args, kwargs, shape):
    compare_module(name, args, kwargs, [randn(*shape)], train=name != "Dropout")


@pytest.mark.parametrize("name,args", [("BatchNorm2d", (4,)), ("InstanceNorm2d", (4,))])
def test_norms_in_evaluation(name, args):
    compare_module(name, args, {"track_running_stats": True, "affine": True}, [randn(*IMAGE)], train=False)


@pytest.mark.parametrize("name,args,kwargs", [
    ("Embedding", (6, 5), {}), ("Embedding", (6, 5), {"padding_idx": 2}), ("Embedding", (6, 5), {"scale_grad_by_freq": True}),
    ("Embedding", (6, 5), {"max_norm": 1.0}), ("EmbeddingBag", (6, 5), {}), ("EmbeddingBag", (6, 5),
                                                                             {"mode": "sum", "padding_idx": 2}),
    ("EmbeddingBag", (6, 5), {"mode": "max"}),
], ids=str)
def test_embeddings(name, args, kwargs):
    compare_module(name, args, kwargs, [INDEX])


def test_embedding_bag_offsets():
    compare_module("EmbeddingBag", (6, 5), {"mode": "mean"}, [INDEX.reshape(-1), torch.tensor([0, 2, 2, 5])])


def test_bilinear():
    compare_module("Bilinear", (4, 3, 5), {}, [randn(2, 6, 4), randn(2, 6, 3, seed=1)])


@pytest.mark.parametrize("name", ["PairwiseDistance", "CosineSimilarity"])
def test_distances(name):
    compare_module_without_repr(name, [randn(5, 4), randn(5, 4, seed=1)])


def compare_module_without_repr(name, inputs):
    compare_module(name, (), {}, inputs)


P = torch.rand(5, 4, generator=torch.Generator().manual_seed(3))
LOSSES = [
    ("CrossEntropyLoss", {}, (randn(5, 4), LABELS)), ("CrossEntropyLoss", {"reduction": "sum"}, (randn(5, 4), LABELS)),
    ("CrossEntropyLoss", {"reduction": "none", "label_smoothing": 0.1}, (randn(5, 4), LABELS)),
    ("CrossEntropyLoss", {"label_smoothing": 0.2}, (randn(5, 4), LABELS)), ("CrossEntropyLoss", {"ignore_index": 1},
                                                                            (randn(5, 4), LABELS.clamp(0))),
    ("CrossEntropyLoss", {}, (randn(5, 4), P / P.sum(1, keepdim=True))),
    ("CrossEntropyLoss", {}, (randn(2, 4, 3), torch.tensor([[1, 0, 3], [2, 2, 0]]))), ("CrossEntropyLoss", {},
                                                                                       (randn(4), torch.tensor(2))),
    ("NLLLoss", {}, (randn(5, 4), LABELS)), ("NLLLoss", {"reduction": "none"}, (randn(5, 4), LABELS)),
    ("MSELoss", {}, (randn(5, 4), P)), ("L1Loss", {"reduction": "sum"}, (randn(5, 4), P)),
    ("SmoothL1Loss", {"beta": 0.5}, (randn(5, 4), P)),
    ("HuberLoss", {"delta": 0.7}, (randn(5, 4), P)), ("BCELoss", {}, (P.clone().requires_grad_(), P.round())),
    ("BCEWithLogitsLoss", {}, (randn(5, 4), P)), ("KLDivLoss", {"reduction": "batchmean"}, (randn(5, 4), P)),
    ("KLDivLoss", {"reduction": "sum", "log_target": True}, (randn(5, 4), P.log())), ("PoissonNLLLoss", {"full": True},
                                                                                      (randn(5, 4), P * 5)),
    ("GaussianNLLLoss", {"full": True}, (randn(5, 4), P, P + 0.1)), ("HingeEmbeddingLoss", {}, (randn(5), SIGNS)),
    ("MarginRankingLoss", {"margin": 0.3}, (randn(5), randn(5, seed=2), SIGNS)), ("SoftMarginLoss", {}, (randn(5), SIGNS)),
    ("CosineEmbeddingLoss", {"margin": 0.2}, (randn(5, 4), randn(5, 4, seed=2), SIGNS)),
    ("TripletMarginLoss", {"swap": True}, (randn(5, 4), randn(5, 4, seed=1), randn(5, 4, seed=2))),
    ("TripletMarginWithDistanceLoss", {}, (randn(5, 4), randn(5, 4, seed=1), randn(5, 4, seed=2))),
    ("MultiMarginLoss", {"p": 2}, (randn(5, 4), LABELS.clamp(0))), ("MultiLabelSoftMarginLoss", {}, (randn(5, 4), P.round())),
    ("MultiLabelMarginLoss", {}, (randn(2, 4), torch.tensor([[1, 0, -1, 2], [3, -1, 0, 0]]))),
]


@pytest.mark.parametrize("name,kwargs,inputs", LOSSES, ids=lambda v: str(v) if isinstance(v, (str, dict)) else "")
def test_losses(name, kwargs, inputs):
    for t in inputs:
        t.grad = None
    compare_module(name, (), kwargs, list(inputs))


def test_weighted_cross_entropy():
    weight = torch.tensor([0.5, 1.0, 2.0, 0.1])
    for smoothing in (0.0, 0.1):
        for reduction in ("mean", "sum", "none"):
            compare_call(F.cross_entropy, TF.cross_entropy, [randn(5, 4), LABELS],
                         {"weight": weight, "label_smoothing": smoothing, "reduction": reduction})


def test_ctc():
    logits = randn(12, 3, 5)
    targets = torch.tensor([[1, 2, 2], [3, 4, 1], [2, 1, 0]])
    lengths = torch.tensor([12, 10, 9]), torch.tensor([3, 3, 2])
    for reduction in ("mean", "sum", "none"):
        logits.grad = None
        compare_call(lambda x, *rest, reduction=reduction: F.ctc_loss(F.log_softmax(x, 2), *rest, reduction=reduction),
                     lambda x, *rest, reduction=reduction: TF.ctc_loss(TF.log_softmax(x, 2), *rest, reduction=reduction),
                     [logits, targets, *lengths], rtol=1e-3)


def test_adaptive_softmax():
    kwargs = {"cutoffs": [3, 6], "div_value": 2.0}
    compare_module("AdaptiveLogSoftmaxWithLoss", (8, 10), kwargs, [randn(5, 8), torch.tensor([0, 2, 4, 9, 7])])


def test_a_function_put_in_the_place_of_another_is_called_by_modules(monkeypatch):
    """As tools that count or replace do."""
    made = [cls for cls in vars(nn).values() if isinstance(cls, type) and issubclass(cls, FunctionModule) and cls is not FunctionModule]
    assert len(made) > 60
    for cls in made:
        name = next(name for name in cls.forward.__code__.co_names if hasattr(F, name))
        with monkeypatch.context() as patch:
            patch.setattr(F, name, lambda *args, **kwargs: "the other")
            module = cls.__new__(cls)
            nn.Module.__init__(module)
            vars(module).update(dict.fromkeys(cls.forward.__code__.co_names))
            assert cls.forward(module, *[None] * (cls.forward.__code__.co_argcount - 1)) == "the other", cls
