"""Values where formulas break (zeros, ties, infinities' neighbours), against torch; narrow floats; generated kernels."""

import warnings

import numpy as np
import pytest

import flambeau as fl
from flambeau import nn
from flambeau.ops.registry import COMPOSITES

F = nn.functional
ZERO = np.zeros((2, 3), np.float32)
PROBABILITIES = np.array([[0.0, 1.0, 0.5]], np.float32)
TARGET = np.array([[1.0, 1.0, 0.0]], np.float32)
BIG = np.array([[-200.0, -90.0, -20.0, 0.0, 20.0, 90.0, 200.0]], np.float32)
ONES = np.ones(5, np.float32)


def row(*values):
    return np.array(values, np.float32)


CASES = {
    "bce at 0 and 1": (lambda lib, f, x: f.binary_cross_entropy(x, lib.tensor(TARGET)), PROBABILITIES),
    "normalize zero": (lambda lib, f, x: f.normalize(x, dim=1), ZERO),
    "cosine of zero": (lambda lib, f, x: f.cosine_similarity(x, x * 0 + 1), ZERO),
    "distance of equals": (lambda lib, f, x: f.pairwise_distance(x, x * 1), ZERO),
    "softmax of big": (lambda lib, f, x: f.softmax(x, -1) * lib.arange(7.0), BIG),
    "every target ignored": (lambda lib, f, x: f.cross_entropy(x, lib.tensor([-100, -100])), ZERO),
    "smooth l1 with beta 0": (lambda lib, f, x: f.smooth_l1_loss(x, x.detach() + 1, beta=0), ZERO),
    "kl of a zero target": (lambda lib, f, x: f.kl_div(x, lib.tensor(TARGET), reduction="sum"), PROBABILITIES),
    "layer norm of a constant": (lambda lib, f, x: f.layer_norm(x, (3,)) * lib.arange(3.0), ZERO + 1),
    "max pool of NaN": (lambda lib, f, x: f.max_pool1d(x.reshape(1, 1, -1), 2).nan_to_num(), row(1, np.nan, 2, 3)),
    "max pool of ties": (lambda lib, f, x: f.max_pool1d(x.reshape(1, 1, -1), 2, 1), ONES),
    "adaptive max pool of ties": (lambda lib, f, x: f.adaptive_max_pool1d(x.reshape(1, 1, -1), 2), ONES),
    "shrinking at the bound": (lambda lib, f, x: f.softshrink(x, 0.5) + f.hardshrink(x, 0.5), row(-0.5, 0.5, 0, 0.6)),
    "kinks": (lambda lib, f, x: f.hardtanh(x) + f.relu6(x) + f.hardswish(x) + f.hardsigmoid(x), row(-3, -1, 1, 3, 0, 6)),
    "relu at zero": (lambda lib, f, x: f.relu(x), row(0, -0.0, 1)),
    "threshold": (lambda lib, f, x: f.threshold(x, 0.0, 5.0), BIG),
    "gelu tanh": (lambda lib, f, x: f.gelu(x, approximate="tanh"), BIG),
    **{name: (lambda lib, f, x, name=name: getattr(f, name)(x), BIG) for name in (
        "softplus", "logsigmoid", "elu", "gelu", "silu", "mish", "hardswish", "celu", "selu", "softsign", "tanhshrink",
        "leaky_relu")},
}


@pytest.mark.parametrize("name", CASES)
def test_as_torch(name):
    torch = pytest.importorskip("torch")
    function, values = CASES[name]
    found = []
    for lib in (fl, torch):
        x = lib.tensor(values.copy(), requires_grad=True)
        y = function(lib, lib.nn.functional, x)
        y.sum().backward()
        found.append((y.detach().numpy(), x.grad.numpy()))
    for ours, theirs in zip(*found):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gelu", "silu", "mish", "elu", "softplus", "hardswish", "logsigmoid"])
def test_narrow_floats_round_once(name):
    x = fl.linspace(-6, 6, 4001).bfloat16()
    exact = getattr(F, name)(x.double())
    assert ((getattr(F, name)(x).double() - exact).abs() <= exact.abs() * 2**-8 + 1e-6).all()


def tensors(*shapes):
    fl.manual_seed(0)
    return [fl.randn(s) for s in shapes]


WIDE = (40, 600)
KERNELS = {
    "_softmax": (*tensors(WIDE), 1), "softmax_backward": (*tensors(WIDE, WIDE), 0), "_log_softmax": (*tensors(WIDE), 1),
    "log_softmax_backward": (*tensors(WIDE, WIDE), 1), "_gelu": (*tensors(WIDE), "none"),
    "gelu_backward": (*tensors(WIDE, WIDE), "tanh"),
    "_silu": (*tensors(WIDE),), "silu_backward": (*tensors(WIDE, WIDE),), "_elu": (*tensors(WIDE), 1.0, 1.0, 0.5),
    "_hardswish": (*tensors(WIDE),), "_softplus": (*tensors(WIDE), 1.0, 20.0),
    "_layer_norm": (*tensors(WIDE, (600,), (600,)), 1, 1e-5),
    "layer_norm_backward": tuple(tensors(WIDE, WIDE, (600,), (40,), (40,))),
    "layer_norm_backward_affine": tuple(tensors(WIDE, WIDE, (40,), (40,))), "_rms_norm": (*tensors(WIDE, (600,)), 1, 1e-6),
    "_batch_norm_train": (*tensors((8, 6, 30, 30), (6,), (6,)), 1e-5),
    "_batch_norm_eval": (*tensors((8, 6, 30, 30), (6,), (6,), (6,)), fl.rand(6) + 0.5, 1e-5),
    "batch_norm_backward_sums": tuple(tensors((8, 6, 30, 30), (8, 6, 30, 30), (6,), (6,))),
    "batch_norm_backward_input": tuple(tensors((8, 6, 30, 30), (8, 6, 30, 30), (6,), (6,), (6,), (6,), (6,))),
    "_cross_entropy_rows": (*tensors(WIDE), fl.arange(40) * 13), "cross_entropy_rows_backward": (
        *tensors((40,), WIDE), fl.arange(40) * 13, fl.full((40,), 2.0), fl.full((40,), 5.0)),
    "attention_weights": (*tensors((6, 64, 64)), None, True, 0.125),
    "attention_weights_backward": (*tensors((6, 64, 64), (6, 64, 64)), 0.3),
    "masked_scale": (*tensors(WIDE), fl.rand(WIDE) > 0.5, 2.0), "_bce_with_logits": tuple(tensors(WIDE, WIDE)),
}


@pytest.mark.parametrize("name", KERNELS)
def test_generated_kernels_are_the_bodies(name):
    record, args = COMPOSITES[name], KERNELS[name]
    with fl.no_grad():
        got, expected = record.run(args), record.fn(*args)
    for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (got, expected))):
        assert a.shape == b.shape and a.dtype is b.dtype
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-4, atol=2e-4)


def test_the_kernels_above_are_generated_where_there_is_a_compiler():
    from flambeau.inductor.cpu.compile import have_compiler
    from flambeau.ops.primitives import array_of, compiled
    if not have_compiler():
        pytest.skip("needs g++")
    with fl.no_grad():
        missing = [name for name, args in KERNELS.items() if compiled(COMPOSITES[name].fn, *map(array_of, args)) is NotImplemented]
    assert missing == []


def test_the_old_flags_of_losses_are_truth_values():
    """0 and 1 are as good as False and True."""
    theirs = pytest.importorskip("torch")
    for flags in ((0, None), (1, None), (None, 0), (None, 1), (0, 1), (1, 1), (0, 0), (False, None)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got, want = (lib.nn.functional.mse_loss(lib.arange(4.0), lib.ones(4), *flags) for lib in (fl, theirs))
        assert got.tolist() == want.tolist(), flags


def test_hinge_embedding_of_infinities():
    x, y = fl.tensor([float("inf"), -float("inf"), 2.0, 0.5]), fl.tensor([-1, 1, 1, -1])
    assert nn.functional.hinge_embedding_loss(x, y, reduction="none").tolist() == [0, -float("inf"), 2.0, 0.5]


def test_instance_norm_refuses_statistics_of_other_sizes_and_moves_neither():
    mean, var = fl.tensor([3.0, 1.0]), fl.tensor([1.4])
    for given in ((mean, var), (var, mean), (mean[:1], mean[:1]), (mean, mean.reshape(2, 1))):
        with pytest.raises(RuntimeError, match="should contain 2 elements"):
            fl.nn.functional.instance_norm(fl.ones(1, 2, 2), *given)
    assert mean.tolist() == [3.0, 1.0] and var.tolist() == pytest.approx([1.4])


def test_elu_in_place_takes_the_scales():
    functional = fl.nn.functional
    x = fl.tensor([-1.0, 0.5, 2.0])
    for scales in ((), (0.5,), (0.5, 2.0), (0.5, 2.0, 0.1)):
        alpha, scale, input_scale = (*scales, 1.0, 1.0, 1.0)[:3] if len(scales) < 3 else scales
        want = fl.where(x > 0, x * scale, alpha * scale * (x * input_scale).expm1())
        fl.testing.assert_close(functional.elu_(x.clone(), *scales), want)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_small_losses_of_large_scores_keep_their_digits(kind, compiled):
    """Off by a last place of 1, not of the scores."""
    apart = np.array([[0.0, 8.0, 15.0], [0.0, 12.0, 13.0], [0.0, 0.0, 20.0]])
    want = np.log1p(np.exp(apart[:, :2] - apart[:, 2:]).sum(1))
    target = fl.full((3,), 2, dtype=fl.int64)
    calls = {
        "classes": lambda x: fl.nn.functional.cross_entropy(x, target, reduction="none"),
        "weights": lambda x: fl.nn.functional.cross_entropy(x, target, x.new_ones((3,)), reduction="none"),
        "pixels": lambda x: fl.nn.functional.cross_entropy(x[..., None], target[:, None], reduction="none")[:, 0],
        "probabilities": lambda x: fl.nn.functional.cross_entropy(x, fl.nn.functional.one_hot(target, 3).to(x.dtype), reduction="none"),
        "logarithms": lambda x: -fl.nn.functional.log_softmax(x, 1)[:, 2],
    }
    for name, fn in calls.items():
        got = (fl.compile(fn) if compiled else fn)(fl.tensor(apart + 2.0**14, dtype=getattr(fl, kind))).numpy()
        np.testing.assert_allclose(got, want, rtol=0, atol=2 * np.finfo(kind).eps, err_msg=name)


SIGNS = {
    "dropout": lambda lib, x: lib.nn.functional.dropout(x, 0.5),
    "dropout of all": lambda lib, x: lib.nn.functional.dropout(x, 1.0),
    "channel dropout": lambda lib, x: lib.nn.functional.dropout1d(x.reshape(2, 3, 2), 0.5),
    "batch norm": lambda lib, x: lib.nn.functional.batch_norm(x, None, None, training=True),
    "batch norm of given statistics": lambda lib, x: lib.nn.functional.batch_norm(x, lib.zeros(3), lib.ones(3)),
    "batch norm with a weight": lambda lib, x: lib.nn.functional.batch_norm(x, lib.zeros(3), lib.ones(3), -lib.ones(3)),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", SIGNS)
def test_zeros_have_the_signs_of_torchs(name, compiled):
    """Of what is dropped and of centred zeros; and what is not finite is NaN where it is dropped."""
    torch = pytest.importorskip("torch")
    values = np.array([[-0.0, 0.0, -1.0], [-0.0, 0.0, 1.0], [-0.0, -np.inf, np.nan], [3.0, -0.0, -2.0]], np.float32)
    values = values[[0, 1]] if "norm" in name else values
    found = []
    for lib in (fl, torch):
        lib.manual_seed(0)
        f = lambda x, lib=lib: SIGNS[name](lib, x)
        found.append((fl.compile(f, backend="aot_eager") if compiled and lib is fl else f)(lib.tensor(values)).numpy())
    np.testing.assert_allclose(*found, rtol=1e-5)
    np.testing.assert_array_equal(*(np.signbit(np.nan_to_num(a)) for a in found))
