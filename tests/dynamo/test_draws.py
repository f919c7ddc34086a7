"""Python's random numbers in compiled functions: fresh ones in each call, as many and in the order of the program."""

from __future__ import annotations

import random

import pytest

import flambeau as fl
from flambeau._dynamo.testing import CompileCounter

X = fl.arange(4.0)
OWN = random.Random(5)


def _scaled(x):
    return x * random.random() + random.uniform(2, 3)


def _whole(x):
    return x + random.randint(0, 5) * 2


def _sizes(x):
    return x.new_ones(4) * random.gauss(0, 1) + len([random.random() for _ in range(3)])


def _own(x):
    return x * OWN.random() + random.expovariate(2.0)


def _unused(x):
    random.random()
    return x + random.random()


def _branch(x):
    y = x * random.random()
    if random.random() < 0.5:
        return y + random.random()
    return y - random.random()


def _in_a_loop(x):
    for _ in range(3):
        x = x * random.random()
    return x


def _range(x):
    return x + sum(range(random.randrange(1, 4)))


def _values(function, calls=6):
    random.seed(3)
    OWN.seed(4)
    return [function(X) for _ in range(calls)], random.random(), OWN.random()


WHOLE = [_scaled, _whole, _sizes, _own, _unused, _in_a_loop]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("function", [*WHOLE, _branch, _range], ids=lambda f: f.__name__)
def test_as_in_python(function, backend):
    expected, then, own_then = _values(function)
    got, after, own_after = _values(fl.compile(function, backend=backend))
    for a, b in zip(expected, got):
        fl.testing.assert_close(b, a, rtol=1e-6, atol=1e-6)
    assert (after, own_after) == (then, own_then)


@pytest.mark.parametrize("function", WHOLE, ids=lambda f: f.__name__)
def test_one_graph(function):
    counter = CompileCounter()
    _values(fl.compile(function, backend=counter, fullgraph=True))
    assert counter.frame_count == 1


def test_nothing_is_drawn_where_a_guard_fails():
    function = fl.compile(lambda x, scale: x * scale * random.random(), backend="eager")
    function(X, 1)
    random.seed(1)
    first = function(X.double(), 2)
    random.seed(1)
    assert fl.equal(first, X.double() * 2 * random.random())


def test_gradients():
    def loss(w):
        return (w * random.random()).sum()

    w = fl.ones(3, requires_grad=True)
    compiled = fl.compile(loss)
    random.seed(2)
    for _ in range(2):
        w.grad = None
        compiled(w).backward()
        seen = w.grad.clone()
    random.seed(2)
    random.random()
    assert seen.tolist() == pytest.approx([random.random()] * 3)


def test_wrong_arguments_raise_the_same_error():
    with pytest.raises(ValueError, match="empty range"):
        fl.compile(lambda x: x + random.randint(3, 1), backend="eager")(X)
