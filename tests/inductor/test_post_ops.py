"""What is recognised as an operation that libraries do to a product, and what is not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

import flambeau as fl
import flambeau.nn.functional as F
from flambeau.core.dtypes import bfloat16, float32
from flambeau.core.scalar import POSTS
from flambeau.inductor.loop.ir import Tracer
from flambeau.inductor.loop.post_ops import ACTIVATIONS, PostOp, activation, finish

ROOT = math.sqrt(2 / math.pi)
SPELLINGS = {
    "gelu_tanh": [
        lambda o, x: o.mul(o.mul(0.5, x), o.add(1.0, o.tanh(o.mul(ROOT, o.add(x, o.mul(0.044715, o.mul(o.mul(x, x), x))))))),
        lambda o, x: o.mul(x, o.mul(o.add(o.tanh(o.mul(o.mul(x, o.add(o.mul(o.mul(x, x), 0.044715), 1.0)), ROOT)), 1.0), 0.5)),
        lambda o, x: o.add(o.mul(0.5, x), o.mul(o.mul(x, 0.5), o.tanh(o.add(o.mul(x, ROOT),
                                                                     o.mul(o.mul(o.mul(x, x), x), 0.044715 * ROOT))))),
    ],
    "gelu_erf": [
        lambda o, x: o.mul(x, o.mul(0.5, o.add(1.0, o.erf(o.mul(x, math.sqrt(0.5)))))),
        lambda o, x: o.sub(o.mul(x, 0.5), o.mul(o.neg(o.erf(o.mul(math.sqrt(0.5), x))), o.mul(x, 0.5))),
    ],
    "relu": [lambda o, x: o.mul(o.relu(x), 1.0)],
    "sigmoid": [lambda o, x: o.neg(o.neg(o.sigmoid(x)))],
}
OTHERS = [
    lambda o, x: x, lambda o, x: o.add(o.relu(x), 1e-4), lambda o, x: o.tanh(o.mul(x, 1.001)), lambda o, x: o.relu(o.neg(x)),
    lambda o, x: o.mul(o.mul(x, 0.5), o.add(o.erf(o.mul(x, 0.7)), 1.0)), lambda o, x: o.mul(x, o.sigmoid(x)),
    lambda o, x: o.mul(o.mul(x, 0.5), o.add(o.tanh(o.mul(o.add(x, o.mul(o.mul(x, x), 0.044715)), ROOT)), 1.0)),
    lambda o, x: o.relu(o.make("held", (), float32, "y")), lambda o, x: o.to_dtype(o.relu(x), bfloat16),
]


def traced(body):
    o = Tracer()
    x = o.make("held", (), float32, "x")
    return body(o, x), x


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_recognised_however_it_is_spelled(name) -> None:
    for body in (POSTS[name].body, *SPELLINGS.get(name, ())):
        assert activation(*traced(body)) == name


@pytest.mark.parametrize("number", range(len(OTHERS)))
def test_what_is_none_of_them(number) -> None:
    assert activation(*traced(OTHERS[number])) is None


def test_rounding_on_the_way_matters_unless_told() -> None:
    value, x = traced(lambda o, x: o.to_dtype(o.relu(o.to_dtype(x, bfloat16)), bfloat16))
    assert activation(value, x) is None
    assert activation(value, x, rounded=True) == "relu"


def test_a_function_of_a_large_body_is_not_looked_into() -> None:
    def body(o, x):
        for k in range(40):
            x = o.add(o.mul(x, x), float(k))
        return x
    assert activation(*traced(body)) is None


def test_the_meaning_by_numpy() -> None:
    x, y = np.linspace(-5, 5, 11, dtype=np.float32), np.arange(11, dtype=np.float32)
    wide = x.astype(np.float64)
    want = {"relu": np.maximum(wide, 0), "tanh": np.tanh(wide), "sigmoid": special.expit(wide),
            "gelu_erf": wide * special.ndtr(wide), "gelu_tanh": 0.5 * wide * (1 + np.tanh(ROOT * (wide + 0.044715 * wide**3)))}
    assert set(want) == set(ACTIVATIONS)
    for name, values in want.items():
        np.testing.assert_allclose(finish([PostOp(name)], x, []), values, rtol=1e-5, atol=1e-6)
    chain = [PostOp("add", tensor=True), PostOp("linear", alpha=2.0, beta=1.0), PostOp("mul", tensor=True), PostOp("sub", tensor=True)]
    np.testing.assert_allclose(finish(chain, x, [x, x, y, y, x]), ((wide + y) * 2 + 1) * y - wide, rtol=1e-6)


# What ends a product, by the row that it is; `y` is like the result.
ENDS = {"add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "linear": lambda x, y: x * 0.5 + 1,
        "relu": lambda x, y: F.relu(x), "tanh": lambda x, y: fl.tanh(x), "sigmoid": lambda x, y: fl.sigmoid(x),
        "gelu_erf": lambda x, y: F.gelu(x), "gelu_tanh": lambda x, y: F.gelu(x, approximate="tanh")}
WILD = [math.nan, math.inf, -math.inf, -0.0, 3e38, -3e38, 1e-40, 60000.0]
PRODUCTS = {
    "linear": lambda x, w, b: F.linear(x, w, b),
    "bmm": lambda x, w, b: x[None] @ w.t()[None],
    "conv2d": lambda x, w, b: F.conv2d(x.t().reshape(1, 64, 8, 8), w.reshape(96, 64, 1, 1), b),
    "conv2d, channels last": lambda x, w, b: F.conv2d(x.reshape(1, 8, 8, 64).permute(0, 3, 1, 2), w[:, :, None, None].expand(
        96, 64, 3, 3), b, padding=1),
    "conv_transpose2d": lambda x, w, b: F.conv_transpose2d(x.t().reshape(1, 64, 8, 8), w.t().reshape(64, 96, 1, 1), b, stride=2),
}


@pytest.mark.parametrize("kind", [fl.float32, fl.bfloat16, fl.float16], ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_what_is_not_finite_or_huge_ends_as_in_eager(name, kind) -> None:
    """For each number one row of x (one pixel); the other terms of its sums are zeros."""
    fl._dynamo.reset()
    assert ENDS.keys() == POSTS.keys()
    x, w = fl.zeros(64, 64, dtype=kind), fl.zeros(96, 64, dtype=kind)
    x[::8, 0], w[:, 0] = fl.tensor(WILD).to(kind), 1
    weights, bias = [w.clone() for _ in ENDS], fl.zeros(96, dtype=kind)

    def program(x, weights, bias):
        made = [PRODUCTS[name](x, w, bias) for w in weights]
        return [end(y, x.reshape(-1)[1].expand_as(y)) for y, end in zip(made, ENDS.values())]

    for end, got, want in zip(ENDS, fl.compile(program)(x, weights, bias), program(x, weights, bias)):
        np.testing.assert_allclose(got.float().numpy(), want.float().numpy(), rtol=1e-2 if kind.itemsize == 2 else 1e-5, err_msg=end)
