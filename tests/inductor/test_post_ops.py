"""What is recognised as an operation that libraries do to a product, and what is not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

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
    for body in (POSTS[name][1], *SPELLINGS.get(name, ())):
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
