"""Calls of layers that make no sense, and what containers and parametrizations answer: the types of errors beside torch."""

import pytest

import flambeau as fl

torch = pytest.importorskip("torch")

CALLS = (
    "attention(o(2, 4), o(2, 2, 4), o(2, 4))", "attention(o(2, 2, 4), o(2, 4), o(2, 2, 4))",
    "attention(o(2, 1, 4), o(2, 1, 4), o(3, 1, 4))", "attention(o(2), o(2), o(2))",
    "attention(o(1, 1, 1, 4), o(1, 1, 1, 4), o(1, 1, 1, 4))", "attention(o(2, 4), o(2, 4), o(2, 4), key_padding_mask=o(1, 2))",
    "attention(o(2, 1, 4), o(2, 1, 4), o(2, 1, 4), key_padding_mask=o(2))",
    "attention(o(2, 1, 4), o(2, 1, 4), o(2, 1, 4), attn_mask=o(2))", "attention(o(2, 4), o(3, 4), o(3, 4))[0].shape",
    "F.affine_grid(o(1, 2, 3), (1, 1, 0, 2), align_corners=False)", "F.affine_grid(o(1, 2, 3), (1, 1, -1, 2), align_corners=False)",
    "F.embedding_bag(i(1), o(4, 2), i(1))", "F.embedding_bag(i(1, 2), o(4, 2), i(0, 5))",
    "F.embedding_bag(i(1, 2), o(4, 2), i(0, 1)).shape", "F.embedding_bag(i(), o(4, 2), i()).shape",
    "F.ctc_loss(o(2, 2), i(1, 0), [2], [1])", "F.ctc_loss(o(4, 2), i(1, 1), [4], [2]) > -9",
    "nn.Sequential(nn.ReLU()).set_submodule('0', 5)", "nn.ParameterDict({'a': o(1)})['b']", "'b' in nn.ParameterDict({'a': o(1)})",
    "parametrize.transfer_parametrizations_and_params(nn.Linear(2, 2), nn.Linear(2, 2))",
)


def outcome(lib, call):
    names = {"nn": lib.nn, "F": lib.nn.functional, "o": lib.ones, "parametrize": lib.nn.utils.parametrize,
             "i": lambda *v: lib.tensor(v, dtype=lib.int64), "attention": lib.nn.MultiheadAttention(4, 2)}
    try:
        return str(eval(call, names))
    except (AssertionError, AttributeError, RuntimeError, TypeError, ValueError) as error:
        return type(error).__name__


@pytest.mark.parametrize("call", CALLS)
def test_like_torch(call):
    assert outcome(fl, call) == outcome(torch, call)


def moved(lib):
    class Doubled(lib.nn.Module):
        def forward(self, x):
            return x * 2

        def right_inverse(self, x):
            return x / 2

    class Split(lib.nn.Module):
        def forward(self, a, b):
            return a + b

        def right_inverse(self, x):
            return x, x * 0

    old, new = lib.nn.Linear(2, 2), lib.nn.Linear(2, 2)
    lib.nn.init.constant_(old.weight, 3.0)
    lib.nn.init.constant_(old.bias, 1.0)
    register = lib.nn.utils.parametrize.register_parametrization
    register(register(old, "weight", Doubled()), "bias", Split())
    given = lib.nn.utils.parametrize.transfer_parametrizations_and_params(old, new)
    return given is new, sorted(new.state_dict()), new.weight.tolist(), new.bias.tolist(), old.weight.tolist()


def test_parametrizations_are_transferred():
    assert moved(fl) == moved(torch)
