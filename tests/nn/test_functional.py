"""Functions of nn.functional against torch's: attention, padding, resizing, sampling, recurrent networks, transformers."""

import itertools

import pytest

pytest.importorskip("torch")

import numpy as np
import torch
import torch.nn.functional as TF

import flambeau
import flambeau.nn.functional as F
from flambeau.ops.nn import layers
from tests.nn.oracle import assert_close, compare_call, compare_module, load_same, randn, to_ours

BOOLS = torch.rand(2, 1, 5, 6, generator=torch.Generator().manual_seed(5)) > 0.3


@pytest.mark.parametrize("kwargs", [
    {}, {"is_causal": True}, {"scale": 0.3}, {"attn_mask": BOOLS}, {"attn_mask": randn(5, 6, grad=False)},
], ids=str)
def test_attention(kwargs):
    q, k, v = randn(2, 3, 5, 4), randn(2, 3, 6, 4, seed=1), randn(2, 3, 6, 7, seed=2)
    compare_call(F.scaled_dot_product_attention, TF.scaled_dot_product_attention, [q, k, v], kwargs)


def test_attention_gradient_of_the_mask_and_grouped_heads():
    q, k, v, mask = randn(2, 4, 5, 4), randn(2, 2, 6, 4, seed=1), randn(2, 2, 6, 4, seed=2), randn(1, 4, 5, 6, seed=3)
    compare_call(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, enable_gqa=True),
                 lambda q, k, v, m: TF.scaled_dot_product_attention(q, k, v, m, enable_gqa=True), [q, k, v, mask])


@pytest.mark.parametrize("shapes", [((5, 4), (6, 4)), ((3, 5, 4), (3, 6, 4)), ((2, 3, 2, 5, 4), (2, 3, 2, 6, 4))])
def test_attention_ranks(shapes):
    q, k, v = randn(*shapes[0]), randn(*shapes[1], seed=1), randn(*shapes[1], seed=2)
    compare_call(lambda *a: F.scaled_dot_product_attention(*a, is_causal=True),
                 lambda *a: TF.scaled_dot_product_attention(*a, is_causal=True), [q, k, v])


def test_attention_rows_that_see_nothing_give_zero():
    q = flambeau.randn(1, 3, 4)
    mask = flambeau.zeros(3, 3, dtype=flambeau.bool)
    assert (F.scaled_dot_product_attention(q, q, q, mask) == 0).all()


def test_attention_refuses_a_mask_beside_is_causal():
    q = flambeau.randn(1, 3, 4)
    with pytest.raises(RuntimeError, match="attn_mask should not be set when is_causal"):
        F.scaled_dot_product_attention(q, q, q, flambeau.zeros(3, 3), is_causal=True)


def test_attention_dropout_keeps_the_mean():
    flambeau.manual_seed(0)
    q = flambeau.randn(4, 32, 8)
    ones = flambeau.ones(4, 32, 8)
    out = F.scaled_dot_product_attention(q, q, ones, dropout_p=0.5)
    assert abs(out.mean().item() - 1) < 0.1 and (out - 1).abs().max().item() > 0.1


@pytest.mark.parametrize("mode,amounts,value", [
    ("constant", (1, 2), 0), ("constant", (1, -1, 0, 2), 1.5), ("constant", (0, 0, 1, 1, 2, 0), -1.0),
    ("reflect", (2, 1, 1, 3), None),
    ("replicate", (2, 0, 3, 4), None), ("circular", (1, 2, 2, 1), None)], ids=str)
def test_pad(mode, amounts, value):
    compare_call(lambda x: F.pad(x, amounts, mode, value), lambda x: TF.pad(x, amounts, mode, value), [randn(2, 3, 5, 6)])


def test_pad_refuses_too_much():
    with pytest.raises(RuntimeError, match="Padding size should be less than"):
        F.pad(flambeau.zeros(1, 1, 3), (3, 0), "reflect")
    with pytest.raises(RuntimeError, match="divisible by 2"):
        F.pad(flambeau.zeros(3), (1,))


@pytest.mark.parametrize("kwargs", [
    {"size": 5}, {"scale_factor": 2.3}, {"size": (5, 13), "mode": "bilinear"}, {"scale_factor": (0.4, 1.9), "mode": "bilinear"},
    {"size": (13, 4), "mode": "bicubic"}, {"size": (3, 4), "mode": "bicubic", "antialias": True},
    {"size": (3, 12), "mode": "bilinear", "antialias": True}, {"scale_factor": 0.5, "mode": "bicubic", "align_corners": True},
    {"scale_factor": 1.37, "mode": "bilinear", "recompute_scale_factor": True},
], ids=str)
def test_interpolate(kwargs):
    compare_call(lambda x: F.interpolate(x, **kwargs), lambda x: TF.interpolate(x, **kwargs), [randn(2, 3, 8, 9)])


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample(mode, padding, align):
    grid = (randn(2, 4, 5, 2, seed=4, grad=False) * 0.8).requires_grad_(mode != "nearest")
    compare_call(lambda x, g: F.grid_sample(x, g, mode, padding, align), lambda x, g: TF.grid_sample(x, g, mode, padding, align),
                 [randn(2, 3, 6, 7), grid], rtol=1e-3, atol=1e-4)


def test_affine_grid():
    compare_call(lambda t: F.affine_grid(t, (2, 1, 3, 4), False),
                 lambda t: TF.affine_grid(t, (2, 1, 3, 4), align_corners=False), [randn(2, 2, 3)])


def test_max_unpool_puts_values_back():
    x = randn(2, 3, 6, 8)
    compare_call(lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
                 lambda x: TF.max_unpool2d(*TF.max_pool2d(x, 2, return_indices=True), 2), [x])


def test_normalize_and_cosine_similarity():
    compare_call(F.normalize, TF.normalize, [randn(4, 5)])
    compare_call(lambda a, b: F.cosine_similarity(a, b, dim=-1), lambda a, b: TF.cosine_similarity(a, b, dim=-1),
                 [randn(4, 1, 5), randn(3, 5, seed=1)])


def test_one_hot_and_gumbel():
    assert F.one_hot(flambeau.tensor([0, 2]), 4).tolist() == [[1, 0, 0, 0], [0, 0, 1, 0]]
    flambeau.manual_seed(0)
    hard = F.gumbel_softmax(flambeau.zeros(100, 3), hard=True)
    assert (hard.sum(1) == 1).all() and set(hard.unique().tolist()) <= {0.0, 1.0}


def test_bfloat16_norms_and_softmax():
    x = randn(4, 64, grad=False).to(torch.bfloat16)
    ours = flambeau.from_numpy(x.float().numpy()).bfloat16()
    for mine, theirs in ((F.softmax(ours, -1), TF.softmax(x, -1)), (F.layer_norm(ours, (64,)), TF.layer_norm(x, (64,))),
                         (F.rms_norm(ours, (64,)), TF.rms_norm(x, (64,)))):
        assert mine.dtype is flambeau.bfloat16
        assert_close(mine.float(), theirs.float(), rtol=2e-2, atol=2e-2)


def test_large_inputs_take_generated_kernels():
    x = randn(64, 700)
    for ours, theirs in ((lambda x: F.softmax(x, -1), lambda x: TF.softmax(x, -1)), (lambda x: F.gelu(x), lambda x: TF.gelu(x)),
                         (lambda x: F.layer_norm(x, (700,)), lambda x: TF.layer_norm(x, (700,))),
                         (lambda x: F.log_softmax(x, 0), lambda x: TF.log_softmax(x, 0)),
                         (lambda x: F.silu(x), lambda x: TF.silu(x)),
                         (lambda x: F.cross_entropy(x, flambeau.arange(64)) if not isinstance(x, torch.Tensor) else None,
                          lambda x: TF.cross_entropy(x, torch.arange(64)))):
        x.grad = None
        compare_call(ours, theirs, [x], rtol=1e-3)


# -- dropout ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels_last"])
@pytest.mark.parametrize("kwargs", [
    {}, {"ignore_index": 2}, {"label_smoothing": 0.1, "weight": torch.rand(7) + 0.5}, {"reduction": "none"},
], ids=lambda kwargs: ",".join(kwargs))
def test_cross_entropy_of_images(kwargs, last):
    target = torch.randint(0, 7, (2, 5, 6), generator=torch.Generator().manual_seed(0))
    weight, rest = kwargs.get("weight"), {name: value for name, value in kwargs.items() if name != "weight"}

    def call(library, functional, x, weight):
        x = x.contiguous(memory_format=library.channels_last) if last else x
        return functional.cross_entropy(x, target if library is torch else to_ours(target), weight, **rest)
    compare_call(lambda x: call(flambeau, F, x, None if weight is None else to_ours(weight)),
                 lambda x: call(torch, TF, x, weight), [randn(2, 7, 5, 6)])


@pytest.mark.parametrize("padding", [None, 2, -1])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bags_of_one_size(mode, padding):
    index = torch.randint(0, 11, (5, 6), generator=torch.Generator().manual_seed(0))
    index[0] = 2 if padding == 2 else 10
    flambeau._dynamo.reset()
    ours = flambeau.compile(lambda w: F.embedding_bag(to_ours(index), w, mode=mode, padding_idx=padding))
    for function in (lambda w: F.embedding_bag(to_ours(index), w, mode=mode, padding_idx=padding), ours):
        compare_call(function, lambda w: TF.embedding_bag(index, w, mode=mode, padding_idx=padding), [randn(11, 4)])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_long_embedding_bags_are_summed_wide(mode, dtype):
    rows = torch.full((5000, 1), 0.75 if mode == "mean" else 1.0, dtype=getattr(torch, dtype))
    offsets = torch.tensor([0, 5])
    want = TF.embedding_bag(torch.arange(5000), rows, offsets, mode=mode).tolist()
    function = lambda i, w, o: F.embedding_bag(i, w, o, mode=mode)
    for call_it in (function, flambeau.compile(function)):
        ours = flambeau.full((5000, 1), rows[0].item(), dtype=getattr(flambeau, dtype))
        assert call_it(flambeau.arange(5000), ours, to_ours(offsets)).tolist() == want


def test_embedding_bags_count_past_what_a_float_holds():
    index, rows = flambeau.zeros(2**24 + 2**20, dtype=flambeau.int64), flambeau.zeros(2, 1)
    rows[1], index[:2**20] = 1.0, 1
    got = F.embedding_bag(index, rows, flambeau.tensor([0]), mode="mean").item()
    assert abs(got * 17 - 1) < 1e-5    # a float stops counting at 2**24


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_long_bags_keep_their_digits(mode, monkeypatch):
    """Rows are added up in runs: of as many as a float32 adds up without losing digits."""
    count = 2**20 + 7
    got = F.embedding_bag(flambeau.zeros(count, dtype=flambeau.int64), flambeau.full((1, 1), 0.1), flambeau.tensor([0, 3]), mode=mode)
    right = 0.1 * (np.array([3, count - 3]) if mode == "sum" else 1)
    assert np.abs(got.numpy()[:, 0] / right - 1).max() < 1e-4   # 1e-2 one by one
    index, offsets, found = flambeau.randint(0, 5, (50,)), flambeau.tensor([0, 3, 3, 20, 49]), []
    weight = flambeau.randn(5, 3, requires_grad=True)
    for many in (2**20, 8):
        monkeypatch.setattr(layers, "_MANY", many)
        monkeypatch.setattr(layers, "_RUN", 4)
        out = F.embedding_bag(index, weight, offsets, mode=mode, padding_idx=2)
        found.append([out.detach(), *flambeau.autograd.grad(out.square().sum(), weight)])
    for plain, in_runs in zip(*found):
        assert flambeau.allclose(plain, in_runs, rtol=1e-4, atol=1e-5)


def test_embedding_bags_of_one_size_with_weights():
    index = torch.randint(0, 11, (5, 6), generator=torch.Generator().manual_seed(0))
    compare_call(lambda w, s: F.embedding_bag(to_ours(index), w, mode="sum", per_sample_weights=s),
                 lambda w, s: TF.embedding_bag(index, w, mode="sum", per_sample_weights=s), [randn(11, 4), randn(5, 6, seed=1)])


def test_dropout_keeps_and_scales():
    flambeau.manual_seed(1)
    x = flambeau.ones(200, 100, requires_grad=True)
    y = F.dropout(x, 0.3)
    kept = y != 0
    assert abs(kept.float().mean().item() - 0.7) < 0.02
    assert (y[kept] - 1 / 0.7).abs().max().item() < 1e-6
    y.sum().backward()
    assert ((x.grad != 0) == kept).all()
    assert F.dropout(x, 0.3, training=False) is x
    for order in itertools.permutations(range(4)):     # a mask lies as the input does, and so does the result
        x = flambeau.ones(2, 3, 4, 5).permute(order)
        for drop in (F.dropout, F.alpha_dropout, F.dropout2d, F.feature_alpha_dropout):
            assert drop(x, 0.5, True).stride() == x.stride(), (drop, order)
    channels = F.dropout2d(flambeau.ones(8, 16, 3, 3), 0.5)
    assert ((channels == 0).all(-1).all(-1) | (channels == 2).all(-1).all(-1)).all()
    z = F.alpha_dropout(flambeau.randn(300, 100), 0.2, training=True)
    assert abs(z.mean().item()) < 0.02 and abs(z.std().item() - 1) < 0.02
    with pytest.raises(ValueError, match="between 0 and 1"):
        F.dropout(x, 1.5)


# -- attention with projections, transformers ---------------------------------------------------------------
@pytest.mark.parametrize("kwargs,shapes", [
    ({}, ((5, 2, 8), (6, 2, 8))), ({"batch_first": True, "bias": False}, ((2, 5, 8), (2, 6, 8))),
    ({"add_bias_kv": True, "add_zero_attn": True}, ((5, 2, 8), (6, 2, 8))), ({}, ((5, 8), (6, 8))),
], ids=str)
@pytest.mark.parametrize("need_weights", [True, False])
def test_multihead_attention(kwargs, shapes, need_weights):
    q, k = randn(*shapes[0]), randn(*shapes[1], seed=1)
    compare_module("MultiheadAttention", (8, 2), kwargs, [q, k, k], {"need_weights": need_weights})


def test_multihead_attention_separate_widths_and_masks():
    q, k, v = randn(5, 2, 8), randn(6, 2, 3, seed=1), randn(6, 2, 4, seed=2)
    padding = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
    compare_module("MultiheadAttention", (8, 2), {"kdim": 3, "vdim": 4}, [q, k, v],
                   {"key_padding_mask": padding, "attn_mask": torch.zeros(5, 6,
                                                                          dtype=torch.bool).index_fill(1, torch.tensor([1]), True)})


@pytest.mark.parametrize("kwargs", [{}, {"norm_first": True, "batch_first": True, "activation": "gelu"}], ids=str)
def test_transformer_layers(kwargs):
    compare_module("TransformerEncoderLayer", (8, 2), {"dim_feedforward": 16, "dropout": 0.0, **kwargs}, [randn(4, 3, 8)])
    compare_module("TransformerDecoderLayer", (8, 2), {"dim_feedforward": 16, "dropout": 0.0, **kwargs},
                   [randn(4, 3, 8), randn(*((4, 5, 8) if "batch_first" in kwargs else (5, 3, 8)), seed=1)])


@pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")
def test_transformer():
    torch.manual_seed(0)
    args = {"d_model": 8, "nhead": 2, "num_encoder_layers": 2, "num_decoder_layers": 2, "dim_feedforward": 16, "dropout": 0.0}
    theirs, ours = torch.nn.Transformer(**args), flambeau.nn.Transformer(**args)
    load_same(ours, theirs)
    mask = theirs.generate_square_subsequent_mask(4)
    compare_call(ours, theirs, [randn(5, 3, 8), randn(4, 3, 8, seed=1)], {"tgt_mask": mask},
                 list(ours.named_parameters()), list(theirs.named_parameters()))


# -- recurrent networks ---------------------------------------------------------------------------------------
RNNS = [("RNN", {}), ("RNN", {"nonlinearity": "relu", "bias": False}), ("LSTM", {}), ("GRU", {}),
        ("LSTM", {"num_layers": 2, "bidirectional": True}),
        ("GRU", {"num_layers": 2, "bidirectional": True, "batch_first": True}), ("LSTM", {"proj_size": 2})]


@pytest.mark.parametrize("name,kwargs", RNNS, ids=str)
@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")
def test_recurrent(name, kwargs):
    compare_module(name, (4, 5), kwargs, [randn(6, 3, 4)])


def test_recurrent_with_a_state_and_without_a_batch():
    compare_module("LSTM", (4, 5), {}, [randn(6, 3, 4), (randn(1, 3, 5, seed=1), randn(1, 3, 5, seed=2))])
    compare_module("GRU", (4, 5), {}, [randn(6, 4), randn(1, 5, seed=1)])


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_recurrent_second_derivatives_and_compiled_gradients(name):
    ours = getattr(flambeau.nn, name)(2, 3).double()
    x = flambeau.randn(3, 2, 2, dtype=flambeau.float64, requires_grad=True)
    assert flambeau.autograd.gradgradcheck(lambda x: ours(x)[0], (x,))
    for dynamic in (False, True):
        want, got = (flambeau.autograd.grad(net(x)[0].sin().sum(), [x, *ours.parameters()])
                     for net in (ours, flambeau.compile(ours, dynamic=dynamic)))
        for g, w in zip(got, want, strict=True):
            assert flambeau.allclose(g, w)


@pytest.mark.parametrize("name", ["RNNCell", "LSTMCell", "GRUCell"])
def test_cells(name):
    compare_module(name, (4, 5), {}, [randn(3, 4)])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("name", "gates"), [("rnn_tanh_cell", 1), ("rnn_relu_cell", 1), ("gru_cell", 3), ("lstm_cell", 4)])
def test_functions_of_cells(name, gates, bias):
    n = 5 * gates
    tensors = [randn(3, 4), randn(3, 5, seed=1), randn(3, 5, seed=2), randn(n, 4, seed=3), randn(n, 5, seed=4)]
    tensors += [randn(n, seed=5), randn(n, seed=6)] if bias else []

    def of(fn):
        return lambda x, h, c, *weights: fn(x, (h, c) if name == "lstm_cell" else h + c, *weights)

    compare_call(of(getattr(flambeau, name)), of(getattr(torch, name)), tensors)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_gradients_of_convolutions_by_themselves(rank):
    x, w = randn(2, 4, 7, 6, 5)[(..., *[0] * (3 - rank))], randn(6, 2, 3, 2, 2, seed=1)[(..., *[0] * (3 - rank))]
    attrs = {"stride": 2, "padding": 1, "groups": 2}
    g = getattr(TF, f"conv{rank}d")(x, w, **attrs).detach().cos()
    for name, args in ((f"conv{rank}d_input", (tuple(x.shape), w.detach(), g)), (f"conv{rank}d_weight", (x.detach(), tuple(w.shape), g))):
        ours = [a if isinstance(a, tuple) else to_ours(a) for a in args]
        assert_close(getattr(flambeau.nn.grad, name)(*ours, **attrs), getattr(torch.nn.grad, name)(*args, **attrs))


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize(("spatial", "wanted"), [(2, {"output_size": (3, 4)}), (2, {"output_ratio": (0.7, 0.5)}), (2, {"output_size": 1}),
                                                 (3, {"output_size": (3, 4, 1)}), (3, {"output_ratio": (0.5, 0.6, 0.4)})])
def test_fractional_max_pooling(spatial, wanted, single):
    name, kernel = f"fractional_max_pool{spatial}d", (2, 3, 1)[:spatial]
    x = randn(*((2, 3, 7, 9, 6)[:spatial + 2][single:]))
    samples = torch.rand(1 if single else 2, 3, spatial, generator=torch.Generator().manual_seed(1))
    compare_call(*(lambda x, u, lib=lib: getattr(lib, name)(x, kernel, **wanted, return_indices=True, _random_samples=u)
                   for lib in (F, TF)), [x, samples])


def test_fractional_max_pooling_by_itself():
    x = flambeau.arange(56.0).reshape(1, 7, 8)
    values, where = F.fractional_max_pool2d_with_indices(x, 2, 3)
    assert flambeau.equal(values, x.flatten().take(where)) and (values.diff(dim=1) > 0).all() and values[0, 2, 2] == 55
    module = flambeau.nn.FractionalMaxPool2d(2, output_ratio=0.5, _random_samples=flambeau.full((1, 1, 2), 0.5))
    assert module(x).shape == (1, 3, 4) and list(module.state_dict()) == ["_random_samples"]
    fixed = flambeau.tensor([[[0.1, 0.7]]])
    compiled = flambeau.compile(lambda x: F.fractional_max_pool2d(x, 2, 3, _random_samples=fixed), backend="aot_eager")
    assert flambeau.equal(compiled(x), F.fractional_max_pool2d(x, 2, 3, _random_samples=fixed))


@pytest.mark.parametrize("call", [
    lambda t, x: t.nn.functional.fractional_max_pool2d(x, 2), lambda t, x: t.nn.functional.fractional_max_pool2d(x, 2, 9),
    lambda t, x: t.nn.functional.fractional_max_pool2d(x.int(), 2, 3),
    lambda t, x: t.nn.functional.fractional_max_pool2d(x, 2, 3, _random_samples=t.ones(2, 3, 3)),
    lambda t, x: t.nn.functional.fractional_max_pool2d(x, 2, 3, _random_samples=t.ones(2, 3, 2, dtype=t.float16)),
    lambda t, x: t.nn.FractionalMaxPool2d(2), lambda t, x: t.nn.FractionalMaxPool2d(2, 3, 0.5),
    lambda t, x: t.nn.FractionalMaxPool3d(2, output_ratio=1.5)])
def test_fractional_max_pooling_refuses(call):
    with pytest.raises(Exception) as theirs:
        call(torch, torch.ones(2, 3, 7, 8))
    with pytest.raises(theirs.type):
        call(flambeau, flambeau.ones(2, 3, 7, 8))


@pytest.mark.parametrize("name", ["max_pool1d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"])
def test_pools_with_indices(name):
    x = randn(*(2, 5, 6, 7)[:int(name[-2]) + 1])
    compare_call(*(getattr(lib, f"{name}_with_indices") for lib in (F, TF)), [x], {"kernel_size" if name[0] == "m" else "output_size": 3})
    if name == "max_pool1d":
        compare_call(flambeau.max_pool1d_with_indices, torch.max_pool1d_with_indices, [randn(2, 5), 2, 1, 1])


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_packed_sequences(name):
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(4, 5, bidirectional=True)
    ours = getattr(flambeau.nn, name)(4, 5, bidirectional=True)
    load_same(ours, theirs)
    x, lengths = randn(6, 3, 4), torch.tensor([4, 6, 2])
    pack, unpack = torch.nn.utils.rnn.pack_padded_sequence, torch.nn.utils.rnn.pad_packed_sequence
    expected, state = theirs(pack(x, lengths, enforce_sorted=False))
    expected = unpack(expected)[0]
    rnn = flambeau.nn.utils.rnn
    mine = to_ours(x)
    out, our_state = ours(rnn.pack_padded_sequence(mine, to_ours(lengths), enforce_sorted=False))
    out, sizes = rnn.pad_packed_sequence(out)
    assert sizes.tolist() == [4, 6, 2]
    assert_close(out, expected)
    for a, b in zip(our_state if name == "LSTM" else [our_state], state if name == "LSTM" else [state]):
        assert_close(a, b)
    expected.sum().backward()
    out.sum().backward()
    assert_close(mine.grad, x.grad)


def test_pad_sequence_both_sides():
    rnn = flambeau.nn.utils.rnn
    a, b = flambeau.ones(2), flambeau.ones(3) * 2
    assert rnn.pad_sequence([a, b], batch_first=True).tolist() == [[1, 1, 0], [2, 2, 2]]
    assert rnn.pad_sequence([a, b], True, -1, "left").tolist() == [[-1, 1, 1], [2, 2, 2]]
    assert [t.tolist() for t in rnn.unpack_sequence(rnn.pack_sequence([b, a]))] == [[2, 2, 2], [1, 1]]


# -- errors ----------------------------------------------------------------------------------------------------
def test_errors_say_what_was_seen():
    with pytest.raises(RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied \(2x3 and 4x5\)"):
        F.linear(flambeau.zeros(2, 3), flambeau.zeros(5, 4))
    with pytest.raises(RuntimeError, match="to have 4 channels, but got 3 channels"):
        F.conv2d(flambeau.zeros(1, 3, 5, 5), flambeau.zeros(2, 4, 3, 3))
    with pytest.raises(IndexError, match="Target 7 is out of bounds"):
        F.cross_entropy(flambeau.zeros(2, 3), flambeau.tensor([1, 7]))
    with pytest.raises(RuntimeError, match=r"should contain 4 elements not 2"):
        F.batch_norm(flambeau.zeros(3, 4), flambeau.zeros(2), flambeau.ones(2))
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        F.batch_norm(flambeau.zeros(1, 4), None, None, training=True)
    with pytest.raises(RuntimeError, match="expected input with shape"):
        F.layer_norm(flambeau.zeros(2, 3), (4,))
    with pytest.raises(ValueError, match="is not a valid value for reduction"):
        F.mse_loss(flambeau.zeros(2), flambeau.zeros(2), reduction="avg")
    with pytest.raises(IndexError, match=r"out of bounds|out of range"):
        F.embedding(flambeau.tensor([5]), flambeau.zeros(3, 2))


@pytest.mark.parametrize("name", ["silu", "mish", "leaky_relu", "elu", "selu", "celu", "hardtanh", "relu6",
                                  "hardswish", "hardsigmoid",
                                  "relu"])
def test_inplace_activations_of_what_is_computed(name: str) -> None:
    """`inplace=True` overwrites its input and still has the gradient of it."""
    def gradient(library, functions, inplace: bool):
        x = library.linspace(-4, 4, 9).requires_grad_()
        y = x * 1.0
        out = getattr(functions, name)(y, inplace=inplace)
        assert (out is y) == inplace
        out.sum().backward()
        return x.grad

    theirs = gradient(torch, TF, True)
    assert_close(gradient(flambeau, F, True), theirs)
    assert_close(gradient(flambeau, F, False), theirs)


@pytest.mark.parametrize("name", ["softshrink", "hardshrink", "glu"])
def test_large_inputs_and_their_gradients(name):
    x = randn(200, 300)
    with torch.no_grad():
        x[0, :4] = torch.tensor([-torch.inf, torch.inf, 0.5, -0.5])  # of NaN torch says one thing by vectors and another by itself
    compare_call(getattr(F, name), getattr(TF, name), [x])


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_what_is_ignored_has_no_part_in_a_cross_entropy(compiled, weighted, smoothing):
    """Not even where all is: the mean of nothing is NaN, its gradient zeros, as torch has them; nor what lies in an ignored row."""
    weight = torch.tensor([0.5, 1, 2]) if weighted else None

    def run(lib, x, target):
        w = None if weight is None else lib.tensor(weight.tolist())
        x = lib.tensor(x, requires_grad=True)

        def loss(x):
            f = lib.nn.functional
            return f.cross_entropy(x, lib.tensor(target), w, ignore_index=1, label_smoothing=smoothing) + f.nll_loss(
                x, lib.tensor(target), w, ignore_index=1)

        value = (lib.compile(loss) if compiled and lib is flambeau else loss)(x)
        value.backward()
        return value.item(), x.grad.tolist()

    nan, inf = float("nan"), float("inf")
    for x, target in (([[1.0, 2, 3], [4, 5, 6]], [1, 1]), ([[1.0, 2, 3], [4, 5, 6]], [1, 2]), ([[nan, -inf, 3], [4, 5, 6]], [1, 2])):
        ours, theirs = run(flambeau, x, target), run(torch, x, target)
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5)
        np.testing.assert_allclose(ours[1][1], theirs[1][1], rtol=1e-4, atol=1e-6)
        if x[0][0] == 1:
            np.testing.assert_allclose(ours[1][0], theirs[1][0], rtol=1e-4, atol=1e-6)


def _dropped(lib, drop, p, x):
    try:
        out = drop(lib)(x, p, True)
    except RuntimeError:
        return "refused"
    values = out.flatten().tolist()     # random ones are not compared
    return tuple(out.shape), str(out.dtype).rpartition(".")[2], values if p in (0.0, 1.0) else None


@pytest.mark.parametrize("shape", [(), (2,), (0,), (2, 3), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("kind", ["float32", "int64", "bool"])
@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", ["dropout", "alpha_dropout", "feature_alpha_dropout", "feature_dropout"])
def test_what_dropouts_take(name, p, kind, shape):
    """Nothing and everything can be dropped of any dtype and of any number of dimensions."""
    def drop(lib):
        return lib.feature_dropout if name == "feature_dropout" else getattr(lib.nn.functional, name)

    found = [_dropped(lib, drop, p, lib.ones(shape).to(getattr(lib, kind))) for lib in (flambeau, torch)]
    assert found[0] == found[1]


def test_a_bag_of_nothing_is_zero():
    for lib in (flambeau, torch):
        for mode in ("sum", "mean", "max"):
            out = lib.nn.functional.embedding_bag(lib.zeros(0, dtype=lib.int64), lib.ones(5, 3), lib.tensor([0, 0]), mode=mode)
            assert out.tolist() == [[0.0] * 3] * 2


def test_layouts_of_seldom_layers():
    columns = [lambda x: x, lambda x: x.t().contiguous().t()]
    for lay in columns:
        found = []
        for lib in (flambeau, torch):
            x, h = lay(lib.ones(2, 3)), lay(lib.ones(2, 4))
            outs = [lib.gru_cell(x, h, lib.ones(12, 3), lib.ones(12, 4)), lib.rnn_tanh_cell(x, h, lib.ones(4, 3), lib.ones(4, 4)),
                    *lib.lstm_cell(x, (h, h), lib.ones(16, 3), lib.ones(16, 4)), lib.native_layer_norm(h, (4,), None, None, 1e-5)[0],
                    lib.conv_tbc(lib.ones(4, 2, 3), lib.ones(2, 3, 5), lib.ones(5))]
            found.append([(tuple(o.shape), o.stride()) for o in outs])
        assert found[0] == found[1]


def test_statistics_of_a_norm_have_no_gradient():
    for lib in (flambeau, torch):
        out, mean, rstd = lib.native_layer_norm(lib.ones(2, 3).requires_grad_(), (3,), None, None, 1e-5)
        assert out.requires_grad and not mean.requires_grad and not rstd.requires_grad


@pytest.mark.parametrize("spatial, order", [(2, "channels_last"), (3, "channels_last_3d")])
def test_unpooled_images_lie_as_torchs(spatial, order):
    found = []
    for lib in (flambeau, torch):
        x = lib.ones((2, 2) + (2,) * spatial)
        index = lib.zeros(tuple(x.shape), dtype=lib.int64)
        unpool = getattr(lib.nn.functional, f"max_unpool{spatial}d")
        found.append([unpool(each, index, 2).stride() for each in (x, x.contiguous(memory_format=getattr(lib, order)))])
    assert found[0] == found[1]
